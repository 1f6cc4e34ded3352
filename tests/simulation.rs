//! A swarm of simulated clusters: three to five cores and the faults that a seed chooses, then a phase
//! without faults in which somebody must lead. `make sim SEEDS=10000` runs many;
//! `SEED=n make sim` replays one and prints its timeline.

mod sim;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use sim::checker::PEER;
use sim::{MS, SECOND, World};
use tenure::core::{AppStopped, Rules, State};

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
    // Nor may the calm start anybody who would be fooled.
    let earliest = world.swarm.as_ref().map_or(0, |swarm| swarm.no_starts_until);
    world.run_to_ns(earliest.max(until));
    let remade = world.swarm.as_ref().and_then(|swarm| swarm.remade_at);
    world.calm();
    let lease = world.longest_lease();
    // Where the Lease had to be made anew, once more.
    let again = remade.is_some_and(|at| at + 2 * lease > world.now) || world.store.object.is_none();
    let mut limit = if again { 2 * lease } else { lease } + SLACK;
    if (0..world.pods.len()).any(|pod| world.state(pod) == State::Draining) {
        // Candidates that are giving a term up take their time first.
        limit += DRAINING;
    }
    let took = world.until(limit / MS, |world| world.anybody());
    let Some(_) = took else {
        return Err(format!("L3: nobody leads {} ms after all faults ended", limit / MS));
    };
    stays_led(world, lease)?;
    hands_over(world)?;
    match world.checker.violations.is_empty() {
        true => Ok(()),
        false => Err(world.checker.violations.join("\n")),
    }
}

/// The longest drain timeout that a seed draws, on the slowest clock.
const DRAINING: u64 = 10 * SECOND;

/// A few messages.
const SLACK: u64 = SECOND;

/// A leader with nothing in its way leads on.
fn stays_led(world: &mut World, lease: u64) -> Result<(), String> {
    world.run_to_ns(world.now + lease + DRAINING);
    for pod in 0..world.pods.len() {
        if world.pods[pod].elector.is_none() {
            world.start(pod);
        }
    }
    match world.until(2 * lease / MS, |world| !world.anybody()) {
        None => Ok(()),
        Some(after) => Err(format!("L3: nobody leads any more after {after} ms of calm")),
    }
}

/// The one that leads, and whether another is ready to follow.
fn leader_and_heir(world: &World) -> Option<usize> {
    let leaders = world.leaders();
    let leader = leaders.first().map(|(author, ..)| author.pod).filter(|pod| *pod < PEER)?;
    let pods = 0..world.pods.len();
    let ready = |pod: &usize| *pod != leader && world.state(*pod) == State::Following;
    pods.into_iter().any(|pod| ready(&pod)).then_some(leader)
}

fn hands_over(world: &mut World) -> Result<(), String> {
    if !world.peers.is_empty() {
        return Ok(());
    }
    let Some(leader) = leader_and_heir(world) else { return Ok(()) };
    world.app_stopped(leader, AppStopped::default());
    if world.until(HAND_OVER / MS, |world| world.anybody()).is_none() {
        return Err("L1: nobody leads after a release".into());
    }
    let lease = world.longest_lease();
    world.run_to_ns(world.now + lease);
    let Some(leader) = leader_and_heir(world) else { return Ok(()) };
    world.crash(leader);
    match world.until((lease + HAND_OVER) / MS, |world| world.anybody()) {
        Some(_) => Ok(()),
        None => Err("L2: nobody leads after a crash".into()),
    }
}

/// The release's PUT, one watch delivery, the acquisition's PUT: 1 ms a message.
const HAND_OVER: u64 = 6 * MS;

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

/// The swarm is worth something: without one of these rules it finds what goes wrong, within 60 seeds.
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
        F28,
        ValidityFromSend,
        Margin,
        EpochNotTransitions,
        AppFirst,
        OwnClockOnly,
        ValidityNotBoolean,
    ];
    for &mark in NOTICED {
        let rules = Rules::without(mark);
        let caught = (1..=60).find_map(|seed| {
            let why = run(seed, rules, false, &mut Totals::default()).err()?;
            Some((seed, why.lines().next().unwrap_or_default().to_owned()))
        });
        println!("{mark:?}: {caught:?}");
        assert!(caught.is_some(), "nothing goes wrong without {mark:?}");
    }
}
