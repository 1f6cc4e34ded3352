//! Reads and writes: when they go out, and what becomes of their answers.

use std::time::Duration;

use super::attempts::{Attempt, MAX_OPEN, OpenRead};
use super::observe::{Source, Verdict};
use super::*;

impl<B: Clone> Elector<B> {
    pub(super) fn on_read(&mut self, now: Now, id: RequestId, outcome: ReadOutcome<B>) {
        let Some(at) = self.reads.iter().position(|read| read.id == id) else { return };
        let read = self.reads.remove(at);
        if let ReadOutcome::Failed(failure) = outcome {
            self.note_denied(failure, Verb::Get);
            let wait = self.wait_after(failure, read.sent, now.mono);
            self.read_pace.failed(id, read.sent, wait);
            return;
        }
        let first = !self.seen.read;
        self.denied.get = false;
        self.watch.must_read = false;
        self.release_is_sure();
        if id.0 > self.read_after {
            self.read_wanted = false;
            self.read_pace.done(now.mono);
            for read in std::mem::take(&mut self.reads) {
                self.actions.push_back(Action::Cancel { id: read.id });
            }
        }
        match outcome {
            ReadOutcome::Found(object) => {
                if first {
                    self.look_for_predecessor(&object.record);
                }
                self.observed(now, object, Source::Quorum { highest: read.highest });
            }
            // Somebody may have made it since.
            ReadOutcome::Absent if read.highest != self.seen.highest => self.read_wanted = true,
            ReadOutcome::Absent => self.vanished(now),
            ReadOutcome::Failed(_) => {}
        }
        self.seen.refuted = false;
    }

    /// A record with our name in the first read was left by a process of this pod that is dead,
    /// where that is known; what it granted is still out [F13].
    pub(super) fn look_for_predecessor(&mut self, record: &Record) {
        let takes_over = self.options.takes_over || !self.options.rules.on(Mark::F6);
        if takes_over && self.names_me(record) {
            self.predecessor = true;
            if self.options.rules.on(Mark::F13) {
                self.told_until = Some(self.started + self.options.timing.renew_deadline());
            }
        }
    }

    pub(super) fn on_write(&mut self, now: Now, id: RequestId, outcome: WriteOutcome<B>) {
        let Some(at) = self.writes.position(id) else { return };
        let attempt = self.writes.list[at].clone();
        self.writes.list[at].open = false;
        match outcome {
            WriteOutcome::Done { created, object } => {
                self.denied.put = false;
                self.on_done(now, attempt, created, object);
            }
            WriteOutcome::Conflict => {
                self.denied.put = false;
                self.writes.list.remove(at);
                if self.is_newest(&attempt) {
                    self.seen.refuted = attempt.base.is_some();
                    self.read_wanted = true;
                }
                self.writes.pace.failed(id, attempt.sent, self.usual_wait());
            }
            WriteOutcome::Failed(failure) => {
                if failure.class == FailureClass::Refused {
                    self.writes.list.remove(at);
                }
                self.note_denied(failure, Verb::Put);
                self.renewal_failed(now.mono, Some(failure));
                self.release_failed(failure);
                let wait = self.wait_after(failure, attempt.sent, now.mono);
                self.writes.pace.failed(id, attempt.sent, wait);
            }
        }
    }

    pub(super) fn on_done(
        &mut self,
        now: Now,
        attempt: Attempt,
        created: bool,
        object: Observed<B>,
    ) {
        let base = attempt.base.as_ref().map(|(_, version)| *version);
        if !created && object.record.version == base && base.is_some() {
            // It changed nothing, and acknowledges nothing.
            self.writes.pace.failed(attempt.id, attempt.sent, self.usual_wait());
            return;
        }
        if created && attempt.purpose != Purpose::Create {
            // A new object: the one that this term was in is gone.
            self.forget_writes();
            if let Some(term) = &self.term {
                self.lease_deleted(now, term.valid_until);
            }
        }
        self.writes.pace.done(now.mono);
        let source =
            if created { Source::Quorum { highest: self.seen.highest } } else { Source::Other };
        self.observed(now, object, source);
    }

    /// The Lease has been seen, at whatever version.
    pub(super) fn observed(&mut self, now: Now, object: Observed<B>, source: Source) {
        let old_uid = self.seen.record().map(|record| record.uid.clone());
        let bad = object.record.bad_annotations;
        let bad_before = self.seen.record().map_or(0, |record| record.bad_annotations);
        let resume = object.record.version;
        let first = !self.seen.read;
        let (refuted, was_absent) = (self.seen.refuted, self.seen.is_absent());
        let verdict = self.seen.accept(now.mono, object, source, self.options.rules);
        match verdict {
            Verdict::Unordered | Verdict::Old => return,
            Verdict::Same | Verdict::New => self.watch.resume = self.watch.resume.max(resume),
            Verdict::WentBack { from, to } => {
                self.tell(Tell::StoreWentBack { from, to });
                self.watch.resume = resume;
                self.open_watch(now.mono);
            }
        }
        if verdict == Verdict::Same {
            return;
        }
        if bad > 0 && bad != bad_before {
            self.tell(Tell::BadAnnotations { count: bad });
        }
        let Some(record) = self.seen.record().cloned() else { return };
        if old_uid.is_some_and(|uid| uid != record.uid) {
            self.tell(Tell::LeaseDeleted);
        }
        if refuted || was_absent {
            // What stood in the way of the last write is known: the next may go out at once.
            self.writes.pace.next_at = now.mono;
        }
        self.note_holder(&record, first);
        let write = self.settle(&record);
        if self.term.is_some() {
            self.observed_in_term(now, write);
        } else if self.release.is_none()
            && let Some(write) = write.filter(|write| write.purpose == Purpose::Acquire)
        {
            self.begin_term(now, &write, &record.uid);
        }
    }

    /// Finds the write of ours that the record shows, and forgets it, and all that can no longer
    /// land, because their base is not the newest any more.
    pub(super) fn settle(&mut self, record: &Record) -> Option<Attempt> {
        let mine = self.names_me(record) && self.incarnation_is_mine(record);
        let shown = |attempt: &&Attempt| match self.options.rules.on(Mark::F7) {
            true => record.renewed_at() == Some(attempt.renew_time),
            false => true,
        };
        let ours = |attempt: &&Attempt| {
            matches!(attempt.purpose, Purpose::Acquire | Purpose::Renew)
                && (attempt.epoch == record.epoch.unwrap_or(attempt.epoch))
        };
        let mut candidates = self.writes.list.iter().filter(|attempt| mine && ours(attempt));
        let write = match self.options.rules.on(Mark::F7) {
            true => candidates.find(shown).cloned(),
            false => candidates.next_back().cloned(),
        };
        self.writes.supersede(record, self.handled);
        write
    }

    pub(super) fn note_holder(&mut self, record: &Record, first: bool) {
        let Some(holder) = record.somebody() else { return };
        let seen_before = self.last_holder.is_some();
        if *holder != self.options.identity {
            self.predecessor = false;
            self.deleted = None;
        } else if seen_before && !self.options.rules.on(Mark::F20) {
            self.predecessor = false;
        }
        if self.last_holder.as_ref() != Some(holder) {
            self.last_holder = Some(holder.clone());
            if !first {
                self.tell(Tell::HolderChanged { holder: holder.clone(), epoch: record.epoch });
            }
        }
    }

    /// The Lease is known to be gone.
    pub(super) fn vanished(&mut self, now: Now) {
        if self.seen.is_absent() {
            return;
        }
        let there_was_one = self.seen.object.is_some();
        self.seen.vanish(now.mono, self.options.rules);
        self.forget_writes();
        if there_was_one {
            self.tell(Tell::LeaseDeleted);
        }
        self.writes.pace.next_at = now.mono;
        if let Some(term) = &self.term {
            self.lease_deleted(now, term.valid_until);
        }
    }

    /// Whether a write was based on the newest object there is, as far as we know.
    pub(super) fn is_newest(&self, attempt: &Attempt) -> bool {
        let newest = self.seen.record().map(|record| (&record.uid, record.version));
        let base = attempt.base.as_ref().map(|(uid, version)| (uid, Some(*version)));
        newest == base
    }

    pub(super) fn send(&mut self, now: Now, write: Write<B>, epoch: u64, transitions: u32) {
        let id = self.new_id();
        let base = match (&write.base, self.seen.record()) {
            (Some(_), Some(Record { uid, version: Some(version), .. })) => {
                Some((uid.clone(), *version))
            }
            _ => None,
        };
        self.written = write.renew_time;
        self.written_at = now.mono;
        let attempt = Attempt {
            id,
            purpose: write.purpose,
            base,
            sent: now.mono,
            renew_time: write.renew_time,
            epoch,
            transitions,
            open: true,
        };
        let fresh_connection = self.writes.pace.suspect;
        self.writes.push(attempt, self.options.timing.attempt_timeout());
        self.actions.push_back(Action::Write { id, write, fresh_connection });
    }

    /// The wall clock; where that stands or went back, or what was written is ahead of it, the last
    /// one written and the time that has passed since by our own clock. (A fixed step, in place of that
    /// time, would run further ahead with each renewal where the retry period is shorter.)
    pub(super) fn next_renew_time(&self, now: Now) -> Wall {
        if now.wall > self.written {
            now.wall
        } else {
            self.written.after(now.mono.since(self.written_at))
        }
    }

    pub(super) fn forget_writes(&mut self) {
        let Elector { writes, actions, .. } = self;
        writes.drop_where(|_| true, |attempt| actions.push_back(Action::Cancel { id: attempt.id }));
    }

    /// When to read next; None: what is known comes by the watch, or by our own writes.
    pub(super) fn read_due(&self) -> Option<Mono> {
        if self.read_wanted || !self.seen.read {
            return Some(self.read_pace.next_at);
        }
        let leading = self.term.is_some() || self.release.is_some();
        let watch_tells = !self.seen.unordered && !self.denied.get;
        if leading || (self.watch.alive() && watch_tells) {
            return None;
        }
        // A watch that has ended was alive until it was last heard of.
        let heard = if watch_tells { self.watch.heard } else { Mono::ZERO };
        let poll = self.last_read.max(heard) + self.options.timing.lease_duration();
        Some(self.read_pace.next_at.max(poll))
    }

    pub(super) fn keep_reading(&mut self, now: Mono) {
        if self.read_due().is_none_or(|due| due > now) || self.reads.len() >= MAX_OPEN {
            return;
        }
        let id = self.new_id();
        self.last_read = now;
        // Until one is answered: a poll that fails is followed by the next as any other read.
        self.read_wanted = true;
        self.reads.push(OpenRead { id, sent: now, highest: self.seen.highest });
        self.read_pace.sent(id, now, self.options.timing.attempt_timeout());
        self.actions.push_back(Action::Read { id });
    }

    /// How long after its send a request that came to nothing is followed by the next.
    pub(super) fn usual_wait(&self) -> Duration {
        let timing = &self.options.timing;
        if self.term.is_some() || self.release.is_some() {
            timing.retry_period().min(timing.attempt_timeout())
        } else {
            timing.retry_period()
        }
    }

    pub(super) fn wait_after(&self, failure: Failure, sent: Mono, now: Mono) -> Duration {
        if self.term.is_none() && self.release.is_none() {
            return self.candidate_wait(failure, sent, now);
        }
        let limit = self.options.timing.attempt_timeout();
        self.obey(failure, sent, now, limit).unwrap_or(self.usual_wait())
    }

    pub(super) fn candidate_wait(&self, failure: Failure, sent: Mono, now: Mono) -> Duration {
        let limit = self.options.timing.lease_duration();
        match self.obey(failure, sent, now, limit) {
            Some(wait) => wait,
            None if failure.forbidden() => limit,
            None => self.options.timing.retry_period(),
        }
    }

    /// Retry-After, obeyed up to a limit [F24]. Zero says nothing: the usual pace is kept.
    pub(super) fn obey(
        &self,
        failure: Failure,
        sent: Mono,
        now: Mono,
        limit: Duration,
    ) -> Option<Duration> {
        let asked = failure.retry_after.filter(|asked| !asked.is_zero())?;
        let wait = now.since(sent).saturating_add(asked);
        Some(if self.options.rules.on(Mark::F24) { wait.min(limit) } else { wait })
    }

    pub(super) fn note_denied(&mut self, failure: Failure, verb: Verb) {
        let denied = match verb {
            Verb::Get => &mut self.denied.get,
            Verb::Put => &mut self.denied.put,
            Verb::Watch => &mut self.denied.watch,
        };
        if failure.forbidden() && !std::mem::replace(denied, true) {
            self.tell(Tell::Denied(verb));
        }
    }
}
