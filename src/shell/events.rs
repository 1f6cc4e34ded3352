//! Kubernetes Events: told by a task of its own over connections of its own, from a short queue that
//! drops what does not fit. They never delay a renewal.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::lease_api::{exchange, failure_word};
use super::lease_json::micro_time;
use super::{Target, lease_api};
use crate::core::Wall;
use crate::seat::Clock;

/// At most one Event of a kind in this time.
const EVERY: Duration = Duration::from_secs(10);
/// Events that wait; one of each kind at the most, in practice.
const QUEUE: usize = 16;
/// How long one may take. Nobody waits for it.
const TIMEOUT: Duration = Duration::from_secs(5);
/// `reportingInstance` is limited to 128 bytes, `note` to 1 kB; a name to 253 bytes, of which 17
/// are ours.
const MAX_INSTANCE_BYTES: usize = 128;
const MAX_NOTE_BYTES: usize = 1024;
const MAX_NAME_BYTES: usize = 253 - 17;

macro_rules! kinds {
    ($($kind:ident = $level:literal, $action:literal;)*) => {
        /// What an Event tells of; the variant's name is its `reason`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($kind,)* }

        impl Kind {
            const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            const fn words(self) -> (&'static str, &'static str, &'static str) {
                match self { $(Kind::$kind => (stringify!($kind), $level, $action),)* }
            }
        }
    };
}

kinds! {
    LeaderElected = "Normal", "Acquire";
    LeaderReleased = "Normal", "Release";
    LeaderLost = "Warning", "Lose";
    LeaseDeleted = "Warning", "Observe";
    IdentityConflict = "Warning", "Wait";
    StoreWentBack = "Warning", "Wait";
}

/// Who tells.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// Our name on the Lease.
    pub identity: Arc<str>,
    /// Name and uid of our pod, which Events are related to.
    pub pod: Option<(String, String)>,
}

/// Takes Events, and drops what is too much.
#[derive(Debug)]
pub struct Events {
    queue: mpsc::Sender<Note>,
    clock: Arc<dyn Clock>,
    /// When the last of each kind was taken, in the order of [`Kind::ALL`].
    last: Mutex<Vec<Option<Instant>>>,
}

/// The task behind [`Events`].
#[derive(Debug)]
pub struct EventTask(tokio::task::JoinHandle<()>);

#[derive(Debug)]
struct Note {
    kind: Kind,
    text: String,
    at: Wall,
    uid: Option<Arc<str>>,
}

impl Events {
    /// Call it inside the runtime.
    #[must_use]
    pub fn start(
        client: kube::Client,
        target: Target,
        reporter: Reporter,
        clock: Arc<dyn Clock>,
    ) -> (Events, EventTask) {
        let (queue, notes) = mpsc::channel(QUEUE);
        let task = tokio::spawn(send_all(client, target, reporter, notes));
        let last = Mutex::new(vec![None; Kind::ALL.len()]);
        (Events { queue, clock, last }, EventTask(task))
    }

    /// Never waits.
    pub(crate) fn emit(&self, kind: Kind, text: String, uid: Option<Arc<str>>) {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(last) = last.get_mut(kind as usize) else { return };
        if last.is_some_and(|at| now.duration_since(at) < EVERY) {
            return;
        }
        *last = Some(now);
        let note = Note { kind, text, at: self.clock.now().wall, uid };
        if self.queue.try_send(note).is_err() {
            tracing::debug!(?kind, "too many Events wait: one is dropped");
        }
    }
}

impl EventTask {
    /// Gives what still waits a last moment, once the [`Events`] are dropped.
    pub async fn finish(mut self, moment: Duration) {
        if tokio::time::timeout(moment, &mut self.0).await.is_err() {
            self.0.abort();
        }
    }
}

async fn send_all(
    client: kube::Client,
    target: Target,
    reporter: Reporter,
    mut notes: mpsc::Receiver<Note>,
) {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", target.namespace);
    let mut complained = false;
    while let Some(note) = notes.recv().await {
        let body = serde_json::to_vec(&body(&note, &target, &reporter)).unwrap_or_default();
        let sent = exchange(&client, Method::POST, &path, Some(body));
        match tokio::time::timeout(TIMEOUT, sent).await {
            Ok(Ok(answer)) if answer.status.is_success() => {}
            Ok(Ok(answer)) if answer.status == StatusCode::FORBIDDEN && !complained => {
                complained = true;
                tracing::info!(
                    verb = "create",
                    resource = "events.events.k8s.io",
                    namespace = target.namespace,
                    "not allowed: no Events will be seen (they are optional)"
                );
            }
            Ok(Ok(answer)) => {
                let failure = lease_api::failure(answer.status, &answer.headers);
                tracing::debug!(
                    class = failure_word(&failure),
                    status = failure.status,
                    "no Event"
                );
            }
            Ok(Err(error)) => tracing::debug!(error, "no Event"),
            Err(_) => tracing::debug!("no Event: no answer"),
        }
    }
}

fn body(note: &Note, target: &Target, reporter: &Reporter) -> Value {
    let (reason, level, action) = note.kind.words();
    let Target { namespace, name, .. } = target;
    let prefix = cut(name, MAX_NAME_BYTES).trim_end_matches(['.', '-']);
    let unique = getrandom::u64().unwrap_or(note.at.as_micros() as u64);
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": format!("{prefix}.{unique:016x}")},
        "eventTime": micro_time(note.at),
        "type": level,
        "reason": reason,
        "action": action,
        "note": cut(&note.text, MAX_NOTE_BYTES),
        "reportingController": "tenure",
        "reportingInstance": cut(&reporter.identity, MAX_INSTANCE_BYTES),
        "regarding": {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "namespace": namespace, "name": name,
        },
    });
    if let Some(uid) = &note.uid {
        event["regarding"]["uid"] = json!(&**uid);
    }
    if let Some((pod, uid)) = &reporter.pod {
        event["related"] = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid,
        });
    }
    event
}

/// At most that many bytes, whole characters.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Rules;

    #[test]
    fn an_event_regards_the_lease_and_is_related_to_the_pod_within_all_limits() {
        let target =
            Target { namespace: "n".into(), name: "l".repeat(253), rules: Rules::default() };
        let reporter = Reporter {
            identity: "ä".repeat(100).into(),
            pod: Some(("web".into(), "pod-uid".into())),
        };
        let at = Wall::from_micros(0);
        let text = "x".repeat(2000);
        let note = Note { kind: Kind::LeaderLost, text, at, uid: Some("lease-uid".into()) };
        let event = body(&note, &target, &reporter);
        assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("LeaderLost")));
        assert_eq!(event["regarding"]["uid"], "lease-uid");
        assert_eq!(event["related"]["uid"], "pod-uid");
        assert_eq!(event["eventTime"], "1970-01-01T00:00:00.000000Z");
        let bytes = |value: &Value| value.as_str().unwrap().len();
        assert_eq!(bytes(&event["metadata"]["name"]), 253);
        assert_eq!(bytes(&event["note"]), 1024);
        assert_eq!(bytes(&event["reportingInstance"]), 128);
    }

    #[test]
    fn the_kinds_are_counted_by_their_place() {
        for (place, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, place);
        }
    }
}
