//! What makes a term valid, and until when.

use std::time::Duration;

use tenure::timing::Timing;

use super::sim::script::timing;
use super::sim::serve::watch_event;
use super::sim::{Back, Clock, Fate, Kind, MS, SECOND, World};
use super::{A, B};

/// A's renewal of 2.0 commits, its answer is lost; of its repeats one is never answered, one gets 409,
/// and the read shows "mine".
pub(crate) fn credit_of_the_attempt_that_landed(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    let link = world.link(A);
    link.watch_silent = true;
    link.then(Kind::Put, Fate::UNHEARD).then(Kind::Put, Fate::UNHEARD);
    link.then(Kind::Put, Fate::ok(MS, MS));
    world.run_to(7_000).link(A).put = Fate::LOST;
    world.run_to(11_900);
    assert!(world.says_leader(A), "the renewal of 2.0 is credited");
    world.run_to(12_010);
    assert!(!world.says_leader(A), "and no later one");
    world.link(A).get = Fate::LOST;
    world.run_to(17_200);
    assert!(world.says_leader(B));
}

/// A's only renewal is answered after A has expired, and that is the first thing it hears.
pub(crate) fn late_answer_revives_nothing(world: &mut World) {
    world.start(A);
    world.run_to(500);
    let link = world.link(A);
    link.watch_silent = true;
    link.then(Kind::Put, Fate::ok(MS, 9 * SECOND)).put = Fate::LOST;
    link.get = Fate::LOST;
    world.run_to(9_000).pause(A);
    world.run_to(11_500).resume(A);
    assert!(!world.says_leader(A), "ended at 10.002");
    assert_eq!(world.ends(A).len(), 1);
    world.run_to(30_000);
    assert_eq!(world.ends(A).len(), 1);
}

/// Three renewals within one whole second: a client-go standby sees none of them.
pub(crate) fn renewals_within_one_second(world: &mut World) {
    world.pods[A].setup.timing = timing(3, 2_500, 300);
    world.start(A);
    world.run_to(10);
    world.add_peer(Clock::exact(9), [3 * SECOND, 2_400 * MS, 100 * MS]);
    world.run_to(950).cut(A);
    world.run_to(3_300);
    assert_eq!(world.leaders().len(), 1, "client-go leads now");
    assert!(!world.says_leader(A));
}

/// B's watch replays old events for ever; A's brings one of before its term.
pub(crate) fn replayed_events(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(5_000);
    let old = |world: &World, at: usize| watch_event(&world.store.log[at]);
    let event = old(world, 0);
    world.feed(A, event);
    world.run_to(10_100);
    assert!(world.says_leader(A) && world.terms(A) == 1, "an old event ends no healthy term");
    world.crash(A);
    for round in 0..4 {
        let event = old(world, 2 + round % 2);
        world.feed(B, event);
        world.run_for(3_500);
    }
    world.run_to(25_200);
    assert!(world.says_leader(B), "old events do not put the takeover off");
}

/// A renewal is told to come back in 30 s; a standby, in an hour.
pub(crate) fn retry_after(world: &mut World) {
    world.start(A);
    world.run_to(500).link(A).then(Kind::Put, Fate::refused(429, Some(30)));
    world.run_to(500).link(B).then(Kind::Get, Fate::refused(429, Some(3_600)));
    world.start(B);
    world.run_to(20_000);
    assert!(world.says_leader(A) && world.terms(A) == 1);
    world.crash(A);
    world.run_to(36_000);
    assert!(world.says_leader(B));
}

/// Each PUT takes 4.5 s, and is committed.
pub(crate) fn slow_server(world: &mut World) {
    world.start(A);
    world.run_to(500);
    let link = world.link(A);
    link.watch_silent = true;
    link.put = Fate::ok(MS, 4_499 * MS);
    world.run_to(120_000);
    assert!(world.says_leader(A) && world.terms(A) == 1);
}

/// Clocks that an NTP client slews (500 ppm each way), and a renew deadline that leaves no room.
pub(crate) fn room_for_drift(world: &mut World) {
    let ms = Duration::from_millis;
    let tight = (ms(15_000), ms(14_995), ms(2_000));
    assert!(Timing::new(tight.0, tight.1, tight.2).is_err(), "refused");
    let off = world.mutant.is_some();
    let (lease, renew, retry) = if off { tight } else { (ms(15_000), ms(12_500), ms(2_000)) };
    for pod in [A, B] {
        world.pods[pod].setup.timing = Timing::unchecked(lease, renew, retry);
    }
    world.pods[A].clock.rate = 999_500;
    world.pods[B].clock.rate = 1_000_500;
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(5_000).cut(A);
    world.run_to(30_000);
    assert!(world.says_leader(B));
}

/// The answer to a renewal takes 6 s; those to its repeats never come.
pub(crate) fn validity_counts_from_the_send(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    let link = world.link(A);
    link.watch_silent = true;
    let slow = Fate { back: Back::After(6 * SECOND), ..Fate::UNHEARD };
    link.then(Kind::Put, slow).put = Fate::LOST;
    link.get = Fate::LOST;
    world.run_to(11_900);
    assert!(world.says_leader(A));
    world.run_to(12_010);
    assert!(!world.says_leader(A), "R after the send, however late the answer");
    world.run_to(17_100);
    assert!(world.says_leader(B));
}

/// Within the drift that is allowed, R is short enough and L is not.
pub(crate) fn validity_ends_before_the_lease(world: &mut World) {
    world.pods[A].clock.rate = 830_000;
    world.pods[B].clock.rate = 1_230_000;
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(5_000).cut(A);
    world.run_to(30_000);
    assert!(world.says_leader(B));
}

/// A's elector task gets to see nothing more, its API answers on.
pub(crate) fn stuck_elector(world: &mut World) {
    world.start(A);
    world.run_to(500).pause(A);
    world.run_to(9_900);
    assert!(world.says_leader(A));
    world.run_to(10_010);
    assert!(!world.says_leader(A), "no answer is a stored boolean");
}
