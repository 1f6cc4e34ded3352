//! The black box: a register that guarded work writes to, as a database that knows the fencing token
//! would be. It keeps the greatest epoch and refuses smaller ones, and it notices what only a judge of
//! all can: two whose granted time is not over, at once.

use std::sync::Mutex;

use crate::facts::boottime;

#[derive(Debug, Default)]
pub struct Register(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    epoch: u64,
    owner: String,
    /// Until when the owner was told it leads; 0 once it said it stopped.
    granted_until: u64,
    tally: Tally,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub writes: u64,
    /// Somebody else wrote while the owner's grant had not lapsed: a fence would have been needed.
    pub unfenced_overlaps: u32,
    /// Writes that came with an epoch smaller than the greatest.
    pub stale_epochs: u32,
}

impl Register {
    /// A guarded write, if the grant has not lapsed at this very moment.
    pub fn write(&self, who: &str, epoch: u64, granted_until: u64) {
        let mut inner = self.0.lock().expect("register");
        let now = boottime();
        if now >= granted_until {
            return;
        }
        inner.tally.writes += 1;
        if inner.owner != who && now < inner.granted_until {
            inner.tally.unfenced_overlaps += 1;
        }
        if epoch < inner.epoch {
            inner.tally.stale_epochs += 1;
            return;
        }
        let same = inner.owner == who && inner.epoch == epoch;
        let longest = if same { inner.granted_until.max(granted_until) } else { granted_until };
        inner.granted_until = longest;
        inner.epoch = epoch;
        who.clone_into(&mut inner.owner);
    }

    /// The guarded work of `who` has stopped.
    pub fn stopped(&self, who: &str) {
        let mut inner = self.0.lock().expect("register");
        if inner.owner == who {
            inner.granted_until = 0;
        }
    }

    pub fn tally(&self) -> Tally {
        self.0.lock().expect("register").tally
    }
}
