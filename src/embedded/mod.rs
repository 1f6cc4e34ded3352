//! A Lease API in one process: the semantics of kube-apiserver for what tenure relies on, and faults
//! that can be switched while it runs.
//!
//! It serves `coordination.k8s.io/v1` Leases in any namespace, takes `events.k8s.io/v1` Events and
//! answers SelfSubjectAccessReviews. Objects are JSON; one resourceVersion counts over all of them.
//! [`LeaseApi::client_service`] is a transport for `kube::Client` without sockets, so that tests run
//! in paused time; [`LeaseApi::serve`] serves plain HTTP on a listener.
//!
//! All waiting is by tokio's clock. A request is carried out in one step without an await, so what it
//! commits is linearizable; a request delayed by a fault is carried out even when its client has gone.

mod edit;
mod fault;
mod lease_type;
mod operation;
mod patch;
mod request_log;
mod serve;
mod service;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch as watch_channel;
use tokio::time::Instant;

pub use edit::OpenWatches;
pub use fault::{Canned, Effect, Fault, FaultId, Gate, Tamper, Verb};
pub use lease_type::KeepFields;
pub use request_log::Request;
pub use serve::Server;
pub use service::{Caller, ClientService};
pub use store::{Change, Snapshot, Version};
pub use watch::{WatchCommand, WatchInfo};

/// How much is kept; whatever is older or more is dropped or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Leases stored; more are refused.
    pub objects: usize,
    /// Commits a watch can be replayed from; older ones are compacted.
    pub watch_history: usize,
    /// Commits kept for checkers.
    pub versions: usize,
    /// Requests kept in the log.
    pub requests: usize,
    /// Events kept.
    pub events: usize,
    /// Open watches; more are refused.
    pub watches: usize,
    /// Faults switched on at once; more are a bug of the test.
    pub faults: usize,
    /// Open connections of one server; more are closed at once.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            objects: 1_000,
            watch_history: 1_000,
            versions: 100_000,
            requests: 100_000,
            events: 10_000,
            watches: 1_000,
            faults: 1_000,
            connections: 1_000,
        }
    }
}

/// How an embedded API is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The resourceVersion counter at the start; older ones count as compacted.
    pub first_rv: u64,
    /// How much is kept.
    pub limits: Limits,
    /// A watch without `timeoutSeconds` ends after this time.
    pub watch_timeout: Duration,
    /// Time between two bookmarks on one watch.
    pub bookmark_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            first_rv: 100,
            limits: Limits::default(),
            // The real server takes 30 to 60 minutes, and a minute.
            watch_timeout: Duration::from_secs(30 * 60),
            bookmark_every: Duration::from_secs(60),
        }
    }
}

/// Who acts, and when.
#[derive(Debug, Clone)]
struct Stamp {
    at: Instant,
    /// RFC 3339, whole seconds, as in creationTimestamp.
    wall: String,
    caller: String,
}

type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// A verb on a resource that a caller may not use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Denial {
    caller: String,
    resource: String,
    verb: String,
}

struct State {
    store: store::Store,
    faults: fault::Faults,
    log: request_log::RequestLog,
    watches: watch::Watches,
    events: VecDeque<Value>,
    denied: BTreeSet<Denial>,
    /// Token and the caller it stands for; other tokens are their caller's name.
    tokens: Vec<(String, String)>,
    revoked: BTreeSet<String>,
    wall: WallClock,
}

impl State {
    fn stamp(&self, caller: &str) -> Stamp {
        let now = Timestamp::try_from((self.wall)()).unwrap_or(Timestamp::UNIX_EPOCH);
        let wall = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Stamp { at: Instant::now(), wall, caller: caller.to_owned() }
    }

    fn denies(&self, caller: &str, resource: &str, verb: &str) -> bool {
        let denial = Denial { caller: caller.into(), resource: resource.into(), verb: verb.into() };
        self.denied.contains(&denial)
    }
}

struct Shared {
    state: Mutex<State>,
    /// Counts changes of the state, for whoever waits for one.
    changed: watch_channel::Sender<u64>,
    options: Options,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
        result
    }
}

/// An embedded Lease API; clones are handles to the same one.
#[derive(Debug, Clone)]
pub struct LeaseApi {
    shared: Arc<Shared>,
}

impl Default for LeaseApi {
    fn default() -> Self {
        Self::with_options(Options::default())
    }
}

impl LeaseApi {
    /// An empty API without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty API without faults, set up otherwise than by default.
    #[must_use]
    pub fn with_options(options: Options) -> Self {
        let state = State {
            store: store::Store::new(options.first_rv, options.limits),
            faults: fault::Faults::default(),
            log: request_log::RequestLog::new(options.limits.requests),
            watches: watch::Watches::default(),
            events: VecDeque::new(),
            denied: BTreeSet::new(),
            tokens: Vec::new(),
            revoked: BTreeSet::new(),
            wall: Arc::new(SystemTime::now),
        };
        let changed = watch_channel::Sender::new(0);
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed, options }) }
    }

    /// Where creationTimestamp comes from; the system's clock unless set.
    pub fn set_wall_clock(&self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) {
        self.shared.change(|state| state.wall = Arc::new(clock));
    }

    /// Spec fields to keep that the real server drops.
    pub fn keep_fields(&self, keep: KeepFields) {
        self.shared.change(|state| state.store.keep = keep);
    }

    /// Requests with this bearer token are `caller`'s. Unknown tokens are the caller's own name.
    pub fn map_token(&self, token: &str, caller: &str) {
        self.shared.change(|state| {
            state.revoked.remove(token);
            state.tokens.retain(|(known, _)| known != token);
            state.tokens.push((token.to_owned(), caller.to_owned()));
        });
    }

    /// Requests with this bearer token are answered 401.
    pub fn revoke_token(&self, token: &str) {
        self.shared.change(|state| state.revoked.insert(token.to_owned()));
    }

    /// `caller` may not use this verb of RBAC (get, list, watch, create, update, patch, delete) on this
    /// resource (leases, events): 403, and access reviews say so.
    pub fn deny(&self, caller: &str, resource: &str, verb: &str) {
        let denial = Denial { caller: caller.into(), resource: resource.into(), verb: verb.into() };
        self.shared.change(|state| state.denied.insert(denial));
    }

    /// Takes everything back that was denied to `caller`.
    pub fn allow_all(&self, caller: &str) {
        self.shared.change(|state| state.denied.retain(|denial| denial.caller != caller));
    }

    /// Switches a fault on.
    ///
    /// # Panics
    /// When more faults are on than [`Limits::faults`].
    pub fn fault(&self, fault: Fault) -> FaultId {
        let limit = self.shared.options.limits.faults;
        self.shared.change(|state| state.faults.add(fault, limit))
    }

    /// Switches a fault off. Requests it has hit already stay as they are.
    pub fn clear_fault(&self, id: FaultId) {
        self.shared.change(|state| state.faults.remove(id));
    }

    /// Switches all faults off.
    pub fn clear_faults(&self) {
        self.shared.change(|state| state.faults.clear(None));
    }

    /// How many requests a fault has hit; 0 once it is switched off.
    #[must_use]
    pub fn hits(&self, id: FaultId) -> u64 {
        self.shared.lock().faults.hits(id)
    }

    /// Swallows every packet of this caller: requests are not carried out and never answered, open
    /// watches fall silent for good, new ones never open.
    pub fn cut_off(&self, caller: &str) {
        self.fault(Fault::on_all(Effect::SilentBefore).caller(caller));
        self.command_watches(Some(caller), WatchCommand::Silent);
    }

    /// Switches off every fault that names this caller. Silent watches stay silent.
    pub fn heal(&self, caller: &str) {
        self.shared.change(|state| state.faults.clear(Some(caller)));
    }

    /// Does something to the open watches of one caller (none: of all); returns to how many. For
    /// watches opened later there is [`Effect::Watch`].
    pub fn command_watches(&self, caller: Option<&str>, command: WatchCommand) -> usize {
        self.shared.lock().watches.command(caller, command)
    }

    /// The watches open now.
    #[must_use]
    pub fn open_watches(&self) -> Vec<WatchInfo> {
        self.shared.lock().watches.infos()
    }

    /// The requests kept in the log, in the order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().log.all()
    }

    /// How many requests of this caller (none: of all) and verb (none: any) the log holds.
    #[must_use]
    pub fn count(&self, caller: Option<&str>, verb: Option<Verb>) -> usize {
        self.shared.lock().log.count(caller, verb)
    }

    /// Empties the log of requests.
    pub fn clear_requests(&self) {
        self.shared.change(|state| state.log.clear());
    }

    /// The Events taken so far, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        self.shared.lock().events.iter().cloned().collect()
    }

    /// Waits until `condition` holds; it is asked again after every request, answer and commit.
    pub async fn until(&self, condition: impl Fn(&LeaseApi) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if condition(self) {
                return;
            }
            // The sender is part of `self`.
            drop(changed.changed().await);
        }
    }
}
