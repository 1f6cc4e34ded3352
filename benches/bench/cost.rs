//! What it costs: requests to the API server, memory, processor time, size; and how soon it is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tenure::client::{Call, Endpoint};

use crate::Size;
use crate::cluster::binaries::Program;
use crate::cluster::peer::PeerTimings;
use crate::cluster::{Cluster, Namespace, Peer, Request};
use crate::contestants::{LIMIT, Race, Tenure, Usage, binary, now_ns, output, usage};
use crate::report::{CLIENT_GO, MS, Report, TENURE};

/// Candidates that wait for one Lease.
const CROWD: usize = 50;

/// Three of each, left alone.
pub(crate) async fn idle(cluster: &Cluster, size: &Size, report: &mut Report) {
    let timings = PeerTimings::default();
    let mut race = Race::new(cluster.namespace("idle").await, timings).await;
    let mut ours = Vec::new();
    for name in ["leader", "standby", "standby-2"] {
        let access = race.access(name).await;
        ours.push(race.tenure(&access, name));
        if ours.len() == 1 {
            race.next_leader(None).await;
        } else {
            ours[ours.len() - 1].follows().await;
        }
    }
    let mut go = Race::new(cluster.namespace("idle-go").await, timings).await;
    let mut theirs: Vec<(Peer, String)> = Vec::new();
    for name in ["leader", "standby", "standby-2"] {
        let access = go.access(name).await;
        let peer = go.client_go(&access, name);
        peer.wait_for(LIMIT, |event| event.event == "new_leader").await;
        theirs.push((peer, access.user));
    }
    let pids = |index: usize| [ours[index].process.pid(), theirs[index].0.pid()];
    let users = |index: usize| [&ours[index].access.user, &theirs[index].1];
    // What belongs to the start is over.
    tokio::time::sleep(timings.retry_period * 2).await;
    let before = [0, 1].map(|index| pids(index).map(usage));
    let asked = [0, 1].map(|index| users(index).map(|user| requests(cluster, user)));
    tokio::time::sleep(size.idle).await;
    let minutes = size.idle.as_secs_f64() / 60.0;
    let ticks = output("getconf", &["CLK_TCK"]).parse::<f64>().unwrap_or(100.0);
    const NAMES: [[&str; 4]; 2] = [
        ["leader: requests", "leader: resident", "leader: private", "leader: processor time"],
        ["standby: requests", "standby: resident", "standby: private", "standby: processor time"],
    ];
    for (role, [count, resident, private, cpu]) in NAMES.into_iter().enumerate() {
        for (side, who) in [TENURE, CLIENT_GO].into_iter().enumerate() {
            let now: Usage = usage(pids(role)[side]);
            let all = requests(cluster, users(role)[side]);
            let mut verbs: BTreeMap<&str, usize> = BTreeMap::new();
            for request in &all[asked[role][side].len()..] {
                *verbs.entry(&request.verb).or_default() += 1;
            }
            eprintln!("{who}, {count} in {minutes} min: {verbs:?}");
            let sum = verbs.values().sum::<usize>() as f64;
            report.one(count, who, "1/min", sum / minutes);
            report.one(resident, who, "MiB", now.resident_kib as f64 / 1024.0);
            report.one(private, who, "MiB", now.private_kib as f64 / 1024.0);
            let spent = (now.cpu_ticks - before[role][side].cpu_ticks) as f64 / ticks;
            report.one(cpu, who, "s/h", spent * 60.0 / minutes);
        }
    }
}

fn requests(cluster: &Cluster, user: &str) -> Vec<Request> {
    cluster.audit().of_user(user).0
}

const TOLD: &str = "50 candidates, release → next leader";
const COUNT: &str = "50 candidates: requests for one hand-over";
const CALM: &str = "50 candidates: last of these after";

/// A Lease is freed for which fifty wait, again and again.
pub(crate) async fn crowd(cluster: &Cluster, size: &Size, report: &mut Report) {
    for (who, spans) in [
        (TENURE, crowd_of_tenure(cluster, size).await),
        (CLIENT_GO, crowd_of_client_go(cluster, size).await),
    ] {
        let all = |value: fn(&HandOver) -> f64| spans.iter().map(value).collect();
        report.add(TOLD, who, MS, all(|it| it.told_ms));
        report.add(COUNT, who, "requests", all(|it| it.requests as f64));
        report.add(CALM, who, MS, all(|it| it.calm_ms));
    }
}

struct HandOver {
    told_ms: f64,
    requests: usize,
    calm_ms: f64,
}

async fn crowd_of_tenure(cluster: &Cluster, size: &Size) -> Vec<HandOver> {
    let mut race = Race::new(cluster.namespace("crowd").await, PeerTimings::default()).await;
    let access = race.access("candidate").await;
    let all: Vec<Tenure> = (0..=CROWD).map(|n| race.tenure(&access, &format!("pod-{n}"))).collect();
    let mut leader = race.next_leader(None).await.name;
    let mut spans = Vec::new();
    for _ in 0..size.crowds {
        // He who led before is back from his cool-down, too.
        for other in all.iter().filter(|other| other.name != leader) {
            other.follows().await;
        }
        race.forget();
        let released = all.iter().find(|it| it.name == leader).expect("one of them");
        let (begin, wall) = (now_ns(), Timestamp::now());
        released.release().await;
        let told = race.next_leader(Some(&leader)).await;
        // Before the new leader's first renewal.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let (requests, calm_ms) = since(&race.namespace, wall);
        spans.push(HandOver { told_ms: (told.at_ns - begin) as f64 / 1e6, requests, calm_ms });
        leader = told.name;
    }
    spans
}

async fn crowd_of_client_go(cluster: &Cluster, size: &Size) -> Vec<HandOver> {
    let mut race = Race::new(cluster.namespace("crowd-go").await, PeerTimings::default()).await;
    let access = race.access("candidate").await;
    let mut all: Vec<Peer> = Vec::new();
    let mut spans = Vec::new();
    for round in 0..size.crowds {
        // As many as before: another one in the place of him who went.
        while all.len() <= CROWD {
            all.push(race.client_go(&access, &format!("pod-{round}-{}", all.len())));
        }
        for one in &all {
            one.wait_for(LIMIT, |event| event.event == "new_leader").await;
        }
        tokio::time::sleep(PeerTimings::default().retry_period).await;
        let leads = |peer: &Peer| peer.history().iter().any(|it| it.event == "started_leading");
        let at = all.iter().position(leads).expect("a leader");
        let (begin, wall) = (now_ns(), Timestamp::now());
        all.swap_remove(at).stop(LIMIT).await;
        let told = loop {
            let starts = all.iter().flat_map(Peer::history);
            let mut starts = starts.filter(|event| event.event == "started_leading");
            if let Some(event) = starts.next() {
                break event.boottime_ns;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        // Those who wait poll on: what is counted is one retry period, the time in which all have learnt.
        tokio::time::sleep(PeerTimings::default().retry_period).await;
        let (requests, calm_ms) = since(&race.namespace, wall);
        spans.push(HandOver { told_ms: (told - begin) as f64 / 1e6, requests, calm_ms });
    }
    spans
}

/// Requests on Leases since then, by verb and code to the log, and the last one's time after it in
/// milliseconds.
fn since(namespace: &Namespace<'_>, begin: Timestamp) -> (usize, f64) {
    let audit = namespace.cluster.audit().of_namespace(&namespace.name).0;
    let mut kinds: BTreeMap<(String, u16), usize> = BTreeMap::new();
    let mut last = 0.0_f64;
    for request in audit.iter().filter(|request| request.resource == "leases") {
        let after = request.received.parse::<Timestamp>().expect("a time").duration_since(begin);
        if after.is_negative() {
            continue;
        }
        *kinds.entry((request.verb.clone(), request.code)).or_default() += 1;
        last = last.max(after.as_millis_f64());
    }
    eprintln!("{}: {kinds:?}", namespace.name);
    (kinds.values().sum(), last)
}

/// From the fork to the first answer, and to a term.
pub(crate) async fn start(cluster: &Cluster, size: &Size, report: &mut Report) {
    let (mut answer, mut term, mut go) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        let mut race = Race::new(cluster.namespace("start").await, PeerTimings::default()).await;
        let access = race.access("candidate").await;
        let begin = now_ns();
        let one = race.tenure(&access, "one");
        answer.push(first_answer(&one).await - begin as f64 / 1e6);
        term.push((race.next_leader(None).await.at_ns - begin) as f64 / 1e6);
        drop(one);

        let mut race = Race::new(cluster.namespace("start").await, PeerTimings::default()).await;
        let access = race.access("candidate").await;
        let begin = now_ns();
        let peer = race.client_go(&access, "one");
        let led = peer.leads(LIMIT).await.boottime_ns;
        go.push((led - begin) as f64 / 1e6);
    }
    report.add("start → first answer", TENURE, MS, answer);
    report.add("start → leads, Lease free", TENURE, MS, term);
    report.add("start → leads, Lease free", CLIENT_GO, MS, go);
}

/// When it came, in milliseconds of the clock.
async fn first_answer(one: &Tenure) -> f64 {
    let endpoint = Endpoint::Unix(one.socket.clone());
    loop {
        if Call::get("/leader?max_valid=1ms").send(&endpoint, LIMIT).await.is_ok() {
            return now_ns() as f64 / 1e6;
        }
        tokio::task::yield_now().await;
    }
}

/// Of the programs as they are shipped: a layer of an image holds nothing else.
pub(crate) fn sizes(report: &mut Report) {
    for (who, path) in [(TENURE, binary()), (CLIENT_GO, Program::Peer.path())] {
        let bytes = fs::metadata(&path).expect("the binary").len();
        report.one("binary", who, "MB", bytes as f64 / 1e6);
        report.one("image layer, gzip -9", who, "MB", gzipped(&path) / 1e6);
    }
}

fn gzipped(path: &Path) -> f64 {
    let script = format!("gzip -9c '{}' | wc -c", path.display());
    output("sh", &["-c", &script]).parse().expect("a number of bytes")
}
