//! A real etcd and kube-apiserver for tests, about five seconds after it is asked for.
//!
//! ```ignore
//! mod cluster;
//!
//! #[tokio::test]
//! async fn something() {
//!     let cluster = cluster::shared().await;           // one per test binary
//!     let namespace = cluster.namespace("something").await; // one per test: tests run in parallel
//!     let access = namespace.access("my-lease").await; // what a pod is given: token, CA, a Role
//! }
//! ```
//!
//! A test that stops, kills or rewinds a server starts a cluster of its own with [`Cluster::start`], so
//! that its neighbours keep theirs. Every program dies with the test process, however that ends.
//! Logs stand below `target/tmp/cluster-<pid>-<n>`, printed when a test fails, and are swept by a later run.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of this")]
#![allow(unreachable_pub, reason = "a module of test binaries, not a library")]

pub mod access;
pub mod audit;
pub mod binaries;
pub mod client;
pub mod faults;
pub mod peer;
pub mod pki;
pub mod process;
pub mod proxy;
pub mod wire;

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::OnceCell;

use self::binaries::Program;
use self::pki::Pki;
use self::process::{Process, describe, dies_with_us};

pub use self::access::{Access, Namespace};
pub use self::audit::{Audit, Request};
pub use self::faults::{Fault, FaultProxy, Rule, Verb};
pub use self::peer::Peer;
pub use self::proxy::{Flow, Proxy};
pub use self::wire::Wire;

/// Ready takes 4-5 s on an idle machine; only a hang may pass this.
const READY_LIMIT: Duration = Duration::from_secs(120);

static SHARED: OnceCell<Cluster> = OnceCell::const_new();

/// The cluster that all tests of this binary share. Do it no harm: see [`Cluster::start`].
pub async fn shared() -> &'static Cluster {
    let cluster = SHARED.get_or_init(Cluster::start).await;
    eprintln!("logs of the cluster: {}", cluster.folder.display());
    cluster
}

/// How much a long run is told to do, by the environment.
pub fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// One etcd and one kube-apiserver: own CA, RBAC on, every request in the audit log.
#[derive(Debug)]
pub struct Cluster {
    /// Logs, keys and data.
    pub folder: PathBuf,
    pub etcd: Server,
    pub api_server: Server,
    pki: Pki,
    admin_token: String,
    /// Keeps a failed test's folder.
    keep: bool,
}

/// A copy of etcd's data at one moment.
#[derive(Debug)]
pub struct Snapshot(PathBuf);

/// A program that can be stopped, continued, killed and started anew on the same port.
#[derive(Debug)]
pub struct Server {
    program: Program,
    arguments: Vec<String>,
    log: PathBuf,
    pub port: u16,
    /// `None` while killed.
    process: Mutex<Option<Process>>,
}

impl Server {
    fn new(program: Program, port: u16, folder: &Path, arguments: Vec<String>) -> Server {
        let log = folder.join(format!("{}.log", program.file_name()));
        Server { program, arguments, log, port, process: Mutex::new(None) }
    }

    /// Starts it (again). Does not wait until it answers: see [`Cluster::ready`].
    pub fn start(&self) {
        let mut command: Command = dies_with_us(&self.program.path());
        command.args(&self.arguments);
        let process = Process::start(command, &self.log)
            .unwrap_or_else(|error| panic!("start {}: {error}", self.program.file_name()));
        *self.process.lock().expect("server") = Some(process);
    }

    /// SIGSTOP: connections stay open, are even accepted by the kernel, and nothing answers.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL, reaped on return: from here on connections are refused.
    pub fn kill(&self) {
        *self.process.lock().expect("server") = None;
    }

    pub fn restart(&self) {
        self.kill();
        self.start();
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.lock().expect("server").as_ref().map(Process::pid)
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.lock().expect("server");
        process.as_ref().expect("the server runs").signal(signal);
    }

    /// Panics with the end of its log when the program has ended by itself.
    fn assert_running(&self) {
        let mut process = self.process.lock().expect("server");
        let process = process.as_mut().expect("the server runs");
        if let Some(status) = process.ended() {
            let name = self.program.file_name();
            let tail = process.log_tail();
            panic!("{name} ended with {}; {}:\n{tail}", describe(status), self.log.display());
        }
    }
}

impl Cluster {
    /// A cluster of one's own, ready when this returns; stopped and removed when dropped.
    pub async fn start() -> Cluster {
        Cluster::start_with(&[]).await
    }

    /// With further flags for kube-apiserver, such as `--min-request-timeout=5` (short watches) or
    /// `--max-requests-inflight=1` (429).
    pub async fn start_with(flags: &[&str]) -> Cluster {
        // Nothing here has to survive the machine, only the process.
        Cluster::start_on(&["--unsafe-no-fsync=true"], flags).await
    }

    /// With an etcd that syncs each write to the disk, as in production: for latencies.
    pub async fn start_durable() -> Cluster {
        Cluster::start_on(&[], &[]).await
    }

    async fn start_on(etcd_flags: &[&str], flags: &[&str]) -> Cluster {
        // Both first: a missing program is told before anything is started.
        Program::Etcd.path();
        Program::KubeApiserver.path();
        let folder = fresh_folder();
        let pki = Pki::create(&folder).expect("keys and certificates");
        let admin_token = random_hex();
        fs::write(folder.join("tokens.csv"), format!("{admin_token},admin,admin,system:masters\n"))
            .expect("tokens.csv");
        fs::write(folder.join("audit-policy.yaml"), AUDIT_POLICY).expect("audit policy");

        let (client, peer, secure) = (free_port(), free_port(), free_port());
        let mut arguments = etcd_arguments(&folder, client, peer);
        arguments.extend(etcd_flags.iter().map(|flag| String::from(*flag)));
        let etcd = Server::new(Program::Etcd, client, &folder, arguments);
        let mut arguments = api_server_arguments(&folder, &pki, client, secure);
        arguments.extend(flags.iter().map(|flag| String::from(*flag)));
        let api_server = Server::new(Program::KubeApiserver, secure, &folder, arguments);
        let cluster = Cluster { folder, etcd, api_server, pki, admin_token, keep: false };
        cluster.etcd.start();
        cluster.api_server.start();
        cluster.ready().await;
        cluster
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_server.port)
    }

    pub fn ca_file(&self) -> &Path {
        &self.pki.ca
    }

    /// A proxy before the API server, to cut one candidate off: give it [`Proxy::url`].
    pub fn proxy(&self) -> Proxy {
        Proxy::start(self.api_server.port)
    }

    /// A client of group system:masters. Belongs to the runtime that calls this.
    pub fn admin(&self) -> kube::Client {
        self.client(&self.admin_token)
    }

    /// A client with this bearer token.
    pub fn client(&self, token: &str) -> kube::Client {
        client::new(&self.url(), &self.pki.ca, token)
    }

    /// What the API server was asked so far. Written before each answer leaves.
    pub fn audit(&self) -> Audit {
        Audit::read(&self.folder.join("audit.log"))
    }

    /// Waits until /readyz says ok: the RBAC rules of the start are in force then.
    pub async fn ready(&self) {
        let client = self.admin();
        let poll = Duration::from_millis(50);
        let wait = async {
            loop {
                self.etcd.assert_running();
                self.api_server.assert_running();
                let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
                let answer = client.request_text(request);
                if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(2), answer).await {
                    return;
                }
                tokio::time::sleep(poll).await;
            }
        };
        if tokio::time::timeout(READY_LIMIT, wait).await.is_err() {
            panic!("not ready within {READY_LIMIT:?}; logs: {}", self.folder.display());
        }
    }

    /// Copies etcd's data as it stands; requests only wait meanwhile. What a killed etcd would find.
    pub fn snapshot(&self) -> Snapshot {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let target = self.folder.join(format!("snapshot-{number}"));
        self.etcd.pause();
        copy_folder(&self.folder.join("etcd"), &target);
        self.etcd.resume();
        Snapshot(target)
    }

    /// Puts etcd back to an older state, as a careless restore does: resource versions go back too.
    /// The API server is started anew with it (its caches would know a future otherwise).
    pub async fn restore(&self, snapshot: &Snapshot) {
        self.api_server.kill();
        self.etcd.kill();
        let data = self.folder.join("etcd");
        fs::remove_dir_all(&data).expect("remove etcd's data");
        copy_folder(&snapshot.0, &data);
        self.etcd.start();
        self.api_server.start();
        self.ready().await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.api_server.kill();
        self.etcd.kill();
        self.keep |= std::thread::panicking();
        if self.keep {
            eprintln!("logs of the failed test's cluster: {}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// All requests at level Metadata, but not those the API server sends to itself.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:apiserver]
- level: None
  nonResourceURLs: ['*']
- level: Metadata
";

fn etcd_arguments(folder: &Path, client: u16, peer: u16) -> Vec<String> {
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls=http://127.0.0.1:{client}"),
        format!("--advertise-client-urls=http://127.0.0.1:{client}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
    ]
}

fn api_server_arguments(folder: &Path, pki: &Pki, etcd: u16, port: u16) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        // No controller manager runs here that would make the default accounts these plugins ask for.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--allow-privileged=true",
        // A line stands in the log before the answer leaves: a test may read it at once.
        "--audit-log-mode=blocking",
    ]
    .map(String::from)
    .into();
    arguments.push(format!("--etcd-servers=http://127.0.0.1:{etcd}"));
    arguments.push(format!("--secure-port={port}"));
    for (flag, path) in [
        ("--cert-dir", folder),
        ("--tls-cert-file", &pki.server_certificate),
        ("--tls-private-key-file", &pki.server_key),
        ("--service-account-key-file", &pki.service_account_public_key),
        ("--service-account-signing-key-file", &pki.service_account_key),
        ("--token-auth-file", &folder.join("tokens.csv")),
        ("--audit-policy-file", &folder.join("audit-policy.yaml")),
        ("--audit-log-path", &folder.join("audit.log")),
    ] {
        arguments.push(format!("{flag}={}", path.display()));
    }
    arguments
}

/// Below the range from which the kernel takes the ports of outgoing connections: a server that is
/// killed finds its port still free when it comes back.
fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run at the same time begin at different places.
    let offset =
        u16::try_from(u64::from(std::process::id()) * 97 % u64::from(COUNT)).expect("small");
    for _ in 0..COUNT {
        let port = FIRST + (offset + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}

/// `target/tmp/cluster-<pid>-<n>`. Those of processes that are gone are removed on the way.
fn fresh_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(parent).expect("target/tmp");
    for entry in fs::read_dir(parent).expect("target/tmp").flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let pid = name.strip_prefix("cluster-").and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("cluster-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the cluster");
    folder
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("create a folder");
    for entry in fs::read_dir(from).expect("read a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("copy a file");
        }
    }
}

fn random_hex() -> String {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).expect("random bytes");
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("to a string");
        text
    })
}
