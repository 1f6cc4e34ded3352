//! The JSON shapes, field by field as documented.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::ApiConfig;
use crate::core::{Answer, Wall};

/// `/leader`, `/is-leader`, and `event: leader`.
#[derive(Debug, Serialize)]
pub(super) struct LeaderBody<'a> {
    leader: bool,
    state: &'static str,
    reason: &'static str,
    version: u64,
    epoch: Option<u64>,
    valid_for_ms: u64,
    waited_ms: u64,
    valid_until_boottime_ms: Option<u64>,
    boot_id: &'a str,
    leader_since: Option<String>,
    identity: &'a str,
    holder: Option<&'a str>,
    holder_observed_age_ms: Option<u64>,
    holds: u32,
    lease: LeaseBody<'a>,
}

#[derive(Debug, Serialize)]
struct LeaseBody<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: Option<&'a str>,
    duration_ms: u64,
    transitions: u32,
    epoch: Option<u64>,
}

impl<'a> LeaderBody<'a> {
    pub(super) fn new(config: &'a ApiConfig, answer: &'a Answer, waited: Duration) -> Self {
        LeaderBody {
            leader: answer.leader,
            state: answer.state.word(),
            reason: answer.reason.word(),
            version: answer.version,
            epoch: answer.epoch,
            valid_for_ms: millis(answer.valid_for),
            waited_ms: millis(waited),
            valid_until_boottime_ms: answer.valid_until.map(|until| until.as_millis()),
            boot_id: &config.boot_id,
            leader_since: answer.leader_since.map(rfc3339),
            identity: &config.identity,
            holder: answer.holder.as_deref(),
            holder_observed_age_ms: answer.holder_observed_age.map(millis),
            holds: answer.holds,
            lease: LeaseBody {
                namespace: &config.lease_namespace,
                name: &config.lease_name,
                uid: answer.lease_uid.as_deref(),
                duration_ms: millis(answer.lease_duration),
                transitions: answer.transitions,
                epoch: answer.lease_epoch,
            },
        }
    }
}

/// `event: renewed`.
#[derive(Debug, Serialize)]
pub(super) struct RenewedBody {
    epoch: Option<u64>,
    version: u64,
    valid_for_ms: u64,
    valid_until_boottime_ms: Option<u64>,
}

impl RenewedBody {
    pub(super) fn new(answer: &Answer) -> Self {
        RenewedBody {
            epoch: answer.epoch,
            version: answer.version,
            valid_for_ms: millis(answer.valid_for),
            valid_until_boottime_ms: answer.valid_until.map(|until| until.as_millis()),
        }
    }
}

/// `GET /`.
#[derive(Debug, Serialize)]
pub(super) struct NameBody<'a> {
    pub(super) name: &'a str,
}

/// `POST /release`.
#[derive(Debug, Serialize)]
pub(super) struct ReleaseBody {
    pub(super) released: bool,
    /// Only said where it is not implied by `released`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<u64>,
}

/// `GET /fence/{epoch}`, 200 and 409.
#[derive(Debug, Serialize)]
pub(super) struct FenceBody<'a> {
    pub(super) current: bool,
    pub(super) held: bool,
    pub(super) newest_epoch: Option<u64>,
    pub(super) holder: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Every error.
#[derive(Debug, Serialize)]
pub(super) struct ErrorBody<'a> {
    pub(super) error: &'a str,
}

/// `/livez` and `/readyz`, 200.
#[derive(Debug, Serialize)]
pub(super) struct OkBody {
    pub(super) ok: bool,
}

/// Any of the above under `--dev`.
#[derive(Debug, Serialize)]
pub(super) struct Dev<'a, T> {
    #[serde(flatten)]
    pub(super) body: &'a T,
    pub(super) dev: bool,
}

/// Whole milliseconds, rounded down: a validity may be told too short, never too long.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn rfc3339(at: Wall) -> String {
    // Out of jiff's range only where the machine's clock is off by thousands of years.
    Timestamp::from_second(at.second()).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_in_utc_and_spans_are_rounded_down() {
        assert_eq!(rfc3339(Wall::from_micros(1_796_061_062_999_999)), "2026-11-30T17:51:02Z");
        assert_eq!(millis(Duration::from_micros(8_123_999)), 8_123);
        assert_eq!(rfc3339(Wall::from_micros(i64::MAX)).len(), "1970-01-01T00:00:00Z".len());
    }
}
