//! The judge of overlaps, outside of every candidate: what apps were granted over localhost, what
//! client-go peers said of themselves, and what a watch of one's own saw the API server commit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tenure::client::{Call, Endpoint};
use tokio::task::JoinHandle;

use crate::bed::{LEASE, Site};
use crate::cluster::peer::PeerEvent;

/// How often an app asks.
const POLL: Duration = Duration::from_millis(50);
/// How long an app waits for an answer: longer than a sidecar is ever stopped here.
const CALL: Duration = Duration::from_secs(20);

/// Milliseconds of CLOCK_BOOTTIME, which all processes of this machine share.
pub fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).expect("positive") * 1000
        + u64::try_from(now.tv_nsec).expect("positive") / 1_000_000
}

/// A time in which one candidate's work may have gone on, in milliseconds of CLOCK_BOOTTIME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reign {
    pub who: String,
    /// Of client-go: a number of the term within the process.
    pub epoch: u64,
    pub from: u64,
    pub until: u64,
}

type Key = (String, u64);

/// What the apps of one Lease were granted.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    grants: Arc<Mutex<BTreeMap<Key, (u64, u64)>>>,
    words: Arc<Mutex<BTreeMap<Key, u64>>>,
}

impl Ledger {
    /// An answer: from when it was there until the deadline it gives. Also of one who may only finish.
    fn granted(&self, who: &str, answered: u64, body: &Value) {
        let (Some(epoch), Some(until)) =
            (body["epoch"].as_u64(), body["valid_until_boottime_ms"].as_u64())
        else {
            assert_ne!(body["leader"], true, "leader without an epoch or a deadline: {body}");
            return;
        };
        let mut grants = self.grants.lock().expect("grants");
        let reign = grants.entry((who.to_owned(), epoch)).or_insert((answered, until));
        reign.1 = reign.1.max(until);
    }

    /// The app has stopped its work in this term: what it was granted is over.
    pub fn word(&self, who: &str, epoch: u64) {
        let now = boottime_ms();
        self.words.lock().expect("words").entry((who.to_owned(), epoch)).or_insert(now);
    }

    /// Whether anything was granted in this term.
    pub fn knows(&self, who: &str, epoch: u64) -> bool {
        self.grants.lock().expect("grants").contains_key(&(who.to_owned(), epoch))
    }

    pub fn reigns(&self) -> Vec<Reign> {
        let words = self.words.lock().expect("words");
        let grants = self.grants.lock().expect("grants");
        let reigns = grants.iter().map(|((who, epoch), (from, until))| {
            let word = words.get(&(who.clone(), *epoch)).copied().unwrap_or(u64::MAX);
            Reign { who: who.clone(), epoch: *epoch, from: *from, until: (*until).min(word) }
        });
        reigns.collect()
    }

    /// No two apps' deadlines overlap (S1), nor one's with the reign of a client-go peer. Two terms
    /// of one pod may: its app was told of the new one, and is the same.
    pub fn assert_no_overlap(&self, others: Vec<Reign>) -> usize {
        let mut reigns = self.reigns();
        reigns.extend(others);
        reigns.retain(|reign| reign.from <= reign.until);
        reigns.sort_by_key(|reign| reign.from);
        for (at, one) in reigns.iter().enumerate() {
            for other in reigns[at + 1..].iter().filter(|other| other.who != one.who) {
                assert!(other.from >= one.until, "S1: {one:?} overlaps {other:?}, of {reigns:#?}");
            }
        }
        reigns.len()
    }
}

/// An app beside a sidecar that asks over localhost and works until the deadlines it is given.
#[derive(Debug)]
pub struct App(JoinHandle<()>);

impl App {
    pub fn start(at: &Endpoint, who: &str, ledger: &Ledger) -> App {
        let (at, who, ledger) = (at.clone(), who.to_owned(), ledger.clone());
        App(tokio::spawn(async move {
            loop {
                if let Ok(answer) = Call::get("/leader").send(&at, CALL).await {
                    let answered = boottime_ms();
                    let body = serde_json::from_slice(&answer.body).expect("a JSON body");
                    ledger.granted(&who, answered, &body);
                }
                tokio::time::sleep(POLL).await;
            }
        }))
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// When a client-go elector led, by its own account: until it stopped, began to release, or had not
/// renewed for its renew deadline. (A stopped process believes in itself for longer than that: what
/// client-go promises is not on trial here.)
pub fn reigns_of(history: &[PeerEvent], renew_deadline: Duration) -> Vec<Reign> {
    const MS: u64 = 1_000_000;
    let span = u64::try_from(renew_deadline.as_millis()).expect("a duration");
    let mut reigns: Vec<Reign> = Vec::new();
    let mut renewed = 0;
    let mut leading = false;
    for event in history {
        let (at, sent) = (event.boottime_ns / MS, event.sent_ns / MS);
        let written = event.error.is_empty() && !event.holder.is_empty();
        match event.event.as_str() {
            "create" | "update" if written => renewed = sent + span,
            "started_leading" => {
                let epoch = u64::try_from(reigns.len()).expect("a number");
                let who = event.identity.clone();
                // The write that acquired was told before.
                reigns.push(Reign { who, epoch, from: at, until: renewed });
                leading = true;
                continue;
            }
            "stopped_leading" => leading = false,
            // A release, whatever came of it, is sent by one who has stopped.
            "update" if event.holder.is_empty() => leading = false,
            _ => continue,
        }
        if let Some(reign) = reigns.last_mut() {
            let end = if event.event == "update" { sent } else { at };
            if leading {
                reign.until = reign.until.max(renewed);
            } else {
                reign.until = reign.until.min(end);
            }
        }
    }
    reigns
}

/// The Lease as it was committed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Milliseconds of CLOCK_BOOTTIME at its arrival here.
    pub at: u64,
    pub deleted: bool,
    pub uid: String,
    pub version: u64,
    pub holder: String,
    pub transitions: i32,
    pub epoch: Option<u64>,
    pub incarnation: Option<String>,
}

/// A watch of one's own on the Lease.
#[derive(Debug)]
pub struct Watch {
    commits: Arc<Mutex<Vec<Commit>>>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Sees every commit from now on, and the Lease as it is.
    pub async fn start(site: &Site) -> Watch {
        let commits = Arc::new(Mutex::new(Vec::new()));
        let seen = commits.clone();
        let leases = site.namespace.leases();
        let parameters = WatchParams::default().fields(&format!("metadata.name={LEASE}"));
        let mut stream = leases.watch(&parameters, "0").await.expect("a watch").boxed();
        let task = tokio::spawn(async move {
            let mut version = String::new();
            loop {
                let Some(event) = stream.next().await else {
                    // Its time was over, a few minutes: the next one begins where it ended.
                    let next = leases.watch(&parameters, &version).await.expect("the next watch");
                    stream = next.boxed();
                    continue;
                };
                let (lease, deleted) = match event {
                    Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => (lease, false),
                    Ok(WatchEvent::Deleted(lease)) => (lease, true),
                    Ok(_) => continue,
                    Err(error) => panic!("the judge's watch broke: {error}"),
                };
                version = lease.metadata.resource_version.clone().expect("a version");
                seen.lock().expect("commits").push(commit(lease, deleted));
            }
        });
        Watch { commits, task }
    }

    pub fn commits(&self) -> Vec<Commit> {
        self.commits.lock().expect("commits").clone()
    }

    /// S2: epochs strictly increase in the order of commits. Tells how many terms of tenure there were.
    pub fn assert_epochs_grow(&self) -> usize {
        assert!(!self.task.is_finished(), "the judge was blind");
        let commits = self.commits();
        let mut epochs: Vec<(u64, String)> = Vec::new();
        for commit in commits.iter().filter(|commit| !commit.deleted) {
            let Some(epoch) = commit.epoch else { continue };
            let incarnation = commit.incarnation.clone().unwrap_or_default();
            if epochs.last() != Some(&(epoch, incarnation.clone())) {
                epochs.push((epoch, incarnation));
            }
        }
        let grows = epochs.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(grows, "S2: {epochs:?} of {commits:#?}");
        epochs.len()
    }

    /// Whoever held the Lease and did not release it was waited out for `term`, give or take what
    /// this watch may be late itself. Tells how often that happened.
    pub fn assert_holders_waited_out(&self, term: Duration) -> usize {
        const LATE_MS: u64 = 1000;
        let term = u64::try_from(term.as_millis()).expect("a duration");
        let commits = self.commits();
        let mut count = 0;
        for pair in commits.windows(2) {
            let [before, after] = pair else { continue };
            let taken = !before.holder.is_empty()
                && !after.holder.is_empty()
                && before.holder != after.holder
                && before.uid == after.uid;
            if taken {
                count += 1;
                let waited = after.at - before.at;
                assert!(waited + LATE_MS >= term, "taken from the living: {before:?} {after:?}");
            }
        }
        count
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn commit(lease: Lease, deleted: bool) -> Commit {
    let spec = lease.spec.unwrap_or_default();
    let annotations = lease.metadata.annotations.unwrap_or_default();
    let text = |key: &str| annotations.get(key).cloned();
    let version = lease.metadata.resource_version.unwrap_or_default();
    Commit {
        at: boottime_ms(),
        deleted,
        uid: lease.metadata.uid.unwrap_or_default(),
        version: version.parse().expect("a resourceVersion"),
        holder: spec.holder_identity.unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or_default(),
        epoch: text("tenure.dev/epoch").and_then(|epoch| epoch.parse().ok()),
        incarnation: text("tenure.dev/incarnation"),
    }
}

/// The judge's own judge: it must see what is wrong.
mod tests {
    use super::*;

    fn ledger(grants: &[(&str, u64, u64, u64)]) -> Ledger {
        let ledger = Ledger::default();
        for (who, epoch, answered, until) in grants {
            let body = serde_json::json!(
                {"leader": true, "epoch": epoch, "valid_until_boottime_ms": until}
            );
            ledger.granted(who, *answered, &body);
        }
        ledger
    }

    #[test]
    fn the_judge_takes_deadlines_one_after_the_other() {
        let peer = Reign { who: "k".into(), epoch: 0, from: 400, until: 500 };
        let ledger = ledger(&[("a", 1, 0, 100), ("a", 1, 50, 200), ("b", 2, 200, 400)]);
        assert_eq!(ledger.assert_no_overlap(vec![peer]), 3);
    }

    #[test]
    #[should_panic = "S1"]
    fn the_judge_sees_an_overlap() {
        ledger(&[("a", 1, 0, 100), ("a", 1, 50, 200), ("b", 2, 199, 400)])
            .assert_no_overlap(Vec::new());
    }

    #[test]
    #[should_panic = "S1"]
    fn the_judge_sees_an_overlap_with_a_peer() {
        let event = |boottime_ns: u64, event: &str, sent_ns, holder: &str| PeerEvent {
            boottime_ns,
            event: event.into(),
            identity: "k".into(),
            leader: String::new(),
            sent_ns,
            holder: holder.into(),
            transitions: None,
            error: String::new(),
        };
        let history = [
            event(101_000_000, "update", 100_000_000, "k"),
            event(102_000_000, "started_leading", 0, ""),
            event(151_000_000, "update", 150_000_000, "k"),
        ];
        let peer = reigns_of(&history, Duration::from_millis(100));
        assert_eq!((peer[0].from, peer[0].until), (102, 250));
        ledger(&[("a", 1, 249, 300)]).assert_no_overlap(peer);
    }
}
