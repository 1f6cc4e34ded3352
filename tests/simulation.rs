//! A swarm of simulated clusters: three to five cores and the faults that a seed chooses, then a phase
//! without faults in which somebody must lead. `make sim SEEDS=10000` runs many;
//! `SEED=n make sim` replays one and prints its timeline.

mod sim;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use sim::{SECOND, World};
use tenure::core::Rules;

/// A part of the normal test run.
const SEEDS: u64 = 150;

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    events: u64,
    acquisitions: u64,
    releases: u64,
    by_peers: u64,
    simulated: u64,
}

fn play(world: &mut World) -> Result<(), String> {
    let until = world.swarm.as_ref().expect("a swarm").until;
    world.run_to_ns(until);
    world.liveness()
}

fn run(seed: u64, rules: Rules, timeline: bool, totals: &mut Totals) -> Result<(), String> {
    let mut world = World::draw(seed, rules);
    if timeline {
        world.timeline = Some(Vec::new());
    }
    let result = catch_unwind(AssertUnwindSafe(|| play(&mut world))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or(panic.downcast_ref::<&str>().map(|text| (*text).into())).unwrap_or_default())
    });
    if let Some(timeline) = &world.timeline {
        println!("{}", timeline.join("\n"));
    }
    totals.events += world.events;
    totals.acquisitions += world.checker.acquisitions;
    totals.releases += world.checker.releases;
    totals.by_peers += world.checker.peer_acquisitions;
    totals.simulated += world.now / SECOND;
    result
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn swarm() {
    if let Some(seed) = number("SEED") {
        let result = run(seed, Rules::default(), true, &mut Totals::default());
        return assert_eq!(result, Ok(()), "seed {seed}");
    }
    let (first, seeds) = (number("FIRST").unwrap_or(1), number("SEEDS").unwrap_or(SEEDS));
    let begin = Instant::now();
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    for seed in first..first + seeds {
        if let Err(why) = run(seed, Rules::default(), false, &mut totals) {
            println!("seed {seed}: {why}");
            failed.push(seed);
            if failed.len() >= 20 {
                break;
            }
        }
    }
    let minutes = begin.elapsed().as_secs_f64() / 60.0;
    println!("{seeds} seeds, {:.0} a minute; {totals:?}", seeds as f64 / minutes);
    assert!(failed.is_empty(), "seeds that failed: {failed:?}; SEED={} replays one", failed[0]);
}

/// The swarm is worth something: without one of these rules it finds what goes wrong, within 1,000 seeds.
/// (The others are rarer to need; tests/marks.rs has a trace for each.)
#[cfg(feature = "mutants")]
#[test]
fn swarm_notices_missing_rules() {
    use tenure::core::Mark::{self, *};
    const NOTICED: &[Mark] = &[
        F1,
        F2,
        F3,
        F5,
        F7,
        F9,
        ValidityFromSend,
        Margin,
        EpochNotTransitions,
        AppFirst,
        OwnClockOnly,
        ValidityNotBoolean,
    ];
    for &mark in NOTICED {
        let rules = Rules::without(mark);
        let caught = (1..=1_000).find_map(|seed| {
            let why = run(seed, rules, false, &mut Totals::default()).err()?;
            Some((seed, why.lines().next().unwrap_or_default().to_owned()))
        });
        println!("{mark:?}: {caught:?}");
        assert!(caught.is_some(), "nothing goes wrong without {mark:?}");
    }
}
