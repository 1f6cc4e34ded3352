//! Scenarios on the real API server behind a proxy that does to requests and connections what networks
//! and busy servers do. The proxy is switched while the sidecar runs.

#![allow(unreachable_pub, reason = "modules of test binaries, not a library")]

mod cluster;
#[path = "chaos/facts.rs"]
#[allow(dead_code, reason = "shared with the chaos")]
mod facts;
#[path = "faults/stops.rs"]
mod stops;
#[path = "chaos/tenure.rs"]
#[allow(dead_code, reason = "shared with the chaos")]
mod tenure;
#[path = "chaos/witness.rs"]
#[allow(dead_code, reason = "shared with the chaos")]
mod witness;

use std::path::Path;
use std::time::{Duration, Instant};

use cluster::peer::PeerTimings;
use cluster::{Fault, Flow, Namespace, Peer, Rule, Verb, Wire};
use k8s_openapi::api::coordination::v1::LeaseSpec;
use rustix::process::Signal;
use serde_json::{Value, json};
use tenure::{Pod, Tenure, Timing};

const LEASE: &str = "billing";
/// Generous: a bound on a test that fails, not on a sidecar.
const LIMIT: Duration = Duration::from_secs(60);
/// Leases that run out would be noticed: by then the test has long failed.
const SLOW: Timing = ["60s", "40s", "1s"];
const ROOMY: Timing = ["8s", "6s", "500ms"];

struct Site {
    namespace: Namespace<'static>,
    access: cluster::Access,
    folder: tempfile::TempDir,
}

impl Site {
    async fn new(hint: &str) -> Site {
        let namespace = cluster::shared().await.namespace(hint).await;
        namespace.create_lease(LEASE, LeaseSpec::default()).await;
        let access = namespace.access(LEASE).await;
        Site { namespace, access, folder: tempfile::tempdir().expect("a folder") }
    }

    fn wire(&self) -> Wire {
        Wire::start(self.namespace.cluster)
    }

    fn start(&self, name: &str, url: String, timing: Timing, more: &[&str]) -> Tenure {
        let mut access = self.access.clone();
        access.url = url;
        let pod = Pod {
            namespace: &self.namespace.name,
            lease: LEASE,
            name: name.into(),
            uid: format!("{name}-{}", self.namespace.name),
            access,
            timing,
            folder: self.folder.path(),
        };
        Tenure::start(&pod, 0, more)
    }

    fn direct(&self, name: &str, timing: Timing) -> Tenure {
        self.start(name, self.namespace.cluster.url(), timing, &[])
    }

    async fn renew_time(&self) -> String {
        let lease = self.namespace.get_lease(LEASE).await.expect("the Lease");
        let spec = lease.spec.unwrap_or_default();
        spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default()
    }
}

async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn body(tenure: &Tenure) -> Value {
    tenure.get("/leader?max_valid=1ms", Duration::from_secs(5)).await.unwrap_or_default()
}

async fn leads(tenure: &Tenure) -> u64 {
    eventually("it leads", async || body(tenure).await["leader"] == json!(true)).await;
    body(tenure).await["epoch"].as_u64().expect("an epoch")
}

/// So many PUTs more have come through.
async fn puts(wire: &Wire, more: u32) {
    let before = wire.http.puts();
    eventually("PUTs", async || wire.http.puts() >= before + more).await;
}

/// The same term, and the sidecar's log says nothing of another one.
async fn still(tenure: &Tenure, epoch: u64) {
    let now = body(tenure).await;
    assert_eq!(
        (&now["leader"], &now["epoch"]),
        (&json!(true), &json!(epoch)),
        "{now}\n{}",
        tenure.log_tail()
    );
}

#[tokio::test]
async fn scenario_r2_a_swallowed_connection_is_left_for_a_fresh_one() {
    let site = Site::new("r2").await;
    let wire = site.wire();
    let a = site.start("a", wire.url(), ROOMY, &[]);
    let epoch = leads(&a).await;
    puts(&wire, 2).await;
    let open = wire.bytes.connections();
    wire.bytes.strand();
    puts(&wire, 8).await;
    assert!(wire.bytes.connections() > open);
    still(&a, epoch).await;
}

#[tokio::test]
async fn scenario_r3_puts_that_take_4_5_s_keep_the_lease() {
    let site = Site::new("r3").await;
    let wire = site.wire();
    // The scenario's own timing: 15/10/2.
    let a = site.start("a", wire.url(), ["15s", "10s", "2s"], &[]);
    let epoch = leads(&a).await;
    let b = site.direct("b", ["15s", "10s", "2s"]);
    let slow = Duration::from_millis(4500);
    wire.http.add(Rule::on(Verb::Put, Fault::Late(slow)));
    // Longer than any validity that began before.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(25) {
        still(&a, epoch).await;
        assert_ne!(body(&b).await["leader"], json!(true));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(wire.http.hits() >= 4);
    let metrics = a.metrics().await;
    let slow = |line: &&str| line.starts_with("tenure_renew_duration_seconds_sum");
    let sum = metrics.lines().find(slow).expect("the metric").rsplit(' ').next().expect("a number");
    assert!(sum.parse::<f64>().expect("a number") > 4.0, "{sum}");
}

#[tokio::test]
async fn scenario_r4_a_write_whose_answer_is_lost_or_500_is_recognised() {
    let site = Site::new("r4").await;
    let wire = site.wire();
    let a = site.start("a", wire.url(), ROOMY, &[]);
    let epoch = leads(&a).await;
    for fault in [Fault::DropAnswer, Fault::SwallowAnswer, Fault::AnswerAfter(500)] {
        let before = site.renew_time().await;
        let hits = wire.http.hits();
        wire.http.add(Rule::on(Verb::Put, fault.clone()).nth(2));
        eventually("the fault", async || wire.http.hits() > hits).await;
        puts(&wire, 4).await;
        still(&a, epoch).await;
        assert_ne!(site.renew_time().await, before, "{fault:?}");
    }
    // The answers of all writes for longer than a term is valid: each is found by a read.
    wire.http.add(Rule::on(Verb::Put, Fault::AnswerAfter(500)));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(9) {
        still(&a, epoch).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn scenario_r4_an_acquisition_whose_answer_is_lost_begins_one_term() {
    let site = Site::new("r4a").await;
    let wire = site.wire();
    wire.http.add(Rule::on(Verb::Put, Fault::DropAnswer).nth(1));
    let a = site.start("a", wire.url(), ROOMY, &[]);
    let epoch = leads(&a).await;
    assert_eq!(wire.http.hits(), 1);
    puts(&wire, 3).await;
    still(&a, epoch).await;
}

#[tokio::test]
async fn scenario_r9_throttled_events_and_watches_do_not_slow_renewals() {
    let site = Site::new("r9").await;
    let wire = site.wire();
    wire.http.add(Rule::on(Verb::Other, Fault::TooMany(30)));
    wire.http.add(Rule::on(Verb::Watch, Fault::TooMany(30)));
    let a = site.start("a", wire.url(), ROOMY, &[]);
    let epoch = leads(&a).await;
    // Validity never comes near its end: a renewal in each retry period, give or take a busy machine.
    let begin = Instant::now();
    let before = wire.http.puts();
    while begin.elapsed() < Duration::from_secs(8) {
        still(&a, epoch).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(wire.http.puts() - before >= 6, "{} PUTs", wire.http.puts() - before);
    assert!(wire.http.hits() >= 2);
    assert!(a.lines("renewal failed").is_empty(), "{}", a.log_tail());
}

#[tokio::test]
async fn scenario_s9_the_kill_of_an_app_that_holds_hands_over_at_once() {
    let site = Site::new("s9").await;
    let wire = site.wire();
    let a = site.start("a", wire.url(), SLOW, &[]);
    leads(&a).await;
    let b = site.direct("b", SLOW);
    eventually("b follows", async || body(&b).await["state"] == json!("following")).await;
    let mut app = hold(&a);
    eventually("the hold", async || body(&a).await["holds"] == json!(1)).await;
    app.kill().expect("kill the app");
    app.wait().expect("the app's end");
    // Far less than the lease, which has a minute.
    leads(&b).await;
    let ended = a.lines("term ended").pop().expect("a line");
    assert_eq!(ended["reason"], json!("app_exited"), "{}", a.log_tail());
}

/// A process of its own that holds, as an app does: `curl --no-buffer` of the stream.
fn hold(tenure: &Tenure) -> std::process::Child {
    let ::tenure::client::Endpoint::Unix(socket) = &tenure.endpoint else { panic!("a socket") };
    let mut command = cluster::process::dies_with_us(Path::new("curl"));
    command.args(["-sN", "--unix-socket"]).arg(socket);
    command.arg("http://localhost/leader/events?hold=true").stdout(std::process::Stdio::null());
    cluster::process::spawn(command).expect("start curl")
}

#[tokio::test]
async fn scenario_s11_client_go_takes_a_released_lease_at_its_next_poll() {
    let site = Site::new("s11").await;
    let wire = site.wire();
    let mut a = site.start("a", wire.url(), SLOW, &[]);
    let epoch = leads(&a).await;
    let timings = PeerTimings {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_secs(1),
    };
    let peer = Peer::start(&site.namespace, &site.access, LEASE, "k", timings);
    let holder = a.identity.clone();
    peer.wait_for(LIMIT, |event| event.event == "new_leader" && event.leader == holder).await;
    // The release is committed, and its answer lost: done all the same.
    wire.http.add(Rule::on(Verb::Put, Fault::DropAnswer).nth(1));
    let word = json!({"epoch": epoch, "final": true, "wait": "30s"});
    a.post("/release", word, LIMIT).await.expect("an answer");
    peer.leads(LIMIT).await;
    a.signal(Signal::TERM);
    assert!(a.ended(LIMIT).await.success());
    let lease = site.namespace.get_lease(LEASE).await.expect("the Lease");
    assert_eq!(lease.spec.unwrap_or_default().holder_identity.as_deref(), Some("k"));
}

#[tokio::test]
async fn the_proxy_refuses_throttles_replays_delays_and_resets() {
    let site = Site::new("wire").await;
    let wire = site.wire();
    let mut access = site.access.clone();
    access.url = wire.url();
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
        kube::Api::namespaced(access.client(), &site.namespace.name);
    let old = leases.get(LEASE).await.expect("passes");
    let newer = site.namespace.edit_lease(LEASE, |lease| {
        lease.spec.get_or_insert_default().holder_identity = Some("newer".into());
    });
    let newer = newer.await;
    wire.http.add(Rule::on(Verb::Get, Fault::Replay).nth(2));
    assert_eq!(leases.get(LEASE).await.expect("passes"), newer);
    assert_eq!(leases.get(LEASE).await.expect("the past"), old);
    assert_eq!(leases.get(LEASE).await.expect("passes"), newer);
    for (fault, code) in [
        (Fault::Refuse(403), 403),
        (Fault::Refuse(409), 409),
        (Fault::Refuse(500), 500),
        (Fault::TooMany(7), 429),
    ] {
        wire.http.add(Rule::on(Verb::Get, fault).times(1));
        match leases.get(LEASE).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, code),
            other => panic!("{other:?}"),
        }
    }
    wire.http.add(Rule::every(Fault::LastAnswer).times(1));
    let open = wire.bytes.connections();
    leases.get(LEASE).await.expect("the last answer of this connection");
    leases.get(LEASE).await.expect("over another one");
    assert!(wire.bytes.connections() > open);
    wire.bytes.set(Flow::Reset);
    assert!(leases.get(LEASE).await.is_err());
    wire.heal();
    leases.get(LEASE).await.expect("healed");
}

/// A watch's events come late, everything else at once.
#[tokio::test]
async fn the_proxy_delays_only_events_of_watches() {
    use futures_util::TryStreamExt as _;
    let site = Site::new("late").await;
    let wire = site.wire();
    let mut access = site.access.clone();
    access.url = wire.url();
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
        kube::Api::namespaced(access.client(), &site.namespace.name);
    let version = leases.get(LEASE).await.expect("passes").metadata.resource_version.expect("one");
    let parameters = kube::api::WatchParams::default().fields("metadata.name=billing");
    let events = leases.watch(&parameters, &version).await.expect("a watch");
    let mut events = std::pin::pin!(events);
    let late = Duration::from_millis(700);
    wire.http.add(Rule::on(Verb::Watch, Fault::LateEvents(late)));
    let begin = Instant::now();
    site.namespace
        .edit_lease(LEASE, |lease| {
            lease.metadata.labels.get_or_insert_default().insert("a".into(), "b".into());
        })
        .await;
    leases.get(LEASE).await.expect("not late");
    let event = events.try_next().await.expect("an event");
    assert!(matches!(event, Some(kube::api::WatchEvent::Modified(_))), "{event:?}");
    assert!(begin.elapsed() >= late);
}
