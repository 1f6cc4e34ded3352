//! Questions of the app, and their answers. An answer is a grant of the validity it carries.

use std::sync::Arc;
use std::time::Duration;

use super::*;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Leader only if that much validity is left.
    pub min_valid: Option<Duration>,
    /// Grant at most that much.
    pub max_valid: Option<Duration>,
    /// The caller sees no length, and so is granted all there is (`/is-leader` without `max_valid`
    /// in its own query, `GET /`).
    pub sees_no_length: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// True only while `valid_for` is at least one millisecond.
    pub leader: bool,
    pub state: State,
    pub reason: Reason,
    /// Grows by one with each change.
    pub version: u64,
    /// The fencing token; None unless leading or draining.
    pub epoch: Option<u64>,
    /// Zero unless leading or draining. Whole milliseconds, rounded down.
    pub valid_for: Duration,
    /// The same as a point in time; None where nothing is granted.
    pub valid_until: Option<Mono>,
    pub leader_since: Option<Wall>,
    /// Who holds the Lease; None: nobody is known to.
    pub holder: Option<Arc<str>>,
    /// How long ago the holder was last seen to be alive; None before the first read.
    pub holder_observed_age: Option<Duration>,
    pub holds: u32,
    pub lease_uid: Option<Arc<str>>,
    pub lease_duration: Duration,
    pub transitions: u32,
    /// The newest epoch seen, also on followers; None: none yet.
    pub lease_epoch: Option<u64>,
}

/// What an answer shows but for the time: a change of it is a new version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Face {
    pub(super) state: State,
    epoch: Option<u64>,
    holder: Option<Arc<str>>,
    pub(super) blocked: Option<Blocked>,
    uid: Option<Arc<str>>,
    transitions: u32,
    lease_epoch: u64,
}

impl Face {
    pub(super) fn unread() -> Face {
        Face {
            state: State::Starting,
            epoch: None,
            holder: None,
            blocked: None,
            uid: None,
            transitions: 0,
            lease_epoch: 0,
        }
    }
}

impl<B: Clone> Elector<B> {
    /// How long the record, as it was last seen, may still speak for its holder.
    pub(super) fn record_span(&self) -> Duration {
        let own = self.options.timing.lease_duration();
        self.seen.record().and_then(|record| record.duration).map_or(own, |span| span.max(own))
    }

    /// Who is told to hold the Lease: never a stale name.
    pub(super) fn told_holder(&self, now: Mono) -> Option<Arc<str>> {
        if self.term.is_some() || self.draining_release().is_some() {
            return Some(self.options.identity.clone());
        }
        let holder = self.seen.record()?.somebody()?;
        let stale = self.seen.changed_at + self.record_span() <= now;
        (!stale && *holder != self.options.identity).then(|| holder.clone())
    }

    pub(super) fn look(&self, now: Mono) -> Face {
        let holder = self.told_holder(now);
        let blocked = self.blocked(now);
        let record = self.seen.record();
        let state = match &self.term {
            Some(term) if term.drain.is_none() => State::Leading,
            Some(_) => State::Draining,
            None if self.draining_release().is_some() => State::Draining,
            None if self.stopping || self.last || self.cool_until.is_some() => State::CoolingDown,
            None if blocked.is_some() => State::Blocked,
            None if !self.seen.read => State::Starting,
            None if holder.is_some() => State::Following,
            None => State::Electing,
        };
        Face {
            state,
            epoch: self.term.as_ref().map(|term| term.epoch),
            holder,
            blocked: blocked.filter(|_| state == State::Blocked),
            uid: record.map(|record| record.uid.clone()),
            transitions: record.and_then(|record| record.transitions).unwrap_or(0),
            lease_epoch: self.seen.highest_epoch,
        }
    }

    /// Counts a new version where something that an answer shows has changed.
    pub(super) fn refresh(&mut self, now: Now) {
        let face = self.look(now.mono);
        let reason_is_new = std::mem::take(&mut self.reason_is_new);
        if face == self.face && !reason_is_new {
            return;
        }
        if face.holder != self.face.holder && !reason_is_new {
            self.reason = Reason::HolderChanged;
        }
        match (self.face.blocked, face.blocked) {
            (old, Some(new)) if old != Some(new) => self.tell(Tell::Blocked(new)),
            (Some(_), None) => self.tell(Tell::Unblocked),
            _ => {}
        }
        self.face = face;
        self.version += 1;
    }

    /// What the app is told now, and thereby granted.
    #[must_use]
    pub fn answer(&mut self, now: Now, ask: Ask) -> Answer {
        let judged = self.options.rules.on(Mark::ValidityNotBoolean);
        let lapsed = self.term.as_ref().is_some_and(|term| term.valid_until <= now.mono);
        if judged && (lapsed || self.told_holder(now.mono) != self.face.holder) {
            // The driver is late, or stuck: what is due with it is done, and not only told.
            self.handle(now, Event::Timeout);
        }
        let caps = [self.options.max_valid, ask.max_valid];
        let cap = caps.into_iter().flatten().min().map(|cap| now.mono + cap);
        let full = self.term.as_ref().map(|term| {
            let granted = term.drain.as_ref().and_then(|drain| drain.granted_until);
            granted.map_or(term.valid_until, |granted| granted.min(term.valid_until))
        });
        let until = full.map(|full| cap.map_or(full, |cap| cap.min(full)));
        let left = until.map_or(Duration::ZERO, |until| until.since(now.mono));
        let valid_for = Duration::from_millis(left.as_millis() as u64);
        let valid_until = until.filter(|_| !valid_for.is_zero());
        let enough = ask.min_valid.is_none_or(|min| valid_for >= min);
        let leading = self.face.state == State::Leading;
        let leader = leading && enough && (valid_until.is_some() || !judged);
        // Whoever sees no length takes a yes for as long as it could be.
        let granted = if ask.sees_no_length && leader { full } else { valid_until };
        if valid_until.is_some() {
            self.told_until = self.told_until.max(granted);
        }
        assert!(!leader || !judged || valid_until > Some(now.mono), "S3: leader at valid_until");
        let term = self.term.as_ref();
        let record = self.seen.record();
        let own = self.options.timing.lease_duration();
        Answer {
            leader,
            state: self.face.state,
            reason: self.face.blocked.map_or(self.reason, Reason::Blocked),
            version: self.version,
            epoch: term.map(|term| term.epoch),
            valid_for,
            valid_until,
            leader_since: term.filter(|term| term.drain.is_none()).map(|term| term.since),
            holder: self.face.holder.clone(),
            holder_observed_age: record.map(|_| now.mono.since(self.seen.changed_at)),
            holds: self.holds,
            lease_uid: self.face.uid.clone(),
            lease_duration: record.and_then(|record| record.duration).unwrap_or(own),
            transitions: self.face.transitions,
            lease_epoch: Some(self.seen.highest_epoch).filter(|&epoch| epoch > 0),
        }
    }
}
