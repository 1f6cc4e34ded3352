//! What the tasks of a demo share: the board, and word of its changes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::board::Board;
use crate::core::Mono;
use crate::seat::Clock as _;
use crate::shell::clock::SystemClock;

/// On the clock that the sidecars' answers are on.
pub(super) fn boottime() -> Duration {
    SystemClock.now().mono.since(Mono::from_nanos(0))
}

pub(super) struct Stage {
    board: Mutex<Board>,
    /// Counts changes.
    changed: watch::Sender<u64>,
}

impl Stage {
    pub(super) fn new(board: Board) -> Self {
        Self { board: Mutex::new(board), changed: watch::Sender::new(0) }
    }

    /// Looks without telling anybody.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Board) -> T) -> T {
        look(&self.board.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        let result = change(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
        result
    }

    /// Waits until `condition` gives something, asked again after every change.
    pub(super) async fn until<T>(&self, condition: impl Fn(&Board) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(found) = self.look(&condition) {
                return found;
            }
            // The sender is part of `self`.
            drop(changed.changed().await);
        }
    }

    /// The same, for at most so long.
    pub(super) async fn until_within<T>(
        &self,
        bound: Duration,
        condition: impl Fn(&Board) -> Option<T>,
    ) -> Option<T> {
        tokio::time::timeout(bound, self.until(condition)).await.ok()
    }
}
