//! Wrong usage as one line: the flag, the value, and what is allowed.

use std::any::TypeId;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The exit code of wrong usage.
pub const EXIT_USAGE: u8 = 2;

/// Why a command line does not run. Displays as one line, without the program's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError(String);

impl UsageError {
    /// A value that is not allowed, and why or what is.
    pub fn value(flag: &str, value: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self::line(&format!("{flag}={value}: {allowed}"))
    }

    /// A flag that is missing, or means nothing here.
    pub fn flag(flag: &str, problem: impl fmt::Display) -> Self {
        Self::line(&format!("{flag}: {problem}"))
    }

    /// Values come from anywhere: whatever would break the line becomes a space.
    pub(crate) fn line(text: &str) -> Self {
        Self(text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// What to do instead of running a command.
#[derive(Debug)]
pub enum Refusal {
    /// Print this on stdout, exit code 0: help or version.
    Tell(String),
    /// Print this on stderr, exit code [`EXIT_USAGE`].
    Usage(UsageError),
}

impl Refusal {
    pub(super) fn of(error: &clap::Error, argv: &[OsString], command: &clap::Command) -> Self {
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Self::Tell(error.to_string()),
            kind => Self::Usage(reduce(kind, error, argv, command)),
        }
    }
}

/// clap's several paragraphs as one line, made of what it knows rather than cut from its text.
fn reduce(
    kind: ErrorKind,
    error: &clap::Error,
    argv: &[OsString],
    command: &clap::Command,
) -> UsageError {
    let text = |kind| context(error, kind).unwrap_or_default();
    let flag = bare(&text(ContextKind::InvalidArg)).to_owned();
    match kind {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = text(ContextKind::InvalidValue);
            let allowed = std::error::Error::source(error).map_or_else(
                || match context(error, ContextKind::ValidValue) {
                    Some(valid) => format!("allowed: {valid}"),
                    None => "needs a value".into(),
                },
                ToString::to_string,
            );
            UsageError::value(&flag, value, allowed + &origin(&flag, argv, command))
        }
        ErrorKind::UnknownArgument => {
            UsageError::flag(&flag, format_args!("unknown; see {} --help", called(argv, command)))
        }
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand);
            let problem =
                format_args!("no such command; allowed: {}; see tenure --help", names(command));
            UsageError::flag(&name, problem)
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            UsageError::line(&format!("a command is required; allowed: {}", names(command)))
        }
        ErrorKind::MissingRequiredArgument => UsageError::flag(
            &flag,
            format_args!("required, or {} in the environment", variable(&flag)),
        ),
        ErrorKind::NoEquals => UsageError::flag(&flag, "its value must follow an equals sign"),
        ErrorKind::TooManyValues => {
            UsageError::value(&flag, text(ContextKind::InvalidValue), "takes no value")
        }
        ErrorKind::InvalidUtf8 => not_text(argv, command),
        ErrorKind::ArgumentConflict => UsageError::flag(&flag, "given more than once"),
        _ => UsageError::line(error.to_string().lines().next().unwrap_or("wrong usage")),
    }
}

/// clap does not say what it could not read as text.
fn not_text(argv: &[OsString], command: &clap::Command) -> UsageError {
    let command = argv.get(1).and_then(|name| command.find_subcommand(name)).unwrap_or(command);
    let given = |flag: &str| argv.iter().any(|arg| bare(&arg.to_string_lossy()) == flag);
    let variable = command.get_arguments().find_map(|arg| {
        let name = arg.get_env()?;
        let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let flag = format!("--{}", arg.get_long()?);
        let odd = !is_path && !given(&flag) && std::env::var_os(name)?.to_str().is_none();
        odd.then(|| name.to_string_lossy())
    });
    let argument =
        || argv.iter().find(|arg| arg.to_str().is_none()).map(|arg| arg.to_string_lossy());
    UsageError::flag(&variable.or_else(argument).unwrap_or_default(), "is not UTF-8")
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) if texts.is_empty() => None,
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        other => Some(other.to_string()),
    }
}

/// `--lease-duration` of `--lease-duration <DURATION>`, `--dev` of `--dev[=<ROLE>]`.
fn bare(shown: &str) -> &str {
    shown.split([' ', '=', '[']).next().unwrap_or(shown)
}

fn variable(flag: &str) -> String {
    format!("TENURE_{}", flag.trim_start_matches('-').to_uppercase().replace('-', "_"))
}

/// Where the value came from, if not from a flag: else nobody would look for it in a manifest.
fn origin(flag: &str, argv: &[OsString], command: &clap::Command) -> String {
    let written = argv.iter().any(|arg| bare(&arg.to_string_lossy()) == flag);
    let name = variable(flag);
    let read = super::variables(command).iter().any(|(_, known)| *known == name);
    if written || !read { String::new() } else { format!(" (from {name})") }
}

/// `tenure`, or `tenure sidecar` where that was called.
fn called(argv: &[OsString], command: &clap::Command) -> String {
    let name = argv.get(1).and_then(|name| command.find_subcommand(name));
    name.map_or("tenure".to_owned(), |command| format!("tenure {}", command.get_name()))
}

fn names(command: &clap::Command) -> String {
    command.get_subcommands().map(clap::Command::get_name).collect::<Vec<_>>().join(", ")
}
