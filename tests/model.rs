//! The real core in a model checker: every order in which things can happen to a few candidates,
//! with a few faults to spend. `make model` runs the bigger variants, `make mutants` shows what
//! the model finds where a rule is switched off.

#[path = "model/peer.rs"]
mod peer;
#[path = "model/steps.rs"]
mod steps;
#[path = "sim/store.rs"]
#[allow(dead_code, unreachable_pub, missing_debug_implementations)]
mod store;
#[path = "model/variants.rs"]
mod variants;
#[path = "model/walk.rs"]
mod walk;
#[path = "model/wire.rs"]
mod wire;
#[path = "model/world.rs"]
mod world;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};
use steps::Step;
use world::{Variant, World};

type Found = HashMap<&'static str, Path<World, Step>>;

struct Report {
    found: Found,
    generated: usize,
    unique: usize,
    depth: usize,
    took: Duration,
}

fn report(start: Instant, checker: &impl Checker<Variant>) -> Report {
    Report {
        found: checker.discoveries(),
        generated: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: start.elapsed(),
    }
}

fn broken(variant: &Variant, report: &Report) -> Option<(&'static str, Vec<(World, Step)>)> {
    let failures = variant
        .properties()
        .into_iter()
        .filter(|property| matches!(property.expectation, Expectation::Always));
    let mut traces: Vec<_> = failures
        .filter_map(|property| {
            let path = report.found.get(property.name)?.clone();
            let steps = path.into_vec().into_iter();
            let steps = steps.filter_map(|(world, step)| Some((world, step?)));
            Some((property.name, steps.collect::<Vec<_>>()))
        })
        .collect();
    traces.sort_by_key(|(name, steps)| (steps.len(), *name));
    traces.into_iter().next()
}

/// What happened, second by second.
fn tell(steps: &[(World, Step)]) -> String {
    let line = |(world, step): &(World, Step)| format!("{:>4} s  {step:?}", world.second);
    steps.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn seconds_to_walk() -> Option<Duration> {
    let seconds = std::env::var("WALK").ok()?.parse().expect("WALK is a number of seconds");
    Some(Duration::from_secs(seconds))
}

fn explore(variant: &Variant) -> Report {
    let start = Instant::now();
    let checker = variant.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    if let Some(limit) = seconds_to_walk() {
        let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().expect("SEED is a number"));
        let checker = checker.timeout(limit).spawn_simulation(seed, walk::MostlyUsual);
        report(start, &checker.join())
    } else if std::env::var_os("SHORTEST").is_some() {
        report(start, &checker.spawn_bfs().join())
    } else {
        report(start, &checker.spawn_dfs().join())
    }
}

/// S1, S2, S4, S5 and S7 hold in every state of these variants; and what they speak of happens.
#[test]
fn invariant_s1_s2_s4_s5_s7_in_every_state() {
    let variants = variants::asked_for();
    let mut happened = BTreeSet::new();
    println!("| variant | words | states | unique | depth | seconds |");
    println!("|---|---|---|---|---|---|");
    for variant in &variants {
        let report = explore(variant);
        let Report { generated, unique, depth, took, .. } = report;
        let (name, words, took) = (variant.name, &variant.words, took.as_secs_f64());
        println!("| {name} | {words} | {generated} | {unique} | {depth} | {took:.1} |");
        if let Some((property, steps)) = broken(variant, &report) {
            panic!("{name}: {property} is broken\n{}", tell(&steps));
        }
        happened.extend(report.found.into_keys());
    }
    if variants.len() > 1 {
        for property in variants[0].properties() {
            let wanted = matches!(property.expectation, Expectation::Sometimes);
            assert!(!wanted || happened.contains(property.name), "never: {}", property.name);
        }
    }
}

/// Without one of its rules the core breaks a property: the model would notice.
#[test]
fn each_mutant_is_caught() {
    println!("| mutant | broken | steps | states | seconds |");
    println!("|---|---|---|---|---|");
    for variant in variants::mutants() {
        let start = Instant::now();
        let checker = variant.clone().checker().threads(2);
        let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let report = report(start, &checker);
        let mark = variant.without.expect("a mutant");
        let Some((property, steps)) = broken(&variant, &report) else {
            panic!("without {mark:?} nothing goes wrong in {}", variant.words);
        };
        let (unique, took) = (report.unique, report.took.as_secs_f64());
        println!("| {mark:?} | {property} | {} | {unique} | {took:.1} |", steps.len());
        if std::env::var_os("TIMELINE").is_some() {
            println!("{}", tell(&steps));
        }
    }
}
