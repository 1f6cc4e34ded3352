//! The Lease is deleted under its leader, run after run. `make deletions` makes many.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use tokio::time::sleep;

use crate::bed::{LEASE, Pod, QUICK, Sidecar, Site, eventually, one_leader, within};
use crate::cluster::{Flow, Proxy, number};
use crate::judge::Watch;

/// What a busy machine may be late by.
const SLACK: Duration = Duration::from_secs(3);

/// About what a process needs until its first request.
const LOADING: Duration = Duration::from_millis(100);

type Candidate = (Sidecar, Proxy);

/// Three that compete; in each run D comes, and afterwards takes the place of one of them.
struct Arena {
    site: Site,
    watch: Watch,
    candidates: Vec<Candidate>,
    pods: usize,
    phase: u64,
    outcome: Outcome,
}

#[derive(Debug, Default)]
struct Outcome {
    /// From the deletion until the test saw, once D had started, that a connected leader had it again.
    again: Vec<Duration>,
    /// From the deletion until another led, where the leader was cut off.
    next: Vec<Duration>,
    reigns: usize,
    epochs: usize,
}

impl Arena {
    async fn new(number: u64) -> Arena {
        let site = Site::new(&format!("e2-{number}"), QUICK).await;
        site.allow_events().await;
        let watch = Watch::start(&site).await;
        let (candidates, outcome) = (Vec::new(), Outcome::default());
        let mut arena = Arena { site, watch, candidates, pods: 0, phase: number, outcome };
        for _ in 0..3 {
            let (pod, proxy) = arena.pod().await;
            let sidecar = arena.site.start_in(&pod, &[]).await;
            arena.candidates.push((sidecar, proxy));
        }
        arena
    }

    /// All but the process.
    async fn pod(&mut self) -> (Pod, Proxy) {
        let proxy = self.site.namespace.cluster.proxy();
        let mut pod = self.site.pod(&format!("p{}", self.pods)).await;
        pod.access.url = proxy.url();
        self.pods += 1;
        (pod, proxy)
    }

    /// A part of `most`, another one each time, the same ones in each run of the test.
    fn moment(&mut self, most: Duration) -> Duration {
        self.phase = (self.phase + 37) % 101;
        most * u32::try_from(self.phase).expect("small") / 100
    }

    /// A leads, B and C stand by, and D starts just when the Lease is deleted.
    async fn run(&mut self, cut_off: bool) {
        let sidecars: Vec<_> = self.candidates.iter().map(|(sidecar, _)| sidecar).collect();
        let leader = one_leader(&sidecars).await;
        for sidecar in sidecars {
            let stands = async || matches!(&*sidecar.state().await, "following" | "leading");
            eventually("it stands by", stands).await;
        }
        let (pod, proxy) = self.pod().await;
        let (since_renewal, since_cut) =
            (self.moment(QUICK.retry_period), self.moment(Duration::from_secs(1)));
        // D's process takes a moment to ask for the Lease: before, at or after its deletion.
        let (delete_in, start_in) = (Duration::from_millis(100), self.moment(2 * LOADING));
        sleep(since_renewal).await;
        let (a, a_proxy) = &self.candidates[leader];
        let (epoch, deletions) = (a.epoch().await, deletions(a).await);
        if cut_off {
            a_proxy.set(Flow::Nothing);
            sleep(since_cut).await;
        }
        let delete = async {
            sleep(delete_in).await;
            let begin = Instant::now();
            self.site.namespace.delete_lease(LEASE).await;
            begin
        };
        let start = async {
            sleep(start_in).await;
            self.site.start_in(&pod, &[]).await
        };
        let (begin, d) = tokio::join!(delete, start);
        if cut_off {
            let others = self.candidates.iter().map(|(other, _)| other).chain([&d]);
            taken_over(others.filter(|other| other.identity() != a.identity()).collect()).await;
            self.outcome.next.push(begin.elapsed());
            a_proxy.set(Flow::Both);
            follows_or_leads_anew(a, epoch).await;
        } else {
            had_again(&self.site, a, epoch, deletions).await;
            self.outcome.again.push(begin.elapsed());
        }
        self.candidates.push((d, proxy));
        // One of the oldest goes: by SIGKILL, and not the one that leads now.
        let mut oldest = 0;
        while self.candidates[oldest].0.leads().await {
            oldest += 1;
        }
        self.candidates.remove(oldest);
    }

    async fn runs(mut self, runs: u64) -> Outcome {
        for run in 0..runs {
            self.run(run % 2 == 1).await;
        }
        self.outcome.reigns = self.site.ledger.assert_no_overlap(Vec::new());
        self.outcome.epochs = self.watch.assert_epochs_grow();
        self.outcome
    }
}

async fn deletions(sidecar: &Sidecar) -> f64 {
    sidecar.metric("tenure_terms_total", &["\"lease_deleted\""]).await
}

async fn had_again(site: &Site, leader: &Sidecar, epoch: u64, deletions_before: f64) {
    let again = async || leader.leader().await["epoch"].as_u64().is_some_and(|new| new > epoch);
    // Nobody else could, before a lease's duration: D waits that long from its first sight of it.
    within(QUICK.lease_duration, "it has it again", again).await;
    assert_eq!(deletions(leader).await, deletions_before + 1.0);
    let events: Api<Event> = Api::namespaced(site.namespace.cluster.admin(), &site.namespace.name);
    let told = async || {
        let events = events.list(&ListParams::default()).await.expect("Events");
        // At most one of a kind in a while from each process.
        events.items.iter().any(|event| {
            event.reason.as_deref() == Some("LeaseDeleted")
                && event.reporting_instance.as_deref() == Some(&leader.identity())
        })
    };
    eventually("an Event tells", told).await;
}

async fn taken_over(others: Vec<&Sidecar>) {
    let next = async || {
        for other in &others {
            if other.leads().await {
                return true;
            }
        }
        false
    };
    within(2 * QUICK.lease_duration + SLACK, "another leads", next).await;
}

async fn follows_or_leads_anew(sidecar: &Sidecar, epoch: u64) {
    let follows = async || sidecar.sees().await.is_some_and(|seen| seen != sidecar.identity());
    let leads = async || sidecar.leader().await["epoch"].as_u64().is_some_and(|new| new > epoch);
    eventually("it comes back", async || follows().await || leads().await).await;
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    if let Some(worst) = times.last() {
        let (runs, median) = (times.len(), times[times.len() / 2].as_millis());
        println!("{what}: {runs} runs, median {median} ms, worst {} ms", worst.as_millis());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_e2_the_lease_is_deleted_on_the_real_api_server() {
    let (runs, sites) = (number("DELETIONS", 8), number("DELETION_SITES", 2));
    let begin = Instant::now();
    let all = (0..sites).map(|site| async move {
        Arena::new(site).await.runs(runs / sites + u64::from(site < runs % sites)).await
    });
    let all = join_all(all).await;
    let took = begin.elapsed().as_secs_f64();
    let sum = |count: fn(&Outcome) -> usize| all.iter().map(count).sum::<usize>();
    let (reigns, epochs) = (sum(|one| one.reigns), sum(|one| one.epochs));
    println!(
        "{runs} deletions in {took:.0} s: {reigns} reigns, no overlap; {epochs} epochs, each greater"
    );
    let of = |times: fn(&Outcome) -> &[Duration]| all.iter().flat_map(times).copied().collect();
    tell("a connected leader had it again", of(|one| &one.again));
    tell("another led, the leader cut off", of(|one| &one.next));
}
