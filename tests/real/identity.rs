//! Two processes with one identity, and pods with one address family.

use std::time::Duration;

use serde_json::json;

use crate::bed::{Pod, ROOMY, Sidecar, Site, eventually, within};
use crate::cluster::Proxy;
use crate::judge::Watch;
use crate::netns::{self, NetNs};

/// What a busy machine may be late by.
const SLACK: Duration = Duration::from_secs(3);

/// The first leads; the second is its double. Kills the first in the end.
async fn doubles(site: &Site, mut first: Sidecar, second: Sidecar) {
    let watch = Watch::start(site).await;
    let epoch = first.epoch().await;
    let conflict = async || second.leader().await["reason"] == "identity_conflict";
    eventually("it says identity_conflict", conflict).await;
    assert_eq!(second.state().await, "blocked");
    // No ping-pong: renewals and nothing else for two leases.
    let until = tokio::time::Instant::now() + 2 * ROOMY.lease_duration;
    while tokio::time::Instant::now() < until {
        assert_eq!(first.epoch().await, epoch);
        assert!(!second.leads().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(watch.commits().iter().all(|commit| commit.epoch == Some(epoch)));
    assert_eq!(second.lines("cannot campaign").len(), 1, "said once, and loudly");
    first.kill();
    let limit = ROOMY.lease_duration + SLACK;
    within(limit, "the other leads within L", async || second.leads().await).await;
    assert!(second.epoch().await > epoch);
    assert_eq!(watch.assert_epochs_grow(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_e5_two_with_one_identity_in_one_network_namespace_on_the_real_api_server() {
    let site = Site::new("e5", ROOMY).await;
    let pod = site.bound_pod("a").await;
    let first = site.start_in(&pod, &[]).await;
    eventually("it leads", async || first.leads().await).await;
    let second = site.start_in(&pod, &[]).await;
    doubles(&site, first, second).await;
    site.ledger.assert_no_overlap(Vec::new());
}

/// A copied uid shows in the claim of the token.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_e5_two_with_one_identity_in_two_network_namespaces_on_the_real_api_server() {
    if !netns::possible() {
        return;
    }
    let site = Site::new("e5ns", ROOMY).await;
    let mut pod = site.bound_pod("a").await;
    let mut copy = Pod { access: site.bound_pod("b").await.access, ..pod.clone() };
    let (here, there) = (NetNs::new().await, NetNs::new().await);
    let mut proxies = Vec::new();
    for (netns, pod) in [(&here, &mut pod), (&there, &mut copy)] {
        netns.sh("ip link set lo up");
        let listener = netns.bind("127.0.0.1:6443".parse().expect("an address"));
        proxies.push(Proxy::on(listener, site.namespace.cluster.api_server.port));
        pod.access.url = "https://127.0.0.1:6443".into();
    }
    let first = Sidecar::start(&site, &pod, &[], Some(&here)).await;
    eventually("it leads", async || first.leads().await).await;
    let second = Sidecar::start(&site, &copy, &[], Some(&there)).await;
    doubles(&site, first, second).await;
}

/// All addresses are the defaults; `address` is the pod's own.
async fn one_family(family: &str, script: &str, address: &str, loopback: &str) {
    let site = Site::new(family, ROOMY).await;
    let netns = NetNs::new().await;
    netns.sh(script);
    let listener = netns.bind(format!("{address}:6443").parse().expect("an address"));
    let _proxy = Proxy::on(listener, site.namespace.cluster.api_server.port);
    let mut pod = site.pod("a").await;
    pod.access.url = format!("https://{address}:6443");
    let mut a = Sidecar::start(&site, &pod, &[], Some(&netns)).await;
    for local in [format!("http://{loopback}:4040"), "http://localhost:4040".to_owned()] {
        a.local = local.parse().expect("a URL");
        eventually("it leads", async || a.leads().await).await;
    }
    // As the kubelet and Prometheus come: through the pod's address.
    a.admin = format!("http://{address}:4041").parse().expect("a URL");
    a.ready().await;
    assert_eq!(a.admin("/livez").await.0, 200);
    assert_eq!(a.metric("tenure_is_leader", &[]).await, 1.0);
    assert_eq!(a.leader().await["holder"], json!(a.identity()));
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_p6_ipv6_only_on_the_real_api_server() {
    if !netns::possible() {
        return;
    }
    // A veth pair with both ends here: its address lives, and is no loopback address.
    let script = "ip link set lo up
        ip addr del 127.0.0.1/8 dev lo
        ip link add pod type veth peer name node
        ip link set pod up
        ip link set node up
        ip -6 addr add fd00::1/64 dev pod nodad";
    one_family("ipv6", script, "[fd00::1]", "[::1]").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_p6_ipv4_only_on_the_real_api_server() {
    if !netns::possible() {
        return;
    }
    let script = "ip link set lo up
        ip -6 addr del ::1/128 dev lo
        ip link add pod type veth peer name node
        ip link set pod up
        ip link set node up
        ip addr add 10.0.0.1/24 dev pod
        ip -6 addr flush dev pod
        ip -6 addr flush dev node";
    one_family("ipv4", script, "10.0.0.1", "127.0.0.1").await;
}
