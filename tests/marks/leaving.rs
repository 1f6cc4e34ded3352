//! Stepping down.

use tenure::core::{AppStopped, End, State};

use super::sim::{Fate, Kind, MS, SECOND, World};
use super::{A, B};

/// Nobody knows whether A's release took effect, and the read that would tell takes its time: no new term
/// before, and the old release never touches it.
pub(crate) fn slow_release_and_the_next_term(world: &mut World) {
    world.start(A);
    world.run_to(5_000);
    let first = world.epoch(A).expect("a term");
    world.link(A).then(Kind::Put, Fate::RESET).get = Fate::LOST;
    world.link(A).watch_silent = true;
    world.app_stopped(A, AppStopped::default());
    world.run_to(9_000);
    assert_eq!(world.state(A), State::Draining);
    world.heal(A);
    world.link(A).get = Fate::ok(MS, MS);
    world.run_to(20_000);
    assert!(world.says_leader(A) && world.epoch(A) > Some(first));
    assert_eq!((world.terms(A), world.ends(A).len()), (2, 1));
}

/// A is killed, starts again in its pod, takes over, and is told to stop before it has granted anything;
/// the app still works on what the first process granted.
pub(crate) fn grants_of_the_predecessor(world: &mut World) {
    world.start(A);
    world.run_to(5_000);
    assert!(world.poll(A));
    world.run_to(5_100).crash(A);
    world.run_to(5_200).start(A);
    world.run_to(5_300);
    assert!(world.says_leader(A) && world.terms(A) == 2);
    world.shutdown(A);
    world.run_to(15_100);
    assert_eq!(world.state(A), State::Draining);
    world.run_to(15_300);
    assert_eq!(world.ends(A).last().expect("an end").1, End::Shutdown);
}

/// B's acquisition is on its way when B is told to stop; C waits for the Lease.
pub(crate) fn acquisition_in_flight_at_the_end(world: &mut World) {
    world.link(B).then(Kind::Put, Fate::ok(SECOND, 1));
    world.start(B);
    world.run_to(100).shutdown(B);
    world.run_to(900).start(A);
    world.link(A).then(Kind::Put, Fate::ok(SECOND / 2, 1));
    world.run_to(1_900);
    assert!(world.says_leader(A), "the Lease that nobody was told of is free again");
    assert_eq!(world.terms(B), 0, "and B never said leader");
}

/// A's app was granted the term's length a moment ago, and has not said that it stopped.
pub(crate) fn no_release_under_a_grant(world: &mut World) {
    world.start(A);
    world.run_to(500).start(B);
    world.run_to(5_000);
    assert!(world.poll(A));
    world.shutdown(A);
    assert!(!world.says_leader(A));
    world.run_to(13_990);
    assert!(!world.says_leader(B));
    world.run_to(14_100);
    assert!(world.says_leader(B), "released when the last grant lapsed");
}
