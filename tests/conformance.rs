//! What tenure relies on in a Lease API: one list of checks, for the embedded API and for a real
//! kube-apiserver. They must not differ in any of it.

mod cluster;
#[path = "support/watch_checks.rs"]
mod watch_checks;
#[path = "support/wire.rs"]
mod wire;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use cluster::Cluster;
use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use watch_checks::*;
use wire::{Answer, Target, lease, plain_client, rv, send, text, with, without_meta};

const MERGE: &str = "application/merge-patch+json";

async fn embedded() -> Target {
    let api = tenure::embedded::LeaseApi::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = api.serve(listener).expect("an address");
    let addr = server.addr();
    api.revoke_token("refused");
    for resource in ["leases", "events"] {
        for verb in ["get", "list", "watch", "create", "update", "patch", "delete"] {
            api.deny("stranger", resource, verb);
        }
    }
    Target {
        name: "embedded",
        client: plain_client(addr, "admin"),
        stranger: plain_client(addr, "stranger"),
        refused: plain_client(addr, "refused"),
        namespace: "default".into(),
        forget: Box::new(move || {
            api.compact(api.rv());
            Box::pin(async {})
        }),
        _keep: Box::new(server),
    }
}

async fn real() -> Target {
    // Not the shared one: it is started anew in between.
    let cluster = Arc::new(Cluster::start().await);
    let namespace = cluster.namespace("conformance").await;
    namespace.service_account("stranger").await;
    let stranger = namespace.token("stranger", None).await;
    Target {
        name: "kube-apiserver",
        client: cluster.admin(),
        stranger: cluster.client(&stranger),
        refused: cluster.client("refused"),
        namespace: namespace.name,
        forget: Box::new({
            let cluster = cluster.clone();
            move || {
                let cluster = cluster.clone();
                // Its watch cache begins where it starts.
                Box::pin(async move {
                    cluster.api_server.restart();
                    cluster.ready().await;
                })
            }
        }),
        _keep: Box::new(cluster),
    }
}

type Check = fn(Arc<Target>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        &[$((stringify!($check), |target| Box::pin(async move { $check(&target).await }))),*]
    };
}

const CHECKS: &[(&str, Check)] = checks![
    put_creates_where_nothing_is,
    put_creates_with_an_old_version_and_no_uid,
    put_with_a_uid_creates_nothing,
    put_with_another_uid_conflicts,
    put_with_a_stale_version_conflicts,
    put_without_a_version_is_invalid,
    a_version_that_is_no_number_is_an_error,
    put_that_changes_nothing_keeps_the_version,
    put_keeps_what_belongs_to_others,
    put_takes_the_released_form,
    put_may_leave_the_uid_out,
    put_checks_the_names,
    one_of_many_puts_wins,
    one_of_many_creating_puts_wins,
    post_creates_once,
    post_with_a_version_is_an_error,
    numbers_are_checked,
    types_are_checked,
    times_have_six_digits,
    unknown_fields_and_nulls_are_dropped,
    annotations_have_a_limit,
    get_of_nothing_is_not_found,
    unknown_paths_are_another_not_found,
    reads_at_a_future_version_time_out,
    list_selects_by_name,
    one_counter_over_all_objects,
    delete_answers_with_the_uid,
    delete_has_preconditions,
    finalizers_keep_a_deleted_object,
    merge_patch_changes_and_compares,
    json_patch_tests_and_replaces,
    watch_tells_changes_in_order,
    watch_without_a_version_begins_with_the_present,
    watch_replays_from_a_version,
    watch_of_the_future_is_silent,
    watch_ends_at_its_timeout,
    watch_list_needs_its_match,
    watch_list_ends_with_a_bookmark,
    access_reviews_answer,
    events_are_taken_and_checked,
    strangers_are_forbidden,
    refused_tokens_are_unauthorized,
    malformed_requests_are_refused,
    watch_from_the_distant_past_is_gone,
];

async fn conform(target: Target) {
    let target = Arc::new(target);
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        // A task each, so that one broken check does not hide the others.
        if tokio::spawn(check(target.clone())).await.is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{}: {failed:?}", target.name);
}

#[tokio::test]
async fn the_embedded_api_conforms() {
    conform(embedded().await).await;
}

#[tokio::test]
async fn kube_apiserver_conforms() {
    conform(real().await).await;
}

async fn put_creates_where_nothing_is(t: &Target) {
    let sent = lease("put-new");
    let made = t.put("put-new", &sent).await.ok(201);
    assert_eq!(made["kind"], "Lease");
    assert_eq!(made["apiVersion"], "coordination.k8s.io/v1");
    assert_eq!(made["spec"], sent["spec"]);
    assert_eq!(made["metadata"]["namespace"], t.namespace.as_str());
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(made["metadata"][field].is_string(), "{field}: {made}");
    }
    assert_eq!(t.get("put-new").await.ok(200), made);
}

async fn put_creates_with_an_old_version_and_no_uid(t: &Target) {
    let old = t.create("put-old").await;
    t.delete("put-old", &Value::Null).await.ok(200);
    let made = t.put("put-old", &without_meta(&old, "uid")).await.ok(201);
    assert_ne!(made["metadata"]["uid"], old["metadata"]["uid"]);
    assert!(rv(&made) > rv(&old));
}

async fn put_with_a_uid_creates_nothing(t: &Target) {
    let old = t.create("put-uid").await;
    t.delete("put-uid", &Value::Null).await.ok(200);
    let status = t.put("put-uid", &old).await.is(409, "Conflict");
    assert!(text(&status["message"]).contains("Precondition failed: UID"), "{status}");
    t.get("put-uid").await.is(404, "NotFound");
}

async fn put_with_another_uid_conflicts(t: &Target) {
    let old = t.create("put-uid2").await;
    t.delete("put-uid2", &Value::Null).await.ok(200);
    let new = t.create("put-uid2").await;
    let forged = with(&new, "/metadata/uid", old["metadata"]["uid"].clone());
    let status = t.put("put-uid2", &forged).await.is(409, "Conflict");
    assert!(text(&status["message"]).contains("Precondition failed: UID"), "{status}");
    assert_eq!(t.get("put-uid2").await.ok(200), new);
}

async fn put_with_a_stale_version_conflicts(t: &Target) {
    let first = t.create("put-stale").await;
    let second = t.put("put-stale", &with(&first, "/spec/leaseTransitions", 2)).await.ok(200);
    assert!(rv(&second) > rv(&first));
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
    let status =
        t.put("put-stale", &with(&first, "/spec/leaseTransitions", 3)).await.is(409, "Conflict");
    assert!(text(&status["message"]).contains("the object has been modified"), "{status}");
    assert_eq!(status["details"]["name"], "put-stale");
    assert_eq!(status["details"]["group"], "coordination.k8s.io");
    assert_eq!(status["details"]["kind"], "leases");
    // Also where the stale write would change nothing.
    t.put("put-stale", &first).await.is(409, "Conflict");
}

async fn a_version_that_is_no_number_is_an_error(t: &Target) {
    let made = t.create("put-odd").await;
    for odd in ["abc", "-1", "99999999999999999999999"] {
        t.put("put-odd", &with(&made, "/metadata/resourceVersion", odd)).await.is(500, "");
        let new = with(&lease("put-odd-new"), "/metadata/resourceVersion", odd);
        t.put("put-odd-new", &new).await.is(500, "");
    }
    let get = format!("{}?resourceVersion=abc", t.path("put-odd"));
    t.json(Method::GET, &get, &Value::Null).await.is(500, "");
    let list = format!("{}?resourceVersion=abc", t.leases());
    t.json(Method::GET, &list, &Value::Null).await.is(400, "BadRequest");
    let watch = t.watch("put-odd", "&resourceVersion=abc").await;
    watch.err().expect("refused").is(500, "");
}

async fn put_without_a_version_is_invalid(t: &Target) {
    let made = t.create("put-bare").await;
    let status = t.put("put-bare", &lease("put-bare")).await.is(422, "Invalid");
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.resourceVersion", "{status}");
    assert!(text(&status["message"]).contains("must be specified for an update"), "{status}");
    assert_eq!(t.get("put-bare").await.ok(200), made);
}

async fn put_that_changes_nothing_keeps_the_version(t: &Target) {
    let made = t.create("put-same").await;
    let again = t.put("put-same", &made).await.ok(200);
    assert_eq!(rv(&again), rv(&made));
    let renewed = with(&made, "/spec/renewTime", "2026-01-01T00:00:02.000003Z");
    let renewed = t.put("put-same", &renewed).await.ok(200);
    assert!(rv(&renewed) > rv(&made), "a microsecond is a change");
}

async fn put_keeps_what_belongs_to_others(t: &Target) {
    let mut sent = lease("put-others");
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-1"});
    sent["metadata"]["labels"] = json!({"app": "x"});
    sent["metadata"]["annotations"] = json!({"tenure.dev/epoch": "7", "other": ""});
    sent["metadata"]["ownerReferences"] = json!([owner]);
    sent["metadata"]["finalizers"] = json!(["example.com/keep"]);
    let made = t.put("put-others", &sent).await.ok(201);
    let written = t.put("put-others", &with(&made, "/spec/holderIdentity", "b")).await.ok(200);
    for field in ["labels", "annotations", "ownerReferences", "finalizers"] {
        assert_eq!(written["metadata"][field], sent["metadata"][field], "{field}");
    }
    assert_eq!(written["metadata"]["creationTimestamp"], made["metadata"]["creationTimestamp"]);
    let free = without_meta(&written, "finalizers");
    t.put("put-others", &free).await.ok(200);
}

async fn put_takes_the_released_form(t: &Target) {
    let made = t.create("put-free").await;
    let mut free = with(&made, "/spec/holderIdentity", "");
    free["spec"]["leaseDurationSeconds"] = 1.into();
    let freed = t.put("put-free", &free).await.ok(200);
    assert_eq!(freed["spec"], free["spec"], "the empty holder is kept as \"\"");
    let lower = with(&freed, "/spec/leaseTransitions", 0);
    assert_eq!(t.put("put-free", &lower).await.ok(200)["spec"]["leaseTransitions"], 0);
}

async fn put_may_leave_the_uid_out(t: &Target) {
    let made = t.create("put-nouid").await;
    let bare = with(&without_meta(&made, "uid"), "/spec/holderIdentity", "b");
    let written = t.put("put-nouid", &bare).await.ok(200);
    assert_eq!(written["metadata"]["uid"], made["metadata"]["uid"]);
}

async fn put_checks_the_names(t: &Target) {
    t.put("put-names", &lease("put-other")).await.is(400, "BadRequest");
    let elsewhere = with(&lease("put-names"), "/metadata/namespace", "elsewhere");
    t.put("put-names", &elsewhere).await.is(400, "BadRequest");
    t.put("Put_Names", &lease("Put_Names")).await.is(422, "Invalid");
    t.get("put-names").await.is(404, "NotFound");
}

/// Sends the same PUT twenty times at once, each with a holder of its own.
async fn race(t: &Target, name: &str, base: &Value) -> Vec<Answer> {
    let puts = (0..20).map(|number| {
        let body = with(base, "/spec/holderIdentity", format!("holder-{number}"));
        async move { t.put(name, &body).await }
    });
    futures_util::future::join_all(puts).await
}

async fn one_of_many_puts_wins(t: &Target) {
    let base = t.create("race").await;
    let answers = race(t, "race", &base).await;
    let won: Vec<&Answer> = answers.iter().filter(|answer| answer.code == 200).collect();
    assert_eq!(won.len(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.code == 409).count(), 19);
    assert_eq!(t.get("race").await.ok(200), won[0].body);
}

async fn one_of_many_creating_puts_wins(t: &Target) {
    let answers = race(t, "race-new", &lease("race-new")).await;
    let won: Vec<&Answer> = answers.iter().filter(|answer| answer.code == 201).collect();
    assert_eq!(won.len(), 1);
    let lost = answers.iter().filter(|answer| matches!(answer.code, 409 | 422)).count();
    assert_eq!(lost, 19);
    assert_eq!(t.get("race-new").await.ok(200), won[0].body);
}

async fn post_creates_once(t: &Target) {
    let made = t.post(&lease("post")).await.ok(201);
    assert!(made["metadata"]["uid"].is_string());
    let status = t.post(&lease("post")).await.is(409, "AlreadyExists");
    assert_eq!(status["details"]["name"], "post");
}

async fn post_with_a_version_is_an_error(t: &Target) {
    let versioned = with(&lease("post-rv"), "/metadata/resourceVersion", "1");
    let status = t.post(&versioned).await.is(500, "");
    let why = "resourceVersion should not be set on objects to be created";
    assert_eq!(status["message"], why);
}

async fn numbers_are_checked(t: &Target) {
    let made = t.create("numbers").await;
    let refused =
        [("leaseDurationSeconds", 0), ("leaseDurationSeconds", -1), ("leaseTransitions", -1)];
    for (field, number) in refused {
        let pointer = format!("/spec/{field}");
        let status = t.put("numbers", &with(&made, &pointer, number)).await.is(422, "Invalid");
        assert_eq!(status["details"]["causes"][0]["field"], format!("spec.{field}"));
        let new = with(&lease("numbers-new"), &pointer, number);
        t.put("numbers-new", &new).await.is(422, "Invalid");
    }
    let most = with(&made, "/spec/leaseTransitions", i32::MAX);
    let most = t.put("numbers", &most).await.ok(200);
    let more = with(&most, "/spec/leaseTransitions", 1_i64 << 31);
    t.put("numbers", &more).await.is(400, "BadRequest");
    // A stale version is told before a broken rule.
    t.put("numbers", &with(&made, "/spec/leaseDurationSeconds", 0)).await.is(409, "Conflict");
}

async fn types_are_checked(t: &Target) {
    let sent = lease("types");
    let wrong: [(&str, Value); 7] = [
        ("/spec/leaseDurationSeconds", "15".into()),
        ("/spec/leaseDurationSeconds", 1.5.into()),
        ("/spec/holderIdentity", 7.into()),
        ("/spec/renewTime", 7.into()),
        ("/spec", "free".into()),
        ("/metadata/annotations", json!({"tenure.dev/epoch": 7})),
        ("/kind", "Pod".into()),
    ];
    for (pointer, value) in wrong {
        t.put("types", &with(&sent, pointer, value)).await.is(400, "BadRequest");
    }
    t.get("types").await.is(404, "NotFound");
}

async fn times_have_six_digits(t: &Target) {
    let sent = lease("times");
    let refused = [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.123Z",
        "2026-01-01T00:00:00.123456789Z",
        "2026-12-31T23:59:60.000000Z",
        "2026-02-30T00:00:00.000000Z",
        "2026-01-01T00:00:00.000000+0100",
        "2026-01-01T00:00:00.000000",
        "2026-01-01",
        "",
    ];
    for field in ["/spec/renewTime", "/spec/acquireTime"] {
        for time in refused {
            t.put("times", &with(&sent, field, time)).await.is(400, "BadRequest");
        }
    }
    let offset = with(&sent, "/spec/renewTime", "2026-01-01T01:00:00.123456+01:00");
    let made = t.put("times", &offset).await.ok(201);
    assert_eq!(made["spec"]["renewTime"], "2026-01-01T00:00:00.123456Z");
    let taken = [
        ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z".into()),
        ("2026-01-01T00:00:00,000001-00:30", "2026-01-01T00:30:00.000001Z".into()),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z".into()),
        // Go's zero time.
        ("0001-01-01T00:00:00.000000Z", Value::Null),
    ];
    let mut base = made;
    for (sent, answered) in taken {
        base = t.put("times", &with(&base, "/spec/renewTime", sent)).await.ok(200);
        assert_eq!(base["spec"]["renewTime"], answered, "{sent}");
    }
}

async fn unknown_fields_and_nulls_are_dropped(t: &Target) {
    let mut sent = lease("fields");
    sent["spec"]["flavour"] = "mint".into();
    sent["spec"]["strategy"] = "OldestEmulationVersion".into();
    sent["spec"]["preferredHolder"] = "b".into();
    sent["spec"]["holderIdentity"] = Value::Null;
    sent["status"] = json!({"odd": true});
    let made = t.put("fields", &sent).await.ok(201);
    for field in ["flavour", "strategy", "preferredHolder", "holderIdentity"] {
        assert_eq!(made["spec"].get(field), None, "{field}: {made}");
    }
    assert_eq!(made.get("status"), None);
    let empty = t.put("fields", &with(&made, "/spec", json!({}))).await.ok(200);
    assert_eq!(empty["spec"], json!({}));
    let mut none = lease("fields-none");
    none.as_object_mut().expect("an object").remove("spec");
    assert_eq!(t.put("fields-none", &none).await.ok(201)["spec"], json!({}));
}

async fn annotations_have_a_limit(t: &Target) {
    let mut sent = lease("annotations");
    sent["metadata"]["annotations"] = json!({"big": "x".repeat(300 * 1024)});
    let status = t.put("annotations", &sent).await.is(422, "Invalid");
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.annotations");
}

async fn get_of_nothing_is_not_found(t: &Target) {
    let status = t.get("nothing").await.is(404, "NotFound");
    assert_eq!(status["message"], "leases.coordination.k8s.io \"nothing\" not found");
    let details = json!({"name": "nothing", "group": "coordination.k8s.io", "kind": "leases"});
    assert_eq!(status["details"], details);
    t.delete("nothing", &Value::Null).await.is(404, "NotFound");
}

async fn unknown_paths_are_another_not_found(t: &Target) {
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leashes/nothing";
    let answer = t.json(Method::GET, path, &Value::Null).await;
    assert_eq!(answer.code, 404);
    assert_ne!(answer.body["details"]["kind"], "leases", "not a word about the Lease");
}

async fn reads_at_a_future_version_time_out(t: &Target) {
    let future = rv(&t.create("future").await) + 1_000_000;
    let paths = [
        format!("{}?resourceVersion={future}", t.path("future")),
        format!("{}?resourceVersion={future}&resourceVersionMatch=NotOlderThan", t.leases()),
    ];
    for path in paths {
        let answer = t.json(Method::GET, &path, &Value::Null).await;
        assert!(answer.headers.contains_key("retry-after"), "{path}");
        let status = answer.is(504, "Timeout");
        let cause = &status["details"]["causes"][0]["reason"];
        assert_eq!(cause, "ResourceVersionTooLarge", "{status}");
    }
    let any = format!("{}?resourceVersion=0", t.path("future"));
    t.json(Method::GET, &any, &Value::Null).await.ok(200);
}

async fn list_selects_by_name(t: &Target) {
    let one = t.create("list-one").await;
    t.create("list-two").await;
    let path = format!("{}?fieldSelector=metadata.name%3Dlist-one", t.leases());
    let list = t.json(Method::GET, &path, &Value::Null).await.ok(200);
    assert_eq!(list["kind"], "LeaseList");
    assert!(rv(&list) >= rv(&one));
    let items = list["items"].as_array().expect("items");
    assert_eq!(items.len(), 1);
    assert_eq!(items[0]["spec"], one["spec"]);
    assert_eq!(items[0]["metadata"]["uid"], one["metadata"]["uid"]);
    let path = format!("{}?fieldSelector=spec.holderIdentity%3Da", t.leases());
    t.json(Method::GET, &path, &Value::Null).await.is(400, "BadRequest");
}

async fn one_counter_over_all_objects(t: &Target) {
    let mut seen = BTreeSet::new();
    let mut last = 0;
    for name in ["counter-a", "counter-b", "counter-c"] {
        let version = rv(&t.create(name).await);
        assert!(version > last && seen.insert(version));
        last = version;
    }
}

async fn delete_answers_with_the_uid(t: &Target) {
    let made = t.create("gone").await;
    let status = t.delete("gone", &Value::Null).await.ok(200);
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"]["name"], "gone");
    assert_eq!(status["details"]["uid"], made["metadata"]["uid"]);
    t.get("gone").await.is(404, "NotFound");
}

async fn delete_has_preconditions(t: &Target) {
    let made = t.create("precondition").await;
    for (field, wrong) in [("uid", "another"), ("resourceVersion", "1")] {
        let options = json!({"preconditions": {field: wrong}});
        t.delete("precondition", &options).await.is(409, "Conflict");
    }
    let metadata = &made["metadata"];
    let right = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
    t.delete("precondition", &json!({"preconditions": right})).await.ok(200);
}

async fn finalizers_keep_a_deleted_object(t: &Target) {
    let mut sent = lease("finalizer");
    sent["metadata"]["finalizers"] = json!(["example.com/keep"]);
    t.put("finalizer", &sent).await.ok(201);
    t.delete("finalizer", &Value::Null).await.ok(200);
    let marked = t.get("finalizer").await.ok(200);
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    let renewed = with(&marked, "/spec/holderIdentity", "b");
    let renewed = t.put("finalizer", &renewed).await.ok(200);
    t.put("finalizer", &without_meta(&renewed, "finalizers")).await.ok(200);
    t.get("finalizer").await.is(404, "NotFound");
}

async fn merge_patch_changes_and_compares(t: &Target) {
    let made = t.create("merge").await;
    let patch = json!({"spec": {"holderIdentity": "b", "leaseTransitions": null}});
    let written = t.patch("merge", MERGE, &patch).await.ok(200);
    assert_eq!(written["spec"]["holderIdentity"], "b");
    assert_eq!(written["spec"].get("leaseTransitions"), None);
    assert_eq!(written["spec"]["renewTime"], made["spec"]["renewTime"]);
    let stale = with(&patch, "/metadata", json!({"resourceVersion": rv(&made).to_string()}));
    t.patch("merge", MERGE, &with(&stale, "/spec/holderIdentity", "c")).await.is(409, "Conflict");
    t.patch("merge-none", MERGE, &patch).await.is(404, "NotFound");
    let zero = json!({"spec": {"leaseDurationSeconds": 0}});
    t.patch("merge", MERGE, &zero).await.is(422, "Invalid");
}

async fn json_patch_tests_and_replaces(t: &Target) {
    t.create("steps").await;
    let media_type = "application/json-patch+json";
    let steps = |held: &str| {
        json!([
            {"op": "test", "path": "/spec/holderIdentity", "value": held},
            {"op": "replace", "path": "/spec/holderIdentity", "value": "b"},
        ])
    };
    let written = t.patch("steps", media_type, &steps("a")).await.ok(200);
    assert_eq!(written["spec"]["holderIdentity"], "b");
    t.patch("steps", media_type, &steps("a")).await.is(422, "Invalid");
}

async fn strangers_are_forbidden(t: &Target) {
    let made = t.create("closed").await;
    let path = t.path("closed");
    for method in [Method::GET, Method::PUT] {
        let bytes = made.to_string().into_bytes();
        let answer = send(&t.stranger, method, &path, "application/json", bytes).await;
        let status = answer.is(403, "Forbidden");
        let message = text(&status["message"]);
        assert!(message.contains("cannot") && message.contains("\"leases\""), "{message}");
        assert_eq!(status["details"]["name"], "closed");
    }
    assert_eq!(t.get("closed").await.ok(200), made);
}

async fn refused_tokens_are_unauthorized(t: &Target) {
    let answer = send(&t.refused, Method::GET, &t.leases(), "application/json", Vec::new()).await;
    answer.is(401, "Unauthorized");
}

async fn malformed_requests_are_refused(t: &Target) {
    let path = t.path("malformed");
    let broken = send(&t.client, Method::PUT, &path, "application/json", b"{".to_vec()).await;
    broken.is(400, "BadRequest");
    let bytes = lease("malformed").to_string().into_bytes();
    let odd = send(&t.client, Method::PUT, &path, "text/csv", bytes).await;
    odd.is(415, "UnsupportedMediaType");
    t.json(Method::PUT, &t.leases(), &lease("malformed")).await.is(405, "MethodNotAllowed");
}
