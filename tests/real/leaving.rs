//! The ordered way out, end to end.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tenure::client::Endpoint;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bed::{PATIENCE, ROOMY, SLOW, Sidecar, Site, eventually, led_by, tenure, within};
use crate::cluster::peer::PeerEvent;
use crate::cluster::process::{Process, dies_with_us};
use crate::judge::Watch;

/// Where nothing has to run out: L is 30 s.
const SOON: Duration = Duration::from_secs(5);

fn address(sidecar: &Sidecar) -> (String, u16) {
    let Endpoint::Http { host, port } = &sidecar.local else { panic!("not over TCP") };
    (host.clone(), *port)
}

/// A hold, kept open by this process. What it is told is read and forgotten.
async fn hold(sidecar: &Sidecar) -> tokio::task::JoinHandle<()> {
    let (host, port) = address(sidecar);
    let mut stream = TcpStream::connect((host.as_str(), port)).await.expect("connect");
    stream
        .write_all(b"GET /leader/events?hold=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("ask");
    let task = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    });
    eventually("the hold counts", async || sidecar.leader().await["holds"] == 1).await;
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_s2_sigterm_with_a_hold_open_on_the_real_api_server() {
    let site = Site::new("s2", ROOMY).await;
    let [mut a, b, c] = led_by(site.trio().await).await;
    let epoch = a.epoch().await;
    let app = hold(&a).await;
    let watch = Watch::start(&site).await;
    a.signal(Signal::TERM);
    eventually("it drains", async || a.state().await == "draining").await;
    let renewals = || {
        let commits = watch.commits();
        commits.iter().filter(|commit| commit.holder == a.identity()).count()
    };
    // Longer than a lease: 12 renewals at one each 500 ms.
    let before = renewals();
    eventually("renewed while the app finishes", async || {
        let body = a.leader().await;
        assert_eq!((&body["leader"], &body["state"]), (&json!(false), &json!("draining")));
        assert_eq!(body["epoch"], epoch, "to finish by");
        assert!(!b.leads().await && !c.leads().await);
        renewals() >= before + 12
    })
    .await;
    site.ledger.word(&a.identity(), epoch);
    app.abort();
    let next = async || b.leads().await || c.leads().await;
    within(ROOMY.lease_duration, "released, and led by another", next).await;
    assert_eq!(a.exit_code().await, Some(0));
    let ended = a.lines("term ended");
    assert_eq!(ended.len(), 1);
    assert_eq!((&ended[0]["released"], &ended[0]["epoch"]), (&json!(true), &json!(epoch)));
    assert_eq!(watch.assert_epochs_grow(), 2);
    site.ledger.assert_no_overlap(Vec::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_s3_without_the_apps_word_grants_lapse_first_on_the_real_api_server() {
    let site = Site::new("s3", ROOMY).await;
    let [mut a, b, c] = led_by(site.trio().await).await;
    let watch = Watch::start(&site).await;
    a.signal(Signal::TERM);
    let next = async || b.leads().await || c.leads().await;
    within(2 * ROOMY.lease_duration, "another leads", next).await;
    assert_eq!(a.exit_code().await, Some(0));
    let commits = watch.commits();
    let at = commits.iter().position(|commit| commit.holder.is_empty()).expect("released");
    // The app beside it had asked each 50 ms: its last deadline is the ledger's.
    let reigns = site.ledger.reigns();
    let granted = reigns.iter().find(|reign| reign.who == a.identity()).expect("it led").until;
    assert!(commits[at].at >= granted, "S7: {commits:#?} {reigns:?}");
    site.ledger.assert_no_overlap(Vec::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_s8_post_release_and_the_command_on_the_real_api_server() {
    let site = Site::new("s8", SLOW).await;
    let a = site.start("a").await;
    eventually("it leads", async || a.leads().await).await;
    let first = a.epoch().await;
    let (status, body) = a.give_up(&site, json!({})).await;
    assert_eq!((status, body), (200, json!({"released": true, "epoch": first})));
    // Nobody else wants it: back after the cool-down.
    within(SOON, "it leads again", async || a.leads().await).await;
    let second = a.epoch().await;
    assert!(second > first);
    let (status, _) = a.post("/release", json!({"epoch": first})).await;
    assert_eq!(status, 409, "S15: a late worker of an old term");
    assert_eq!(a.epoch().await, second);

    let b = site.start("b").await;
    eventually("it follows", async || b.sees().await == Some(a.identity())).await;
    let (status, body) = b.post("/release", json!({})).await;
    assert_eq!((status, body), (200, json!({"released": false, "held": false})));
    let url = |sidecar: &Sidecar| format!("--url={}", sidecar.local);
    site.ledger.word(&a.identity(), second);
    let epoch = format!("--epoch={second}");
    assert_eq!(run(&["release", "--final", &epoch, &url(&a)]).await.0, 0);
    within(SOON, "the standby leads", async || b.leads().await).await;
    assert_eq!(run(&["release", "--final", &url(&a)]).await.0, 0, "nothing is held");
    assert_eq!(run(&["status", &url(&a)]).await.0, 1);
    assert_eq!(run(&["status", &url(&b)]).await.0, 0);
    let (code, text) = run(&["wait", "--timeout=10s", &url(&b)]).await;
    assert_eq!((code, text.trim()), (0, b.epoch().await.to_string().as_str()));
    site.ledger.assert_no_overlap(Vec::new());
}

/// Exit code and standard output.
async fn run(arguments: &[&str]) -> (i32, String) {
    let command = tenure(arguments);
    let output = tokio::task::spawn_blocking(move || {
        let mut command: Command = command;
        command.output().expect("run tenure")
    });
    let output = tokio::time::timeout(PATIENCE, output).await.expect("it ends").expect("a thread");
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.code().expect("an exit code"), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once_on_the_real_api_server() {
    let site = Site::new("second", SLOW).await;
    let mut a = site.start_with("a", &["--drain-timeout", "60s"]).await;
    eventually("it leads", async || a.leads().await).await;
    a.signal(Signal::TERM);
    eventually("it drains", async || a.state().await == "draining").await;
    a.signal(Signal::TERM);
    assert_eq!(a.exit_code().await, Some(1));
    assert_eq!(site.holder().await, a.identity(), "nothing was released");
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_s9_the_app_is_killed_on_the_real_api_server() {
    let site = Site::new("s9", SLOW).await;
    let [a, b, c] = led_by(site.trio().await).await;
    let epoch = a.epoch().await;
    let (host, port) = address(&a);
    // The shell becomes cat, which has the only end of the connection.
    let script = format!(
        "exec 3<>/dev/tcp/{host}/{port}
         printf 'GET /leader/events?hold=true HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n' >&3
         exec cat <&3 3>&-"
    );
    let mut command = dies_with_us("bash".as_ref());
    command.args(["-c", &script]);
    let log = site.namespace.cluster.folder.join(format!("{}-app.log", site.namespace.name));
    let mut app = Process::start(command, &log).expect("start an app");
    eventually("the hold counts", async || a.leader().await["holds"] == 1).await;
    site.ledger.word(&a.identity(), epoch);
    app.kill();
    let next = async || b.leads().await || c.leads().await;
    within(SOON, "another leads", next).await;
    let ended = a.lines("term ended");
    assert_eq!((ended.len(), &ended[0]["reason"]), (1, &json!("app_exited")));
    assert_eq!(ended[0]["released"], true);
    site.ledger.assert_no_overlap(Vec::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_s10_a_killed_sidecar_leads_again_in_its_pod_on_the_real_api_server() {
    let site = Site::new("s10", SLOW).await;
    let watch = Watch::start(&site).await;
    let pod = site.bound_pod("a").await;
    let mut a = site.start_in(&pod, &[]).await;
    eventually("it leads", async || a.leads().await).await;
    let b = site.start("b").await;
    eventually("it follows", async || b.sees().await == Some(a.identity())).await;
    for round in 1..=3 {
        let epoch = a.epoch().await;
        a.kill();
        a = site.start_in(&pod, &[]).await;
        within(SOON, "it leads again", async || a.leads().await).await;
        assert!(a.epoch().await > epoch);
        assert_eq!(site.transitions().await, round + 1);
        assert!(!b.leads().await);
    }
    assert_eq!(watch.assert_epochs_grow(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_s11_client_go_takes_over_a_released_lease_on_the_real_api_server() {
    let site = Site::new("s11", SLOW).await;
    let a = site.start("a").await;
    eventually("it leads", async || a.leads().await).await;
    let peer = site.peer("k").await;
    let sees = |event: &PeerEvent| event.event == "new_leader" && event.leader == a.identity();
    peer.wait_for(PATIENCE, sees).await;
    let (status, _) = a.give_up(&site, json!({"final": true})).await;
    assert_eq!(status, 200);
    // It polls each half second, more or less; its own wait would be 30 s.
    peer.leads(SOON).await;
    assert_eq!(site.transitions().await, 2);
    eventually("it follows", async || a.sees().await.as_deref() == Some("k")).await;
}
