//! What this process saw, decided and answered, as log lines of the target `tenure::history` at
//! level trace: `--log info,tenure::history=trace --log-format json`.
//!
//! Each line carries `at`, nanoseconds of `CLOCK_BOOTTIME` that all processes of a machine share,
//! so that the histories of several can be put on one time line and judged by somebody who knows
//! nothing of the core. Unless the filter asks for it, a line costs one comparison.
//!
//! | `did` | fields |
//! |---|---|
//! | `event` | `event`, `id` of the request it answers, `detail`; `word`: the app has stopped |
//! | `action` | `action`, `id`, `detail`; of a write `purpose` and `epoch`, of what is told `tell` |
//! | `stand` | after an event: `state`, `epoch` and `valid_until` (ns) of the term, 0 without one; `tasks` of the runtime |
//! | `answer` | to the app: `leader`, `epoch`, `until` (ns) what is granted, 0 for nothing |

use std::fmt::Debug;

use tracing::Level;

use crate::core::{
    Action, Answer, Elector, Event, Mono, Now, Observed, ReadOutcome, Released, WatchEvent, Write,
    WriteOutcome,
};

/// Where the lines are found.
pub const TARGET: &str = "tenure::history";

macro_rules! line {
    ($at:expr, $($field:tt)*) => {
        tracing::trace!(target: TARGET, at = Mono::as_nanos($at), $($field)*)
    };
}

/// Whether anybody asked for it.
pub(crate) fn wanted() -> bool {
    tracing::enabled!(target: TARGET, Level::TRACE)
}

pub(crate) fn event<B>(now: Now, event: &Event<B>) {
    if !wanted() {
        return;
    }
    let (name, id, detail) = match event {
        Event::Timeout => ("timeout", 0, String::new()),
        Event::Read { id, outcome } => ("read", id.0, read(outcome)),
        Event::Write { id, outcome } => ("written", id.0, written(outcome)),
        Event::Watch { id, event } => ("watch", id.0, watched(event)),
        Event::Access { denied } => ("access", 0, format!("denied: {denied}")),
        Event::HoldOpened => ("hold_opened", 0, String::new()),
        Event::HoldClosed { by_peer } => ("hold_closed", 0, format!("by peer: {by_peer}")),
        Event::AppStopped(word) => ("app_stopped", 0, format!("{word:?}")),
        Event::Shutdown => ("shutdown", 0, String::new()),
    };
    let word = matches!(event, Event::AppStopped(_) | Event::HoldClosed { by_peer: true });
    line!(now.mono, did = "event", event = name, id, word, detail);
}

pub(crate) fn action<B>(now: impl FnOnce() -> Now, action: &Action<B>) {
    if !wanted() {
        return;
    }
    let at = now().mono;
    match action {
        Action::Read { id } => line!(at, did = "action", action = "read", id = id.0),
        Action::Write { id, write, fresh_connection } => line!(
            at,
            did = "action",
            action = "write",
            id = id.0,
            purpose = word(&write.purpose),
            epoch = written_epoch(write),
            renew_time_us = write.renew_time.as_micros(),
            detail = format!("holder {:?}, fresh connection: {fresh_connection}", write.holder),
        ),
        Action::Cancel { id } => line!(at, did = "action", action = "cancel", id = id.0),
        Action::Watch { id, after } => {
            let after = after.map_or(0, |version| version.number());
            line!(at, did = "action", action = "watch", id = id.0, detail = after.to_string());
        }
        Action::Tell(tell) => {
            let detail = format!("{tell:?}");
            let tell = detail.split([' ', '(']).next().unwrap_or_default();
            line!(at, did = "action", action = "tell", tell, detail);
        }
    }
}

pub(crate) fn stand<B: Clone>(now: Now, elector: &Elector<B>) {
    if !wanted() {
        return;
    }
    let runtime = tokio::runtime::Handle::try_current();
    let nanos = |at: Mono| at.as_nanos();
    line!(
        now.mono,
        did = "stand",
        state = elector.state().word(),
        epoch = elector.held_epoch().unwrap_or(0),
        valid_until = elector.valid_until().map_or(0, nanos),
        tasks = runtime.map_or(0, |runtime| runtime.metrics().num_alive_tasks()),
    );
}

pub(crate) fn answer(now: Now, answer: &Answer) {
    line!(
        now.mono,
        did = "answer",
        leader = answer.leader,
        epoch = answer.epoch.unwrap_or(0),
        until = answer.valid_until.map_or(0, Mono::as_nanos),
    );
}

/// The epoch it writes or, releasing it, leaves as it is; 0 for none.
fn written_epoch<B>(write: &Write<B>) -> u64 {
    match write.released {
        Released::Set(epoch) => epoch,
        _ => write.epoch.unwrap_or(0),
    }
}

fn word(value: &impl Debug) -> String {
    format!("{value:?}").to_lowercase()
}

fn shown<B>(object: &Observed<B>) -> String {
    let record = &object.record;
    let version = record.version.map_or(0, |version| version.number());
    format!("version {version}, holder {:?}, epoch {:?}", record.holder, record.epoch)
}

fn read<B>(outcome: &ReadOutcome<B>) -> String {
    match outcome {
        ReadOutcome::Found(object) => format!("found {}", shown(object)),
        ReadOutcome::Absent => "absent".into(),
        ReadOutcome::Failed(failure) => format!("{failure:?}"),
    }
}

fn written<B>(outcome: &WriteOutcome<B>) -> String {
    match outcome {
        WriteOutcome::Done { created, object } => {
            format!("done {}, created: {created}", shown(object))
        }
        WriteOutcome::Conflict => "conflict".into(),
        WriteOutcome::Failed(failure) => format!("{failure:?}"),
    }
}

fn watched<B>(event: &WatchEvent<B>) -> String {
    match event {
        WatchEvent::Object(object) => shown(object),
        WatchEvent::Deleted { uid, version } => format!("deleted {uid}, {version:?}"),
        WatchEvent::Bookmark { version } => format!("bookmark {version:?}"),
        WatchEvent::Failed(failure) => format!("{failure:?}"),
        WatchEvent::Opened => "opened".into(),
        WatchEvent::Closed => "closed".into(),
        WatchEvent::Gone => "gone".into(),
    }
}
