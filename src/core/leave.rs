//! Stepping down: leader false first, then the app's word or the end of its grants, then the
//! release.

use std::time::Duration;

use super::attempts::MAX_OPEN;
use super::*;

/// A term that is being given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Drain {
    pub(super) cause: End,
    /// Renewed at most until then.
    pub(super) renewed_until: Mono,
    /// No longer renewed: nothing is granted beyond this, and at this it is released.
    pub(super) granted_until: Option<Mono>,
}

/// A release under way. Its term has ended for every reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Release {
    pub(super) epoch: u64,
    pub(super) cause: End,
    /// The budget: when to give up trying.
    pub(super) until: Mono,
    /// What was granted, by a predecessor or in an earlier term, has lapsed then.
    pub(super) not_before: Mono,
    /// A write of it has an unknown outcome: read before the next.
    unsure: bool,
    /// The acquisition was undone before anybody was told of it.
    unsaid: bool,
    cool_down: Option<Duration>,
}

/// Waiting for the outcome of an acquisition, in order to undo it [F23].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Undo {
    /// When to read what has become of it, and after that, when to stop waiting.
    pub(super) deadline: Mono,
    reading: bool,
}

impl<B: Clone> Elector<B> {
    pub(super) fn on_shutdown(&mut self, now: Now) {
        self.stopping = true;
        if self.term.is_some() {
            let word =
                self.options.unsafe_release_on_sigterm || !self.options.rules.on(Mark::AppFirst);
            self.begin_drain(now, End::Shutdown, word);
            if word {
                self.app_has_stopped(now, None);
            }
        } else {
            self.undo_acquisition(now.mono);
        }
    }

    pub(super) fn on_app_stopped(&mut self, now: Now, word: AppStopped) {
        let about = self.held_epoch();
        if word.epoch.is_some() && about.is_some() && word.epoch != about {
            return;
        }
        self.last |= word.last;
        if self.term.is_some() {
            self.begin_drain(now, End::Released, true);
            self.app_has_stopped(now, word.cool_down);
        } else if word.last && self.release.is_none() {
            self.undo_acquisition(now.mono);
        }
    }

    pub(super) fn on_hold_closed(&mut self, now: Now, by_peer: bool) {
        self.holds = self.holds.saturating_sub(1);
        if self.holds > 0 || !by_peer || self.term.is_none() {
            return;
        }
        let leading = self.term.as_ref().is_some_and(|term| term.drain.is_none());
        if leading && self.options.on_app_exit == OnAppExit::Keep {
            // The next grant makes the word void: it sets this again.
            self.told_until = None;
            return;
        }
        self.begin_drain(now, End::AppExited, true);
        self.app_has_stopped(now, None);
    }

    /// Leader no more; the Lease is still ours. `word`: that of the app is given with it.
    fn begin_drain(&mut self, now: Now, cause: End, word: bool) {
        let renewed_until = match self.options.drain_timeout {
            DrainTimeout::Explicit(span) => now.mono + span,
            DrainTimeout::Auto if self.holds > 0 => now.mono + AUTO_DRAIN_TIMEOUT,
            DrainTimeout::Auto => now.mono,
        };
        let Some(term) = &mut self.term else { return };
        if term.drain.is_some() {
            return;
        }
        term.drain = Some(Drain { cause, renewed_until, granted_until: None });
        let epoch = term.epoch;
        self.set_reason(Reason::Term(cause));
        let granted = self.told_until.map_or(Duration::ZERO, |told| told.since(now.mono));
        let (awaits, at_most) = match renewed_until.since(now.mono) {
            _ if word => (Awaits::Nothing, Duration::ZERO),
            Duration::ZERO if self.holds == 0 => (Awaits::Grants, granted),
            span => (Awaits::Word, span),
        };
        self.tell(Tell::Draining { epoch, cause, awaits, at_most });
    }

    /// The app's word: it speaks for every grant given before it.
    fn app_has_stopped(&mut self, now: Now, cool_down: Option<Duration>) {
        self.told_until = None;
        self.begin_release(now, cool_down);
    }

    /// Whether the term is renewed now. Where it is not, it is released as soon as it may be.
    pub(super) fn still_renewed(&mut self, now: Now) -> bool {
        let holding = self.holds > 0;
        let explicit = matches!(self.options.drain_timeout, DrainTimeout::Explicit(_));
        let told_until = self.told_until.unwrap_or(now.mono);
        let Some(drain) = self.term.as_mut().and_then(|term| term.drain.as_mut()) else {
            return true;
        };
        if drain.granted_until.is_none() && now.mono < drain.renewed_until && (holding || explicit)
        {
            return true;
        }
        let granted_until = *drain.granted_until.get_or_insert(told_until);
        // A hold that is still open says that the work goes on: then the Lease runs out.
        if !holding && granted_until <= now.mono {
            self.begin_release(now, None);
        }
        false
    }

    /// The term has ended for every reader; now the Lease is given up.
    fn begin_release(&mut self, now: Now, cool_down: Option<Duration>) {
        let Some(term) = self.term.take() else { return };
        let lapsed = self.told_until.is_none_or(|told| told <= now.mono);
        assert!(lapsed, "S7: no release before the app's word or the end of its grants");
        let cause = term.drain.as_ref().map_or(End::Released, |drain| drain.cause);
        self.former = Some((term.uid, term.acquire_time, term.transitions));
        self.writes.pace.next_at = now.mono;
        self.make_room();
        self.release = Some(Release {
            epoch: term.epoch,
            cause,
            until: now.mono + self.options.timing.renew_deadline(),
            not_before: now.mono,
            unsure: false,
            unsaid: false,
            cool_down,
        });
    }

    /// Where renewals that hang have taken all places, the oldest leaves its own to the release: what
    /// it may still write, the release's compare-and-swap notices.
    fn make_room(&mut self) {
        if self.writes.open() < MAX_OPEN {
            return;
        }
        let Elector { writes, actions, .. } = self;
        let oldest = writes.list.iter().find(|attempt| attempt.open).map(|attempt| attempt.id);
        writes.drop_where(
            |attempt| Some(attempt.id) == oldest,
            |attempt| actions.push_back(Action::Cancel { id: attempt.id }),
        );
    }

    /// Gives up an acquisition that nobody was told of.
    pub(super) fn release_unsaid(&mut self, now: Now, epoch: u64) {
        self.undo = None;
        let not_before = self.told_until.map_or(now.mono, |told| told.max(now.mono));
        self.writes.pace.next_at = not_before;
        self.release = Some(Release {
            epoch,
            cause: End::Shutdown,
            until: not_before + self.options.timing.renew_deadline(),
            not_before,
            unsure: false,
            unsaid: true,
            cool_down: None,
        });
    }

    /// The term being given up, where an answer may say that it is.
    pub(super) fn draining_release(&self) -> Option<&Release> {
        self.release.as_ref().filter(|release| !release.unsaid)
    }

    pub(super) fn keep_releasing(&mut self, now: Now) {
        let Some(release) = &self.release else { return };
        let (epoch, unsure) = (release.epoch, release.unsure);
        if release.not_before > now.mono {
            return;
        }
        let Some(object) = &self.seen.object else { return self.end_release(now, false) };
        if object.record.released == Some(epoch) && object.record.holder.is_none() {
            return self.end_release(now, true);
        }
        let mine = self.names_me(&object.record) && self.incarnation_is_mine(&object.record);
        let this_term = object.record.epoch == Some(epoch) || !self.options.rules.on(Mark::F10);
        if !mine || !this_term {
            // Somebody else's by now, or another term's: it is not ours to give up.
            return self.end_release(now, false);
        }
        if self.seen.refuted || unsure {
            self.read_wanted = true;
        } else if self.writes.ready(now.mono) {
            self.send_release(now, epoch);
        }
    }

    fn send_release(&mut self, now: Now, epoch: u64) {
        assert!(self.term.is_none(), "S5: a release goes out only after the last leader answer");
        let Some(object) = &self.seen.object else { return };
        let at = self.next_renew_time(now);
        let write = Write {
            purpose: Purpose::Release,
            base: Some(object.base.clone()),
            holder: "".into(),
            duration: Duration::from_secs(1),
            renew_time: at,
            acquire_time: Some(at),
            transitions: None,
            epoch: None,
            incarnation: None,
            released: Released::Set(epoch),
        };
        self.send(now, write, epoch, 0);
    }

    /// A write of the release came to nothing, or nobody knows to what.
    pub(super) fn release_failed(&mut self, failure: Failure) {
        if let Some(release) = &mut self.release {
            release.unsure |= failure.class == FailureClass::Unknown;
        }
    }

    /// A fresh quorum read is in: the next write has a base again.
    pub(super) fn release_is_sure(&mut self) {
        if let Some(release) = &mut self.release {
            release.unsure = false;
        }
    }

    pub(super) fn end_release(&mut self, now: Now, freed: bool) {
        let Some(release) = self.release.take() else { return };
        self.forget_writes();
        if !self.stopping && !self.last {
            let span = release.cool_down.unwrap_or(self.options.timing.retry_period());
            self.cool_until = Some(now.mono + span);
        }
        if !release.unsaid {
            let Release { epoch, cause: end, .. } = release;
            self.last_release = Some((epoch, freed));
            self.set_reason(Reason::Term(end));
            self.tell(Tell::Ended { epoch, end, released: freed });
        }
    }

    /// This candidate must stop. An acquisition in flight is waited for.
    fn undo_acquisition(&mut self, now: Mono) {
        if self.undo.is_none()
            && self.writes.may_have_acquired()
            && self.options.rules.on(Mark::F23)
        {
            let deadline = now + self.options.timing.attempt_timeout();
            self.undo = Some(Undo { deadline, reading: false });
        } else if self.release.is_none() && self.undo.is_none() {
            self.forget_writes();
        }
    }

    pub(super) fn keep_undoing(&mut self, now: Now) {
        let Some(undo) = &mut self.undo else { return };
        if !self.writes.may_have_acquired() {
            return self.undone();
        }
        if !undo.reading && (undo.deadline <= now.mono || self.writes.open() == 0) {
            undo.reading = true;
            undo.deadline = now.mono + self.options.timing.attempt_timeout();
            self.read_wanted = true;
            self.read_after = self.last_id;
        } else if undo.reading && (undo.deadline <= now.mono || !self.read_wanted) {
            self.undone();
        }
    }

    fn undone(&mut self) {
        self.undo = None;
        self.forget_writes();
    }
}
