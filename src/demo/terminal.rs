//! The live picture on a terminal, and its keys.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::board::Kind;
use super::director::Command;
use super::picture::{Look, Scene, draw};

/// Ten pictures a second.
const FRAME: Duration = Duration::from_millis(100);

/// Puts the terminal back as it was, however the picture ends.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Until somebody asks for the end.
pub(super) async fn show(scene: Scene<'_>, commands: mpsc::Sender<Command>) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let _restore = Restore;
    let look = Look::of_environment();
    let mut events = events();
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = frames.tick() => {}
            // A resize needs no more than the next frame.
            event = events.recv() => match event {
                Some(Event::Key(key)) => match wish(key) {
                    Some(Wish::Quit) => return Ok(()),
                    // The one before is still being carried out: one at a time.
                    Some(Wish::Do(kind)) => drop(commands.try_send(Command(kind))),
                    None => {}
                },
                Some(_) => {}
                None => return Ok(()),
            },
        }
        terminal.draw(|frame| draw(frame, scene, look))?;
    }
}

/// Reading blocks, so a thread of its own does it; it ends with the process.
fn events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

enum Wish {
    Quit,
    Do(Kind),
}

fn wish(key: KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('c'), true) | (KeyCode::Char('q') | KeyCode::Esc, _) => Some(Wish::Quit),
        (KeyCode::Char('r'), _) => Some(Wish::Do(Kind::Release)),
        (KeyCode::Char('k'), _) => Some(Wish::Do(Kind::Kill)),
        (KeyCode::Char('p'), _) => Some(Wish::Do(Kind::Pause)),
        (KeyCode::Char('c'), _) => Some(Wish::Do(Kind::CutOff)),
        _ => None,
    }
}
