//! The command line: what may be written, and the one line that answers what may not.
//!
//! Every flag has a variable, `--lease-name` = `TENURE_LEASE_NAME`; a flag wins over its variable.
//! The arguments here are only well-formed; [`crate::config`] makes them sound.

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgAction::SetTrue;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub mod budget;
pub mod commands;
pub mod demo;
mod sidecar;
mod usage;
mod value;

pub use sidecar::{DevRole, SidecarArgs};
pub use usage::{EXIT_USAGE, Refusal, UsageError};

use crate::client::Endpoint;

/// Version and commit, as `--version` and the logs show them.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_COMMIT"), ")");

/// Below the long help, which is thereby the one that `--help` shows: it fits into 80 columns.
const VARIABLES: &str = "A flag wins over its variable. Durations: 15s, 500ms, 1m30s";

#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version = VERSION,
    about = "Leader election with a fencing epoch, as a sidecar for any application",
    propagate_version = true,
    disable_help_subcommand = true,
    after_help = "Without a cluster: tenure demo, or tenure sidecar --dev --lease-name NAME"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One invocation, well-formed.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The elector beside an app
    #[command(after_long_help = VARIABLES)]
    Sidecar(Box<SidecarArgs>),
    /// What the sidecar says; exit code 0 leader, 1 not, 2 cannot tell
    #[command(after_long_help = VARIABLES)]
    Status(StatusArgs),
    /// Block until leader, or until something else is so; prints the epoch
    #[command(after_long_help = VARIABLES)]
    Wait(WaitArgs),
    /// Tell the sidecar that the guarded work has stopped
    ///
    /// The last line of the app's own shutdown or of its entrypoint
    /// (`app; tenure release --final`). Never from preStop: that runs while the
    /// app still works.
    #[command(verbatim_doc_comment, after_long_help = VARIABLES)]
    Release(ReleaseArgs),
    /// Without a cluster: three candidates, and failover after failover
    #[command(after_long_help = VARIABLES)]
    Demo(demo::DemoArgs),
    /// Failover times, tolerances and load that follow from given timings
    #[command(after_long_help = VARIABLES)]
    Budget(budget::BudgetArgs),
}

/// Where the sidecar is.
#[derive(Debug, Args)]
pub struct UrlArg {
    /// The sidecar's local API: http://HOST:PORT or unix:/PATH
    #[arg(long, env = "TENURE_URL", default_value = "http://localhost:4040")]
    pub url: Endpoint,
}

/// `tenure status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub url: UrlArg,
    /// Print the answer's body as it came
    #[arg(long, env = "TENURE_JSON", value_parser = value::boolean, action = SetTrue)]
    pub json: bool,
}

/// `tenure wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    pub url: UrlArg,
    /// What to wait for: leader, not-leader or holder=NAME
    /// (a whole identity or its pod's name)
    #[arg(
        verbatim_doc_comment,
        long = "for",
        env = "TENURE_FOR",
        value_name = "WHAT",
        default_value = "leader"
    )]
    pub goal: commands::Goal,
    /// Give up after this long, with exit code 1; without it, never
    #[arg(long, env = "TENURE_TIMEOUT", value_parser = value::duration, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
}

/// `tenure release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    #[command(flatten)]
    pub url: UrlArg,
    /// The epoch that was worked under; without it, whatever term is held now
    #[arg(long, env = "TENURE_EPOCH", value_parser = value::epoch, allow_hyphen_values = true)]
    pub epoch: Option<u64>,
    /// This sidecar does not campaign again
    #[arg(long, env = "TENURE_FINAL", value_parser = value::boolean, action = SetTrue)]
    pub r#final: bool,
    /// How long to wait until the Lease is given up, at most 5m
    #[arg(long, env = "TENURE_WAIT", value_parser = value::duration, allow_hyphen_values = true)]
    #[arg(default_value = "10s")]
    pub wait: Duration,
    /// The bearer token that the sidecar demands, if it was given one
    #[arg(long, env = "TENURE_CONTROL_TOKEN_FILE", value_name = "PATH")]
    pub control_token_file: Option<PathBuf>,
}

/// The definition of the whole command line, for whoever documents it.
#[must_use]
pub fn definition() -> clap::Command {
    Cli::command()
}

/// Reads the command line and the variables of this process.
///
/// # Errors
/// A [`Refusal`]: help or version to print, or wrong usage as one line.
pub fn parse(argv: impl IntoIterator<Item = OsString>) -> Result<Command, Refusal> {
    let argv: Vec<OsString> = argv.into_iter().collect();
    let mut command = Cli::command();
    command
        .try_get_matches_from_mut(argv.iter())
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map(|cli| cli.command)
        .map_err(|error| Refusal::of(&error, &argv, &command))
}

/// The `TENURE_*` variables among `names` that no flag of any command reads: most likely typing
/// errors. What the kubelet injects for a Service named `tenure` is none of ours and passed over.
#[must_use]
pub fn unknown_variables(names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let known = variables(&Cli::command());
    let mut unknown: Vec<String> = names
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with("TENURE_") && !injected_for_a_service(name))
        .filter(|name| !known.iter().any(|(_, variable)| variable == name))
        .collect();
    unknown.sort();
    unknown
}

/// Prints what a command answers. A reader that went away (`| head`) is no failure; a full disk is.
#[must_use]
pub fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("tenure: stdout cannot be written: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn injected_for_a_service(name: &str) -> bool {
    name == "TENURE_PORT" || name.starts_with("TENURE_PORT_") || name.starts_with("TENURE_SERVICE_")
}

/// Every (flag, variable) of a command and those below it.
fn variables(command: &clap::Command) -> Vec<(String, String)> {
    let own = command.get_arguments().filter_map(|arg| {
        let variable = arg.get_env()?.to_str()?;
        Some((arg.get_long()?.to_owned(), variable.to_owned()))
    });
    own.chain(command.get_subcommands().flat_map(variables)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_the_variable_of_its_name() {
        for command in Cli::command().get_subcommands() {
            for arg in command.get_arguments() {
                let long = arg.get_long().expect("flags only, no positional arguments");
                if ["help", "version"].contains(&long) {
                    continue;
                }
                let expected = format!("TENURE_{}", long.to_uppercase().replace('-', "_"));
                let variable = arg.get_env().map(|v| v.to_string_lossy().into_owned());
                assert_eq!(variable.as_deref(), Some(&*expected), "--{long}");
            }
        }
    }

    #[test]
    fn scenario_c4_no_flag_reads_what_a_service_named_tenure_injects() {
        let all = variables(&Cli::command());
        assert!(all.len() > 25, "{all:?}");
        for (flag, variable) in all {
            assert!(!injected_for_a_service(&variable), "--{flag} reads {variable}");
        }
    }

    #[test]
    fn scenario_c4_only_misspelt_variables_are_told() {
        let names = [
            "TENURE_PORT",
            "TENURE_PORT_4040_TCP",
            "TENURE_SERVICE_HOST",
            "TENURE_LEASE_NAME",
            "TENURE_URL",
            "TENURE_LEASENAME",
            "HOME",
        ];
        let odd = OsString::from_vec(b"TENURE_LOG\xff".into());
        let names = names.map(OsString::from).into_iter().chain([odd]);
        assert_eq!(unknown_variables(names), ["TENURE_LEASENAME", "TENURE_LOG\u{fffd}"]);
    }
}
