//! The real binary, on the embedded Lease API behind a socket: elections, signals, exit codes.

#[path = "process/crowd.rs"]
mod crowd;
#[path = "process/flood.rs"]
mod flood;
#[path = "cluster/proxy.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests on a real API server")]
mod proxy;
#[path = "process/sidecar.rs"]
mod sidecar;

use std::io::{self, Write as _};
use std::time::Duration;

use flood::Flood;
use proxy::{Flow, Proxy};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sidecar::{LEASE, NAMESPACE, PATIENCE, Pods, Sidecar, eventually, run};
use tenure::client::{Call, Endpoint};
use tenure::embedded::{Effect, Fault, Verb};

/// L where it has to pass.
const L: Duration = Duration::from_secs(2);
const SHORT: sidecar::Timing = ["2s", "1600ms", "400ms"];

/// Waits until one leads, and tells its place. Never are there two.
async fn one_leader(sidecars: &[Sidecar]) -> usize {
    let mut leaders = Vec::new();
    eventually(async || {
        leaders.clear();
        for (place, sidecar) in sidecars.iter().enumerate() {
            if sidecar.leads().await {
                leaders.push(place);
            }
        }
        assert!(leaders.len() <= 1, "two leaders: {leaders:?}");
        leaders.len() == 1
    })
    .await;
    leaders[0]
}

#[tokio::test]
async fn scenario_s1_three_sidecars_elect_one_and_sigterm_hands_over() {
    let pods = Pods::new().await;
    pods.make_free();
    let mut sidecars = Vec::new();
    for name in ["a", "b", "c"] {
        sidecars.push(pods.start(name).await);
    }
    let leader = one_leader(&sidecars).await;
    let first = sidecars.remove(leader);
    let epoch = first.leader().await.epoch.unwrap();
    for other in &sidecars {
        let knows = async || other.leader().await.holder.as_deref() == Some(first.identity());
        eventually(knows).await;
    }
    let (status, released) = first.post("/release", json!({"epoch": epoch, "final": true})).await;
    assert_eq!((status, &released["released"]), (200, &json!(true)), "{}", first.log());
    let line = first.lines("giving leadership up").remove(0);
    assert!(line["waits_for"].as_str().unwrap().starts_with("nothing"), "{line}");
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(0));
    let leader = one_leader(&sidecars).await;
    let second = sidecars.remove(leader);
    assert!(second.leader().await.epoch.unwrap() > epoch);
    // Nobody says that the work has stopped: released when the last grant has lapsed.
    second.signal(Signal::TERM);
    assert_eq!(second.exit_code().await, Some(0));
    let third = sidecars.remove(0);
    eventually(async || third.leads().await).await;
    third.signal(Signal::INT);
    assert_eq!(third.exit_code().await, Some(0));
    assert_eq!(pods.holder(), "", "released");
}

#[tokio::test]
async fn a_second_signal_ends_at_once_with_1_and_releases_nothing() {
    let pods = Pods::new().await;
    pods.make_free();
    let a = pods.start_with("a", &["--drain-timeout", "60s"]).await;
    eventually(async || a.leads().await).await;
    a.signal(Signal::TERM);
    eventually(async || a.leader().await.state == "draining").await;
    let line = a.lines("giving leadership up").remove(0);
    assert_eq!((&line["waits_for"], &line["at_most"]), (&json!("the app's word"), &json!("60s")));
    let identity = a.identity().to_owned();
    a.signal(Signal::TERM);
    assert_eq!(a.exit_code().await, Some(1));
    assert_eq!(pods.holder(), identity);
}

#[tokio::test]
async fn scenario_s6_the_api_hangs_at_shutdown_and_the_process_still_ends() {
    let pods = Pods::new().await;
    pods.make_free();
    let a = pods.start("a").await;
    eventually(async || a.leads().await).await;
    pods.api.cut_off("a");
    a.signal(Signal::TERM);
    eventually(async || !a.lines("giving leadership up").is_empty()).await;
    let line = a.lines("giving leadership up").remove(0);
    assert!(line["waits_for"].as_str().unwrap().contains("the end of what it was granted"));
    assert_eq!(a.exit_code().await, Some(0), "an ordered end, though nothing was released");
}

#[tokio::test]
async fn scenario_a9_stopped_for_two_leases_with_requests_waiting_none_is_told_leader() {
    let pods = Pods::with_timing(SHORT).await;
    pods.make_free();
    let a = pods.start("a").await;
    eventually(async || a.leads().await).await;
    let b = pods.start("b").await;
    eventually(async || b.leader().await.holder.is_some()).await;
    a.signal(Signal::STOP);
    let waiting: Vec<_> = (0..100)
        .map(|number| {
            let endpoint = a.endpoint.clone();
            let target = ["/leader", "/is-leader", "/leader?wait=1ms", "/"][number % 4];
            tokio::spawn(async move {
                let answer = Call::get(target).send(&endpoint, 20 * L).await.unwrap();
                (target, String::from_utf8(answer.body.to_vec()).unwrap())
            })
        })
        .collect();
    // The scenario itself: two lease durations of standstill, in which B takes over.
    tokio::time::sleep(2 * L).await;
    eventually(async || b.leads().await).await;
    a.signal(Signal::CONT);
    for answer in waiting {
        let (target, body) = answer.await.unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        match target {
            "/" => assert_ne!(body["name"], "a"),
            _ => assert_eq!(body["leader"], false, "{target}: {body}"),
        }
    }
    assert!(b.leads().await);
    eventually(async || a.leader().await.holder.as_deref() == Some(b.identity())).await;
}

#[tokio::test]
async fn scenario_s10_killed_and_restarted_in_the_same_pod_it_leads_again_with_a_new_epoch() {
    let pods = Pods::new().await;
    pods.make_free();
    let a = pods.start("a").await;
    eventually(async || a.leads().await).await;
    let epoch = a.leader().await.epoch.unwrap();
    let b = pods.start("b").await;
    a.signal(Signal::KILL);
    assert_eq!(a.exit_code().await, None);
    let again = pods.start("a").await;
    eventually(async || again.leads().await).await;
    assert!(again.leader().await.epoch.unwrap() > epoch);
    assert!(!b.leads().await);
}

#[tokio::test]
async fn scenario_e5_of_two_processes_with_one_identity_one_leads_and_the_other_says_so() {
    let pods = Pods::new().await;
    pods.make_free();
    let a = pods.start("a").await;
    eventually(async || a.leads().await).await;
    let copy = pods.start_as("a", "copy", &[]).await;
    eventually(async || copy.leader().await.reason == "identity_conflict").await;
    assert!(a.leads().await && !copy.leads().await);
    assert_eq!(copy.lines("another living process").len(), 1, "{}", copy.log());
    a.signal(Signal::KILL);
    eventually(async || copy.leads().await).await;
}

#[tokio::test]
async fn scenario_c3_a_missing_right_is_named_by_log_metric_and_readiness() {
    let pods = Pods::new().await;
    pods.make_free();
    let a = pods.start("a").await;
    eventually(async || a.admin("/readyz").await.0 == 200).await;
    pods.api.deny("b", "leases", "update");
    let b = pods.start("b").await;
    eventually(async || b.lines("access denied").len() == 1).await;
    let line = b.lines("access denied").remove(0);
    assert_eq!((&line["verb"], &line["namespace"]), (&json!("update"), &json!(NAMESPACE)));
    assert_eq!(line["resource"], "leases.coordination.k8s.io");
    let (status, text) = b.admin("/readyz").await;
    assert_eq!(status, 503, "{text}");
    for part in ["update", "leases.coordination.k8s.io/billing", NAMESPACE] {
        assert!(text.contains(part), "{text}");
    }
    let denied = |verb: &str, value: u8| {
        format!(
            "access_denied{{lease=\"{LEASE}\",lease_namespace=\"{NAMESPACE}\",verb=\"{verb}\"}} {value}"
        )
    };
    let metrics = b.admin("/metrics").await.1;
    assert!(metrics.contains(&denied("put", 1)) && metrics.contains(&denied("get", 0)));
    pods.api.allow_all("b");
    eventually(async || b.admin("/readyz").await.0 == 200).await;
    assert!(b.admin("/metrics").await.1.contains(&denied("put", 0)));
}

#[tokio::test]
async fn scenario_r8_a_rotated_token_costs_at_most_one_attempt() {
    let pods = Pods::new().await;
    pods.make_free();
    pods.api.map_token("new", "a");
    let a = pods.start("a").await;
    eventually(async || a.leads().await).await;
    let epoch = a.leader().await.epoch;
    std::fs::write(pods.token_file("a"), "new").unwrap();
    pods.api.revoke_token("a");
    pods.api.clear_requests();
    pods.api.until(|api| api.count(Some("a"), Some(Verb::Put)) >= 4).await;
    let puts = pods.api.requests().into_iter().filter(|request| request.verb == Verb::Put);
    let refused = puts.filter(|request| request.status == Some(401)).count();
    assert_eq!(refused, 1);
    assert_eq!(a.leader().await.epoch, epoch);
}

#[tokio::test]
async fn scenario_r2_a_swallowed_connection_is_left_for_a_fresh_one() {
    let mut pods = Pods::new().await;
    pods.make_free();
    let proxy = Proxy::start(pods.port);
    pods.port = proxy.port;
    let a = pods.start("a").await;
    eventually(async || a.leads().await).await;
    let epoch = a.leader().await.epoch;
    pods.api.clear_requests();
    pods.api.until(|api| api.count(Some("a"), Some(Verb::Put)) >= 2).await;
    proxy.strand();
    let open = proxy.connections();
    pods.api.clear_requests();
    pods.api.until(|api| api.count(Some("a"), Some(Verb::Put)) >= 10).await;
    assert_eq!(a.leader().await.epoch, epoch, "{}", a.log());
    assert!(proxy.connections() > open);
    // The watch was stranded too.
    pods.api.until(|api| api.count(Some("a"), Some(Verb::Watch)) >= 1).await;
}

#[tokio::test]
async fn scenario_r5_after_a_storm_of_resets_the_next_attempt_works() {
    let mut pods = Pods::new().await;
    pods.make_free();
    let proxy = Proxy::start(pods.port);
    pods.port = proxy.port;
    let a = pods.start("a").await;
    eventually(async || a.leads().await).await;
    let epoch = a.leader().await.epoch;
    let before = proxy.connections();
    proxy.set(Flow::Reset);
    eventually(async || proxy.connections() >= before + 4).await;
    proxy.set(Flow::Both);
    pods.api.clear_requests();
    pods.api.until(|api| api.count(Some("a"), Some(Verb::Put)) >= 3).await;
    assert_eq!(a.leader().await.epoch, epoch, "{}", a.log());
    assert_eq!(a.lines("renewal failed").len(), 1, "one line for the round: {}", a.log());
    assert_eq!(a.lines("renewing again").len(), 1, "{}", a.log());
}

#[tokio::test]
async fn scenario_r10_terms_that_come_and_go_leave_descriptors_and_memory_flat() {
    let pods = Pods::new().await;
    pods.make_free();
    let a = pods.start("a").await;
    let cycles = async |count: u32| {
        for _ in 0..count {
            eventually(async || a.leads().await).await;
            let (status, body) = a.post("/release", json!({"cool_down": "0s"})).await;
            assert_eq!((status, &body["released"]), (200, &json!(true)), "{body}");
        }
        eventually(async || a.leads().await).await;
        a.usage()
    };
    // A term of one process takes a second, the least between two renewTimes that count. By the
    // first few, buffers and pools have grown to what they need.
    let warm = cycles(5).await;
    let end = cycles(20).await;
    assert_eq!((warm.threads, end.threads), (1, 1));
    assert!(end.descriptors <= warm.descriptors + 2, "{warm:?} {end:?}");
    assert!(end.resident_kib <= warm.resident_kib + 1024, "{warm:?} {end:?}");
}

#[tokio::test]
async fn scenario_t9_an_api_server_that_comes_later_is_waited_for_and_told_of_once() {
    let mut pods = Pods::new().await;
    pods.make_free();
    pods.stop_server().await;
    let a = pods.start("a").await;
    let body = a.leader().await;
    assert_eq!((body.leader, &*body.state, body.holder), (false, "starting", None));
    assert_eq!(a.admin("/readyz").await.0, 503);
    assert_eq!(a.admin("/livez").await.0, 200);
    tokio::time::sleep(L).await;
    let lines = a.lines("the Lease cannot be read");
    assert_eq!(lines.len(), 1, "{}", a.log());
    assert!(lines[0]["error"].as_str().unwrap().contains("refused"), "{}", lines[0]);
    let broken = pods.api.fault(Fault::on(Verb::Get, Effect::status(500)));
    pods.start_server().await;
    pods.api.until(|api| api.hits(broken) >= 3).await;
    let lines = a.lines("the Lease cannot be read");
    assert_eq!(lines.len(), 2, "another cause, once: {}", a.log());
    assert_eq!(lines[1]["status"], 500);
    pods.api.clear_fault(broken);
    eventually(async || a.leads().await).await;
    assert_eq!(a.lines("can be read again").len(), 1);
    eventually(async || a.admin("/readyz").await.0 == 200).await;
}

/// Heads without end: interim answers, and header lines.
#[tokio::test]
async fn an_answer_that_never_begins_is_told_of_and_stops_nothing_else() {
    for (begin, piece, why) in [
        ("", "HTTP/1.1 100 Continue\r\n\r\n", "no answer"),
        ("HTTP/1.1 200 OK\r\n", "X-Padding: 0123456789\r\n", "too large"),
    ] {
        let mut pods = Pods::with_timing(SHORT).await;
        pods.make_free();
        pods.stop_server().await;
        let flood = Flood::new(pods.address(), begin, piece);
        let a = pods.start("a").await;
        eventually(async || {
            assert_eq!(a.leader().await.state, "starting");
            assert_eq!(a.admin("/livez").await.0, 200);
            !a.lines("the Lease cannot be read").is_empty()
        })
        .await;
        tokio::time::sleep(2 * L).await;
        let lines = a.lines("the Lease cannot be read");
        assert!(lines.len() == 1 && lines[0]["error"].as_str().unwrap().contains(why), "{lines:?}");
        drop(flood);
        pods.start_server().await;
        eventually(async || a.leads().await).await;
        assert_eq!(a.lines("can be read again").len(), 1);
    }
}

#[tokio::test]
async fn scenario_r9_events_tell_of_changes_and_hold_up_nothing() {
    let pods = Pods::new().await;
    pods.make_free();
    let silent = pods.api.fault(Fault::on(Verb::Event, Effect::SilentBefore).caller("a"));
    let a = pods.start("a").await;
    eventually(async || a.leads().await).await;
    let epoch = a.leader().await.epoch;
    pods.api.until(|api| api.hits(silent) == 1).await;
    tokio::time::sleep(2 * L).await;
    assert_eq!(a.leader().await.epoch, epoch);
    let b = pods.start("b").await;
    a.signal(Signal::TERM);
    assert_eq!(a.exit_code().await, Some(0));
    eventually(async || b.leads().await).await;
    pods.api.until(|api| api.events().len() == 1).await;
    let event = pods.api.events().remove(0);
    assert_eq!(event["reason"], "LeaderElected");
    assert_eq!(event["related"]["name"], "b");
    let lease = pods.api.lease(NAMESPACE, LEASE).unwrap();
    assert_eq!(event["regarding"]["uid"], lease["metadata"]["uid"]);
}

#[tokio::test]
async fn the_dev_mode_leads_or_follows_without_a_cluster_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for (role, leads) in [("--dev", true), ("--dev=follower", false)] {
        let socket = folder.path().join(role);
        let socket = socket.to_str().unwrap();
        let arguments = [
            "sidecar",
            role,
            "--lease-name",
            LEASE,
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            "--socket",
            socket,
        ];
        let _running = sidecar::tenure(&arguments, &[]).spawn().unwrap();
        let endpoint = format!("unix:{socket}").parse().unwrap();
        let mut body = serde_json::Value::Null;
        eventually(async || {
            if let Ok(answer) = Call::get("/leader").send(&endpoint, L).await {
                body = serde_json::from_slice(&answer.body).unwrap();
            }
            body["leader"] == json!(leads) && body["holder"].is_string()
        })
        .await;
        assert_eq!(body["dev"], true);
        assert_eq!(body["holder"] == body["identity"], leads);
    }
}

#[tokio::test]
async fn scenario_c2_wrong_usage_is_2_and_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let dev = ["sidecar", "--dev", "--lease-name", LEASE];
    let other = ["--admin-listen", "127.0.0.1:0", "--listen", &taken];
    let port = run(&[&dev[..], &other[..]].concat(), &[]).await;
    let cluster = run(&dev, &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]).await;
    for (output, word) in [(port, &*taken), (cluster, "KUBERNETES_SERVICE_HOST")] {
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.lines().count() == 1 && text.contains(word), "{text}");
    }
}

/// A pipe that takes nothing more, and its reader, which keeps it open and never reads.
fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(b"\n").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

#[tokio::test]
async fn a_log_that_nobody_reads_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("sock");
    let flags = ["sidecar", "--dev", "--lease-name=deaf", "--log=trace", "--listen=127.0.0.1:0"];
    let mut arguments = flags.to_vec();
    arguments.extend(["--admin-listen=127.0.0.1:0", "--socket", socket.to_str().unwrap()]);
    let (_reader, writer) = full_pipe();
    let mut child = sidecar::tenure(&arguments, &[]).stderr(writer).spawn().unwrap();
    let endpoint = Endpoint::Unix(socket);
    let leads = async || {
        let answer = Call::get("/is-leader?max_valid=1ms").send(&endpoint, PATIENCE).await;
        answer.is_ok_and(|answer| answer.status.is_success())
    };
    eventually(leads).await;
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it does not end");
    assert_eq!(ended.unwrap().code(), Some(0));
}
