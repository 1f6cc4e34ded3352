//! A swarm of simulated clusters: three to five cores and the faults that a seed chooses, then a phase
//! without faults in which somebody must lead. `make sim SEEDS=10000` runs many;
//! `SEED=n make sim` replays one and prints its timeline. Of a seed that fails the shortest plan that
//! fails in the same way is printed, as a test.

mod sim;

use std::time::Instant;

use sim::{Plan, SECOND, Shrinking, World};
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

impl Totals {
    fn add(&mut self, world: &World) {
        self.events += world.events;
        self.acquisitions += world.checker.acquisitions;
        self.releases += world.checker.releases;
        self.by_peers += world.checker.peer_acquisitions;
        self.simulated += world.now / SECOND;
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn print_timeline(plan: &Plan) -> Result<(), String> {
    let mut world = plan.world(Rules::default(), None);
    world.timeline = Some(Vec::new());
    let result = plan.play(&mut world);
    println!("{}", world.timeline.unwrap_or_default().join("\n"));
    result
}

#[test]
fn swarm() {
    if let Some(seed) = number("SEED") {
        return assert_eq!(print_timeline(&Plan::draw(seed)), Ok(()), "seed {seed}");
    }
    let (first, seeds) = (number("FIRST").unwrap_or(1), number("SEEDS").unwrap_or(SEEDS));
    let begin = Instant::now();
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    for seed in first..first + seeds {
        let plan = Plan::draw(seed);
        let mut world = plan.world(Rules::default(), None);
        if let Err(why) = plan.play(&mut world) {
            println!("seed {seed}: {why}");
            failed.push((seed, plan, why));
            if failed.len() >= 20 {
                break;
            }
        }
        totals.add(&world);
    }
    let minutes = begin.elapsed().as_secs_f64() / 60.0;
    println!("{seeds} seeds, {:.0} a minute; {totals:?}", seeds as f64 / minutes);
    let all: Vec<u64> = failed.iter().map(|(seed, ..)| *seed).collect();
    if let Some((_, plan, why)) = failed.into_iter().next() {
        let short = Shrinking::of(plan, why, Rules::default(), None);
        println!("\nshortened in {} runs: {}\n", short.runs, short.why);
        let _ = print_timeline(&short.plan);
        println!("\n{}\n", short.plan);
    }
    assert!(all.is_empty(), "seeds that failed: {all:?}; SEED={} replays one", all[0]);
}

/// Weather and deeds have streams of their own: what a plan leaves out changes nothing before it.
#[test]
fn a_plan_is_played_the_same_twice_and_without_its_end() {
    for seed in 1..=20 {
        let plan = Plan::draw(seed);
        let whole = history(&plan, plan.until / 2);
        assert_eq!(history(&plan, plan.until / 2), whole, "seed {seed}");
        let mut half = plan.clone();
        half.deeds.retain(|(at, _)| *at <= plan.until / 2);
        assert_eq!(history(&half, plan.until / 2), whole, "seed {seed}");
    }
}

fn history(plan: &Plan, until: u64) -> Vec<String> {
    let mut world = plan.world(Rules::default(), None);
    world.timeline = Some(Vec::new());
    world.run_to_ns(until);
    world.timeline.expect("just begun")
}

#[cfg(feature = "mutants")]
mod mutants {
    use tenure::core::Mark::{self, *};

    use super::sim::plan::kind;
    use super::*;

    /// The first of 1,000 seeds under which something goes wrong without that rule, and what.
    fn noticed(mark: Mark) -> Option<(Plan, String)> {
        (1..=1_000).find_map(|seed| {
            let plan = Plan::draw(seed);
            let why = plan.play(&mut plan.world(Rules::without(mark), Some(mark))).err()?;
            Some((plan, why))
        })
    }

    /// The swarm is worth something: without one of these rules it finds what goes wrong, within 1,000
    /// seeds. (The others are rarer to need; tests/marks.rs has a trace for each.)
    #[test]
    fn swarm_notices_missing_rules() {
        const NOTICED: &[Mark] = &[
            F1,
            F2,
            F3,
            F4,
            F5,
            F6,
            F7,
            F9,
            F10,
            F21,
            ValidityFromSend,
            Margin,
            EpochNotTransitions,
            AppFirst,
            CompareAndSwap,
            OwnClockOnly,
            ValidityNotBoolean,
            UidSent,
            Incarnation,
        ];
        println!("| mark | broken | seed |");
        for &mark in NOTICED {
            let Some((plan, why)) = noticed(mark) else {
                panic!("nothing goes wrong without {mark:?}");
            };
            println!("| {mark:?} | {} | {} |", kind(&why), plan.seed);
        }
    }

    /// A seed that fails is shortened to what matters, and still fails in the same way.
    #[test]
    fn a_failing_seed_is_shortened() {
        for mark in [F1, ValidityFromSend, AppFirst] {
            let (plan, why) = noticed(mark).expect("one of those that are noticed");
            let (rules, deeds, broken) = (Rules::without(mark), plan.deeds.len(), kind(&why));
            let Shrinking { plan, why, runs, .. } = Shrinking::of(plan, why, rules, Some(mark));
            println!("without {mark:?}: {deeds} deeds, {runs} runs: {why}\n{plan}\n");
            assert_eq!(kind(&why), broken);
            assert!(plan.deeds.len() * 4 <= deeds, "{} of {deeds}", plan.deeds.len());
            for _ in 0..2 {
                let again = plan.play(&mut plan.world(rules, Some(mark)));
                assert_eq!(again, Err(why.clone()), "it fails the same each time");
            }
            assert_eq!(plan.play(&mut plan.world(Rules::default(), None)), Ok(()));
        }
    }
}
