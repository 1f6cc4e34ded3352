//! A machine's clocks as functions of true time, and the draws of a seed.

use tenure::core::{Mono, Now, Wall};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
const MILLION: u128 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Nanoseconds that it shows at true time zero.
    pub offset: u64,
    /// Its nanoseconds per million true ones.
    pub rate: u64,
    /// Wall-clock microseconds at true time zero.
    pub wall: i64,
}

impl Clock {
    pub fn exact(number: usize) -> Clock {
        Clock {
            offset: (1_000 + 777 * number as u64) * SECOND,
            rate: 1_000_000,
            wall: 1_764_000_000_000_000 + number as i64 * 7_000_000,
        }
    }

    pub fn mono(&self, at: u64) -> u64 {
        self.offset + self.elapsed(at)
    }

    fn elapsed(&self, at: u64) -> u64 {
        (u128::from(at) * u128::from(self.rate) / MILLION) as u64
    }

    pub fn now(&self, at: u64) -> Now {
        let wall = self.wall + (self.elapsed(at) / 1_000) as i64;
        Now { mono: Mono::from_nanos(self.mono(at)), wall: Wall::from_micros(wall) }
    }

    /// The first true time at which it shows `mono` or more.
    pub fn when(&self, mono: u64) -> u64 {
        let span = u128::from(mono.saturating_sub(self.offset));
        let at = (span * MILLION).div_ceil(u128::from(self.rate));
        u64::try_from(at).unwrap_or(u64::MAX)
    }
}

/// splitmix64
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From zero up to, not including, `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub fn permille(&mut self, chance: u64) -> bool {
        self.below(1_000) < chance
    }
}
