//! `tenure demo` as a process: what it shows, how it behaves, and that nothing of it stays.

#[cfg(all(feature = "demo-tui", target_os = "linux"))]
#[path = "demo/terminal.rs"]
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// No run of these takes this long.
const PATIENCE: Duration = Duration::from_secs(120);
/// Long enough for each kind of change once.
const ONE_ROUND: &str = "--duration=34s";

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command
        .arg("demo")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn run(arguments: &[&str]) -> Output {
    tokio::time::timeout(PATIENCE, demo(arguments).output()).await.unwrap().unwrap()
}

/// The events of a run with `--json`, the summary last.
fn events(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Reads lines until one has this event, which it returns.
async fn event(child: &mut Child, wanted: &str) -> Value {
    let out = child.stdout.as_mut().unwrap();
    let mut lines = BufReader::new(out).lines();
    let reading = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("ended before the event");
            let event: Value = serde_json::from_str(&line).expect(&line);
            if event["event"] == wanted {
                return event;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("no event {wanted}"))
}

/// The processes whose parent is this one.
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok()?.parse::<u32>().ok());
    processes.filter(|pid| stat(*pid).is_some_and(|(_, ppid)| ppid == parent)).collect()
}

/// State and parent of a process, none where there is none.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Dead, and at most not yet reaped by whoever inherited it.
fn is_gone(pid: u32) -> bool {
    stat(pid).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
}

async fn all_gone(pids: &[u32]) {
    let gone = async {
        while !pids.iter().all(|pid| is_gone(*pid)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(20), gone).await;
    assert!(within.is_ok(), "still running: {:?}", pids.iter().filter(|p| !is_gone(**p)));
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn invariant_s1_two_demos_at_once_show_a_change_of_each_kind_and_no_overlap() {
    let one = ["--json", ONE_ROUND, "--seed=1"];
    let other = ["--json", ONE_ROUND, "--seed=2", "--no-fence"];
    let (fenced, open) = tokio::join!(run(&one), run(&other));
    for output in [&fenced, &open] {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let events = events(output);
        let summary = events.last().unwrap();
        assert_eq!((&summary["event"], &summary["overlaps"]), (&"summary".into(), &0.into()));
        assert_eq!(summary["failures"], serde_json::json!([]), "{text}");
        for kind in ["release", "kill", "pause", "cut_off"] {
            let count = &summary["changes"][kind]["count"];
            assert!(count.as_u64().unwrap() >= 1, "no change by {kind}:\n{text}");
        }
        // L is 3 s: a hand-over that waited for any timer of the standby would take longer.
        let hand_over = summary["changes"]["release"]["median_ms"].as_u64().unwrap();
        let crash = summary["changes"]["kill"]["median_ms"].as_u64().unwrap();
        assert!(hand_over < crash, "{text}");
        let epochs: Vec<u64> = leaders(&events).map(|e| e["epoch"].as_u64().unwrap()).collect();
        assert!(epochs.len() > 4 && epochs.is_sorted_by(|a, b| a < b), "S2: {epochs:?}");
    }
    let (fenced, open) = (events(&fenced), events(&open));
    let number = |events: &[Value], name: &str| events.last().unwrap()[name].as_u64().unwrap();
    // The late write of the one that stood still.
    assert!(number(&fenced, "refused") >= 1 && fenced.iter().any(|e| e["event"] == "refused"));
    assert_eq!((number(&fenced, "stale_accepted"), number(&fenced, "lost")), (0, 0));
    // The same write without a fence.
    assert!(number(&open, "stale_accepted") >= 1 && number(&open, "lost") >= 1, "{open:?}");
    assert!(open.iter().any(|e| e["event"] == "damage"));
}

fn leaders(events: &[Value]) -> impl Iterator<Item = &Value> {
    events.iter().filter(|event| event["event"] == "leader")
}

#[tokio::test]
async fn without_a_terminal_it_is_lines_and_a_table_without_escapes() {
    let output = run(&["--duration=2s", "--seed=7"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("leads, epoch") && text.contains("seed 7"), "{text}");
    for row in ["release (hand-over)", "kill", "pause longer", "cut off", "two leaders at once: 0"]
    {
        assert!(text.contains(row), "no {row:?} in\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text:?}");
}

/// A reader that goes away, as `| head -1` does.
#[tokio::test]
async fn a_closed_pipe_is_no_crash() {
    let mut child = demo(&["--duration=2s"]).spawn().unwrap();
    drop(child.stdout.take());
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn ctrl_c_and_sigterm_end_everything_and_tell_what_was_seen() {
    for sent in [Signal::INT, Signal::TERM] {
        let mut child = demo(&["--json"]).spawn().unwrap();
        event(&mut child, "leader").await;
        let id = child.id().unwrap();
        let parts = children(id);
        assert_eq!(parts.len(), 6, "three sidecars and three apps");
        signal(id, sent);
        let status = tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
        all_gone(&parts).await;
        assert!(!directory_of(id).exists());
    }
}

fn directory_of(id: u32) -> PathBuf {
    std::env::temp_dir().join(format!("tenure-demo-{id}"))
}

/// Also those that stand still: a stopped process reads no pipe and handles no signal.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_crash_of_the_director_leaves_nothing_running() {
    let mut child = demo(&["--json"]).spawn().unwrap();
    event(&mut child, "pause").await;
    let id = child.id().unwrap();
    let parts = children(id);
    assert!(parts.iter().any(|pid| stat(*pid).is_some_and(|(state, _)| state == 'T')));
    signal(id, Signal::KILL);
    child.wait().await.unwrap();
    all_gone(&parts).await;
    // What a crash leaves behind is files, for nobody else to read.
    std::fs::remove_dir_all(directory_of(id)).unwrap();
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_told_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = format!("--listen={}", taken.local_addr().unwrap());
    for (flags, word) in [
        (&[&*in_use][..], &*in_use),
        (&["--listen=0.0.0.0:0"], "loopback"),
        (&["--lease-duration=1s"], "at least 2s"),
        (&["--seed=x"], "--seed=x"),
        (&["--write-kubeconfig=/nowhere/config"], "--write-kubeconfig"),
    ] {
        let output = run(flags).await;
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        assert!(text.lines().count() == 1 && text.contains(word), "{text}");
    }
}

#[tokio::test]
async fn api_only_serves_leases_and_writes_a_kubeconfig_that_replaces_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let flag = format!("--write-kubeconfig={}", path.display());
    let mut child = demo(&["--api-only", &flag]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    let server = first.strip_prefix("Lease API on ").expect(&first).to_owned();
    assert_eq!(server_of(&path), server);
    let made = tenure::client::Call {
        method: http::Method::POST,
        target: "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        body: r#"{"metadata":{"name":"mine"}}"#.into(),
        bearer: None,
    };
    let made = made.send(&server.parse().unwrap(), PATIENCE).await.unwrap();
    assert_eq!(made.status, 201, "{made:?}");
    // What kubectl asks before it asks for a Lease.
    for (target, kind) in [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/coordination.k8s.io/v1", "APIResourceList"),
    ] {
        let call = tenure::client::Call::get(target);
        let answer = call.send(&server.parse().unwrap(), PATIENCE).await.unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status.as_u16(), body["kind"].as_str()), (200, Some(kind)), "{target}");
    }
    signal(child.id().unwrap(), Signal::TERM);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    // Ours is written anew, another's is not.
    assert!(run(&["--api-only", "--duration=10ms", &flag]).await.status.success());
    assert_ne!(server_of(&path), server);
    std::fs::write(&path, "apiVersion: v1\n").unwrap();
    assert_eq!(run(&["--api-only", "--duration=10ms", &flag]).await.status.code(), Some(2));
}

fn server_of(kubeconfig: &Path) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).unwrap();
    value["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
}
