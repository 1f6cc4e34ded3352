//! The three pods: two processes each, a sidecar and an app.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::board::{Kind, Life, PODS};
use super::stage::Stage;
use super::{LEASE, NAMESPACE, app, part, watch};
use crate::client::Endpoint;
use crate::embedded::LeaseApi;
use crate::identity;
use crate::timing::Timing;

/// All that a pod needs from its surroundings.
#[derive(Debug)]
pub(super) struct Theatre {
    pub(super) timing: Timing,
    pub(super) lease_api: LeaseApi,
    pub(super) stage: Arc<Stage>,
    lease_api_address: SocketAddr,
    register: Endpoint,
    /// Sockets and tokens, for nobody else; gone at the end.
    directory: PrivateDirectory,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").finish_non_exhaustive()
    }
}

impl Theatre {
    pub(super) fn new(
        timing: Timing,
        lease_api: LeaseApi,
        lease_api_address: SocketAddr,
        register: Endpoint,
        stage: Arc<Stage>,
    ) -> io::Result<Self> {
        let directory = PrivateDirectory::new()?;
        Ok(Self { timing, lease_api, stage, lease_api_address, register, directory })
    }

    /// A part of this demo: this binary once more. Its own process group, so that Ctrl-C reaches
    /// only the director.
    fn part(&self, role: &str) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([part::WORD, role, &std::process::id().to_string()]);
        // Nothing of this shell's TENURE_* is meant for it.
        let ours = std::env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| name.as_encoded_bytes().starts_with(b"TENURE_"));
        for name in ours {
            command.env_remove(name);
        }
        command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("KUBERNETES_SERVICE_PORT");
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }
}

/// Two processes. Dropped, it kills both.
#[derive(Debug)]
pub(super) struct Pod {
    sidecar: Child,
    app: Child,
    tasks: Vec<JoinHandle<()>>,
}

impl Pod {
    /// Starts a pod of a new uid; `generation` tells it from its predecessors.
    pub(super) fn start(theatre: &Theatre, index: usize, generation: u32) -> io::Result<Self> {
        let name = PODS[index];
        let token = theatre.directory.path.join(format!("{name}.token"));
        // The embedded API takes a token for its bearer's name.
        std::fs::write(&token, name)?;
        let socket = theatre.directory.path.join(format!("{name}-{generation}.sock"));
        let sidecar_at = Endpoint::Unix(socket.clone());
        let mut sidecar = theatre.sidecar(name, &socket, &token)?.spawn()?;
        let mut command = theatre.part(part::APP)?;
        command.args([name.to_owned(), sidecar_at.to_string(), theatre.register.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut app = command.spawn()?;
        let mut tasks = vec![tokio::spawn(watch::follow(theatre.stage.clone(), index, sidecar_at))];
        if let Some(out) = app.stdout.take() {
            tasks.push(tokio::spawn(hear_app(theatre.stage.clone(), index, out)));
        }
        if let Some(log) = sidecar.stderr.take() {
            tasks.push(tokio::spawn(hear_sidecar(theatre.stage.clone(), index, log)));
        }
        theatre.stage.change(|board| board.set_life(index, Life::Running));
        Ok(Self { sidecar, app, tasks })
    }

    /// Tells the app to stop its work and give leadership up.
    pub(super) async fn tell_release(&mut self) -> io::Result<()> {
        let Some(stdin) = &mut self.app.stdin else { return Ok(()) };
        stdin.write_all(format!("{}\n", app::RELEASE).as_bytes()).await
    }

    /// The app first: nothing of it must be let go on by a sidecar that still answers.
    pub(super) fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn go_on(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        for child in [&self.app, &self.sidecar] {
            let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            // Without an id it has ended and was reaped: its number may be somebody else's.
            if let Some(id) = id {
                kill_process(id, signal)?;
            }
        }
        Ok(())
    }

    /// Kills both and waits until they are gone.
    pub(super) async fn kill(mut self) -> io::Result<()> {
        self.sidecar.start_kill()?;
        self.app.start_kill()?;
        self.sidecar.wait().await?;
        self.app.wait().await?;
        Ok(())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Theatre {
    fn sidecar(&self, name: &str, socket: &Path, token: &Path) -> io::Result<Command> {
        let uid = identity::new_incarnation()?;
        let ms = |span: std::time::Duration| format!("{}ms", span.as_millis());
        let mut command = self.part(part::SIDECAR)?;
        let flags = [
            ("--lease-name", LEASE.to_owned()),
            ("--namespace", NAMESPACE.to_owned()),
            ("--pod-name", name.to_owned()),
            ("--pod-uid", uid.to_string()),
            ("--lease-duration", ms(self.timing.lease_duration())),
            ("--renew-deadline", ms(self.timing.renew_deadline())),
            ("--retry-period", ms(self.timing.retry_period())),
            ("--server", format!("http://{}", self.lease_api_address)),
            ("--listen", "127.0.0.1:0".to_owned()),
            ("--admin-listen", "127.0.0.1:0".to_owned()),
            ("--log-format", "json".to_owned()),
            ("--log", "warn".to_owned()),
        ];
        for (flag, value) in flags {
            command.args([flag, &value]);
        }
        let paths: [(&str, &Path); 2] = [("--socket", socket), ("--token-file", token)];
        for (flag, path) in paths {
            command.args([OsStr::new(flag), path.as_os_str()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(command)
    }
}

/// The app says when it has stopped its work.
async fn hear_app(stage: Arc<Stage>, pod: usize, out: impl AsyncRead + Unpin) {
    #[derive(Deserialize)]
    struct Word {
        epoch: u64,
        at_ns: u64,
    }
    let mut lines = BufReader::new(out).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(Word { epoch, at_ns }) = serde_json::from_str(&line) {
            let at = std::time::Duration::from_nanos(at_ns);
            stage.change(|board| board.strike(Kind::Release, pod, epoch, at));
        }
    }
}

/// Warnings and errors of the sidecar, and its last words where it could not start.
async fn hear_sidecar(stage: Arc<Stage>, pod: usize, log: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(log).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let text = parsed["message"].as_str().unwrap_or(&line);
        let text = format!("{} logs: {text}", PODS[pod]);
        stage.change(|board| board.tell("log", text, json!({ "pod": PODS[pod], "line": line })));
    }
}

/// A directory that only we can enter, removed with all that is in it.
#[derive(Debug)]
struct PrivateDirectory {
    path: PathBuf,
}

impl PrivateDirectory {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("tenure-demo-{}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            // Left behind by a crash of a process that had our number; not if it is another user's.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_dir_all(&path)?;
                DirBuilder::new().mode(0o700).create(&path)?;
            }
            made => made?,
        }
        Ok(Self { path })
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own clearing of temporary files.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
