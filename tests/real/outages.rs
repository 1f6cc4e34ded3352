//! The API server and etcd, stopped and killed: on a cluster of their own.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::bed::{ROOMY, SLOW, Sidecar, Site, eventually, led_by, one_leader, within};
use crate::cluster::Cluster;

/// What a busy machine may be late by.
const SLACK: Duration = Duration::from_secs(3);

/// A cluster that is done harm to, by one test at a time.
async fn mine() -> (&'static Cluster, MutexGuard<'static, ()>) {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let cluster = CLUSTER.get_or_init(Cluster::start).await;
    // As a test that failed may have left it.
    restore(cluster).await;
    (cluster, turn)
}

async fn restore(cluster: &Cluster) {
    for server in [&cluster.etcd, &cluster.api_server] {
        match server.pid() {
            Some(_) => server.resume(),
            None => server.start(),
        }
    }
    cluster.ready().await;
}

async fn anybody_leads(sidecars: &[&Sidecar]) -> bool {
    for sidecar in sidecars {
        if sidecar.leads().await {
            return true;
        }
    }
    false
}

/// A3, P7 and R7 in one: each of them once, longer than a lease.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_p7_outages_end_terms_and_nothing_else_on_the_real_api_server() {
    let (cluster, _turn) = mine().await;
    let site = Site::on(cluster, "outages", ROOMY).await;
    let sidecars = site.trio().await;
    let all = sidecars.each_ref();
    type Fault = fn(&Cluster);
    let faults: [(&str, Fault); 3] = [
        ("the API server is killed", |cluster| cluster.api_server.kill()),
        ("the API server hangs", |cluster| cluster.api_server.pause()),
        ("etcd hangs", |cluster| cluster.etcd.pause()),
    ];
    for (what, fault) in faults {
        let leader = sidecars.each_ref()[one_leader(&all).await];
        let epoch = leader.epoch().await;
        let ended = leader.metric("tenure_terms_total", &["\"renew_deadline\""]).await;
        fault(cluster);
        let silent = async || !anybody_leads(&all).await;
        within(ROOMY.renew_deadline + SLACK, what, silent).await;
        let now = leader.metric("tenure_terms_total", &["\"renew_deadline\""]).await;
        assert_eq!(now, ended + 1.0, "{what}");
        assert_eq!(leader.metric("tenure_is_leader", &[]).await, 0.0, "{what}");
        // As long again: nobody leads, everybody stays ready.
        let until = tokio::time::Instant::now() + ROOMY.lease_duration;
        while tokio::time::Instant::now() < until {
            assert!(!anybody_leads(&all).await, "{what}");
            for sidecar in all {
                assert_eq!(sidecar.admin("/readyz").await.0, 200, "{what}");
                assert_eq!(sidecar.admin("/livez").await.0, 200, "{what}");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        restore(cluster).await;
        let one = async || anybody_leads(&all).await;
        within(ROOMY.lease_duration + SLACK, "L3: one leads again", one).await;
        let leader = sidecars.each_ref()[one_leader(&all).await];
        assert!(leader.epoch().await > epoch, "{what}");
    }
    site.ledger.assert_no_overlap(Vec::new());
}

/// Shorter than the renew deadline, they cost nothing.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_r5_an_api_server_that_is_restarted_costs_no_term_on_the_real_api_server() {
    let (cluster, _turn) = mine().await;
    let site = Site::on(cluster, "restart", SLOW).await;
    let [a, b, c] = led_by(site.trio().await).await;
    let epoch = a.epoch().await;
    cluster.api_server.restart();
    cluster.ready().await;
    cluster.etcd.pause();
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.etcd.resume();
    cluster.ready().await;
    // Renewed again: what is granted reaches beyond all that was granted before.
    let until = a.leader().await["valid_until_boottime_ms"].as_u64();
    let renewed = async || a.leader().await["valid_until_boottime_ms"].as_u64() > until;
    eventually("it renews", renewed).await;
    assert_eq!(a.epoch().await, epoch);
    for other in [&b, &c] {
        eventually("it follows", async || other.sees().await == Some(a.identity())).await;
    }
    assert_eq!(site.transitions().await, 1);
}
