//! A leader whose renewals all succeed, on a store that is one record: the core alone.

use std::sync::Arc;

use tenure::core::{
    Action, DrainTimeout, Elector, Event, MissingLease, Mono, Now, Observed, OnAppExit, Options,
    Purpose, ReadOutcome, Record, Released, RequestId, Rules, Stamp, Version, Wall, WatchEvent,
    Write, WriteOutcome,
};
use tenure::timing::Timing;

/// Stands for the JSON of the object.
type Base = u32;

pub(crate) struct Leader {
    pub(crate) elector: Elector<Base>,
    now_ms: u64,
    record: Record,
    watch: RequestId,
    /// Handed to the core so far.
    pub(crate) events: u64,
}

impl Leader {
    /// Has acquired an empty Lease and renewed it a few times, so that every queue has its size.
    pub(crate) fn new() -> Leader {
        let options = Options {
            identity: "web-7d4b9c_6f1c2d3e".into(),
            incarnation: "0123456789abcdef".into(),
            takes_over: true,
            timing: Timing::default(),
            missing_lease: MissingLease::Create,
            drain_timeout: DrainTimeout::Auto,
            on_app_exit: OnAppExit::Release,
            unsafe_release_on_sigterm: false,
            max_valid: None,
            rules: Rules::default(),
        };
        let mut elector = Elector::new(options, at(1_000_000));
        let Some(Action::Read { id }) = elector.poll_action() else {
            panic!("no read at the start")
        };
        let mut leader =
            Leader { elector, now_ms: 1_000_000, record: empty(), watch: RequestId(0), events: 0 };
        let found = ReadOutcome::Found(leader.observed());
        leader.handle(Event::Read { id, outcome: found });
        leader.answer_all();
        for _ in 0..8 {
            leader.renew();
        }
        leader
    }

    /// The time of a renewal comes, it is written, seen by the watch, and acknowledged: three events.
    pub(crate) fn renew(&mut self) {
        let before = self.elector.renewals();
        let due = self.elector.poll_timeout().expect("a leader has a timeout");
        self.now_ms = due.as_millis();
        self.handle(Event::Timeout);
        self.answer_all();
        // A watch that stays silent between renewals makes timeouts of its own.
        if self.elector.renewals() == before {
            return self.renew();
        }
        assert_eq!(self.elector.renewals(), before + 1);
    }

    fn answer_all(&mut self) {
        while let Some(action) = self.elector.poll_action() {
            match action {
                Action::Write { id, write, .. } => {
                    self.apply(&write);
                    // The answer takes a millisecond, and the watch is a little quicker.
                    self.now_ms += 1;
                    let seen = WatchEvent::Object(self.observed());
                    self.handle(Event::Watch { id: self.watch, event: seen });
                    let done = WriteOutcome::Done { created: false, object: self.observed() };
                    self.handle(Event::Write { id, outcome: done });
                }
                Action::Watch { id, .. } => {
                    self.watch = id;
                    self.handle(Event::Watch { id, event: WatchEvent::Opened });
                }
                Action::Read { .. } => panic!("a leader does not read"),
                Action::Cancel { .. } | Action::Tell(_) => {}
            }
        }
    }

    fn handle(&mut self, event: Event<Base>) {
        self.events += 1;
        self.elector.handle(at(self.now_ms), event);
    }

    fn observed(&self) -> Observed<Base> {
        Observed { record: self.record.clone(), base: 0 }
    }

    fn apply(&mut self, write: &Write<Base>) {
        assert!(matches!(write.purpose, Purpose::Acquire | Purpose::Renew), "{write:?}");
        let record = &mut self.record;
        record.version = Some(Version::new(record.version.map_or(1, |at| at.number()) + 1));
        record.holder = Some(write.holder.clone());
        record.duration = Some(write.duration);
        record.renew_time = Some(Stamp::At(write.renew_time));
        record.epoch = write.epoch.or(record.epoch);
        record.incarnation = write.incarnation.clone().or(record.incarnation.take());
        if let Some(acquire_time) = write.acquire_time {
            record.acquire_time = Some(Stamp::At(acquire_time));
        }
        if write.transitions.is_some() {
            record.transitions = write.transitions;
            record.annotated_transitions = write.transitions;
        }
        if matches!(write.released, Released::Remove) {
            record.released = None;
        }
    }
}

fn at(ms: u64) -> Now {
    let wall = i64::try_from(ms).expect("a time of this century") * 1_000;
    Now { mono: Mono::from_millis(ms), wall: Wall::from_micros(wall) }
}

fn empty() -> Record {
    Record {
        uid: Arc::from("5d1c7e9a"),
        version: Some(Version::new(7)),
        holder: None,
        duration: None,
        acquire_time: None,
        renew_time: None,
        transitions: None,
        epoch: None,
        incarnation: None,
        annotated_transitions: None,
        released: None,
        coordinated: false,
        bad_annotations: 0,
    }
}
