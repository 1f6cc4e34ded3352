//! A test bed: one embedded Lease API, some pods on it, and a witness that no two lead at once.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::core::{
    Answer, Ask, DrainTimeout, Event, MissingLease, Mono, Now, OnAppExit, Options, Rules, State,
    Tell, Verb as Asked, Wall,
};
use tenure::embedded::{LeaseApi as Api, Verb};
use tenure::metrics::Outcome;
use tenure::seat::{Clock, Seat};
use tenure::shell::clock::TokioClock;
use tenure::shell::{Connect, Driver, Ending, LeaseApi, Observer, Signals, Target, Teller};
use tenure::timing::Timing;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const LEASE: &str = "billing";
/// How often the witness looks.
const STEP: Duration = Duration::from_millis(10);

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A clock whose wall part a test can move.
#[derive(Debug)]
struct MovableClock {
    base: TokioClock,
    jump_micros: Arc<AtomicI64>,
}

impl Clock for MovableClock {
    fn now(&self) -> Now {
        let now = self.base.now();
        let wall = now.wall.as_micros() + self.jump_micros.load(Ordering::Relaxed);
        Now { wall: Wall::from_micros(wall), ..now }
    }
}

#[derive(Debug)]
struct Recorder(Arc<Mutex<Vec<Tell>>>);

impl Observer for Recorder {
    fn beat(&self, _: Mono) {}
    fn request(&self, _: Asked, _: Outcome) {}
    fn tell(&self, tell: &Tell) {
        self.0.lock().unwrap().push(tell.clone());
    }
    fn access(&self, _: &[&'static str]) {}
}

/// How a pod is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) options: Options,
    /// Parts per million by which its clock runs fast.
    pub(crate) drift_ppm: i32,
}

pub(crate) fn setup(identity: &str) -> Setup {
    let options = Options {
        identity: identity.into(),
        incarnation: format!("{identity} 1").into(),
        takes_over: false,
        timing: Timing::default(),
        missing_lease: MissingLease::Create,
        drain_timeout: DrainTimeout::Auto,
        on_app_exit: OnAppExit::Release,
        unsafe_release_on_sigterm: false,
        max_valid: None,
        rules: Rules::default(),
    };
    Setup { options, drift_ppm: 0 }
}

impl Setup {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Options)) -> Setup {
        change(&mut self.options);
        self
    }

    pub(crate) fn timing(self, lease: u64, renew: u64, retry: u64) -> Setup {
        let timing = Timing::new(secs(lease), secs(renew), secs(retry)).unwrap();
        self.with(|options| options.timing = timing)
    }

    /// The same pod, started again: another process with the same name.
    pub(crate) fn restarted(self, nth: u32) -> Setup {
        self.with(|options| {
            options.incarnation = format!("{} {nth}", options.identity).into();
            options.takes_over = true;
        })
    }
}

pub(crate) struct Pod {
    pub(crate) seat: Arc<Seat>,
    pub(crate) name: String,
    signals: mpsc::Sender<()>,
    driver: JoinHandle<Ending>,
    told: Arc<Mutex<Vec<Tell>>>,
    wall_jump: Arc<AtomicI64>,
}

impl Pod {
    pub(crate) fn answer(&self) -> Answer {
        self.seat.answer(Ask::default())
    }

    pub(crate) fn ask(&self, max_valid: Duration) -> Answer {
        self.seat.answer(Ask { max_valid: Some(max_valid), ..Ask::default() })
    }

    /// Whether an answer would say leader, without granting anything.
    pub(crate) fn leads(&self) -> bool {
        let now = self.seat.clock().now().mono;
        self.seat.look(|core| {
            core.state() == State::Leading && core.valid_until().is_some_and(|until| until > now)
        })
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        self.seat.look(|core| core.held_epoch())
    }

    /// How much of the validity is left.
    pub(crate) fn left(&self) -> Duration {
        let now = self.seat.clock().now().mono;
        self.seat.look(|core| core.valid_until()).map_or(Duration::ZERO, |until| until.since(now))
    }

    pub(crate) fn send(&self, event: Event<tenure::seat::Base>) {
        self.seat.handle(event);
    }

    pub(crate) fn sigterm(&self) {
        self.signals.try_send(()).unwrap();
    }

    /// SIGKILL: the process and its connections are gone at once.
    pub(crate) fn kill(&self) {
        self.driver.abort();
    }

    pub(crate) fn ended(&self) -> bool {
        self.driver.is_finished()
    }

    pub(crate) fn told(&self) -> Vec<Tell> {
        self.told.lock().unwrap().clone()
    }

    pub(crate) fn told_any(&self, what: impl Fn(&Tell) -> bool) -> bool {
        self.told.lock().unwrap().iter().any(what)
    }

    /// Sets its wall clock forward or back.
    pub(crate) fn jump_wall(&self, seconds: i64) {
        self.wall_jump.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[derive(Default)]
pub(crate) struct Bed {
    pub(crate) api: Api,
    /// Every pod that was started and not killed, for the witness.
    alive: Mutex<Vec<(String, std::sync::Weak<Seat>)>>,
}

impl Bed {
    /// With no Lease yet.
    pub(crate) fn new() -> Bed {
        Bed::default()
    }

    /// With the empty Lease that charts and manifests make.
    pub(crate) fn with_lease() -> Bed {
        let bed = Bed::new();
        bed.api.recreate(NAMESPACE, LEASE, json!({}));
        bed
    }

    /// With a Lease that says this.
    pub(crate) fn with_spec(spec: Value) -> Bed {
        let bed = Bed::new();
        bed.api.recreate(NAMESPACE, LEASE, spec);
        bed
    }

    pub(crate) fn start(&self, name: &str) -> Pod {
        self.start_as(name, setup(name))
    }

    /// Starts a pod whose requests are known as `caller` to the API.
    pub(crate) fn start_as(&self, caller: &str, setup: Setup) -> Pod {
        let told = Arc::new(Mutex::new(Vec::new()));
        let wall_jump = Arc::new(AtomicI64::new(0));
        let clock = MovableClock {
            base: TokioClock::new(secs(1000), setup.drift_ppm),
            jump_micros: wall_jump.clone(),
        };
        let (identity, rules) = (setup.options.identity.clone(), setup.options.rules);
        let seat = Arc::new(Seat::new(setup.options, Arc::new(clock)));
        let target = Target { namespace: NAMESPACE.into(), name: LEASE.into(), rules };
        let service = self.api.client_service(caller);
        let connect = Connect::new(move || kube::Client::new(service.clone(), NAMESPACE));
        let lease = LeaseApi::new(target.clone(), connect);
        let teller = Teller::new(target, identity, Arc::new(Recorder(told.clone())), None);
        let (signals, receiver) = Signals::by_hand();
        let driver = tokio::spawn(Driver::new(seat.clone(), lease, teller, receiver).run());
        self.alive.lock().unwrap().push((caller.into(), Arc::downgrade(&seat)));
        Pod { seat, name: caller.into(), signals, driver, told, wall_jump }
    }

    /// The pod's process is gone: its answers too.
    pub(crate) fn kill(&self, pod: &Pod) {
        pod.kill();
        let gone = Arc::downgrade(&pod.seat);
        self.alive.lock().unwrap().retain(|(_, seat)| !seat.ptr_eq(&gone));
    }

    /// Invariant S1, seen from outside.
    fn witness(&self) {
        let alive = self.alive.lock().unwrap();
        let leaders: Vec<&String> = alive
            .iter()
            .filter(|(_, seat)| {
                seat.upgrade().is_some_and(|seat| {
                    let now = seat.clock().now().mono;
                    seat.look(|core| core.valid_until().is_some_and(|until| until > now))
                })
            })
            .map(|(name, _)| name)
            .collect();
        assert!(leaders.len() <= 1, "S1: {leaders:?} lead at the same time");
    }

    /// Lets time pass.
    pub(crate) async fn run(&self, span: Duration) {
        self.until_or(span, || false).await;
    }

    /// Lets time pass until something is so; panics if it is not so within `limit`.
    #[track_caller]
    pub(crate) fn until(
        &self,
        limit: Duration,
        what: impl Fn() -> bool,
    ) -> impl Future<Output = Duration> {
        let caller = std::panic::Location::caller();
        async move {
            let start = tokio::time::Instant::now();
            assert!(self.until_or(limit, what).await, "not within {limit:?}: {caller}");
            start.elapsed()
        }
    }

    async fn until_or(&self, limit: Duration, what: impl Fn() -> bool) -> bool {
        let end = tokio::time::Instant::now() + limit;
        loop {
            self.witness();
            if what() {
                return true;
            }
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            if left.is_zero() {
                return false;
            }
            tokio::time::sleep(left.min(STEP)).await;
        }
    }

    /// Starts a pod and waits until it leads.
    pub(crate) async fn leader(&self, name: &str) -> Pod {
        let pod = self.start(name);
        self.until(secs(1), || pod.leads()).await;
        pod
    }

    pub(crate) fn lease(&self) -> Value {
        self.api.lease(NAMESPACE, LEASE).unwrap_or(Value::Null)
    }

    pub(crate) fn holder(&self) -> String {
        self.lease()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        self.lease()["metadata"]["annotations"][name].as_str().map(str::to_owned)
    }

    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) -> Option<u64> {
        self.api.edit(NAMESPACE, LEASE, change)
    }

    /// Requests of a pod since the log was last cleared.
    pub(crate) fn count(&self, pod: &Pod, verb: Verb) -> usize {
        self.api.count(Some(&pod.name), Some(verb))
    }

    /// Another elector takes the Lease, or renews it, in the way of client-go.
    pub(crate) fn held_by_client_go(&self, holder: &str, seconds: u32) {
        let stamp = self.api.rv();
        self.edit(|lease| {
            let spec = &mut lease["spec"];
            if spec["holderIdentity"] != *holder {
                spec["leaseTransitions"] =
                    (spec["leaseTransitions"].as_i64().unwrap_or(0) + 1).into();
            }
            spec["holderIdentity"] = holder.into();
            spec["leaseDurationSeconds"] = seconds.into();
            spec["renewTime"] = format!("2026-01-01T00:00:00.{stamp:06}Z").into();
        });
    }
}
