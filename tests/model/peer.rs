//! A client-go candidate, 0.37: it waits the record's own duration from its own observation,
//! renews optimistically, and releases on a fresh read if it *believes* to lead. It acts when the
//! checker lets it, so that it may stand still at any time.

use std::sync::Arc;
use std::time::Duration;

use tenure::core::{Record, Stamp, Wall};

use super::store::{Base, Condition, Object, version_of};
use super::world::{LEASE, PEER, RENEW, World};

/// What it compares two observations by: times in whole seconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Raw {
    holder: Option<Arc<str>>,
    duration: u64,
    acquired: Option<i64>,
    renewed: Option<i64>,
    transitions: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    cached: Option<Base>,
    seen: Option<Raw>,
    seen_at: u64,
    /// Generous: what it calls itself longer than this is its own fault.
    leads_until: u64,
    gone: bool,
}

const NAME: &str = "client-go";

fn raw(record: &Record) -> Raw {
    let second = |stamp: &Option<Stamp>| match stamp {
        Some(Stamp::At(at)) => Some(at.second()),
        _ => None,
    };
    Raw {
        holder: record.holder.clone(),
        duration: record.duration.map_or(0, |span| span.as_secs()),
        acquired: second(&record.acquire_time),
        renewed: second(&record.renew_time),
        transitions: record.transitions.unwrap_or(0),
    }
}

impl Peer {
    pub(crate) fn leads(&self, second: u64) -> bool {
        second < self.leads_until
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(crate) fn believes(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.holder.as_deref() == Some(NAME))
    }

    fn observe(&mut self, object: &Base, second: u64) {
        let seen = raw(&object.record);
        if self.seen.as_ref() != Some(&seen) {
            self.seen = Some(seen);
            self.seen_at = second;
        }
        self.cached = Some(object.clone());
    }
}

impl World {
    /// One round of its loop.
    pub(crate) fn peer_tries(&mut self) {
        let second = self.second;
        let valid = |peer: &Peer| {
            peer.seen.as_ref().is_some_and(|seen| peer.seen_at + seen.duration > second)
        };
        let Some(mut peer) = self.peer.take() else { return };
        let mut done = false;
        if peer.believes() && valid(&peer) {
            done = self.peer_writes(&mut peer, false);
        }
        if let Some(object) = self.store.object.clone().filter(|_| !done) {
            peer.observe(&object, second);
            let other = object.record.holder.is_some() && !peer.believes();
            if other && valid(&peer) {
                peer.leads_until = 0;
            } else {
                let fresh = !peer.believes();
                self.peer_writes(&mut peer, fresh);
            }
        }
        self.peer = Some(peer);
    }

    fn peer_writes(&mut self, peer: &mut Peer, fresh: bool) -> bool {
        let Some(base) = peer.cached.clone() else { return false };
        let now = Wall::from_micros(self.second as i64 * 1_000_000);
        let mut body = Object::clone(&base);
        let record = &mut body.record;
        record.holder = Some(NAME.into());
        record.duration = Some(Duration::from_secs(LEASE));
        record.renew_time = Some(Stamp::At(now));
        if fresh {
            record.acquire_time = Some(Stamp::At(now));
            record.transitions = Some(record.transitions.unwrap_or(0) + 1);
        }
        let Ok(put) = self.store.put(body, &condition(&base)) else { return false };
        peer.observe(&put.object, self.second);
        peer.leads_until = self.second + RENEW;
        self.acquirer = Some((PEER, 0));
        true
    }

    /// It ends. It asks its old observation whether it leads, and a fresh read for the version.
    pub(crate) fn peer_releases(&mut self) {
        let Some(mut peer) = self.peer.take() else { return };
        if let Some(object) = self.store.object.clone().filter(|_| peer.believes()) {
            let now = Wall::from_micros(self.second as i64 * 1_000_000);
            let mut body = Object::clone(&object);
            let record = &mut body.record;
            record.holder = None;
            record.duration = Some(Duration::from_secs(1));
            record.renew_time = Some(Stamp::At(now));
            record.acquire_time = Some(Stamp::At(now));
            let _ = self.store.put(body, &condition(&object));
        }
        peer = Peer { gone: true, ..Peer::default() };
        self.peer = Some(peer);
    }
}

fn condition(base: &Base) -> Condition {
    Condition {
        version: Some(version_of(base)),
        uid: Some(base.record.uid.clone()),
        any_version: false,
    }
}
