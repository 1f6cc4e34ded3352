//! One Lease, its candidates, and round after round of harm done to whoever holds it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use rustix::process::Signal;

use crate::checker::{self, Verdict};
use crate::cluster::peer::PeerTimings;
use crate::cluster::{Cluster, Fault, Flow, Rule, Verb};
use crate::facts::{Fact, Version, What, boottime, wall_offset};
use crate::gaps::{Gap, gaps};
use crate::observer::Observer;
use crate::slot::{Kind, Site, Slot};
use crate::tenure::Pod;
use crate::timeline;
use crate::witness::{Register, Tally};

pub const LEASE: &str = "billing";
/// L, R and P of tenure.
const TIMING: [&str; 3] = ["2s", "1600ms", "400ms"];
const L: Duration = Duration::from_secs(2);
const RENEW_DEADLINE_NS: u64 = 1_600_000_000;
/// Of client-go.
const PEER: PeerTimings = PeerTimings {
    lease_duration: L,
    renew_deadline: Duration::from_millis(1500),
    retry_period: Duration::from_millis(400),
};
/// Somebody holds the Lease by then, or something hangs (L3 says L plus one PUT).
const LIMIT: Duration = Duration::from_secs(90);

/// Of this many violations of a lane a page is written.
const PAGES: usize = 10;

/// What is done in a round, most of it to the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    StopWithWord,
    StopSilently,
    GiveUp,
    Kill,
    KillAndRestart,
    Pause,
    Silence,
    OneWay,
    Reset,
    Strand,
    DropAnswer,
    DropAnswers,
    ErrorAfter,
    Forbidden,
    TooMany,
    SlowPuts,
    LateEvents,
    Replay,
    Delete,
    DeleteCutOff,
    ServerPause,
    EtcdPause,
    ServerKill,
    EtcdKill,
}

use Harm::*;

/// What a lane does to its own; the servers are everybody's.
const OWN: [Harm; 20] = [
    StopWithWord,
    StopSilently,
    GiveUp,
    Kill,
    KillAndRestart,
    Pause,
    Silence,
    OneWay,
    Reset,
    Strand,
    DropAnswer,
    DropAnswers,
    ErrorAfter,
    Forbidden,
    TooMany,
    SlowPuts,
    LateEvents,
    Replay,
    Delete,
    DeleteCutOff,
];
/// Lanes take them in turn.
const MIXES: [&[Kind]; 3] = [
    &[Kind::Tenure, Kind::Tenure, Kind::Tenure, Kind::ClientGo],
    &[Kind::Tenure, Kind::ClientGo, Kind::ClientGo],
    &[Kind::Tenure, Kind::Tenure, Kind::ClientGo, Kind::ClientGo],
];
const SERVERS: [Harm; 4] = [ServerPause, EtcdPause, ServerKill, EtcdKill];

/// Random numbers that a seed makes the same again.
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Below `n`.
    fn roll(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_millis(self.roll(most.as_millis() as u64 + 1))
    }
}

/// When the servers were harmed: from, until, how. Every lane feels it.
pub type Outages = Arc<Mutex<Vec<(u64, u64, Harm)>>>;

#[derive(Debug)]
pub struct Lane<'a> {
    number: u64,
    cluster: &'a Cluster,
    site: Site<'a>,
    slots: Vec<Slot>,
    observer: Observer,
    harness: Vec<Fact>,
    dice: Dice,
    offset: u64,
    outages: Outages,
}

/// What came of a lane.
#[derive(Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    pub tally: Tally,
    /// From the end of one reign to the begin of the next.
    pub gaps: Vec<Gap>,
    pub rounds: BTreeMap<Harm, u32>,
    /// The page around the longest gap.
    pub longest: PathBuf,
    /// Pages around violations.
    pub broken: Vec<PathBuf>,
}

impl<'a> Lane<'a> {
    pub async fn new(
        cluster: &'a Cluster,
        number: u64,
        seed: u64,
        folder: &'a std::path::Path,
        outages: Outages,
    ) -> Lane<'a> {
        let namespace = cluster.namespace(&format!("chaos{number}")).await;
        let access = namespace.access_for_client_go(LEASE).await;
        let name = namespace.name.clone();
        let pod = Pod {
            namespace: name.leak(),
            lease: LEASE,
            name: String::new(),
            uid: String::new(),
            access,
            timing: TIMING,
            folder,
        };
        let observer = Observer::start(namespace.leases(), LEASE);
        let register = Arc::new(Register::default());
        let site = Site { namespace, pod, register, peer_timings: PEER };
        let kinds = MIXES[number as usize % MIXES.len()];
        let mut slots = Vec::new();
        for (place, kind) in kinds.iter().copied().enumerate() {
            let name = match kind {
                Kind::Tenure => format!("t{number}{place}"),
                Kind::ClientGo => format!("k{number}{place}"),
            };
            let mut slot = Slot::new(cluster, kind, &name);
            slot.start(&site);
            slots.push(slot);
        }
        let (dice, offset) = (Dice(seed), wall_offset());
        let harness = Vec::new();
        Lane { number, cluster, site, slots, observer, harness, dice, offset, outages }
    }

    /// So many rounds; then all is healed, and what happened is judged.
    pub async fn run(mut self, rounds: u32, until: Instant) -> Outcome {
        let mut count = BTreeMap::new();
        let mut hung = None;
        for _ in 0..rounds {
            if Instant::now() >= until {
                break;
            }
            let harm = self.choose();
            match self.round(harm).await {
                Ok(()) => *count.entry(harm).or_default() += 1,
                Err(text) => {
                    hung = Some((boottime(), text));
                    break;
                }
            }
        }
        if hung.is_none()
            && let Err(text) = self.holder().await
        {
            hung = Some((boottime(), text));
        }
        self.judge(count, hung).await
    }

    fn choose(&mut self) -> Harm {
        // A server's outage takes seconds: one round in eight, of the first lane.
        if self.number == 0 && self.dice.roll(8) == 0 {
            return SERVERS[self.dice.roll(SERVERS.len() as u64) as usize];
        }
        let harm = OWN[self.dice.roll(OWN.len() as u64) as usize];
        // Only tenures may make the Lease anew here: one of them has to be within reach.
        let tenures = self.slots.iter().filter(|slot| slot.kind == Kind::Tenure).count();
        if harm == DeleteCutOff && tenures < 2 { Delete } else { harm }
    }

    /// The place that holds the Lease, and the version that says so.
    async fn holder(&self) -> Result<(usize, Version), String> {
        let begin = Instant::now();
        loop {
            if let Some(version) = self.observer.newest()
                && let Some(place) = self.slots.iter().position(|slot| slot.is(&version.holder))
            {
                return Ok((place, version));
            }
            if begin.elapsed() > LIMIT {
                return Err(format!("L3: nobody holds the Lease for {LIMIT:?}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn round(&mut self, harm: Harm) -> Result<(), String> {
        let settle = self.dice.up_to(L / 2);
        tokio::time::sleep(settle).await;
        self.revive();
        let (place, version) = self.holder().await?;
        let who = self.slots[place].who().to_owned();
        let held = if self.hold_back(harm, place) { ", the other tenures held back" } else { "" };
        let text = format!("{harm:?} {who}{held}");
        let begin = boottime();
        self.harness.push(Fact { at: begin, who: "harness".into(), what: What::Fault(text) });
        self.harm(harm, place).await;
        let wait = match harm {
            ServerPause | EtcdPause | ServerKill | EtcdKill | Pause => self.dice.up_to(2 * L),
            _ => 3 * L,
        };
        self.changed(&version, wait).await;
        self.heal(harm, place).await;
        if SERVERS.contains(&harm) {
            self.outages.lock().expect("outages").push((begin, boottime(), harm));
        }
        Ok(())
    }

    /// A tenure that watches is always faster than client-go that polls: in half of the rounds the
    /// tenures that stand by hear nothing, so that client-go has its turn. Not where the Lease is
    /// deleted, which client-go may not make anew here, nor where client-go or the servers are harmed.
    fn hold_back(&mut self, harm: Harm, place: usize) -> bool {
        let others = self.slots.iter().enumerate().filter(|(other, _)| *other != place);
        let (tenures, peers): (Vec<_>, Vec<_>) =
            others.map(|(_, slot)| slot).partition(|slot| slot.kind == Kind::Tenure);
        let fit = !matches!(harm, Delete | DeleteCutOff | Replay) && !SERVERS.contains(&harm);
        let turn = !tenures.is_empty() && peers.iter().any(|peer| peer.next_peer());
        let held = fit && turn && self.dice.roll(2) == 0;
        if held {
            tenures.iter().for_each(|slot| slot.wire.bytes.set(Flow::Nothing));
        }
        held
    }

    /// Until somebody else holds the Lease, or in a new term; or until `limit` has passed.
    async fn changed(&self, before: &Version, limit: Duration) {
        let begin = Instant::now();
        let same = |now: &Version| {
            now.holder == before.holder && now.epoch == before.epoch && now.uid == before.uid
        };
        while begin.elapsed() < limit {
            let now = self.observer.newest();
            let taken = now.filter(|now| self.slots.iter().any(|slot| slot.is(&now.holder)));
            if taken.is_some_and(|now| !same(&now)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn harm(&mut self, harm: Harm, place: usize) {
        let slow = self.dice.up_to(L);
        let k = 1 + self.dice.roll(3) as u32;
        let slot = &mut self.slots[place];
        let rule = |rule| slot.wire.http.add(rule);
        match harm {
            StopWithWord => slot.stop(true).await,
            StopSilently => slot.stop(false).await,
            GiveUp if slot.kind == Kind::Tenure => slot.give_up(&self.site).await,
            GiveUp => slot.stop(true).await,
            Kill => {
                self.killed(place);
                self.slots[place].kill().await;
            }
            KillAndRestart => {
                self.killed(place);
                self.slots[place].kill().await;
                self.slots[place].start_again(&self.site);
            }
            Pause => slot.signal(Signal::STOP),
            Silence => slot.wire.bytes.set(Flow::Nothing),
            OneWay => slot.wire.bytes.set(Flow::RequestsOnly),
            Reset => slot.wire.bytes.set(Flow::Reset),
            Strand => slot.wire.bytes.strand(),
            DropAnswer => rule(Rule::on(Verb::Put, Fault::DropAnswer).nth(k)),
            DropAnswers => rule(Rule::on(Verb::Put, Fault::SwallowAnswer)),
            ErrorAfter => rule(Rule::on(Verb::Put, Fault::AnswerAfter(500)).times(k)),
            Forbidden => rule(Rule::every(Fault::Refuse(403))),
            TooMany => rule(Rule::every(Fault::TooMany(30))),
            // Committed at the begin of the wait, or at its end.
            SlowPuts if k == 1 => rule(Rule::on(Verb::Put, Fault::LateAnswer(slow))),
            SlowPuts => rule(Rule::on(Verb::Put, Fault::Late(slow))),
            LateEvents | Replay => self.harm_standbys(harm, place, slow).await,
            Delete => self.delete().await,
            DeleteCutOff => {
                slot.wire.bytes.set(Flow::Nothing);
                self.delete().await;
            }
            ServerPause => self.cluster.api_server.pause(),
            EtcdPause => self.cluster.etcd.pause(),
            ServerKill => self.cluster.api_server.restart(),
            EtcdKill => self.cluster.etcd.restart(),
        }
    }

    /// The others learn late, or read the past, while the holder goes.
    async fn harm_standbys(&mut self, harm: Harm, place: usize, late: Duration) {
        for (other, slot) in self.slots.iter().enumerate().filter(|(other, _)| *other != place) {
            let rule = match harm {
                LateEvents => Rule::on(Verb::Watch, Fault::LateEvents(late)),
                _ => Rule::on(Verb::Get, Fault::Replay).times(3 + other as u32),
            };
            slot.wire.http.add(rule);
        }
        self.slots[place].stop(true).await;
    }

    fn killed(&mut self, place: usize) {
        let who = self.slots[place].who().to_owned();
        self.harness.push(Fact { at: boottime(), who, what: What::Killed });
    }

    /// It may be gone already, and the server may not answer: then nothing is deleted.
    async fn delete(&self) {
        let leases = self.site.namespace.leases();
        let parameters = DeleteParams::default();
        let deleted = leases.delete(LEASE, &parameters);
        let _ = tokio::time::timeout(L, deleted).await;
    }

    async fn heal(&mut self, harm: Harm, place: usize) {
        match harm {
            ServerPause => self.cluster.api_server.resume(),
            EtcdPause => self.cluster.etcd.resume(),
            ServerKill | EtcdKill => self.cluster.ready().await,
            Pause => self.slots[place].signal(Signal::CONT),
            _ => {}
        }
        for slot in &mut self.slots {
            slot.wire.heal();
        }
        self.revive();
    }

    /// New pods in the places of those that are gone, by harm or by themselves.
    fn revive(&mut self) {
        for slot in self.slots.iter_mut().filter_map(|slot| (!slot.runs()).then_some(slot)) {
            slot.start(&self.site);
        }
    }

    async fn judge(mut self, rounds: BTreeMap<Harm, u32>, hung: Option<(u64, String)>) -> Outcome {
        for slot in &mut self.slots {
            slot.end().await;
        }
        let mut facts = self.observer.facts();
        facts.append(&mut self.harness);
        facts.extend(self.slots.iter().flat_map(Slot::history));
        // Stable: what one process did in one instant stays in its order.
        facts.sort_by_key(|fact| fact.at);
        let drift = wall_offset().abs_diff(self.offset);
        assert!(
            drift < 100_000_000,
            "the wall clock was set by {drift} ns: records cannot be judged"
        );
        let mut verdict = checker::check(&facts, self.offset, RENEW_DEADLINE_NS);
        verdict.violations.extend(hung);
        let gaps = gaps(&facts, &verdict, &self.outages);
        let write = |name: &str, what| {
            let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
            let page = folder.join(format!("chaos-{}-{name}.html", self.number));
            timeline::write(&page, &format!("Lane {}", self.number), &facts, &verdict, what);
            page
        };
        let longest = gaps.iter().max_by_key(|gap| gap.length());
        let longest = write("longest", longest.map(|gap| gap.from..gap.until));
        let broken = verdict.violations.iter().take(PAGES).enumerate();
        let broken = broken.map(|(n, (at, _))| write(&format!("broken-{n}"), Some(*at..*at)));
        let broken = broken.collect();
        let tally = self.site.register.tally();
        Outcome { verdict, tally, gaps, rounds, longest, broken }
    }
}
