//! Questions of the app, and their answers. An answer is a grant of the validity it carries.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Reason, State};
use super::time::{Mono, Wall};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Leader only if that much validity is left.
    pub min_valid: Option<Duration>,
    /// Grant at most that much.
    pub max_valid: Option<Duration>,
    /// The caller sees no length, and so is granted all there is (`/is-leader` without `max_valid`
    /// in its own query, `GET /`).
    pub sees_no_length: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// True only while `valid_for` is at least one millisecond.
    pub leader: bool,
    pub state: State,
    pub reason: Reason,
    /// Grows by one with each change.
    pub version: u64,
    /// The fencing token; None unless leading or draining.
    pub epoch: Option<u64>,
    /// Zero unless leading or draining. Whole milliseconds, rounded down.
    pub valid_for: Duration,
    /// The same as a point in time; None where nothing is granted.
    pub valid_until: Option<Mono>,
    pub leader_since: Option<Wall>,
    /// Who holds the Lease; None: nobody is known to.
    pub holder: Option<Arc<str>>,
    /// How long ago the holder was last seen to be alive; None before the first read.
    pub holder_observed_age: Option<Duration>,
    pub holds: u32,
    pub lease_uid: Option<Arc<str>>,
    pub lease_duration: Duration,
    pub transitions: u32,
    /// The newest epoch seen, also on followers; None: none yet.
    pub lease_epoch: Option<u64>,
}
