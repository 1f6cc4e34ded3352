//! The verbs in which a test tells its trace. Times in milliseconds of true time.

use std::time::Duration;

use tenure::core::{AppStopped, Ask, End, Event, Mark, Rules, State, Tell};
use tenure::timing::Timing;

use super::clock::{Clock, MS};
use super::link::Link;
use super::store::{Object, Store};
use super::world::{Setup, World};

pub fn timing(lease_s: u64, renew_ms: u64, retry_ms: u64) -> Timing {
    let ms = Duration::from_millis;
    Timing::new(ms(lease_s * 1_000), ms(renew_ms), ms(retry_ms)).expect("a sound timing")
}

impl World {
    /// Candidates on exact clocks, none of them started, and an empty Lease.
    pub fn of(pods: usize, rules: Rules, mutant: Option<Mark>) -> World {
        let mut world = World::new(rules, mutant);
        for number in 0..pods {
            world.add_pod(Clock::exact(number), Setup::default());
        }
        world.store.create_empty();
        world
    }

    /// Lets everything happen up to and including that time.
    pub fn run_to(&mut self, ms: u64) -> &mut World {
        self.run_to_ns(ms * MS)
    }

    pub fn run_to_ns(&mut self, until: u64) -> &mut World {
        while self.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = until;
        self.look();
        self
    }

    pub fn run_for(&mut self, ms: u64) -> &mut World {
        self.run_to_ns(self.now + ms * MS)
    }

    /// Runs until that is so; how long it took, in milliseconds (rounded up). Fails after `limit`.
    pub fn until(&mut self, limit: u64, mut so: impl FnMut(&World) -> bool) -> Option<u64> {
        let begin = self.now;
        let end = begin + limit * MS;
        while !so(self) {
            if self.next_at().is_none_or(|at| at > end) {
                self.now = end;
                self.look();
                return None;
            }
            self.step();
        }
        Some((self.now - begin).div_ceil(MS))
    }

    pub fn link(&mut self, pod: usize) -> &mut Link {
        &mut self.pods[pod].link
    }

    pub fn cut(&mut self, pod: usize) {
        self.note(|| format!("{pod} is cut off"));
        self.link(pod).cut = true;
    }

    pub fn heal(&mut self, pod: usize) {
        self.note(|| format!("{pod} is connected again"));
        self.link(pod).cut = false;
        self.link(pod).watch_silent = false;
    }

    /// Whether the pod's API would say leader now. Grants nothing.
    pub fn says_leader(&self, pod: usize) -> bool {
        self.leaders().iter().any(|(author, ..)| author.pod == pod)
    }

    pub fn anybody(&self) -> bool {
        !self.leaders().is_empty()
    }

    pub fn state(&self, pod: usize) -> State {
        // A process that has ended sits out for good.
        self.pods[pod].elector.as_ref().map_or(State::CoolingDown, |elector| elector.state())
    }

    pub fn epoch(&self, pod: usize) -> Option<u64> {
        self.pods[pod].elector.as_ref()?.held_epoch()
    }

    /// Asks the pod's API, which grants what it answers.
    pub fn poll(&mut self, pod: usize) -> bool {
        self.ask(pod, Ask::default()).is_some_and(|answer| answer.leader)
    }

    pub fn delete(&mut self) {
        self.note(|| "* the Lease is deleted".into());
        self.store.delete();
        self.publish();
    }

    pub fn create_empty(&mut self) {
        self.note(|| "* somebody makes the Lease, empty".into());
        self.store.create_empty();
        self.publish();
    }

    pub fn edit(&mut self, edit: impl FnOnce(&mut Object)) {
        self.store.edit(edit);
        self.note(|| "* somebody edits the Lease".into());
        self.publish();
    }

    /// The store is an older one again; its watches break.
    pub fn restore(&mut self, old: Store) {
        self.note(|| "* the store is restored".into());
        self.store.restore(old);
        self.checker.amnesia = true;
        for pod in 0..self.pods.len() {
            if let Some(stream) = self.pods[pod].stream.take() {
                // What they had seen last is unknown to this store.
                let event = tenure::core::WatchEvent::Gone;
                self.happen(pod, Event::Watch { id: stream.id, event });
            }
        }
    }

    /// SIGSTOP
    pub fn pause(&mut self, pod: usize) {
        self.note(|| format!("{pod} is stopped"));
        self.pods[pod].paused = true;
    }

    /// SIGCONT: all that has come meanwhile is handled at once.
    pub fn resume(&mut self, pod: usize) {
        self.note(|| format!("{pod} goes on"));
        self.pods[pod].paused = false;
        let inbox = std::mem::take(&mut self.pods[pod].inbox);
        for event in inbox {
            self.happen(pod, event);
        }
        self.happen(pod, Event::Timeout);
    }

    pub fn shutdown(&mut self, pod: usize) {
        if self.pods[pod].setup.unsafe_release_on_sigterm {
            self.checker.word(pod);
        }
        self.happen(pod, Event::Shutdown);
    }

    /// `POST /release`
    pub fn app_stopped(&mut self, pod: usize, word: AppStopped) {
        let held = self.epoch(pod);
        if held.is_some() && (word.epoch.is_none() || word.epoch == held) {
            self.checker.word(pod);
        }
        self.happen(pod, Event::AppStopped(word));
    }

    pub fn hold(&mut self, pod: usize) {
        self.pods[pod].app.holding = true;
        self.happen(pod, Event::HoldOpened);
    }

    /// The app closes its hold: its work has stopped.
    pub fn unhold(&mut self, pod: usize) {
        self.pods[pod].app.holding = false;
        if self.epoch(pod).is_some() {
            self.checker.word(pod);
        }
        self.happen(pod, Event::HoldClosed { by_peer: true });
    }

    pub fn ends(&self, pod: usize) -> Vec<(u64, End, bool)> {
        let of = |(_, author, tell): &(u64, super::checker::Author, Tell)| match tell {
            Tell::Ended { epoch, end, released } if author.pod == pod => {
                Some((*epoch, *end, *released))
            }
            _ => None,
        };
        self.tells.iter().filter_map(of).collect()
    }

    pub fn terms(&self, pod: usize) -> usize {
        let of = |(_, author, tell): &&(u64, super::checker::Author, Tell)| {
            author.pod == pod && matches!(tell, Tell::Acquired { .. })
        };
        self.tells.iter().filter(of).count()
    }

    /// Nothing that the invariants forbid has happened.
    #[track_caller]
    pub fn sound(&self) {
        let violations = &self.checker.violations;
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }
}
