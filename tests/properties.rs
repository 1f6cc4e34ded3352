//! What holds for every sequence of events, and for every script of faults. What once failed is kept in
//! `properties.regressions` and tried first.

mod sim;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError};
use sim::store::{Base, Object, apply, empty_record};
use sim::swarm::{Deed, Swarm};
use sim::{Clock, MS, Rng, SECOND, Setup, Weather, World, show};
use tenure::core::*;

fn config(cases: u32) -> Config {
    Config {
        cases,
        max_shrink_iters: 2_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..Config::default()
    }
}

/// (state, kind of event), and how often.
type Coverage = BTreeMap<(&'static str, &'static str), u64>;

/// One core, and whatever numbers make of events.
struct Lone {
    elector: Elector<Base>,
    now: u64,
    reads: Vec<RequestId>,
    writes: Vec<(RequestId, Write<Base>)>,
    watch: RequestId,
    version: u64,
}

const ME: &str = "me_1";

impl Lone {
    fn new(with: u64) -> Lone {
        let options = Options {
            identity: ME.into(),
            incarnation: "mine".into(),
            takes_over: with & 1 == 0,
            timing: Setup::default().timing,
            missing_lease: [MissingLease::Create, MissingLease::CreateFree, MissingLease::Never]
                [(with >> 1) as usize % 3],
            drain_timeout: match (with >> 3) & 1 {
                0 => DrainTimeout::Auto,
                _ => DrainTimeout::Explicit(Duration::from_secs(5)),
            },
            on_app_exit: if (with >> 4) & 1 == 0 { OnAppExit::Keep } else { OnAppExit::Release },
            unsafe_release_on_sigterm: (with >> 5) & 7 == 0,
            max_valid: ((with >> 8) & 3 == 0).then(|| Duration::from_secs(1)),
            rules: Rules::default(),
        };
        let now = SECOND;
        let elector = Elector::new(options, Clock::exact(0).now(now));
        let (reads, writes) = (Vec::new(), Vec::new());
        let mut lone = Lone { elector, now, reads, writes, watch: RequestId(0), version: 10 };
        lone.drain();
        lone
    }

    fn drain(&mut self) {
        for count in 0.. {
            assert!(count < 48, "a loop of actions");
            match self.elector.poll_action() {
                None => break,
                Some(Action::Read { id }) => self.reads.push(id),
                Some(Action::Write { id, write, .. }) => self.writes.push((id, write)),
                Some(Action::Watch { id, .. }) => self.watch = id,
                Some(_) => {}
            }
        }
    }

    /// An object out of few values, so that they meet.
    fn object(&mut self, with: u64) -> Observed<Base> {
        let mut rng = Rng(with);
        let mut record = empty_record();
        if let (true, Some((_, write))) = (rng.permille(500), self.writes.last()) {
            record = apply(write).record;
        }
        let mut pick = |chance: u64, options: u64| {
            if rng.permille(chance) { Some(rng.below(options)) } else { None }
        };
        if record.uid.is_empty() || pick(50, 1).is_some() {
            record.uid = if pick(100, 1).is_some() { "u2".into() } else { "u1".into() };
        }
        self.version = match pick(200, 60) {
            Some(version) => version + 1,
            None => self.version + 1,
        };
        record.version = pick(980, 1).map(|_| Version::new(u128::from(self.version)));
        if let Some(which) = pick(300, 4) {
            record.holder =
                [None, Some(ME), Some("other_1"), Some(HOLDER_NEW)][which as usize].map(Arc::from);
        }
        if let Some(seconds) = pick(200, 30) {
            record.duration = Some(Duration::from_secs(seconds)).filter(|span| !span.is_zero());
        }
        if let Some(which) = pick(200, 3) {
            record.epoch = [None, Some(self.version), Some(MAX_EPOCH)][which as usize];
        }
        if let Some(which) = pick(200, 3) {
            record.incarnation =
                [None, Some("mine"), Some("theirs")][which as usize].map(Arc::from);
        }
        if pick(200, 1).is_some() {
            record.released = record.epoch;
        }
        if let Some(which) = pick(200, 3) {
            record.transitions = [None, Some(1), Some(i32::MAX as u32)][which as usize];
        }
        if let Some(second) = pick(200, 100) {
            record.renew_time = Some(Stamp::At(Wall::from_micros(second as i64 * 500_000)));
        }
        record.coordinated = pick(20, 1).is_some();
        record.bad_annotations = u8::from(pick(20, 1).is_some());
        let base = Arc::new(Object { record: record.clone(), label: 0 });
        Observed { record, base }
    }

    fn failure(with: u64) -> Failure {
        let status = [None, Some(403), Some(429), Some(500), Some(404)][with as usize % 5];
        let refused = status.is_some_and(|status| status < 500);
        Failure {
            class: if refused { FailureClass::Refused } else { FailureClass::Unknown },
            status,
            retry_after: (with >> 8).is_multiple_of(3).then(|| Duration::from_secs(with >> 32)),
        }
    }

    fn read_id(&self, with: u64) -> RequestId {
        let old = self.reads.len().saturating_sub(1 + with as usize % 3);
        self.reads.get(old).copied().unwrap_or(RequestId(with))
    }

    fn event(&mut self, kind: u64, with: u64) -> Event<Base> {
        let id = self.read_id(with);
        let watch = if with.is_multiple_of(16) { RequestId(with) } else { self.watch };
        let watched = |event| Event::Watch { id: watch, event };
        let old = self.writes.len().saturating_sub(1 + with as usize % 4);
        let write = self.writes.get(old).cloned();
        let put = write.as_ref().map_or(RequestId(with), |(id, _)| *id);
        match kind % 32 {
            0..=4 => Event::Timeout,
            5 | 6 => Event::Read { id, outcome: ReadOutcome::Found(self.object(with)) },
            7 => Event::Read { id, outcome: ReadOutcome::Absent },
            8 => Event::Read { id, outcome: ReadOutcome::Failed(Lone::failure(with)) },
            9..=13 => {
                let mut object = self.object(with);
                if let Some((_, write)) = &write {
                    let (uid, version) = (object.record.uid.clone(), object.record.version);
                    object.record = apply(write).record;
                    if object.record.uid.is_empty() {
                        object.record.uid = uid;
                    }
                    object.record.version = version;
                    object.base = Arc::new(Object { record: object.record.clone(), label: 0 });
                }
                let outcome = WriteOutcome::Done { created: kind % 32 == 9, object };
                Event::Write { id: put, outcome }
            }
            14 => Event::Write { id: put, outcome: WriteOutcome::Conflict },
            15 => Event::Write { id: put, outcome: WriteOutcome::Failed(Lone::failure(with)) },
            16 => watched(WatchEvent::Opened),
            17 | 18 => {
                let object = self.object(with);
                watched(WatchEvent::Object(object))
            }
            19 => {
                let version = Some(Version::new(u128::from(self.version + 1)));
                watched(WatchEvent::Deleted { uid: "u1".into(), version })
            }
            20 => watched(WatchEvent::Bookmark { version: Some(Version::new(12)) }),
            21 => watched(WatchEvent::Closed),
            22 => watched(WatchEvent::Gone),
            23 => watched(WatchEvent::Failed(Lone::failure(with))),
            24 => Event::Access { denied: with.is_multiple_of(3) },
            25 => Event::HoldOpened,
            26 => Event::HoldClosed { by_peer: !with.is_multiple_of(4) },
            27 => Event::AppStopped(AppStopped {
                epoch: (with & 1 == 0).then_some(with >> 48),
                last: with.is_multiple_of(5),
                cool_down: with.is_multiple_of(3).then(|| Duration::from_secs(with >> 56)),
            }),
            28 if with.is_multiple_of(4) => Event::Shutdown,
            _ => Event::Timeout,
        }
    }

    /// Lets one thing happen; nothing may panic or loop.
    fn happens(&mut self, (kind, with, wait): (u64, u64, u64), coverage: &mut Coverage) {
        let due = self.elector.poll_timeout().map_or(0, |at| Clock::exact(0).when(at.as_nanos()));
        self.now = match wait % 8 {
            0..=2 => self.now,
            3..=5 => self.now + wait % (700 * MS),
            6 => due.clamp(self.now, self.now + 100 * SECOND),
            _ => self.now + wait % (20 * SECOND),
        };
        let now = Clock::exact(0).now(self.now);
        let event = self.event(kind, with);
        *coverage.entry((self.elector.state().word(), show::kind(&event))).or_insert(0) += 1;
        self.elector.handle(now, event);
        self.drain();
        let due = self.elector.poll_timeout();
        assert!(due.is_none_or(|due| due > now.mono), "{due:?} is not after {now:?}");
        if kind.is_multiple_of(3) {
            let sees_no_length = with.is_multiple_of(9);
            let ask = Ask { sees_no_length, max_valid: None, min_valid: None };
            let answer = self.elector.answer(now, ask);
            assert!(!answer.leader || answer.valid_until > Some(now.mono), "S3");
            assert!(!answer.leader || answer.epoch.is_some());
            self.drain();
        }
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn no_order_of_events_panics_or_loops(
        with in any::<u64>(),
        events in prop::collection::vec(any::<(u64, u64, u64)>(), 1..150),
    ) {
        let mut lone = Lone::new(with);
        for event in events {
            lone.happens(event, &mut Coverage::new());
        }
    }
}

/// Kinds of events that a shell cannot send in a state, or that come to nothing there.
#[test]
fn every_event_meets_every_state() {
    let mut coverage = Coverage::new();
    let mut rng = Rng(7);
    for _ in 0..4_000 {
        let mut lone = Lone::new(rng.next());
        for _ in 0..80 {
            lone.happens((rng.next(), rng.next(), rng.next()), &mut coverage);
        }
    }
    let kinds: std::collections::BTreeSet<_> = coverage.keys().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds.len(), 20, "{kinds:?}");
    let missing: Vec<_> = State::ALL
        .iter()
        .flat_map(|state| kinds.iter().map(move |kind| (state.word(), *kind)))
        .filter(|pair| !coverage.contains_key(pair))
        .collect();
    let least = coverage.iter().min_by_key(|(_, count)| **count);
    println!("{} pairs; the rarest: {least:?}", coverage.len());
    assert!(missing.is_empty(), "never met: {missing:?}");
}

/// What a script starts from.
#[derive(Clone, Debug)]
struct Plan {
    pods: usize,
    rates: Vec<u64>,
    peer: bool,
    weather: u64,
    polls: bool,
    takes_over: bool,
    deeds: Vec<(u64, u64, u64)>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let deeds = prop::collection::vec((0..8_000_u64, 0..40_u64, 0..1_000_000_u64), 0..50);
    let rates = prop::collection::vec(830_000..1_230_000_u64, 3);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<u64>());
    (2..=3_usize, rates, flags, deeds).prop_map(|(pods, rates, flags, deeds)| {
        let (peer, polls, takes_over, weather) = flags;
        Plan { pods, rates, peer, weather, polls, takes_over, deeds }
    })
}

fn script(plan: &Plan) -> Result<(), String> {
    let mut world = World::new(Rules::default(), None);
    world.swarm = Some(Swarm::default());
    if std::env::var_os("TIMELINE").is_some() {
        world.timeline = Some(Vec::new());
    }
    for number in 0..plan.pods {
        let clock = Clock { rate: plan.rates[number], ..Clock::exact(number) };
        let setup = Setup { takes_over: plan.takes_over, ..Setup::default() };
        world.add_pod(clock, setup);
        world.pods[number].app.poll_every = plan.polls.then_some(SECOND);
    }
    world.store.create_empty();
    if plan.peer {
        world.add_peer(Clock::exact(20), [15 * SECOND, 10 * SECOND, 2 * SECOND]);
    }
    let mut rng = Rng(plan.weather);
    world.weather = (!plan.weather.is_multiple_of(4)).then(|| Weather::draw(&mut rng));
    world.sow(&mut rng);
    (0..plan.pods).for_each(|pod| world.start(pod));
    for &(pause, kind, with) in &plan.deeds {
        world.run_for(pause);
        world.deed(Deed::number(kind, plan.pods, with));
    }
    let result = world.liveness();
    if let Some(timeline) = &world.timeline {
        println!("{}", timeline.join("\n"));
    }
    result
}

proptest! {
    #![proptest_config(config(120))]

    /// S1-S7 under any script of faults, and L1-L3 after it: two and three candidates, clocks that drift
    /// apart as far as the timings allow, restarts, a client-go peer in half of them.
    #[test]
    fn invariants_hold_under_any_script(plan in plan()) {
        script(&plan).map_err(TestCaseError::fail)?;
    }
}
