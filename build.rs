//! Puts the commit into the binary: from `TENURE_BUILD_COMMIT` (an image is built without git),
//! else from git, else `unknown`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=TENURE_BUILD_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // Grows with each commit and checkout; for a missing file cargo would rebuild each time.
    let log = ".git/logs/HEAD";
    if Path::new(log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    let given = std::env::var("TENURE_BUILD_COMMIT").ok().filter(|commit| is_commit(commit));
    let commit = given.or_else(from_git).unwrap_or_else(|| "unknown".into());
    // Not TENURE_: `cargo run` hands it on, and the program warns of such variables it does not know.
    println!("cargo::rustc-env=BUILD_COMMIT={commit}");
}

/// `None` without git, and where the sources lie in somebody else's repository.
fn from_git() -> Option<String> {
    if !Path::new(".git").exists() {
        return None;
    }
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && is_commit(&commit)).then_some(commit)
}

fn is_commit(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}
