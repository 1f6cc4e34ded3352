//! The one place in a process where its [`Elector`] lives: shared by the shell, which drives it,
//! and the local API, which asks it and passes on what the app says.
//!
//! Both act under one lock and see one order of events: an answer given before a release began is
//! known to it, and none after it says leader.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, watch};

use crate::core::{Action, Answer, Ask, Elector, Event, Mono, Now, Options};
use crate::history;

/// The object a write is based on, as it was read.
pub type Base = Arc<serde_json::Value>;

/// Where the time comes from: `CLOCK_BOOTTIME` and the wall clock, or a test's.
pub trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Now;
}

/// What waiting readers are woken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// [`Elector::version`].
    pub version: u64,
    /// [`Elector::renewals`].
    pub renewals: u64,
}

pub struct Seat {
    elector: Mutex<Elector<Base>>,
    clock: Arc<dyn Clock>,
    pulse: watch::Sender<Pulse>,
    work: Notify,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").finish_non_exhaustive()
    }
}

impl Seat {
    pub fn new(options: Options, clock: Arc<dyn Clock>) -> Seat {
        let elector = Elector::new(options, clock.now());
        let pulse = Pulse { version: elector.version(), renewals: elector.renewals() };
        Seat {
            elector: Mutex::new(elector),
            clock,
            pulse: watch::Sender::new(pulse),
            work: Notify::new(),
        }
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Lets the core handle an event that happens now, and wakes whom it concerns.
    pub fn handle(&self, event: Event<Base>) {
        let mut elector = self.lock();
        self.step(&mut elector, event);
    }

    /// What the app is told now, and thereby granted.
    pub fn answer(&self, ask: Ask) -> Answer {
        let mut elector = self.lock();
        let now = self.clock.now();
        let answer = elector.answer(now, ask);
        history::answer(now, &answer);
        // Only an answer that found a term run out, ours or another's, changes anything.
        if elector.has_actions() || elector.version() != self.pulse.borrow().version {
            self.tell(&elector);
        }
        answer
    }

    /// Looks at the core without changing it.
    pub fn look<R>(&self, look: impl FnOnce(&Elector<Base>) -> R) -> R {
        look(&self.lock())
    }

    /// Decides on what the core says and hands it an event in one step, so that nothing happens
    /// in between (`POST /release` for an epoch).
    pub fn decide<R>(&self, decide: impl FnOnce(&Elector<Base>) -> (R, Option<Event<Base>>)) -> R {
        let mut elector = self.lock();
        let (result, event) = decide(&elector);
        if let Some(event) = event {
            self.step(&mut elector, event);
        }
        result
    }

    /// Changes of the version, and acknowledged renewals.
    pub fn pulse(&self) -> watch::Receiver<Pulse> {
        self.pulse.subscribe()
    }

    /// For the driver: the next thing to do.
    pub fn poll_action(&self) -> Option<Action<Base>> {
        let action = self.lock().poll_action();
        if let Some(action) = &action {
            history::action(|| self.clock.now(), action);
        }
        action
    }

    /// For the driver: when to come back with `Event::Timeout`.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.lock().poll_timeout()
    }

    /// For the driver: completes when somebody else made the core act.
    pub async fn work(&self) {
        self.work.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Elector<Base>> {
        // A panic under the lock ends the process (see main), so it is never seen poisoned there.
        self.elector.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn step(&self, elector: &mut Elector<Base>, event: Event<Base>) {
        let now = self.clock.now();
        history::event(now, &event);
        elector.handle(now, event);
        history::stand(now, elector);
        self.tell(elector);
    }

    fn tell(&self, elector: &Elector<Base>) {
        let now = Pulse { version: elector.version(), renewals: elector.renewals() };
        self.pulse.send_if_modified(|pulse| std::mem::replace(pulse, now) != now);
        self.work.notify_one();
    }
}
