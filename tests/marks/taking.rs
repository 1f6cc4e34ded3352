//! When a Lease may be taken.

use std::time::Duration;

use tenure::core::{Blocked, State, Tell};

use super::sim::{Fate, Kind, MS, SECOND, World};
use super::{A, B, C};

/// 0 A renews, cut off; 1 deleted; 1.5 B starts and finds nothing.
pub(crate) fn made_anew_held_by_nobody(world: &mut World) {
    world.start(A);
    world.run_to(500).cut(A);
    world.run_to(1_000).delete();
    world.run_to(1_500).start(B);
    world.run_to(2_000);
    let made = world.store.object.clone().expect("B has made it");
    assert_eq!(made.record.holder.as_deref(), Some("tenure/new"));
    world.run_to(9_900);
    assert!(world.says_leader(A) && !world.says_leader(B));
    world.run_to(16_490);
    assert!(!world.anybody());
    world.run_to(16_600);
    assert!(world.says_leader(B), "a full term after the first sight of the new one");
}

/// B's watch is silent; A renews on, is cut off, and its Lease deleted just before B's wait from the
/// last change that it *saw* is over.
pub(crate) fn wait_from_first_sight_of_the_uid(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(6_100).link(B).watch_silent = true;
    world.run_to(20_100).cut(A);
    world.run_to(20_500).delete();
    world.run_to(29_900);
    assert!(world.says_leader(A) && !world.says_leader(B));
    world.run_to(35_900);
    assert!(!world.anybody());
    world.run_to(36_500);
    assert!(world.says_leader(B));
}

/// The Lease is deleted and made anew empty, as a chart does; A is cut off and still valid.
pub(crate) fn empty_in_another_uid(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(6_500).cut(A);
    world.run_to(7_000).delete();
    world.create_empty();
    world.run_to(15_900);
    assert!(world.says_leader(A) && !world.says_leader(B));
    world.run_to(21_900);
    assert!(!world.anybody());
    world.run_to(22_100);
    assert!(world.says_leader(B));
}

/// K (client-go) stands still, A acquires and is cut off, K wakes and releases: it blanks A's record.
pub(crate) fn blanked_by_client_go(world: &mut World) {
    let clock = super::sim::Clock::exact(9);
    let k = world.add_peer(clock, [15 * SECOND, 10 * SECOND, 2 * SECOND]);
    world.run_to(100).start(A);
    world.start(B);
    world.run_to(5_000).peers[k].paused = true;
    // Both saw K's last renewal at 4; only A's link is good enough to win.
    world.link(B).put = Fate::LOST;
    world.run_to(21_000);
    assert!(world.says_leader(A));
    world.link(B).put = Fate::ok(MS, MS);
    world.cut(A);
    world.run_to(22_000).peer_resume(k);
    world.run_to(22_100);
    let blank = world.store.object.clone().expect("the Lease").record.clone();
    assert_eq!((blank.holder, blank.transitions), (None, blank.annotated_transitions));
    world.run_to(28_900);
    assert!(world.says_leader(A) && !world.says_leader(B));
    world.run_to(36_900);
    assert!(!world.anybody());
    world.run_to(37_200);
    assert!(world.says_leader(B), "a full term after the record was blanked");
}

/// Somebody patches the duration to 1 s.
pub(crate) fn duration_patched(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    let short = Some(Duration::from_secs(1));
    world.run_to(5_000).edit(|object| object.record.duration = short);
    world.run_to(8_000);
    assert!(world.says_leader(A), "a healthy leader is not robbed");
    let duration = world.store.object.as_ref().expect("the Lease").record.duration;
    assert_eq!(duration, Some(Duration::from_secs(15)), "its renewal repairs the duration");
    world.edit(|object| object.record.duration = short);
    world.cut(A);
    world.run_to(15_900);
    assert!(world.says_leader(A) && !world.says_leader(B));
    world.run_to(23_100);
    assert!(world.says_leader(B));
}

/// Two living processes with one identity; neither knows the other to be dead.
pub(crate) fn predecessor_that_lives(world: &mut World) {
    same_name_twice(world);
    world.run_to(5_000).start(B);
    world.run_to(30_000);
    assert!(world.says_leader(A), "the first process leads on");
    assert_eq!(world.state(B), State::Blocked);
    let told = Tell::Blocked(Blocked::IdentityConflict);
    assert!(world.tells.iter().any(|(_, author, tell)| author.pod == B && *tell == told));
    assert_eq!(world.terms(A), 1);
}

fn same_name_twice(world: &mut World) {
    world.pods[B].identity = world.pods[A].identity.clone();
    world.pods[A].setup.takes_over = false;
    world.pods[B].setup.takes_over = false;
    world.pods[B].life = 10;
    world.start(A);
    world.run_to(100);
}

/// A record with my name and a foreign incarnation is waited out like any other, and no longer.
pub(crate) fn my_name_by_another_process(world: &mut World) {
    same_name_twice(world);
    world.run_to(5_000).cut(A);
    world.start(B);
    world.run_to(13_900);
    assert!(world.says_leader(A) && !world.says_leader(B));
    world.run_to(19_900);
    assert_eq!(world.state(B), State::Blocked);
    world.run_to(20_100);
    assert!(world.says_leader(B), "the conflict ends with the other's term");
    // Our own annotations stripped: still our record, and the next renewal puts them back.
    world.edit(|object| {
        object.record.epoch = None;
        object.record.incarnation = None;
        object.record.annotated_transitions = None;
    });
    world.run_to(40_000);
    assert!(world.says_leader(B) && world.terms(B) == 1);
    let record = world.store.object.as_ref().expect("the Lease").record.clone();
    assert_eq!(record.epoch, world.epoch(B));
    assert!(record.incarnation.is_some());
}

/// The store is an older one again, in which the Lease is free; B, cut off, is still valid.
pub(crate) fn store_went_back(world: &mut World) {
    world.start(A);
    world.run_to(100).start(B);
    world.run_to(200).start(C);
    world
        .run_to(4_000)
        .app_stopped(A, tenure::core::AppStopped { last: true, ..Default::default() });
    let mut free = None;
    world.until(1_000, |world| {
        let record = &world.store.object.as_ref().expect("the Lease").record;
        free = record.holder.is_none().then(|| world.store.clone());
        free.is_some()
    });
    world.link(C).put = Fate::LOST;
    world.run_to(20_000);
    assert!(world.says_leader(B));
    world.link(C).put = Fate::ok(MS, MS);
    world.cut(B);
    world.run_to(21_000).restore(free.expect("a free Lease"));
    world.run_to(27_900);
    assert!(world.says_leader(B) && !world.says_leader(C));
    world.run_to(40_000);
    assert!(world.says_leader(C));
    let went_back = |tell: &Tell| matches!(tell, Tell::StoreWentBack { .. });
    assert!(world.tells.iter().any(|(_, author, tell)| author.pod == C && went_back(tell)));
}

/// A is killed with a renewal on its way, and starts again in the same pod.
pub(crate) fn late_renewal_of_the_predecessor(world: &mut World) {
    world.start(A);
    world.run_to(5_000).link(A).then(Kind::Put, Fate::ok(500 * MS, MS));
    world.run_to(6_010).crash(A);
    world.run_to(6_100).link(A).then(Kind::Put, Fate::ok(600 * MS, MS));
    world.start(A);
    world.run_to(7_000);
    assert!(world.says_leader(A), "it takes over from the dead, whatever lands late");
    assert_eq!(world.terms(A), 2);
}

/// A's term ran out while the API was away; nobody else took the Lease.
pub(crate) fn my_own_record_after_the_term(world: &mut World) {
    world.start(A);
    world.run_to(1_000);
    let first = world.epoch(A).expect("a term");
    world.run_to(2_500).cut(A);
    world.run_to(13_000).heal(A);
    world.run_to(15_500);
    assert!(world.says_leader(A), "at once, not a lease duration later");
    assert!(world.epoch(A) > Some(first), "never the old epoch again");
}

/// The Lease is deleted under A, who makes and takes the new one; its leaseTransitions begin anew.
pub(crate) fn epochs_outlive_the_lease(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(3_000);
    let first = world.epoch(A).expect("a term");
    world.delete();
    world.run_to(3_100);
    assert!(world.says_leader(A), "the leader whose Lease vanished takes the new one at once");
    assert!(world.epoch(A) > Some(first));
}

pub(crate) fn two_want_the_free_lease(world: &mut World) {
    world.start(A);
    world.start(B);
    world.run_to(5_000);
    assert_eq!(world.leaders().len(), 1);
}

/// B's wall clock is an hour ahead of A's.
pub(crate) fn wall_clock_an_hour_ahead(world: &mut World) {
    world.pods[B].clock.wall += 3_600_000_000;
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(40_000);
    assert!(world.says_leader(A) && world.terms(A) == 1);
}

/// As in F2, but B's acquisition itself meets the deleted Lease.
pub(crate) fn acquiring_a_deleted_lease(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(6_100).link(B).watch_silent = true;
    world.run_to(20_100).cut(A);
    world.run_to(20_500).delete();
    world.run_to(29_900);
    assert!(world.says_leader(A) && !world.says_leader(B));
}
