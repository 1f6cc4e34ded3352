//! Many rounds of faults, judged from outside.

use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;

use crate::bed::{LEASE, PATIENCE, Pod, QUICK, Sidecar, Site};
use crate::cluster::{Access, Flow, Peer, Proxy};
use crate::judge::{Watch, reigns_of};

/// What a busy machine may be late by.
const SLACK: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL, and started again in the same pod at once.
    Kill,
    /// SIGSTOP until another leads.
    Pause,
    /// SIGTERM, and another pod in its place.
    Stop,
    Cut(Flow),
    /// Its connections fall silent for ever; new ones work.
    Strand,
}

const FAULTS: [Fault; 7] = [
    Fault::Pause,
    Fault::Cut(Flow::Nothing),
    Fault::Kill,
    Fault::Cut(Flow::RequestsOnly),
    Fault::Stop,
    Fault::Cut(Flow::Reset),
    Fault::Strand,
];

/// Three sidecars and a client-go elector on one Lease, each behind a proxy of its own.
struct Arena {
    site: Site,
    name: String,
    watch: Watch,
    sidecars: Vec<(Sidecar, Proxy)>,
    peer: Peer,
    peer_access: Access,
    peer_proxy: Proxy,
    /// Peers that ended: their histories count.
    past: Vec<Peer>,
    pods: usize,
}

impl Arena {
    async fn new(name: &str) -> Arena {
        let site = Site::new(name, QUICK).await;
        let watch = Watch::start(&site).await;
        let peer_proxy = site.namespace.cluster.proxy();
        let mut peer_access = site.namespace.access(LEASE).await;
        peer_access.url = peer_proxy.url();
        let peer = site.peer_with(&peer_access, "k0");
        let mut sidecars = Vec::new();
        for pod in ["a", "b", "c"] {
            let proxy = site.namespace.cluster.proxy();
            let mut pod = site.pod(pod).await;
            pod.access.url = proxy.url();
            sidecars.push((site.start_in(&pod, &[]).await, proxy));
        }
        let (name, past) = (name.to_owned(), Vec::new());
        Arena { site, name, watch, sidecars, peer, peer_access, peer_proxy, past, pods: 0 }
    }

    fn holder(&self) -> String {
        self.watch.commits().last().map(|commit| commit.holder.clone()).unwrap_or_default()
    }

    /// Waits for a holder other than `old`, and tells it; after `limit`, whoever it is.
    async fn next_holder(&self, old: &str, limit: Duration) -> String {
        let other = async {
            loop {
                let holder = self.holder();
                if !holder.is_empty() && holder != old {
                    return holder;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(limit, other).await.unwrap_or_else(|_| old.to_owned())
    }

    /// One fault: on the peer when it leads, else on the sidecar that leads, or on all of them, so
    /// that the peer has its turn.
    async fn round(&mut self, fault: Fault, all: bool) -> (String, String) {
        let old = self.next_holder("", PATIENCE).await;
        let limit = QUICK.lease_duration + SLACK;
        if old == self.peer.identity {
            self.strike_peer(fault).await;
            let new = self.next_holder(&old, limit).await;
            self.peer.signal(Signal::CONT);
            self.peer_proxy.set(Flow::Both);
            if old == self.peer.identity && old != new {
                // It notices, and ends: as in a pod that is restarted, another comes.
                self.peer.wait_for(PATIENCE, |event| event.event == "stopped_leading").await;
                self.renew_peer();
            }
            return (old, new);
        }
        let struck: Vec<usize> = (0..self.sidecars.len())
            .filter(|at| all || self.sidecars[*at].0.identity() == old)
            .collect();
        for at in &struck {
            self.strike(*at, fault).await;
        }
        let new = self.next_holder(&old, limit).await;
        for at in struck {
            let (sidecar, proxy) = &self.sidecars[at];
            sidecar.signal(Signal::CONT);
            proxy.set(Flow::Both);
        }
        (old, new)
    }

    async fn strike(&mut self, at: usize, fault: Fault) {
        let (sidecar, proxy) = &mut self.sidecars[at];
        match fault {
            Fault::Pause => sidecar.signal(Signal::STOP),
            Fault::Cut(flow) => proxy.set(flow),
            Fault::Strand => proxy.strand(),
            Fault::Kill => {
                let pod = sidecar.pod.clone();
                sidecar.kill();
                *sidecar = self.site.start_in(&pod, &[]).await;
            }
            Fault::Stop => {
                sidecar.signal(Signal::TERM);
                assert_eq!(sidecar.exit_code().await, Some(0));
                self.pods += 1;
                let mut pod: Pod = self.site.pod(&format!("p{}", self.pods)).await;
                pod.access.url = proxy.url();
                *sidecar = self.site.start_in(&pod, &[]).await;
            }
        }
    }

    async fn strike_peer(&mut self, fault: Fault) {
        match fault {
            Fault::Pause => self.peer.signal(Signal::STOP),
            Fault::Cut(flow) => self.peer_proxy.set(flow),
            Fault::Strand => self.peer_proxy.strand(),
            Fault::Kill => {
                self.peer.signal(Signal::KILL);
                self.renew_peer();
            }
            Fault::Stop => {
                assert!(self.peer.stop(PATIENCE).await.success());
                self.renew_peer();
            }
        }
    }

    fn renew_peer(&mut self) {
        let identity = format!("k{}", self.past.len() + 1);
        let peer = self.site.peer_with(&self.peer_access, &identity);
        self.past.push(std::mem::replace(&mut self.peer, peer));
    }

    async fn run(&mut self, rounds: usize, first: usize) -> Vec<(String, String)> {
        let mut changes = Vec::new();
        for round in first..first + rounds {
            let fault = FAULTS[round % FAULTS.len()];
            changes.push(self.round(fault, round % 2 == 1).await);
        }
        changes
    }

    fn judge(&self) {
        let peers = self.past.iter().chain([&self.peer]);
        let reigns: Vec<_> =
            peers.flat_map(|peer| reigns_of(&peer.history(), QUICK.renew_deadline)).collect();
        let (of_peers, all) = (reigns.len(), self.site.ledger.assert_no_overlap(reigns));
        let terms = self.watch.assert_epochs_grow();
        let waited = self.watch.assert_holders_waited_out(QUICK.lease_duration);
        let name = &self.name;
        println!("{name}: {all} reigns, {of_peers} of peers; {terms} epochs; {waited} waited out");
    }
}

/// Three arenas at a time, so that it is quick: 36 rounds.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_t4_rounds_of_faults_beside_client_go_on_the_real_api_server() {
    const ROUNDS: usize = 12;
    let arenas =
        ["t4-0", "t4-1", "t4-2"].into_iter().enumerate().map(|(number, name)| async move {
            let mut arena = Arena::new(name).await;
            let changes = arena.run(ROUNDS, number * 5).await;
            arena.judge();
            changes
        });
    let changes = join_all(arenas).await.concat();
    println!("{changes:?}");
    let is_peer = |identity: &str| identity.starts_with('k');
    for (from, to) in [(true, false), (false, true), (false, false)] {
        let seen = changes.iter().any(|(old, new)| (is_peer(old), is_peer(new)) == (from, to));
        assert!(seen, "no hand-over from peer {from} to peer {to}: {changes:?}");
    }
}
