//! A candidate without a term: when the Lease may be taken, and what is in the way.

use std::time::Duration;

use super::*;

impl<B: Clone> Elector<B> {
    pub(super) fn names_me(&self, record: &Record) -> bool {
        record.holder.as_ref() == Some(&self.options.identity)
    }

    /// Whether a record with our name was written by this process.
    pub(super) fn incarnation_is_mine(&self, record: &Record) -> bool {
        if !self.options.rules.on(Mark::Incarnation) {
            return true;
        }
        match &record.incarnation {
            Some(incarnation) => *incarnation == self.options.incarnation,
            // Somebody stripped it: ours where the rest is as we wrote it.
            None => {
                let term = self.term.as_ref();
                let now = term.map(|term| (&term.uid, term.acquire_time, term.transitions));
                let former = self.former.as_ref().map(|(uid, at, count)| (uid, *at, *count));
                now.or(former).is_some_and(|(uid, acquire_time, transitions)| {
                    record.uid == *uid
                        && record.acquire_time == Some(Stamp::At(acquire_time))
                        && record.transitions == Some(transitions)
                })
            }
        }
    }

    /// When the term of the holder, whoever it is, ends for us.
    fn term_end(&self, record: &Record) -> Mono {
        let own = self.options.timing.lease_duration();
        let theirs = record.duration.unwrap_or(own);
        let span = if self.options.rules.on(Mark::F5) { theirs.max(own) } else { theirs };
        // Whoever was blanked, or cut off from a Lease that was deleted, held for as long as its
        // own record said, which may be longer than ours and than what stands there now.
        let before = match record.somebody() {
            Some(_) => Duration::ZERO,
            None => self.seen.holder_duration,
        };
        self.seen.changed_at + span.max(before)
    }

    /// From when on we may acquire the Lease as it was last seen; [`Mono::ZERO`]: at once.
    pub(super) fn claim_at(&self, record: &Record) -> Mono {
        let rules = self.options.rules;
        let at_once = match &record.holder {
            _ if self.seen.doubted => false,
            None => self.is_free(record) || self.was_my_deleted_lease(record),
            Some(holder) if **holder == *HOLDER_NEW => self.was_my_deleted_lease(record),
            Some(_) if !self.names_me(record) => false,
            Some(_) if self.incarnation_is_mine(record) => rules.on(Mark::F28),
            Some(_) => self.predecessor || !rules.on(Mark::F21),
        };
        let ignores_clock = rules.on(Mark::OwnClockOnly);
        if at_once || (!ignores_clock && self.looks_expired(record)) {
            return Mono::ZERO;
        }
        self.term_end(record)
    }

    /// Mutant: what comparing a renewTime with the wall clock would say.
    fn looks_expired(&self, record: &Record) -> bool {
        let span = record.duration.unwrap_or_default().as_micros() as i64;
        record.renewed_at().is_some_and(|at| at.as_micros() + span < self.wall.as_micros())
    }

    /// Whether an empty holder means that nobody can still be at work.
    fn is_free(&self, record: &Record) -> bool {
        let rules = self.options.rules;
        let released = match (record.epoch, record.annotated_transitions) {
            (None, _) => true,
            (Some(epoch), _) if record.released == Some(epoch) => true,
            // Held and freed by a foreign elector since: those count up.
            (_, Some(ours)) => record.transitions.unwrap_or(0) > ours,
            (_, None) => false,
        };
        let known_uid = self.seen.holder_uid.as_ref().is_none_or(|uid| *uid == record.uid);
        let free_when_made = self.options.missing_lease == MissingLease::CreateFree;
        (released || !rules.on(Mark::F4)) && (known_uid || free_when_made || !rules.on(Mark::F3))
    }

    /// Only the leader whose own Lease vanished may take the new one at once.
    fn was_my_deleted_lease(&self, record: &Record) -> bool {
        self.deleted.as_ref().is_some_and(|(uid, _)| *uid != record.uid)
    }

    /// What needs a person. What is forbidden is tried again all the same.
    pub(super) fn blocked(&self, now: Mono) -> Option<Blocked> {
        let forbidden = self.denied.get || self.denied.put || self.denied.access;
        if forbidden { Some(Blocked::Forbidden) } else { self.obstacle(now) }
    }

    /// What makes it wrong to campaign.
    fn obstacle(&self, now: Mono) -> Option<Blocked> {
        if self.seen.unordered {
            return Some(Blocked::BadResourceVersion);
        }
        let Some(record) = self.seen.record() else {
            let never = self.options.missing_lease == MissingLease::Never;
            return (self.seen.is_absent() && never).then_some(Blocked::LeaseMissing);
        };
        let foreign_me = self.names_me(record) && !self.incarnation_is_mine(record);
        if record.coordinated {
            Some(Blocked::CoordinatedElection)
        } else if foreign_me && !self.predecessor && now < self.claim_at(record) {
            Some(Blocked::IdentityConflict)
        } else if self.seen.next_epoch(self.options.rules).is_none() {
            Some(Blocked::EpochExhausted)
        } else {
            None
        }
    }

    pub(super) fn may_campaign(&self) -> bool {
        !self.stopping && !self.last && self.cool_until.is_none()
    }

    /// Makes the Lease where it is missing, and acquires it where that is due.
    pub(super) fn campaign(&mut self, now: Now) {
        if !self.may_campaign() || !self.seen.read {
            self.trying_since = None;
            return;
        }
        if self.obstacle(now.mono).is_some() {
            self.trying_since = None;
            return;
        }
        if self.seen.is_absent() {
            if self.options.missing_lease != MissingLease::Never && self.writes.ready(now.mono) {
                self.send_creation(now);
            }
            return;
        }
        let Some(record) = self.seen.record() else { return };
        if self.claim_at(record) > now.mono {
            self.trying_since = None;
            return;
        }
        self.trying_since.get_or_insert(now.mono);
        if self.seen.refuted {
            self.read_wanted = true;
        } else if self.writes.ready(now.mono) {
            self.send_acquisition(now);
        }
    }

    fn send_acquisition(&mut self, now: Now) {
        let Some(object) = &self.seen.object else { return };
        let Some(epoch) = self.seen.next_epoch(self.options.rules) else { return };
        let numbered = self.options.rules.on(Mark::EpochNotTransitions);
        assert!(!numbered || epoch > self.seen.highest_epoch, "S2: epochs strictly increase");
        let transitions = object.record.transitions.unwrap_or(0);
        let transitions = transitions.saturating_add(1).min(i32::MAX as u32);
        let at = self.acquire_time(now);
        let object = self.seen.object.as_ref().map(|object| object.base.clone());
        let write = Write {
            purpose: Purpose::Acquire,
            base: object,
            holder: self.options.identity.clone(),
            duration: self.options.timing.lease_duration(),
            renew_time: at,
            acquire_time: Some(at),
            transitions: Some(transitions),
            epoch: Some(epoch),
            incarnation: Some(self.options.incarnation.clone()),
            released: Released::Remove,
        };
        self.send(now, write, epoch, transitions);
    }

    /// Never in the whole second in which our last term began: a Lease made anew counts its transitions
    /// anew, so that client-go, which compares whole seconds, would take one term for the other and
    /// go on counting from the first [F9].
    fn acquire_time(&self, now: Now) -> Wall {
        let at = self.next_renew_time(now);
        match &self.former {
            Some((_, began, _))
                if at.second() <= began.second() && self.options.rules.on(Mark::F9) =>
            {
                began.next_second()
            }
            _ => at,
        }
    }

    /// Made anew held by nobody: whoever was cut off from the old one has a full term to notice
    /// [F1].
    fn send_creation(&mut self, now: Now) {
        let at = self.next_renew_time(now);
        let free = self.options.missing_lease == MissingLease::CreateFree;
        let mine = !self.options.rules.on(Mark::F1);
        let holder = match (mine, free) {
            (true, _) => self.options.identity.clone(),
            (_, true) => "".into(),
            _ => HOLDER_NEW.into(),
        };
        let write = Write {
            purpose: Purpose::Create,
            base: None,
            holder,
            duration: self.options.timing.lease_duration(),
            renew_time: at,
            acquire_time: None,
            transitions: None,
            epoch: None,
            incarnation: mine.then(|| self.options.incarnation.clone()),
            released: Released::Keep,
        };
        self.send(now, write, 0, 0);
    }
}
