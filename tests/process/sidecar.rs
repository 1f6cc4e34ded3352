//! Sidecars as processes, and the API server they share.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tenure::client::{Call, Endpoint, LeaderBody};
use tenure::embedded::{LeaseApi, Server};
use tokio::process::{Child, Command};

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const LEASE: &str = "billing";

/// Generous: a bound on a test that fails, not on a sidecar.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Asks until it is so.
pub(crate) async fn eventually(mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < PATIENCE, "it never came to be");
        tokio::time::sleep(LOOK).await;
    }
}

/// A process with nothing in its environment but `variables`.
pub(crate) fn tenure(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// A process that ends by itself.
pub(crate) async fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = tenure(arguments, variables);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    tokio::time::timeout(PATIENCE, command.output()).await.expect("it does not end").unwrap()
}

/// An embedded API behind a socket, and a folder for what belongs to its sidecars.
pub(crate) struct Pods {
    pub(crate) api: LeaseApi,
    /// None while it is down.
    server: Option<Server>,
    address: SocketAddr,
    /// Where sidecars started from now on look for it.
    pub(crate) port: u16,
    folder: tempfile::TempDir,
    timing: Timing,
}

/// L, R and P, as flags take them.
pub(crate) type Timing = [&'static str; 3];

/// Room enough for a busy machine to renew in.
const ROOMY: Timing = ["5s", "4s", "500ms"];

impl Pods {
    pub(crate) async fn new() -> Pods {
        Pods::with_timing(ROOMY).await
    }

    pub(crate) async fn with_timing(timing: Timing) -> Pods {
        let api = LeaseApi::new();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = api.serve(listener).unwrap();
        let address = server.addr();
        Pods {
            api,
            server: Some(server),
            address,
            port: address.port(),
            folder: tempfile::tempdir().unwrap(),
            timing,
        }
    }

    /// Connections are refused from now on.
    pub(crate) async fn stop_server(&mut self) {
        self.server.take().unwrap().stop().await;
    }

    pub(crate) async fn start_server(&mut self) {
        let listener = tokio::net::TcpListener::bind(self.address).await.unwrap();
        self.server = Some(self.api.serve(listener).unwrap());
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A Lease that nobody ever held.
    pub(crate) fn make_free(&self) {
        self.api.recreate(NAMESPACE, LEASE, json!({}));
    }

    pub(crate) fn holder(&self) -> String {
        let lease = self.api.lease(NAMESPACE, LEASE).unwrap();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn token_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.token"))
    }

    /// The sidecar of the pod `name`, whose token makes it the caller `name`.
    pub(crate) async fn start(&self, name: &str) -> Sidecar {
        self.start_with(name, &[]).await
    }

    pub(crate) async fn start_with(&self, name: &str, more: &[&str]) -> Sidecar {
        std::fs::write(self.token_file(name), name).unwrap();
        self.start_as(name, name, more).await
    }

    /// `file`: names its socket and its log.
    pub(crate) async fn start_as(&self, name: &str, file: &str, more: &[&str]) -> Sidecar {
        let path = |kind: &str| self.folder.path().join(format!("{file}.{kind}"));
        let (socket, log) = (path("sock"), path("log"));
        let token = self.token_file(name);
        let server = format!("http://127.0.0.1:{}", self.port);
        // Its own in each test: they share one network namespace, where each identity is claimed.
        let uid = format!("{name}-{}-{}", std::process::id(), self.address.port());
        let [lease_duration, renew_deadline, retry_period] = self.timing;
        let mut arguments = vec![
            "sidecar",
            "--lease-name",
            LEASE,
            "--namespace",
            NAMESPACE,
            "--pod-name",
            name,
            "--pod-uid",
            &uid,
            "--lease-duration",
            lease_duration,
            "--renew-deadline",
            renew_deadline,
            "--retry-period",
            retry_period,
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            "--log-format",
            "json",
            "--server",
            &server,
            "--token-file",
            token.to_str().unwrap(),
            "--socket",
            socket.to_str().unwrap(),
        ];
        arguments.extend(more);
        if !more.contains(&"--log") {
            arguments.extend(["--log", "info,tenure=debug"]);
        }
        let mut command = tenure(&arguments, &[]);
        command.stderr(std::fs::File::create(&log).unwrap());
        let child = command.spawn().unwrap();
        let endpoint = Endpoint::Unix(socket);
        let sidecar = Sidecar { child, endpoint, log, identity: format!("{name}_{uid}") };
        eventually(async || !sidecar.lines("tenure starts").is_empty()).await;
        sidecar
    }
}

/// One `tenure sidecar`.
pub(crate) struct Sidecar {
    child: Child,
    pub(crate) endpoint: Endpoint,
    log: PathBuf,
    identity: String,
}

/// What a process takes of its machine.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) threads: u64,
    pub(crate) descriptors: usize,
    pub(crate) resident_kib: u64,
}

/// The log of a sidecar whose test has failed.
impl Drop for Sidecar {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

impl Sidecar {
    /// Without a cluster, in a process that may have this many descriptors.
    pub(crate) async fn with_descriptors(folder: &Path, limit: u32) -> Sidecar {
        let (socket, log) = (folder.join("sock"), folder.join("log"));
        let limited = format!("ulimit -n {limit} && exec \"$@\"");
        let mut command = Command::new("sh");
        command
            .args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_tenure"), "sidecar", "--dev"])
            .args(["--lease-name", LEASE, "--identity", "me", "--log-format", "json"])
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--socket"])
            .arg(&socket)
            .args(["--log", "info,tenure=debug"])
            .stderr(std::fs::File::create(&log).unwrap())
            .kill_on_drop(true);
        let child = command.spawn().unwrap();
        let endpoint = Endpoint::Unix(socket);
        let sidecar = Sidecar { child, endpoint, log, identity: "me".into() };
        eventually(async || !sidecar.lines("tenure starts").is_empty()).await;
        sidecar
    }

    pub(crate) fn pid(&self) -> Pid {
        let pid = i32::try_from(self.child.id().expect("it has ended")).unwrap();
        Pid::from_raw(pid).unwrap()
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// A grant, like every answer.
    pub(crate) async fn leader(&self) -> LeaderBody {
        serde_json::from_value(self.get("/leader").await).unwrap()
    }

    pub(crate) async fn leads(&self) -> bool {
        self.leader().await.leader
    }

    pub(crate) async fn get(&self, target: &str) -> Value {
        let answer = Call::get(target).send(&self.endpoint, PATIENCE).await;
        let answer = answer.unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
        serde_json::from_slice(&answer.body).unwrap()
    }

    pub(crate) async fn post(&self, target: &str, body: Value) -> (u16, Value) {
        let call = Call { method: Method::POST, target, body: body.to_string(), bearer: None };
        let answer = call.send(&self.endpoint, PATIENCE).await.unwrap();
        (answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap())
    }

    /// From the second listener: status and text.
    pub(crate) async fn admin(&self, target: &str) -> (u16, String) {
        let starts = self.lines("tenure starts").remove(0);
        let at: Endpoint = format!("http://{}", starts["admin"].as_str().unwrap()).parse().unwrap();
        let answer = Call::get(target).send(&at, PATIENCE).await.unwrap();
        (answer.status.as_u16(), String::from_utf8(answer.body.to_vec()).unwrap())
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The lines whose message contains this.
    pub(crate) fn lines(&self, message: &str) -> Vec<Value> {
        self.log()
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|line| line["message"].as_str().is_some_and(|text| text.contains(message)))
            .collect()
    }

    pub(crate) fn usage(&self) -> Usage {
        let proc = PathBuf::from(format!("/proc/{}", self.child.id().unwrap()));
        let status = std::fs::read_to_string(proc.join("status")).unwrap();
        let number = |field: &str| {
            let line = status.lines().find(|line| line.starts_with(field)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Usage {
            threads: number("Threads:"),
            descriptors: std::fs::read_dir(proc.join("fd")).unwrap().count(),
            resident_kib: number("VmRSS:"),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// None: killed by a signal.
    pub(crate) async fn exit_code(mut self) -> Option<i32> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("it does not end\n{}", self.log())).unwrap().code()
    }
}
