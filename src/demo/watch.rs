//! What each sidecar says, followed by long polls: an answer at each change and each renewal.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::board::Said;
use super::stage::{Stage, boottime};
use crate::client::{Call, Endpoint, LeaderBody};

/// How long the sidecar may hold a poll.
const HELD: &str = "2s";
/// A sidecar that stands still answers when it goes on: that answer is waited for.
const BOUND: Duration = Duration::from_secs(300);
/// While nothing listens.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Deserialize)]
struct Told {
    #[serde(flatten)]
    body: LeaderBody,
    valid_until_boottime_ms: Option<u64>,
}

/// Follows one sidecar for as long as this is polled.
pub(super) async fn follow(stage: Arc<Stage>, pod: usize, sidecar: Endpoint) {
    let mut version = None;
    loop {
        let target = match version {
            Some(version) => format!("/leader?wait={HELD}&after={version}"),
            None => "/leader".to_owned(),
        };
        let asked = boottime();
        let answer = Call::get(&target).send(&sidecar, BOUND).await;
        let received = boottime();
        let told = answer.ok().and_then(|raw| serde_json::from_slice::<Told>(&raw.body).ok());
        let Some(Told { body, valid_until_boottime_ms }) = told else {
            version = None;
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        version = Some(body.version);
        // It was computed between these two.
        let computed = asked.saturating_add(Duration::from_millis(body.waited_ms));
        let said = Said {
            leader: body.leader,
            state: body.state,
            reason: body.reason,
            epoch: body.epoch,
            valid_until: Duration::from_millis(valid_until_boottime_ms.unwrap_or_default()),
            computed_after: computed.min(received),
            received,
        };
        stage.change(|board| board.hear(pod, said));
    }
}
