//! Connections and what their ends mean.
//!
//! A hold promises that guarded work has stopped once it closes, so its end must be told from what
//! only looks like one. Evidence is a reset or a failed write. End-of-file is none: a living peer
//! may have shut down its sending side. At end-of-file a comment is written at once; a dead peer's
//! kernel answers it with a reset, a living peer takes it. A write that only waits says nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};

use super::Face;
use crate::core::Event;
use crate::seat::Seat;

/// One connection: hyper has its socket, this a second descriptor of it, to watch.
#[derive(Debug)]
pub(super) struct Link {
    face: Face,
    socket: OwnedFd,
    hold: Mutex<Option<Hold>>,
}

impl Link {
    pub(super) fn new(face: Face, socket: OwnedFd) -> Arc<Link> {
        Arc::new(Link { face, socket, hold: Mutex::new(None) })
    }

    pub(super) fn face(&self) -> Face {
        self.face
    }

    /// Begins to watch the other side.
    pub(super) fn peer(&self) -> io::Result<Peer> {
        let socket = self.socket.try_clone()?;
        Ok(match self.face {
            Face::Unix => Peer::Unix(UnixStream::from_std(socket.into())?),
            Face::Tcp | Face::Admin => Peer::Tcp(TcpStream::from_std(socket.into())?),
        })
    }

    /// This connection is a hold from now on, until it ends.
    pub(super) fn open_hold(&self, seat: &Arc<Seat>) {
        let earlier = self.slot().replace(Hold::open(seat));
        debug_assert!(earlier.is_none(), "a stream ends with its connection");
    }

    /// Ends the hold, where there is one: told by the first who knows why.
    pub(super) fn close_hold(&self, by_peer: bool) {
        let hold = self.slot().take();
        if let Some(mut hold) = hold {
            hold.by_peer = by_peer;
        }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Hold>> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open hold. Tells the core exactly once that it ended, however that came about.
struct Hold {
    seat: Arc<Seat>,
    by_peer: bool,
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("by_peer", &self.by_peer).finish_non_exhaustive()
    }
}

impl Hold {
    fn open(seat: &Arc<Seat>) -> Hold {
        seat.handle(Event::HoldOpened);
        Hold { seat: Arc::clone(seat), by_peer: false }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.seat.handle(Event::HoldClosed { by_peer: self.by_peer });
    }
}

/// Watches the readiness of a socket, and never reads from it or writes to it.
#[derive(Debug)]
pub(super) enum Peer {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Peer {
    /// Completes when the peer sends nothing more: half-closed, or dead.
    pub(super) async fn end_of_file(&self) {
        self.until(Interest::READABLE, Ready::is_read_closed).await;
    }

    /// Completes when the connection is dead: the peer's kernel has answered with a reset. (We
    /// ourselves never shut down our side while this is watched.)
    pub(super) async fn reset(&self) {
        self.until(Interest::WRITABLE, Ready::is_write_closed).await;
    }

    async fn until(&self, interest: Interest, closed: fn(Ready) -> bool) {
        loop {
            let ready = match self {
                Peer::Tcp(stream) => stream.ready(interest).await,
                Peer::Unix(stream) => stream.ready(interest).await,
            };
            match ready {
                Ok(ready) if closed(ready) => return,
                // Mere readiness is forgotten, so that the next change wakes us.
                Ok(_) => self.forget(interest),
                // The runtime is ending.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn forget(&self, interest: Interest) {
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = match self {
            Peer::Tcp(stream) => stream.try_io(interest, nothing),
            Peer::Unix(stream) => stream.try_io(interest, nothing),
        };
    }
}

/// Whether a connection ended because a write failed for lack of a peer.
pub(super) fn is_evidence(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            use io::ErrorKind as E;
            return matches!(
                io.kind(),
                E::BrokenPipe | E::ConnectionReset | E::ConnectionAborted | E::NotConnected
            );
        }
        source = cause.source();
    }
    false
}
