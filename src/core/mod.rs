//! The election core: pure rules, driven from outside.
//!
//! The contract: *one event, then drain all actions, then wait.* Give [`Elector::handle`] what
//! happened and the time, carry out all that [`Elector::poll_action`] returns, and come back with
//! the next event, or with [`Event::Timeout`] at [`Elector::poll_timeout`]. Read the time *before*
//! anything that an event causes is sent: validity counts from it. [`Elector::answer`] may be
//! called at any time, from anywhere; it judges by the time it is given, so that an answer turns
//! false in time whatever is stuck.
//!
//! No async, no I/O, no clock, no randomness, no Kubernetes types. One [`Elector`] per Lease.

#![deny(clippy::disallowed_methods)]

mod answer;
mod attempts;
mod campaign;
mod elector;
mod event;
mod lease;
mod leave;
#[cfg(feature = "mutants")]
mod normal;
mod observe;
mod options;
mod requests;
mod rules;
mod state;
mod term;
mod time;
mod watching;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Ask};
pub use elector::Elector;
pub use event::{
    Action, AppStopped, Awaits, Event, Failure, FailureClass, ReadOutcome, RequestId, Tell, Verb,
    WatchEvent, WriteOutcome,
};
pub use lease::{
    HOLDER_NEW, MAX_EPOCH, Observed, Purpose, Record, Released, Stamp, Version, Write,
};
pub use options::{AUTO_DRAIN_TIMEOUT, DrainTimeout, MissingLease, OnAppExit, Options};
pub use rules::{Mark, Rules};
pub use state::{Blocked, End, Reason, State};
pub use time::{Mono, Now, Wall};
