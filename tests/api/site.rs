//! A sidecar without a cluster: the real API on the real core, over a Lease kept by hand.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure::api::{Access, Api, ApiConfig, Health, ListenConfig, Listeners, QuorumRead, Reading};
use tenure::core::{
    Action, DrainTimeout, Event, MissingLease, Mono, Now, Observed, OnAppExit, Options,
    ReadOutcome, Record, Released, Rules, Stamp, Verb, Version, Wall, WatchEvent, Write,
    WriteOutcome,
};
use tenure::metrics::{Metrics, Outcome};
use tenure::seat::{Base, Clock, Seat};
use tenure::timing::Timing;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use crate::client::{Answer, Stream, exchange, request};
use crate::spec;

pub(crate) const ME: &str = "web-0_uid-1";
pub(crate) const OTHER: &str = "api-0_uid-2";

/// Runs with the machine's, and can be put forward.
#[derive(Debug)]
pub(crate) struct TestClock {
    origin: Instant,
    skipped_ms: AtomicU64,
}

impl TestClock {
    pub(crate) fn skip(&self, span: Duration) {
        self.skipped_ms.fetch_add(span.as_millis() as u64, SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Now {
        let run = self.origin.elapsed() + Duration::from_millis(self.skipped_ms.load(SeqCst));
        let nanos = 1_000_000_000_000 + run.as_nanos() as u64;
        let wall = Wall::from_micros(1_796_000_000_000_000 + run.as_micros() as i64);
        Now { mono: Mono::from_nanos(nanos), wall }
    }
}

/// The Lease, and whether its server answers.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) record: Option<Record>,
    version: u128,
    /// Writes get no answer.
    pub(crate) silent: bool,
}

impl Store {
    fn observed(&self) -> Option<Observed<Base>> {
        let record = self.record.clone()?;
        let base = Arc::new(json!(record.version.unwrap().number().to_string()));
        Some(Observed { record, base })
    }

    fn put(&mut self, write: &Write<Base>) -> Option<Observed<Base>> {
        let now = self.observed();
        let same = write.base.as_deref() == now.as_ref().map(|now| &*now.base);
        if !same {
            return None;
        }
        self.version += 1;
        let mut record = now.map_or_else(empty, |now| now.record);
        record.version = Some(Version::new(self.version));
        record.holder = Some(write.holder.clone()).filter(|holder| !holder.is_empty());
        record.duration = Some(write.duration);
        record.renew_time = Some(Stamp::At(write.renew_time));
        record.acquire_time = write.acquire_time.map(Stamp::At).or(record.acquire_time);
        record.transitions = write.transitions.or(record.transitions);
        record.annotated_transitions = write.transitions.or(record.annotated_transitions);
        record.epoch = write.epoch.or(record.epoch);
        record.incarnation = write.incarnation.clone().or(record.incarnation);
        match write.released {
            Released::Keep => {}
            Released::Remove => record.released = None,
            Released::Set(epoch) => record.released = Some(epoch),
        }
        self.record = Some(record);
        self.observed()
    }
}

fn empty() -> Record {
    Record {
        uid: "lease-uid".into(),
        version: Some(Version::new(7)),
        holder: None,
        duration: None,
        acquire_time: None,
        renew_time: None,
        transitions: None,
        epoch: None,
        incarnation: None,
        annotated_transitions: None,
        released: None,
        coordinated: false,
        bad_annotations: 0,
    }
}

/// Reads the same Lease, or does not.
#[derive(Debug)]
pub(crate) struct Quorum {
    store: Arc<Mutex<Store>>,
    pub(crate) broken: AtomicBool,
}

impl QuorumRead for Quorum {
    fn read(&self) -> Pin<Box<dyn Future<Output = Reading> + Send>> {
        let reading = if self.broken.load(SeqCst) {
            Err("the API server answers 500".to_owned())
        } else {
            Ok(self.store.lock().unwrap().record.clone())
        };
        Box::pin(std::future::ready(reading))
    }
}

/// What a test can choose.
pub(crate) struct Setup {
    pub(crate) config: ApiConfig,
    pub(crate) options: Options,
    pub(crate) socket: Option<PathBuf>,
    /// None: the Lease is missing.
    pub(crate) record: Option<Record>,
    /// What the access self-check has found by then.
    pub(crate) access: Access,
}

impl Setup {
    pub(crate) fn new() -> Setup {
        let config = ApiConfig {
            identity: ME.into(),
            lease_namespace: "shop".into(),
            lease_name: "billing".into(),
            boot_id: tenure::api::boot_id().unwrap(),
            dev: false,
            allowed_hosts: Vec::new(),
            control_token_file: None,
        };
        let options = Options {
            identity: ME.into(),
            incarnation: "i1".into(),
            takes_over: false,
            timing: Timing::default(),
            missing_lease: MissingLease::Create,
            drain_timeout: DrainTimeout::Auto,
            on_app_exit: OnAppExit::Release,
            unsafe_release_on_sigterm: false,
            max_valid: None,
            rules: Rules::default(),
        };
        Setup { config, options, socket: None, record: Some(empty()), access: Access::Passed }
    }

    /// Somebody else holds it.
    pub(crate) fn held_by(mut self, holder: &str) -> Setup {
        let record = self.record.get_or_insert_with(empty);
        record.holder = Some(holder.into());
        record.duration = Some(Duration::from_secs(15));
        record.epoch = Some(5);
        record.transitions = Some(3);
        record.annotated_transitions = Some(3);
        self
    }

    pub(crate) async fn start(self) -> Site {
        let clock =
            Arc::new(TestClock { origin: Instant::now(), skipped_ms: AtomicU64::default() });
        let timing = self.options.timing;
        let seat = Arc::new(Seat::new(self.options, Arc::clone(&clock) as Arc<dyn Clock>));
        let store = Store { record: self.record, version: 7, silent: false };
        let store = Arc::new(Mutex::new(store));
        let quorum = Arc::new(Quorum { store: Arc::clone(&store), broken: AtomicBool::default() });
        let health = Arc::new(Health::new(clock.now().mono, Duration::from_secs(5)));
        health.set_access(self.access);
        let metrics = Arc::new(Metrics::new(
            "billing",
            "shop",
            timing.renew_deadline(),
            Arc::clone(seat.clock()),
        ));
        let listeners = Listeners::bind(&ListenConfig {
            local: vec!["127.0.0.1:0".parse().unwrap()],
            socket: self.socket.clone().map(|path| (path, 0o660)),
            admin: "[::]:0".parse().unwrap(),
        })
        .unwrap();
        let local = listeners.local_addresses()[0];
        let admin = listeners.admin_address().unwrap();
        let (seat2, health2, metrics2) =
            (Arc::clone(&seat), Arc::clone(&health), Arc::clone(&metrics));
        let api = Api::new(self.config, seat2, health2, metrics2, Arc::clone(&quorum) as _);
        let serving = tokio::spawn(listeners.serve(api));
        let hand = Hand { seat: Arc::clone(&seat), store: Arc::clone(&store), metrics };
        let driving = tokio::spawn(hand.drive(Arc::clone(&health)));
        let admin = SocketAddr::from(([127, 0, 0, 1], admin.port()));
        Site {
            seat,
            clock,
            store,
            quorum,
            health,
            local,
            admin,
            socket: self.socket,
            serving,
            driving,
        }
    }
}

/// Drives the core as the shell does, with a Lease in memory.
struct Hand {
    seat: Arc<Seat>,
    store: Arc<Mutex<Store>>,
    metrics: Arc<Metrics>,
}

impl Hand {
    async fn drive(self, health: Arc<Health>) {
        loop {
            while let Some(action) = self.seat.poll_action() {
                self.act(action);
            }
            let now = self.seat.clock().now().mono;
            health.beat(now);
            let due = self.seat.poll_timeout().map_or(Duration::from_secs(1), |at| at.since(now));
            // The clock may be put forward meanwhile.
            let due = due.min(Duration::from_millis(20));
            if tokio::time::timeout(due, self.seat.work()).await.is_err() {
                self.seat.handle(Event::Timeout);
            }
        }
    }

    fn act(&self, action: Action<Base>) {
        match action {
            Action::Read { id } => {
                let observed = self.store.lock().unwrap().observed();
                self.metrics.request(Verb::Get, Outcome::Done);
                let outcome = observed.map_or(ReadOutcome::Absent, ReadOutcome::Found);
                self.seat.handle(Event::Read { id, outcome });
            }
            Action::Write { id, write, .. } => {
                let outcome = {
                    let mut store = self.store.lock().unwrap();
                    if store.silent {
                        return;
                    }
                    let created = store.record.is_none();
                    store.put(&write).map_or(WriteOutcome::Conflict, |object| WriteOutcome::Done {
                        created,
                        object,
                    })
                };
                self.metrics.request(Verb::Put, Outcome::Done);
                self.seat.handle(Event::Write { id, outcome });
            }
            Action::Watch { id, .. } => {
                self.seat.handle(Event::Watch { id, event: WatchEvent::Opened });
            }
            Action::Tell(tell) => self.metrics.tell(&tell),
            Action::Cancel { .. } => {}
        }
    }
}

pub(crate) struct Site {
    pub(crate) seat: Arc<Seat>,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) store: Arc<Mutex<Store>>,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) health: Arc<Health>,
    pub(crate) local: SocketAddr,
    pub(crate) admin: SocketAddr,
    socket: Option<PathBuf>,
    serving: JoinHandle<()>,
    driving: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
        self.driving.abort();
    }
}

impl Site {
    pub(crate) async fn leading() -> Site {
        let site = Setup::new().start().await;
        site.leads().await;
        site
    }

    /// Waits until it leads.
    pub(crate) async fn leads(&self) {
        self.until(|core| core.state() == tenure::core::State::Leading).await;
    }

    pub(crate) async fn until(&self, wanted: impl Fn(&tenure::core::Elector<Base>) -> bool) {
        let mut pulse = self.seat.pulse();
        let wait = async {
            while !self.seat.look(&wanted) {
                pulse.changed().await.unwrap();
            }
        };
        tokio::time::timeout(crate::client::PATIENCE, wait).await.expect("in time");
    }

    /// Puts the clock forward, and lets the elector do what is due.
    pub(crate) fn skip(&self, span: Duration) {
        self.clock.skip(span);
        self.seat.handle(Event::Timeout);
    }

    /// Makes the elector's task dead: nothing but the API is left.
    pub(crate) fn kill_elector(&self) {
        self.driving.abort();
    }

    pub(crate) async fn stop_serving(&mut self) {
        self.serving.abort();
        let _ = (&mut self.serving).await;
    }

    pub(crate) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.local).await.unwrap()
    }

    pub(crate) async fn unix(&self) -> UnixStream {
        UnixStream::connect(self.socket.as_ref().unwrap()).await.unwrap()
    }

    pub(crate) async fn stream(&self, target: &str) -> Stream<TcpStream> {
        Stream::open(self.tcp().await, target).await
    }

    /// One request over TCP, its answer checked.
    pub(crate) async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[&str],
        body: &str,
    ) -> Answer {
        let bytes = request(method, target, headers, body);
        let answer = exchange(self.tcp().await, bytes.as_bytes()).await;
        spec::check("local", method, target, &answer);
        answer
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[], "").await
    }

    pub(crate) async fn leader(&self) -> Value {
        let answer = self.get("/leader").await;
        assert_eq!(answer.status, 200);
        answer.json()
    }

    pub(crate) async fn release(&self, body: &str) -> Answer {
        self.send("POST", "/release", &[], body).await
    }

    pub(crate) async fn admin(&self, method: &str, target: &str) -> Answer {
        // Whatever Host a kubelet brings.
        let bytes = request(method, target, &["Host: 10.1.2.3:4041"], "");
        let io = TcpStream::connect(self.admin).await.unwrap();
        let answer = exchange(io, bytes.as_bytes()).await;
        spec::check("admin", method, target, &answer);
        answer
    }
}
