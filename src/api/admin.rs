//! The second listener: `/metrics`, `/livez`, `/readyz` and nothing else.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Bytes;

use super::reply::{Body, Refusal, Reply, reply};
use super::shape::OkBody;
use super::{Api, read_only};
use crate::core::Mono;

/// What the probes judge: the driver leaves its marks here, and the reader looks at the clock.
#[derive(Debug)]
pub struct Health {
    /// When the elector's loop last turned, in nanoseconds of `CLOCK_BOOTTIME`.
    beat: AtomicU64,
    limit: Duration,
    /// Once passed, for the life of the process.
    access: Mutex<Access>,
}

/// What the access self-check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// No answer yet.
    Unchecked,
    Passed,
    /// At least one.
    Missing(Vec<Denied>),
}

/// One right that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub verb: String,
    /// `leases.coordination.k8s.io/billing`.
    pub resource: String,
    pub namespace: String,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denied { verb, resource, namespace } = self;
        write!(f, "not allowed to {verb} {resource} in namespace {namespace}")
    }
}

impl Health {
    /// `limit`: how old the last beat may be. It must be well above the longest the loop may sleep.
    pub fn new(now: Mono, limit: Duration) -> Health {
        Health {
            beat: AtomicU64::new(now.as_nanos()),
            limit,
            access: Mutex::new(Access::Unchecked),
        }
    }

    /// The elector's loop has turned.
    pub fn beat(&self, now: Mono) {
        self.beat.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// The access self-check has an answer. After it has passed, none makes a difference.
    pub fn set_access(&self, access: Access) {
        let mut known = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != Access::Passed {
            *known = access;
        }
    }

    /// # Errors
    /// How old the last beat is, where that is too old.
    pub fn live(&self, now: Mono) -> Result<(), Duration> {
        let age = now.since(Mono::from_nanos(self.beat.load(Ordering::Relaxed)));
        if age > self.limit { Err(age) } else { Ok(()) }
    }

    /// `has_read`: the Lease was read, or found absent, at any time.
    ///
    /// # Errors
    /// What it is waiting for.
    pub fn ready(&self, has_read: bool) -> Result<(), String> {
        match &*self.access.lock().unwrap_or_else(PoisonError::into_inner) {
            Access::Missing(missing) => {
                let missing: Vec<String> = missing.iter().map(Denied::to_string).collect();
                Err(missing.join("; "))
            }
            _ if !has_read => Err("the Lease has not been read yet".into()),
            Access::Unchecked => Err("the access self-check has no answer yet".into()),
            Access::Passed => Ok(()),
        }
    }
}

impl Api {
    pub(super) fn admin<B>(&self, request: &Request<B>) -> Result<Reply, Refusal> {
        let path = request.uri().path();
        if !["/metrics", "/livez", "/readyz"].contains(&path) {
            return Err(Refusal::not_found(path));
        }
        read_only(request)?;
        let unavailable = |error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error);
        match path {
            "/livez" => self.health.live(self.seat.clock().now().mono).map_err(|age| {
                unavailable(format!("the elector's loop has not turned for {} ms", age.as_millis()))
            })?,
            "/readyz" => {
                self.health.ready(self.seat.look(|core| core.has_read())).map_err(unavailable)?;
            }
            _ => {
                let text = Bytes::from(self.metrics.render(&self.seat));
                return Ok(reply(StatusCode::OK, prometheus::TEXT_FORMAT, Body::Whole(Some(text))));
            }
        }
        Ok(self.json(StatusCode::OK, &OkBody { ok: true }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> Access {
        let resource = "leases.coordination.k8s.io/billing".to_owned();
        Access::Missing(vec![Denied { verb: "update".into(), resource, namespace: "shop".into() }])
    }

    #[test]
    fn scenario_a10_liveness_is_judged_by_the_reader() {
        let at = |ms| Mono::from_millis(ms);
        let health = Health::new(at(1_000), Duration::from_secs(5));
        assert_eq!(health.live(at(6_000)), Ok(()));
        assert_eq!(health.live(at(6_001)), Err(Duration::from_millis(5_001)));
        health.beat(at(7_000));
        health.beat(at(6_500));
        assert_eq!(health.live(at(12_000)), Ok(()));
    }

    #[test]
    fn scenario_c3_readiness_names_the_missing_right_and_once_passed_stays() {
        let health = Health::new(Mono::ZERO, Duration::from_secs(5));
        assert!(health.ready(true).is_err(), "unchecked");
        health.set_access(denied());
        let why = health.ready(true).unwrap_err();
        for part in ["update", "leases.coordination.k8s.io/billing", "shop"] {
            assert!(why.contains(part), "{why}");
        }
        health.set_access(Access::Passed);
        assert!(health.ready(false).is_err(), "not read");
        assert_eq!(health.ready(true), Ok(()));
        health.set_access(denied());
        assert_eq!(health.ready(true), Ok(()), "for the life of the process");
    }
}
