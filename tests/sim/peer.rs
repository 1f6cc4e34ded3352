//! An elector as client-go 0.37 has it: it compares whole seconds, waits the record's own duration
//! from its own observation, renews optimistically, and releases on a fresh read if it *believes*
//! to lead.

use std::sync::Arc;
use std::time::Duration;

use tenure::core::{Record, Stamp};

use super::checker::{Author, PEER};
use super::clock::{Clock, SECOND};
use super::link::{Back, Fate, Kind, Link};
use super::store::{Base, Condition, Object, empty_record, version_of};
use super::world::{Happening, World};

/// What client-go compares two observations by.
type Raw = (Arc<str>, u64, Option<i64>, Option<i64>, u32);

#[derive(Clone, Debug)]
struct Belief {
    holder: Arc<str>,
    duration: u64,
    acquired: Option<Stamp>,
    transitions: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    /// The leader's optimistic update.
    FastUpdate,
    Get,
    Update,
    Create,
    ReleaseGet,
    ReleaseUpdate,
    Done,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Object(Base),
    Absent,
    Error,
}

pub enum PeerEvent {
    Tick { peer: usize, generation: u64 },
    Arrive { peer: usize, generation: u64, put: Option<Box<(Object, Condition)>>, back: Back },
    Reply { peer: usize, generation: u64, reply: Reply },
}

pub struct Peer {
    pub identity: Arc<str>,
    pub clock: Clock,
    pub link: Link,
    pub lease_duration: u64,
    pub renew_deadline: u64,
    pub retry_period: u64,
    pub paused: bool,
    pub gone: bool,
    step: Step,
    generation: u64,
    /// The object its lock last saw.
    cached: Option<Base>,
    observed: Option<Belief>,
    observed_raw: Option<Raw>,
    observed_at: u64,
    /// By its own clock: it gives up leading then.
    leads_until: Option<u64>,
    inbox: Vec<PeerEvent>,
    /// When it sent its last request, by its own clock.
    sent_at: u64,
}

fn raw(record: &Record) -> Raw {
    let second = |stamp: &Option<Stamp>| match stamp {
        Some(Stamp::At(at)) => Some(at.second()),
        _ => None,
    };
    (
        record.holder.clone().unwrap_or_default(),
        record.duration.map_or(0, |span| span.as_secs()),
        second(&record.acquire_time),
        second(&record.renew_time),
        record.transitions.unwrap_or(0),
    )
}

impl Peer {
    pub fn leads(&self, at: u64) -> bool {
        self.leads_until.is_some_and(|until| self.clock.mono(at) < until)
    }

    /// Whether it would call itself leader by what it last observed.
    fn is_leader(&self) -> bool {
        self.observed.as_ref().is_some_and(|seen| seen.holder == self.identity)
    }

    fn lease_is_valid(&self, mono: u64) -> bool {
        let Some(seen) = &self.observed else { return false };
        self.observed_at + seen.duration * SECOND > mono
    }

    fn observe(&mut self, record: &Record, mono: u64) {
        self.observed = Some(Belief {
            holder: record.holder.clone().unwrap_or_default(),
            duration: record.duration.map_or(0, |span| span.as_secs()),
            acquired: record.acquire_time.clone(),
            transitions: record.transitions.unwrap_or(0),
        });
        self.observed_at = mono;
    }
}

impl World {
    pub fn add_peer(&mut self, clock: Clock, times: [u64; 3]) -> usize {
        let number = self.peers.len();
        let [lease_duration, renew_deadline, retry_period] = times;
        self.peers.push(Peer {
            identity: format!("client-go-{number}").into(),
            clock,
            link: Link::good(),
            lease_duration,
            renew_deadline,
            retry_period,
            paused: false,
            gone: false,
            step: Step::Idle,
            generation: 0,
            cached: None,
            observed: None,
            observed_raw: None,
            observed_at: 0,
            leads_until: None,
            inbox: Vec::new(),
            sent_at: 0,
        });
        self.peer_tick(number, 0);
        number
    }

    fn peer_tick(&mut self, peer: usize, after: u64) {
        let it = &mut self.peers[peer];
        it.step = Step::Idle;
        it.generation += 1;
        let at = it.clock.when(it.clock.mono(self.now) + after);
        let generation = it.generation;
        self.schedule(at, Happening::Peer(PeerEvent::Tick { peer, generation }));
    }

    /// Its context is cancelled: it stops leading and releases.
    pub fn peer_stop(&mut self, peer: usize) {
        let it = &mut self.peers[peer];
        it.leads_until = None;
        if it.is_leader() {
            self.peer_ask(peer, Step::ReleaseGet, None);
        } else {
            it.step = Step::Done;
            it.generation += 1;
            it.gone = true;
        }
    }

    pub fn peer_resume(&mut self, peer: usize) {
        self.peers[peer].paused = false;
        for event in std::mem::take(&mut self.peers[peer].inbox) {
            self.peer_event(event);
        }
    }

    /// Sends a request; without an answer the client gives up after half the renew deadline.
    fn peer_ask(&mut self, peer: usize, step: Step, put: Option<(Object, Condition)>) {
        let it = &mut self.peers[peer];
        it.step = step;
        it.generation += 1;
        it.sent_at = it.clock.mono(self.now);
        let kind = if put.is_some() { Kind::Put } else { Kind::Get };
        let weathered = self.weather.as_ref().map(|weather| it.link.weathered(weather, kind));
        let fate = match weathered {
            Some(fate) if !it.link.cut => fate,
            _ => it.link.fate(kind, true),
        };
        let (generation, timeout) = (it.generation, it.renew_deadline / 2);
        let late = PeerEvent::Reply { peer, generation, reply: Reply::Error };
        self.schedule(self.now + timeout, Happening::Peer(late));
        let Fate { there, refused, back } = fate;
        match there {
            Some(there) if refused.is_none() => {
                let put = put.map(Box::new);
                let arrive = PeerEvent::Arrive { peer, generation, put, back };
                self.schedule(self.now + there, Happening::Peer(arrive));
            }
            _ => {
                let reply = PeerEvent::Reply { peer, generation, reply: Reply::Error };
                self.schedule(self.now + 2 * super::MS, Happening::Peer(reply));
            }
        }
    }

    pub fn peer_event(&mut self, event: PeerEvent) {
        match event {
            PeerEvent::Arrive { peer, generation, put, back } => {
                let reply = self.peer_arrives(peer, put);
                if let Back::After(after) = back {
                    let event = PeerEvent::Reply { peer, generation, reply };
                    self.schedule(self.now + after, Happening::Peer(event));
                }
            }
            PeerEvent::Tick { peer, .. } | PeerEvent::Reply { peer, .. }
                if self.peers[peer].paused =>
            {
                self.peers[peer].inbox.push(event);
            }
            PeerEvent::Tick { peer, generation } => {
                if self.peers[peer].generation == generation {
                    self.peer_tries(peer);
                }
            }
            PeerEvent::Reply { peer, generation, reply } => {
                if self.peers[peer].generation == generation {
                    self.peer_hears(peer, reply);
                }
            }
        }
    }

    fn peer_arrives(&mut self, peer: usize, put: Option<Box<(Object, Condition)>>) -> Reply {
        let Some((body, condition)) = put.map(|put| *put) else {
            return match &self.store.object {
                Some(object) => Reply::Object(object.clone()),
                None => Reply::Absent,
            };
        };
        let before = self.store.object.clone();
        let holder = body.record.holder.clone();
        let Ok(put) = self.store.put(body, &condition) else { return Reply::Error };
        self.note(|| format!("* client-go {peer} writes holder {holder:?}"));
        if put.changed {
            let mine = self.peers[peer].identity.clone();
            let was = before.and_then(|object| object.record.holder.clone());
            if holder.as_ref() == Some(&mine) && was.as_ref() != Some(&mine) {
                self.checker.peer_acquired(Author { pod: PEER + peer, life: 1 });
            }
            self.publish();
        }
        Reply::Object(put.object)
    }

    /// tryAcquireOrRenew.
    fn peer_tries(&mut self, peer: usize) {
        let it = &mut self.peers[peer];
        let mono = it.clock.mono(self.now);
        if it.leads_until.is_some_and(|until| until <= mono) {
            // renew() gave up: this program ends, and releases on its way.
            return self.peer_stop(peer);
        }
        if it.is_leader() && it.lease_is_valid(mono) {
            let put = self.peer_record(peer, false);
            self.peer_ask(peer, Step::FastUpdate, put);
        } else {
            self.peer_ask(peer, Step::Get, None);
        }
    }

    /// The record it would write on what its lock last saw.
    fn peer_record(&mut self, peer: usize, fresh: bool) -> Option<(Object, Condition)> {
        let it = &self.peers[peer];
        let base = it.cached.clone()?;
        let wall = it.clock.now(self.now).wall;
        let seen = it.observed.clone()?;
        let mut object = (*base).clone();
        let record = &mut object.record;
        record.holder = Some(it.identity.clone());
        record.duration = Some(Duration::from_nanos(it.lease_duration));
        record.renew_time = Some(Stamp::At(wall));
        if fresh {
            record.acquire_time = Some(Stamp::At(wall));
            record.transitions = Some(seen.transitions.saturating_add(1));
        } else {
            record.acquire_time = seen.acquired;
            record.transitions = Some(seen.transitions);
        }
        Some((object, condition(&base)))
    }

    fn peer_hears(&mut self, peer: usize, reply: Reply) {
        let mono = self.peers[peer].clock.mono(self.now);
        let step = self.peers[peer].step;
        let retry = self.peers[peer].retry_period;
        match (step, reply) {
            (Step::FastUpdate | Step::Update | Step::Create, Reply::Object(object)) => {
                let it = &mut self.peers[peer];
                it.observe(&object.record, mono);
                it.cached = Some(object);
                // Generous: it counts from the answer, and can be late for that. Not our fault.
                it.leads_until = Some(it.sent_at + it.renew_deadline);
                self.peer_tick(peer, retry);
            }
            (Step::FastUpdate, _) => self.peer_ask(peer, Step::Get, None),
            (Step::Get, Reply::Object(object)) => self.peer_has_read(peer, object, mono),
            (Step::Get, Reply::Absent) => {
                let wall = self.peers[peer].clock.now(self.now).wall;
                let it = &self.peers[peer];
                let mut record = empty_record();
                record.holder = Some(it.identity.clone());
                record.duration = Some(Duration::from_nanos(it.lease_duration));
                record.acquire_time = Some(Stamp::At(wall));
                record.renew_time = Some(Stamp::At(wall));
                record.transitions = Some(0);
                let put = (Object { record, label: 0 }, Condition::default());
                self.peer_ask(peer, Step::Create, Some(put));
            }
            (Step::ReleaseGet, Reply::Object(object)) => {
                // It asks its old observation, not this one, whether it leads.
                let wall = self.peers[peer].clock.now(self.now).wall;
                let mut blank = (*object).clone();
                blank.record.holder = None;
                blank.record.duration = Some(Duration::from_secs(1));
                blank.record.renew_time = Some(Stamp::At(wall));
                blank.record.acquire_time = Some(Stamp::At(wall));
                let put = (blank, condition(&object));
                self.peer_ask(peer, Step::ReleaseUpdate, Some(put));
            }
            (Step::ReleaseGet | Step::ReleaseUpdate, _) => {
                let it = &mut self.peers[peer];
                it.step = Step::Done;
                it.gone = true;
                it.generation += 1;
            }
            _ => self.peer_tick(peer, retry),
        }
    }

    fn peer_has_read(&mut self, peer: usize, object: Base, mono: u64) {
        let it = &mut self.peers[peer];
        let seen = raw(&object.record);
        if it.observed_raw.as_ref() != Some(&seen) {
            it.observe(&object.record, mono);
            it.observed_raw = Some(seen);
        }
        it.cached = Some(object.clone());
        let held = object.record.holder.is_some();
        if held && it.lease_is_valid(mono) && !it.is_leader() {
            it.leads_until = None;
            let retry = it.retry_period;
            return self.peer_tick(peer, retry);
        }
        let fresh = !it.is_leader();
        let put = self.peer_record(peer, fresh);
        self.peer_ask(peer, Step::Update, put);
    }
}

fn condition(base: &Base) -> Condition {
    Condition {
        version: Some(version_of(base)),
        uid: Some(base.record.uid.clone()),
        any_version: false,
    }
}
