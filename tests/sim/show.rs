//! One line for each thing, for people.

use tenure::core::{Action, Event, Observed, ReadOutcome, Stamp, WatchEvent, WriteOutcome};

use super::store::Base;

pub fn kind(event: &Event<Base>) -> &'static str {
    match event {
        Event::Timeout => "timeout",
        Event::Read { outcome, .. } => match outcome {
            ReadOutcome::Found(_) => "read found",
            ReadOutcome::Absent => "read absent",
            ReadOutcome::Failed(_) => "read failed",
        },
        Event::Write { outcome, .. } => match outcome {
            WriteOutcome::Done { created: true, .. } => "write created",
            WriteOutcome::Done { .. } => "write done",
            WriteOutcome::Conflict => "write conflict",
            WriteOutcome::Failed(_) => "write failed",
        },
        Event::Watch { event, .. } => match event {
            WatchEvent::Opened => "watch opened",
            WatchEvent::Object(_) => "watch object",
            WatchEvent::Deleted { .. } => "watch deleted",
            WatchEvent::Bookmark { .. } => "watch bookmark",
            WatchEvent::Closed => "watch closed",
            WatchEvent::Gone => "watch gone",
            WatchEvent::Failed(_) => "watch failed",
        },
        Event::Access { .. } => "access",
        Event::HoldOpened => "hold opened",
        Event::HoldClosed { .. } => "hold closed",
        Event::AppStopped(_) => "app stopped",
        Event::Shutdown => "shutdown",
    }
}

fn object(object: &Observed<Base>) -> String {
    let record = &object.record;
    let renewed = match &record.renew_time {
        Some(Stamp::At(at)) => format!("{:.6}", at.as_micros() as f64 / 1e6),
        _ => "-".into(),
    };
    format!(
        "{}@{} holder {} epoch {:?} released {:?} transitions {:?} for {:?} renewed {renewed}",
        record.uid,
        record.version.map_or(0, |version| version.number()),
        record.holder.as_deref().unwrap_or("-"),
        record.epoch,
        record.released,
        record.transitions,
        record.duration,
    )
}

pub fn event(event: &Event<Base>) -> String {
    let what = kind(event);
    match event {
        Event::Read { id, .. } | Event::Write { id, .. } | Event::Watch { id, .. } => {
            let object = brought(event).map(object).unwrap_or_default();
            format!("#{} {what} {object}", id.0)
        }
        other => format!("{what} {other:?}"),
    }
}

/// The Lease that an event shows.
pub fn brought(event: &Event<Base>) -> Option<&Observed<Base>> {
    match event {
        Event::Read { outcome: ReadOutcome::Found(object), .. }
        | Event::Write { outcome: WriteOutcome::Done { object, .. }, .. }
        | Event::Watch { event: WatchEvent::Object(object), .. } => Some(object),
        _ => None,
    }
}

pub fn action(action: &Action<Base>) -> String {
    match action {
        Action::Write { id, write, fresh_connection } => {
            let base = write.base.as_ref().and_then(|base| base.record.version);
            format!(
                "#{} {:?} on {} epoch {:?} renewed {:.6}{}",
                id.0,
                write.purpose,
                base.map_or(0, |version| version.number()),
                write.epoch,
                write.renew_time.as_micros() as f64 / 1e6,
                if *fresh_connection { " (fresh)" } else { "" }
            )
        }
        Action::Tell(tell) => format!("tells {tell:?}"),
        other => format!("{other:?}"),
    }
}
