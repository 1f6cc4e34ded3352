//! The client-go elector of `tests/peer` as a process, and the history it writes.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use serde::Deserialize;

use super::access::{Access, Namespace};
use super::binaries::Program;
use super::process::{Process, dies_with_us};

/// One line of a peer's history. Times are nanoseconds of CLOCK_BOOTTIME.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
pub struct PeerEvent {
    pub boottime_ns: u64,
    /// started, new_leader, started_leading, stopped_leading; create and update are writes to the Lease.
    pub event: String,
    pub identity: String,
    /// Of new_leader: the holder seen.
    #[serde(default)]
    pub leader: String,
    /// Of a write: when it was sent; `boottime_ns` is when its outcome was known.
    #[serde(default)]
    pub sent_ns: u64,
    /// Of a write: the holder written, empty for a release.
    #[serde(default)]
    pub holder: String,
    #[serde(default)]
    pub transitions: Option<u32>,
    /// Of a write that failed.
    #[serde(default)]
    pub error: String,
}

/// A client-go elector's timings. client-go counts in whole seconds what it writes.
#[derive(Debug, Clone, Copy)]
pub struct PeerTimings {
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

/// client-go's defaults.
impl Default for PeerTimings {
    fn default() -> Self {
        PeerTimings {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A running client-go elector; killed on drop.
#[derive(Debug)]
pub struct Peer {
    pub identity: String,
    history: PathBuf,
    process: Process,
}

impl Peer {
    /// Starts one that gives the Lease up when told to stop.
    pub fn start(
        namespace: &Namespace<'_>,
        access: &Access,
        lease: &str,
        identity: &str,
        timings: PeerTimings,
    ) -> Peer {
        let mut command = dies_with_us(&Program::Peer.path());
        command.arg(format!("--server={}", access.url));
        command.arg(format!("--ca-file={}", access.ca_file().display()));
        command.arg(format!("--token-file={}", access.token_file().display()));
        command.args([format!("--namespace={}", namespace.name), format!("--lease={lease}")]);
        command.args([format!("--identity={identity}"), "--release-on-cancel".into()]);
        for (flag, value) in [
            ("lease-duration", timings.lease_duration),
            ("renew-deadline", timings.renew_deadline),
            ("retry-period", timings.retry_period),
        ] {
            command.arg(format!("--{flag}={}ms", value.as_millis()));
        }
        let history = namespace.cluster.folder.join(format!("{}-{identity}.log", namespace.name));
        let process = Process::start(command, &history).expect("start the peer");
        Peer { identity: identity.into(), history, process }
    }

    /// What it has said so far. client-go's own log lines stand in the same file and are passed over.
    pub fn history(&self) -> Vec<PeerEvent> {
        let text = std::fs::read_to_string(&self.history).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().filter(|line| line.starts_with('{'));
        lines
            .map(|line| serde_json::from_str(line).expect("a line of the peer's history"))
            .collect()
    }

    /// Waits for the first event that `wanted` accepts; panics when `limit` has passed.
    pub async fn wait_for(
        &self,
        limit: Duration,
        wanted: impl Fn(&PeerEvent) -> bool,
    ) -> PeerEvent {
        let poll = async {
            loop {
                if let Some(event) = self.history().into_iter().find(&wanted) {
                    return event;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(limit, poll).await {
            Ok(event) => event,
            Err(_) => panic!(
                "{} did not say it in {limit:?}; {}:\n{}",
                self.identity,
                self.history.display(),
                self.process.log_tail()
            ),
        }
    }

    /// Waits until it leads.
    pub async fn leads(&self, limit: Duration) -> PeerEvent {
        self.wait_for(limit, |event| event.event == "started_leading").await
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether it has ended. It does once it has lost the Lease.
    pub fn ended(&mut self) -> bool {
        self.process.ended().is_some()
    }

    /// SIGTERM, SIGSTOP, SIGCONT, SIGKILL.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// SIGTERM, then waits for its end.
    pub async fn stop(&mut self, limit: Duration) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait(limit).await
    }
}
