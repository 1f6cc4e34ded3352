use super::*;
use kube::api::{ObjectMeta, PostParams};
use std::time::UNIX_EPOCH;

#[tokio::test(start_paused = true)]
async fn the_kube_api_writes_and_reads_in_paused_time() {
    let api = LeaseApi::new();
    let leases = leases(&api, "a");
    let metadata = ObjectMeta { name: Some("x".into()), ..ObjectMeta::default() };
    let lease = Lease { metadata, ..Lease::default() };
    let made = leases.replace("x", &PostParams::default(), &lease).await.unwrap();
    assert!(made.metadata.uid.is_some());
    let again = leases.create(&PostParams::default(), &lease).await.unwrap_err();
    assert!(matches!(again, kube::Error::Api(status) if status.is_already_exists()));
    let bare = leases.replace("x", &PostParams::default(), &lease).await.unwrap_err();
    assert!(matches!(bare, kube::Error::Api(status) if status.is_invalid()));
    let mut renewed = made.clone();
    renewed.spec.get_or_insert_default().holder_identity = Some("a".into());
    leases.replace("x", &PostParams::default(), &renewed).await.unwrap();
    let stale = leases.replace("x", &PostParams::default(), &renewed).await.unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.is_conflict()));

    api.fault(Fault::on(Verb::Put, Effect::SilentAfter).once());
    let mut newest = leases.get("x").await.unwrap();
    newest.spec.get_or_insert_default().holder_identity = Some("b".into());
    let params = PostParams::default();
    assert!(timeout(HOUR, leases.replace("x", &params, &newest)).await.is_err());
    assert_eq!(holder(&api), "b");
    api.fault(Fault::on(Verb::Get, Effect::Reset).once());
    assert!(matches!(leases.get("x").await, Err(kube::Error::Service(_))));
    assert!(leases.get("x").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn rude_edits_pass_every_rule_and_are_versions() {
    let api = api_with_lease();
    let first = api.lease(NS, "x").unwrap();
    let edited = api.edit(NS, "x", |lease| lease["spec"]["leaseDurationSeconds"] = "odd".into());
    assert_eq!(edited, Some(api.rv()));
    assert_eq!(get(&api, "a").await.unwrap().json()["spec"]["leaseDurationSeconds"], "odd");
    api.annotate(NS, "x", "tenure.dev/epoch", Some("7"));
    assert_eq!(api.lease(NS, "x").unwrap()["metadata"]["annotations"]["tenure.dev/epoch"], "7");
    api.annotate(NS, "x", "tenure.dev/epoch", None);
    assert_eq!(api.lease(NS, "x").unwrap()["metadata"]["annotations"], json!({}));
    api.blank_holder(NS, "x");
    assert_eq!(holder(&api), "");
    api.recreate(NS, "x", json!({"holderIdentity": "k"}));
    assert_ne!(api.lease(NS, "x").unwrap()["metadata"]["uid"], first["metadata"]["uid"]);
    assert!(api.delete(NS, "x").is_some());
    assert_eq!((api.delete(NS, "x"), api.edit(NS, "x", |_| {})), (None, None));
    let changes: Vec<Change> = api.versions_of(NS, "x").iter().map(|v| v.change).collect();
    let (added, modified, deleted) = (Change::Added, Change::Modified, Change::Deleted);
    let wanted = [added, modified, modified, modified, modified, deleted, added, deleted];
    assert_eq!(changes, wanted);
    assert!(api.versions().0.is_sorted_by_key(|version| version.rv));
}

#[tokio::test(start_paused = true)]
async fn mark_f11_the_whole_store_goes_back() {
    let api = api_with_lease();
    let snapshot = api.snapshot();
    put(&api, "b", "b").await.unwrap();
    let lost = api.lease(NS, "x").unwrap();
    api.restore(&snapshot, OpenWatches::Close);
    assert_eq!((api.rv(), holder(&api).as_str()), (snapshot.rv(), "a"));
    let stale = ask(&api, "b", Method::PUT, &format!("{PATH}/x"), lost.clone()).await.unwrap();
    assert_eq!(stale.code, 409, "its version is of a future that is no more");
    put(&api, "c", "c").await.unwrap();
    let rv = &api.lease(NS, "x").unwrap()["metadata"]["resourceVersion"];
    assert_eq!(*rv, lost["metadata"]["resourceVersion"], "numbers are given twice");
    let (versions, dropped) = api.versions();
    let changes: Vec<Change> = versions.iter().map(|v| v.change).collect();
    let wanted = [Change::Added, Change::Modified, Change::Restored, Change::Modified];
    assert_eq!((changes.as_slice(), dropped), (&wanted[..], 0));
    assert!(versions.is_sorted_by_key(|version| version.seq));
}

#[tokio::test(start_paused = true)]
async fn fields_are_kept_on_demand() {
    let api = api_with_lease();
    api.keep_fields(KeepFields { unknown: true, coordinated: true });
    api.edit(NS, "x", |lease| {
        lease["spec"]["flavour"] = "mint".into();
        lease["spec"]["strategy"] = "OldestEmulationVersion".into();
    });
    put(&api, "a", "b").await.unwrap();
    let kept = api.lease(NS, "x").unwrap();
    assert_eq!(kept["spec"]["flavour"], "mint");
    assert_eq!(kept["spec"]["strategy"], "OldestEmulationVersion");
    api.keep_fields(KeepFields::default());
    put(&api, "a", "c").await.unwrap();
    let dropped = api.lease(NS, "x").unwrap();
    assert_eq!((dropped["spec"].get("flavour"), dropped["spec"].get("strategy")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn stamps_come_from_the_wall_clock_set() {
    let api = LeaseApi::new();
    api.set_wall_clock(|| UNIX_EPOCH + HOUR);
    api.recreate(NS, "x", json!({}));
    let created = &api.lease(NS, "x").unwrap()["metadata"]["creationTimestamp"];
    assert_eq!(created, "1970-01-01T01:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn two_apis_give_the_same_uids() {
    let uid = || api_with_lease().lease(NS, "x").unwrap()["metadata"]["uid"].clone();
    assert_eq!(uid(), uid());
}

#[tokio::test(start_paused = true)]
async fn every_list_is_bounded() {
    let limits =
        Limits { objects: 2, versions: 3, requests: 4, watch_history: 2, ..Limits::default() };
    let api = LeaseApi::with_options(Options { limits, ..Options::default() });
    let first = api.recreate(NS, "x", json!({"holderIdentity": "a"})).unwrap();
    for number in 0..10 {
        assert_eq!(put(&api, "a", &format!("h{number}")).await.unwrap().code, 200);
    }
    let (versions, dropped) = api.versions();
    assert_eq!((versions.len(), dropped, api.requests().len()), (3, 8, 4));
    let watch = format!("{PATH}?watch=1&resourceVersion={first}");
    let answer = ask(&api, "a", Method::GET, &watch, Value::Null).await.unwrap();
    assert!(answer.text.contains("too old resource version"), "{}", answer.text);
    let mut codes = Vec::new();
    for name in ["y", "z"] {
        let lease = json!({"metadata": {"name": name}});
        codes.push(ask(&api, "a", Method::POST, PATH, lease).await.unwrap().code);
    }
    assert_eq!(codes, [201, 500]);
}
