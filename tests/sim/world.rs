//! The world: what happens next, and to whom.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure::core::{
    Action, Answer, Ask, DrainTimeout, Elector, Event, Mark, MissingLease, Mono, OnAppExit,
    Options, RequestId, Rules, State, Tell, Write,
};
use tenure::timing::Timing;

use super::checker::{Author, Checker};
use super::clock::{Clock, Rng};
use super::link::{Fate, Kind, Link, Weather};
use super::peer::{Peer, PeerEvent};
use super::show;
use super::store::{Base, Store, version_of};
use super::swarm::{Deed, Swarm};

/// More actions than that from one event would be a loop.
const MAX_ACTIONS: usize = 48;
/// More timeouts than that of one pod at one instant would be a loop.
const MAX_AT_ONCE: u32 = 20;

pub enum What {
    Read,
    Write { write: Write<Base>, epoch: u64 },
    Watch { after: Option<u128> },
}

pub struct Request {
    pub author: Author,
    pub id: RequestId,
    pub what: What,
    pub sent_mono: u64,
    pub fate: Fate,
}

pub enum Happening {
    Timer {
        pod: usize,
        generation: u64,
    },
    Arrive(Request),
    Deliver {
        author: Author,
        event: Event<Base>,
    },
    /// An event of a watch, which is lost where the watch has died.
    Stream {
        author: Author,
        id: RequestId,
        event: Event<Base>,
    },
    Poll {
        pod: usize,
        generation: u64,
    },
    Peer(PeerEvent),
    /// What a plan wants done.
    Deed(Deed),
}

/// A watch, as the server sees it.
#[derive(Clone, Debug)]
pub struct Stream {
    pub id: RequestId,
    pub life: u32,
    /// Nothing passes any more, and nobody is told.
    pub stalled: bool,
    /// The last event is on it.
    pub ending: bool,
    /// Events arrive in order.
    pub last_at: u64,
}

/// The main container's program: it works by the grants it asks for.
#[derive(Clone, Debug)]
pub struct App {
    pub poll_every: Option<u64>,
    pub ask: Ask,
    pub holding: bool,
    pub generation: u64,
}

pub struct Pod {
    pub identity: Arc<str>,
    pub clock: Clock,
    pub setup: Setup,
    pub elector: Option<Elector<Base>>,
    pub life: u32,
    pub paused: bool,
    pub inbox: VecDeque<Event<Base>>,
    pub link: Link,
    pub stream: Option<Stream>,
    /// The newest version that this process has been shown.
    pub seen: u128,
    pub timer: u64,
    pub app: App,
    /// When the instant began in which it handles events now, and how many it has.
    at_once: (u64, u32),
    pub puts: u64,
    pub gets: u64,
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub timing: Timing,
    pub takes_over: bool,
    pub missing_lease: MissingLease,
    pub drain_timeout: DrainTimeout,
    pub on_app_exit: OnAppExit,
    pub unsafe_release_on_sigterm: bool,
    pub max_valid: Option<Duration>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            timing: Timing::default(),
            takes_over: true,
            missing_lease: MissingLease::Create,
            drain_timeout: DrainTimeout::Auto,
            on_app_exit: OnAppExit::Release,
            unsafe_release_on_sigterm: false,
            max_valid: None,
        }
    }
}

pub struct World {
    pub now: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    pub store: Store,
    pub pods: Vec<Pod>,
    pub peers: Vec<Peer>,
    pub checker: Checker,
    pub rules: Rules,
    /// The rule that is off, where its mutant lives in the world.
    pub mutant: Option<Mark>,
    pub weather: Option<Weather>,
    /// What the deeds of a plan have to mind.
    pub swarm: Option<Swarm>,
    pub tells: Vec<(u64, Author, Tell)>,
    /// (state, kind of event) and how often.
    pub coverage: BTreeMap<(&'static str, &'static str), u64>,
    pub timeline: Option<Vec<String>>,
    pub events: u64,
}

impl World {
    pub fn new(rules: Rules, mutant: Option<Mark>) -> World {
        World {
            now: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            store: Store::new(),
            pods: Vec::new(),
            peers: Vec::new(),
            checker: Checker::default(),
            rules,
            mutant,
            weather: None,
            swarm: None,
            tells: Vec::new(),
            coverage: BTreeMap::new(),
            timeline: None,
            events: 0,
        }
    }

    pub fn add_pod(&mut self, clock: Clock, setup: Setup) -> usize {
        let number = self.pods.len();
        let name = (b'a' + number as u8) as char;
        self.pods.push(Pod {
            identity: format!("{name}_{name}{name}{name}").into(),
            clock,
            setup,
            elector: None,
            seen: 0,
            life: 0,
            paused: false,
            inbox: VecDeque::new(),
            link: Link::good(),
            stream: None,
            timer: 0,
            app: App { poll_every: None, ask: Ask::default(), holding: false, generation: 0 },
            at_once: (0, 0),
            puts: 0,
            gets: 0,
        });
        number
    }

    /// Gives each link weather of its own.
    pub fn sow(&mut self, rng: &mut Rng) {
        let pods = self.pods.iter_mut().map(|pod| &mut pod.link);
        for link in pods.chain(self.peers.iter_mut().map(|peer| &mut peer.link)) {
            link.draws = std::array::from_fn(|_| Rng(rng.next()));
        }
    }

    pub fn author(&self, pod: usize) -> Author {
        Author { pod, life: self.pods[pod].life }
    }

    pub fn schedule(&mut self, at: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), happening);
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(timeline) = &mut self.timeline {
            timeline.push(format!("{:>12.6} {}", now as f64 / 1e9, line()));
        }
    }

    /// Starts a pod's process.
    pub fn start(&mut self, pod: usize) {
        let rules = self.rules;
        let it = &mut self.pods[pod];
        assert!(it.elector.is_none(), "one process a pod");
        it.life += 1;
        let Setup { timing, takes_over, missing_lease, drain_timeout, .. } = it.setup.clone();
        let options = Options {
            identity: it.identity.clone(),
            incarnation: format!("{}-{pod}-{}", it.identity, it.life).into(),
            takes_over,
            timing,
            missing_lease,
            drain_timeout,
            on_app_exit: it.setup.on_app_exit,
            unsafe_release_on_sigterm: it.setup.unsafe_release_on_sigterm,
            max_valid: it.setup.max_valid,
            rules,
        };
        it.seen = 0;
        it.elector = Some(Elector::new(options, it.clock.now(self.now)));
        it.app.holding = false;
        self.note(|| format!("{pod} starts"));
        self.drain(pod);
        self.poll_soon(pod);
    }

    /// SIGKILL: nothing of it is left but what is on its way.
    pub fn crash(&mut self, pod: usize) {
        self.note(|| format!("{pod} is killed"));
        let it = &mut self.pods[pod];
        it.elector = None;
        it.paused = false;
        it.inbox.clear();
        it.stream = None;
    }

    /// Lets an event happen to a pod, now or when it is no longer stopped.
    pub fn happen(&mut self, pod: usize, event: Event<Base>) {
        let it = &mut self.pods[pod];
        if it.elector.is_none() {
            return;
        }
        if it.paused {
            // The clock tells it the time when it goes on, after all that came first.
            if event != Event::Timeout {
                it.inbox.push_back(event);
            }
            return;
        }
        if it.at_once.0 != self.now {
            it.at_once = (self.now, 0);
        }
        it.at_once.1 += u32::from(event == Event::Timeout);
        assert!(it.at_once.1 < MAX_AT_ONCE, "a loop: {MAX_AT_ONCE} timeouts in one instant");
        it.seen =
            show::brought(&event).map_or(it.seen, |shown| it.seen.max(version_of(&shown.base)));
        let now = it.clock.now(self.now);
        let elector = it.elector.as_mut().expect("it runs");
        *self.coverage.entry((elector.state().word(), show::kind(&event))).or_insert(0) += 1;
        let line = self.timeline.is_some().then(|| show::event(&event));
        elector.handle(now, event);
        let due = elector.poll_timeout();
        assert!(due.is_none_or(|due| due > now.mono), "a timeout at {due:?}, not after {now:?}");
        let state = elector.state();
        self.note(|| format!("{pod} <- {} [{state:?}]", line.unwrap_or_default()));
        self.drain(pod);
        if self.pods[pod].elector.as_ref().is_some_and(Elector::finished) {
            self.note(|| format!("{pod} has ended"));
            self.crash(pod);
        }
    }

    /// Carries out what the core asks for, and sets its timer.
    pub fn drain(&mut self, pod: usize) {
        for count in 0.. {
            assert!(count < MAX_ACTIONS, "a loop: {MAX_ACTIONS} actions of one event");
            let elector = self.pods[pod].elector.as_mut().expect("it runs");
            let Some(action) = elector.poll_action() else { break };
            if self.timeline.is_some() {
                let line = show::action(&action);
                self.note(|| format!("{pod}    -> {line}"));
            }
            self.act(pod, action);
        }
        let it = &mut self.pods[pod];
        let elector = it.elector.as_ref().expect("it runs");
        let Some(at) = elector.poll_timeout() else { return };
        if at < Mono::from_nanos(u64::MAX / 2) {
            it.timer += 1;
            let (at, generation) = (it.clock.when(at.as_nanos()), it.timer);
            self.schedule(at, Happening::Timer { pod, generation });
        }
    }

    fn act(&mut self, pod: usize, action: Action<Base>) {
        match action {
            Action::Read { id } => {
                self.pods[pod].gets += 1;
                self.send(pod, id, What::Read, Kind::Get, false);
            }
            Action::Write { id, write, fresh_connection } => {
                self.pods[pod].puts += 1;
                let held = self.pods[pod].elector.as_ref().and_then(Elector::held_epoch);
                let named = match write.released {
                    tenure::core::Released::Set(epoch) => Some(epoch),
                    _ => write.epoch,
                };
                let epoch = named.or(held).unwrap_or(0);
                self.send(pod, id, What::Write { write, epoch }, Kind::Put, fresh_connection);
            }
            // The driver drops its answer; the core has to cope with one that came first.
            Action::Cancel { .. } => {}
            Action::Watch { id, after } => {
                self.pods[pod].stream = None;
                let after = after.map(|version| version.number());
                self.send(pod, id, What::Watch { after }, Kind::Watch, true);
            }
            Action::Tell(tell) => {
                let author = self.author(pod);
                self.checker.told(self.now, author, &tell);
                self.tells.push((self.now, author, tell));
            }
        }
    }

    fn send(&mut self, pod: usize, id: RequestId, what: What, kind: Kind, fresh: bool) {
        let it = &mut self.pods[pod];
        let scripted = it.link.next.iter().any(|(of, _)| *of == kind);
        let weathered = self.weather.as_ref().map(|weather| it.link.weathered(weather, kind));
        let fate = match weathered {
            Some(fate) if !it.link.cut && !scripted => fate,
            _ => it.link.fate(kind, fresh),
        };
        let sent_mono = it.clock.mono(self.now);
        let request = Request { author: self.author(pod), id, what, sent_mono, fate };
        self.depart(request);
    }

    /// The answer of a pod's API at this moment, which grants what it says.
    pub fn ask(&mut self, pod: usize, ask: Ask) -> Option<Answer> {
        let it = &mut self.pods[pod];
        if it.paused {
            return None;
        }
        let now = it.clock.now(self.now);
        let elector = it.elector.as_mut()?;
        let answer = elector.answer(now, ask);
        let held = elector.valid_until();
        if let Some(until) = answer.valid_until {
            // Who sees no length was told yes, or nothing.
            let whole = ask.sees_no_length && answer.leader;
            let granted = if whole { held.unwrap_or(until) } else { until };
            let at = it.clock.when(granted.as_nanos());
            self.checker.granted(pod, at);
        }
        self.drain(pod);
        Some(answer)
    }

    pub fn poll_soon(&mut self, pod: usize) {
        let app = &mut self.pods[pod].app;
        let Some(every) = app.poll_every else { return };
        app.generation += 1;
        let generation = app.generation;
        self.schedule(self.now + every, Happening::Poll { pod, generation });
    }

    /// What dead processes have sent and is still on its way gets lost.
    pub fn forget_the_dead(&mut self) {
        let lives: Vec<u32> = self.pods.iter().map(|pod| pod.life).collect();
        let dead = |author: &Author| lives[author.pod] != author.life;
        self.queue
            .retain(|_, what| !matches!(what, Happening::Arrive(request) if dead(&request.author)));
    }

    /// When the last request that is on its way arrives.
    pub fn last_arrival(&self) -> u64 {
        let request = |what: &Happening| {
            matches!(what, Happening::Arrive(_) | Happening::Peer(PeerEvent::Arrive { .. }))
        };
        let arrivals = self.queue.iter().filter(|(_, what)| request(what));
        arrivals.map(|((at, _), _)| *at).max().unwrap_or(0)
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<u64> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// Lets the next thing happen.
    pub fn step(&mut self) -> bool {
        let Some(((at, _), happening)) = self.queue.pop_first() else { return false };
        self.now = at;
        self.events += 1;
        match happening {
            Happening::Timer { pod, generation } => {
                let it = &self.pods[pod];
                if it.timer == generation && it.elector.is_some() {
                    self.happen(pod, Event::Timeout);
                }
            }
            Happening::Arrive(request) => self.arrive(request),
            Happening::Deliver { author, event } => {
                if self.author(author.pod) == author {
                    self.happen(author.pod, event);
                }
            }
            Happening::Stream { author, id, event } => self.stream_brings(author, id, event),
            Happening::Poll { pod, generation } => {
                if self.pods[pod].app.generation == generation {
                    let ask = self.pods[pod].app.ask;
                    self.ask(pod, ask);
                    self.poll_soon(pod);
                }
            }
            Happening::Peer(event) => self.peer_event(event),
            Happening::Deed(deed) => self.deed(deed),
        }
        self.look();
        true
    }

    /// Who says leader now, by its own clock, whatever else is stuck.
    pub fn leaders(&self) -> Vec<(Author, Option<u64>, u64)> {
        let mut leaders = Vec::new();
        for (pod, it) in self.pods.iter().enumerate() {
            let Some(elector) = &it.elector else { continue };
            if elector.state() != State::Leading {
                continue;
            }
            let now = it.clock.now(self.now);
            let answer = elector.clone().answer(now, Ask::default());
            if answer.leader {
                leaders.push((self.author(pod), answer.epoch, now.mono.as_nanos()));
            }
        }
        for (number, peer) in self.peers.iter().enumerate() {
            if peer.leads(self.now) {
                let pod = super::checker::PEER + number;
                leaders.push((Author { pod, life: 1 }, None, self.now));
            }
        }
        leaders
    }

    pub fn look(&mut self) {
        let leaders = self.leaders();
        self.checker.leaders(self.now, &leaders);
    }
}
