//! The requests on the one Lease, and what their answers mean.
//!
//! Every outcome is classified here, once: Done, Conflict, Absent, Refused, Unknown. A request is a
//! task of its own; dropping it drops its connection. How long it may take is the core's affair
//! (`Action::Cancel`), and covers its body as well.

use std::fmt;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;

use super::lease_json;
use super::transport::Connect;
use crate::core::{
    Failure, FailureClass, Mark, Observed, Purpose, ReadOutcome, Rules, Write, WriteOutcome,
};
use crate::metrics::Outcome;
use crate::seat::Base;

/// An API server keeps no object larger than 1.5 MiB; this leaves room for other formatting.
pub(crate) const MAX_BODY_BYTES: usize = 4 << 20;
/// The most of a server's words that goes into a log line.
const MAX_MESSAGE_BYTES: usize = 300;

/// Which Lease, and how its answers are judged.
#[derive(Clone, Debug)]
pub struct Target {
    pub namespace: String,
    pub name: String,
    pub rules: Rules,
}

impl Target {
    /// `/apis/coordination.k8s.io/v1/namespaces/<namespace>/leases`
    pub(crate) fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

/// An outcome, and in words for a log why it is a failure, where it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained<T> {
    pub outcome: T,
    pub why: Option<String>,
}

/// Connections to the API server, kept apart by what they are for: a read, a watch or an event that
/// hangs never stands in the way of a write.
pub struct LeaseApi {
    target: Target,
    connect: Connect,
    reads: kube::Client,
    writes: kube::Client,
}

impl fmt::Debug for LeaseApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseApi").field("target", &self.target).finish_non_exhaustive()
    }
}

impl LeaseApi {
    /// Call it inside the runtime.
    #[must_use]
    pub fn new(target: Target, connect: Connect) -> LeaseApi {
        let (reads, writes) = (connect.client(), connect.client());
        LeaseApi { target, connect, reads, writes }
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// A quorum read: a GET without a resourceVersion.
    pub fn read(&self) -> impl Future<Output = Explained<ReadOutcome<Base>>> + Send + use<> {
        let (client, target) = (self.reads.clone(), self.target.clone());
        async move { read(&client, &target).await }
    }

    /// One PUT. With `fresh_connection` this and later writes go over new connections; requests
    /// under way keep theirs.
    pub fn write(
        &mut self,
        write: Write<Base>,
        fresh_connection: bool,
    ) -> impl Future<Output = Explained<WriteOutcome<Base>>> + Send + use<> {
        if fresh_connection {
            self.writes = self.connect.client();
        }
        let (client, target) = (self.writes.clone(), self.target.clone());
        async move { put(&client, &target, &write).await }
    }

    /// A watch has connections of its own, and new ones each time: the last may be dead.
    pub fn watch_client(&self) -> kube::Client {
        self.connect.client()
    }
}

/// A quorum read through any client (`GET /fence` has one of its own).
pub async fn read(client: &kube::Client, target: &Target) -> Explained<ReadOutcome<Base>> {
    match exchange(client, Method::GET, &target.path(), None).await {
        Ok(answer) => {
            let why = answer.message();
            Explained { outcome: classify_read(answer, target), why }
        }
        Err(why) => Explained { outcome: ReadOutcome::Failed(Failure::UNKNOWN), why: Some(why) },
    }
}

async fn put(
    client: &kube::Client,
    target: &Target,
    write: &Write<Base>,
) -> Explained<WriteOutcome<Base>> {
    let object = lease_json::apply(write, &target.namespace, &target.name, target.rules);
    let body = serde_json::to_vec(&object).unwrap_or_default();
    match exchange(client, Method::PUT, &target.path(), Some(body)).await {
        Ok(answer) => {
            let why = answer.message();
            Explained { outcome: classify_write(answer, target, write.purpose), why }
        }
        Err(why) => Explained { outcome: WriteOutcome::Failed(Failure::UNKNOWN), why: Some(why) },
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Null where the body is no JSON.
    pub(crate) body: Value,
}

impl Answer {
    /// What a Status says, for a log.
    fn message(&self) -> Option<String> {
        if self.status.is_success() {
            return None;
        }
        let text = self.body["message"].as_str()?;
        Some(text[..text.floor_char_boundary(MAX_MESSAGE_BYTES)].to_owned())
    }
}

/// One request and its whole answer.
///
/// # Errors
/// Where there was none, or one without an end: why, in one line.
pub(crate) async fn exchange(
    client: &kube::Client,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> Result<Answer, String> {
    let request = request(method, path, body)?;
    let response = client.send(request).await.map_err(|error| chain(&error))?;
    let (head, body) = response.into_parts();
    let body =
        Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(|error| chain(&*error))?;
    let body = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
    Ok(Answer { status: head.status, headers: head.headers, body })
}

pub(crate) fn request(
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> Result<Request<Body>, String> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body.unwrap_or_default()))
        .map_err(|error| error.to_string())
}

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn classify_read(answer: Answer, target: &Target) -> ReadOutcome<Base> {
    match answer.status {
        StatusCode::OK => match lease_json::observe(answer.body, &target.name) {
            Some(observed) => ReadOutcome::Found(observed),
            None => ReadOutcome::Failed(garbage(StatusCode::OK)),
        },
        StatusCode::NOT_FOUND if is_absence(&answer.body, target) => ReadOutcome::Absent,
        status => ReadOutcome::Failed(failure(status, &answer.headers)),
    }
}

/// Only a Status that says NotFound of this very Lease: anything between us and the API server can
/// answer 404 [F26].
fn is_absence(body: &Value, target: &Target) -> bool {
    let details = &body["details"];
    !target.rules.on(Mark::F26)
        || (body["kind"] == "Status"
            && body["reason"] == "NotFound"
            && details["kind"] == "leases"
            && details["name"] == *target.name)
}

fn classify_write(answer: Answer, target: &Target, purpose: Purpose) -> WriteOutcome<Base> {
    let status = answer.status;
    match status {
        StatusCode::OK | StatusCode::CREATED => {
            match lease_json::observe(answer.body, &target.name) {
                Some(object) => done(status, object),
                None => WriteOutcome::Failed(garbage(status)),
            }
        }
        StatusCode::CONFLICT => WriteOutcome::Conflict,
        // "Must be specified for an update": somebody else has just made it [F26].
        StatusCode::UNPROCESSABLE_ENTITY
            if purpose == Purpose::Create && target.rules.on(Mark::F26) =>
        {
            WriteOutcome::Conflict
        }
        _ => WriteOutcome::Failed(failure(status, &answer.headers)),
    }
}

fn done(status: StatusCode, object: Observed<Base>) -> WriteOutcome<Base> {
    WriteOutcome::Done { created: status == StatusCode::CREATED, object }
}

/// A success whose body is no Lease: it may have been one before it was cut off.
fn garbage(status: StatusCode) -> Failure {
    Failure { status: Some(status.as_u16()), ..Failure::UNKNOWN }
}

/// Anything but a success. A 408 comes from somebody who waited for the rest of the request, or of
/// the answer: nothing is known then.
pub(crate) fn failure(status: StatusCode, headers: &HeaderMap) -> Failure {
    let refused = status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT;
    Failure {
        class: if refused { FailureClass::Refused } else { FailureClass::Unknown },
        status: Some(status.as_u16()),
        retry_after: retry_after(headers),
    }
}

/// Seconds, the only form API servers send; a date would need a clock to compare with.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The class of a read's outcome.
pub(crate) fn read_class(outcome: &ReadOutcome<Base>) -> Outcome {
    match outcome {
        ReadOutcome::Found(_) => Outcome::Done,
        ReadOutcome::Absent => Outcome::Absent,
        ReadOutcome::Failed(failure) => failure_class(failure),
    }
}

/// The class of a write's outcome.
pub(crate) fn write_class(outcome: &WriteOutcome<Base>) -> Outcome {
    match outcome {
        WriteOutcome::Done { .. } => Outcome::Done,
        WriteOutcome::Conflict => Outcome::Conflict,
        WriteOutcome::Failed(failure) => failure_class(failure),
    }
}

/// The class of a failure.
pub(crate) const fn failure_class(failure: &Failure) -> Outcome {
    match failure.class {
        FailureClass::Refused => Outcome::Refused,
        FailureClass::Unknown => Outcome::Unknown,
    }
}

/// The word of a failure's class, for a log line.
pub(crate) const fn failure_word(failure: &Failure) -> &'static str {
    match failure.class {
        FailureClass::Refused => "refused",
        FailureClass::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn target() -> Target {
        Target { namespace: "n".into(), name: "l".into(), rules: Rules::default() }
    }

    fn answer(status: u16, body: Value) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers: HeaderMap::new(), body }
    }

    fn lease() -> Value {
        json!({"metadata": {"name": "l", "uid": "u", "resourceVersion": "1"}})
    }

    fn not_found(kind: &str, name: &str) -> Value {
        json!({"kind": "Status", "reason": "NotFound", "details": {"kind": kind, "name": name}})
    }

    #[test]
    fn mark_f26_only_a_status_for_this_lease_is_absence() {
        let read = |body| classify_read(answer(404, body), &target());
        assert_eq!(read(not_found("leases", "l")), ReadOutcome::Absent);
        for other in [
            Value::Null,
            json!({"kind": "Status", "reason": "NotFound"}),
            not_found("leases", "other"),
            not_found("namespaces", "l"),
        ] {
            let outcome = read(other.clone());
            assert!(matches!(outcome, ReadOutcome::Failed(f) if f.status == Some(404)), "{other}");
        }
    }

    #[test]
    fn mark_f26_who_loses_a_creation_race_was_not_refused() {
        let write =
            |status, purpose| classify_write(answer(status, Value::Null), &target(), purpose);
        assert_eq!(write(422, Purpose::Create), WriteOutcome::Conflict);
        assert_eq!(write(409, Purpose::Create), WriteOutcome::Conflict);
        assert_eq!(write(409, Purpose::Renew), WriteOutcome::Conflict);
        let WriteOutcome::Failed(refused) = write(422, Purpose::Renew) else { panic!() };
        assert_eq!(refused.class, FailureClass::Refused);
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn mark_f26_switched_off_takes_any_404_for_absence() {
        let target = Target { rules: Rules::without(Mark::F26), ..target() };
        assert_eq!(classify_read(answer(404, Value::Null), &target), ReadOutcome::Absent);
        let write = classify_write(answer(422, Value::Null), &target, Purpose::Create);
        assert!(matches!(write, WriteOutcome::Failed(_)));
    }

    #[test]
    fn successes_are_leases_of_that_name() {
        let read = |body| classify_read(answer(200, body), &target());
        assert!(matches!(read(lease()), ReadOutcome::Found(_)));
        for junk in [Value::Null, json!({}), json!({"metadata": {"name": "x", "uid": "u"}})] {
            let ReadOutcome::Failed(failure) = read(junk) else { panic!() };
            assert_eq!(failure.class, FailureClass::Unknown);
        }
        let write = |status| classify_write(answer(status, lease()), &target(), Purpose::Renew);
        assert!(matches!(write(200), WriteOutcome::Done { created: false, .. }));
        assert!(matches!(write(201), WriteOutcome::Done { created: true, .. }));
    }

    #[test]
    fn a_4xx_refuses_and_all_else_leaves_open_what_happened() {
        let class =
            |status| failure(StatusCode::from_u16(status).unwrap(), &HeaderMap::new()).class;
        for status in [400, 401, 403, 404, 413, 429] {
            assert_eq!(class(status), FailureClass::Refused, "{status}");
        }
        for status in [204, 301, 408, 500, 502, 503, 504] {
            assert_eq!(class(status), FailureClass::Unknown, "{status}");
        }
    }

    #[test]
    fn mark_f24_retry_after_is_read_in_seconds() {
        let after = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            failure(StatusCode::TOO_MANY_REQUESTS, &headers).retry_after
        };
        assert_eq!(after("30"), Some(Duration::from_secs(30)));
        assert_eq!(after("18446744073709551615"), Some(Duration::from_secs(u64::MAX)));
        for odd in ["", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999999999999"] {
            assert_eq!(after(odd), None, "{odd}");
        }
    }
}
