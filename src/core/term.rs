//! A term of ours: what makes its validity, and what ends it.

use std::sync::Arc;
use std::time::Duration;

use super::attempts::Attempt;
use super::leave::Drain;
use super::*;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub(super) epoch: u64,
    pub(super) uid: Arc<str>,
    pub(super) since: Wall,
    /// Send time of the last write that counts, plus the renew deadline.
    pub(super) valid_until: Mono,
    /// Of the last write that counted.
    counted: Wall,
    /// As the acquisition wrote them: by these a record without annotations is still ours.
    pub(super) acquire_time: Wall,
    pub(super) transitions: u32,
    /// The present round of renewals has failed, and was told of.
    trouble: bool,
    /// None: leading.
    pub(super) drain: Option<Drain>,
}

impl<B: Clone> Elector<B> {
    /// How long a write makes a term valid.
    fn validity(&self) -> Duration {
        match self.options.rules.on(Mark::Margin) {
            true => self.options.timing.renew_deadline(),
            false => self.options.timing.lease_duration(),
        }
    }

    /// The time from which the validity of a write counts.
    fn credited(&self, sent: Mono, now: Mono) -> Mono {
        if self.options.rules.on(Mark::ValidityFromSend) { sent } else { now }
    }

    /// An acquisition of ours is committed.
    pub(super) fn begin_term(&mut self, now: Now, attempt: &Attempt, uid: &Arc<str>) {
        assert!(self.term.is_none() && self.release.is_none(), "S6: one term at a time");
        let valid_until = self.credited(attempt.sent, now.mono) + self.validity();
        self.predecessor = false;
        if self.stopping || self.last {
            self.release_unsaid(now, attempt.epoch);
            return;
        }
        if valid_until <= now.mono {
            return;
        }
        let took = now.mono.since(self.trying_since.take().unwrap_or(now.mono));
        self.term = Some(Term {
            epoch: attempt.epoch,
            uid: uid.clone(),
            since: now.wall,
            valid_until,
            counted: attempt.renew_time,
            acquire_time: attempt.renew_time,
            transitions: attempt.transitions,
            trouble: false,
            drain: None,
        });
        self.deleted = None;
        self.renewals += 1;
        self.set_reason(Reason::Acquired);
        self.pace_renewal(attempt.sent, now.mono);
        self.tell(Tell::Acquired { epoch: attempt.epoch, took });
    }

    /// The next renewal is due one retry period after the *send* of the last one [F25].
    fn pace_renewal(&mut self, sent: Mono, now: Mono) {
        let from = if self.options.rules.on(Mark::F25) { sent } else { now };
        self.writes.pace.done(from + self.options.timing.retry_period());
    }

    /// A renewal of ours is committed, as `record` shows.
    fn credit(&mut self, now: Now, attempt: &Attempt, record: &Record) {
        let rules = self.options.rules;
        let repaired = record.duration == Some(self.options.timing.lease_duration());
        let valid_until = self.credited(attempt.sent, now.mono) + self.validity();
        let Some(term) = &mut self.term else { return };
        let later = attempt.renew_time.second() > term.counted.second();
        if (later || !rules.on(Mark::F9)) && (repaired || !rules.on(Mark::F5)) {
            term.counted = attempt.renew_time;
            term.valid_until = term.valid_until.max(valid_until);
        }
        let recovered = std::mem::take(&mut term.trouble);
        self.renewals += 1;
        self.tell(Tell::Renewed { took: now.mono.since(attempt.sent) });
        if recovered {
            self.tell(Tell::RenewRecovered);
        }
        self.pace_renewal(attempt.sent, now.mono);
    }

    /// The Lease has a new version while a term of ours is under way. `write`: the write of ours
    /// that it shows.
    pub(super) fn observed_in_term(&mut self, now: Now, write: Option<Attempt>) {
        let Some(term) = &self.term else { return };
        let Some(record) = self.seen.record().cloned() else { return };
        if record.uid != term.uid {
            self.lease_deleted(now, term.valid_until);
            if record.somebody().is_some() {
                // Whoever holds the new one is waited out, also once that is gone as well.
                self.deleted = None;
            }
        } else if self.names_me(&record) && self.incarnation_is_mine(&record) {
            if let Some(write) = write {
                self.credit(now, &write, &record);
            }
        } else if self.blanked(&record) {
            // Somebody blanked a living holder: put it back at once.
            self.writes.pace.next_at = now.mono;
        } else {
            self.end_term(now, End::LostToOther);
        }
    }

    /// Whether the record of our term names nobody, though nobody took or released it.
    pub(super) fn blanked(&self, record: &Record) -> bool {
        self.term.as_ref().is_some_and(|term| {
            record.holder.is_none()
                && record.epoch == Some(term.epoch)
                && record.released != Some(term.epoch)
        })
    }

    /// The Lease of our term is gone, or another has its name.
    pub(super) fn lease_deleted(&mut self, now: Now, valid_until: Mono) {
        let uid = self.term.as_ref().map(|term| term.uid.clone());
        self.deleted = uid.map(|uid| (uid, valid_until));
        self.end_term(now, End::LeaseDeleted);
    }

    /// Ends the term without a release.
    pub(super) fn end_term(&mut self, now: Now, end: End) {
        let Some(term) = self.term.take() else { return };
        let end = match (&term.drain, end) {
            // Given up, and not renewed any more: it ran out as it was meant to.
            (Some(drain), End::RenewDeadline) if drain.granted_until.is_some() => drain.cause,
            (_, end) => end,
        };
        self.forget_writes();
        self.writes.pace.next_at = now.mono;
        self.last_release = Some((term.epoch, false));
        self.former = Some((term.uid, term.acquire_time, term.transitions));
        self.set_reason(Reason::Term(end));
        self.tell(Tell::Ended { epoch: term.epoch, end, released: false });
    }

    /// A renewal has failed, or is overdue: told once a round.
    pub(super) fn renewal_failed(&mut self, now: Mono, failure: Option<Failure>) {
        if let Some(term) = &mut self.term
            && !std::mem::replace(&mut term.trouble, true)
        {
            let left = term.valid_until.since(now);
            self.tell(Tell::RenewFailed { failure, left });
        }
    }

    /// Renews where it is due.
    pub(super) fn keep_term(&mut self, now: Now) {
        if self.term.is_none() || !self.still_renewed(now) {
            return;
        }
        if self.seen.refuted {
            self.read_wanted = true;
        } else if self.writes.ready(now.mono) {
            if self.writes.open() > 0 {
                self.renewal_failed(now.mono, None);
            }
            self.send_renewal(now);
        }
    }

    /// Where half of the validity is gone and the wall clock is still in the whole second that was
    /// counted last, the next second is written: else a leader with timings of about one second, whose
    /// renewals all fall into that second, would run out in perfect health [F9].
    fn renewal_time(&self, term: &Term, now: Now) -> Wall {
        let at = self.next_renew_time(now);
        let late = now.mono + self.options.timing.renew_deadline() / 2 >= term.valid_until;
        if late && at.second() <= term.counted.second() { term.counted.next_second() } else { at }
    }

    fn send_renewal(&mut self, now: Now) {
        let (Some(term), Some(object)) = (&self.term, &self.seen.object) else { return };
        let put_back = object.record.holder.is_none();
        let write = Write {
            purpose: Purpose::Renew,
            base: Some(object.base.clone()),
            holder: self.options.identity.clone(),
            duration: self.options.timing.lease_duration(),
            renew_time: self.renewal_time(term, now),
            acquire_time: put_back.then_some(term.acquire_time),
            transitions: put_back.then_some(term.transitions),
            epoch: Some(term.epoch),
            incarnation: Some(self.options.incarnation.clone()),
            released: Released::Remove,
        };
        let (epoch, transitions) = (term.epoch, term.transitions);
        self.send(now, write, epoch, transitions);
    }
}
