//! The processes that a demo starts: this binary once more, told what to be and whose child it is.
//!
//! Not a command of the command line: nobody else starts these.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// The first argument that makes this process one of a demo's.
pub(super) const WORD: &str = "demo-part";

/// A guarded app.
pub(super) const APP: &str = "app";
/// A `tenure sidecar`.
pub(super) const SIDECAR: &str = "sidecar";

/// Becomes the part of a demo that the arguments ask for; `None` where they ask for none.
#[must_use]
pub fn part(arguments: &[OsString]) -> Option<ExitCode> {
    let [_, word, role, parent, rest @ ..] = arguments else { return None };
    if word != WORD {
        return None;
    }
    if let Err(why) = die_with(parent.to_str()?) {
        eprintln!("tenure: part of a demo: {why}");
        return Some(ExitCode::FAILURE);
    }
    Some(match role.to_str()? {
        SIDECAR => exec_sidecar(rest),
        APP => super::app::main(rest),
        _ => return None,
    })
}

/// From now on this process is killed when its parent dies, also if it is stopped. Survives exec.
#[cfg(target_os = "linux")]
fn die_with(parent: &str) -> Result<(), String> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    // It may have died before that was said.
    let alive = getppid().is_some_and(|pid| pid.as_raw_nonzero().to_string() == parent);
    if alive { Ok(()) } else { Err("its parent is gone".into()) }
}

/// Elsewhere the kernel has no such promise: the app ends at the end of its input, and the sidecar
/// with the director's ordinary end.
#[cfg(not(target_os = "linux"))]
fn die_with(_parent: &str) -> Result<(), String> {
    Ok(())
}

/// The same process goes on as `tenure sidecar`.
fn exec_sidecar(arguments: &[OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt as _;
    let error = match std::env::current_exe() {
        Ok(path) => Command::new(path).arg0("tenure").arg("sidecar").args(arguments).exec(),
        Err(error) => error,
    };
    eprintln!("tenure: part of a demo: {error}");
    ExitCode::FAILURE
}
