//! What a whole run has shown.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::board::{Board, Change, Kind, PODS, Register, ms};

/// The numbers of one kind of change.
#[derive(Debug)]
struct Row {
    kind: Kind,
    took_ms: Vec<u64>,
    leaderless_ms: Vec<u64>,
}

/// The end of a run.
#[derive(Debug)]
pub(super) struct Summary {
    ran: Duration,
    seed: u64,
    fence: bool,
    rows: Vec<Row>,
    changes: Vec<Change>,
    register: Register,
    overlaps: u64,
    failures: Vec<String>,
}

impl Summary {
    pub(super) fn of(board: &Board, ran: Duration) -> Self {
        let row = |kind| {
            let changes = board.changes.iter().filter(|change| change.kind == Some(kind));
            let sorted = |number: fn(&Change) -> Duration| {
                let mut numbers: Vec<u64> = changes.clone().map(|c| ms(number(c))).collect();
                numbers.sort_unstable();
                numbers
            };
            let (took_ms, leaderless_ms) = (sorted(|c| c.took), sorted(|c| c.leaderless));
            Row { kind, took_ms, leaderless_ms }
        };
        Self {
            ran,
            seed: board.seed,
            fence: board.fence,
            rows: Kind::ALL.map(row).into(),
            changes: board.changes.clone(),
            register: board.register.clone(),
            overlaps: board.overlaps,
            failures: board.failures.clone(),
        }
    }

    fn unasked(&self) -> usize {
        self.changes.iter().filter(|c| c.kind.is_none() && c.from.is_some()).count()
    }

    /// Nobody led beside another, epochs only grew, and the fence let no old write pass.
    pub(super) fn kept_all_promises(&self) -> bool {
        self.overlaps == 0
            && self.failures.is_empty()
            && (!self.fence || (self.register.stale_accepted == 0 && self.register.lost() == 0))
    }

    pub(super) fn to_json(&self) -> Value {
        let changes: serde_json::Map<String, Value> = self
            .rows
            .iter()
            .map(|row| {
                let numbers = json!({
                    "count": row.took_ms.len(),
                    "took_ms": row.took_ms,
                    "median_ms": median(&row.took_ms),
                    "leaderless_ms": row.leaderless_ms,
                    "median_leaderless_ms": median(&row.leaderless_ms),
                });
                (row.kind.word().to_owned(), numbers)
            })
            .collect();
        let list: Vec<Value> = self.changes.iter().map(change).collect();
        json!({
            "event": "summary",
            "ran_ms": ms(self.ran),
            "seed": self.seed,
            "fence": self.fence,
            "changes": changes,
            "leaders": list,
            "unasked": self.unasked(),
            "newest_epoch": self.register.newest_epoch,
            "accepted": self.register.accepted,
            "refused": self.register.refused,
            "stale_accepted": self.register.stale_accepted,
            "lost": self.register.lost(),
            "overlaps": self.overlaps,
            "failures": self.failures,
            "kept_all_promises": self.kept_all_promises(),
        })
    }

    /// A table of at most 80 columns, without a line break at the end.
    pub(super) fn to_text(&self) -> String {
        let mut text = format!("\n{:.1} s, seed {}\n\n", self.ran.as_secs_f64(), self.seed);
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let heads = ["changes", "median ms", "worst ms", "leaderless ms"];
        writeln!(
            out,
            "{:24}{:>9}{:>12}{:>12}{:>16}",
            "after", heads[0], heads[1], heads[2], heads[3]
        )?;
        for row in &self.rows {
            let what = match row.kind {
                Kind::Release => "release (hand-over)",
                Kind::Kill => "kill",
                Kind::Pause => "pause longer than L",
                Kind::CutOff => "cut off from the API",
            };
            let shown = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
            writeln!(
                out,
                "{what:24}{:>9}{:>12}{:>12}{:>16}",
                row.took_ms.len(),
                shown(median(&row.took_ms)),
                shown(row.took_ms.last().copied()),
                shown(median(&row.leaderless_ms)),
            )?;
        }
        let register = &self.register;
        writeln!(
            out,
            "\nregister: {} writes accepted, {} with an old epoch refused; newest epoch {}",
            register.accepted, register.refused, register.newest_epoch
        )?;
        if register.stale_accepted > 0 {
            writeln!(
                out,
                "DAMAGE:   {} writes with an old epoch were taken, {} accepted writes are lost\n\
                 \x20         (the fence was off; tenure cannot stop a write that is on its way)",
                register.stale_accepted,
                register.lost()
            )?;
        }
        writeln!(out, "two leaders at once: {}", self.overlaps)?;
        if self.unasked() > 0 {
            writeln!(out, "changes that nobody asked for (a busy machine): {}", self.unasked())?;
        }
        for failure in &self.failures {
            writeln!(out, "NOT AS PROMISED: {failure}")?;
        }
        write!(out, "{}", if self.kept_all_promises() { "as promised" } else { "NOT as promised" })
    }
}

fn change(change: &Change) -> Value {
    json!({
        "after": change.why(),
        "from": change.from.map(|pod| PODS[pod]),
        "to": PODS[change.to],
        "epoch": change.epoch,
        "took_ms": ms(change.took),
        "leaderless_ms": ms(change.leaderless),
    })
}

/// The middle one, the lower of two.
fn median(sorted: &[u64]) -> Option<u64> {
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
