//! The watch: how a candidate learns of changes at once. It stays correct without it.

use std::time::Duration;

use super::*;

/// A watch on a Lease that nobody renews brings a bookmark about once a minute.
const IDLE_SILENCE: Duration = Duration::from_secs(150);
/// Room for a renewal that is late.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Watching {
    pub(super) id: Option<RequestId>,
    pub(super) opened: bool,
    pub(super) sent: Mono,
    /// When it last brought anything.
    pub(super) heard: Mono,
    pub(super) next_at: Mono,
    /// Where the next one begins.
    pub(super) resume: Option<Version>,
    /// The resume point was refused: read before the next.
    pub(super) must_read: bool,
    /// And let the next begin with whatever there is: the version of a Lease that nobody has written
    /// for long stays refused, however often it is read.
    afresh: bool,
    /// How often in a row it fell silent.
    silences: u32,
}

impl Watching {
    pub(super) fn new() -> Watching {
        Watching {
            id: None,
            opened: false,
            sent: Mono::ZERO,
            heard: Mono::ZERO,
            next_at: Mono::ZERO,
            resume: None,
            must_read: false,
            afresh: false,
            silences: 0,
        }
    }

    pub(super) fn alive(&self) -> bool {
        self.id.is_some() && self.opened
    }

    pub(super) fn heard(&mut self, now: Mono) {
        self.heard = now;
        self.silences = 0;
    }

    pub(super) fn lost(&mut self, next_at: Mono) {
        self.id = None;
        self.opened = false;
        self.next_at = next_at;
    }

    /// Until when it may be silent, or unanswered, before another is opened in its place.
    fn patience(&self, renewed_each: Option<Duration>, timing: &Timing) -> Mono {
        if !self.opened {
            return self.sent + timing.attempt_timeout();
        }
        let limit = match renewed_each {
            // A dead holder is silent as well: double the limit, up to its term.
            Some(each) => {
                let limit = each.max(timing.retry_period()) * 2 + GRACE;
                (limit * (1 << self.silences.min(4))).min(timing.lease_duration())
            }
            None => IDLE_SILENCE,
        };
        self.heard + limit
    }
}

use crate::timing::Timing;

impl<B: Clone> Elector<B> {
    /// How often the holder renews, if there is one.
    fn renewed_each(&self) -> Option<Duration> {
        self.seen.record()?.somebody()?;
        Some(self.seen.interval.min(self.options.timing.lease_duration()))
    }

    pub(super) fn watch_due(&self) -> Mono {
        match self.watch.id {
            Some(_) => self.watch.patience(self.renewed_each(), &self.options.timing),
            None => self.watch.next_at,
        }
    }

    /// Opens the watch where there is none, or where it has been silent for too long.
    pub(super) fn keep_watching(&mut self, now: Mono) {
        if !self.seen.read || self.watch.must_read || self.watch_due() > now {
            return;
        }
        if self.watch.opened {
            self.watch.silences += 1;
        }
        self.open_watch(now);
    }

    /// Opens a watch in place of any other.
    pub(super) fn open_watch(&mut self, now: Mono) {
        if self.watch.sent != Mono::ZERO {
            self.tell(Tell::WatchRestarted);
        }
        let id = self.new_id();
        self.watch.id = Some(id);
        self.watch.opened = false;
        self.watch.sent = now;
        let afresh = std::mem::take(&mut self.watch.afresh);
        let after = self.watch.resume.filter(|_| !afresh);
        self.actions.push_back(Action::Watch { id, after });
    }

    pub(super) fn on_watch(&mut self, now: Now, id: RequestId, event: WatchEvent<B>) {
        if self.watch.id != Some(id) {
            return;
        }
        // One that is refused tells nothing of the Lease: who waits for it reads.
        if self.watch.opened || matches!(event, WatchEvent::Opened) {
            self.watch.heard(now.mono);
        }
        let timing = self.options.timing;
        let (sent, retry) = (self.watch.sent, timing.retry_period());
        match event {
            WatchEvent::Opened => {
                self.watch.opened = true;
                self.denied.watch = false;
            }
            WatchEvent::Object(object) => self.observed(now, object, observe::Source::Other),
            WatchEvent::Deleted { uid, version } => {
                let known = self.seen.record().is_some_and(|record| record.uid == uid);
                let newer = version > self.seen.highest || version.is_none();
                if known && (newer || !self.options.rules.on(Mark::F22)) {
                    self.seen.highest = self.seen.highest.max(version);
                    self.watch.resume = self.watch.resume.max(version);
                    self.vanished(now);
                }
            }
            WatchEvent::Bookmark { version } => {
                self.watch.resume = self.watch.resume.max(version);
            }
            WatchEvent::Closed => self.watch.lost(now.mono.max(sent + retry)),
            WatchEvent::Gone => {
                self.watch.lost(sent + retry);
                self.watch.resume = None;
                self.watch.afresh = true;
                self.watch.must_read = true;
                self.read_wanted = true;
            }
            WatchEvent::Failed(failure) => {
                if failure.forbidden() && !self.denied.watch {
                    self.denied.watch = true;
                    self.tell(Tell::Denied(Verb::Watch));
                }
                let wait = self.candidate_wait(failure, sent, now.mono);
                self.watch.lost(sent + wait);
            }
        }
    }
}
