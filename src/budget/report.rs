//! A [`Budget`] as text for people and as JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Budget, Question};

/// Width of the column of words, so that a line stays within 80 columns.
const WORDS: usize = 60;

impl Budget {
    /// Lines of at most 80 columns, ending with a line break.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut text);
        text
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let Question { timing, max_valid, replicas, request_time } = self.question;
        writeln!(
            out,
            "L = {:?}  R = {:?}  P = {:?}  T = {}  {replicas} replicas, {request_time:?} a request",
            timing.lease_duration(),
            timing.renew_deadline(),
            timing.retry_period(),
            up(timing.attempt_timeout()),
        )?;
        if let Some(most) = max_valid {
            writeln!(out, "The app asks with max_valid={most:?}.")?;
        }
        writeln!(out, "\n{:WORDS$} {:>8} {:>8}", "Until somebody leads again", "typical", "worst")?;
        for wait in &self.failover {
            let typical = wait.typical.map(up).unwrap_or_default();
            writeln!(out, "{:WORDS$} {typical:>8} {:>8}", wait.what, up(wait.worst))?;
        }
        writeln!(out, "\n{:WORDS$} {:>17}", "Without a change of leader", "at least")?;
        for tolerance in &self.tolerated {
            writeln!(out, "{:WORDS$} {:>17}", tolerance.what, down(tolerance.at_least))?;
        }
        writeln!(out, "Longer ones end the term in time: never two leaders, by these clocks.")?;
        writeln!(
            out,
            "Clocks: any two may differ in rate by less than {:.2} times (L / R); what\n\
             they show is never compared.",
            self.clock_rate_factor
        )?;
        let load = &self.load;
        writeln!(out, "\nLoad on the API server")?;
        let numbers = [
            ("writes a minute, all by the leader", load.writes_per_minute),
            ("requests a minute, watches opened anew among them", load.requests_per_minute),
            ("watch events a minute", load.watch_events_per_minute),
            ("requests a minute, if no watch works", load.requests_per_minute_without_watch),
        ];
        for (what, number) in numbers {
            writeln!(out, "{what:WORDS$} {number:>17.1}")?;
        }
        writeln!(out, "{:WORDS$} {:>17}", "writes to etcd a day", load.etcd_writes_per_day)?;
        writeln!(out, "\n{:WORDS$} {:>17}", "Inequalities", "room")?;
        for rule in &self.inequalities {
            let tight = self.tight().is_some_and(|tight| tight == rule);
            let mark = if tight { "  <- tight" } else { "" };
            let line = format!("{}: {} to {}{mark}", rule.rule, down(rule.have), up(rule.need));
            writeln!(out, "{line:WORDS$} {:>16.2}x", rule.room())?;
        }
        for note in &self.notes {
            writeln!(out, "\nnote: {note}")?;
        }
        Ok(())
    }

    /// One object; durations are whole milliseconds and their names end in `_ms`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Question { timing, max_valid, replicas, request_time } = self.question;
        let failover: Map<String, Value> = self
            .failover
            .iter()
            .map(|wait| {
                let times = json!({
                    "typical_ms": wait.typical.map(ms_up),
                    "worst_ms": ms_up(wait.worst),
                });
                (wait.name.to_owned(), times)
            })
            .collect();
        let mut tolerated: Map<String, Value> = self
            .tolerated
            .iter()
            .map(|tolerance| (format!("{}_ms", tolerance.name), ms(tolerance.at_least).into()))
            .collect();
        tolerated.insert("clock_rate_factor".into(), self.clock_rate_factor.into());
        let inequalities: Vec<Value> = self
            .inequalities
            .iter()
            .map(|rule| {
                json!({
                    "rule": rule.rule,
                    "have_ms": ms(rule.have),
                    "need_ms": ms(rule.need),
                    "room": rule.room(),
                })
            })
            .collect();
        json!({
            "lease_duration_ms": ms(timing.lease_duration()),
            "renew_deadline_ms": ms(timing.renew_deadline()),
            "retry_period_ms": ms(timing.retry_period()),
            "attempt_timeout_ms": ms(timing.attempt_timeout()),
            "max_valid_ms": max_valid.map(ms),
            "replicas": replicas,
            "request_time_ms": ms(request_time),
            "failover": failover,
            "tolerated": tolerated,
            "load": {
                "writes_per_minute": self.load.writes_per_minute,
                "requests_per_minute": self.load.requests_per_minute,
                "watch_events_per_minute": self.load.watch_events_per_minute,
                "requests_per_minute_without_watch": self.load.requests_per_minute_without_watch,
                "etcd_writes_per_day": self.load.etcd_writes_per_day,
            },
            "inequalities": inequalities,
            "tight": self.tight().map(|rule| rule.rule),
            "notes": self.notes,
        })
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn ms_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Rounded up, as it is read by whoever waits.
fn up(span: Duration) -> String {
    format!("{:?}", Duration::from_millis(ms_up(span)))
}

/// Rounded down, as it is read by whoever relies on it.
fn down(span: Duration) -> String {
    format!("{:?}", Duration::from_millis(ms(span)))
}
