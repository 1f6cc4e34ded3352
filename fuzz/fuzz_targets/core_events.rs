//! Bytes as a stream of events on the core: also such as no API server would send. It never panics
//! (its asserts are on), and no answer says leader at or after its validity.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tenure::core::{
    Action, AppStopped, Ask, DrainTimeout, Elector, Event, Failure, FailureClass, MissingLease,
    Mono, Now, Observed, OnAppExit, Options, ReadOutcome, Record, RequestId, Rules, Stamp, Version,
    Wall, WatchEvent, Write, WriteOutcome,
};
use tenure::timing::Timing;

/// A limit on what one event may ask for.
const MAX_ACTIONS: usize = 64;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn pick(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[usize::from(self.pick()) % all.len()].clone()
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.pick() % 4 == 0 { None } else { Some(value(self)) }
    }
}

fn options(bytes: &mut Bytes<'_>) -> Options {
    let flags = bytes.pick();
    Options {
        identity: "a_1".into(),
        incarnation: "i1".into(),
        takes_over: flags & 1 > 0,
        timing: Timing::default(),
        missing_lease: bytes.one_of(&[
            MissingLease::Create,
            MissingLease::CreateFree,
            MissingLease::Never,
        ]),
        drain_timeout: bytes
            .one_of(&[DrainTimeout::Auto, DrainTimeout::Explicit(Duration::from_secs(5))]),
        on_app_exit: bytes.one_of(&[OnAppExit::Release, OnAppExit::Keep]),
        unsafe_release_on_sigterm: flags & 2 > 0,
        max_valid: (flags & 4 > 0).then_some(Duration::from_secs(3)),
        rules: Rules::default(),
    }
}

fn text(bytes: &mut Bytes<'_>, all: &[&str]) -> Arc<str> {
    bytes.one_of(all).into()
}

/// What the last write would have made of the Lease, or anything else.
fn object(bytes: &mut Bytes<'_>, last: Option<&Write<u8>>) -> Observed<u8> {
    let big = bytes.pick() == 255;
    let mut record = Record {
        uid: text(bytes, &["u1", "u1", "u1", "u2"]),
        version: bytes.maybe(|b| {
            let number = u128::from(b.pick()) * if big { u128::MAX / 255 } else { 1 };
            Version::new(number)
        }),
        holder: bytes.maybe(|b| text(b, &["a_1", "b_1", "tenure/new", "a_"])),
        duration: bytes.maybe(|b| Duration::from_secs(b.pick().max(1).into())),
        acquire_time: bytes.maybe(stamp),
        renew_time: bytes.maybe(stamp),
        transitions: bytes.maybe(|b| if b.pick() == 255 { i32::MAX as u32 } else { 3 }),
        epoch: bytes.maybe(|b| {
            let small = u64::from(b.pick()).max(1);
            if small == 255 { tenure::core::MAX_EPOCH } else { small }
        }),
        incarnation: bytes.maybe(|b| text(b, &["i1", "i2"])),
        annotated_transitions: bytes.maybe(|_| 3),
        released: bytes.maybe(|b| u64::from(b.pick()).max(1)),
        coordinated: bytes.pick() == 200,
        bad_annotations: bytes.pick() % 3,
    };
    if let Some(write) = last.filter(|_| bytes.pick() % 2 == 0) {
        record.holder = Some(write.holder.clone()).filter(|holder| !holder.is_empty());
        record.duration = Some(write.duration);
        record.renew_time = Some(Stamp::At(write.renew_time));
        record.acquire_time = write.acquire_time.map(Stamp::At).or(record.acquire_time);
        record.transitions = write.transitions.or(record.transitions);
        record.annotated_transitions = write.transitions.or(record.annotated_transitions);
        record.epoch = write.epoch.or(record.epoch);
        record.incarnation = write.incarnation.clone().or(record.incarnation);
        record.released = None;
    }
    Observed { record, base: bytes.pick() }
}

fn stamp(bytes: &mut Bytes<'_>) -> Stamp {
    match bytes.pick() {
        0 => Stamp::Odd("soon".into()),
        n => Stamp::At(Wall::from_micros(i64::from(n) * 500_000)),
    }
}

fn failure(bytes: &mut Bytes<'_>) -> Failure {
    Failure {
        class: bytes.one_of(&[FailureClass::Refused, FailureClass::Unknown]),
        status: bytes.maybe(|b| b.one_of(&[401, 403, 404, 409, 429, 500, 504])),
        retry_after: bytes.maybe(|b| Duration::from_secs(u64::from(b.pick()) * 100)),
    }
}

/// Requests under way.
#[derive(Default)]
struct Open {
    reads: Vec<RequestId>,
    writes: Vec<(RequestId, Write<u8>)>,
    watch: RequestId0,
    last: Option<Write<u8>>,
}

struct RequestId0(RequestId);

impl Default for RequestId0 {
    fn default() -> Self {
        RequestId0(RequestId(0))
    }
}

impl Open {
    fn drain(&mut self, elector: &mut Elector<u8>) {
        for count in 0.. {
            assert!(count < MAX_ACTIONS, "it never comes to rest");
            match elector.poll_action() {
                None => return,
                Some(Action::Read { id }) => self.reads.push(id),
                Some(Action::Write { id, write, .. }) => {
                    self.last = Some(write.clone());
                    self.writes.push((id, write));
                }
                Some(Action::Watch { id, .. }) => self.watch = RequestId0(id),
                Some(Action::Cancel { id }) => {
                    self.reads.retain(|open| *open != id);
                    self.writes.retain(|(open, _)| *open != id);
                }
                Some(Action::Tell(_)) => {}
            }
        }
    }

    fn event(&mut self, bytes: &mut Bytes<'_>) -> Event<u8> {
        let last = self.last.clone();
        match bytes.pick() % 12 {
            0 | 1 if !self.reads.is_empty() => {
                let id = self.reads.remove(0);
                let outcome = match bytes.pick() % 4 {
                    0 => ReadOutcome::Absent,
                    1 => ReadOutcome::Failed(failure(bytes)),
                    _ => ReadOutcome::Found(object(bytes, last.as_ref())),
                };
                Event::Read { id, outcome }
            }
            2..=4 if !self.writes.is_empty() => {
                let place = usize::from(bytes.pick()) % self.writes.len();
                let (id, write) = self.writes.remove(place);
                let outcome = match bytes.pick() % 4 {
                    0 => WriteOutcome::Conflict,
                    1 => WriteOutcome::Failed(failure(bytes)),
                    _ => WriteOutcome::Done {
                        created: bytes.pick() % 8 == 0,
                        object: object(bytes, Some(&write)),
                    },
                };
                Event::Write { id, outcome }
            }
            5 | 6 => {
                let event = match bytes.pick() % 8 {
                    0 => WatchEvent::Opened,
                    1 => WatchEvent::Deleted {
                        uid: text(bytes, &["u1", "u2"]),
                        version: bytes.maybe(|b| Version::new(b.pick().into())),
                    },
                    2 => WatchEvent::Bookmark { version: Some(Version::new(bytes.pick().into())) },
                    3 => WatchEvent::Closed,
                    4 => WatchEvent::Gone,
                    5 => WatchEvent::Failed(failure(bytes)),
                    _ => WatchEvent::Object(object(bytes, last.as_ref())),
                };
                Event::Watch { id: self.watch.0, event }
            }
            7 => Event::Access { denied: bytes.pick() % 2 == 0 },
            8 => Event::HoldOpened,
            9 => Event::HoldClosed { by_peer: bytes.pick() % 2 == 0 },
            10 => Event::AppStopped(AppStopped {
                epoch: bytes.maybe(|b| b.pick().into()),
                last: bytes.pick() % 4 == 0,
                cool_down: bytes.maybe(|b| Duration::from_secs(b.pick().into())),
            }),
            11 if bytes.pick() % 8 == 0 => Event::Shutdown,
            _ => Event::Timeout,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let options = options(&mut bytes);
    let mut at_ms: u64 = 100_000;
    let now = |ms: u64| Now {
        mono: Mono::from_millis(ms),
        wall: Wall::from_micros(i64::try_from(ms).unwrap_or(0) * 1000),
    };
    let mut elector = Elector::new(options, now(at_ms));
    let mut open = Open::default();
    open.drain(&mut elector);
    while let Some(step) = bytes.next() {
        at_ms += match step % 8 {
            0..=3 => 0,
            4..=5 => u64::from(step),
            6 => u64::from(step) * 20,
            _ => u64::from(step) * 200,
        };
        let event = open.event(&mut bytes);
        elector.handle(now(at_ms), event);
        open.drain(&mut elector);
        if step & 64 > 0 {
            let ask = Ask {
                min_valid: None,
                max_valid: bytes.maybe(|b| Duration::from_millis(u64::from(b.pick()) * 10)),
                sees_no_length: step & 128 > 0,
            };
            let answer = elector.answer(now(at_ms), ask);
            let valid = answer.valid_until.is_some_and(|until| until > now(at_ms).mono);
            assert!(!answer.leader || valid, "S3: {answer:?}");
            open.drain(&mut elector);
        }
        if let Some(due) = elector.poll_timeout() {
            assert!(due > now(at_ms).mono, "it would spin");
        }
    }
});
