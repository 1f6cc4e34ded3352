//! The guarded app: what anybody's app does, as small as it can be.
//!
//! It asks its sidecar, and while it leads, it reads the register, works, and writes one more,
//! with its epoch on every call. It looks at its deadline before each write. What comes between
//! that look and the write's arrival, nobody can check: that is what the fence is for.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use super::output::say;
use super::stage::boottime;
use crate::client::{Answer, Call, Endpoint, LeaderBody};

/// Told on its standard input: stop working and give leadership up.
pub(super) const RELEASE: &str = "release";

/// How long the app waits for any answer.
const CALL_BOUND: Duration = Duration::from_secs(1);
/// A write's way to the register.
const ON_ITS_WAY: Duration = Duration::from_millis(40);
/// Between two rounds.
const ROUND: Duration = Duration::from_millis(60);

struct App {
    name: String,
    sidecar: Endpoint,
    register: Endpoint,
    /// The epoch of the last grant.
    epoch: Option<u64>,
}

/// A grant, as its reader has to take it.
struct Grant {
    epoch: u64,
    deadline: Duration,
}

pub(super) fn main(arguments: &[OsString]) -> ExitCode {
    let arguments: Vec<&str> = arguments.iter().filter_map(|text| text.to_str()).collect();
    let [name, sidecar, register] = arguments[..] else { return ExitCode::FAILURE };
    let (Ok(sidecar), Ok(register)) = (sidecar.parse(), register.parse()) else {
        return ExitCode::FAILURE;
    };
    let app = App { name: name.to_owned(), sidecar, register, epoch: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return ExitCode::FAILURE };
    runtime.block_on(app.run());
    // A read of standard input cannot be taken back.
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

impl App {
    /// Until standard input ends: whoever started it is gone.
    async fn run(mut self) {
        let mut told: Lines<BufReader<Stdin>> = BufReader::new(tokio::io::stdin()).lines();
        loop {
            if let Some(grant) = self.ask().await {
                self.epoch = Some(grant.epoch);
                self.add_one(&grant).await;
            }
            match tokio::time::timeout(ROUND, told.next_line()).await {
                Err(_) => {}
                Ok(Ok(Some(line))) if line == RELEASE => self.release().await,
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None) | Err(_)) => return,
            }
        }
    }

    async fn ask(&self) -> Option<Grant> {
        let asked = boottime();
        let answer = Call::get("/leader").send(&self.sidecar, CALL_BOUND).await.ok()?;
        let body: LeaderBody = serde_json::from_slice(&answer.body).ok()?;
        let granted = Duration::from_millis(body.waited_ms.saturating_add(body.valid_for_ms));
        let epoch = body.epoch.filter(|_| body.leader)?;
        Some(Grant { epoch, deadline: asked.saturating_add(granted) })
    }

    /// Read, work, write. A refusal means that a greater epoch was here: nothing is left to do.
    async fn add_one(&self, grant: &Grant) {
        #[derive(Deserialize)]
        struct Value {
            value: u64,
        }
        let begun = self.post("/begin", grant.epoch, None).await;
        let begun = begun.filter(|answer| answer.status == StatusCode::OK);
        let value = begun.and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
        let Some(Value { value }) = value else { return };
        if boottime() < grant.deadline {
            // So that it can be frozen just here.
            self.post("/sent", grant.epoch, None).await;
            tokio::time::sleep(ON_ITS_WAY).await;
            self.post("/commit", grant.epoch, Some(value + 1)).await;
        }
    }

    async fn post(&self, target: &str, epoch: u64, value: Option<u64>) -> Option<Answer> {
        let body = serde_json::json!({ "pod": self.name, "epoch": epoch, "value": value });
        let call = Call { method: Method::POST, target, body: body.to_string(), bearer: None };
        call.send(&self.register, CALL_BOUND).await.ok()
    }

    /// The guarded work has stopped: nothing is on its way any more.
    async fn release(&mut self) {
        let Some(epoch) = self.epoch.take() else { return };
        // The director measures from here.
        say(&serde_json::json!({ "epoch": epoch, "at_ns": boottime().as_nanos() as u64 })
            .to_string());
        let body = serde_json::json!({ "epoch": epoch }).to_string();
        let call = Call { method: Method::POST, target: "/release", body, bearer: None };
        // Without an answer the term goes on, and so does the work.
        drop(call.send(&self.sidecar, Duration::from_secs(5)).await);
    }
}
