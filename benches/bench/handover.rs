//! How long nobody leads: after a release, after a crash of the pod, of the app, of the sidecar.

use std::time::Duration;

use rustix::process::Signal;

use crate::Size;
use crate::cluster::peer::PeerTimings;
use crate::cluster::{Access, Cluster, Peer};
use crate::contestants::{LIMIT, Race, Tenure, kill, now_ns};
use crate::report::{CLIENT_GO, MS, Report, TENURE};

const RELEASE: &str = "release → next leader";
const ASKED: &str = "release → next one's GET /leader says so";
const POD: &str = "SIGKILL of the pod → next leader";
const APP: &str = "SIGKILL of the app alone → next leader";
const SIDECAR: &str = "SIGKILL of the elector, restarted → leads again";

fn ms(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

/// Three candidates of each kind, on a Lease each, in turns.
pub(crate) async fn measure(cluster: &Cluster, size: &Size, report: &mut Report) {
    let timings = PeerTimings::default();
    let mut ours = Ours::start(cluster, timings).await;
    let mut theirs = Theirs::start(cluster, timings).await;
    let (mut told, mut asked, mut go) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        let (event, answer) = ours.release().await;
        told.push(event);
        asked.push(answer);
        go.push(theirs.release().await);
    }
    report.add(RELEASE, TENURE, MS, told);
    report.add(RELEASE, CLIENT_GO, MS, go);
    report.add(ASKED, TENURE, MS, asked);

    let mut app = Vec::new();
    for _ in 0..size.rounds {
        app.push(ours.kill_app().await);
    }
    report.add(APP, TENURE, MS, app);

    let (mut sidecar, mut go) = (Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        sidecar.push(ours.restart().await);
        go.push(theirs.restart().await);
    }
    report.add(SIDECAR, TENURE, MS, sidecar);
    report.add(SIDECAR, CLIENT_GO, MS, go);
    drop((ours, theirs));

    let mut ours = Ours::start(cluster, size.crash).await;
    let mut theirs = Theirs::start(cluster, size.crash).await;
    let (mut pod, mut go) = (Vec::new(), Vec::new());
    for round in 0..size.crashes {
        // Not always at the same point between two renewals.
        let point = size.crash.retry_period * (round as u32 % 5) / 5;
        tokio::time::sleep(size.crash.retry_period + point).await;
        let (a, b) = tokio::join!(ours.kill_pod(), theirs.kill_pod());
        pod.push(a);
        go.push(b);
    }
    report.add(POD, TENURE, MS, pod);
    report.add(POD, CLIENT_GO, MS, go);
}

struct Ours<'a> {
    race: Race<'a>,
    access: Access,
    candidates: Vec<Tenure>,
    leader: String,
    named: u32,
}

impl<'a> Ours<'a> {
    async fn start(cluster: &'a Cluster, timings: PeerTimings) -> Ours<'a> {
        let race = Race::new(cluster.namespace("tenure").await, timings).await;
        let access = race.access("candidate").await;
        let mut ours =
            Ours { race, access, candidates: Vec::new(), leader: String::new(), named: 0 };
        ours.another();
        ours.leader = ours.race.next_leader(None).await.name;
        ours.another();
        ours.another();
        ours.settle().await;
        ours
    }

    fn another(&mut self) {
        self.named += 1;
        let name = format!("web-{}", self.named);
        self.candidates.push(self.race.tenure(&self.access, &name));
    }

    fn led(&self) -> usize {
        self.candidates.iter().position(|it| it.name == self.leader).expect("the leader")
    }

    /// All others watch it.
    async fn settle(&mut self) {
        for candidate in self.candidates.iter().filter(|it| it.name != self.leader) {
            candidate.follows().await;
        }
        self.race.forget();
    }

    async fn release(&mut self) -> (f64, f64) {
        let leader = self.led();
        let begin = now_ns();
        self.candidates[leader].release().await;
        let told = self.race.next_leader(Some(&self.leader)).await;
        let next = self.candidates.iter().find(|it| it.name == told.name).expect("a candidate");
        assert!(next.leader().await.leader);
        let answered = now_ns();
        self.leader = told.name;
        self.settle().await;
        (ms(begin, told.at_ns), ms(begin, answered))
    }

    async fn kill_app(&mut self) -> f64 {
        let app = self.candidates[self.led()].hold().await;
        let begin = now_ns();
        app.signal(Signal::KILL);
        let told = self.race.next_leader(Some(&self.leader)).await;
        self.leader = told.name;
        self.settle().await;
        ms(begin, told.at_ns)
    }

    /// The kubelet's own delay before a restart is left out.
    async fn restart(&mut self) -> f64 {
        let at = self.led();
        self.race.forget();
        let begin = now_ns();
        self.candidates[at].process.kill();
        let Tenure { name, uid, access, .. } = &self.candidates[at];
        let again = self.race.tenure_in(access, name, uid);
        self.candidates[at] = again;
        let told = self.race.next_leader(None).await;
        assert_eq!(told.name, self.leader, "the same pod leads again");
        self.settle().await;
        ms(begin, told.at_ns)
    }

    async fn kill_pod(&mut self) -> f64 {
        let mut dead = self.candidates.remove(self.led());
        self.race.forget();
        let begin = now_ns();
        dead.process.kill();
        let told = self.race.next_leader(Some(&self.leader)).await;
        self.leader = told.name;
        self.another();
        self.settle().await;
        ms(begin, told.at_ns)
    }
}

struct Theirs<'a> {
    race: Race<'a>,
    access: Access,
    candidates: Vec<Peer>,
    leader: String,
    named: u32,
}

impl<'a> Theirs<'a> {
    async fn start(cluster: &'a Cluster, timings: PeerTimings) -> Theirs<'a> {
        let race = Race::new(cluster.namespace("client-go").await, timings).await;
        let access = race.access("candidate").await;
        let mut theirs =
            Theirs { race, access, candidates: Vec::new(), leader: String::new(), named: 0 };
        theirs.another();
        theirs.leader = theirs.next_leader(0).await.0;
        theirs.another();
        theirs.another();
        theirs.settle().await;
        theirs
    }

    fn another(&mut self) {
        self.named += 1;
        let name = format!("go-{}", self.named);
        self.candidates.push(self.race.client_go(&self.access, &name));
    }

    fn take_leader(&mut self) -> Peer {
        let at = self.candidates.iter().position(|it| it.identity == self.leader);
        self.candidates.remove(at.expect("the leader"))
    }

    /// Whose OnStartedLeading was called after `begin`, and when.
    async fn next_leader(&self, begin: u64) -> (String, u64) {
        let next = async {
            loop {
                for peer in &self.candidates {
                    let led = |event: &&_| is_start(event, begin);
                    if let Some(event) = peer.history().iter().find(led) {
                        return (peer.identity.clone(), event.boottime_ns);
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, next).await.expect("somebody leads")
    }

    /// All others have seen it.
    async fn settle(&self) {
        for peer in self.candidates.iter().filter(|it| it.identity != self.leader) {
            peer.wait_for(LIMIT, |event| {
                event.event == "new_leader" && event.leader == self.leader
            })
            .await;
        }
    }

    async fn release(&mut self) -> f64 {
        let mut old = self.take_leader();
        let begin = now_ns();
        assert!(old.stop(LIMIT).await.success());
        self.follow_on(begin).await
    }

    async fn kill_pod(&mut self) -> f64 {
        let old = self.take_leader();
        let begin = kill(&old);
        self.follow_on(begin).await
    }

    async fn follow_on(&mut self, begin: u64) -> f64 {
        let (leader, at) = self.next_leader(begin).await;
        self.leader = leader;
        self.another();
        self.settle().await;
        ms(begin, at)
    }

    /// With the identity of before, which is the best case: most programs draw a random one.
    async fn restart(&mut self) -> f64 {
        let begin = kill(&self.take_leader());
        let again = self.race.client_go(&self.access, &self.leader);
        self.candidates.push(again);
        let (leader, at) = self.next_leader(begin).await;
        assert_eq!(leader, self.leader, "the same identity leads again");
        ms(begin, at)
    }
}

fn is_start(event: &crate::cluster::peer::PeerEvent, begin: u64) -> bool {
    event.event == "started_leading" && event.boottime_ns > begin
}
