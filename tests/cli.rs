//! The command line as a process: exit codes, the one line, and what is asked of the sidecar.

#[path = "cli/commands.rs"]
mod commands;
#[path = "cli/stub.rs"]
mod stub;
#[path = "cli/usage.rs"]
mod usage;

use std::process::{Output, Stdio};

/// `tenure` with nothing in its environment but `variables`.
fn tenure(arguments: &[&str], variables: &[(&str, &str)]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tenure"));
    command
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Exit code, stdout and stderr of a whole run.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

async fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    tenure(arguments, variables).output().await.unwrap().into()
}
