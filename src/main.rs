//! Parse, set up tracing, build the runtime, run.

use std::process::ExitCode;

use tenure::cli::{self, Command, Refusal};
use tenure::config::{Config, Surroundings};
use tenure::demo::Demo;
use tenure::telemetry;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(abort_on_panic));
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(code) = tenure::demo::part(&arguments) {
        return code;
    }
    let command = match cli::parse(arguments) {
        Ok(command) => command,
        Err(Refusal::Tell(text)) => {
            return cli::print(&text);
        }
        Err(Refusal::Usage(error)) => return wrong_usage(&error),
    };
    match command {
        Command::Sidecar(args) => match Config::new(*args, &Surroundings::of_this_process()) {
            Ok(config) => sidecar(config),
            Err(error) => wrong_usage(&error),
        },
        Command::Status(args) => asking(cli::commands::status(args)),
        Command::Wait(args) => asking(cli::commands::wait(args)),
        Command::Release(args) => asking(cli::commands::release(args)),
        Command::Demo(args) => match Demo::new(args) {
            Ok(demo) => asking(demo.run()),
            Err(error) => wrong_usage(&error),
        },
        Command::Budget(args) => {
            cli::budget::budget(args).unwrap_or_else(|error| wrong_usage(&error))
        }
    }
}

fn sidecar(config: Config) -> ExitCode {
    telemetry::init(&config.log);
    for name in unknown_variables() {
        tracing::warn!(variable = name, "unknown variable, ignored; see tenure sidecar --help");
    }
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    on_this_thread(tenure::sidecar::run(config))
}

/// A command that asks the sidecar and ends.
fn asking(command: impl Future<Output = ExitCode>) -> ExitCode {
    for name in unknown_variables() {
        eprintln!("tenure: warning: unknown variable {name}, ignored");
    }
    on_this_thread(command)
}

fn unknown_variables() -> Vec<String> {
    cli::unknown_variables(std::env::vars_os().map(|(name, _)| name))
}

/// One thread does everything: the elector is never far from its timer, and memory stays small.
fn on_this_thread(work: impl Future<Output = ExitCode>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("tenure: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(work);
    // A name that the resolver still looks up must not hold up the exit.
    runtime.shutdown_background();
    code
}

fn wrong_usage(error: &cli::UsageError) -> ExitCode {
    eprintln!("tenure: {error}");
    ExitCode::from(cli::EXIT_USAGE)
}

/// A broken invariant ends the process at once, in every build: others lead as soon as the term
/// runs out, which is the safe side. Logged first, in the format of all other lines.
fn abort_on_panic(info: &std::panic::PanicHookInfo<'_>) {
    if tracing::dispatcher::has_been_set() {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let why = info.payload_as_str().unwrap_or("no text");
        tracing::error!(place, "panic: {why}");
    } else {
        eprintln!("tenure: {info}");
    }
    std::process::abort();
}
