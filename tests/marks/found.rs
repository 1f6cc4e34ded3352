//! Traces that reading and searching have found, beyond the marks.

use std::time::Duration;

use tenure::core::{AppStopped, Stamp, State};
use tenure::timing::Timing;

use super::sim::{Clock, Fate, Kind, MS, SECOND, World};
use super::{A, B, C};

/// A Lease that nobody wrote for long: its version is refused by the watch (410), as often as it is read.
pub(crate) fn watch_of_an_idle_lease(world: &mut World) {
    world.edit(|object| object.record.coordinated = true);
    world.store.skip(100);
    world.store.compacted = world.store.version();
    world.start(A);
    world.run_to(60_000);
    assert!(world.pods[A].gets <= 3, "{} reads in a minute", world.pods[A].gets);
    world.edit(|object| object.record.coordinated = false);
    world.run_for(10);
    assert!(world.says_leader(A), "the watch that begins afresh has seen the change");
}

/// The watch fails as often as it is tried, while the Lease is somebody else's matter: reads go on.
pub(crate) fn watch_that_never_opens(world: &mut World) {
    world.edit(|object| object.record.coordinated = true);
    world.link(A).watch = Fate::refused(500, None);
    world.start(A);
    world.run_to(20_000);
    world.edit(|object| object.record.coordinated = false);
    world.run_to(36_000);
    assert!(world.says_leader(A), "{} reads", world.pods[A].gets);
}

/// A is killed, starts again, and is told to stop while its take-over is on its way: the app still works
/// on what the first process granted, until 14.
pub(crate) fn undone_take_over_under_a_grant(world: &mut World) {
    world.start(A);
    world.run_to(5_000);
    assert!(world.poll(A));
    world.run_to(5_100).crash(A);
    world.link(A).then(Kind::Put, Fate::ok(500 * MS, MS));
    world.run_to(5_200).start(A);
    world.start(B);
    world.run_to(5_300).shutdown(A);
    world.run_to(15_190);
    assert!(!world.anybody());
    world.run_to(15_300);
    assert!(world.says_leader(B), "released R after the start, when all grants have lapsed");
    assert_eq!(world.terms(A), 1, "A never said leader again");
}

/// A read that was sent before A wanted to know what became of its acquisition tells nothing of it.
pub(crate) fn read_from_before_the_question(world: &mut World) {
    world.link(A).watch = Fate::LOST;
    world.edit(|object| {
        object.record.holder = Some("gone_1".into());
        object.record.duration = Some(Duration::from_secs(15));
    });
    world.start(A);
    // Its poll of 15.0 is answered at 18.2, from what the server saw at 15.0.
    world.run_to(1_000).link(A).get = Fate::ok(MS, 3_199 * MS);
    world.link(A).then(Kind::Put, Fate::ok(2_800 * MS, 3 * SECOND));
    world.run_to(15_500).shutdown(A);
    // The one that asks, at 18.17, is answered after it.
    world.link(A).get = Fate::ok(100 * MS, 100 * MS);
    world.run_to(25_000);
    let record = world.store.object.as_ref().expect("the Lease").record.clone();
    assert_ne!(record.holder.as_deref(), Some(&*world.pods[A].identity), "a dead holder is left");
}

/// The shortest timings that are allowed, and nothing in the way.
pub(crate) fn shortest_timings(world: &mut World) {
    let ms = Duration::from_millis;
    world.pods[A].setup.timing = Timing::new(ms(2_000), ms(1_000), ms(400)).expect("allowed");
    world.pods[A].clock.wall += 30_000;
    world.start(A);
    world.run_to(60_000);
    assert_eq!((world.terms(A), world.says_leader(A)), (1, true), "a healthy leader leads on");
}

/// The wall clock is set back an hour, and stands still for a while.
pub(crate) fn wall_clock_set_back(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(5_000).pods[A].clock.wall -= 3_600_000_000;
    for _ in 0..300 {
        world.run_for(100).pods[A].clock.wall -= 100_000;
    }
    assert!(world.says_leader(A) && world.terms(A) == 1);
    world.run_to(90_000);
    assert!(world.says_leader(A) && world.terms(A) == 1);
}

/// The wall clock is set back by half a second, and renewals are as far apart: renewTime stays near it.
pub(crate) fn wall_clock_set_back_a_little(world: &mut World) {
    let ms = Duration::from_millis;
    world.pods[A].setup.timing = Timing::new(ms(3_000), ms(2_000), ms(500)).expect("allowed");
    world.start(A);
    world.run_to(5_000).pods[A].clock.wall -= 500_000;
    world.run_to(120_000);
    assert_eq!((world.terms(A), world.says_leader(A)), (1, true), "a healthy leader leads on");
    let record = &world.store.object.as_ref().expect("the Lease").record;
    let Some(Stamp::At(written)) = record.renew_time else { panic!("{record:?}") };
    let ahead = written.as_micros() - world.pods[A].clock.now(world.now).wall.as_micros();
    assert!(ahead < 1_000_000, "renewTime is {ahead} µs ahead");
}

/// A stale client-go elector blanks A's record and writes the number that it knows, an older one.
pub(crate) fn blanked_with_an_older_number(world: &mut World) {
    world.edit(|object| object.record.transitions = Some(7));
    blanked_with(world, 3);
}

fn blanked_with(world: &mut World, number: u32) {
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(5_000).cut(A);
    world.edit(|object| {
        object.record.holder = None;
        object.record.duration = Some(Duration::from_secs(1));
        object.record.transitions = Some(number);
    });
    world.run_to(13_900);
    assert!(world.says_leader(A) && !world.says_leader(B));
    world.run_to(20_100);
    assert!(world.says_leader(B), "a full term after the blank");
}

/// Held and freed by a foreign elector: free at once.
pub(crate) fn freed_by_a_foreign_elector(world: &mut World) {
    world.start(A);
    world.run_to(5_000).app_stopped(A, AppStopped { last: true, ..AppStopped::default() });
    world.run_to(5_100);
    for (holder, number) in [(Some("foreign_1"), 2), (None, 2)] {
        world.edit(|object| {
            object.record.holder = holder.map(Into::into);
            object.record.transitions = Some(number);
        });
    }
    world.run_to(6_000).start(C);
    world.run_for(10);
    assert!(world.says_leader(C));
    assert_eq!(world.state(A), State::CoolingDown);
}

/// The Lease is deleted within the second in which it was taken, and taken again: its number of
/// transitions is the same, and a client-go standby takes the new term for the old one.
pub(crate) fn deleted_within_one_second(world: &mut World) {
    let ms = Duration::from_millis;
    world.pods[A].setup.timing = Timing::new(ms(3_000), ms(2_500), ms(300)).expect("allowed");
    world.start(A);
    world.run_to(10);
    world.add_peer(Clock::exact(9), [3 * SECOND, 2_400 * MS, 100 * MS]);
    world.run_to(930).delete();
    world.run_to(950);
    assert!(world.says_leader(A), "the leader whose Lease vanished takes the new one at once");
    assert_eq!(world.terms(A), 2);
    world.cut(A);
    world.run_to(3_420);
    assert!(world.says_leader(A), "until its own deadline");
    world.run_to(4_500);
    assert_eq!(world.leaders().len(), 1, "client-go leads now");
}
