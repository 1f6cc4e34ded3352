//! Sidecars as their pods run them: a real token, the shipped Role, an app that reads over localhost.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use rustix::process::Signal;
use serde_json::{Value, json};
use tenure::client::{Call, Endpoint};

use crate::cluster::peer::PeerTimings;
use crate::cluster::process::{Process, dies_with_us};
use crate::cluster::{Access, Cluster, Namespace, Peer};
use crate::judge::{App, Ledger};
use crate::netns::NetNs;

pub const LEASE: &str = "billing";
/// What the shipped Role allows on the one Lease.
pub const SHIPPED_VERBS: [&str; 4] = ["get", "watch", "update", "create"];
/// The account of the sidecars; that of client-go peers is `candidate`.
const ACCOUNT: &str = "tenure";
/// Generous: a bound on a test that fails, not on a sidecar.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Asks until it is so.
pub async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    within(PATIENCE, what, condition).await;
}

/// Asks until it is so, which must come to be within `limit`. Tells how long it took.
pub async fn within(
    limit: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) -> Duration {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(LOOK).await;
    }
    begin.elapsed()
}

/// L, R and P.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

const fn timing(lease: u64, renew: u64, retry: u64) -> Timing {
    Timing {
        lease_duration: Duration::from_millis(lease),
        renew_deadline: Duration::from_millis(renew),
        retry_period: Duration::from_millis(retry),
    }
}

/// For what must not take until a lease runs out: it would be noticed.
pub const SLOW: Timing = timing(30_000, 20_000, 500);
pub const DEFAULT: Timing = timing(15_000, 10_000, 2_000);
/// Room enough for a busy machine to renew in.
pub const ROOMY: Timing = timing(5_000, 4_000, 500);
/// Where leases have to run out many times.
pub const QUICK: Timing = timing(3_000, 2_000, 500);

impl From<Timing> for PeerTimings {
    fn from(timing: Timing) -> PeerTimings {
        PeerTimings {
            lease_duration: timing.lease_duration,
            renew_deadline: timing.renew_deadline,
            retry_period: timing.retry_period,
        }
    }
}

/// A namespace with one Lease, and what belongs to its sidecars.
#[derive(Debug)]
pub struct Site {
    pub namespace: Namespace<'static>,
    pub timing: Timing,
    /// What the apps were granted.
    pub ledger: Ledger,
}

/// A pod as far as a sidecar knows it. Its sidecar can be started several times.
#[derive(Clone, Debug)]
pub struct Pod {
    pub name: String,
    pub uid: String,
    pub access: Access,
}

impl Pod {
    pub fn identity(&self) -> String {
        format!("{}_{}", self.name, self.uid)
    }
}

impl Site {
    /// With an empty Lease, as the chart makes it.
    pub async fn new(hint: &str, timing: Timing) -> Site {
        Site::on(crate::cluster::shared().await, hint, timing).await
    }

    pub async fn on(cluster: &'static Cluster, hint: &str, timing: Timing) -> Site {
        let site = Site::bare(cluster, hint, timing).await;
        site.namespace.create_lease(LEASE, LeaseSpec::default()).await;
        site
    }

    pub async fn without_lease(hint: &str, timing: Timing) -> Site {
        Site::bare(crate::cluster::shared().await, hint, timing).await
    }

    async fn bare(cluster: &'static Cluster, hint: &str, timing: Timing) -> Site {
        let namespace = cluster.namespace(hint).await;
        namespace.service_account(ACCOUNT).await;
        namespace.allow(ACCOUNT, LEASE, &SHIPPED_VERBS).await;
        Site { namespace, timing, ledger: Ledger::default() }
    }

    /// Replaces the verbs of the sidecars' Role.
    pub async fn allow(&self, verbs: &[&str]) {
        self.namespace.allow(ACCOUNT, LEASE, verbs).await;
    }

    /// Lets the sidecars write Events too.
    pub async fn allow_events(&self) {
        self.namespace.allow_events(ACCOUNT).await;
    }

    pub async fn pod(&self, name: &str) -> Pod {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Its own in each test: they share one network namespace, where each identity is claimed.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let uid = format!("{}-{number}", std::process::id());
        let access = self.namespace.access_of(ACCOUNT, None).await;
        Pod { name: name.into(), uid, access }
    }

    /// A Pod object of the API server, to which its token is bound.
    pub async fn bound_pod(&self, name: &str) -> Pod {
        let object = self.namespace.pod(name, ACCOUNT).await;
        let access = self.namespace.access_of(ACCOUNT, Some(&object)).await;
        Pod { name: name.into(), uid: object.metadata.uid.expect("a uid"), access }
    }

    pub async fn token(&self) -> String {
        self.namespace.token(ACCOUNT, None).await
    }

    /// A sidecar in a pod of its own.
    pub async fn start(&self, name: &str) -> Sidecar {
        self.start_in(&self.pod(name).await, &[]).await
    }

    pub async fn start_with(&self, name: &str, more: &[&str]) -> Sidecar {
        self.start_in(&self.pod(name).await, more).await
    }

    /// The pod's sidecar, listening on free ports.
    pub async fn start_in(&self, pod: &Pod, more: &[&str]) -> Sidecar {
        let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        Sidecar::start(self, pod, &[&ports, more].concat(), None).await
    }

    /// Three of them; each has seen the Lease.
    pub async fn trio(&self) -> [Sidecar; 3] {
        let [a, b, c] = ["a", "b", "c"];
        let (a, b, c) = tokio::join!(self.start(a), self.start(b), self.start(c));
        a.ready().await;
        b.ready().await;
        c.ready().await;
        [a, b, c]
    }

    /// A client-go elector on the same Lease. Its account may do what client-go's users usually allow.
    pub async fn peer(&self, identity: &str) -> Peer {
        let access = self.namespace.access(LEASE).await;
        self.peer_with(&access, identity)
    }

    pub fn peer_with(&self, access: &Access, identity: &str) -> Peer {
        Peer::start(&self.namespace, access, LEASE, identity, self.timing.into())
    }

    pub async fn lease(&self) -> Lease {
        self.namespace.get_lease(LEASE).await.expect("the Lease")
    }

    pub async fn holder(&self) -> String {
        self.lease().await.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
    }

    pub async fn transitions(&self) -> i32 {
        self.lease().await.spec.and_then(|spec| spec.lease_transitions).unwrap_or_default()
    }

    /// The sidecars' name in the audit log.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace.name)
    }
}

/// One `tenure sidecar` and the app beside it; killed on drop.
#[derive(Debug)]
pub struct Sidecar {
    pub pod: Pod,
    /// The local API over TCP, as an app reads it.
    pub local: Endpoint,
    pub admin: Endpoint,
    process: Process,
    netns: Option<NetNs>,
    _app: Option<App>,
}

/// The log of a sidecar whose test has failed.
impl Drop for Sidecar {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.process.log.display(), self.log());
        }
    }
}

impl Sidecar {
    /// In the network namespace given, or in the one of the test.
    pub async fn start(site: &Site, pod: &Pod, more: &[&str], netns: Option<&NetNs>) -> Sidecar {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{number}.log", site.namespace.name, pod.name);
        let log = site.namespace.cluster.folder.join(name);
        let command = command(site, pod, more, netns);
        let process = Process::start(command, &log).expect("start a sidecar");
        let nowhere: Endpoint = "http://localhost:1".parse().expect("a URL");
        let mut sidecar = Sidecar {
            pod: pod.clone(),
            local: nowhere.clone(),
            admin: nowhere,
            process,
            netns: netns.cloned(),
            _app: None,
        };
        eventually("it starts", async || !sidecar.lines("tenure starts").is_empty()).await;
        let line = sidecar.lines("tenure starts").remove(0);
        sidecar.local = first(&line["listen"]);
        let admin = line["admin"].as_str().expect("an address");
        sidecar.admin = format!("http://{admin}").parse().expect("an address");
        if netns.is_none() {
            sidecar._app = Some(App::start(&sidecar.local, &pod.identity(), &site.ledger));
        }
        sidecar
    }

    pub fn identity(&self) -> String {
        self.pod.identity()
    }

    /// Null where it does not answer (any more).
    pub async fn ask(&self, target: &str) -> Value {
        let (endpoint, target) = (self.local.clone(), target.to_owned());
        let call = async move {
            let answer = Call::get(&target).send(&endpoint, PATIENCE).await;
            answer.map_or(Value::Null, |answer| {
                serde_json::from_slice(&answer.body).expect("a JSON body")
            })
        };
        match &self.netns {
            Some(netns) => netns.run(call).await,
            None => call.await,
        }
    }

    pub async fn leader(&self) -> Value {
        self.ask("/leader").await
    }

    pub async fn leads(&self) -> bool {
        self.leader().await["leader"] == json!(true)
    }

    pub async fn epoch(&self) -> u64 {
        let body = self.leader().await;
        body["epoch"].as_u64().unwrap_or_else(|| panic!("not leader: {body}\n{}", self.log()))
    }

    pub async fn state(&self) -> String {
        self.leader().await["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Null where nobody is known to hold it.
    pub async fn sees(&self) -> Option<String> {
        self.leader().await["holder"].as_str().map(str::to_owned)
    }

    pub async fn post(&self, target: &str, body: Value) -> (u16, Value) {
        let call = Call { method: Method::POST, target, body: body.to_string(), bearer: None };
        let answer = call.send(&self.local, PATIENCE).await.expect("an answer");
        (answer.status.as_u16(), serde_json::from_slice(&answer.body).expect("a JSON body"))
    }

    /// Waits until the app beside it has heard of the term, and tells its epoch.
    pub async fn heard(&self, site: &Site) -> u64 {
        let epoch = self.epoch().await;
        eventually("the app hears of it", async || site.ledger.knows(&self.identity(), epoch))
            .await;
        epoch
    }

    /// The app has stopped: the ledger knows it too.
    pub async fn give_up(&self, site: &Site, more: Value) -> (u16, Value) {
        let epoch = self.heard(site).await;
        site.ledger.word(&self.identity(), epoch);
        let mut body = json!({"epoch": epoch});
        body.as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().unwrap_or_default());
        self.post("/release", body).await
    }

    /// From the second listener: status and text.
    pub async fn admin(&self, target: &str) -> (u16, String) {
        let (endpoint, target) = (self.admin.clone(), target.to_owned());
        let call = async move {
            let answer = Call::get(&target).send(&endpoint, PATIENCE).await.expect("an answer");
            (answer.status.as_u16(), String::from_utf8_lossy(&answer.body).into_owned())
        };
        match &self.netns {
            Some(netns) => netns.run(call).await,
            None => call.await,
        }
    }

    pub async fn ready(&self) {
        eventually("/readyz", async || self.admin("/readyz").await.0 == 200).await;
    }

    /// The value of the one series that has this name and these labels.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (_, text) = self.admin("/metrics").await;
        let found: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(name) && labels.iter().all(|l| line.contains(l)))
            .collect();
        let [line] = found[..] else { panic!("{name} {labels:?}: {found:?} of\n{text}") };
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.process.log).unwrap_or_default()
    }

    /// The lines whose message contains this.
    pub fn lines(&self, message: &str) -> Vec<Value> {
        let text = self.log();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .filter(|line| line["message"].as_str().is_some_and(|text| text.contains(message)))
            .collect()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// SIGKILL, reaped on return.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits for its end by itself. None: killed by a signal.
    pub async fn exit_code(&mut self) -> Option<i32> {
        self.process.wait(PATIENCE).await.code()
    }
}

/// Waits until one of them leads, and tells its place.
pub async fn one_leader(sidecars: &[&Sidecar]) -> usize {
    let mut place = None;
    eventually("one of them leads", async || {
        for (at, sidecar) in sidecars.iter().enumerate() {
            if sidecar.leads().await {
                place = Some(at);
            }
        }
        place.is_some()
    })
    .await;
    place.expect("a leader")
}

/// Leader first.
pub async fn led_by<const N: usize>(mut sidecars: [Sidecar; N]) -> [Sidecar; N] {
    let leader = one_leader(&sidecars.each_ref()).await;
    sidecars.swap(0, leader);
    sidecars
}

/// A run of the binary with nothing in its environment that could tell it of a cluster.
pub fn tenure(arguments: &[&str]) -> Command {
    let mut command = dies_with_us(env!("CARGO_BIN_EXE_tenure").as_ref());
    command.args(arguments);
    bare(command)
}

fn bare(mut command: Command) -> Command {
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

fn command(site: &Site, pod: &Pod, more: &[&str], netns: Option<&NetNs>) -> Command {
    let mut command = match netns {
        Some(netns) => {
            let mut command = netns.enter();
            command.args([env!("CARGO_BIN_EXE_tenure"), "sidecar"]);
            bare(command)
        }
        None => tenure(&["sidecar"]),
    };
    let ms = |duration: Duration| format!("{}ms", duration.as_millis());
    for (flag, value) in [
        ("lease-name", LEASE.to_owned()),
        ("namespace", site.namespace.name.clone()),
        ("pod-name", pod.name.clone()),
        ("pod-uid", pod.uid.clone()),
        ("lease-duration", ms(site.timing.lease_duration)),
        ("renew-deadline", ms(site.timing.renew_deadline)),
        ("retry-period", ms(site.timing.retry_period)),
        ("server", pod.access.url.clone()),
        ("ca-file", pod.access.ca_file().display().to_string()),
        ("token-file", pod.access.token_file().display().to_string()),
        ("log-format", "json".to_owned()),
        ("log", "info,tenure=debug".to_owned()),
    ] {
        command.arg(format!("--{flag}={value}"));
    }
    command.args(more);
    command
}

/// The first of the addresses as the log has them: `[127.0.0.1:4040, [::1]:4040]`.
fn first(listed: &Value) -> Endpoint {
    let listed = listed.as_str().and_then(|text| text.strip_prefix('[')?.strip_suffix(']'));
    let first = listed.and_then(|listed| listed.split(", ").next()).expect("addresses");
    format!("http://{first}").parse().expect("an address")
}
