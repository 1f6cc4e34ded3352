//! A real sidecar on the real API server that writes its history, and the app beside it.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tenure::client::{Call, Endpoint};
use tokio::task::JoinHandle;

use crate::cluster::Access;
use crate::cluster::process::{Process, dies_with_us};
use crate::facts::{self, Fact, boottime};
use crate::witness::Register;

/// L, R and P, as flags take them.
pub type Timing = [&'static str; 3];

/// Between two questions of an app, and the most that one of them grants.
const POLL: Duration = Duration::from_millis(100);
const MAX_VALID_MS: u64 = 500;

#[derive(Debug)]
pub struct Tenure {
    pub identity: String,
    pub endpoint: Endpoint,
    log: PathBuf,
    process: Process,
}

/// Where a sidecar runs: a pod as far as it knows.
#[derive(Debug, Clone)]
pub struct Pod<'a> {
    pub namespace: &'a str,
    pub lease: &'a str,
    pub name: String,
    pub uid: String,
    pub access: Access,
    pub timing: Timing,
    /// For sockets and logs; its path is short.
    pub folder: &'a Path,
}

impl Tenure {
    /// `life` tells processes of one pod apart.
    pub fn start(pod: &Pod<'_>, life: u32, more: &[&str]) -> Tenure {
        let file = |kind: &str| pod.folder.join(format!("{}-{life}.{kind}", pod.name));
        let (socket, log) = (file("s"), file("log"));
        let mut command = dies_with_us(Path::new(env!("CARGO_BIN_EXE_tenure")));
        let [lease_duration, renew_deadline, retry_period] = pod.timing;
        command.env_clear().args(["sidecar", "--lease-name", pod.lease]);
        command.args(["--namespace", pod.namespace, "--pod-name", &pod.name]);
        command.args(["--pod-uid", &pod.uid, "--lease-duration", lease_duration]);
        command.args(["--renew-deadline", renew_deadline, "--retry-period", retry_period]);
        command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        command.args(["--log-format", "json", "--log", "info,tenure::history=trace"]);
        command.args(["--server", &pod.access.url]);
        command.arg("--ca-file").arg(pod.access.ca_file());
        command.arg("--token-file").arg(pod.access.token_file());
        command.arg("--socket").arg(&socket).args(more);
        let process = Process::start(command, &log).expect("start tenure");
        let identity = format!("{}_{}", pod.name, pod.uid);
        Tenure { identity, endpoint: Endpoint::Unix(socket), log, process }
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        self.process.wait(limit).await
    }

    /// None: no answer within `limit`.
    pub async fn get(&self, target: &str, limit: Duration) -> Option<Value> {
        get(&self.endpoint, target, limit).await
    }

    pub async fn post(&self, target: &str, body: Value, limit: Duration) -> Option<Value> {
        let call = Call { method: Method::POST, target, body: body.to_string(), bearer: None };
        let answer = call.send(&self.endpoint, limit).await.ok()?;
        serde_json::from_slice(&answer.body).ok()
    }

    /// Its metrics, as text.
    pub async fn metrics(&self) -> String {
        let starts = self.lines("tenure starts").remove(0);
        let at: Endpoint = format!("http://{}", starts["admin"].as_str().expect("an address"))
            .parse()
            .expect("an endpoint");
        let answer = Call::get("/metrics").send(&at, Duration::from_secs(30)).await;
        String::from_utf8(answer.expect("metrics").body.to_vec()).expect("text")
    }

    /// The log lines whose message contains this.
    pub fn lines(&self, message: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|line| line["message"].as_str().is_some_and(|text| text.contains(message)))
            .collect()
    }

    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.contains("tenure::history")).collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn history(&self, who: &str) -> Vec<Fact> {
        facts::of_tenure(who, &self.log)
    }
}

async fn get(endpoint: &Endpoint, target: &str, limit: Duration) -> Option<Value> {
    let answer = Call::get(target).send(endpoint, limit).await.ok()?;
    serde_json::from_slice(&answer.body).ok()
}

/// The guarded work beside one sidecar: it asks, and writes to the register while it may.
#[derive(Debug)]
pub struct App {
    who: String,
    register: Arc<Register>,
    stop: Arc<AtomicBool>,
    /// The epoch it last worked in.
    epoch: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl App {
    pub fn start(who: &str, endpoint: &Endpoint, register: Arc<Register>) -> App {
        let stop = Arc::new(AtomicBool::new(false));
        let epoch = Arc::new(AtomicU64::new(0));
        let shared = (register.clone(), stop.clone(), epoch.clone());
        let task = tokio::spawn(work(who.to_owned(), endpoint.clone(), shared));
        App { who: who.to_owned(), register, stop, epoch, task }
    }

    async fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        (&mut self.task).await.expect("the app's task");
    }

    /// Stops the work, and only then returns. The epoch of its last work.
    pub async fn stop(mut self) -> Option<u64> {
        self.end().await;
        self.register.stopped(&self.who);
        Some(self.epoch.load(Ordering::SeqCst)).filter(|epoch| *epoch > 0)
    }

    /// Ends it without a word: what it was granted stands until it lapses.
    pub async fn abandon(mut self) {
        self.end().await;
    }
}

async fn work(
    who: String,
    endpoint: Endpoint,
    (register, stop, epoch): (Arc<Register>, Arc<AtomicBool>, Arc<AtomicU64>),
) {
    let target = format!("/leader?max_valid={MAX_VALID_MS}ms");
    while !stop.load(Ordering::SeqCst) {
        let asked = boottime();
        if let Some(answer) = get(&endpoint, &target, POLL * 3).await
            && answer["leader"] == json!(true)
            && let (Some(term), Some(valid)) =
                (answer["epoch"].as_u64(), answer["valid_for_ms"].as_u64())
        {
            let deadline = asked + valid * 1_000_000;
            epoch.store(term, Ordering::SeqCst);
            register.write(&who, term, deadline);
            tokio::time::sleep(POLL / 2).await;
            register.write(&who, term, deadline);
        }
        tokio::time::sleep(POLL / 2).await;
    }
}
