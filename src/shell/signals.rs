//! SIGTERM and SIGINT: the first begins the ordered way out, the second ends the process at once.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::Task;

/// Requests to stop, however they come.
#[derive(Debug)]
pub struct Signals {
    receiver: mpsc::Receiver<()>,
    count: u32,
    _task: Option<Task>,
}

impl Signals {
    /// Those of this process, from now on. Call it inside the runtime.
    ///
    /// # Errors
    /// Where the handlers cannot be installed.
    pub fn of_process() -> io::Result<Signals> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (sender, mut signals) = Signals::by_hand();
        signals._task = Some(Task::spawn(async move {
            loop {
                tokio::select! {
                    Some(()) = terminate.recv() => {}
                    Some(()) = interrupt.recv() => {}
                    else => return,
                }
                if sender.send(()).await.is_err() {
                    return;
                }
            }
        }));
        Ok(signals)
    }

    /// Each message is one signal.
    #[must_use]
    pub fn by_hand() -> (mpsc::Sender<()>, Signals) {
        let (sender, receiver) = mpsc::channel(2);
        (sender, Signals { receiver, count: 0, _task: None })
    }

    /// The next one; None when there can be no more.
    pub async fn next(&mut self) -> Option<()> {
        self.receiver.recv().await.inspect(|()| self.count = self.count.saturating_add(1))
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }
}
