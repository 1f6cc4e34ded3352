//! Watches: each has a place in the history of commits and pulls from there, so nothing is queued
//! for a slow or silent one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::fault::Tamper;
use super::status::{Outcome, Refusal};
use super::store::Version;

/// What a test can do to an open watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchCommand {
    /// The stream ends, as a server ends it.
    Close,
    /// The connection breaks.
    Reset,
    /// The stream stays open and delivers nothing ever again.
    Silent,
    /// Events are held back until [`WatchCommand::Resume`].
    Hold,
    /// Events that were held back, and later ones, are delivered.
    Resume,
    /// From now on each event is delivered this long after its commit.
    Delay(Duration),
    /// Events after this resourceVersion are delivered once more.
    ReplayFrom(u64),
    /// An ERROR event with 410 Expired, then the end.
    Gone,
}

/// Commands that may wait for one stream to take them.
const COMMANDS_WAITING: usize = 64;

/// An open watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchInfo {
    /// Number in the order of opening.
    pub id: u64,
    /// Who opened it.
    pub caller: String,
    /// The one name it was opened for; empty for all.
    pub name: String,
    /// When it was opened.
    pub opened_at: Instant,
}

#[derive(Debug)]
struct Open {
    info: WatchInfo,
    commands: mpsc::Sender<WatchCommand>,
}

/// The watches open now.
#[derive(Debug, Default)]
pub(super) struct Watches {
    open: Vec<Open>,
    next_id: u64,
}

impl Watches {
    pub(super) fn infos(&self) -> Vec<WatchInfo> {
        self.open.iter().map(|open| open.info.clone()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Sends a command to the watches of one caller (or of all); returns how many got it.
    pub(super) fn command(&self, caller: Option<&str>, command: WatchCommand) -> usize {
        let wanted = self.open.iter().filter(|o| caller.is_none_or(|c| c == o.info.caller));
        wanted.filter(|open| open.commands.try_send(command).is_ok()).count()
    }

    fn open(&mut self, caller: &str, name: &str) -> (u64, mpsc::Receiver<WatchCommand>) {
        let (commands, receiver) = mpsc::channel(COMMANDS_WAITING);
        let info = WatchInfo {
            id: self.next_id,
            caller: caller.to_owned(),
            name: name.to_owned(),
            opened_at: Instant::now(),
        };
        self.next_id += 1;
        self.open.push(Open { info, commands });
        (self.next_id - 1, receiver)
    }
}

/// What a watch request asks for.
#[derive(Debug, Clone, Default)]
pub(super) struct WatchQuery {
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    /// None (or 0): from the present state, told as ADDED events.
    pub(super) from_rv: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) bookmarks: bool,
    pub(super) send_initial_events: bool,
}

/// Removes the watch from the list when its stream is dropped.
#[derive(Debug)]
struct Registration {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.change(|state| state.watches.open.retain(|open| open.info.id != self.id));
    }
}

#[derive(Debug)]
pub(super) struct WatchStream {
    registration: Registration,
    query: WatchQuery,
    commands: mpsc::Receiver<WatchCommand>,
    changed: watch::Receiver<u64>,
    place: Place,
    lines: VecDeque<Bytes>,
    tampers: Vec<Tamper>,
    deadline: Instant,
    next_bookmark: Instant,
    silent: bool,
    held: bool,
    broken: bool,
    /// Nothing comes after the lines that wait.
    ended: bool,
}

/// Where in the history a watch stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    seq: u64,
    /// Only events above this resourceVersion (it may lie in the future).
    above_rv: u64,
    delay: Duration,
}

enum Step {
    Command(Option<WatchCommand>),
    Deadline,
    Bookmark,
    Event(Outcome<Arc<Version>>),
}

impl WatchStream {
    /// Opens a watch and tells it what faults say is to happen to it.
    pub(super) fn open(
        shared: &Arc<Shared>,
        caller: &str,
        query: WatchQuery,
        faults: (&[WatchCommand], Vec<Tamper>),
    ) -> Self {
        let now = Instant::now();
        let options = &shared.options;
        let timeout = query.timeout.unwrap_or(options.watch_timeout);
        let next_bookmark = now + options.bookmark_every;
        let name = query.name.clone().unwrap_or_default();
        let changed = shared.changed.subscribe();
        let (id, commands, start, place) = shared.change(|state| {
            let (id, commands) = state.watches.open(caller, &name);
            let mut place =
                Place { seq: state.store.next_seq(), above_rv: 0, delay: Duration::ZERO };
            let start = match query.from_rv {
                Some(rv) if rv > 0 && !query.send_initial_events => {
                    let first = state.store.changes_after(rv).map(|mut c| c.next().map(|v| v.seq));
                    place.above_rv = rv;
                    first.map(|seq| {
                        place.seq = seq.unwrap_or(place.seq);
                        Vec::new()
                    })
                }
                _ => Ok(state.store.list(query.namespace.as_deref(), query.name.as_deref())),
            };
            (id, commands, start, place)
        });
        let mut stream = Self {
            registration: Registration { shared: shared.clone(), id },
            commands,
            changed,
            place,
            lines: VecDeque::new(),
            tampers: faults.1,
            deadline: now + timeout,
            next_bookmark,
            silent: false,
            held: false,
            broken: false,
            ended: false,
            query,
        };
        stream.begin(start);
        for command in faults.0 {
            stream.obey(*command);
        }
        stream
    }

    fn begin(&mut self, start: Outcome<Vec<Arc<Value>>>) {
        match start {
            Ok(objects) => {
                for object in objects {
                    self.push("ADDED", Value::clone(&object));
                }
                if self.query.send_initial_events && self.query.bookmarks {
                    self.push_bookmark(true);
                }
            }
            Err(refusal) => self.fail(&refusal),
        }
    }

    pub(super) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, Self::next))
    }

    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            if self.broken {
                self.broken = false;
                self.ended = true;
                self.lines.clear();
                return Some((Err(io::ErrorKind::ConnectionReset.into()), self));
            }
            if !self.silent && !self.held {
                if let Some(line) = self.lines.pop_front() {
                    return Some((Ok(line), self));
                }
                if self.ended {
                    return None;
                }
            }
            match self.step().await {
                Step::Command(Some(command)) => self.obey(command),
                // The sender lives as long as the registration.
                Step::Command(None) | Step::Deadline => self.ended = true,
                Step::Bookmark => {
                    self.next_bookmark =
                        Instant::now() + self.registration.shared.options.bookmark_every;
                    if self.is_caught_up() {
                        self.push_bookmark(false);
                    }
                }
                Step::Event(Ok(version)) => {
                    self.place.seq = version.seq + 1;
                    self.push_version(&version);
                }
                Step::Event(Err(refusal)) => self.fail(&refusal),
            }
        }
    }

    async fn step(&mut self) -> Step {
        let Self { commands, changed, registration, query, place, .. } = self;
        // Nothing passes a silent or held stream, not even its end.
        let flowing = !self.silent && !self.held;
        let event = next_version(&registration.shared, query, *place, changed);
        tokio::select! {
            biased;
            command = commands.recv() => Step::Command(command),
            event = event, if flowing => Step::Event(event),
            () = sleep_until(self.deadline), if flowing => Step::Deadline,
            () = sleep_until(self.next_bookmark), if flowing && query.bookmarks => Step::Bookmark,
        }
    }

    fn is_caught_up(&self) -> bool {
        let state = self.registration.shared.lock();
        let mut seq = self.place.seq;
        while let Ok(Some(version)) = state.store.change_from(seq) {
            if wants(&self.query, self.place, &version) {
                return false;
            }
            seq = version.seq + 1;
        }
        true
    }

    fn obey(&mut self, command: WatchCommand) {
        match command {
            WatchCommand::Close => {
                // An end is an end, also of a stream that was silent.
                self.silent = false;
                self.held = false;
                self.lines.clear();
                self.ended = true;
            }
            WatchCommand::Reset => self.broken = true,
            WatchCommand::Silent => self.silent = true,
            WatchCommand::Hold => self.held = true,
            WatchCommand::Resume => self.held = false,
            WatchCommand::Delay(delay) => self.place.delay = delay,
            WatchCommand::ReplayFrom(rv) => {
                let again: Outcome<Vec<_>> = {
                    let state = self.registration.shared.lock();
                    let seq = self.place.seq;
                    state
                        .store
                        .changes_after(rv)
                        .map(|changes| changes.filter(|v| v.seq < seq).cloned().collect())
                };
                for version in again.unwrap_or_default() {
                    if wants(&self.query, Place { above_rv: 0, ..self.place }, &version) {
                        self.push_version(&version);
                    }
                }
            }
            WatchCommand::Gone => {
                let rv = self.registration.shared.lock().store.rv();
                self.fail(&super::status::expired(self.place.above_rv, rv));
            }
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        self.push("ERROR", refusal.body.clone());
        self.ended = true;
    }

    fn push_version(&mut self, version: &Version) {
        self.push(version.change.event_type(), Value::clone(&version.object));
    }

    fn push_bookmark(&mut self, end_of_initial_events: bool) {
        let rv = self.registration.shared.lock().store.rv().to_string();
        let mut object = json!({
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"resourceVersion": rv}, "spec": {},
        });
        if end_of_initial_events {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.push("BOOKMARK", object);
    }

    fn push(&mut self, kind: &str, object: Value) {
        let mut event = json!({"type": kind, "object": object});
        for Tamper(change) in &self.tampers {
            change(&mut event);
        }
        self.lines.push_back(Bytes::from(format!("{event}\n")));
    }
}

fn wants(query: &WatchQuery, place: Place, version: &Version) -> bool {
    version.rv > place.above_rv
        && query.namespace.as_ref().is_none_or(|n| *n == version.namespace)
        && query.name.as_ref().is_none_or(|n| *n == version.name)
}

/// Waits for the next commit this watch wants to tell, and until it may tell it.
async fn next_version(
    shared: &Shared,
    query: &WatchQuery,
    place: Place,
    changed: &mut watch::Receiver<u64>,
) -> Outcome<Arc<Version>> {
    let mut seq = place.seq;
    loop {
        changed.borrow_and_update();
        let found = shared.lock().store.change_from(seq)?;
        match found {
            Some(version) if wants(query, place, &version) => {
                sleep_until(version.at + place.delay).await;
                return Ok(version);
            }
            Some(version) => seq = version.seq + 1,
            // The sender is part of `shared`.
            None => drop(changed.changed().await),
        }
    }
}
