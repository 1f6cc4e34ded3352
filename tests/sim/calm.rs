//! The liveness phase: without faults somebody must lead, lead on, and be followed (L1-L3).

use tenure::core::{AppStopped, State};

use super::checker::PEER;
use super::clock::{MS, SECOND};
use super::store::version_of;
use super::world::World;

impl World {
    /// Ends all faults and sees that L1-L3 hold; then tells what the checker has found in all.
    pub fn liveness(&mut self) -> Result<(), String> {
        // Nor may the calm start anybody who would be fooled.
        let earliest = self.swarm.as_ref().map_or(0, |swarm| swarm.no_starts_until);
        self.run_to_ns(earliest.max(self.now));
        let remade = self.swarm.as_ref().and_then(|swarm| swarm.remade_at);
        let edited = self.swarm.as_ref().map_or(0, |swarm| swarm.edited);
        let missing = self.store.object.is_none();
        self.calm();
        self.forget_the_dead();
        // An outage ends when the requests that it has held up have arrived.
        self.run_to_ns(self.last_arrival().max(self.now + FIRST_READ));
        let newest = self.store.object.as_ref().map_or(0, |object| version_of(object));
        let all_know = (0..self.pods.len()).all(|pod| self.pods[pod].seen == newest);
        let lease = self.longest_lease();
        // Where the Lease had to be made anew, once more; what a candidate remembers of its last holder
        // counts then, on the slowest clock.
        let anew = 2 * lease.max(edited * 5 / 4);
        let again = missing || remade.is_some_and(|at| at + anew > self.now);
        let limit = if again { anew } else { lease };
        let mut limit = limit + SLACK;
        if (0..self.pods.len()).any(|pod| self.state(pod) == State::Draining) {
            // Candidates that are giving a term up take their time first.
            limit += DRAINING;
        }
        if !all_know {
            // Candidates count from their first sight, by the read that follows one that was lost.
            limit += self.longest(|timing| timing.attempt_timeout() + timing.retry_period());
        }
        if !self.comes_to_be_led(limit) {
            return Err(format!("L3: nobody leads {} ms after all faults ended", limit / MS));
        }
        stays_led(self, lease)?;
        hands_over(self)?;
        match self.checker.violations.is_empty() {
            true => Ok(()),
            false => Err(self.checker.violations.join("\n")),
        }
    }
}

impl World {
    fn comes_to_be_led(&mut self, limit: u64) -> bool {
        let ended = |world: &World| (0..world.pods.len()).find(|&pod| !world.runs(pod));
        loop {
            if self.until(limit / MS, |it| it.anybody() || ended(it).is_some()).is_none() {
                return false;
            }
            if self.anybody() {
                return true;
            }
            // It had been told to stop before. Another one comes in its place, and has its own time.
            let pod = ended(self).expect("nobody leads");
            self.start(pod);
        }
    }
}

/// The longest drain timeout that a seed draws, on the slowest clock.
const DRAINING: u64 = 10 * SECOND;

/// There and back, 1 ms a message.
const FIRST_READ: u64 = 3 * MS;

/// A few messages.
const SLACK: u64 = SECOND;

/// A leader with nothing in its way leads on.
fn stays_led(world: &mut World, lease: u64) -> Result<(), String> {
    world.run_to_ns(world.now + lease + DRAINING);
    for pod in 0..world.pods.len() {
        if world.pods[pod].elector.is_none() {
            world.start(pod);
        }
    }
    match world.until(2 * lease / MS, |world| !world.anybody()) {
        None => Ok(()),
        Some(after) => Err(format!("L3: nobody leads any more after {after} ms of calm")),
    }
}

/// The one that leads, and whether another is ready to follow.
fn leader_and_heir(world: &World) -> Option<usize> {
    let leaders = world.leaders();
    let leader = leaders.first().map(|(author, ..)| author.pod).filter(|pod| *pod < PEER)?;
    let pods = 0..world.pods.len();
    let ready = |pod: &usize| *pod != leader && world.state(*pod) == State::Following;
    pods.into_iter().any(|pod| ready(&pod)).then_some(leader)
}

fn hands_over(world: &mut World) -> Result<(), String> {
    if !world.peers.is_empty() {
        return Ok(());
    }
    let Some(leader) = leader_and_heir(world) else { return Ok(()) };
    world.app_stopped(leader, AppStopped::default());
    if world.until(HAND_OVER / MS, |world| world.anybody()).is_none() {
        return Err("L1: nobody leads after a release".into());
    }
    let lease = world.longest_lease();
    world.run_to_ns(world.now + lease);
    let Some(leader) = leader_and_heir(world) else { return Ok(()) };
    world.crash(leader);
    match world.until((lease + HAND_OVER) / MS, |world| world.anybody()) {
        Some(_) => Ok(()),
        None => Err("L2: nobody leads after a crash".into()),
    }
}

/// The release's PUT, one watch delivery, the acquisition's PUT: 1 ms a message.
const HAND_OVER: u64 = 6 * MS;
