//! Requests under way: how many, since when, and when the next may go out.

use std::sync::Arc;
use std::time::Duration;

use super::*;

/// At most that many of a kind are open at a time: a dead connection and a slow one may each hold
/// one, and the third gets through.
pub(super) const MAX_OPEN: usize = 3;

/// At most that many writes of unknown outcome are remembered; of more, the oldest are forgotten,
/// whose send times are worth least.
const MAX_REMEMBERED: usize = 64;

/// A write whose outcome is not settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) id: RequestId,
    pub(super) purpose: Purpose,
    /// What it is conditioned on; None for a creation.
    pub(super) base: Option<(Arc<str>, Version)>,
    pub(super) sent: Mono,
    /// Every attempt writes a renewTime of its own, by which it is told from all others.
    pub(super) renew_time: Wall,
    /// Of the term it is for; zero for a creation.
    pub(super) epoch: u64,
    /// leaseTransitions as an acquisition writes them.
    pub(super) transitions: u32,
    /// An answer may still come; else it has failed and may have landed all the same.
    pub(super) open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OpenRead {
    pub(super) id: RequestId,
    pub(super) sent: Mono,
    /// The newest version seen when it was sent.
    pub(super) highest: Option<Version>,
}

/// When the next request of a kind may go out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pace {
    pub(super) next_at: Mono,
    /// The last one sent: only its failure moves `next_at`.
    pub(super) last: Option<RequestId>,
    /// The connection may be dead: use a fresh one.
    pub(super) suspect: bool,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { next_at: Mono::ZERO, last: None, suspect: false }
    }

    /// One goes out; if it is not answered by then, another goes out beside it.
    pub(super) fn sent(&mut self, id: RequestId, now: Mono, timeout: Duration) {
        self.last = Some(id);
        self.next_at = now + timeout;
        self.suspect = true;
    }

    /// It has failed, or came to nothing: the next goes out `after` its send.
    pub(super) fn failed(&mut self, id: RequestId, sent: Mono, after: Duration) {
        if self.last == Some(id) {
            self.next_at = sent + after;
        }
    }

    /// It brought what it was sent for.
    pub(super) fn done(&mut self, next_at: Mono) {
        self.next_at = next_at;
        self.suspect = false;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Writes {
    pub(super) list: Vec<Attempt>,
    pub(super) pace: Pace,
}

impl Writes {
    pub(super) fn new() -> Writes {
        Writes { list: Vec::with_capacity(MAX_OPEN + 1), pace: Pace::new() }
    }

    pub(super) fn open(&self) -> usize {
        self.list.iter().filter(|attempt| attempt.open).count()
    }

    pub(super) fn ready(&self, now: Mono) -> bool {
        self.pace.next_at <= now && self.open() < MAX_OPEN
    }

    pub(super) fn position(&self, id: RequestId) -> Option<usize> {
        self.list.iter().position(|attempt| attempt.open && attempt.id == id)
    }

    pub(super) fn push(&mut self, attempt: Attempt, timeout: Duration) {
        self.pace.sent(attempt.id, attempt.sent, timeout);
        if self.list.len() >= MAX_REMEMBERED
            && let Some(oldest) = self.list.iter().position(|attempt| !attempt.open)
        {
            self.list.remove(oldest);
        }
        self.list.push(attempt);
        assert!(self.list.len() <= MAX_REMEMBERED + MAX_OPEN, "writes are bounded");
    }

    /// Forgets those that can no longer land, since their base is not the newest any more. They are
    /// being answered, with 200 or 409; to cut them off would cost their connections.
    pub(super) fn supersede(&mut self, newest: &Record, now: Mono) {
        let Writes { list, pace } = self;
        list.retain(|attempt| {
            let keep = attempt.base.as_ref().is_some_and(|(uid, version)| {
                *uid == newest.uid && Some(*version) >= newest.version
            });
            if !keep && attempt.open {
                // The next may go out at once, from the new base.
                pace.failed(attempt.id, now, Duration::ZERO);
            }
            keep
        });
    }

    /// Forgets those that `gone` names, and hands the open ones among them to `cancel`.
    pub(super) fn drop_where(
        &mut self,
        mut gone: impl FnMut(&Attempt) -> bool,
        mut cancel: impl FnMut(&Attempt),
    ) {
        self.list.retain(|attempt| {
            let keep = !gone(attempt);
            if !keep && attempt.open {
                cancel(attempt);
            }
            keep
        });
    }

    /// Whether a write that was sent may have acquired the Lease, or still may.
    pub(super) fn may_have_acquired(&self) -> bool {
        self.list.iter().any(|attempt| attempt.purpose == Purpose::Acquire)
    }
}
