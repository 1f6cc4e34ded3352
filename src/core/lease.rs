//! A Lease as plain data: what the core reads of one, and what it writes to one.
//!
//! How a field that is missing or odd is read is decided where the JSON is read; here each has
//! one meaning.

use std::sync::Arc;
use std::time::Duration;

use super::time::Wall;

/// Who a Lease names that was made anew: nobody.
pub const HOLDER_NEW: &str = "tenure/new";

/// The largest fencing epoch: exact in JavaScript, Lua, Prometheus, Java and PostgreSQL.
pub const MAX_EPOCH: u64 = (1 << 53) - 1;

/// A resourceVersion that is a decimal number, and so has an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u128);

impl Version {
    pub const fn new(number: u128) -> Version {
        Version(number)
    }

    pub const fn number(self) -> u128 {
        self.0
    }

    /// Digits only, the first of them 1-9, as the API's contract says.
    pub fn parse(text: &str) -> Option<Version> {
        let first = *text.as_bytes().first()?;
        if first == b'0' || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        text.parse().ok().map(Version)
    }
}

/// A time found in a Lease: equal to another or not, and never compared with a clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stamp {
    At(Wall),
    /// Not a time; kept to see it change.
    Odd(Arc<str>),
}

/// What one version of a Lease says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub uid: Arc<str>,
    /// None: the resourceVersion is no decimal number.
    pub version: Option<Version>,
    /// None: null, absent or "".
    pub holder: Option<Arc<str>>,
    /// None: null, absent, or no number above zero.
    pub duration: Option<Duration>,
    pub acquire_time: Option<Stamp>,
    pub renew_time: Option<Stamp>,
    /// None: null, absent, or no number from zero to 2^31 - 1.
    pub transitions: Option<u32>,
    /// The annotation `tenure.dev/epoch`, where it is 1 … [`MAX_EPOCH`].
    pub epoch: Option<u64>,
    /// The annotation `tenure.dev/incarnation`.
    pub incarnation: Option<Arc<str>>,
    /// The annotation `tenure.dev/transitions`.
    pub annotated_transitions: Option<u32>,
    /// The annotation `tenure.dev/released`.
    pub released: Option<u64>,
    /// `strategy` or `preferredHolder` is set: coordinated election.
    pub coordinated: bool,
    /// How many of our annotations are there and unreadable (read as absent).
    pub bad_annotations: u8,
}

impl Record {
    /// Whether anything that a candidate remembers differs. A new version alone is no change.
    pub fn differs(&self, other: &Record) -> bool {
        self.uid != other.uid
            || self.holder != other.holder
            || self.duration != other.duration
            || self.acquire_time != other.acquire_time
            || self.renew_time != other.renew_time
            || self.transitions != other.transitions
            || self.incarnation != other.incarnation
            || self.epoch != other.epoch
    }

    /// The holder, where it is somebody.
    pub fn somebody(&self) -> Option<&Arc<str>> {
        self.holder.as_ref().filter(|holder| &***holder != HOLDER_NEW)
    }

    pub fn renewed_at(&self) -> Option<Wall> {
        match self.renew_time {
            Some(Stamp::At(at)) => Some(at),
            _ => None,
        }
    }
}

/// A version of the Lease together with the object it was read from, which is what a write that
/// is decided on it is based on. `B` means nothing to the core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observed<B> {
    pub record: Record,
    pub base: B,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Make a missing Lease, held by nobody.
    Create,
    Acquire,
    Renew,
    Release,
}

/// What becomes of the annotation `tenure.dev/released`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    Keep,
    Remove,
    Set(u64),
}

/// One PUT: the fields to set on the base. `None` leaves a field as it is; all that is not named
/// here survives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write<B> {
    pub purpose: Purpose,
    /// The object the write is conditioned on, by its resourceVersion and uid. None: it must not
    /// exist.
    pub base: Option<B>,
    /// "" is nobody.
    pub holder: Arc<str>,
    pub duration: Duration,
    pub renew_time: Wall,
    pub acquire_time: Option<Wall>,
    /// `leaseTransitions` and the annotation `tenure.dev/transitions`.
    pub transitions: Option<u32>,
    pub epoch: Option<u64>,
    pub incarnation: Option<Arc<str>>,
    pub released: Released,
}
