//! What the API server was really asked, from its audit log.

use std::fs;
use std::path::Path;

use serde::Deserialize;

/// A finished request, or one whose stream of answers has begun (a watch).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `system:serviceaccount:NS:NAME` for a service account; empty for a request answered 401.
    pub user: String,
    /// As authorised, but for one case: a PUT that creates stands here as `update` with code 201.
    pub verb: String,
    /// With a subresource as `serviceaccounts/token`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub code: u16,
    /// When it came, by the server's wall clock: RFC 3339 with microseconds.
    pub received: String,
}

/// Requests in the order in which they were answered.
#[derive(Debug, Clone)]
pub struct Audit(pub Vec<Request>);

impl Audit {
    pub(super) fn read(log: &Path) -> Audit {
        let text = fs::read_to_string(log).unwrap_or_default();
        // The last line may still be on its way: only whole lines count.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Audit(whole.lines().filter_map(parse).collect())
    }

    pub fn of_user(mut self, user: &str) -> Audit {
        self.0.retain(|request| request.user == user);
        self
    }

    pub fn of_namespace(mut self, namespace: &str) -> Audit {
        self.0.retain(|request| request.namespace == namespace);
        self
    }

    /// Requests with this verb on this resource, answered with this code.
    pub fn count(&self, verb: &str, resource: &str, code: u16) -> usize {
        self.0.iter().filter(|r| r.verb == verb && r.resource == resource && r.code == code).count()
    }

    /// The verbs that were used on a resource, sorted, each once.
    pub fn verbs(&self, resource: &str) -> Vec<&str> {
        let of = self.0.iter().filter(|request| request.resource == resource);
        let mut verbs: Vec<&str> = of.map(|request| request.verb.as_str()).collect();
        verbs.sort_unstable();
        verbs.dedup();
        verbs
    }
}

/// A watch is told twice, when its answer begins (a refusal too) and when it ends: only the first counts.
/// A 401 is told by its beginning alone.
fn parse(line: &str) -> Option<Request> {
    let event: Event = serde_json::from_str(line).expect("a line of the audit log");
    let started_only = event.verb == "watch" || event.response_status.code == 401;
    let wanted = if started_only { "ResponseStarted" } else { "ResponseComplete" };
    if event.stage != wanted {
        return None;
    }
    let object = event.object_ref.unwrap_or_default();
    let resource = if object.subresource.is_empty() {
        object.resource
    } else {
        format!("{}/{}", object.resource, object.subresource)
    };
    Some(Request {
        user: event.user.username,
        verb: event.verb,
        resource,
        namespace: object.namespace,
        name: object.name,
        code: event.response_status.code,
        received: event.request_received_timestamp,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    request_received_timestamp: String,
    user: User,
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Status,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
}
