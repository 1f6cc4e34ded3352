//! Every example against a real sidecar: it works, stops when leadership is given up, works on with a
//! greater epoch, stops when the sidecar dies, and lets another lead when it ends itself.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use tenure::client::{Call, Endpoint};

const PATIENCE: Duration = Duration::from_secs(60);

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

struct Sidecar {
    child: Child,
    url: String,
}

/// A free port. Somebody else may take it before we do: then the sidecar says so and the test fails.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Sidecar {
    async fn start(port: u16) -> Self {
        let listen = format!("127.0.0.1:{port}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command
            .args(["sidecar", "--dev", "--lease-name=example", "--listen", &listen])
            .args(["--lease-duration=6s", "--renew-deadline=4s", "--retry-period=1s"])
            .args(["--admin-listen=127.0.0.1:0", "--log=warn"])
            .env_clear()
            .kill_on_drop(true);
        let sidecar = Self { child: command.spawn().unwrap(), url: format!("http://{listen}") };
        sidecar.until(|said| said["leader"] == true).await;
        sidecar
    }

    fn endpoint(&self) -> Endpoint {
        self.url.parse().unwrap()
    }

    async fn until(&self, condition: impl Fn(&Value) -> bool) -> Value {
        let asking = async {
            loop {
                // With the least grant: nothing here must delay a release.
                let call = Call::get("/leader?max_valid=1ms");
                if let Ok(answer) = call.send(&self.endpoint(), PATIENCE).await {
                    let said = serde_json::from_slice(&answer.body).unwrap();
                    if condition(&said) {
                        return said;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("the sidecar never says so")
    }

    async fn release(&self) {
        let body = r#"{"cool_down": "1s"}"#.into();
        let call = Call { method: http::Method::POST, target: "/release", body, bearer: None };
        let answer = call.send(&self.endpoint(), PATIENCE).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// The lines of an example, read with patience.
struct Said(Lines<BufReader<ChildStdout>>);

impl Said {
    async fn next(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.0.next_line()).await;
        line.expect("the example is silent").unwrap().expect("the example has ended")
    }

    /// The epoch of the next unit of work.
    async fn work(&mut self) -> u64 {
        loop {
            let line = self.next().await;
            match line.strip_prefix("work epoch=") {
                Some(epoch) => return epoch.parse().unwrap(),
                None => assert_eq!(line, "stop"),
            }
        }
    }

    async fn stop(&mut self) {
        while self.next().await != "stop" {}
    }
}

fn terminate(child: &Child) {
    let id = Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
}

async fn check(mut example: Command) {
    let port = free_port();
    let mut sidecar = Sidecar::start(port).await;
    let child = example.env("TENURE_URL", &sidecar.url).stdin(Stdio::null());
    let mut child = child.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut said = Said(BufReader::new(child.stdout.take().unwrap()).lines());
    let first = said.work().await;

    // Given up: it stops, and goes on with a greater epoch.
    sidecar.release().await;
    said.stop().await;
    let second = said.work().await;
    assert!(second > first, "{second} after {first}");

    // The sidecar is gone: silence ends leadership, though nobody said so.
    sidecar.child.kill().await.unwrap();
    said.stop().await;
    sidecar = Sidecar::start(port).await;
    said.work().await;

    // The app ends: that, or its last words, lets another lead.
    terminate(&child);
    tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    sidecar.until(|now| now["reason"] == "released" || now["reason"] == "app_exited").await;
}

/// Whether a program can be started. Where it cannot, its example is not run, and that is said.
fn is_here(program: &str, flag: &str) -> bool {
    let found = std::process::Command::new(program)
        .arg(flag)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        eprintln!("not run: this machine has no {program}");
    }
    found
}

fn on_file(program: &str, file: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(examples().join(file));
    command
}

#[tokio::test]
async fn shell() {
    if is_here("curl", "--version") {
        check(on_file("sh", "shell/app.sh")).await;
    }
}

#[tokio::test]
async fn python() {
    if is_here("python3", "--version") {
        check(on_file("python3", "python/app.py")).await;
    }
}

#[tokio::test]
async fn node() {
    if is_here("node", "--version") {
        check(on_file("node", "node/app.mjs")).await;
    }
}

#[tokio::test]
async fn java() {
    if is_here("java", "--version") {
        check(on_file("java", "java/App.java")).await;
    }
}

#[tokio::test]
async fn go() {
    if is_here("go", "version") {
        let directory = tempfile::tempdir().unwrap();
        let built = directory.path().join("app");
        let mut build = Command::new("go");
        build.arg("build").arg("-o").arg(&built).arg(".").current_dir(examples().join("go"));
        assert!(build.status().await.unwrap().success());
        check(Command::new(built)).await;
    }
}

#[tokio::test]
async fn rust() {
    let built = Path::new(env!("CARGO_BIN_EXE_tenure")).with_file_name("examples/rust");
    // A run of all tests has built it; a run of this one alone has not.
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--example", "rust"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !built.exists() {
        assert!(build.status().await.unwrap().success());
    }
    check(Command::new(built)).await;
}
