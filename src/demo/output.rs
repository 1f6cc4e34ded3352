//! One line per event, for people or as JSON.

use std::io::Write as _;

use tokio::sync::mpsc;

use super::board::{Happening, ms};

/// Prints what happens, or lets it pass where a picture shows it.
#[derive(Debug)]
pub(super) struct Output {
    json: bool,
    prints: bool,
    happenings: mpsc::UnboundedReceiver<Happening>,
}

impl Output {
    pub(super) fn new(json: bool, prints: bool) -> (Self, mpsc::UnboundedSender<Happening>) {
        // A few a second, and whoever sends must never wait for a slow pipe.
        let (sender, happenings) = mpsc::unbounded_channel();
        (Self { json, prints, happenings }, sender)
    }

    /// Until nobody can tell anything any more.
    pub(super) async fn run(mut self) {
        while let Some(happening) = self.happenings.recv().await {
            if self.prints {
                say(&if self.json { as_json(happening) } else { as_text(&happening) });
            }
        }
    }
}

fn as_text(happening: &Happening) -> String {
    format!("{:8.3}  {}", happening.at.as_secs_f64(), happening.text)
}

fn as_json(happening: Happening) -> String {
    let mut fields = happening.fields;
    fields.insert("at_ms".into(), ms(happening.at).into());
    fields.insert("event".into(), happening.event.into());
    fields.insert("text".into(), happening.text.into());
    serde_json::Value::Object(fields).to_string()
}

/// A reader that went away (`| head`) is no reason to panic.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
