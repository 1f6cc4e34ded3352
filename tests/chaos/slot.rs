//! A place for one candidate: its wire to the API server, and the processes that come and go in it.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::cluster::peer::PeerTimings;
use crate::cluster::{Cluster, Namespace, Peer, Wire};
use crate::facts::{Fact, What};
use crate::tenure::{App, Pod, Tenure};
use crate::witness::Register;

/// How long a process gets to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Tenure,
    ClientGo,
}

#[derive(Debug)]
enum Process {
    Tenure { process: Tenure, app: Option<App> },
    Peer(Peer),
}

/// A process, running or not, with its name in the history.
#[derive(Debug)]
struct Life {
    who: String,
    process: Process,
    running: bool,
}

/// Everything that a candidate of this lane is given.
#[derive(Debug)]
pub struct Site<'a> {
    pub namespace: Namespace<'a>,
    pub pod: Pod<'a>,
    pub register: Arc<Register>,
    pub peer_timings: PeerTimings,
}

#[derive(Debug)]
pub struct Slot {
    pub kind: Kind,
    pub wire: Wire,
    name: String,
    pods: u32,
    lives: Vec<Life>,
}

impl Slot {
    pub fn new(cluster: &Cluster, kind: Kind, name: &str) -> Slot {
        let wire = Wire::start(cluster);
        Slot { kind, wire, name: name.into(), pods: 0, lives: Vec::new() }
    }

    /// A new pod in this place.
    pub fn start(&mut self, site: &Site<'_>) {
        self.pods += 1;
        self.start_again(site);
    }

    /// The same pod, whose sidecar's container is started anew.
    pub fn start_again(&mut self, site: &Site<'_>) {
        let mut access = site.pod.access.clone();
        access.url = self.wire.url();
        let life = u32::try_from(self.lives.len()).expect("few");
        let (who, process) = match self.kind {
            Kind::Tenure => {
                let uid = format!("{}-{}", site.namespace.name, self.pods);
                let pod = Pod { name: self.name.clone(), uid, access, ..site.pod.clone() };
                let process = Tenure::start(&pod, life, &[]);
                let who = format!("{}/{life}", process.identity);
                let app =
                    Some(App::start(&process.identity, &process.endpoint, site.register.clone()));
                (who, Process::Tenure { process, app })
            }
            Kind::ClientGo => {
                let who = format!("{}-{life}", self.name);
                let (space, lease) = (&site.namespace, site.pod.lease);
                let peer = Peer::start(space, &access, lease, &who, site.peer_timings);
                (who, Process::Peer(peer))
            }
        };
        self.lives.push(Life { who, process, running: true });
    }

    /// client-go ends by itself once it has lost the Lease, as programs that embed it do.
    pub fn runs(&mut self) -> bool {
        let Some(life) = self.lives.last_mut() else { return false };
        if let Process::Peer(peer) = &mut life.process {
            life.running = life.running && !peer.ended();
        }
        life.running
    }

    /// Whether a client-go elector runs here that has never led: one that has lost the Lease is about
    /// to end, though it may take a while.
    pub fn next_peer(&self) -> bool {
        let life = self.lives.last().filter(|life| life.running);
        life.is_some_and(|life| match &life.process {
            Process::Tenure { .. } => false,
            Process::Peer(peer) => {
                peer.history().iter().all(|event| event.event != "started_leading")
            }
        })
    }

    pub fn who(&self) -> &str {
        self.lives.last().map_or("", |life| &life.who)
    }

    /// Whether the Lease names the process that runs here.
    pub fn is(&self, holder: &str) -> bool {
        let life = self.lives.last().filter(|life| life.running);
        life.is_some_and(|life| match &life.process {
            Process::Tenure { process, .. } => process.identity == holder,
            Process::Peer(peer) => peer.identity == holder,
        })
    }

    pub fn signal(&self, signal: Signal) {
        match &self.lives.last().expect("a process").process {
            Process::Tenure { process, .. } => process.signal(signal),
            Process::Peer(peer) => peer.signal(signal),
        }
    }

    /// SIGKILL. The app beside a sidecar lives on until its grant has lapsed.
    pub async fn kill(&mut self) {
        let life = self.lives.last_mut().expect("a process");
        life.running = false;
        match &mut life.process {
            Process::Tenure { process, app } => {
                process.kill();
                if let Some(app) = app.take() {
                    app.abandon().await;
                }
            }
            Process::Peer(peer) => peer.signal(Signal::KILL),
        }
    }

    /// SIGTERM as a pod gets it; with `word`, the app stops and says so.
    pub async fn stop(&mut self, word: bool) {
        let life = self.lives.last_mut().expect("a process");
        life.running = false;
        match &mut life.process {
            Process::Tenure { process, app } => {
                process.signal(Signal::TERM);
                if let Some(app) = app.take() {
                    if !word {
                        app.abandon().await;
                    } else if let Some(epoch) = app.stop().await {
                        let body = json!({"epoch": epoch, "final": true, "wait": "1s"});
                        process.post("/release", body, Duration::from_secs(2)).await;
                    }
                }
                process.ended(GRACE).await;
            }
            Process::Peer(peer) => {
                peer.stop(GRACE).await;
            }
        }
    }

    /// The app gives leadership up and lives on.
    pub async fn give_up(&mut self, site: &Site<'_>) {
        let Some(Life { process, .. }) = self.lives.last_mut() else { return };
        let Process::Tenure { process, app } = process else { return };
        let Some(epoch) = app.take().expect("an app").stop().await else { return };
        let body = json!({"epoch": epoch, "cool_down": "2s", "wait": "1s"});
        process.post("/release", body, Duration::from_secs(2)).await;
        *app = Some(App::start(&process.identity, &process.endpoint, site.register.clone()));
    }

    pub async fn end(&mut self) {
        if self.runs() {
            self.signal(Signal::CONT);
            self.kill().await;
        }
    }

    /// What all processes of this place told.
    pub fn history(&self) -> Vec<Fact> {
        self.lives.iter().flat_map(Life::history).collect()
    }
}

impl Life {
    fn history(&self) -> Vec<Fact> {
        let peer = match &self.process {
            Process::Tenure { process, .. } => return process.history(&self.who),
            Process::Peer(peer) => peer,
        };
        let fact = |at, what| Fact { at, who: self.who.clone(), what };
        let told = peer.history().into_iter().map(|event| {
            let what = match &*event.event {
                "started_leading" => What::PeerLeads,
                "stopped_leading" => What::PeerStops,
                _ => What::PeerWrote(format!("{event:?}")),
            };
            fact(event.boottime_ns, what)
        });
        told.collect()
    }
}
