//! Roles and tokens: too few rights, exactly enough, revoked, rotated.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::bed::{LEASE, ROOMY, SHIPPED_VERBS, SLOW, Site, eventually, led_by, within};
use crate::cluster::Audit;
use crate::judge::Watch;

#[tokio::test(flavor = "multi_thread")]
async fn scenario_c3_a_role_without_update_on_the_real_api_server() {
    let site = Site::without_lease("c3", SLOW).await;
    site.allow(&["get", "watch", "create"]).await;
    let held = LeaseSpec {
        holder_identity: Some("somebody".into()),
        lease_duration_seconds: Some(3600),
        ..Default::default()
    };
    site.namespace.create_lease(LEASE, held).await;
    let a = site.start("a").await;
    let said = async || !a.lines("access denied").is_empty();
    within(Duration::from_secs(10), "it says what is missing", said).await;
    let line = a.lines("access denied").remove(0);
    assert_eq!((&line["verb"], &line["lease"]), (&json!("update"), &json!(LEASE)));
    assert_eq!(line["resource"], "leases.coordination.k8s.io");
    assert_eq!(line["namespace"], site.namespace.name);
    let (status, text) = a.admin("/readyz").await;
    assert_eq!(status, 503);
    for word in ["update", "leases.coordination.k8s.io", &site.namespace.name] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let denied = async |verb: &str| a.metric("tenure_access_denied", &[verb]).await;
    assert_eq!([denied("\"put\"").await, denied("\"get\"").await], [1.0, 0.0]);
    let body = a.leader().await;
    assert_eq!((&body["state"], &body["reason"]), (&json!("blocked"), &json!("forbidden")));
    let writes = site.namespace.cluster.audit().of_user(&site.user());
    assert!(!writes.verbs("leases").contains(&"update"), "it had nothing to write");

    site.allow(&SHIPPED_VERBS).await;
    let limit = 2 * SLOW.lease_duration;
    within(limit, "ready", async || a.admin("/readyz").await.0 == 200).await;
    assert_eq!(denied("\"put\"").await, 0.0);
    eventually("it follows", async || a.state().await == "following").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_p4_the_shipped_role_is_enough_and_no_verb_unused_on_the_real_api_server() {
    let site = Site::without_lease("p4", ROOMY).await;
    site.allow_events().await;
    let [a, b, c] = led_by(site.trio().await).await;
    // A second making of it: the leader has it again at once.
    let first = a.epoch().await;
    site.namespace.delete_lease(LEASE).await;
    let again = async || a.leader().await["epoch"].as_u64().is_some_and(|epoch| epoch > first);
    within(ROOMY.lease_duration, "the leader has it again", again).await;
    let (status, _) = a.give_up(&site, json!({})).await;
    assert_eq!(status, 200);
    eventually("another leads", async || b.leads().await || c.leads().await).await;

    let audit = site.namespace.cluster.audit().of_user(&site.user());
    let events = async || {
        let audit = site.namespace.cluster.audit().of_user(&site.user());
        audit.count("create", "events", 201) > 0
    };
    eventually("an Event is written", events).await;
    assert_eq!(audit.verbs("leases"), ["get", "update", "watch"]);
    // A PUT that creates stands in the log as an update, and is allowed by both verbs.
    assert!(audit.count("update", "leases", 201) >= 2, "{audit:?}");
    let refused: Vec<_> = audit.0.iter().filter(|request| request.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let other: Vec<_> =
        audit.0.iter().filter(|r| r.resource == "leases" && r.name != LEASE).collect();
    assert!(other.is_empty(), "{other:?}");
}

/// P7 for the Role, too: a pod that was ready stays so, and metrics tell.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_r6_rights_are_revoked_and_restored_on_the_real_api_server() {
    let site = Site::new("r6", ROOMY).await;
    let [a, b, c] = led_by(site.trio().await).await;
    let all = [&a, &b, &c];
    let first = a.epoch().await;
    site.allow(&[]).await;
    within(2 * ROOMY.lease_duration, "it stops", async || !a.leads().await).await;
    for sidecar in all {
        let says = async || {
            let body = sidecar.leader().await;
            (&body["state"], &body["reason"]) == (&json!("blocked"), &json!("forbidden"))
        };
        // A standby notices when it takes what has run out.
        within(3 * ROOMY.lease_duration, "it says forbidden", says).await;
        let put = || {
            let denied = sidecar.lines("forbidden: the Role does not allow it");
            denied.into_iter().find(|line| line["verb"] == "update")
        };
        eventually("it names the verb", async || put().is_some()).await;
        let put = put().expect("a line");
        assert_eq!(put["resource"], "leases.coordination.k8s.io");
        assert_eq!(
            (&put["namespace"], &put["lease"]),
            (&json!(site.namespace.name), &json!(LEASE))
        );
        assert_eq!(sidecar.metric("tenure_access_denied", &["\"put\""]).await, 1.0);
        assert_eq!(sidecar.admin("/readyz").await.0, 200, "P7: ready once, ready for life");
        assert_eq!(sidecar.admin("/livez").await.0, 200);
    }
    assert_eq!(a.metric("tenure_terms_total", &["\"renew_deadline\""]).await, 1.0);
    // Which of them leads is open; what is refused with 403 is tried again each L.
    site.allow(&SHIPPED_VERBS).await;
    let leads = async || a.leads().await || b.leads().await || c.leads().await;
    within(2 * ROOMY.lease_duration, "one leads again by itself", leads).await;
    let [leader, ..] = led_by([a, b, c]).await;
    assert!(leader.epoch().await > first);
    assert_eq!(leader.metric("tenure_access_denied", &["\"put\""]).await, 0.0);
    site.ledger.assert_no_overlap(Vec::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_r8_a_rotated_token_costs_one_attempt_on_the_real_api_server() {
    let site = Site::new("r8", SLOW).await;
    let watch = Watch::start(&site).await;
    let pod = site.bound_pod("a").await;
    let a = site.start_in(&pod, &[]).await;
    a.ready().await;
    eventually("it leads", async || a.leads().await).await;
    let epoch = a.epoch().await;
    // The old token ends with the object it is bound to. The server may remember it for a while.
    pod.access.write_token(&site.token().await);
    let pods: Api<PodObject> =
        Api::namespaced(site.namespace.cluster.admin(), &site.namespace.name);
    pods.delete("a", &DeleteParams::default().grace_period(0)).await.expect("delete the pod");
    let refused = || {
        let audit: Audit = site.namespace.cluster.audit().of_namespace(&site.namespace.name);
        audit.0.iter().filter(|request| request.code == 401).count()
    };
    eventually("the old token is refused", async || refused() > 0).await;
    let renewals = watch.commits().len();
    eventually("it renews", async || watch.commits().len() >= renewals + 5).await;
    assert_eq!(refused(), 1, "one failed attempt");
    assert_eq!(a.epoch().await, epoch, "and no loss");
}
