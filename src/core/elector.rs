//! The one entry: what happened, then what follows from it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::answer::Face;
use super::attempts::{MAX_OPEN, OpenRead, Pace, Writes};
use super::leave::{Release, Undo};
use super::observe::Seen;
use super::term::Term;
use super::watching::Watching;
use super::*;

/// What we were refused by a 403, until the same is allowed again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Denied {
    pub(super) get: bool,
    pub(super) put: bool,
    pub(super) watch: bool,
    /// By the word of the access self-check.
    pub(super) access: bool,
}

/// One candidate for one Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Elector<B> {
    pub(super) options: Options,
    pub(super) started: Mono,
    pub(super) seen: Seen<B>,
    pub(super) term: Option<Term>,
    pub(super) release: Option<Release>,
    pub(super) undo: Option<Undo>,
    /// The last term's uid, acquireTime and leaseTransitions, as written.
    pub(super) former: Option<(Arc<str>, Wall, u32)>,
    /// The Lease that was deleted under our term, and until when its new one is ours to take.
    pub(super) deleted: Option<(Arc<str>, Mono)>,
    /// The first read showed a dead predecessor's record, and nobody led since.
    pub(super) predecessor: bool,
    pub(super) last_holder: Option<Arc<str>>,
    pub(super) writes: Writes,
    pub(super) reads: Vec<OpenRead>,
    pub(super) read_pace: Pace,
    pub(super) read_wanted: bool,
    /// Only a read with a later id answers what is wanted now: one that was sent before may not show
    /// what has landed since.
    pub(super) read_after: u64,
    pub(super) last_read: Mono,
    pub(super) watch: Watching,
    pub(super) denied: Denied,
    /// The latest deadline that any answer has granted; None once the app's word has come.
    pub(super) told_until: Option<Mono>,
    pub(super) holds: u32,
    /// SIGTERM was seen.
    pub(super) stopping: bool,
    /// This process does not campaign again.
    pub(super) last: bool,
    pub(super) cool_until: Option<Mono>,
    pub(super) last_release: Option<(u64, bool)>,
    pub(super) trying_since: Option<Mono>,
    pub(super) reason: Reason,
    pub(super) reason_is_new: bool,
    pub(super) face: Face,
    pub(super) version: u64,
    pub(super) renewals: u64,
    pub(super) last_id: u64,
    /// The last renewTime written.
    pub(super) written: Wall,
    /// When that was.
    pub(super) written_at: Mono,
    pub(super) wall: Wall,
    pub(super) handled: Mono,
    pub(super) actions: VecDeque<Action<B>>,
}

impl<B: Clone> Elector<B> {
    pub fn new(options: Options, now: Now) -> Elector<B> {
        let mut elector = Elector {
            options,
            started: now.mono,
            seen: Seen::new(now.mono),
            term: None,
            release: None,
            undo: None,
            former: None,
            deleted: None,
            predecessor: false,
            last_holder: None,
            writes: Writes::new(),
            reads: Vec::with_capacity(MAX_OPEN),
            read_pace: Pace::new(),
            read_wanted: true,
            read_after: 0,
            last_read: Mono::ZERO,
            watch: Watching::new(),
            denied: Denied::default(),
            told_until: None,
            holds: 0,
            stopping: false,
            last: false,
            cool_until: None,
            last_release: None,
            trying_since: None,
            reason: Reason::Started,
            reason_is_new: false,
            face: Face::unread(),
            version: now.mono.as_millis(),
            renewals: 0,
            last_id: 0,
            written: Wall::from_micros(i64::MIN),
            written_at: Mono::ZERO,
            wall: now.wall,
            handled: now.mono,
            actions: VecDeque::with_capacity(8),
        };
        elector.advance(now);
        elector
    }

    /// Something has happened, at `now`.
    pub fn handle(&mut self, now: Now, event: Event<B>) {
        let late_answer = matches!(event, Event::Write { .. });
        if self.options.rules.on(Mark::F8) || !late_answer {
            self.expire(now);
        }
        self.apply(now, event);
        self.expire(now);
        self.advance(now);
        self.refresh(now);
        self.check();
    }

    /// The next thing to do, in order. Drain it after every `handle` and every `answer`.
    #[must_use]
    pub fn poll_action(&mut self) -> Option<Action<B>> {
        self.actions.pop_front()
    }

    /// Whether there is anything to do.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// When to come back with [`Event::Timeout`] if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let timing = &self.options.timing;
        let term = self.term.as_ref();
        let drain = term.and_then(|term| term.drain.as_ref());
        let alone = [
            term.map(|term| term.valid_until),
            drain.map(|drain| drain.renewed_until),
            drain.and_then(|drain| drain.granted_until),
            self.release.as_ref().map(|release| release.until),
            self.release.as_ref().map(|release| release.not_before),
            self.undo.as_ref().map(|undo| undo.deadline),
            self.cool_until,
            self.deleted.as_ref().map(|(_, until)| *until),
            self.seen.record().map(|record| self.claim_at(record)),
            self.seen.record().map(|_| self.seen.changed_at + self.record_span()),
            Some(self.writes.pace.next_at),
            self.read_due(),
            Some(self.watch_due()),
        ];
        let writes = self.writes.list.iter().filter(|attempt| attempt.open);
        let writes = writes.map(|attempt| attempt.sent + timing.renew_deadline());
        let reads = self.reads.iter().map(|read| read.sent + timing.renew_deadline());
        // What was due by the last event was dealt with in it.
        let due = alone.into_iter().flatten().chain(writes).chain(reads);
        due.filter(|&at| at > self.handled).min()
    }

    fn apply(&mut self, now: Now, event: Event<B>) {
        match event {
            Event::Timeout => {}
            Event::Read { id, outcome } => self.on_read(now, id, outcome),
            Event::Write { id, outcome } => self.on_write(now, id, outcome),
            Event::Watch { id, event } => self.on_watch(now, id, event),
            Event::Access { denied: true } => self.denied.access = true,
            Event::Access { denied: false } => self.denied = Denied::default(),
            Event::HoldOpened => self.holds = self.holds.saturating_add(1),
            Event::HoldClosed { by_peer } => self.on_hold_closed(now, by_peer),
            Event::AppStopped(word) => self.on_app_stopped(now, word),
            Event::Shutdown => self.on_shutdown(now),
        }
    }

    /// Ends what has run out, whichever event is handled first [F8].
    pub(super) fn expire(&mut self, now: Now) {
        self.handled = now.mono;
        self.wall = now.wall;
        if self.term.as_ref().is_some_and(|term| term.valid_until <= now.mono) {
            // Where its last grant lapses at this very moment it is released instead.
            self.still_renewed(now);
            self.end_term(now, End::RenewDeadline);
        }
        if self.release.as_ref().is_some_and(|release| release.until <= now.mono) {
            self.end_release(now, false);
        }
        self.cool_until = self.cool_until.filter(|&until| until > now.mono);
        self.deleted = self.deleted.take().filter(|(_, until)| *until > now.mono);
        // An attempt of a term or a release lives as long as that; all others until their send + R.
        let span = self.options.timing.renew_deadline();
        if self.term.is_none() && self.release.is_none() {
            let Elector { writes, actions, .. } = self;
            writes.drop_where(
                |attempt| attempt.open && attempt.sent + span <= now.mono,
                |attempt| actions.push_back(Action::Cancel { id: attempt.id }),
            );
        }
        let actions = &mut self.actions;
        self.reads.retain(|read| {
            let keep = read.sent + span > now.mono;
            if !keep {
                actions.push_back(Action::Cancel { id: read.id });
            }
            keep
        });
    }

    /// Does all that is due.
    fn advance(&mut self, now: Now) {
        self.keep_term(now);
        self.keep_releasing(now);
        self.keep_undoing(now);
        if self.term.is_none() && (self.release.is_none() || !self.options.rules.on(Mark::F10)) {
            self.campaign(now);
        }
        if !self.finished() {
            self.keep_reading(now.mono);
            self.keep_watching(now.mono);
        }
    }

    pub(super) fn new_id(&mut self) -> RequestId {
        self.last_id += 1;
        RequestId(self.last_id)
    }

    pub(super) fn tell(&mut self, tell: Tell) {
        self.actions.push_back(Action::Tell(tell));
    }

    pub(super) fn set_reason(&mut self, reason: Reason) {
        self.reason = reason;
        self.reason_is_new = true;
    }

    /// What one process can see of the invariants.
    fn check(&self) {
        if let Some(term) = &self.term {
            let sound = self.options.rules.on(Mark::F8);
            assert!(!sound || term.valid_until > self.handled, "S3: no term outlives its validity");
            assert!(term.epoch <= MAX_EPOCH, "S2: an epoch has 53 bits");
            assert!(self.release.is_none(), "S5: a release only after the term has ended");
        }
        assert!(self.writes.open() <= MAX_OPEN, "at most three writes are open");
        assert!(self.reads.len() <= MAX_OPEN, "at most three reads are open");
    }

    /// Grows by one with each change that an answer can show (holds and validity apart).
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many writes of terms of ours were acknowledged.
    pub fn renewals(&self) -> u64 {
        self.renewals
    }

    pub fn state(&self) -> State {
        self.face.state
    }

    /// The term that is held, or being given up: its epoch. `POST /release` for another epoch is
    /// refused.
    pub fn held_epoch(&self) -> Option<u64> {
        let releasing = self.draining_release().map(|release| release.epoch);
        self.term.as_ref().map(|term| term.epoch).or(releasing)
    }

    /// The last term of ours that has ended, and whether the Lease was given up in the API server.
    pub fn last_release(&self) -> Option<(u64, bool)> {
        self.last_release
    }

    /// When the validity of the term under way ends, granted or not.
    pub fn valid_until(&self) -> Option<Mono> {
        self.term.as_ref().map(|term| term.valid_until)
    }

    /// The newest epoch seen; None: none yet.
    pub fn newest_epoch(&self) -> Option<u64> {
        Some(self.seen.highest_epoch).filter(|&epoch| epoch > 0)
    }

    pub fn holds(&self) -> u32 {
        self.holds
    }

    /// Whether something was forbidden, and not allowed since.
    pub fn is_denied(&self) -> bool {
        self.denied != Denied::default()
    }

    /// Whether the Lease was ever read (or found absent).
    pub fn has_read(&self) -> bool {
        self.seen.read
    }

    /// After [`Event::Shutdown`]: nothing is left to do, the process may end.
    pub fn finished(&self) -> bool {
        self.stopping && self.term.is_none() && self.release.is_none() && self.undo.is_none()
    }

    pub fn options(&self) -> &Options {
        &self.options
    }
}
