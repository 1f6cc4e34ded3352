//! `GET /leader`, `GET /is-leader` and `GET /`.

use std::time::Duration;

use http::{Method, Request, StatusCode};

use super::Api;
use super::hold::Link;
use super::query::LeaderQuery;
use super::reply::{Refusal, Reply, head_only};
use super::shape::{LeaderBody, NameBody};
use crate::core::{Ask, State};

impl Api {
    /// `/leader`, or `/is-leader`, which says it in its status.
    pub(super) async fn leader<B>(
        &self,
        link: &Link,
        request: &Request<B>,
        in_status: bool,
    ) -> Result<Reply, Refusal> {
        let (renew_deadline, cap) = self.seat.look(|core| {
            let options = core.options();
            (options.timing.renew_deadline(), options.max_valid)
        });
        let LeaderQuery { wait, after, mut ask } =
            LeaderQuery::parse(request.uri(), renew_deadline, cap)?;
        if request.method() == Method::HEAD && !in_status {
            return Ok(head_only("application/json"));
        }
        ask.sees_no_length = in_status && ask.max_valid.is_none();
        let waited = if wait.is_zero() {
            Duration::ZERO
        } else {
            let arrived = self.seat.clock().now().mono;
            self.change(link, wait, after).await;
            self.seat.clock().now().mono.since(arrived)
        };
        let answer = self.seat.answer(ask);
        let status = match in_status && !answer.leader {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::OK,
        };
        Ok(self.json(status, &LeaderBody::new(&self.config, &answer, waited)))
    }

    /// Waits for a version other than `after`, or for a renewal. A caller who sends nothing more
    /// (which nearly always means that it is gone) is answered at once, so that no dead one keeps a
    /// connection, and no grant is told to nobody minutes later.
    async fn change(&self, link: &Link, wait: Duration, after: Option<u64>) {
        let mut pulse = self.seat.pulse();
        let now = *pulse.borrow_and_update();
        if after.is_some_and(|after| after != now.version) {
            return;
        }
        let Ok(peer) = link.peer() else { return };
        tokio::select! {
            _ = pulse.changed() => {}
            () = peer.end_of_file() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    /// `GET /`, the contract of the old `leader-elector` image: the leader's name up to its first
    /// `_`.
    pub(super) fn elector_name<B>(&self, request: &Request<B>) -> Result<Reply, Refusal> {
        if request.method() == Method::HEAD {
            return Ok(head_only("application/json"));
        }
        if self.seat.look(|core| core.state()) == State::Draining {
            // This pod holds it and does not lead. Asking the core would grant what is not told.
            return Ok(self.json(StatusCode::OK, &NameBody { name: "" }));
        }
        let answer = self.seat.answer(Ask { sees_no_length: true, ..Ask::default() });
        let own = first_part(&self.config.identity);
        let name = match answer.holder.as_deref().map(first_part) {
            _ if answer.leader => own,
            // A namesake.
            Some(name) if name == own => "",
            Some(name) => name,
            None => "",
        };
        Ok(self.json(StatusCode::OK, &NameBody { name }))
    }
}

fn first_part(holder: &str) -> &str {
    holder.split('_').next().unwrap_or_default()
}
