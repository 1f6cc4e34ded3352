//! The local API under load, and the core alone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::Size;
use crate::cluster::Cluster;
use crate::cluster::peer::PeerTimings;
use crate::contestants::{Race, Tenure, now_ns, output};
use crate::renewing::Leader;
use crate::report::{MS, Report, TENURE};

/// Clients of one event stream.
const CROWD: usize = 1_000;
/// Requests a second at a fixed rate.
const RATE: u32 = 10_000;
/// Clients that share it. Few, because each is a thread: a late wake-up counts as the server's.
const CLIENTS: u32 = 4;

pub(crate) async fn measure(cluster: &Cluster, size: &Size, report: &mut Report) {
    let mut race = Race::new(cluster.namespace("local").await, PeerTimings::default()).await;
    let access = race.access("candidate").await;
    let one = race.tenure(&access, "one");
    race.next_leader(None).await;
    let at = one.tcp();
    pin(&one);
    flat_out(&at, size, report);
    let steady = size.load;
    let rate = tokio::task::spawn_blocking(move || fixed_rate(&at, steady));
    report.add("GET /leader at 10,000 a second", TENURE, MS, rate.await.expect("it ran"));
    fan_out(&one, report).await;
}

/// One core for the server; whoever asks gets the others.
fn pin(one: &Tenure) {
    output("taskset", &["-cp", "0", &one.process.pid().to_string()]);
}

fn flat_out(at: &str, size: &Size, report: &mut Report) {
    const NAMES: [(&str, &str, &str); 3] = [
        ("1", "GET /leader, 1 connection", "GET /leader, 1 connection: p99"),
        ("16", "GET /leader, 16 connections", "GET /leader, 16 connections: p99"),
        ("256", "GET /leader, 256 connections", "GET /leader, 256 connections: p99"),
    ];
    let seconds = format!("-d{}s", size.load.as_secs());
    let url = format!("http://{at}/leader");
    for (connections, rate, p99) in NAMES {
        let arguments =
            ["-c", "1-63", "wrk", "-t1", "-c", connections, &seconds, "--latency", &url];
        let text = output("taskset", &arguments);
        let field = |label: &str| {
            let line = text.lines().find(|line| line.trim().starts_with(label));
            let value = line.and_then(|line| line.split_whitespace().nth(1));
            value.unwrap_or_else(|| panic!("no {label} in what wrk says:\n{text}")).to_owned()
        };
        assert!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "{text}");
        report.one(rate, TENURE, "1/s", field("Requests/sec:").parse().expect("a rate"));
        report.one(p99, TENURE, MS, millis(&field("99%")));
    }
}

/// `812.00us`, `1.20ms`, `1.05s`
fn millis(text: &str) -> f64 {
    for (unit, factor) in [("us", 0.001), ("ms", 1.0), ("s", 1_000.0)] {
        if let Some(number) = text.strip_suffix(unit).and_then(|text| text.parse::<f64>().ok()) {
            return number * factor;
        }
    }
    panic!("{text} is no time")
}

/// Counted from when each request was due, so that a late one delays nobody unseen.
fn fixed_rate(at: &str, span: Duration) -> Vec<f64> {
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let at = at.to_owned();
            thread::spawn(move || one_client(&at, client, span))
        })
        .collect();
    clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
}

fn one_client(at: &str, client: u32, span: Duration) -> Vec<f64> {
    let every = Duration::from_secs(1) * CLIENTS / RATE;
    let mut stream = TcpStream::connect(at).expect("connect");
    stream.set_nodelay(true).expect("no delay");
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let begin = Instant::now() + every / CLIENTS * client;
    let count = span.as_nanos() / every.as_nanos();
    let mut body = Vec::new();
    (0..u32::try_from(count).expect("not that many"))
        .map(|number| {
            let due = begin + every * number;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            stream.write_all(b"GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().expect("a length");
                }
                line.clear();
            }
            body.resize(length, 0);
            reader.read_exact(&mut body).expect("a body");
            due.elapsed().as_secs_f64() * 1e3
        })
        .collect()
}

/// A change is told to everybody who reads the stream.
async fn fan_out(one: &Tenure, report: &mut Report) {
    let at = one.tcp();
    let mut clients = Vec::new();
    for _ in 0..CROWD {
        let mut stream = tokio::net::TcpStream::connect(&at).await.expect("connect");
        let request = b"GET /leader/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        clients.push(tokio::spawn(async move {
            let (mut text, mut buffer) = (Vec::new(), [0_u8; 4096]);
            loop {
                let read = stream.read(&mut buffer).await.expect("a stream");
                text.extend_from_slice(&buffer[..read]);
                if memchr(&text, b"\"leader\":false") {
                    return now_ns();
                }
                text.drain(..text.len().saturating_sub(64));
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let begin = now_ns();
    one.release().await;
    let mut told = Vec::new();
    for client in clients {
        told.push((client.await.expect("told") - begin) as f64 / 1e6);
    }
    report.add("event to each of 1,000 clients", TENURE, MS, told);
}

fn memchr(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

pub(crate) fn core(report: &mut Report) {
    const RENEWALS: u64 = 200_000;
    let mut leader = Leader::new();
    let (begin, before) = (Instant::now(), leader.events);
    let allocated = allocation_counter::measure(|| {
        for _ in 0..RENEWALS {
            leader.renew();
        }
    });
    let events = (leader.events - before) as f64;
    report.one("core alone: events", TENURE, "1/s", events / begin.elapsed().as_secs_f64());
    let each = allocated.count_total as f64 / RENEWALS as f64;
    report.one("core alone: heap allocations of a renewal", TENURE, "", each);
}
