//! Time as the core knows it: numbers that are handed in. Nothing here reads a clock.

use std::ops::Add;
use std::time::Duration;

/// A point on this machine's `CLOCK_BOOTTIME`, in nanoseconds. Every duration tenure relies on is
/// measured between two of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// Before every other point: what is due since then is due at once.
    pub const ZERO: Mono = Mono(0);

    pub const fn from_nanos(nanos: u64) -> Mono {
        Mono(nanos)
    }

    pub const fn from_millis(millis: u64) -> Mono {
        Mono(millis.saturating_mul(1_000_000))
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds, rounded down: a deadline may be told too early, never too late.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How long after `earlier` this is; zero if it is not later.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturating: a deadline beyond the end of the clock is never reached.
impl Add<Duration> for Mono {
    type Output = Mono;
    fn add(self, span: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Wall-clock time in microseconds since 1970. It is only ever written (`renewTime`,
/// `acquireTime`, logs) and compared for equality or with another stamp of ours; never with a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(i64);

impl Wall {
    pub const fn from_micros(micros: i64) -> Wall {
        Wall(micros)
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The whole second it lies in, which is all that client-go compares.
    pub const fn second(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// The begin of the next whole second.
    pub const fn next_second(self) -> Wall {
        Wall((self.second() + 1).saturating_mul(1_000_000))
    }

    /// Later by that span, and by a microsecond at least.
    pub fn after(self, span: Duration) -> Wall {
        let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Wall(self.0.saturating_add(micros.max(1)))
    }
}

/// Both clocks, read once per event and *before* anything that the event causes is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub mono: Mono,
    pub wall: Wall,
}
