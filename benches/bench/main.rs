//! `make bench`: tenure and client-go side by side, on a real control plane whose etcd syncs its disk.
//! What each number means stands in docs/benchmarks.md.
//!
//! BENCH=quick (the default, about six minutes) or full. ONLY=handover,crowd,start,local,core,idle picks parts.
//! Results are written below target/bench/.

#[path = "../../tests/cluster/mod.rs"]
mod cluster;
mod contestants;
mod cost;
mod handover;
mod local;
#[path = "../../tests/support/renewing.rs"]
mod renewing;
mod report;

use std::fs;
use std::path::Path;
use std::time::Duration;

use cluster::Cluster;
use cluster::peer::PeerTimings;
use contestants::output;
use report::Report;

/// How much is measured.
pub(crate) struct Size {
    rounds: usize,
    crashes: usize,
    /// Hand-overs among many candidates.
    crowds: usize,
    /// Of the crash of a pod, whose length follows from them.
    crash: PeerTimings,
    idle: Duration,
    load: Duration,
}

impl Size {
    fn quick() -> Size {
        let crash = PeerTimings {
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(500),
        };
        let (idle, load) = (Duration::from_secs(60), Duration::from_secs(5));
        Size { rounds: 10, crashes: 10, crowds: 4, crash, idle, load }
    }

    fn full() -> Size {
        let (idle, load) = (Duration::from_secs(600), Duration::from_secs(20));
        let crash = PeerTimings::default();
        Size { rounds: 50, crashes: 10, crowds: 10, crash, idle, load }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo test --all-targets` runs benches too, with another word.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let name = std::env::var("BENCH").unwrap_or_else(|_| "quick".into());
    let size = match name.as_str() {
        "quick" => Size::quick(),
        "full" => Size::full(),
        other => panic!("BENCH={other}: quick or full"),
    };
    let only = std::env::var("ONLY").unwrap_or_default();
    let wanted = |part: &str| only.is_empty() || only.split(',').any(|it| it == part);
    let mut about = machine();
    let mut report = Report::default();
    let cluster = Cluster::start_durable().await;
    if wanted("handover") {
        handover::measure(&cluster, &size, &mut report).await;
    }
    if wanted("crowd") {
        cost::crowd(&cluster, &size, &mut report).await;
    }
    if wanted("start") {
        cost::start(&cluster, &size, &mut report).await;
        cost::sizes(&mut report);
    }
    if wanted("local") {
        local::measure(&cluster, &size, &mut report).await;
    }
    if wanted("core") {
        local::core(&mut report);
    }
    if wanted("idle") {
        cost::idle(&cluster, &size, &mut report).await;
    }
    about.push(("load at the end", load()));
    write(&name, &report, &about);
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

/// On what it was measured.
fn machine() -> Vec<(&'static str, String)> {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |text| text.trim_start_matches([' ', '\t', ':']));
    let versions = |file: &str, module: &str| {
        let line = file.lines().find(|line| line.contains(module));
        line.and_then(|line| line.split_whitespace().last()).unwrap_or_default().to_owned()
    };
    let kubernetes = include_str!("../../tests/cluster/binaries/go.mod");
    let peer = include_str!("../../tests/peer/go.mod");
    vec![
        ("processor", format!("{model}, {} cores", output("nproc", &[]))),
        ("kernel", output("uname", &["-sr"])),
        ("tenure", output(&contestants::binary().to_string_lossy(), &["--version"])),
        ("commit", output("git", &["describe", "--always", "--dirty", "--abbrev=12"])),
        ("kube-apiserver", versions(kubernetes, "k8s.io/kubernetes v")),
        ("client-go", versions(peer, "k8s.io/client-go v")),
        ("date", output("date", &["-u", "+%F %R"])),
        ("load at the start", load()),
    ]
}

fn write(name: &str, report: &Report, about: &[(&str, String)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    fs::create_dir_all(&folder).expect("a folder for the results");
    let mut text = String::new();
    for (key, value) in about {
        text.push_str(&format!("- {key}: {value}\n"));
    }
    text.push('\n');
    text.push_str(&report.markdown());
    println!("{text}");
    let json = serde_json::to_string_pretty(&report.json(about)).expect("JSON");
    for (kind, content) in [("md", text), ("json", json), ("svg", report.svg())] {
        let path = folder.join(format!("{name}.{kind}"));
        fs::write(&path, content).expect("write the results");
        println!("{}", path.display());
    }
}
