//! `GET /fence/{epoch}`: is no greater epoch granted? Asked of the API server's quorum each time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use http::StatusCode;

use super::Api;
use super::query::decimal;
use super::reply::{Refusal, Reply};
use super::shape::FenceBody;
use crate::core::{MAX_EPOCH, Record};

/// A read that takes longer is given up: the caller must be told something.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// What a quorum read of the Lease brought: the record, or None where a Status NotFound says that
/// there is none. `Err`: it cannot be known now, and why in a few words.
pub type Reading = Result<Option<Record>, String>;

/// Reads the Lease from the quorum (a GET without resourceVersion), never from a cache.
pub trait QuorumRead: Send + Sync + std::fmt::Debug {
    fn read(&self) -> Pin<Box<dyn Future<Output = Reading> + Send>>;
}

type Round = Shared<BoxFuture<'static, Arc<Reading>>>;

/// One read in flight at most. Whoever arrives meanwhile shares the *next* one: a read that was
/// sent before the question may be too old an answer.
#[derive(Debug)]
pub(super) struct Fence {
    quorum: Arc<dyn QuorumRead>,
    rounds: Mutex<Rounds>,
}

#[derive(Debug, Default)]
struct Rounds {
    running: Option<Round>,
    next: Option<Round>,
}

impl Fence {
    pub(super) fn new(quorum: Arc<dyn QuorumRead>) -> Fence {
        Fence { quorum, rounds: Mutex::default() }
    }

    /// The round that begins no earlier than now.
    fn round(&self) -> Round {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        while rounds.running.as_ref().is_some_and(|round| round.peek().is_some()) {
            // The next one begins to read when the running one is complete, not earlier.
            rounds.running = rounds.next.take();
        }
        let Some(running) = rounds.running.clone() else {
            return rounds.running.insert(self.begin(None)).clone();
        };
        rounds.next.get_or_insert_with(|| self.begin(Some(running))).clone()
    }

    fn begin(&self, before: Option<Round>) -> Round {
        let quorum = Arc::clone(&self.quorum);
        let reading = async move {
            if let Some(before) = before {
                before.await;
            }
            let reading = tokio::time::timeout(READ_TIMEOUT, quorum.read()).await;
            Arc::new(reading.unwrap_or_else(|_| Err("the API server does not answer".into())))
        };
        reading.boxed().shared()
    }
}

impl Api {
    pub(super) async fn fence(&self, epoch: &str) -> Result<Reply, Refusal> {
        if epoch.is_empty() || !epoch.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Refusal::bad_request("the epoch must be a decimal number"));
        }
        let epoch = decimal(epoch)
            .filter(|epoch| (1..=MAX_EPOCH).contains(epoch))
            .ok_or_else(|| Refusal::out_of_range(format!("the epoch must be 1 to {MAX_EPOCH}")))?;
        match &*self.fence.round().await {
            Err(why) => Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("it cannot be known now: {why}"),
            )),
            Ok(record) => {
                let body = judge(record.as_ref(), epoch);
                let status = if body.current { StatusCode::OK } else { StatusCode::CONFLICT };
                Ok(self.json(status, &body))
            }
        }
    }
}

fn judge(record: Option<&Record>, epoch: u64) -> FenceBody<'_> {
    let Some(record) = record else {
        let error = Some("the Lease is missing".to_owned());
        return FenceBody { current: false, held: false, newest_epoch: None, holder: None, error };
    };
    // Nobody holds what was released, whatever else is written there.
    let holder =
        record.somebody().filter(|_| record.released.is_none_or(|r| record.epoch != Some(r)));
    let error = if record.epoch != Some(epoch) {
        Some("the epoch that was granted last is another one".to_owned())
    } else if record.annotated_transitions != Some(record.transitions.unwrap_or(0)) {
        Some("an elector that grants no epochs has taken the Lease".to_owned())
    } else {
        None
    };
    FenceBody {
        current: error.is_none(),
        held: holder.is_some(),
        newest_epoch: record.epoch,
        holder: holder.map(|holder| &**holder),
        error,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tokio::sync::Semaphore;

    use super::*;

    /// Reads that complete when they are told to.
    #[derive(Debug)]
    struct Slow {
        begun: AtomicUsize,
        finish: Arc<Semaphore>,
    }

    impl QuorumRead for Slow {
        fn read(&self) -> Pin<Box<dyn Future<Output = Reading> + Send>> {
            let number = self.begun.fetch_add(1, Relaxed) + 1;
            let finish = Arc::clone(&self.finish);
            Box::pin(async move {
                finish.acquire().await.unwrap().forget();
                Err(format!("read {number}"))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_arrives_during_a_read_shares_the_next_one() {
        let slow =
            Arc::new(Slow { begun: AtomicUsize::new(0), finish: Arc::new(Semaphore::new(0)) });
        let fence = Fence::new(Arc::clone(&slow) as Arc<dyn QuorumRead>);
        let told = |round: Round| tokio::spawn(async move { (*round.await).clone().unwrap_err() });
        let first = told(fence.round());
        tokio::task::yield_now().await;
        let later = [told(fence.round()), told(fence.round())];
        tokio::task::yield_now().await;
        assert_eq!(slow.begun.load(Relaxed), 1, "one in flight at most");
        slow.finish.add_permits(1);
        assert_eq!(first.await.unwrap(), "read 1");
        tokio::task::yield_now().await;
        let last = told(fence.round());
        slow.finish.add_permits(2);
        for round in later {
            assert_eq!(round.await.unwrap(), "read 2");
        }
        assert_eq!(last.await.unwrap(), "read 3");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_never_ends_is_given_up_and_the_next_one_works() {
        let slow =
            Arc::new(Slow { begun: AtomicUsize::new(0), finish: Arc::new(Semaphore::new(0)) });
        let fence = Fence::new(Arc::clone(&slow) as Arc<dyn QuorumRead>);
        assert!((*fence.round().await).clone().unwrap_err().contains("does not answer"));
        slow.finish.add_permits(1);
        assert_eq!((*fence.round().await).clone().unwrap_err(), "read 2");
    }
}
