//! Requests and answers under way, and the server's side of them.

use std::sync::Arc;

use tenure::core::{
    Event, Failure, Mark, Observed, Purpose, ReadOutcome, Released, RequestId, Version, WatchEvent,
    Write, WriteOutcome,
};

use super::store::{Base, Change, Condition, apply, empty_record, version_of};
use super::world::{Broken, Variant, World};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    Read,
    Write(Arc<Write<Base>>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) pod: u8,
    /// The process that sent it.
    pub(crate) life: u8,
    pub(crate) id: RequestId,
    pub(crate) what: What,
    /// Held up: it arrives at any time, or never.
    pub(crate) late: bool,
    /// Nobody waits for its answer.
    pub(crate) orphan: bool,
}

/// The answer to a request, held up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Answer {
    pub(crate) pod: u8,
    pub(crate) event: Event<Base>,
}

impl Answer {
    pub(crate) fn id(&mut self) -> &mut RequestId {
        match &mut self.event {
            Event::Read { id, .. } | Event::Write { id, .. } => id,
            other => unreachable!("no answer: {other:?}"),
        }
    }
}

pub(crate) fn observed(object: &Base) -> Observed<Base> {
    Observed { record: object.record.clone(), base: object.clone() }
}

/// The epoch a write is about.
fn epoch_of(write: &Write<Base>) -> u64 {
    match write.released {
        Released::Set(epoch) => epoch,
        _ => write.epoch.unwrap_or(0),
    }
}

impl World {
    /// The request arrives and takes effect.
    pub(crate) fn arrive(&mut self, variant: &Variant, request: &Request) -> Event<Base> {
        let id = request.id;
        match &request.what {
            What::Read => {
                let outcome = match &self.store.object {
                    Some(object) => ReadOutcome::Found(observed(object)),
                    None => ReadOutcome::Absent,
                };
                Event::Read { id, outcome }
            }
            What::Write(write) => {
                let outcome = self.put(variant, request, write);
                Event::Write { id, outcome }
            }
        }
    }

    pub(crate) fn failed(request: &Request) -> Event<Base> {
        let id = request.id;
        match request.what {
            What::Read => Event::Read { id, outcome: ReadOutcome::Failed(Failure::UNKNOWN) },
            What::Write(_) => Event::Write { id, outcome: WriteOutcome::Failed(Failure::UNKNOWN) },
        }
    }

    fn condition(variant: &Variant, base: Option<&Base>) -> Condition {
        let uid = base.map(|base| base.record.uid.clone());
        Condition {
            version: base.map(|base| version_of(base)),
            uid: uid.filter(|_| variant.without != Some(Mark::UidSent)),
            any_version: base.is_some() && variant.without == Some(Mark::CompareAndSwap),
        }
    }

    fn put(
        &mut self,
        variant: &Variant,
        request: &Request,
        write: &Write<Base>,
    ) -> WriteOutcome<Base> {
        let condition = Self::condition(variant, write.base.as_ref());
        let Ok(put) = self.store.put(apply(write), &condition) else {
            return WriteOutcome::Conflict;
        };
        if put.changed {
            self.judge(request, write.purpose, epoch_of(write));
        }
        WriteOutcome::Done { created: put.created, object: observed(&put.object) }
    }

    /// A write has taken effect.
    fn judge(&mut self, request: &Request, purpose: Purpose, epoch: u64) {
        let author = (request.pod, request.life);
        let pod = usize::from(request.pod);
        match purpose {
            Purpose::Create => self.acquirer = None,
            Purpose::Acquire => {
                if epoch <= self.last_epoch {
                    self.broken = Some(Broken::S2);
                }
                self.last_epoch = epoch;
                self.acquirer = Some(author);
            }
            Purpose::Renew | Purpose::Release => {
                if self.acquirer != Some(author) {
                    self.broken = Some(Broken::S4);
                } else if epoch != self.last_epoch {
                    self.broken = Some(Broken::S5);
                }
            }
        }
        if purpose == Purpose::Release {
            if self.pods[pod].granted > self.clock(pod) {
                self.broken = Some(Broken::S7);
            }
            self.pods[pod].released = epoch;
        }
    }

    /// The next change that the pod's watch has not delivered.
    pub(crate) fn next_change(&self, pod: usize) -> Option<&Change> {
        let it = &self.pods[pod];
        let stream = it.stream.as_ref().filter(|stream| !stream.stalled && !it.cut)?;
        self.store.log.iter().find(|change| change.version() > stream.after)
    }

    pub(crate) fn deliver_change(&mut self, pod: usize) {
        let Some(change) = self.next_change(pod).cloned() else { return };
        let Some(stream) = &mut self.pods[pod].stream else { return };
        stream.after = change.version();
        let id = stream.id;
        self.happen(pod, Event::Watch { id, event: watch_event(&change) });
    }

    /// The watch brings the oldest change that is still known once more.
    pub(crate) fn replay(&mut self, pod: usize) {
        let Some(change) = self.store.log.first().cloned() else { return };
        let Some(stream) = &self.pods[pod].stream else { return };
        let id = stream.id;
        self.happen(pod, Event::Watch { id, event: watch_event(&change) });
    }

    pub(crate) fn delete(&mut self) {
        self.store.delete();
        self.acquirer = None;
    }

    /// As a person or a chart makes it.
    pub(crate) fn make_empty(&mut self) {
        let body = super::store::Object { record: empty_record(), label: 0 };
        let _ = self.store.put(body, &Condition::default());
    }

    /// Writes that can no longer land, and that nobody waits for, are forgotten.
    pub(crate) fn forget_the_hopeless(&mut self, variant: &Variant) {
        let newest = self.store.object.clone();
        let conditional =
            ![Some(Mark::CompareAndSwap), Some(Mark::UidSent)].contains(&variant.without);
        self.requests.retain(|request| {
            let What::Write(write) = &request.what else { return true };
            let hopeless = match (&write.base, &newest) {
                (Some(base), Some(newest)) => version_of(base) != version_of(newest) && conditional,
                (Some(_), None) => conditional,
                (None, _) => false,
            };
            !(request.orphan && hopeless)
        });
        // The order in which they were sent says nothing.
        let key = |request: &Request| {
            let base = match &request.what {
                What::Read => (0, 0),
                What::Write(write) => {
                    (write.renew_time.as_micros(), write.base.as_ref().map_or(0, |b| version_of(b)))
                }
            };
            (request.pod, request.life, request.id, base)
        };
        self.requests.sort_by_key(key);
        self.answers.sort_by_key(|answer| {
            let mut answer = answer.clone();
            (answer.pod, *answer.id())
        });
    }
}

fn watch_event(change: &Change) -> WatchEvent<Base> {
    match change {
        Change::Put(object) => WatchEvent::Object(observed(object)),
        Change::Deleted { uid, version } => {
            WatchEvent::Deleted { uid: uid.clone(), version: Some(Version::new(*version)) }
        }
    }
}
