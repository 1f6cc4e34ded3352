//! What a candidate is told before it starts.

use std::sync::Arc;
use std::time::Duration;

use super::rules::Rules;
use crate::timing::Timing;

/// Renewal for an app that holds, and has not said that it stopped, where nothing else is asked.
pub const AUTO_DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

/// What to do about a Lease that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MissingLease {
    /// Make it, held by nobody, to be taken one full term later: safe.
    Create,
    /// Make it free at once. Dangerous: two leaders are possible after a deletion.
    CreateFree,
    /// Wait for somebody to make it: blocked, `lease_missing`.
    Never,
}

/// How long to go on renewing for an app that has not said it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrainTimeout {
    /// [`AUTO_DRAIN_TIMEOUT`] while a hold is open, else not at all.
    Auto,
    /// That long, hold or not.
    Explicit(Duration),
}

/// What the closing of the last hold means outside of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnAppExit {
    Release,
    Keep,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Our `holderIdentity`, compared exactly.
    pub identity: Arc<str>,
    /// A random id of this process.
    pub incarnation: Arc<str>,
    /// A record with our identity and another incarnation, found by the first read, was left by a
    /// dead predecessor. True only where that is known [F6].
    pub takes_over: bool,
    pub timing: Timing,
    pub missing_lease: MissingLease,
    pub drain_timeout: DrainTimeout,
    pub on_app_exit: OnAppExit,
    /// SIGTERM alone counts as the app's word.
    pub unsafe_release_on_sigterm: bool,
    /// No answer grants more than this, but to callers that see no length.
    pub max_valid: Option<Duration>,
    pub rules: Rules,
}
