//! `GET /leader/events`: the same answer as a stream, and holds.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http::{Method, Request, StatusCode};
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::hold::{Link, Peer};
use super::reply::{Body, FrameStream, Refusal, Reply, head_only, reply};
use super::shape::{LeaderBody, RenewedBody};
use super::{Api, guard, query};
use crate::core::Ask;
use crate::seat::Pulse;

const EVENT_STREAM: &str = "text/event-stream";
/// A comment goes out when nothing else did for this long.
const QUIET: Duration = Duration::from_secs(2);
/// How long a client waits before it connects again, in milliseconds.
const RETRY: &str = "retry: 1000\n";
const COMMENT: &[u8] = b":\n\n";

impl Api {
    pub(super) fn events<B>(
        self: &Arc<Self>,
        link: &Arc<Link>,
        request: &Request<B>,
    ) -> Result<Reply, Refusal> {
        let hold = query::hold(request.uri())?;
        if hold {
            // Its closing gives the app's word, so opening it is a changing call.
            guard::changing(request, self.config.control_token_file.as_deref())?;
        }
        if request.method() == Method::HEAD {
            return Ok(head_only(EVENT_STREAM));
        }
        let peer = link.peer().map_err(|error| {
            let error = format!("this connection cannot be watched: {error}");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error)
        })?;
        if hold {
            link.open_hold(&self.seat);
        }
        let stream = Events {
            api: Arc::clone(self),
            link: Arc::clone(link),
            peer,
            pulse: self.seat.pulse(),
            told: None,
            end_of_file: false,
            kernel: Arc::new(Semaphore::new(1)),
        };
        Ok(reply(StatusCode::OK, EVENT_STREAM, Body::Stream(stream.frames())))
    }
}

/// One client's stream. At most one frame of it exists outside of the kernel at any time.
struct Events {
    api: Arc<Api>,
    link: Arc<Link>,
    peer: Peer,
    pulse: watch::Receiver<Pulse>,
    /// What the client was last told of.
    told: Option<Pulse>,
    end_of_file: bool,
    /// Its one permit lives in the frame last made, until the kernel has taken all of it.
    kernel: Arc<Semaphore>,
}

impl Events {
    fn frames(self) -> FrameStream {
        Box::pin(stream::unfold(self, async |mut events| {
            let frame = events.next().await;
            Some((frame, events))
        }))
    }

    async fn next(&mut self) -> io::Result<Bytes> {
        let permit = tokio::select! {
            biased;
            () = self.peer.reset() => return Err(self.dead()),
            permit = Arc::clone(&self.kernel).acquire_owned() => permit.map_err(io::Error::other)?,
        };
        let quiet = tokio::time::sleep(QUIET);
        tokio::pin!(quiet);
        loop {
            // Only what the clock and the core say *now* is told: made here, not before the kernel
            // had room for it.
            if let Some(frame) = self.news() {
                return Ok(tracked(frame, permit));
            }
            tokio::select! {
                biased;
                () = self.peer.reset() => return Err(self.dead()),
                changed = self.pulse.changed() => changed.map_err(io::Error::other)?,
                () = self.peer.end_of_file(), if !self.end_of_file => {
                    // Half-closed or dead? The answer to this tells.
                    self.end_of_file = true;
                    return Ok(tracked(COMMENT.to_vec(), permit));
                }
                () = &mut quiet => return Ok(tracked(COMMENT.to_vec(), permit)),
            }
        }
    }

    fn dead(&self) -> io::Error {
        self.link.close_hold(true);
        io::ErrorKind::ConnectionReset.into()
    }

    /// The next event, if the client has not been told of all there is.
    fn news(&mut self) -> Option<Vec<u8>> {
        let pulse = *self.pulse.borrow_and_update();
        if self.told == Some(pulse) {
            return None;
        }
        // Only here, where it is told, is a grant made.
        let answer = self.api.seat.answer(Ask::default());
        let told = self.told.replace(Pulse { version: answer.version, ..pulse });
        if told.is_some_and(|told| told.version == answer.version) {
            // Renewed, unless it has run out since.
            answer.epoch?;
            return Some(renewed_frame(&self.api.to_json(&RenewedBody::new(&answer))));
        }
        let body = LeaderBody::new(&self.api.config, &answer, Duration::ZERO);
        let retry = if told.is_none() { RETRY } else { "" };
        Some(leader_frame(retry, answer.version, &self.api.to_json(&body)))
    }
}

fn leader_frame(retry: &str, version: u64, json: &[u8]) -> Vec<u8> {
    let mut frame = format!("{retry}event: leader\nid: {version}\ndata: ").into_bytes();
    frame.extend_from_slice(json);
    frame.extend_from_slice(b"\n\n");
    frame
}

fn renewed_frame(json: &[u8]) -> Vec<u8> {
    [b"event: renewed\ndata: ", json, b"\n\n"].concat()
}

/// Bytes that give the permit back when they are dropped, which hyper (writing vectored) does once
/// the kernel has taken them.
fn tracked(bytes: Vec<u8>, permit: OwnedSemaphorePermit) -> Bytes {
    struct Tracked(
        Vec<u8>,
        #[expect(dead_code, reason = "given back on drop")] OwnedSemaphorePermit,
    );
    impl AsRef<[u8]> for Tracked {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Tracked(bytes, permit))
}
