//! tenure and client-go on one Lease of a real API server, harmed round after round; the histories of
//! all of them are judged afterwards, and a register that guarded work writes to is the witness.
//!
//! A short run belongs to every test run. `make chaos ROUNDS=1000 LANES=3` does more.

#![allow(unreachable_pub, reason = "modules of test binaries, not a library")]

#[path = "chaos/checker.rs"]
mod checker;
#[path = "chaos/checker_tests.rs"]
mod checker_tests;
mod cluster;
#[path = "chaos/facts.rs"]
mod facts;
#[path = "chaos/gaps.rs"]
mod gaps;
#[path = "chaos/lane.rs"]
mod lane;
#[path = "chaos/observer.rs"]
mod observer;
#[path = "chaos/slot.rs"]
mod slot;
#[path = "chaos/tenure.rs"]
#[allow(dead_code, reason = "shared with the tests of faults")]
mod tenure;
#[path = "chaos/timeline.rs"]
mod timeline;
#[path = "chaos/witness.rs"]
mod witness;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cluster::{Cluster, number};
use lane::{Lane, Outages, Outcome};

#[tokio::test]
async fn scenario_t4_mixed_rounds_leave_no_two_leaders() {
    let rounds = number("CHAOS_ROUNDS", 8) as u32;
    let lanes = number("CHAOS_LANES", 1);
    let minutes = number("CHAOS_MINUTES", 24 * 60);
    let seed = number("CHAOS_SEED", facts::boottime());
    eprintln!("seed {seed}: {rounds} rounds in each of {lanes} lanes, {minutes} minutes at most");
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let begin = Instant::now();
    let until = begin + Duration::from_secs(60 * minutes);
    let outages = Outages::default();
    let mut all = Vec::new();
    for number in 0..lanes {
        let (seed, outages) = (seed.wrapping_add(number), outages.clone());
        all.push(Lane::new(&cluster, number, seed, folder.path(), outages).await);
    }
    let running = all.into_iter().map(|lane| lane.run(rounds, until));
    let outcomes: Vec<Outcome> = futures_util::future::join_all(running).await;
    report(&outcomes, begin.elapsed());
    for outcome in &outcomes {
        let Outcome { verdict, tally, broken, .. } = outcome;
        assert!(verdict.violations.is_empty(), "{broken:#?}: {:#?}", verdict.violations);
        assert_eq!((tally.unfenced_overlaps, tally.stale_epochs), (0, 0));
        assert!(verdict.versions > 0 && verdict.answers > 0 && tally.writes > 0, "{outcome:?}");
    }
}

fn report(outcomes: &[Outcome], took: Duration) {
    let mut all = Vec::new();
    let mut rounds: BTreeMap<_, u32> = BTreeMap::new();
    let mut foreign: BTreeMap<_, u32> = BTreeMap::new();
    for outcome in outcomes {
        all.extend(outcome.gaps.iter().cloned());
        outcome.rounds.iter().for_each(|(harm, n)| *rounds.entry(*harm).or_default() += n);
        let told = &outcome.verdict.foreign;
        told.iter().for_each(|(kind, n)| *foreign.entry(*kind).or_default() += n);
    }
    let sum = |count: fn(&Outcome) -> u64| outcomes.iter().map(count).sum::<u64>();
    let total: u32 = rounds.values().sum();
    println!("{total} rounds in {:.0} s: {rounds:?}", took.as_secs_f64());
    gaps::report(&all);
    for Outcome { gaps, longest, .. } in outcomes {
        if let Some(gap) = gaps.iter().max_by_key(|gap| gap.length()) {
            let (ms, page) = (gap.length().as_millis(), longest.display());
            let more = if gap.more { " and more" } else { "" };
            println!("longest of a lane: {ms} ms, {}{more}, {}: {page}", gap.harm, gap.kind);
        }
    }
    let violations = sum(|outcome| outcome.verdict.violations.len() as u64);
    println!(
        "reigns {}, versions {}, answers {}, releases {}",
        sum(|o| o.verdict.reigns.len() as u64),
        sum(|o| o.verdict.versions),
        sum(|o| o.verdict.answers),
        sum(|o| o.verdict.releases)
    );
    println!("violations {violations}; overlaps of client-go's own doing: {foreign:?}");
    println!(
        "witness: {} writes, {} unfenced overlaps, {} stale epochs",
        sum(|o| o.tally.writes),
        sum(|o| o.tally.unfenced_overlaps.into()),
        sum(|o| o.tally.stale_epochs.into())
    );
}
