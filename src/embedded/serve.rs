//! Plain HTTP on a listener, with connections that a fault can cut.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

use super::LeaseApi;

/// Pause after a failed accept (out of file descriptors, say), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Cuts the connection a request came by; an extension of the request.
#[derive(Debug, Clone)]
pub(super) struct ConnectionCut(watch::Sender<Option<Manner>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Close,
    Reset,
}

impl ConnectionCut {
    /// Ends the connection without another byte: with a reset, or just closed.
    pub(super) fn cut(&self, reset: bool) {
        self.0.send_replace(Some(if reset { Manner::Reset } else { Manner::Close }));
    }
}

/// A listener being served; dropped, it stops and closes every connection.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops listening, closes every connection, and returns when both is done.
    pub async fn stop(mut self) {
        self.task.abort();
        // The error says that it was aborted.
        drop((&mut self.task).await);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LeaseApi {
    /// Serves plain HTTP/1.1 on this listener until the [`Server`] is stopped or dropped.
    ///
    /// # Errors
    /// When the listener has no local address.
    pub fn serve(&self, listener: TcpListener) -> io::Result<Server> {
        let addr = listener.local_addr()?;
        let limit = self.shared.options.limits.connections;
        let task = tokio::spawn(accept(listener, self.router(), limit));
        Ok(Server { addr, task })
    }
}

async fn accept(listener: TcpListener, router: Router, limit: usize) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < limit => {
                    connections.spawn(connection(stream, router.clone()));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, router: Router) {
    // A second descriptor of the same socket: hyper owns the first when the reset is asked for.
    let Ok(second) = stream.as_fd().try_clone_to_owned() else { return };
    // Small answers must not wait for an acknowledgement; without it they are only slower.
    drop(stream.set_nodelay(true));
    let cut = ConnectionCut(watch::Sender::new(None));
    let mut asked = cut.0.subscribe();
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(cut.clone());
        router.clone().oneshot(request)
    });
    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // However it ended, it is over.
        _ = serving => {}
        manner = asked.wait_for(Option::is_some) => {
            if manner.is_ok_and(|manner| *manner == Some(Manner::Reset)) {
                // Best effort: without it the client sees the connection closed.
                drop(SockRef::from(&second).set_linger(Some(Duration::ZERO)));
            }
        }
    }
}
