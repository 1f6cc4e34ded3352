//! What each candidate was, cell by cell, for the lanes of the picture.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::board::{Lane, Life, PODS};
use super::stage::{Stage, boottime};

/// One cell of the past.
pub(super) const CELL: Duration = Duration::from_millis(100);
/// A bit more than a wide terminal shows at five cells a column.
const CELLS: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Unknown,
    Leads,
    Follows,
    Between,
    Paused,
    CutOff,
    Killed,
}

impl Mark {
    fn of(lane: &Lane, now: Duration) -> Mark {
        let leads = !lane.valid_for(now).is_zero();
        match (lane.life, &lane.said) {
            (Life::Killed, _) => Mark::Killed,
            _ if leads => Mark::Leads,
            (Life::Paused, _) => Mark::Paused,
            (Life::CutOff, _) => Mark::CutOff,
            (_, None) => Mark::Unknown,
            (_, Some(said)) if said.state == "following" => Mark::Follows,
            _ => Mark::Between,
        }
    }
}

type Cells = [VecDeque<Mark>; PODS.len()];

/// Grows by a cell every [`CELL`] until dropped.
#[derive(Debug)]
pub(super) struct Past {
    cells: Arc<Mutex<Cells>>,
    task: JoinHandle<()>,
}

impl Past {
    pub(super) fn of(stage: Arc<Stage>) -> Self {
        let cells = Arc::new(Mutex::new(Cells::default()));
        let growing = cells.clone();
        let task = tokio::spawn(async move {
            let mut tick = tokio::time::interval(CELL);
            loop {
                tick.tick().await;
                let now = boottime();
                let marks = stage.look(|board| {
                    board.lanes.iter().map(|lane| Mark::of(lane, now)).collect::<Vec<_>>()
                });
                let mut cells = growing.lock().unwrap_or_else(PoisonError::into_inner);
                for (row, mark) in cells.iter_mut().zip(marks) {
                    if row.len() >= CELLS {
                        row.pop_front();
                    }
                    row.push_back(mark);
                }
            }
        });
        Self { cells, task }
    }

    /// The newest `columns` of one lane, each of `cells_each` cells, oldest first. A column shows
    /// the rarest thing in it, so that no short change gets lost.
    pub(super) fn columns(&self, pod: usize, columns: usize, cells_each: usize) -> Vec<Mark> {
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let row = &cells[pod];
        // Columns are fixed in time, so that they don't flicker as the past grows.
        let end = row.len().div_ceil(cells_each);
        (end.saturating_sub(columns)..end)
            .map(|column| {
                let from = column * cells_each;
                let cells = row.range(from..row.len().min(from + cells_each)).copied();
                cells.max_by_key(|mark| rank(*mark)).unwrap_or(Mark::Unknown)
            })
            .collect()
    }
}

fn rank(mark: Mark) -> u8 {
    match mark {
        Mark::Unknown | Mark::Follows => 0,
        Mark::Between => 1,
        Mark::Killed | Mark::Paused | Mark::CutOff => 2,
        Mark::Leads => 3,
    }
}

impl Drop for Past {
    fn drop(&mut self) {
        self.task.abort();
    }
}
