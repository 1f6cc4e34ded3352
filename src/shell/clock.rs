//! Where the time comes from, and how to sleep by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::core::{Mono, Now, Wall};
use crate::seat::Clock;

/// The longest sleep in one piece. Timers of the runtime stand still while the machine is
/// suspended, `CLOCK_BOOTTIME` does not: looking again this often is how a suspend is noticed.
const SLICE: Duration = Duration::from_secs(1);

/// Counts the time the machine is suspended. On macOS that is CLOCK_MONOTONIC (what stands still
/// there is CLOCK_UPTIME_RAW).
#[cfg(any(target_os = "linux", target_os = "android"))]
const SUSPEND_AWARE: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SUSPEND_AWARE: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

/// This machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let mono = rustix::time::clock_gettime(SUSPEND_AWARE);
        // Neither is ever negative: the clock starts with the machine.
        let seconds = u64::try_from(mono.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(mono.tv_nsec).unwrap_or(0);
        Now {
            mono: Mono::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)),
            wall: wall(SystemTime::now()),
        }
    }
}

fn wall(at: SystemTime) -> Wall {
    let micros = match at.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
    };
    Wall::from_micros(micros)
}

/// The runtime's own clock, for tests in paused time: with an offset, and faster or slower than
/// that of others by some parts per million.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: tokio::time::Instant,
    offset: Duration,
    drift_ppm: i32,
    wall_at_start: Wall,
}

impl TokioClock {
    /// Starts at `offset` now. Call it inside a runtime.
    #[must_use]
    pub fn new(offset: Duration, drift_ppm: i32) -> TokioClock {
        // A fixed day, so that runs are alike: 2026-01-01T00:00:00Z.
        let wall_at_start = Wall::from_micros(1_767_225_600_000_000);
        TokioClock { start: tokio::time::Instant::now(), offset, drift_ppm, wall_at_start }
    }

    /// The same with another wall clock, in microseconds since 1970.
    #[must_use]
    pub fn with_wall(self, micros: i64) -> TokioClock {
        TokioClock { wall_at_start: Wall::from_micros(micros), ..self }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Now {
        let passed = i128::try_from(self.start.elapsed().as_nanos()).unwrap_or(i128::MAX / 4);
        let drifted = passed + passed / 1_000_000 * i128::from(self.drift_ppm);
        let own = u64::try_from(drifted).unwrap_or(0);
        let micros = i64::try_from(own / 1000).unwrap_or(i64::MAX);
        Now {
            mono: Mono::from_nanos(own) + self.offset,
            wall: Wall::from_micros(self.wall_at_start.as_micros().saturating_add(micros)),
        }
    }
}

/// Sleeps until `clock` shows `at`, looking at it at least once a second.
pub async fn sleep_until(clock: &dyn Clock, at: Mono) {
    loop {
        let left = at.since(clock.now().mono);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_goes_forward_and_knows_the_century() {
        let a = SystemClock.now();
        let b = SystemClock.now();
        assert!(b.mono >= a.mono && a.mono > Mono::ZERO);
        assert!(a.wall.as_micros() > 1_700_000_000_000_000);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_clock_counts_from_boot_as_proc_uptime_does() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let clock = SystemClock.now().mono.as_millis() as f64 / 1000.0;
        // Lags by up to 10 ms and is read first; generous upwards for a busy machine.
        assert!(clock > seconds - 0.1 && clock < seconds + 60.0, "{clock} {seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_drifting_clock_is_slept_by_to_the_end() {
        let offset = Duration::from_secs(1000);
        for ppm in [-1000, 0, 1000] {
            let clock = TokioClock::new(offset, ppm);
            let begin = clock.now().mono;
            sleep_until(&clock, begin + Duration::from_secs(10)).await;
            let slept = clock.now().mono.since(begin);
            assert!(slept >= Duration::from_secs(10), "{ppm}: {slept:?}");
            assert!(slept < Duration::from_millis(10_005), "{ppm}: {slept:?}");
        }
        let clock = TokioClock::new(offset, 0);
        assert_eq!(clock.now().mono.as_millis(), 1_000_000);
        sleep_until(&clock, Mono::ZERO).await;
    }
}
