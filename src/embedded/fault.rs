//! Faults: which requests are hit, and what happens to them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::watch::WatchCommand;

/// The kinds of requests that faults and the log tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// GET of one Lease.
    Get,
    /// GET of a list.
    List,
    /// PUT of one Lease.
    Put,
    /// POST of a new Lease.
    Post,
    /// PATCH of one Lease.
    Patch,
    /// DELETE of one Lease.
    Delete,
    /// A watch.
    Watch,
    /// POST of a SelfSubjectAccessReview.
    Ssar,
    /// POST of an Event.
    Event,
    /// Anything this API does not serve.
    Other,
}

/// A door that a test holds shut until it opens it; dropped shut, it never opens.
#[derive(Debug)]
pub struct Gate {
    door: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { door: watch::Sender::new(false) }
    }
}

impl Gate {
    /// A shut gate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everybody through, from now on.
    pub fn open(&self) {
        self.door.send_replace(true);
    }

    /// The effect that makes requests wait here before they are carried out.
    #[must_use]
    pub fn before(&self) -> Effect {
        Effect::GateBefore(self.door.subscribe())
    }

    /// The effect that makes answers wait here after the request was carried out.
    #[must_use]
    pub fn after(&self) -> Effect {
        Effect::GateAfter(self.door.subscribe())
    }
}

/// Changes the JSON of an answer (of each event, for a watch).
#[derive(Clone)]
pub struct Tamper(pub(super) Arc<dyn Fn(&mut Value) + Send + Sync>);

impl fmt::Debug for Tamper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tamper")
    }
}

/// An answer made up by a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canned {
    /// HTTP status.
    pub status: u16,
    /// Value of the `Retry-After` header, seconds.
    pub retry_after_seconds: Option<u32>,
    /// A plain-text body; none: a `Status` object with the usual reason.
    pub text: Option<String>,
}

/// What happens to a request that a fault hits.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Carried out only after this time, also if the client has gone away meanwhile.
    DelayBefore(Duration),
    /// Carried out at once, answered after this time.
    DelayAfter(Duration),
    /// Carried out when a [`Gate`] opens, also if the client has gone away meanwhile.
    GateBefore(watch::Receiver<bool>),
    /// Carried out at once, answered when a [`Gate`] opens.
    GateAfter(watch::Receiver<bool>),
    /// Never carried out, never answered.
    SilentBefore,
    /// Carried out, never answered.
    SilentAfter,
    /// Not carried out; the connection is reset.
    Reset,
    /// Carried out; then the connection ends without an answer.
    DropAnswer,
    /// Not carried out; answered with this.
    Answer(Canned),
    /// Carried out; answered with this all the same.
    AnswerAfter(Canned),
    /// A read (GET, LIST) answers what was true at this resourceVersion.
    ReplayOld(u64),
    /// A successful answer (each event of a watch) is changed on its way.
    Tamper(Tamper),
    /// A watch is opened, and then this happens to it.
    Watch(WatchCommand),
}

impl Effect {
    /// An error status with the usual `Status` body, without carrying the request out.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Effect::Answer(Canned { status, retry_after_seconds: None, text: None })
    }

    /// As [`Effect::status`], with a `Retry-After` header.
    #[must_use]
    pub fn retry_after(status: u16, seconds: u32) -> Self {
        Effect::Answer(Canned { status, retry_after_seconds: Some(seconds), text: None })
    }

    /// As [`Effect::status`], with a plain-text body, as proxies and balancers answer.
    #[must_use]
    pub fn plain_text(status: u16, text: &str) -> Self {
        Effect::Answer(Canned { status, retry_after_seconds: None, text: Some(text.to_owned()) })
    }

    /// The request is carried out and an error status answered.
    #[must_use]
    pub fn status_after_commit(status: u16) -> Self {
        Effect::AnswerAfter(Canned { status, retry_after_seconds: None, text: None })
    }

    /// Successful answers (events of a watch) are changed by `change`.
    #[must_use]
    pub fn tamper(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Effect::Tamper(Tamper(Arc::new(change)))
    }
}

type Predicate = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// Which requests are hit, how often, and with what effect. Where several hit one request, delays add
/// up and the first effect of each other kind counts.
#[derive(Clone)]
pub struct Fault {
    verb: Option<Verb>,
    caller: Option<String>,
    name: Option<String>,
    body: Option<Predicate>,
    skip: u64,
    times: Option<u64>,
    effect: Effect,
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("verb", &self.verb)
            .field("caller", &self.caller)
            .field("skip", &self.skip)
            .field("times", &self.times)
            .field("effect", &self.effect)
            .finish_non_exhaustive()
    }
}

impl Fault {
    /// Hits every request of this verb until it is removed.
    #[must_use]
    pub fn on(verb: Verb, effect: Effect) -> Self {
        Self { verb: Some(verb), ..Self::on_all(effect) }
    }

    /// Hits every request until it is removed.
    #[must_use]
    pub fn on_all(effect: Effect) -> Self {
        Self { verb: None, caller: None, name: None, body: None, skip: 0, times: None, effect }
    }

    /// Only requests of this caller.
    #[must_use]
    pub fn caller(mut self, caller: &str) -> Self {
        self.caller = Some(caller.to_owned());
        self
    }

    /// Only requests for the object of this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only requests whose JSON body (null if there is none) fulfils this.
    #[must_use]
    pub fn when(mut self, body: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        self.body = Some(Arc::new(body));
        self
    }

    /// Only the first `times` matching requests (after those skipped).
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Only the first matching request.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Only the `k`-th matching request from now, counted from 1.
    #[must_use]
    pub fn nth(mut self, k: u64) -> Self {
        self.skip = k.saturating_sub(1);
        self.times(1)
    }

    /// From the `k`-th matching request on, counted from 1.
    #[must_use]
    pub fn from_nth(mut self, k: u64) -> Self {
        self.skip = k.saturating_sub(1);
        self
    }

    pub(super) fn matches(&self, verb: Verb, caller: &str, name: &str, body: &Value) -> bool {
        self.verb.is_none_or(|v| v == verb)
            && self.caller.as_ref().is_none_or(|c| c == caller)
            && self.name.as_ref().is_none_or(|n| n == name)
            && self.body.as_ref().is_none_or(|wanted| wanted(body))
    }
}

/// Names a fault that was switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultId(u64);

#[derive(Debug)]
struct Active {
    id: FaultId,
    fault: Fault,
    seen: u64,
    hits: u64,
}

/// The faults switched on, in the order in which they were.
#[derive(Debug, Default)]
pub(super) struct Faults {
    active: Vec<Active>,
    next_id: u64,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault, limit: usize) -> FaultId {
        assert!(self.active.len() < limit, "more than {limit} faults at once");
        let id = FaultId(self.next_id);
        self.next_id += 1;
        self.active.push(Active { id, fault, seen: 0, hits: 0 });
        id
    }

    pub(super) fn remove(&mut self, id: FaultId) {
        self.active.retain(|active| active.id != id);
    }

    pub(super) fn clear(&mut self, caller: Option<&str>) {
        self.active.retain(|a| caller.is_some() && a.fault.caller.as_deref() != caller);
    }

    pub(super) fn hits(&self, id: FaultId) -> u64 {
        self.active.iter().find(|active| active.id == id).map_or(0, |active| active.hits)
    }

    /// Counts the request and gathers what is to happen to it.
    pub(super) fn plan(&mut self, verb: Verb, caller: &str, name: &str, body: &Value) -> Plan {
        let mut plan = Plan::default();
        for active in &mut self.active {
            if !active.fault.matches(verb, caller, name, body) {
                continue;
            }
            active.seen += 1;
            let used_up = active.fault.times.is_some_and(|times| active.hits >= times);
            if active.seen <= active.fault.skip || used_up {
                continue;
            }
            active.hits += 1;
            plan.add(active.fault.effect.clone());
        }
        plan
    }
}

/// Ends a request before or after it is carried out.
#[derive(Debug, Clone)]
pub(super) enum Cut {
    Silence,
    Disconnect { reset: bool },
    Answer(Canned),
}

/// Everything that is to happen to one request.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) delay_before: Duration,
    pub(super) delay_after: Duration,
    pub(super) gates_before: Vec<watch::Receiver<bool>>,
    pub(super) gates_after: Vec<watch::Receiver<bool>>,
    pub(super) cut_before: Option<Cut>,
    pub(super) cut_after: Option<Cut>,
    pub(super) replay_old: Option<u64>,
    pub(super) tampers: Vec<Tamper>,
    pub(super) watch: Vec<WatchCommand>,
}

impl Plan {
    fn add(&mut self, effect: Effect) {
        let before = |cut| (Some(cut), None);
        let after = |cut| (None, Some(cut));
        let (cut_before, cut_after) = match effect {
            Effect::DelayBefore(delay) => return self.delay_before += delay,
            Effect::DelayAfter(delay) => return self.delay_after += delay,
            Effect::GateBefore(gate) => return self.gates_before.push(gate),
            Effect::GateAfter(gate) => return self.gates_after.push(gate),
            Effect::Tamper(tamper) => return self.tampers.push(tamper),
            Effect::Watch(command) => return self.watch.push(command),
            Effect::ReplayOld(rv) => {
                self.replay_old.get_or_insert(rv);
                return;
            }
            Effect::SilentBefore => before(Cut::Silence),
            Effect::SilentAfter => after(Cut::Silence),
            Effect::Reset => before(Cut::Disconnect { reset: true }),
            Effect::DropAnswer => after(Cut::Disconnect { reset: false }),
            Effect::Answer(canned) => before(Cut::Answer(canned)),
            Effect::AnswerAfter(canned) => after(Cut::Answer(canned)),
        };
        self.cut_before = self.cut_before.take().or(cut_before);
        self.cut_after = self.cut_after.take().or(cut_after);
    }

    /// Whether carrying the request out has to wait for something.
    pub(super) fn waits_before(&self) -> bool {
        !self.delay_before.is_zero() || !self.gates_before.is_empty()
    }
}

/// True when the gate opened, false when it was dropped shut.
pub(super) async fn pass(mut gate: watch::Receiver<bool>) -> bool {
    gate.wait_for(|open| *open).await.is_ok()
}
