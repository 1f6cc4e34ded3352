//! The invariants, judged over what happened: commits in the store, answers, and what was told.
//! Nothing here knows how the core decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure::core::{Purpose, Record, Stamp, Tell};

use super::store::Object;

/// Who wrote: a pod's nth process, or a peer (whose numbers begin at [`PEER`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Author {
    pub pod: usize,
    pub life: u32,
}

pub const PEER: usize = 1_000;

/// A write as it took effect.
#[derive(Debug)]
pub struct Commit<'a> {
    pub at: u64,
    pub author: Author,
    pub purpose: Purpose,
    pub epoch: Option<u64>,
    /// By the author's clock.
    pub sent_mono: u64,
    pub renew_deadline: u64,
    pub before: Option<&'a Object>,
    pub after: &'a Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Acquired(u64),
    Draining(u64),
}

#[derive(Clone, Debug, Default)]
pub struct Checker {
    pub violations: Vec<String>,
    /// The last acquisition that took effect.
    acquirer: Option<(Author, Option<u64>)>,
    last_epoch: u64,
    /// The store went back: only the epoch protects now, and not in this checker.
    pub amnesia: bool,
    /// Until when a term may call itself valid, by its author's clock.
    valid: BTreeMap<(Author, u64), u64>,
    phases: BTreeMap<Author, Phase>,
    /// Per pod: the latest deadline granted since the app's last word, in true time.
    granted: BTreeMap<usize, u64>,
    /// When a term was last called leader.
    last_leader: BTreeMap<(Author, u64), u64>,
    released: BTreeMap<(Author, u64), u64>,
    pub acquisitions: u64,
    pub releases: u64,
    pub peer_acquisitions: u64,
}

/// What client-go compares: whole seconds.
fn raw(record: &Record) -> (Option<Arc<str>>, u64, Option<i64>, Option<i64>, u32) {
    let second = |stamp: &Option<Stamp>| match stamp {
        Some(Stamp::At(at)) => Some(at.second()),
        _ => None,
    };
    (
        record.holder.clone(),
        record.duration.map_or(0, |span| span.as_secs()),
        second(&record.acquire_time),
        second(&record.renew_time),
        record.transitions.unwrap_or(0),
    )
}

impl Checker {
    fn broken(&mut self, at: u64, what: String) {
        let kind = &what[..2];
        if !self.violations.iter().any(|known| known.contains(kind)) {
            self.violations.push(format!("{:.6}s {what}", at as f64 / 1e9));
        }
    }

    pub fn committed(&mut self, commit: &Commit<'_>) {
        let Commit { at, author, purpose, epoch, .. } = *commit;
        let last = self.acquirer;
        let holds = last.is_some_and(|(holder, _)| holder == author);
        match purpose {
            Purpose::Create => {}
            Purpose::Acquire => {
                self.acquisitions += 1;
                let number = epoch.unwrap_or(0);
                if !self.amnesia && number <= self.last_epoch {
                    let last = self.last_epoch;
                    self.broken(at, format!("S2: epoch {number} acquired after {last}"));
                }
                self.last_epoch = self.last_epoch.max(number);
                self.acquirer = Some((author, epoch));
            }
            Purpose::Renew | Purpose::Release => {
                if !self.amnesia && !holds {
                    self.broken(at, format!("S4: {purpose:?} of {author:?} after {last:?}"));
                }
                if holds && last.is_some_and(|(_, held)| held != epoch) && !self.amnesia {
                    self.broken(at, format!("S5: {purpose:?} of epoch {epoch:?} hits {last:?}"));
                }
            }
        }
        if purpose == Purpose::Release {
            self.releases += 1;
            self.released_at(at, author, epoch.unwrap_or(0));
        }
        self.count(commit);
    }

    fn released_at(&mut self, at: u64, author: Author, epoch: u64) {
        if let Some(&until) = self.granted.get(&author.pod)
            && until > at
        {
            let until = until as f64 / 1e9;
            self.broken(at, format!("S7: released, but granted until {until:.6}s"));
        }
        self.released.insert((author, epoch), at);
    }

    /// What a write makes valid.
    fn count(&mut self, commit: &Commit<'_>) {
        let repaired = matches!(commit.purpose, Purpose::Acquire | Purpose::Renew);
        let visible = commit.before.is_none_or(|old| raw(&old.record) != raw(&commit.after.record));
        if let Some(epoch) = commit.epoch
            && repaired
            && visible
        {
            let until = commit.sent_mono + commit.renew_deadline;
            let valid = self.valid.entry((commit.author, epoch)).or_insert(0);
            *valid = (*valid).max(until);
        }
    }

    pub fn peer_acquired(&mut self, author: Author) {
        self.peer_acquisitions += 1;
        self.acquirer = Some((author, None));
    }

    /// Everybody who says leader at this moment.
    pub fn leaders(&mut self, at: u64, leaders: &[(Author, Option<u64>, u64)]) {
        for &(author, epoch, mono) in leaders {
            let Some(epoch) = epoch.filter(|_| author.pod < PEER) else { continue };
            self.last_leader.insert((author, epoch), at);
            let valid = self.valid.get(&(author, epoch)).copied().unwrap_or(0);
            if mono >= valid {
                let late = mono - valid;
                self.broken(at, format!("S3: {author:?} leader in {epoch}, {late} ns too late"));
            }
            if let Some(released) = self.released.get(&(author, epoch)).copied() {
                self.broken(at, format!("S5: leader in {epoch} after its release at {released}"));
            }
        }
        let tenures = leaders.iter().filter(|(author, ..)| author.pod < PEER).count();
        if tenures > 1 || (tenures == 1 && leaders.len() > 1) {
            self.broken(at, format!("S1: leaders at once: {leaders:?}"));
        }
    }

    pub fn granted(&mut self, pod: usize, until: u64) {
        let granted = self.granted.entry(pod).or_insert(0);
        *granted = (*granted).max(until);
    }

    /// The app has stopped: every grant before is void.
    pub fn word(&mut self, pod: usize) {
        self.granted.remove(&pod);
    }

    pub fn granted_until(&self, pod: usize) -> u64 {
        self.granted.get(&pod).copied().unwrap_or(0)
    }

    pub fn told(&mut self, at: u64, author: Author, tell: &Tell) {
        let phase = self.phases.get(&author).copied();
        let next = match (*tell).clone() {
            Tell::Acquired { epoch, .. } if phase.is_none() => Some(Phase::Acquired(epoch)),
            Tell::Draining { epoch, .. } if phase == Some(Phase::Acquired(epoch)) => {
                Some(Phase::Draining(epoch))
            }
            Tell::Ended { epoch, .. }
                if phase == Some(Phase::Acquired(epoch))
                    || phase == Some(Phase::Draining(epoch)) =>
            {
                None
            }
            Tell::Acquired { .. } | Tell::Draining { .. } | Tell::Ended { .. } => {
                self.broken(at, format!("S6: {author:?} tells {tell:?} in {phase:?}"));
                return;
            }
            _ => return,
        };
        match next {
            Some(phase) => self.phases.insert(author, phase),
            None => self.phases.remove(&author),
        };
    }
}
