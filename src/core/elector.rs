//! The one entry.

use std::collections::VecDeque;

use super::*;

/// One candidate for one Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Elector<B> {
    options: Options,
    version: u64,
    renewals: u64,
    actions: VecDeque<Action<B>>,
}

impl<B: Clone> Elector<B> {
    pub fn new(options: Options, now: Now) -> Elector<B> {
        Elector { options, version: now.mono.as_millis(), renewals: 0, actions: VecDeque::new() }
    }

    /// Something has happened.
    pub fn handle(&mut self, _now: Now, _event: Event<B>) {}

    /// The next thing to do, in order. Drain it after every `handle` and every `answer`.
    #[must_use]
    pub fn poll_action(&mut self) -> Option<Action<B>> {
        self.actions.pop_front()
    }

    /// When to come back with `Event::Timeout` if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    /// What the app is told now, and thereby granted.
    #[must_use]
    pub fn answer(&mut self, _now: Now, _ask: Ask) -> Answer {
        Answer {
            leader: false,
            state: State::Starting,
            reason: Reason::Started,
            version: self.version,
            epoch: None,
            valid_for: std::time::Duration::ZERO,
            valid_until: None,
            leader_since: None,
            holder: None,
            holder_observed_age: None,
            holds: 0,
            lease_uid: None,
            lease_duration: self.options.timing.lease_duration(),
            transitions: 0,
            lease_epoch: None,
        }
    }

    /// Grows by one with each change that an answer can show (holds and validity apart).
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many writes of terms of ours were acknowledged.
    pub fn renewals(&self) -> u64 {
        self.renewals
    }

    /// The term that is held, or being given up: its epoch. `POST /release` for another epoch is
    /// refused.
    pub fn held_epoch(&self) -> Option<u64> {
        None
    }

    /// The last term that this process gave up, and whether the Lease was freed in the API server.
    pub fn last_release(&self) -> Option<(u64, bool)> {
        None
    }

    /// When the validity of the term under way ends, granted or not.
    pub fn valid_until(&self) -> Option<Mono> {
        None
    }

    /// Whether the Lease was ever read (or found absent).
    pub fn has_read(&self) -> bool {
        false
    }

    /// After `Event::Shutdown`: nothing is left to do, the process may end.
    pub fn finished(&self) -> bool {
        false
    }

    pub fn options(&self) -> &Options {
        &self.options
    }
}
