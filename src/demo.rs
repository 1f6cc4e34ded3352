//! `tenure demo`: three real sidecars on an embedded Lease API, each beside a small guarded app, and
//! a director that does to their leaders what clusters do.
//!
//! Everything that moves is a process of its own: three `tenure sidecar`, three apps. The director,
//! the Lease API and the register that the apps write to live in this one. What it started ends
//! with it, however it ends.

mod api;
mod app;
mod board;
mod director;
mod output;
mod part;
#[cfg(feature = "demo-tui")]
mod past;
#[cfg(feature = "demo-tui")]
mod picture;
mod pods;
mod register;
mod stage;
mod summary;
#[cfg(feature = "demo-tui")]
mod svg;
#[cfg(feature = "demo-tui")]
mod terminal;
mod watch;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::cli::UsageError;
use crate::cli::demo::DemoArgs;
use crate::embedded::LeaseApi;
use crate::timing::Timing;

pub use part::part;

use board::Board;
use director::Director;
use output::Output;
use pods::Theatre;
use stage::Stage;

/// The Lease that the three compete for.
const NAMESPACE: &str = "demo";
const LEASE: &str = "register";

/// What `tenure demo` is told, made sound.
#[derive(Debug)]
pub struct Demo {
    timing: Timing,
    duration: Option<Duration>,
    seed: u64,
    fence: bool,
    json: bool,
    plain: bool,
    #[cfg_attr(not(feature = "demo-tui"), expect(dead_code, reason = "refused there"))]
    picture: Option<PathBuf>,
    api_only: bool,
    listen: std::net::SocketAddr,
    write_kubeconfig: Option<PathBuf>,
}

impl Demo {
    /// Makes the arguments sound.
    ///
    /// # Errors
    /// The first one that is not, as one line.
    pub fn new(args: DemoArgs) -> Result<Self, UsageError> {
        let DemoArgs {
            lease_duration,
            renew_deadline,
            retry_period,
            duration,
            seed,
            no_fence,
            json,
            plain,
            picture,
            api_only,
            listen,
            write_kubeconfig,
        } = args;
        let timing = Timing::new(lease_duration, renew_deadline, retry_period)
            .map_err(|error| UsageError::line(&error.to_string()))?;
        if !listen.ip().is_loopback() {
            // It asks nobody who he is.
            return Err(UsageError::value("--listen", listen, "allowed: loopback addresses"));
        }
        if picture.is_some() && cfg!(not(feature = "demo-tui")) {
            let problem = "this build has no pictures (feature demo-tui)";
            return Err(UsageError::flag("--picture", problem));
        }
        let seed = match seed {
            Some(seed) => seed,
            // Short enough to be typed again.
            None => getrandom::u32().map_err(|error| UsageError::flag("--seed", error))?.into(),
        };
        let fence = !no_fence;
        Ok(Self {
            timing,
            duration,
            seed,
            fence,
            json,
            plain,
            picture,
            api_only,
            listen,
            write_kubeconfig,
        })
    }

    /// Runs until its time is over or it is told to stop. 0 if all that was promised was seen, 1 if
    /// not or if something could not be started, 2 where an address or a file cannot be had.
    pub async fn run(self) -> ExitCode {
        let end = match stopped() {
            Ok(end) => end,
            Err(error) => return failed("signals", &error, 1),
        };
        let listener = match TcpListener::bind(self.listen).await {
            Ok(listener) => listener,
            Err(error) => return failed(&format!("--listen={}", self.listen), &error, 2),
        };
        let lease_api = LeaseApi::new();
        let address = match listener.local_addr() {
            Ok(address) => address,
            Err(error) => return failed("Lease API", &error, 1),
        };
        if let Some(path) = &self.write_kubeconfig
            && let Err(error) = api::write_kubeconfig(path, address)
        {
            return failed(&format!("--write-kubeconfig={}", path.display()), &error, 2);
        }
        if self.api_only {
            api::serve_with_discovery(&lease_api, listener);
            return self.only_the_api(address, end).await;
        }
        let server = match lease_api.serve(listener) {
            Ok(server) => server,
            Err(error) => return failed("Lease API", &error, 1),
        };
        match self.play(lease_api, server.addr(), end).await {
            Ok(code) => code,
            Err(error) => failed("demo", &error, 1),
        }
    }

    async fn only_the_api(self, address: std::net::SocketAddr, end: impl Future) -> ExitCode {
        output::say(&format!("Lease API on http://{address}"));
        match &self.write_kubeconfig {
            Some(path) => output::say(&format!("kubeconfig in {}", path.display())),
            None => output::say("for kubectl: --write-kubeconfig=PATH"),
        }
        tokio::select! {
            _ = end => {}
            () = pause(self.duration) => {}
        }
        ExitCode::SUCCESS
    }

    async fn play(
        self,
        lease_api: LeaseApi,
        address: std::net::SocketAddr,
        end: impl Future,
    ) -> std::io::Result<ExitCode> {
        lease_api.recreate(NAMESPACE, LEASE, serde_json::json!({}));
        let terminal = self.on_a_terminal();
        let (output, happenings) = Output::new(self.json, !terminal);
        let board = Board::new(&self.timing, self.seed, self.fence, happenings);
        let stage = Arc::new(Stage::new(board));
        let register = register::open(stage.clone()).await?;
        let theatre = Theatre::new(self.timing, lease_api, address, register, stage.clone())?;
        let (commands, keys) = mpsc::channel(1);
        let director = Director::new(theatre, keys, self.seed);
        let printing = tokio::spawn(output.run());
        #[cfg(feature = "demo-tui")]
        let past = past::Past::of(stage.clone());
        {
            #[cfg(feature = "demo-tui")]
            let showing = self.show(
                terminal,
                picture::Scene { timing: self.timing, stage: &stage, past: &past },
                commands,
            );
            // Kept: a closed channel would say that the keys are gone.
            #[cfg(not(feature = "demo-tui"))]
            let showing = never(commands);
            tokio::select! {
                _ = end => {}
                () = pause(self.duration) => {}
                shown = showing => shown?,
                played = director.run() => played?,
            }
        }
        #[cfg(feature = "demo-tui")]
        if let Some(path) = &self.picture {
            svg::write(path, &picture::Scene { timing: self.timing, stage: &stage, past: &past })?;
        }
        let summary = stage.change(|board| board.summarize());
        // The board holds the sender: with it gone, what was said is printed to its end.
        stage.change(Board::fall_silent);
        drop(printing.await);
        output::say(&if self.json { summary.to_json().to_string() } else { summary.to_text() });
        Ok(ExitCode::from(u8::from(!summary.kept_all_promises())))
    }

    fn on_a_terminal(&self) -> bool {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        cfg!(feature = "demo-tui")
            && !(self.json || self.plain || dumb)
            && std::io::stdout().is_terminal()
            && std::io::stdin().is_terminal()
    }

    /// The live picture; ends when the person at the keys wants it to.
    #[cfg(feature = "demo-tui")]
    async fn show(
        &self,
        terminal: bool,
        scene: picture::Scene<'_>,
        commands: mpsc::Sender<director::Command>,
    ) -> std::io::Result<()> {
        if terminal { terminal::show(scene, commands).await } else { never(commands).await }
    }
}

/// Does nothing, for ever, and keeps what it is given.
async fn never<T>(_keep: T) -> std::io::Result<()> {
    std::future::pending().await
}

async fn pause(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}

/// Resolves at the first SIGINT, SIGTERM or SIGHUP.
fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

fn failed(what: &str, error: &std::io::Error, code: u8) -> ExitCode {
    eprintln!("tenure: {what}: {error}");
    ExitCode::from(code)
}
