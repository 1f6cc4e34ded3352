//! Proves the harness of `tests/cluster` and the facts that the shipped Role rests on.

mod cluster;

use std::time::Duration;

use cluster::peer::{PeerEvent, PeerTimings};
use cluster::{Cluster, Flow, Namespace, Peer};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use rustix::process::Signal;

/// Only a hang may pass it.
const LIMIT: Duration = Duration::from_secs(60);

fn lease(name: &str) -> Lease {
    Lease {
        metadata: ObjectMeta { name: Some(name.into()), ..Default::default() },
        spec: Some(LeaseSpec::default()),
    }
}

/// The HTTP status of a request.
async fn status(client: &Client, request: http::request::Builder, body: &[u8]) -> u16 {
    let body = kube::client::Body::from(body.to_vec());
    let request = request.body(body).expect("a request");
    let answer = client.send(request).await.expect("an answer");
    answer.status().as_u16()
}

fn leases_path(namespace: &Namespace<'_>) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", namespace.name)
}

#[tokio::test]
async fn scenario_p4_one_named_role_is_enough() {
    let cluster = cluster::shared().await;
    let namespace = cluster.namespace("role").await;
    let access = namespace.access("mine").await;
    let client = access.client();
    let path = leases_path(&namespace);
    let put = |name: &str| http::Request::put(format!("{path}/{name}"));
    let body = |name: &str| serde_json::to_vec(&lease(name)).expect("a Lease as JSON");

    assert_eq!(status(&client, http::Request::post(&path), &body("mine")).await, 403);
    assert_eq!(status(&client, put("mine"), &body("mine")).await, 201);
    assert_eq!(status(&client, put("other"), &body("other")).await, 403);
    for query in ["?", "?watch=true&timeoutSeconds=1&"] {
        let whole = http::Request::get(format!("{path}{query}"));
        assert_eq!(status(&client, whole, &[]).await, 403, "{query}");
        let named = http::Request::get(format!("{path}{query}fieldSelector=metadata.name%3Dmine"));
        assert_eq!(status(&client, named, &[]).await, 200, "{query}");
    }

    let audit = cluster.audit().of_user(&access.user);
    assert_eq!(audit.count("create", "leases", 403), 1, "{audit:?}");
    assert_eq!(audit.count("update", "leases", 201), 1, "{audit:?}");
    assert_eq!(audit.count("update", "leases", 403), 1, "{audit:?}");
    assert_eq!(audit.count("list", "leases", 403), 1, "{audit:?}");
    assert_eq!(audit.count("watch", "leases", 403), 1, "{audit:?}");
    assert_eq!(audit.count("watch", "leases", 200), 1, "{audit:?}");
    assert_eq!(audit.verbs("leases"), ["create", "list", "update", "watch"]);
}

#[tokio::test]
async fn a_revoked_role_forbids_and_a_restored_one_allows() {
    let cluster = cluster::shared().await;
    let namespace = cluster.namespace("revoked").await;
    let access = namespace.access("mine").await;
    namespace.create_lease("mine", LeaseSpec::default()).await;
    let leases: Api<Lease> = Api::namespaced(access.client(), &namespace.name);

    leases.get("mine").await.expect("allowed");
    for (verbs, allowed) in [(&["watch"][..], false), (&cluster::access::CANDIDATE_VERBS[..], true)]
    {
        namespace.allow("candidate", "mine", verbs).await;
        // The authorizer's own watch brings the change a moment later.
        let settled = async {
            while leases.get("mine").await.is_ok() != allowed {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, settled).await.expect("the change takes effect");
    }
}

#[tokio::test]
async fn a_token_bound_to_a_pod_is_refused_once_the_pod_is_gone() {
    let cluster = cluster::shared().await;
    let namespace = cluster.namespace("bound").await;
    namespace.service_account("candidate").await;
    namespace.allow("candidate", "mine", &cluster::access::CANDIDATE_VERBS).await;
    namespace.create_lease("mine", LeaseSpec::default()).await;
    let pod = namespace.pod("pod-0", "candidate").await;
    let access = namespace.access_of("candidate", Some(&pod)).await;
    let request = || http::Request::get(format!("{}/mine", leases_path(&namespace)));
    let client = access.client();

    assert_eq!(status(&client, request(), &[]).await, 200);
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(cluster.admin(), &namespace.name);
    let now = kube::api::DeleteParams::default().grace_period(0);
    pods.delete("pod-0", &now).await.expect("delete the pod");
    let refused = async {
        while status(&client, request(), &[]).await != 401 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, refused).await.expect("refused");
    let audit = cluster.audit().of_namespace(&namespace.name);
    assert_eq!(audit.count("get", "leases", 401), 1, "{audit:?}");
}

#[tokio::test]
async fn two_client_go_peers_hand_over() {
    let cluster = cluster::shared().await;
    let namespace = cluster.namespace("peers").await;
    let access = namespace.access_for_client_go("shared").await;
    let timings = PeerTimings {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(500),
    };
    let mut first = Peer::start(&namespace, &access, "shared", "first", timings);
    first.leads(LIMIT).await;
    let second = Peer::start(&namespace, &access, "shared", "second", timings);
    second.wait_for(LIMIT, |event| event.event == "new_leader" && event.leader == "first").await;

    assert!(first.stop(LIMIT).await.success());
    let led = second.leads(LIMIT).await;
    let history = first.history();
    let release = history.iter().find(|event| event.event == "update" && event.holder.is_empty());
    let release = release.expect("the first released");
    assert!(release.error.is_empty(), "{release:?}");
    assert!(release.sent_ns < led.boottime_ns, "{release:?} {led:?}");
    let lease = namespace.get_lease("shared").await.expect("the Lease").spec.expect("its spec");
    assert_eq!(lease.holder_identity.as_deref(), Some("second"));
    // One for the first, which found the empty Lease, and one for the second.
    assert_eq!(lease.lease_transitions, Some(2));
    assert!(history.is_sorted_by_key(|event: &PeerEvent| event.boottime_ns));

    second.signal(Signal::KILL);
}

#[tokio::test]
async fn servers_can_be_paused_killed_and_rewound() {
    let cluster = Cluster::start().await;
    let namespace = cluster.namespace("faults").await;
    let old = namespace.create_lease("mine", LeaseSpec::default()).await;
    let snapshot = cluster.snapshot();
    let newer = namespace.edit_lease("mine", |lease| set_holder(lease, "later")).await;
    assert_ne!(old.metadata.resource_version, newer.metadata.resource_version);

    for server in [&cluster.api_server, &cluster.etcd] {
        server.pause();
        let silent = namespace.leases();
        let asked = tokio::time::timeout(Duration::from_millis(500), silent.get("mine")).await;
        assert!(asked.is_err(), "a stopped server answered: {asked:?}");
        server.resume();
        cluster.ready().await;
    }

    cluster.api_server.kill();
    let refused = namespace.leases().get("mine").await;
    assert!(matches!(refused, Err(kube::Error::Service(_))), "{refused:?}");
    cluster.api_server.start();
    cluster.etcd.restart();
    cluster.ready().await;
    assert_eq!(namespace.get_lease("mine").await, Some(newer));

    cluster.restore(&snapshot).await;
    assert_eq!(namespace.get_lease("mine").await, Some(old));
    let folder = cluster.folder.clone();
    drop(cluster);
    assert!(!folder.exists());
}

fn set_holder(lease: &mut Lease, holder: &str) {
    lease.spec.get_or_insert_default().holder_identity = Some(holder.into());
}

/// The trap that mark F4 answers, on client-go itself: told to stop, it reads the Lease afresh, but asks
/// its *old* observation whether it leads, and blanks whoever holds the Lease by now.
#[tokio::test]
async fn mark_f4_client_go_blanks_another_holder_and_keeps_its_transitions() {
    let cluster = cluster::shared().await;
    let namespace = cluster.namespace("blank").await;
    let access = namespace.access_for_client_go("shared").await;
    // Its next renewal, which would show it the new holder, is far away.
    let timings = PeerTimings {
        lease_duration: Duration::from_secs(600),
        renew_deadline: Duration::from_secs(500),
        retry_period: Duration::from_secs(400),
    };
    let mut peer = Peer::start(&namespace, &access, "shared", "stale", timings);
    peer.leads(LIMIT).await;
    namespace
        .edit_lease("shared", |lease| {
            set_holder(lease, "living");
            let spec = lease.spec.get_or_insert_default();
            spec.lease_transitions = Some(41);
            let annotations = lease.metadata.annotations.get_or_insert_default();
            annotations.insert("tenure.dev/transitions".into(), "41".into());
        })
        .await;
    assert!(peer.stop(LIMIT).await.success());

    let lease = namespace.get_lease("shared").await.expect("the Lease");
    let spec = lease.spec.expect("its spec");
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_duration_seconds, Some(1));
    // From the fresh read: so the number still equals the annotated one, and says "blanked, not freed".
    assert_eq!(spec.lease_transitions, Some(41));
    assert_eq!(spec.acquire_time, spec.renew_time);
    let annotations = lease.metadata.annotations.expect("annotations survive");
    assert_eq!(annotations["tenure.dev/transitions"], "41");
}

#[tokio::test]
async fn a_proxy_cuts_one_candidate_off() {
    const SHORT: Duration = Duration::from_millis(300);
    let cluster = cluster::shared().await;
    let namespace = cluster.namespace("proxy").await;
    let mut access = namespace.access_for_client_go("mine").await;
    let proxy = cluster.proxy();
    access.url = proxy.url();
    let leases: Api<Lease> = Api::namespaced(access.client(), &namespace.name);
    let mut lease = leases.get("mine").await.expect("passes");

    // Silence, then a late answer on the same connection.
    proxy.set(Flow::Nothing);
    let mut waiting = std::pin::pin!(leases.get("mine"));
    assert!(tokio::time::timeout(SHORT, &mut waiting).await.is_err());
    proxy.set(Flow::Both);
    tokio::time::timeout(LIMIT, waiting).await.expect("healed").expect("answered");

    // A write that takes effect and is never answered.
    set_holder(&mut lease, "unheard");
    proxy.set(Flow::RequestsOnly);
    let params = PostParams::default();
    let written = tokio::time::timeout(SHORT, leases.replace("mine", &params, &lease)).await;
    assert!(written.is_err(), "{written:?}");
    let landed = async {
        while namespace.get_lease("mine").await.and_then(|lease| lease.spec?.holder_identity)
            != Some("unheard".into())
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, landed).await.expect("the write took effect");

    // Old connections dead without a reset, new ones fine; then resets.
    proxy.set(Flow::Both);
    leases.get("mine").await.expect("passes");
    let before = proxy.connections();
    proxy.strand();
    assert!(tokio::time::timeout(SHORT, leases.get("mine")).await.is_err());
    let fresh = tokio::time::timeout(LIMIT, leases.get("mine")).await;
    fresh.expect("a fresh connection answers").expect("answered");
    assert!(proxy.connections() > before);
    proxy.set(Flow::Reset);
    assert!(leases.get("mine").await.is_err());
}
