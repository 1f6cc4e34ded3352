//! The three times of an election and the inequalities between them.
//!
//! A [`Timing`] that exists is sound: every rule of the protocol that mentions L, R, P or T may
//! rely on it without looking again. All comparisons are on whole nanoseconds in `u128`, so neither
//! rounding nor overflow can let a broken combination through.

use std::fmt;
use std::time::Duration;

/// How many attempts must fit between the moment a renewal falls due and the renew deadline.
const ATTEMPTS: u32 = 3;
/// An attempt shorter than this mostly times out against a healthy but busy API server.
const MIN_ATTEMPT_TIMEOUT: Duration = Duration::from_millis(200);
/// The Lease stores whole seconds, and a term of one second leaves no room for a renewal in another
/// whole second.
const MIN_LEASE_DURATION: Duration = Duration::from_secs(2);
/// `spec.leaseDurationSeconds` is an int32.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(i32::MAX as u64);

/// L, R and P, checked against each other; T follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl Timing {
    /// Checks each value alone, then the pairs, then T.
    ///
    /// # Errors
    /// The first broken inequality, with the values and the flags they came from.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, TimingError> {
        let (l, r, p) = (lease_duration, renew_deadline, retry_period);
        for (flag, value) in
            [("--lease-duration", l), ("--renew-deadline", r), ("--retry-period", p)]
        {
            if value.is_zero() {
                return Err(TimingError::Zero { flag });
            }
        }
        if l.subsec_nanos() != 0 {
            return Err(TimingError::LeaseDurationNotWholeSeconds { lease_duration: l });
        }
        if l < MIN_LEASE_DURATION {
            return Err(TimingError::LeaseDurationTooShort { lease_duration: l });
        }
        if l > MAX_LEASE_DURATION {
            return Err(TimingError::LeaseDurationTooLong { lease_duration: l });
        }
        // 1.2 R <= L and 1.2 P < R, without fractions.
        if 6 * r.as_nanos() > 5 * l.as_nanos() {
            return Err(TimingError::RenewDeadlineTooLong { lease_duration: l, renew_deadline: r });
        }
        if 6 * p.as_nanos() >= 5 * r.as_nanos() {
            return Err(TimingError::RetryPeriodTooLong { renew_deadline: r, retry_period: p });
        }
        let timing = Self { lease_duration: l, renew_deadline: r, retry_period: p };
        if timing.attempt_timeout() < MIN_ATTEMPT_TIMEOUT {
            return Err(TimingError::NoRoomForAttempts { renew_deadline: r, retry_period: p });
        }
        Ok(timing)
    }

    /// Three times that no check has seen, to show what the checks are good for [F32].
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn unchecked(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Self {
        Self { lease_duration, renew_deadline, retry_period }
    }

    /// L: how long a record is honoured by those who are not its holder. Whole seconds, 2 s to
    /// `i32::MAX` s.
    #[must_use]
    pub const fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// R: how long after the *send* of its last counted write a leader may call itself one.
    /// 1.2 R <= L.
    #[must_use]
    pub const fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// P: from the send of the last acknowledged write to the next renewal. 1.2 P < R.
    #[must_use]
    pub const fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// T = (R - P) / 3, at least 200 ms: how long one attempt stays alone before another goes out
    /// beside it.
    #[must_use]
    pub fn attempt_timeout(&self) -> Duration {
        // Sound by construction: P < R. Saturating, so that no arithmetic here can ever panic.
        self.renew_deadline.saturating_sub(self.retry_period) / ATTEMPTS
    }
}

impl Default for Timing {
    /// 15 s / 10 s / 2 s, as client-go has them.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// The inequality that is broken, with the values that break it. Displays as one line that names
/// the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimingError {
    /// One of the three is zero.
    Zero { flag: &'static str },
    /// L carries a fraction of a second, which a Lease cannot.
    LeaseDurationNotWholeSeconds { lease_duration: Duration },
    /// L < 2 s.
    LeaseDurationTooShort { lease_duration: Duration },
    /// L does not fit an int32 of seconds.
    LeaseDurationTooLong { lease_duration: Duration },
    /// 1.2 R > L.
    RenewDeadlineTooLong { lease_duration: Duration, renew_deadline: Duration },
    /// 1.2 P >= R.
    RetryPeriodTooLong { renew_deadline: Duration, retry_period: Duration },
    /// (R - P) / 3 < 200 ms.
    NoRoomForAttempts { renew_deadline: Duration, retry_period: Duration },
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Zero { flag } => write!(f, "{flag}=0s: must be greater than zero"),
            Self::LeaseDurationNotWholeSeconds { lease_duration: l } => {
                write!(
                    f,
                    "--lease-duration={l:?}: must be whole seconds (a Lease stores no fractions)"
                )
            }
            Self::LeaseDurationTooShort { lease_duration: l } => {
                write!(f, "--lease-duration={l:?}: must be at least {MIN_LEASE_DURATION:?}")
            }
            Self::LeaseDurationTooLong { lease_duration: l } => {
                write!(f, "--lease-duration={l:?}: must be at most {MAX_LEASE_DURATION:?}")
            }
            Self::RenewDeadlineTooLong { lease_duration: l, renew_deadline: r } => write!(
                f,
                "--renew-deadline={r:?}: 1.2 x --renew-deadline must be at most \
                 --lease-duration={l:?} (allowed: up to {:?})",
                l * 5 / 6
            ),
            Self::RetryPeriodTooLong { renew_deadline: r, retry_period: p } => write!(
                f,
                "--retry-period={p:?}: 1.2 x --retry-period must be less than \
                 --renew-deadline={r:?} (allowed: below {:?})",
                r * 5 / 6
            ),
            Self::NoRoomForAttempts { renew_deadline: r, retry_period: p } => write!(
                f,
                "--retry-period={p:?}: (--renew-deadline={r:?} - --retry-period) / 3 must be at \
                 least {MIN_ATTEMPT_TIMEOUT:?}, room for {ATTEMPTS} attempts"
            ),
        }
    }
}

impl std::error::Error for TimingError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(l_ms: u64, r_ms: u64, p_ms: u64) -> Result<Timing, TimingError> {
        let ms = Duration::from_millis;
        Timing::new(ms(l_ms), ms(r_ms), ms(p_ms))
    }

    #[test]
    fn the_defaults_are_sound_and_leave_attempts_a_third_of_the_rest() {
        let d = Timing::default();
        assert_eq!(Ok(d), timing(15_000, 10_000, 2_000));
        assert_eq!(d.attempt_timeout(), Duration::from_nanos(8_000_000_000 / 3));
    }

    #[test]
    fn mark_f32_the_renew_deadline_leaves_a_fifth_to_the_lease_duration() {
        assert!(timing(12_000, 10_000, 2_000).is_ok());
        assert!(matches!(
            timing(12_000, 10_001, 2_000),
            Err(TimingError::RenewDeadlineTooLong { .. })
        ));
    }

    #[test]
    fn scenario_c1_each_broken_inequality_has_its_own_error() {
        use TimingError as E;
        assert!(matches!(timing(0, 10_000, 2_000), Err(E::Zero { flag: "--lease-duration" })));
        assert!(matches!(timing(15_000, 0, 2_000), Err(E::Zero { flag: "--renew-deadline" })));
        assert!(matches!(timing(15_000, 10_000, 0), Err(E::Zero { flag: "--retry-period" })));
        assert!(matches!(timing(2_500, 2_000, 500), Err(E::LeaseDurationNotWholeSeconds { .. })));
        assert!(matches!(timing(1_000, 800, 100), Err(E::LeaseDurationTooShort { .. })));
        assert!(matches!(
            timing((1 << 31) * 1000, 10_000, 2_000),
            Err(E::LeaseDurationTooLong { .. })
        ));
        assert!(timing(((1 << 31) - 1) * 1000, 10_000, 2_000).is_ok());
        // 1.2 P < R is strict.
        assert!(matches!(timing(15_000, 12_000, 10_000), Err(E::RetryPeriodTooLong { .. })));
        assert!(timing(15_000, 12_000, 9_999).is_ok());
        // T = (1.0 - 0.4) / 3 = 200 ms is the least.
        assert!(timing(2_000, 1_000, 400).is_ok());
        assert!(matches!(timing(2_000, 1_000, 401), Err(E::NoRoomForAttempts { .. })));
    }

    #[test]
    fn extremes_neither_panic_nor_pass() {
        assert!(Timing::new(Duration::MAX, Duration::MAX, Duration::MAX).is_err());
        let most = Duration::from_secs(i32::MAX as u64);
        let error = Timing::new(most, Duration::MAX, Duration::MAX).unwrap_err();
        assert!(!error.to_string().is_empty());
    }

    #[test]
    fn errors_are_one_line_that_names_flags_and_values() {
        let text = timing(12_000, 10_001, 2_000).unwrap_err().to_string();
        assert!(text.contains("--renew-deadline=10.001s"), "{text}");
        assert!(text.contains("--lease-duration=12s"), "{text}");
        assert!(!text.contains('\n'));
    }
}
