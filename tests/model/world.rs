//! One state of the model: candidates around the real core, one Lease, what is on the wire, and
//! what the properties need to remember.
//!
//! Time is true time in whole seconds. It moves only when nothing is due: requests are served and
//! watches deliver within the second they were sent in, in any order, unless a fault (of which a
//! variant has a few to spend) holds them up. So a run without faults is prompt, and every run is
//! finite.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Duration;

use tenure::core::{
    Action, AppStopped, Ask, DrainTimeout, Elector, Event, Mark, MissingLease, Mono, Now,
    OnAppExit, Options, RequestId, Rules, Version, Wall, WatchEvent,
};
use tenure::timing::Timing;

use super::peer::Peer;
use super::store::{Base, Store};
use super::wire::{Answer, Request, What};

/// How many seconds a lease lasts, a write makes valid, and lie between two renewals.
pub(crate) const LEASE: u64 = 6;
pub(crate) const RENEW: u64 = 5;
const RETRY: u64 = 2;

/// Every machine has been up for a while.
const UPTIME: u64 = 1_000;

/// What may still go wrong, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// A request or its answer is held up for as long as it likes.
    pub(crate) late: u8,
    /// A candidate is told that a request has failed, which may land all the same.
    pub(crate) fail: u8,
    /// A candidate is cut off; whatever it sends until it is healed is lost.
    pub(crate) cut: u8,
    /// A candidate's elector stands still; its API answers on.
    pub(crate) pause: u8,
    /// A watch falls silent.
    pub(crate) stall: u8,
    /// A watch brings an old event again.
    pub(crate) replay: u8,
    pub(crate) crash: u8,
    /// A crashed or ended candidate starts again in its pod.
    pub(crate) restart: u8,
    pub(crate) delete: u8,
    /// Somebody makes the missing Lease, empty.
    pub(crate) remake: u8,
    /// The app asks, and is granted what there is.
    pub(crate) poll: u8,
    /// The app says that it has stopped.
    pub(crate) word: u8,
    /// The app opens a hold, and closes it.
    pub(crate) hold: u8,
    pub(crate) shutdown: u8,
    /// What a client-go candidate does: a round of its loop, or its release.
    pub(crate) peer: u8,
}

impl Budget {
    pub(crate) const NONE: Budget = Budget {
        late: 0,
        fail: 0,
        cut: 0,
        pause: 0,
        stall: 0,
        replay: 0,
        crash: 0,
        restart: 0,
        delete: 0,
        remake: 0,
        poll: 0,
        word: 0,
        hold: 0,
        shutdown: 0,
        peer: 0,
    };
}

/// What stays the same in a run.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    /// What it was parsed from.
    pub(crate) words: String,
    pub(crate) pods: usize,
    pub(crate) budget: Budget,
    /// The last second.
    pub(crate) horizon: u64,
    /// Who leads, and who has read and watches, when the run begins; else nobody was started.
    pub(crate) settled: bool,
    pub(crate) lease: FirstLease,
    /// The first two candidates carry one identity, and neither knows the other to be dead.
    pub(crate) twins: bool,
    pub(crate) drain: DrainTimeout,
    pub(crate) on_app_exit: OnAppExit,
    /// The rule that is switched off.
    pub(crate) without: Option<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstLease {
    Missing,
    Empty,
    /// A client-go candidate holds it.
    Peer,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) id: RequestId,
    /// All changes up to this version were delivered.
    pub(crate) after: u128,
    pub(crate) stalled: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    /// None: crashed, or not started.
    pub(crate) process: Option<Arc<Elector<Base>>>,
    pub(crate) life: u8,
    pub(crate) cut: bool,
    pub(crate) paused: bool,
    pub(crate) held: bool,
    pub(crate) stream: Option<Stream>,
    /// The latest deadline the guarded app was told since its last word, by this pod's clock.
    pub(crate) granted: u64,
    /// The epoch of its last release that took effect.
    pub(crate) released: u64,
}

/// A property that is judged when something happens, not by the state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    S2,
    S4,
    S5,
    S7,
    /// An assertion of the core itself.
    Core(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) second: u64,
    pub(crate) pods: Vec<Pod>,
    pub(crate) store: Store,
    pub(crate) requests: Vec<Request>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) peer: Option<Peer>,
    pub(crate) left: Budget,
    /// The last process that acquired the Lease that there is: its pod and life.
    pub(crate) acquirer: Option<(u8, u8)>,
    pub(crate) last_epoch: u64,
    pub(crate) broken: Option<Broken>,
}

/// The pod of a client-go candidate, as an acquirer.
pub(crate) const PEER: u8 = u8::MAX;

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// An assertion of the core that fails is a finding, and not printed.
fn quietly(act: impl FnOnce()) -> Result<(), Box<dyn Any + Send>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !CAUGHT.get() {
                usual(panic);
            }
        }));
    });
    CAUGHT.set(true);
    let result = catch_unwind(AssertUnwindSafe(act));
    CAUGHT.set(false);
    result
}

impl World {
    /// A pod's clock, in nanoseconds. The second pod's runs at the bound of the drift: while it
    /// counts a lease duration, the others count a renew deadline.
    pub(crate) fn clock(&self, pod: usize) -> u64 {
        let (fast, slow) = if pod == 1 { (LEASE, RENEW) } else { (1, 1) };
        UPTIME * (pod as u64 + 1) * 1_000_000_000 + self.second * 1_000_000_000 / slow * fast
    }

    fn now(&self, pod: usize) -> Now {
        let mono = self.clock(pod);
        // Wall clocks differ by minutes.
        let wall = 1_000_000_000_000 + (mono / 1_000) as i64 - pod as i64 * 800_000_000;
        Now { mono: Mono::from_nanos(mono), wall: Wall::from_micros(wall) }
    }

    pub(crate) fn start(&mut self, variant: &Variant, pod: usize) {
        let named = if variant.twins && pod == 1 { 0 } else { pod };
        let it = &mut self.pods[pod];
        it.life += 1;
        let seconds = Duration::from_secs;
        let timing = Timing::new(seconds(LEASE), seconds(RENEW), seconds(RETRY));
        let options = Options {
            identity: format!("pod-{named}").into(),
            incarnation: format!("{pod}-{}", it.life).into(),
            takes_over: !variant.twins,
            timing: timing.expect("sound"),
            missing_lease: MissingLease::Create,
            drain_timeout: variant.drain,
            on_app_exit: variant.on_app_exit,
            unsafe_release_on_sigterm: false,
            max_valid: None,
            rules: variant.without.map_or(Rules::default(), Rules::without),
        };
        self.pods[pod].process = Some(Arc::new(Elector::new(options, self.now(pod))));
        self.drive(pod, Vec::new());
    }

    /// The process is gone; what it has sent may still land.
    pub(crate) fn crash(&mut self, pod: usize) {
        let it = &mut self.pods[pod];
        *it = Pod { life: it.life, granted: it.granted, released: it.released, ..Pod::default() };
        self.answers.retain(|answer| usize::from(answer.pod) != pod);
        self.orphan(pod, |_| true);
    }

    /// Nobody waits for these requests any more; a write among them may land.
    pub(crate) fn orphan(&mut self, pod: usize, which: impl Fn(&Request) -> bool) {
        for request in &mut self.requests {
            if usize::from(request.pod) == pod && !request.orphan && which(request) {
                request.orphan = true;
                request.late = true;
                request.id = RequestId(0);
            }
        }
        self.requests.retain(|request| !request.orphan || !matches!(request.what, What::Read));
    }

    pub(crate) fn happen(&mut self, pod: usize, event: Event<Base>) {
        self.drive(pod, vec![event]);
    }

    /// Lets the core handle these, and carries out all that it asks for.
    fn drive(&mut self, pod: usize, mut events: Vec<Event<Base>>) {
        let now = self.now(pod);
        let Some(mut process) = self.pods[pod].process.take() else { return };
        let elector = Arc::make_mut(&mut process);
        loop {
            while let Some(action) = elector.poll_action() {
                self.carry_out(pod, action, &mut events);
            }
            if events.is_empty() {
                break;
            }
            let event = events.remove(0);
            let handled = quietly(|| elector.handle(now, event));
            if let Err(panic) = handled {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or(panic.downcast_ref::<&str>().map(|text| (*text).into()));
                self.broken = Some(Broken::Core(text.unwrap_or_default()));
                return;
            }
        }
        let finished = elector.finished();
        let names = elector.normalize();
        let name = |id: &mut RequestId| {
            let at = names.iter().position(|old| old == id);
            *id = RequestId(at.map_or(0, |at| at as u64 + 1));
        };
        for request in &mut self.requests {
            if usize::from(request.pod) == pod && !request.orphan {
                name(&mut request.id);
            }
        }
        for answer in &mut self.answers {
            if usize::from(answer.pod) == pod {
                name(answer.id());
            }
        }
        if let Some(stream) = &mut self.pods[pod].stream {
            name(&mut stream.id);
        }
        self.pods[pod].process = Some(process);
        if finished {
            self.crash(pod);
        }
    }

    fn carry_out(&mut self, pod: usize, action: Action<Base>, events: &mut Vec<Event<Base>>) {
        let connected = !self.pods[pod].cut;
        match action {
            Action::Read { id } if connected => self.send(pod, id, What::Read),
            Action::Write { id, write, .. } if connected => {
                self.send(pod, id, What::Write(Arc::new(write)));
            }
            Action::Read { .. } | Action::Write { .. } | Action::Tell(_) => {}
            Action::Cancel { id } => {
                self.answers
                    .retain_mut(|answer| usize::from(answer.pod) != pod || *answer.id() != id);
                self.orphan(pod, |request| request.id == id);
            }
            Action::Watch { id, after } => {
                self.pods[pod].stream = None;
                if connected {
                    let event = self.open_stream(pod, id, after);
                    events.push(Event::Watch { id, event });
                }
            }
        }
    }

    fn send(&mut self, pod: usize, id: RequestId, what: What) {
        let life = self.pods[pod].life;
        self.requests.push(Request { pod: pod as u8, life, id, what, late: false, orphan: false });
    }

    fn open_stream(
        &mut self,
        pod: usize,
        id: RequestId,
        after: Option<Version>,
    ) -> WatchEvent<Base> {
        let newest = self.store.version();
        // Without a version it begins with what there is.
        let there_is = newest - u128::from(self.store.object.is_some());
        let after = after.map_or(there_is, Version::number);
        if after < self.store.compacted {
            return WatchEvent::Gone;
        }
        self.pods[pod].stream = Some(Stream { id, after, stalled: false });
        WatchEvent::Opened
    }

    /// Forgets what no watch can ask for any more, but for the last few, to replay them.
    pub(crate) fn compact(&mut self) {
        let streams = self.pods.iter().filter_map(|pod| pod.stream.as_ref());
        let oldest = streams.map(|stream| stream.after).min().unwrap_or(u128::MAX);
        let keep = if self.left.replay > 0 { 2 } else { 0 };
        let log = &mut self.store.log;
        let old = log.iter().filter(|change| change.version() <= oldest).count();
        let forgotten: Vec<_> = log.drain(..old.min(log.len().saturating_sub(keep))).collect();
        if let Some(last) = forgotten.last() {
            self.store.compacted = last.version();
        }
    }

    /// Whether the elector has something to do now.
    pub(crate) fn is_due(&self, pod: usize) -> bool {
        let Some(process) = &self.pods[pod].process else { return false };
        process.poll_timeout().is_some_and(|at| at.as_nanos() <= self.clock(pod))
    }

    /// What the pod's API grants now: the epoch, and until when.
    pub(crate) fn grant(&self, pod: usize) -> Option<(u64, Option<u64>)> {
        let process = self.pods[pod].process.as_ref()?;
        process.valid_until()?;
        let answer = Elector::clone(process).answer(self.now(pod), Ask::default());
        let until = answer.valid_until.map(|until| until.as_nanos());
        let epoch = answer.epoch?;
        (answer.leader || until.is_some()).then_some((epoch, until))
    }

    /// The app asks, and works until then.
    pub(crate) fn poll(&mut self, pod: usize) {
        let now = self.now(pod);
        let it = &mut self.pods[pod];
        let Some(process) = &mut it.process else { return };
        let answer = Arc::make_mut(process).answer(now, Ask::default());
        let until = answer.valid_until.map_or(0, |until| until.as_nanos());
        it.granted = it.granted.max(until);
        self.drive(pod, Vec::new());
    }

    /// The app has stopped.
    pub(crate) fn word(&mut self, pod: usize, epoch: u64) {
        self.pods[pod].granted = 0;
        let word = AppStopped { epoch: Some(epoch), ..AppStopped::default() };
        self.happen(pod, Event::AppStopped(word));
    }

    /// Two that are told to lead at once, or one while the app of another may still be at work.
    pub(crate) fn overlap(&self) -> bool {
        let leads: Vec<bool> = (0..self.pods.len()).map(|pod| self.grant(pod).is_some()).collect();
        let works = |pod: usize| leads[pod] || self.pods[pod].granted > self.clock(pod);
        let peer = self.peer.as_ref().is_some_and(|peer| peer.leads(self.second));
        (0..leads.len()).any(|pod| {
            leads[pod] && (peer || (0..leads.len()).any(|other| other != pod && works(other)))
        })
    }

    /// Somebody is told to lead in an epoch that was released.
    pub(crate) fn leads_after_release(&self) -> bool {
        let told = |pod: usize| self.grant(pod).map(|(epoch, _)| epoch);
        (0..self.pods.len()).any(|pod| told(pod) == Some(self.pods[pod].released))
    }
}
