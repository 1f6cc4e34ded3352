//! Plans: what a seed lets happen, as a list that can be written down, repeated and shortened. First a
//! safety phase with deeds and bad weather, then a liveness phase without either.

use std::fmt::{self, Display, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tenure::core::{Mark, Rules};

use super::clock::{MS, Rng, SECOND};
use super::link::Weather;
use super::swarm::{Deed, Swarm};
use super::world::{Happening, World};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Draws who takes part, and the weather of each link.
    pub seed: u64,
    pub weather: Weather,
    /// When deeds and weather end, nanoseconds.
    pub until: u64,
    /// When, and what.
    pub deeds: Vec<(u64, Deed)>,
}

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        let mut rng = Rng(seed);
        let mut world = World::new(Rules::default(), None);
        world.cast(&mut rng);
        let pods = world.pods.len();
        let weather = Weather::draw(&mut rng);
        // Each kind of deed is there or not.
        let kinds: Vec<u64> = (0..40).filter(|_| rng.permille(600)).collect();
        let (least, most) = (rng.between(20, 400) * MS, rng.between(500, 5_000) * MS);
        let until = rng.between(40, 200) * SECOND;
        let started = (0..pods).filter(|_| rng.permille(900));
        let mut deeds: Vec<_> = started.map(|pod| (0, Deed::Start(pod))).collect();
        let mut at = 0;
        while at < until && !kinds.is_empty() {
            let kind = kinds[rng.below(kinds.len() as u64) as usize];
            deeds.push((at, Deed::number(kind, pods, rng.next() >> 8)));
            at += rng.between(least, most.max(least));
        }
        Plan { seed, weather, until, deeds }
    }

    pub fn world(&self, rules: Rules, mutant: Option<Mark>) -> World {
        let mut world = World::new(rules, mutant);
        world.cast(&mut Rng(self.seed));
        world.weather = Some(self.weather.clone());
        world.swarm = Some(Swarm::default());
        for &(at, deed) in &self.deeds {
            world.schedule(at, Happening::Deed(deed));
        }
        world
    }

    /// Lets it happen; what goes wrong first.
    pub fn play(&self, world: &mut World) -> Result<(), String> {
        let whole = AssertUnwindSafe(|| {
            while world.next_at().is_some_and(|at| at <= self.until) {
                world.step();
                if let Some(violation) = world.checker.violations.first() {
                    return Err(violation.clone());
                }
            }
            world.run_to_ns(self.until);
            world.liveness()
        });
        catch_unwind(whole).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text
                .or(panic.downcast_ref::<&str>().map(|text| (*text).into()))
                .unwrap_or_default())
        })
    }
}

/// As it is pasted into `tests/simulation.rs`.
impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Plan { seed, weather, until, deeds } = self;
        writeln!(f, "#[test]\nfn seed_{seed}() {{\n    use sim::swarm::Deed::*;")?;
        writeln!(f, "    let weather = sim::{weather:?};")?;
        writeln!(f, "    let deeds = vec![")?;
        for deed in deeds {
            writeln!(f, "        {deed:?},")?;
        }
        writeln!(
            f,
            "    ];\n    let plan = Plan {{ seed: {seed}, weather, until: {until}, deeds }};"
        )?;
        write!(f, "    assert_eq!(plan.play(&mut plan.world(Rules::default(), None)), Ok(()));\n}}")
    }
}

/// What kind of failure that is: the number of the invariant, or the words of a panic without numbers.
pub fn kind(why: &str) -> String {
    let head = why.lines().next().unwrap_or_default().split(": ").next().unwrap_or_default();
    let timed =
        |word: &&str| !word.ends_with('s') || word[..word.len() - 1].parse::<f64>().is_err();
    head.split_whitespace().filter(timed).collect::<Vec<_>>().join(" ")
}

/// A failing plan, made shorter while it goes on failing in the same way.
pub struct Shrinking {
    pub plan: Plan,
    pub why: String,
    pub runs: u32,
    rules: Rules,
    mutant: Option<Mark>,
    begin: Instant,
}

impl Shrinking {
    /// A failure is worth that many runs and that much time.
    const RUNS: u32 = 400;
    const TIME: Duration = Duration::from_secs(60);

    /// The shortest plan that is found.
    pub fn of(plan: Plan, why: String, rules: Rules, mutant: Option<Mark>) -> Shrinking {
        let begin = Instant::now();
        let mut shrinking = Shrinking { plan, why, runs: 0, rules, mutant, begin };
        shrinking.attempt(|_| {});
        shrinking.weather();
        shrinking.deeds();
        shrinking.weather();
        // Where nobody leads in the calm, it may as well begin at once.
        if kind(&shrinking.why).starts_with('L') {
            shrinking.attempt(|plan| plan.until = plan.deeds.last().map_or(0, |(at, _)| *at));
        }
        shrinking
    }

    /// Keeps the change if what comes of it fails in the same way.
    fn attempt(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.plan.clone();
        change(&mut plan);
        if self.runs >= Self::RUNS || self.begin.elapsed() > Self::TIME {
            return false;
        }
        self.runs += 1;
        let mut world = plan.world(self.rules, self.mutant);
        match plan.play(&mut world) {
            Err(why) if kind(&why) == kind(&self.why) => {
                // What is planned for later played no part.
                plan.until = plan.until.min(world.now);
                plan.deeds.retain(|(at, _)| *at <= plan.until);
                (self.plan, self.why) = (plan, why);
                true
            }
            _ => false,
        }
    }

    fn weather(&mut self) {
        if self.plan.weather == Weather::CALM || self.attempt(|plan| plan.weather = Weather::CALM) {
            return;
        }
        self.attempt(|plan| plan.weather.lost = 0);
        self.attempt(|plan| plan.weather.unheard = 0);
        self.attempt(|plan| plan.weather.reset = 0);
        self.attempt(|plan| plan.weather.refused = 0);
        self.attempt(|plan| plan.weather.slow = 0);
    }

    /// Delta debugging: leaves out halves, then smaller parts, then single deeds until none is idle.
    fn deeds(&mut self) {
        let mut size = self.plan.deeds.len().div_ceil(2);
        while size > 0 {
            let (mut at, before) = (0, self.plan.deeds.len());
            while at < self.plan.deeds.len() {
                let end = self.plan.deeds.len().min(at + size);
                if !self.attempt(|plan| drop(plan.deeds.drain(at..end))) {
                    at += size;
                }
            }
            let again = size == 1 && self.plan.deeds.len() < before;
            size = if again { 1 } else { size / 2 };
        }
    }
}
