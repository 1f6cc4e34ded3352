//! The two that are compared, each as real processes on one Lease: tenure's sidecar, and the client-go
//! elector of `tests/peer`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tenure::client::{Call, Endpoint, LeaderBody};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::cluster::access::CANDIDATE_VERBS;
use crate::cluster::peer::PeerTimings;
use crate::cluster::process::{Process, dies_with_us};
use crate::cluster::{Access, Namespace, Peer};

/// Only a hang may pass it.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);
pub(crate) const LEASE: &str = "contested";

/// CLOCK_BOOTTIME in nanoseconds: the clock of tenure's answers and of the peer's history.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).expect("after boot") * 1_000_000_000
        + u64::try_from(now.tv_nsec).expect("nanoseconds")
}

/// The release build that is measured.
pub(crate) fn binary() -> PathBuf {
    let given = std::env::var_os("TENURE_BINARY").map(PathBuf::from);
    let path =
        given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/static/tenure"));
    assert!(path.is_file(), "{} is missing: run make release-musl", path.display());
    path
}

/// What the stream of a sidecar has said, and when it was read.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) at_ns: u64,
    pub(crate) name: String,
    pub(crate) leader: bool,
}

pub(crate) type Ear = mpsc::UnboundedReceiver<Told>;

/// What candidates of one Lease have in common.
pub(crate) struct Race<'a> {
    pub(crate) namespace: Namespace<'a>,
    pub(crate) timings: PeerTimings,
    mouth: mpsc::UnboundedSender<Told>,
    pub(crate) ear: Ear,
    started: u32,
}

impl<'a> Race<'a> {
    /// In a namespace with an empty Lease.
    pub(crate) async fn new(namespace: Namespace<'a>, timings: PeerTimings) -> Race<'a> {
        namespace.create_lease(LEASE, LeaseSpec::default()).await;
        let (mouth, ear) = mpsc::unbounded_channel();
        Race { namespace, timings, mouth, ear, started: 0 }
    }

    /// An account of its own, so that the audit log tells its requests from all others.
    pub(crate) async fn access(&self, account: &str) -> Access {
        self.namespace.service_account(account).await;
        self.namespace.allow(account, LEASE, &CANDIDATE_VERBS).await;
        self.namespace.access_of(account, None).await
    }

    /// A sidecar in a new pod.
    pub(crate) fn tenure(&mut self, access: &Access, name: &str) -> Tenure {
        self.started += 1;
        let uid = format!("{}-{}", self.namespace.name, self.started);
        self.tenure_in(access, name, &uid)
    }

    /// A sidecar in this pod.
    pub(crate) fn tenure_in(&self, access: &Access, name: &str, uid: &str) -> Tenure {
        let folder = &self.namespace.cluster.folder;
        let socket = folder.join(format!("{name}.{}.sock", self.namespace.name));
        let log = folder.join(format!("{}-{uid}-{name}.log", self.namespace.name));
        let _ = std::fs::remove_file(&socket);
        let mut command = dies_with_us(&binary());
        command.args(["sidecar", "--log-format=json", "--lease-name", LEASE]);
        command.args(["--namespace", &self.namespace.name, "--pod-name", name, "--pod-uid", uid]);
        command.args(["--server", &access.url, "--ca-file"]).arg(access.ca_file());
        command.arg("--token-file").arg(access.token_file()).arg("--socket").arg(&socket);
        command.args(["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"]);
        for (flag, value) in [
            ("lease-duration", self.timings.lease_duration),
            ("renew-deadline", self.timings.renew_deadline),
            ("retry-period", self.timings.retry_period),
        ] {
            command.arg(format!("--{flag}={}ms", value.as_millis()));
        }
        let process = Process::start(command, &log).expect("start tenure");
        let stream = tokio::spawn(listen(socket.clone(), name.to_owned(), self.mouth.clone()));
        Tenure {
            name: name.into(),
            uid: uid.into(),
            access: access.clone(),
            process,
            socket,
            stream,
        }
    }

    /// A client-go elector, which gives the Lease up when it is told to stop.
    pub(crate) fn client_go(&mut self, access: &Access, identity: &str) -> Peer {
        Peer::start(&self.namespace, access, LEASE, identity, self.timings)
    }

    /// The first sidecar that says from now on that it leads, other than `not`.
    pub(crate) async fn next_leader(&mut self, not: Option<&str>) -> Told {
        let next = async {
            loop {
                let told = self.ear.recv().await.expect("a sender is kept");
                if told.leader && Some(told.name.as_str()) != not {
                    return told;
                }
            }
        };
        tokio::time::timeout(LIMIT, next).await.expect("somebody leads")
    }

    /// Forgets what was said so far.
    pub(crate) fn forget(&mut self) {
        while self.ear.try_recv().is_ok() {}
    }
}

/// One `tenure sidecar`, with somebody who reads its event stream. Killed on drop.
pub(crate) struct Tenure {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) access: Access,
    pub(crate) process: Process,
    pub(crate) socket: PathBuf,
    stream: JoinHandle<()>,
}

impl Drop for Tenure {
    fn drop(&mut self) {
        self.stream.abort();
    }
}

impl Tenure {
    pub(crate) async fn leader(&self) -> LeaderBody {
        let answer = Call::get("/leader").send(&self.endpoint(), LIMIT).await.expect("an answer");
        serde_json::from_slice(&answer.body).expect("the body of /leader")
    }

    /// The guarded work has stopped. Does not wait for the release itself.
    pub(crate) async fn release(&self) {
        let body = r#"{"wait": "0s"}"#.to_owned();
        let call = Call { method: http::Method::POST, target: "/release", body, bearer: None };
        let answer = call.send(&self.endpoint(), LIMIT).await.expect("an answer");
        assert!(answer.status.is_success(), "{}", answer.error());
    }

    /// An app that holds the stream: a process of its own, killed on drop.
    pub(crate) async fn hold(&self) -> Process {
        let mut command = dies_with_us(Path::new("curl"));
        command.args(["-sN", "--unix-socket"]).arg(&self.socket);
        command.arg("http://localhost/leader/events?hold=true");
        let app = Process::start(command, Path::new("/dev/null")).expect("start curl");
        self.until(|body| body["holds"] == 1).await;
        app
    }

    /// Until it follows somebody over a watch, ready to take over.
    pub(crate) async fn follows(&self) {
        self.until(|body| body["state"] == "following").await;
    }

    async fn until(&self, wanted: impl Fn(&Value) -> bool) {
        let wait = async {
            loop {
                let answer = Call::get("/leader?max_valid=1ms").send(&self.endpoint(), LIMIT).await;
                if answer.is_ok_and(|answer| {
                    serde_json::from_slice(&answer.body).is_ok_and(|body| wanted(&body))
                }) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.expect("it comes to be");
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.socket.clone())
    }

    /// `127.0.0.1:PORT` of its local API.
    pub(crate) fn tcp(&self) -> String {
        let log = std::fs::read_to_string(&self.process.log).expect("its log");
        let starts = log.lines().find(|line| line.contains("tenure starts")).expect("it started");
        let at = starts.find("127.0.0.1:").expect("an address");
        let end = starts[at..].find(|c: char| !c.is_ascii_digit() && !".:".contains(c));
        starts[at..at + end.expect("more text")].to_owned()
    }
}

/// Reads the event stream as an app would, from the moment on when there is one.
async fn listen(socket: PathBuf, name: String, mouth: mpsc::UnboundedSender<Told>) {
    let mut stream = loop {
        match UnixStream::connect(&socket).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    let request = b"GET /leader/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if stream.write_all(request).await.is_err() {
        return;
    }
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let at_ns = now_ns();
        // Renewals are events of another shape.
        if let Some(leader) = line
            .strip_prefix("data: ")
            .and_then(|json| serde_json::from_str::<Value>(json).ok())
            .and_then(|body| body["leader"].as_bool())
        {
            let _ = mouth.send(Told { at_ns, name: name.clone(), leader });
        }
    }
}

/// What a process takes, from /proc.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) resident_kib: u64,
    /// Anonymous and otherwise its own: what each further copy on a node costs.
    pub(crate) private_kib: u64,
    pub(crate) cpu_ticks: u64,
}

pub(crate) fn usage(pid: u32) -> Usage {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).expect("proc");
    let sum = |text: &str, fields: &[&str]| -> u64 {
        let lines = text.lines().filter(|line| fields.iter().any(|field| line.starts_with(field)));
        lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    };
    let stat = read("stat");
    let after_name = &stat[stat.rfind(')').expect("a name") + 2..];
    let ticks = after_name.split(' ').skip(11).take(2).map(|text| text.parse::<u64>().unwrap());
    Usage {
        resident_kib: sum(&read("status"), &["VmRSS:"]),
        private_kib: sum(&read("smaps_rollup"), &["Private_Clean:", "Private_Dirty:"]),
        cpu_ticks: ticks.sum(),
    }
}

/// One SIGKILL to a peer.
pub(crate) fn kill(peer: &Peer) -> u64 {
    let at = now_ns();
    peer.signal(Signal::KILL);
    at
}

/// A program's standard output, trimmed; empty where it cannot be had.
pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or(String::new(), |it| String::from_utf8_lossy(&it.stdout).trim().to_owned())
}
