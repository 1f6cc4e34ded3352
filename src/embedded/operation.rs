//! The operations behind the requests, each in one step under the lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::fault::{Tamper, Verb};
use super::lease_type::validate_event;
use super::patch::Patch;
use super::status::{self, Forbidden, GROUP, LEASES, Outcome, Refusal};
use super::store::{Key, Written};
use super::watch::{WatchCommand, WatchQuery, WatchStream};
use super::{Shared, Stamp, State};

const EVENTS_GROUP: &str = "events.k8s.io";

/// A request, read.
#[derive(Debug)]
pub(super) struct Call {
    /// Its number in the log.
    pub(super) seq: u64,
    pub(super) caller: String,
    /// The token was not revoked.
    pub(super) authentic: bool,
    pub(super) verb: Verb,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) query: HashMap<String, String>,
    pub(super) media_type: String,
    /// Null for an empty body; the parser's words for one that is no JSON.
    pub(super) body: Result<Value, String>,
    /// From the faults: answer reads as of this version.
    pub(super) replay_old: Option<u64>,
    /// From the faults: what happens to the watch.
    pub(super) watch: Vec<WatchCommand>,
    /// From the faults: changes to each event of the watch.
    pub(super) tampers: Vec<Tamper>,
}

/// What a request comes to.
#[derive(Debug)]
pub(super) enum Reply {
    Json(StatusCode, Value),
    Refused(Refusal),
    Watch(Box<WatchStream>),
}

pub(super) fn execute(shared: &Arc<Shared>, call: &Call) -> Reply {
    let outcome = if call.verb == Verb::Watch {
        watch(shared, call)
    } else {
        shared.change(|state| execute_at_once(state, shared, call))
    };
    outcome.unwrap_or_else(Reply::Refused)
}

fn execute_at_once(state: &mut State, shared: &Shared, call: &Call) -> Outcome<Reply> {
    authenticate(call)?;
    let stamp = state.stamp(&call.caller);
    let is_write = !matches!(call.verb, Verb::Get | Verb::List | Verb::Ssar | Verb::Other);
    if is_write && call.query.contains_key("dryRun") {
        return Err(status::bad_request("the embedded API has no dry run"));
    }
    match call.verb {
        Verb::Get => get(state, call),
        Verb::List => list(state, call),
        Verb::Put | Verb::Post | Verb::Patch | Verb::Delete => write(state, &stamp, call),
        Verb::Ssar => access_review(state, call),
        Verb::Event => event(state, shared, &stamp, call),
        Verb::Watch => Err(status::method_not_allowed()),
        Verb::Other if call.namespace.is_some() => Err(status::method_not_allowed()),
        Verb::Other => Err(status::no_such_path()),
    }
}

fn authenticate(call: &Call) -> Outcome<()> {
    if call.authentic { Ok(()) } else { Err(status::unauthorized()) }
}

fn authorize(state: &State, call: &Call, verb: &str, group: &str, resource: &str) -> Outcome<()> {
    if !state.denies(&call.caller, resource, verb) {
        return Ok(());
    }
    Err(status::forbidden(Forbidden {
        user: &call.caller,
        verb,
        resource,
        group,
        namespace: call.namespace.as_deref(),
        name: call.name.as_deref(),
    }))
}

fn key_of(call: &Call) -> Key {
    Key::new(
        call.namespace.as_deref().unwrap_or_default(),
        call.name.as_deref().unwrap_or_default(),
    )
}

/// The resourceVersion asked for, none for "the newest" (absent) or "any" (0). One that is no number
/// is the caller's mistake in a list, and an internal error elsewhere.
fn asked_version(call: &Call) -> Outcome<Option<u64>> {
    match call.query.get("resourceVersion").map(String::as_str) {
        None | Some("" | "0") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            let why = format!("resourceVersion: Invalid value: \"{text}\"");
            let list = call.verb == Verb::List;
            if list { status::bad_request(why) } else { status::internal(why) }
        }),
    }
}

/// A read at a version of the future times out on the real server (after 3 s; here at once).
fn refuse_future(state: &State, call: &Call) -> Outcome<()> {
    match asked_version(call)? {
        Some(asked) if asked > state.store.rv() => {
            Err(status::too_large_version(asked, state.store.rv()))
        }
        _ => Ok(()),
    }
}

fn get(state: &State, call: &Call) -> Outcome<Reply> {
    authorize(state, call, "get", GROUP, LEASES)?;
    refuse_future(state, call)?;
    let key = key_of(call);
    let object = match call.replay_old {
        Some(rv) => state.store.get_as_of(&key, rv),
        None => state.store.get(&key),
    };
    let object = object.ok_or_else(|| status::not_found(&key.name))?;
    Ok(Reply::Json(StatusCode::OK, Value::clone(&object)))
}

fn list(state: &State, call: &Call) -> Outcome<Reply> {
    authorize(state, call, "list", GROUP, LEASES)?;
    refuse_future(state, call)?;
    let name = selected_name(call)?;
    let mut objects = match (call.replay_old, &name) {
        (Some(rv), Some(name)) => {
            let key = Key::new(call.namespace.as_deref().unwrap_or_default(), name);
            state.store.get_as_of(&key, rv).into_iter().collect()
        }
        _ => state.store.list(call.namespace.as_deref(), name.as_deref()),
    };
    let items: Vec<Value> = objects.drain(..).map(|object| without_type(&object)).collect();
    let rv = call.replay_old.unwrap_or(state.store.rv()).to_string();
    let list = json!({
        "kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {"resourceVersion": rv}, "items": items,
    });
    Ok(Reply::Json(StatusCode::OK, list))
}

/// Items of a list carry neither kind nor apiVersion.
fn without_type(object: &Value) -> Value {
    let mut item = object.clone();
    if let Some(fields) = item.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}

/// The one name of `fieldSelector=metadata.name=x`.
///
/// # Errors
/// 400 for any other selector.
pub(super) fn selected_name(call: &Call) -> Outcome<Option<String>> {
    if call.query.get("labelSelector").is_some_and(|selector| !selector.is_empty()) {
        return Err(status::bad_request("the embedded API knows no label selectors"));
    }
    let Some(selector) = call.query.get("fieldSelector").filter(|s| !s.is_empty()) else {
        return Ok(None);
    };
    let name = selector.strip_prefix("metadata.name=").map(|n| n.strip_prefix('=').unwrap_or(n));
    match name {
        Some(name) if !name.contains([',', '=']) => Ok(Some(name.to_owned())),
        _ => Err(status::bad_request(format!("field label not supported: {selector}"))),
    }
}

fn write(state: &mut State, stamp: &Stamp, call: &Call) -> Outcome<Reply> {
    let verb = match call.verb {
        Verb::Post => "create",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
        _ => "update",
    };
    authorize(state, call, verb, GROUP, LEASES)?;
    let mut key = key_of(call);
    let body = body_of(call)?;
    let written = match call.verb {
        Verb::Post => {
            check_names(call, &body, None)?;
            key.name = new_name(state, &body)?;
            state.store.create(stamp, &key, body)
        }
        Verb::Patch => state.store.patch(stamp, &key, &Patch::parse(&call.media_type, body)?),
        Verb::Delete => state.store.delete(stamp, &key, &body),
        _ => {
            check_names(call, &body, Some(&key.name))?;
            // A PUT that would create is authorized as a create too, with the name.
            if state.store.get(&key).is_none() {
                authorize(state, call, "create", GROUP, LEASES)?;
            }
            state.store.update(stamp, &key, body, true)
        }
    }?;
    if let Some(rv) = written.rv {
        state.log.committed(call.seq, stamp.at, rv);
    }
    Ok(write_reply(call, &key, &written, &state.store.get(&key)))
}

fn write_reply(call: &Call, key: &Key, written: &Written, stored: &Option<Arc<Value>>) -> Reply {
    if call.verb == Verb::Delete && stored.is_none() {
        let uid = &written.object["metadata"]["uid"];
        return Reply::Json(StatusCode::OK, status::deleted(&key.name, uid));
    }
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    Reply::Json(code, Value::clone(&written.object))
}

fn body_of(call: &Call) -> Outcome<Value> {
    let is_json = call.media_type == "application/json";
    if !is_json && matches!(call.verb, Verb::Put | Verb::Post | Verb::Event | Verb::Ssar) {
        return Err(status::unsupported_media_type());
    }
    match &call.body {
        Ok(body) if body.is_null() && call.verb != Verb::Delete => {
            Err(status::bad_request("the request has no body"))
        }
        Ok(body) => Ok(body.clone()),
        Err(why) => Err(status::bad_request(format!(
            "the object provided is unrecognized (must be of type Lease): {why}"
        ))),
    }
}

fn check_names(call: &Call, body: &Value, url_name: Option<&str>) -> Outcome<()> {
    let metadata = &body["metadata"];
    if let (Some(url), sent) = (url_name, metadata["name"].as_str().unwrap_or_default())
        && sent != url
    {
        let message = if sent.is_empty() {
            "name must be provided".to_owned()
        } else {
            format!("the name of the object ({sent}) does not match the name on the URL ({url})")
        };
        return Err(status::bad_request(message));
    }
    let sent = metadata["namespace"].as_str().unwrap_or_default();
    if !sent.is_empty() && Some(sent) != call.namespace.as_deref() {
        return Err(status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// The name in the body, or one made from `generateName`.
fn new_name(state: &State, body: &Value) -> Outcome<String> {
    let metadata = &body["metadata"];
    let text = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
    match (text("name"), text("generateName")) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, Some(prefix)) => Ok(format!("{prefix}{:05}", state.store.rv())),
        (None, None) => {
            let why = "name or generateName is required";
            let bad = status::BadField::required("metadata.name", why);
            Err(status::invalid(GROUP, "Lease", "", &[bad]))
        }
    }
}

fn access_review(state: &State, call: &Call) -> Outcome<Reply> {
    let mut review = body_of(call)?;
    let attributes = &review["spec"]["resourceAttributes"];
    let text = |field: &str| attributes[field].as_str().unwrap_or_default();
    let allowed = !state.denies(&call.caller, text("resource"), text("verb"));
    review["kind"] = "SelfSubjectAccessReview".into();
    review["apiVersion"] = "authorization.k8s.io/v1".into();
    review["status"] = json!({"allowed": allowed});
    if allowed {
        review["status"]["reason"] = "RBAC: allowed by the embedded API".into();
    }
    Ok(Reply::Json(StatusCode::CREATED, review))
}

fn event(state: &mut State, shared: &Shared, stamp: &Stamp, call: &Call) -> Outcome<Reply> {
    authorize(state, call, "create", EVENTS_GROUP, "events")?;
    let mut event = body_of(call)?;
    check_names(call, &event, None)?;
    let namespace = call.namespace.as_deref().unwrap_or_default();
    let name = new_name(state, &event)?;
    validate_event(namespace, &mut event)?;
    let rv = state.store.bump();
    event["metadata"]["name"] = name.into();
    event["metadata"]["namespace"] = namespace.into();
    event["metadata"]["resourceVersion"] = rv.to_string().into();
    event["metadata"]["creationTimestamp"] = stamp.wall.clone().into();
    state.log.committed(call.seq, stamp.at, rv);
    if state.events.len() >= shared.options.limits.events {
        state.events.pop_front();
    }
    state.events.push_back(event.clone());
    Ok(Reply::Json(StatusCode::CREATED, event))
}

fn watch(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    authenticate(call)?;
    let flag = |name: &str| matches!(call.query.get(name).map(String::as_str), Some("true" | "1"));
    let name = selected_name(call)?;
    {
        let state = shared.lock();
        authorize(&state, call, "watch", GROUP, LEASES)?;
        check_initial_events(call, call.query.contains_key("sendInitialEvents"))?;
        if state.watches.len() >= shared.options.limits.watches {
            return Err(status::internal("the embedded API holds no more watches"));
        }
    }
    let seconds = call.query.get("timeoutSeconds").and_then(|text| text.parse().ok());
    let query = WatchQuery {
        namespace: call.namespace.clone(),
        name,
        from_rv: asked_version(call)?,
        timeout: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        bookmarks: flag("allowWatchBookmarks"),
        send_initial_events: flag("sendInitialEvents"),
    };
    let faults = (call.watch.as_slice(), call.tampers.clone());
    Ok(Reply::Watch(Box::new(WatchStream::open(shared, &call.caller, query, faults))))
}

/// `sendInitialEvents` and `resourceVersionMatch=NotOlderThan` are asked for together or not at all.
fn check_initial_events(call: &Call, initial_events: bool) -> Outcome<()> {
    let matching = call.query.get("resourceVersionMatch").map_or("", String::as_str);
    let wanted = if initial_events { "NotOlderThan" } else { "" };
    if matching == wanted {
        return Ok(());
    }
    let why = "goes with `sendInitialEvents`, and must be `NotOlderThan`";
    let bad = status::BadField::invalid("resourceVersionMatch", &matching.into(), why);
    Err(status::invalid("meta.k8s.io", "ListOptions", "", &[bad]))
}
