//! What a candidate believes of the Lease: the newest record it has seen, and since when.

use std::sync::Arc;
use std::time::Duration;

use super::*;

/// How an object came to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// By a read or a creation that was sent when `highest` was the newest version seen: whatever
    /// is older than that now, the store itself went back to.
    Quorum { highest: Option<Version> },
    /// By a watch, or in the answer to a compare-and-swap.
    Other,
}

/// What an object turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its version has no order: nothing can be decided on it.
    Unordered,
    /// Older than what is known: a replay, or a server that lags.
    Old,
    /// The very version that is known already.
    Same,
    New,
    /// The store has lost what it knew, and is at an older version.
    WentBack {
        from: Version,
        to: Version,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seen<B> {
    /// The newest object; None before the first read and while absent.
    pub(super) object: Option<Observed<B>>,
    /// Read at least once, or found absent.
    pub(super) read: bool,
    /// When the record last changed, by our clock.
    pub(super) changed_at: Mono,
    /// How long the record stayed unchanged before that.
    pub(super) interval: Duration,
    /// The record came out of a store that went back: nothing in it is believed at once [F11].
    pub(super) doubted: bool,
    /// A compare-and-swap on the newest object has failed: it is not the newest any more.
    pub(super) refuted: bool,
    /// The last object had no version that can be ordered.
    pub(super) unordered: bool,
    pub(super) highest: Option<Version>,
    pub(super) highest_epoch: u64,
    /// The uid in which a holder was last seen.
    pub(super) holder_uid: Option<Arc<str>>,
    /// The duration that it held for.
    pub(super) holder_duration: Duration,
}

impl<B> Seen<B> {
    pub(super) fn new(now: Mono) -> Seen<B> {
        Seen {
            object: None,
            read: false,
            changed_at: now,
            interval: Duration::ZERO,
            doubted: false,
            refuted: false,
            unordered: false,
            highest: None,
            highest_epoch: 0,
            holder_uid: None,
            holder_duration: Duration::ZERO,
        }
    }

    pub(super) fn record(&self) -> Option<&Record> {
        self.object.as_ref().map(|object| &object.record)
    }

    pub(super) fn is_absent(&self) -> bool {
        self.read && self.object.is_none() && !self.unordered
    }

    /// Takes in one object.
    pub(super) fn accept(
        &mut self,
        now: Mono,
        object: Observed<B>,
        source: Source,
        rules: Rules,
    ) -> Verdict {
        self.read = true;
        let Some(version) = object.record.version else {
            self.unordered = true;
            return Verdict::Unordered;
        };
        let before = match source {
            Source::Quorum { highest } => highest,
            Source::Other => None,
        };
        let quorum = matches!(source, Source::Quorum { .. });
        let went_back = before.filter(|&before| version < before);
        if went_back.is_none() && rules.on(Mark::F22) {
            match self.highest {
                Some(highest) if version < highest => return Verdict::Old,
                Some(highest) if version == highest && self.object.is_some() => {
                    self.unordered = false;
                    return Verdict::Same;
                }
                // It has vanished since; only the quorum may know better.
                Some(highest) if version == highest && !quorum => return Verdict::Old,
                _ => {}
            }
        }
        let new = &object.record;
        let changed = match self.record() {
            Some(old) => went_back.is_some() || new.differs(old),
            None => true,
        };
        let wait_kept = !rules.on(Mark::F2) && new.holder.as_deref() == Some(HOLDER_NEW);
        if changed && !wait_kept {
            self.interval = now.since(self.changed_at);
            self.changed_at = now;
            self.doubted = went_back.is_some() && rules.on(Mark::F11);
        }
        self.refuted = false;
        self.unordered = false;
        self.highest = Some(version);
        self.highest_epoch = self.highest_epoch.max(new.epoch.unwrap_or(0));
        if new.somebody().is_some() {
            self.holder_uid = Some(new.uid.clone());
            self.holder_duration = new.duration.unwrap_or_default();
        }
        self.object = Some(object);
        match went_back {
            Some(from) => Verdict::WentBack { from, to: version },
            None => Verdict::New,
        }
    }

    /// The Lease is known not to exist.
    pub(super) fn vanish(&mut self, now: Mono, rules: Rules) {
        self.read = true;
        self.object = None;
        self.refuted = false;
        self.unordered = false;
        self.doubted = false;
        self.changed_at = if rules.on(Mark::F2) { now } else { self.changed_at };
    }

    /// The epoch of an acquisition that is conditioned on the newest object; None: there is none
    /// left to give.
    pub(super) fn next_epoch(&self, rules: Rules) -> Option<u64> {
        let record = self.record()?;
        if !rules.on(Mark::EpochNotTransitions) {
            return Some(u64::from(record.transitions.unwrap_or(0)) + 1);
        }
        let version = u64::try_from(record.version?.number()).ok()?;
        let epoch = self.highest_epoch.checked_add(1)?.max(version).max(1);
        (epoch <= MAX_EPOCH).then_some(epoch)
    }
}
