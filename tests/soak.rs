//! One sidecar leads, loses, is cut off and comes back, while clients of its event stream come and go:
//! tasks, descriptors and memory stay flat. A short run belongs to every test run; `make soak
//! MINUTES=60` does an hour with a thousand clients.

#[path = "cluster/proxy.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests on a real API server")]
mod proxy;
#[path = "process/sidecar.rs"]
#[allow(dead_code, reason = "shared with the tests of the sidecar as a process")]
mod sidecar;

use std::time::{Duration, Instant};

use proxy::{Flow, Proxy};
use serde_json::json;
use sidecar::{Pods, Sidecar, Timing, eventually};
use tenure::client::Endpoint;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

const TIMING: Timing = ["2s", "1600ms", "400ms"];
/// How long a client stays, at most.
const STAY: Duration = Duration::from_secs(5);
/// What one half of the time may take more than the other.
const SPARE_DESCRIPTORS: usize = 16;
const SPARE_TASKS: u64 = 16;
const SPARE_KIB: u64 = 4096;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Opens the stream, reads a while, leaves without a word; again and again. Some hold.
async fn client(endpoint: Endpoint, place: u64) {
    let Endpoint::Unix(socket) = endpoint else { panic!("a Unix socket") };
    for turn in 1.. {
        // Spread, and the same in each run.
        let stay = STAY.mul_f64(((place * 7 + turn * 13) % 100 + 1) as f64 / 100.0);
        let visit = async {
            let mut io = UnixStream::connect(&socket).await?;
            io.write_all(b"GET /leader/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
            let mut buffer = [0; 4096];
            while io.read(&mut buffer).await? > 0 {}
            std::io::Result::Ok(())
        };
        let _ = tokio::time::timeout(stay, visit).await;
    }
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    tasks: u64,
    descriptors: usize,
    resident_kib: u64,
}

fn sample(of: &Sidecar) -> Sample {
    let usage = of.usage();
    assert_eq!(usage.threads, 1, "{usage:?}");
    let log = of.log();
    let stand = log.lines().rev().find(|line| line.contains("\"did\":\"stand\""));
    let stand: serde_json::Value =
        serde_json::from_str(stand.expect("a history")).expect("a whole line");
    Sample {
        tasks: stand["tasks"].as_u64().expect("a number"),
        descriptors: usage.descriptors,
        resident_kib: usage.resident_kib,
    }
}

/// The app gives up, the network goes, connections die unseen or are reset: `a` leads again after each.
async fn turn(a: &Sidecar, b: &Sidecar, proxy: &Proxy) {
    let back = async || {
        if b.leads().await {
            b.post("/release", json!({"cool_down": "1500ms"})).await;
        }
        a.leads().await
    };
    eventually(back).await;
    a.post("/release", json!({"cool_down": "1s"})).await;
    eventually(back).await;
    proxy.set(Flow::Nothing);
    eventually(async || b.leads().await).await;
    proxy.set(Flow::Both);
    eventually(back).await;
    proxy.strand();
    proxy.set(Flow::Reset);
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.set(Flow::Both);
    eventually(back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_r10_clients_that_come_and_go_and_terms_lost_leave_all_flat() {
    let seconds = number("SOAK_SECONDS", 25);
    let clients = number("SOAK_CLIENTS", 100);
    let mut pods = Pods::with_timing(TIMING).await;
    pods.make_free();
    let b = pods.start("b").await;
    let proxy = Proxy::start(pods.port);
    pods.port = proxy.port;
    let history = ["--log", "info,tenure::history=trace"];
    let a = pods.start_with("a", &history).await;
    let mut visitors = JoinSet::new();
    for place in 0..clients {
        visitors.spawn(client(a.endpoint.clone(), place));
    }
    let begin = Instant::now();
    // Buffers and pools grow to what they need.
    turn(&a, &b, &proxy).await;
    turn(&a, &b, &proxy).await;
    let mut samples = vec![sample(&a)];
    let mut turns = 2;
    while begin.elapsed() < Duration::from_secs(seconds) || samples.len() < 4 {
        turn(&a, &b, &proxy).await;
        turns += 1;
        samples.push(sample(&a));
    }
    let (early, late) = samples.split_at(samples.len() / 2);
    // What is lost for good shows in the middle; clients that come while others go, only in the peaks.
    let middle_and_most = |of: &[Sample], what: fn(&Sample) -> u64| {
        let mut values: Vec<u64> = of.iter().map(what).collect();
        values.sort_unstable();
        (values[values.len() / 2], values[values.len() - 1])
    };
    println!("{turns} turns, {clients} clients, {} samples", samples.len());
    for (name, what, spare) in [
        ("tasks", (|s| s.tasks) as fn(&Sample) -> u64, SPARE_TASKS),
        ("descriptors", |s| s.descriptors as u64, SPARE_DESCRIPTORS as u64),
        ("resident KiB", |s| s.resident_kib, SPARE_KIB),
    ] {
        let [first, last] = [early, late].map(|half| middle_and_most(half, what));
        println!("{name}: median and most {first:?} in the first half, {last:?} in the second");
        assert!(last.0 <= first.0 + spare, "{name}: {samples:?}");
    }
    visitors.shutdown().await;
    let gone = async || {
        let now = sample(&a);
        now.descriptors < 40 && now.tasks < 40
    };
    eventually(gone).await;
    println!("without clients: {:?}", sample(&a));
}
