//! The shell: all that the core must not know of. Clocks, sockets, JSON, signals.
//!
//! The driver keeps the core's contract: *one event, then drain all actions, then wait.* Exactly
//! one thing is taken at a time: the answer of a request, something from the watch, a signal, the
//! time. The seat stamps each event with the time before the core sees it, and so before anything
//! that it causes is sent. Whatever takes time is a task of its own that the driver never waits for.

pub mod access;
pub mod clock;
pub mod events;
pub mod lease_api;
pub mod lease_json;
pub mod signals;
mod tell;
pub mod token;
pub mod transport;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use crate::core::{
    Action, Event, Failure, Mono, ReadOutcome, RequestId, Tell, Verb, WatchEvent, WriteOutcome,
};
use crate::metrics::Outcome;
use crate::seat::{Base, Seat};

use lease_api::Explained;

pub use events::Events;
pub use lease_api::{LeaseApi, Target};
pub use signals::Signals;
pub use tell::Teller;
pub use transport::{Connect, Server};

/// The longest wait in one piece: at least this often the loop shows that it turns.
const BEAT: Duration = Duration::from_secs(1);
/// The core counts a request's time from a moment before it goes out.
const SLACK: Duration = Duration::from_millis(10);
/// Watch events on their way to the core. A watch that is ahead of it waits.
const WATCH_QUEUE: usize = 16;

/// Who is told of all that happens: probes, metrics. Called on the driver's thread, so it must be
/// quick and never wait.
pub trait Observer: Send + Sync + fmt::Debug {
    /// The loop turns.
    fn beat(&self, now: Mono);
    /// A request on the Lease has ended.
    fn request(&self, verb: Verb, outcome: Outcome);
    /// The core has something to tell.
    fn tell(&self, tell: &Tell);
    /// The access self-check found that these verbs of RBAC are missing, on leases.
    fn access(&self, missing: &[&'static str]);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn beat(&self, _: Mono) {}
    fn request(&self, _: Verb, _: Outcome) {}
    fn tell(&self, _: &Tell) {}
    fn access(&self, _: &[&'static str]) {}
}

/// How the driver's work came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The ordered way out: nothing is left to do.
    Ordered,
    /// A second signal: at once, and nothing was released.
    Forced,
}

/// A task that ends with whoever holds it.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum Answered {
    Read(Explained<ReadOutcome<Base>>),
    Write(Explained<WriteOutcome<Base>>),
}

/// Drives the core of one seat.
#[derive(Debug)]
pub struct Driver {
    seat: Arc<Seat>,
    lease: LeaseApi,
    teller: Teller,
    signals: Signals,
    requests: Requests,
    watching: Watching,
}

#[derive(Default)]
struct Requests {
    tasks: JoinSet<(RequestId, Option<Answered>)>,
    open: HashMap<RequestId, Open>,
}

struct Open {
    verb: Verb,
    since: Mono,
    task: AbortHandle,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("open", &self.open.keys()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Watching {
    current: Option<(RequestId, Task)>,
    sender: watch::Events,
    receiver: mpsc::Receiver<(RequestId, WatchEvent<Base>)>,
}

impl Driver {
    /// Call it inside the runtime.
    #[must_use]
    pub fn new(seat: Arc<Seat>, lease: LeaseApi, teller: Teller, signals: Signals) -> Driver {
        let (sender, receiver) = mpsc::channel(WATCH_QUEUE);
        let watching = Watching { current: None, sender, receiver };
        Driver { seat, lease, teller, signals, requests: Requests::default(), watching }
    }

    /// Drives until the core has finished its way out, or somebody insists.
    pub async fn run(mut self) -> Ending {
        // The core's first word comes with its first event.
        self.seat.handle(Event::Timeout);
        loop {
            self.drain();
            if self.seat.look(|elector| elector.finished()) {
                return Ending::Ordered;
            }
            let now = self.seat.clock().now().mono;
            self.teller.observer.beat(now);
            let wake = self.seat.poll_timeout().map_or(now + BEAT, |at| at.min(now + BEAT));
            let clock = self.seat.clock().clone();
            tokio::select! {
                () = clock::sleep_until(&*clock, wake) => self.timeout(),
                Some(ended) = self.requests.tasks.join_next() => self.answered(ended),
                Some((id, event)) = self.watching.receiver.recv() => self.watched(id, event),
                Some(()) = self.signals.next() => {
                    if self.signals.count() > 1 {
                        return Ending::Forced;
                    }
                    tracing::info!("told to stop");
                    self.seat.handle(Event::Shutdown);
                }
                () = self.seat.work() => {}
            }
        }
    }

    fn timeout(&mut self) {
        let now = self.seat.clock().now().mono;
        if self.seat.poll_timeout().is_some_and(|at| at <= now) {
            self.seat.handle(Event::Timeout);
        }
    }

    fn answered(&mut self, ended: Result<(RequestId, Option<Answered>), tokio::task::JoinError>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Cancelled.
                Err(_) => return,
            },
        };
        // One that was cancelled in the moment it was answered is of no more interest.
        let Some(open) = self.requests.open.remove(&id) else { return };
        let Some(outcome) = outcome else { return self.unanswered(&open) };
        let verb = open.verb;
        let event = match outcome {
            Answered::Read(Explained { outcome, why }) => {
                self.teller.read(&outcome, why);
                self.teller.observer.request(verb, lease_api::read_class(&outcome));
                if let ReadOutcome::Found(observed) = &outcome {
                    self.teller.see_uid(&observed.record.uid);
                }
                Event::Read { id, outcome }
            }
            Answered::Write(Explained { outcome, why }) => {
                self.teller.wrote(why);
                self.teller.observer.request(verb, lease_api::write_class(&outcome));
                if let WriteOutcome::Done { object, .. } = &outcome {
                    self.teller.see_uid(&object.record.uid);
                }
                Event::Write { id, outcome }
            }
        };
        self.seat.handle(event);
    }

    fn watched(&mut self, id: RequestId, event: WatchEvent<Base>) {
        if self.watching.current.as_ref().is_none_or(|(current, _)| *current != id) {
            return;
        }
        let outcome = match &event {
            WatchEvent::Opened => Some(Outcome::Done),
            WatchEvent::Gone => Some(Outcome::Refused),
            WatchEvent::Failed(failure) => Some(lease_api::failure_class(failure)),
            WatchEvent::Object(observed) => {
                self.teller.see_uid(&observed.record.uid);
                None
            }
            WatchEvent::Deleted { .. } | WatchEvent::Bookmark { .. } | WatchEvent::Closed => None,
        };
        if let Some(outcome) = outcome {
            self.teller.observer.request(Verb::Watch, outcome);
        }
        self.seat.handle(Event::Watch { id, event });
    }

    fn drain(&mut self) {
        while let Some(action) = self.seat.poll_action() {
            match action {
                Action::Read { id } => {
                    let read = self.lease.read();
                    self.request(id, Verb::Get, async move { Answered::Read(read.await) });
                }
                Action::Write { id, write, fresh_connection } => {
                    let put = self.lease.write(write, fresh_connection);
                    self.request(id, Verb::Put, async move { Answered::Write(put.await) });
                }
                Action::Cancel { id } => self.cancel(id),
                Action::Watch { id, after } => {
                    let client = self.lease.watch_client();
                    let (target, sender) =
                        (self.lease.target().clone(), self.watching.sender.clone());
                    let task = Task::spawn(watch::run(client, target, id, after, sender));
                    self.watching.current = Some((id, task));
                }
                Action::Tell(tell) => self.teller.tell(&tell),
            }
        }
    }

    fn request(
        &mut self,
        id: RequestId,
        verb: Verb,
        work: impl Future<Output = Answered> + Send + 'static,
    ) {
        let (limit, since) = (self.limit(), self.seat.clock().now().mono);
        let task = self.requests.tasks.spawn(async move {
            // The core cancels in time what it waits for; this is for what it waits for no more.
            (id, tokio::time::timeout(limit, work).await.ok())
        });
        self.requests.open.insert(id, Open { verb, since, task });
    }

    /// The longest that any request is waited for.
    fn limit(&self) -> Duration {
        self.seat.look(|elector| elector.options().timing.renew_deadline())
    }

    fn cancel(&mut self, id: RequestId) {
        if let Some(open) = self.requests.open.remove(&id) {
            open.task.abort();
            self.unanswered(&open);
        } else if self.watching.current.as_ref().is_some_and(|(current, _)| *current == id) {
            self.watching.current = None;
        }
    }

    /// One that had its time has failed; any other is of no more interest.
    fn unanswered(&mut self, open: &Open) {
        self.teller.observer.request(open.verb, Outcome::Unknown);
        let limit = self.limit();
        let waited = self.seat.clock().now().mono.since(open.since);
        if open.verb == Verb::Get && waited + SLACK >= limit {
            let failed = ReadOutcome::Failed(Failure::UNKNOWN);
            self.teller.read(&failed, Some(format!("no answer within {limit:?}")));
        }
    }
}
