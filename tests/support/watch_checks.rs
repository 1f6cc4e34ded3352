//! The checks of watches, access reviews and Events.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::wire::{Target, rv, send, text, with};

pub(crate) async fn watch_tells_changes_in_order(t: &Target) {
    let start = rv(&t.create("watch-other").await);
    let mut lines = t.watch("watch", &format!("&resourceVersion={start}")).await.expect("200");
    let made = t.create("watch").await;
    t.put("watch", &made).await.ok(200);
    let other = t.get("watch-other").await.ok(200);
    t.put("watch-other", &with(&other, "/spec/holderIdentity", "b")).await.ok(200);
    let changed = t.put("watch", &with(&made, "/spec/holderIdentity", "b")).await.ok(200);
    t.delete("watch", &Value::Null).await.ok(200);
    let again = t.create("watch").await;
    assert_eq!(lines.expect("ADDED").await, made);
    assert_eq!(lines.expect("MODIFIED").await, changed);
    let deleted = lines.expect("DELETED").await;
    assert_eq!(deleted["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(deleted["spec"], changed["spec"]);
    assert!(rv(&deleted) > rv(&changed), "a deletion has a version of its own");
    assert_eq!(lines.expect("ADDED").await, again);
    assert!(rv(&again) > rv(&deleted));
}

pub(crate) async fn watch_without_a_version_begins_with_the_present(t: &Target) {
    let made = t.create("present").await;
    for query in ["", "&resourceVersion=0"] {
        let mut lines = t.watch("present", query).await.expect("200");
        assert_eq!(lines.expect("ADDED").await, made);
    }
    let mut lines = t.watch("present", "").await.expect("200");
    assert_eq!(lines.expect("ADDED").await, made);
    let changed = t.put("present", &with(&made, "/spec/holderIdentity", "b")).await.ok(200);
    assert_eq!(lines.expect("MODIFIED").await, changed);
}

pub(crate) async fn watch_replays_from_a_version(t: &Target) {
    let first = t.create("replay").await;
    let second = t.put("replay", &with(&first, "/spec/leaseTransitions", 2)).await.ok(200);
    let third = t.put("replay", &with(&second, "/spec/leaseTransitions", 3)).await.ok(200);
    let query = format!("&resourceVersion={}", rv(&first));
    let mut lines = t.watch("replay", &query).await.expect("200");
    assert_eq!(lines.expect("MODIFIED").await, second);
    assert_eq!(lines.expect("MODIFIED").await, third);
}

pub(crate) async fn watch_of_the_future_is_silent(t: &Target) {
    let future = rv(&t.create("ahead").await) + 1_000_000;
    let query = format!("&resourceVersion={future}&timeoutSeconds=2");
    let mut lines = t.watch("ahead", &query).await.expect("200");
    let made = t.get("ahead").await.ok(200);
    t.put("ahead", &with(&made, "/spec/holderIdentity", "b")).await.ok(200);
    assert_eq!(lines.next().await, None, "nothing, then the end");
}

pub(crate) async fn watch_from_the_distant_past_is_gone(t: &Target) {
    t.create("past").await;
    (t.forget)().await;
    match t.watch("past", "&resourceVersion=1").await {
        Err(answer) => drop(answer.is(410, "Expired")),
        Ok(mut lines) => {
            let status = lines.expect("ERROR").await;
            assert_eq!(status["code"], 410, "{status}");
            assert_eq!(status["reason"], "Expired", "{status}");
            assert_eq!(lines.next().await, None);
        }
    }
}

pub(crate) async fn watch_ends_at_its_timeout(t: &Target) {
    let made = t.create("brief").await;
    let query = format!("&resourceVersion={}&timeoutSeconds=1&allowWatchBookmarks=true", rv(&made));
    let mut lines = t.watch("brief", &query).await.expect("200");
    let end = async {
        while let Some(event) = lines.next().await {
            assert_eq!(event["type"], "BOOKMARK", "{event}");
        }
    };
    timeout(Duration::from_secs(20), end).await.expect("the end of the watch");
}

pub(crate) async fn watch_list_needs_its_match(t: &Target) {
    let queries = [
        "&sendInitialEvents=true",
        "&sendInitialEvents=true&resourceVersionMatch=Exact",
        "&resourceVersionMatch=NotOlderThan",
    ];
    for query in queries {
        let refused = t.watch("any", query).await.err();
        refused.unwrap_or_else(|| panic!("{query} was taken")).is(422, "Invalid");
    }
}

pub(crate) async fn watch_list_ends_with_a_bookmark(t: &Target) {
    let query =
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let made = t.create("listed").await;
    for (name, present) in [("listed", true), ("unlisted", false)] {
        let mut lines = t.watch(name, query).await.expect("200");
        if present {
            assert_eq!(lines.expect("ADDED").await, made);
        }
        let bookmark = lines.expect("BOOKMARK").await;
        let end = &bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"];
        assert_eq!(end, "true", "{bookmark}");
        assert!(rv(&bookmark) >= rv(&made));
    }
}

fn review(t: &Target) -> Value {
    let attributes = json!({
        "namespace": t.namespace, "verb": "update", "group": "coordination.k8s.io",
        "resource": "leases", "name": "any",
    });
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    })
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

pub(crate) async fn access_reviews_answer(t: &Target) {
    let answer = t.json(Method::POST, REVIEWS, &review(t)).await.ok(201);
    assert_eq!(answer["status"]["allowed"], true, "{answer}");
    let bytes = review(t).to_string().into_bytes();
    let answer = send(&t.stranger, Method::POST, REVIEWS, "application/json", bytes).await.ok(201);
    assert_eq!(answer["status"]["allowed"], false, "{answer}");
}

pub(crate) async fn events_are_taken_and_checked(t: &Target) {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", t.namespace);
    let regarding = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "namespace": t.namespace, "name": "any",
    });
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"generateName": "any-"},
        "eventTime": "2026-01-01T00:00:00.000001Z",
        "reportingController": "tenure.dev/sidecar", "reportingInstance": "pod-1",
        "action": "Acquire", "reason": "Acquired", "note": "a note", "type": "Normal",
        "regarding": regarding,
    });
    let made = t.json(Method::POST, &path, &event).await.ok(201);
    assert!(text(&made["metadata"]["name"]).starts_with("any-"), "{made}");
    assert_eq!(made["note"], "a note");
    let refused: [(&str, Value, u16); 6] = [
        // A dot at the end would have to be followed by a label.
        ("/metadata/generateName", "any.".into(), 422),
        ("/note", "x".repeat(1025).into(), 422),
        ("/reason", "".into(), 422),
        ("/type", "Odd".into(), 422),
        ("/reportingInstance", "x".repeat(129).into(), 422),
        ("/eventTime", "2026-01-01T00:00:00.001Z".into(), 400),
    ];
    for (pointer, value, code) in refused {
        let answer = t.json(Method::POST, &path, &with(&event, pointer, value)).await;
        assert_eq!(answer.code, code, "{pointer}: {}", answer.body);
    }
}
