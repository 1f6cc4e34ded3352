//! The server's side: requests arrive, take effect and are answered; watches are fed.

use tenure::core::{
    Event, Failure, Mark, Observed, Purpose, ReadOutcome, RequestId, Version, WatchEvent,
    WriteOutcome,
};

use super::checker::{Author, Commit};
use super::link::{Back, Fate};
use super::store::{Base, Change, Condition, Object, Put, PutError, apply, version_of};
use super::world::{Happening, Request, Stream, What, World};

pub fn observed(object: &Base) -> Observed<Base> {
    Observed { record: object.record.clone(), base: object.clone() }
}

fn failed(what: &What, id: RequestId, failure: Failure) -> Event<Base> {
    match what {
        What::Read => Event::Read { id, outcome: ReadOutcome::Failed(failure) },
        What::Write { .. } => Event::Write { id, outcome: WriteOutcome::Failed(failure) },
        What::Watch { .. } => Event::Watch { id, event: WatchEvent::Failed(failure) },
    }
}

impl World {
    pub fn depart(&mut self, request: Request) {
        match (request.fate.there, request.fate.back) {
            (Some(there), _) => self.schedule(self.now + there, Happening::Arrive(request)),
            (None, Back::Reset(after)) => {
                let event = failed(&request.what, request.id, Failure::UNKNOWN);
                self.deliver(request.author, after, event);
            }
            (None, _) => {}
        }
    }

    fn deliver(&mut self, author: Author, after: u64, event: Event<Base>) {
        self.schedule(self.now + after, Happening::Deliver { author, event });
    }

    pub fn arrive(&mut self, request: Request) {
        let Request { author, id, what, sent_mono, fate } = request;
        if let Some(failure) = fate.refused {
            return self.answer_with(author, fate, failed(&what, id, failure));
        }
        match what {
            What::Read => {
                let outcome = match &self.store.object {
                    Some(object) => ReadOutcome::Found(observed(object)),
                    None => ReadOutcome::Absent,
                };
                self.answer_with(author, fate, Event::Read { id, outcome });
            }
            What::Write { ref write, epoch } => {
                let condition = self.condition(write.base.as_ref());
                let (purpose, body) = (write.purpose, apply(write));
                let result = self.put(author, purpose, epoch, sent_mono, body, &condition);
                let outcome = match result {
                    Ok(put) => {
                        WriteOutcome::Done { created: put.created, object: observed(&put.object) }
                    }
                    Err(PutError::Conflict | PutError::Invalid) => WriteOutcome::Conflict,
                };
                self.answer_write(author, fate, &what, id, outcome);
            }
            What::Watch { after } => self.open_stream(author, id, after, fate),
        }
    }

    fn answer_write(
        &mut self,
        author: Author,
        fate: Fate,
        what: &What,
        id: RequestId,
        outcome: WriteOutcome<Base>,
    ) {
        match fate.back {
            Back::Reset(after) => self.deliver(author, after, failed(what, id, Failure::UNKNOWN)),
            _ => self.answer_with(author, fate, Event::Write { id, outcome }),
        }
    }

    fn answer_with(&mut self, author: Author, fate: Fate, event: Event<Base>) {
        match fate.back {
            Back::After(after) => self.deliver(author, after, event),
            Back::Lost => {}
            Back::Reset(after) => {
                let event = match event {
                    Event::Read { id, .. } => failed(&What::Read, id, Failure::UNKNOWN),
                    Event::Watch { id, .. } => {
                        failed(&What::Watch { after: None }, id, Failure::UNKNOWN)
                    }
                    other => other,
                };
                self.deliver(author, after, event);
            }
        }
    }

    fn condition(&self, base: Option<&Base>) -> Condition {
        let uid = base.map(|base| base.record.uid.clone());
        Condition {
            version: base.map(|base| version_of(base)),
            uid: uid.filter(|_| self.mutant != Some(Mark::UidSent)),
            any_version: base.is_some() && self.mutant == Some(Mark::CompareAndSwap),
        }
    }

    fn put(
        &mut self,
        author: Author,
        purpose: Purpose,
        epoch: u64,
        sent_mono: u64,
        body: Object,
        condition: &Condition,
    ) -> Result<Put, PutError> {
        let before = self.store.object.clone();
        let result = self.store.put(body, condition);
        self.note(|| match &result {
            Ok(put) => format!(
                "* {author:?} {purpose:?} of epoch {epoch}: version {}",
                version_of(&put.object)
            ),
            Err(error) => format!("* {author:?} {purpose:?} of epoch {epoch}: {error:?}"),
        });
        let put = result?;
        if put.changed {
            let timing = &self.pods[author.pod].setup.timing;
            let renew_deadline = timing.renew_deadline().as_nanos() as u64;
            let commit = Commit {
                at: self.now,
                author,
                purpose,
                epoch: Some(epoch),
                sent_mono,
                renew_deadline,
                before: before.as_deref(),
                after: &put.object,
            };
            self.checker.committed(&commit);
            self.publish();
        }
        Ok(put)
    }

    fn open_stream(&mut self, author: Author, id: RequestId, after: Option<u128>, fate: Fate) {
        let back = match fate.back {
            Back::After(back) => back,
            Back::Lost => return,
            Back::Reset(after) => {
                let event = failed(&What::Watch { after: None }, id, Failure::UNKNOWN);
                return self.deliver(author, after, event);
            }
        };
        if self.author(author.pod) != author {
            return;
        }
        let event = |event| Event::Watch { id, event };
        if after.is_some_and(|after| after < self.store.compacted) {
            return self.deliver(author, back, event(WatchEvent::Gone));
        }
        if after.is_some_and(|after| after > self.store.version()) {
            return self.deliver(author, back, event(WatchEvent::Failed(Failure::UNKNOWN)));
        }
        let mut stream = Stream {
            id,
            life: author.life,
            stalled: false,
            ending: false,
            last_at: self.now + back,
        };
        self.deliver(author, back, event(WatchEvent::Opened));
        let backlog: Vec<WatchEvent<Base>> = match after {
            Some(after) => {
                let later = self.store.log.iter().filter(|change| change.version() > after);
                later.map(watch_event).collect()
            }
            None => {
                let object = self.store.object.iter();
                object.map(|object| WatchEvent::Object(observed(object))).collect()
            }
        };
        for each in backlog {
            stream.last_at += 1;
            let event = event(each);
            self.schedule(stream.last_at, Happening::Stream { author, id, event });
        }
        self.pods[author.pod].stream = Some(stream);
    }

    /// Feeds the last change to every watch.
    pub fn publish(&mut self) {
        let Some(change) = self.store.log.last().cloned() else { return };
        for pod in 0..self.pods.len() {
            self.feed(pod, watch_event(&change));
        }
    }

    /// Puts an event on a pod's watch, behind all that is on it.
    pub fn feed(&mut self, pod: usize, event: WatchEvent<Base>) {
        let now = self.now;
        let it = &mut self.pods[pod];
        let slow = self.weather.as_ref().map_or(0, |weather| it.link.late_event(weather));
        let Some(stream) = &mut it.stream else { return };
        if it.link.watch_silent || it.link.cut {
            stream.stalled = true;
        }
        if stream.stalled || stream.ending {
            return;
        }
        let at = (now + it.link.watch_delay + slow).max(stream.last_at + 1);
        stream.last_at = at;
        let (id, author) = (stream.id, Author { pod, life: stream.life });
        let event = Event::Watch { id, event };
        self.schedule(at, Happening::Stream { author, id, event });
    }

    pub fn stream_brings(&mut self, author: Author, id: RequestId, event: Event<Base>) {
        if self.author(author.pod) != author {
            return;
        }
        let it = &mut self.pods[author.pod];
        let Some(stream) = &mut it.stream else { return };
        if it.link.watch_silent || it.link.cut {
            stream.stalled = true;
        }
        if stream.id == id && !stream.stalled {
            self.happen(author.pod, event);
        }
    }
}

pub fn watch_event(change: &Change) -> WatchEvent<Base> {
    match change {
        Change::Put(object) => WatchEvent::Object(observed(object)),
        Change::Deleted { uid, version } => {
            WatchEvent::Deleted { uid: uid.clone(), version: Some(Version::new(*version)) }
        }
    }
}
