//! The access self-check: may this service account do what it will have to? Asked at the start, so
//! that a wrong Role is told of at once, also on a standby that has nothing to write yet; and again
//! after a request was forbidden, so that rights restored are noticed by whoever has nothing to ask.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use serde_json::json;

use super::lease_api::exchange;
use super::{Observer, Target};
use crate::core::{Event, MissingLease};
use crate::seat::Seat;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// How long one review may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What can be said of the rights.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Missing(Vec<&'static str>),
    /// No answer, or none that says it.
    Unknown,
    /// The server does not review: nothing can be found missing.
    NoReview(StatusCode),
}

/// The verbs of RBAC on this one Lease that a candidate cannot do without.
#[must_use]
pub fn needed(missing_lease: MissingLease) -> &'static [&'static str] {
    match missing_lease {
        MissingLease::Create | MissingLease::CreateFree => &["get", "watch", "update", "create"],
        MissingLease::Never => &["get", "watch", "update"],
    }
}

/// Asks until nothing is missing: every L, and as long as nobody answers every P. Asks again when
/// something was forbidden since.
pub async fn run(
    client: kube::Client,
    target: Target,
    seat: Arc<Seat>,
    observer: Arc<dyn Observer>,
) {
    let (verbs, every, retry) = seat.look(|elector| {
        let options = elector.options();
        let timing = options.timing;
        (needed(options.missing_lease), timing.lease_duration(), timing.retry_period())
    });
    let mut told: Option<Vec<&'static str>> = None;
    let mut pulse = seat.pulse();
    loop {
        let pause = match check(&client, &target, verbs).await {
            Verdict::Unknown => retry,
            Verdict::Missing(missing) => {
                if told.as_ref() != Some(&missing) {
                    complain(&missing, &target);
                }
                observer.access(&missing);
                seat.handle(Event::Access { denied: true });
                told = Some(missing);
                every
            }
            Verdict::NoReview(status) => {
                let status = status.as_u16();
                tracing::warn!(status, "the API server reviews no access: rights are unchecked");
                observer.access(&[]);
                return;
            }
            Verdict::Passed => {
                if told.take().is_some() {
                    tracing::info!(lease = target.name, "all needed rights are there");
                }
                observer.access(&[]);
                seat.handle(Event::Access { denied: false });
                while !seat.look(|elector| elector.is_denied()) {
                    if pulse.changed().await.is_err() {
                        return;
                    }
                }
                every
            }
        };
        tokio::time::sleep(pause).await;
    }
}

fn complain(missing: &[&'static str], target: &Target) {
    for verb in missing {
        tracing::warn!(
            verb,
            resource = "leases.coordination.k8s.io",
            namespace = target.namespace,
            lease = target.name,
            "access denied: the Role lacks this verb"
        );
    }
}

async fn check(client: &kube::Client, target: &Target, verbs: &[&'static str]) -> Verdict {
    let reviews = verbs.iter().map(|verb| review(client, target, verb));
    let mut missing = Vec::new();
    for (verb, allowed) in verbs.iter().zip(join_all(reviews).await) {
        match allowed {
            Ok(true) => {}
            Ok(false) => missing.push(*verb),
            Err(verdict) => return verdict,
        }
    }
    if missing.is_empty() { Verdict::Passed } else { Verdict::Missing(missing) }
}

async fn review(client: &kube::Client, target: &Target, verb: &str) -> Result<bool, Verdict> {
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "group": "coordination.k8s.io", "resource": "leases", "verb": verb,
            "namespace": target.namespace, "name": target.name,
        }},
    });
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let answer = exchange(client, Method::POST, PATH, Some(body));
    let Ok(Ok(answer)) = tokio::time::timeout(TIMEOUT, answer).await else {
        return Err(Verdict::Unknown);
    };
    match answer.status {
        status if status.is_success() => {
            answer.body["status"]["allowed"].as_bool().ok_or(Verdict::Unknown)
        }
        status @ (StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) => Err(Verdict::NoReview(status)),
        _ => Err(Verdict::Unknown),
    }
}
