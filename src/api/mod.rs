//! The local API: what the app asks over loopback or a Unix socket, and what probes and Prometheus
//! ask through the pod's address.
//!
//! Every (leader, epoch, validity) that leaves here comes out of one [`Seat::answer`], computed
//! when it is told and by the clock of that moment: nothing is cached, no boolean is kept. An
//! answer is a grant, so `answer` is never called for what nobody is told.
//!
//! It speaks HTTP/1.1 through hyper itself: the few fixed paths need no router, and a hold needs
//! the connection's own socket and the end of its connection (see `hold`).

mod admin;
mod control;
mod events;
mod fence;
mod guard;
mod hold;
mod leader;
mod listen;
mod query;
mod reply;
mod shape;

use std::path::PathBuf;
use std::sync::Arc;

use http::{Method, Request};
use hyper::body::Incoming;

pub use admin::{Access, Denied, Health};
pub use fence::{QuorumRead, Reading};
pub use listen::{BindError, ListenConfig, Listeners};

use crate::metrics::Metrics;
use crate::seat::Seat;
use fence::Fence;
use hold::Link;
use reply::{Refusal, Reply};

/// What the API says about this process, and whom it lets in. Nothing here changes.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// Our `holderIdentity`.
    pub identity: String,
    pub lease_namespace: String,
    pub lease_name: String,
    /// The kernel's, see [`boot_id`]: a deadline on its boottime clock means nothing after a boot.
    pub boot_id: String,
    /// Every JSON body says `"dev": true`.
    pub dev: bool,
    /// Accepted in `Host` beside localhost, 127.0.0.1 and `[::1]`; without a port.
    pub allowed_hosts: Vec<String>,
    /// Holds the bearer token that changing calls must bring; read at each of them.
    pub control_token_file: Option<PathBuf>,
}

/// The kernel's id of this boot.
///
/// # Errors
/// Where there is no `/proc`.
pub fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// All that an answer is made from.
#[derive(Debug)]
pub struct Api {
    config: ApiConfig,
    seat: Arc<Seat>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    fence: Fence,
}

impl Api {
    pub fn new(
        config: ApiConfig,
        seat: Arc<Seat>,
        health: Arc<Health>,
        metrics: Arc<Metrics>,
        quorum: Arc<dyn QuorumRead>,
    ) -> Arc<Api> {
        Arc::new(Api { config, seat, health, metrics, fence: Fence::new(quorum) })
    }

    /// Answers one request. `link` is the connection it came in on.
    async fn respond(self: Arc<Self>, link: Arc<Link>, request: Request<Incoming>) -> Reply {
        let answered = match link.face() {
            Face::Admin => self.admin(&request),
            Face::Tcp | Face::Unix => self.local(&link, request).await,
        };
        answered.unwrap_or_else(|refusal| self.refuse(refusal))
    }

    async fn local(
        self: &Arc<Self>,
        link: &Arc<Link>,
        request: Request<Incoming>,
    ) -> Result<Reply, Refusal> {
        if link.face() == Face::Tcp {
            guard::host(&request, &self.config.allowed_hosts)?;
        }
        let path = request.uri().path();
        match path {
            "/leader" => {
                read_only(&request)?;
                self.leader(link, &request, false).await
            }
            "/is-leader" => {
                read_only(&request)?;
                self.leader(link, &request, true).await
            }
            "/" => {
                read_only(&request)?;
                self.elector_name(&request)
            }
            "/leader/events" => {
                read_only(&request)?;
                self.events(link, &request)
            }
            "/release" => {
                allow(&request, &[Method::POST])?;
                self.release(request).await
            }
            _ => match path.strip_prefix("/fence/") {
                Some(epoch) if !epoch.contains('/') => {
                    read_only(&request)?;
                    self.fence(epoch).await
                }
                _ => Err(Refusal::not_found(path)),
            },
        }
    }
}

/// Which listener a connection came in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Face {
    Tcp,
    Unix,
    Admin,
}

/// GET, and HEAD where GET works.
fn read_only<B>(request: &Request<B>) -> Result<(), Refusal> {
    allow(request, &[Method::GET, Method::HEAD])
}

fn allow<B>(request: &Request<B>, methods: &[Method]) -> Result<(), Refusal> {
    if methods.contains(request.method()) {
        return Ok(());
    }
    Err(Refusal::method_not_allowed(request.method(), methods))
}
