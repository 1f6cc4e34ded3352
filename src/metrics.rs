//! What Prometheus is told. Label sets are closed and exist from the start with value 0; a holder's
//! name is never a label.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::core::{Ask, End, Mono, Now, State, Tell, Verb};
use crate::seat::{Clock, Seat};

/// How a request to the API server ended, as classified at the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Conflict,
    Absent,
    Refused,
    Unknown,
}

impl Outcome {
    const ALL: [Outcome; 5] =
        [Outcome::Done, Outcome::Conflict, Outcome::Absent, Outcome::Refused, Outcome::Unknown];

    const fn word(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Conflict => "conflict",
            Outcome::Absent => "absent",
            Outcome::Refused => "refused",
            Outcome::Unknown => "unknown",
        }
    }
}

const VERBS: [Verb; 3] = [Verb::Get, Verb::Put, Verb::Watch];

const fn verb_word(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::Put => "put",
        Verb::Watch => "watch",
    }
}

/// Bounds of `renew_duration_seconds`, in seconds; those from the renew deadline on are replaced by
/// it, which no renewal outlives.
const RENEW_BOUNDS: [f64; 13] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Every series. Counters count as things happen; gauges are set when they are read.
pub struct Metrics {
    registry: Registry,
    clock: Arc<dyn Clock>,

    master_status: IntGauge,
    slowpath: IntCounter,

    is_leader: IntGauge,
    epoch: Gauge,
    valid_until: Gauge,
    leader_changes: IntCounter,
    terms: IntCounterVec,
    renew_duration: Histogram,
    lease_requests: IntCounterVec,
    store_went_back: IntCounter,
    bad_annotations: IntCounter,
    last_renew: Gauge,
    watch_restarts: IntCounter,
    holds: IntGauge,
    state: IntGaugeVec,
    access_denied: IntGaugeVec,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// `renew_deadline` is R; `clock` dates what is told.
    #[must_use]
    pub fn new(
        lease: &str,
        namespace: &str,
        renew_deadline: Duration,
        clock: Arc<dyn Clock>,
    ) -> Metrics {
        let make = Maker { registry: Registry::new(), lease, namespace };
        let client_go = |name: &str, help: &str| Opts::new(name, help).const_label("name", lease);
        let metrics = Metrics {
            clock,
            master_status: make.register(IntGauge::with_opts(client_go(
                "leader_election_master_status",
                "Whether this process is the leader, 1 or 0, as client-go has it.",
            ))),
            slowpath: make.register(IntCounter::with_opts(client_go(
                "leader_election_slowpath_total",
                "Rounds of renewals that did not succeed at once, as client-go has it.",
            ))),
            is_leader: make.gauge("is_leader", "Whether this process is the leader, 1 or 0."),
            epoch: make.float("epoch", "The newest fencing epoch seen, also on followers."),
            valid_until: make.float(
                "valid_until_timestamp_seconds",
                "When the term under way runs out unless renewed, by the wall clock; 0: none.",
            ),
            leader_changes: make
                .counter("leader_changes_total", "Changes of the holder that were seen."),
            terms: make.counters(
                "terms_total",
                "Terms of this process that have ended, by how.",
                &["end"],
            ),
            renew_duration: make.histogram(renew_deadline),
            lease_requests: make.counters(
                "lease_requests_total",
                "Requests for the Lease, by verb and outcome.",
                &["verb", "outcome"],
            ),
            store_went_back: make.counter(
                "store_went_back_total",
                "How often the API server showed an older state than before.",
            ),
            bad_annotations: make.counter(
                "bad_annotations_total",
                "Annotations of ours that were unreadable and taken as absent.",
            ),
            last_renew: make.float(
                "last_renew_timestamp_seconds",
                "When the last acknowledged write was sent, by the wall clock; 0: never.",
            ),
            watch_restarts: make.counter(
                "watch_restarts_total",
                "How often the watch of the Lease was opened anew.",
            ),
            holds: make.gauge("holds", "Holds that are open."),
            state: make.gauges(
                "state",
                "1 for the state this process is in, 0 for the others.",
                &["state"],
            ),
            access_denied: make.gauges(
                "access_denied",
                "1 for each kind of request that is not allowed.",
                &["verb"],
            ),
            registry: make.build_info(),
        };
        metrics.fill();
        metrics
    }

    /// Makes every label exist.
    fn fill(&self) {
        for end in End::ALL {
            self.terms.with_label_values(&[end.word()]);
        }
        for state in State::ALL {
            self.state.with_label_values(&[state.word()]);
        }
        for verb in VERBS {
            self.access_denied.with_label_values(&[verb_word(verb)]);
            for outcome in Outcome::ALL {
                self.lease_requests.with_label_values(&[verb_word(verb), outcome.word()]);
            }
        }
    }

    /// Counts what the core tells.
    pub fn tell(&self, tell: &Tell) {
        match tell {
            Tell::HolderChanged { .. } => self.leader_changes.inc(),
            Tell::Ended { end, .. } => self.terms.with_label_values(&[end.word()]).inc(),
            Tell::RenewFailed { .. } => self.slowpath.inc(),
            Tell::Renewed { took } => {
                self.renew_duration.observe(took.as_secs_f64());
                self.last_renew.set(wall_seconds(self.clock.now()) - took.as_secs_f64());
            }
            Tell::StoreWentBack { .. } => self.store_went_back.inc(),
            Tell::BadAnnotations { count } => self.bad_annotations.inc_by(u64::from(*count)),
            Tell::WatchRestarted => self.watch_restarts.inc(),
            Tell::Denied(verb) => self.access(*verb, true),
            Tell::Acquired { .. } => self.last_renew.set(wall_seconds(self.clock.now())),
            Tell::Draining { .. }
            | Tell::RenewRecovered
            | Tell::LeaseDeleted
            | Tell::Blocked(_)
            | Tell::Unblocked => {}
        }
    }

    /// Counts one request for the Lease.
    pub fn request(&self, verb: Verb, outcome: Outcome) {
        self.lease_requests.with_label_values(&[verb_word(verb), outcome.word()]).inc();
        // A conflict and an absence are told only to those who may ask.
        if matches!(outcome, Outcome::Done | Outcome::Conflict | Outcome::Absent) {
            self.access(verb, false);
        }
    }

    /// What is known of a right: from the access self-check, or from an answer.
    pub fn access(&self, verb: Verb, denied: bool) {
        self.access_denied.with_label_values(&[verb_word(verb)]).set(denied.into());
    }

    /// All series as Prometheus reads them.
    pub fn render(&self, seat: &Seat) -> String {
        self.measure(seat);
        let mut text = String::new();
        let encoded = TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text);
        encoded.expect("every family has a name and a metric");
        text
    }

    /// Sets the gauges to what is true now. The answer is given by a copy of the core, for nobody
    /// is told it: it must not count as a grant.
    fn measure(&self, seat: &Seat) {
        let (now, answer, valid_until) = seat.look(|core| {
            // Read inside: the core's time never goes back.
            let now = self.clock.now();
            (now, core.clone().answer(now, Ask::default()), core.valid_until())
        });
        self.master_status.set(answer.leader.into());
        self.is_leader.set(answer.leader.into());
        self.epoch.set(to_float(answer.lease_epoch.unwrap_or(0)));
        self.valid_until.set(valid_until.map_or(0.0, |until| wall_of(until, now)));
        self.holds.set(answer.holds.into());
        for state in State::ALL {
            self.state.with_label_values(&[state.word()]).set((*state == answer.state).into());
        }
    }
}

/// Makes series and registers them.
struct Maker<'a> {
    registry: Registry,
    lease: &'a str,
    namespace: &'a str,
}

impl Maker<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("tenure_{name}"), help)
            .const_label("lease", self.lease)
            .const_label("lease_namespace", self.namespace)
    }

    fn register<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> C {
        let collector = made.expect("names and labels are constants");
        self.registry.register(Box::new(collector.clone())).expect("each name is used once");
        collector
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::with_opts(self.opts(name, help)))
    }

    fn float(&self, name: &str, help: &str) -> Gauge {
        self.register(Gauge::with_opts(self.opts(name, help)))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::with_opts(self.opts(name, help)))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(self.opts(name, help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(IntGaugeVec::new(self.opts(name, help), labels))
    }

    fn histogram(&self, renew_deadline: Duration) -> Histogram {
        let most = renew_deadline.as_secs_f64();
        let bounds = RENEW_BOUNDS.into_iter().filter(|bound| *bound < most).chain([most]);
        let opts = self.opts(
            "renew_duration_seconds",
            "From the send of an acknowledged write to its answer.",
        );
        self.register(Histogram::with_opts(HistogramOpts::from(opts).buckets(bounds.collect())))
    }

    fn build_info(self) -> Registry {
        let opts = self
            .opts("build_info", "Always 1; its labels tell what was built.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        self.register(IntGauge::with_opts(opts)).set(1);
        self.registry
    }
}

fn wall_seconds(now: Now) -> f64 {
    Duration::from_micros(now.wall.as_micros().max(0).unsigned_abs()).as_secs_f64()
}

/// A point on the boottime clock as a wall-clock time, in seconds since 1970.
fn wall_of(at: Mono, now: Now) -> f64 {
    wall_seconds(now) + at.since(now.mono).as_secs_f64() - now.mono.since(at).as_secs_f64()
}

/// Exact: an epoch is less than 2^53.
#[expect(clippy::cast_precision_loss, reason = "less than 2^53")]
fn to_float(epoch: u64) -> f64 {
    epoch as f64
}
