//! Logging: one subscriber, text or JSON, always on stderr.
//!
//! stderr for both formats, because stdout belongs to what a command answers (`tenure wait` prints
//! an epoch there); a container's log holds both streams alike.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;

/// Targets that say nothing unless the filter names them: kube reports each failed request as an
/// error of its own, beside the one line per round that is ours.
const QUIET: [&str; 1] = ["kube_client"];

/// A pipe that is ready takes that many bytes at once (PIPE_BUF).
const PIECE: usize = 4096;

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Format and filter, both already parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// Text or JSON.
    pub format: LogFormat,
    /// What is logged at all.
    pub filter: Targets,
}

/// Reads a filter such as `info` or `warn,tenure=debug`, and adds the silences of its defaults.
///
/// `Targets` rather than `EnvFilter`: no regular expressions in the binary.
///
/// # Errors
/// What is wrong with the text, in words without a line break.
pub fn parse_filter(text: &str) -> Result<Targets, String> {
    let wrong =
        || "allowed: error, warn, info, debug, trace, off, or target=level, comma-separated".into();
    // `Targets` takes a word that is no level for a target and then silences all others.
    let level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let slip = |part: &str| !part.contains('=') && !level(part);
    if text.split(',').any(slip) {
        return Err(wrong());
    }
    let given: Targets = text.parse().map_err(|_| wrong())?;
    let named: Vec<String> = given.iter().map(|(target, _)| target.to_owned()).collect();
    Ok(QUIET
        .iter()
        .filter(|quiet| !named.iter().any(|name| name.starts_with(*quiet)))
        .fold(given, |filter, quiet| filter.with_target(*quiet, LevelFilter::OFF)))
}

/// Takes lines without ever waiting for whoever reads stderr: a log pipe that stands still must
/// not stop the elector, the local API and the way out, which share one thread with the logging.
#[derive(Clone, Copy, Debug)]
struct Lines<F>(F);

impl<F: AsFd> Lines<F> {
    /// Whether a piece is taken without waiting.
    fn takes(&self) -> bool {
        let mut stderr = [PollFd::new(&self.0, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut stderr, Some(&now)).is_ok_and(|ready| ready == 1)
    }
}

/// One call is one line; it never fails, and never waits.
impl<F: AsFd> Write for Lines<F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        for piece in line.chunks(PIECE) {
            // A line that cannot be written is lost: where should that be told?
            if !self.takes() || rustix::io::write(&self.0, piece).is_err() {
                break;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes this process log. Called once, before anything is logged; a second call changes nothing.
pub fn init(log: &Log) {
    // A line that cannot be written is lost: complaining about it on the same broken stderr would
    // panic, and end a healthy leader.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| Lines(io::stderr()))
        .with_ansi(false)
        .log_internal_errors(false);
    let lines = match log.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(log.filter.clone()));
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::debug!("logging is already set up");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn kube_is_silent_unless_named() {
        let default = parse_filter("info").unwrap();
        assert!(default.would_enable("tenure::shell", &Level::INFO));
        assert!(!default.would_enable("tenure::shell", &Level::DEBUG));
        assert!(!default.would_enable("kube_client::client", &Level::ERROR));
        let named = parse_filter("warn,kube_client=debug").unwrap();
        assert!(named.would_enable("kube_client::client", &Level::DEBUG));
    }

    #[test]
    fn a_filter_that_is_none_is_refused_in_one_line() {
        for filter in ["tenure=loud", "inof", "", "information", "info,tenure", "-1"] {
            let error = parse_filter(filter).unwrap_err();
            assert!(error.contains("allowed") && !error.contains('\n'), "{filter}: {error}");
        }
        for filter in ["OFF", "warn,tenure=debug", "tenure=trace"] {
            parse_filter(filter).unwrap();
        }
    }

    #[test]
    fn a_full_pipe_loses_lines_and_waits_for_nobody() {
        let (mut reader, sink) = io::pipe().unwrap();
        let mut lines = Lines(sink);
        for _ in 0..1_000 {
            lines.write_all(&[b'x'; 10_000]).unwrap();
        }
        drop(lines);
        let read = io::Read::read_to_end(&mut reader, &mut Vec::new()).unwrap();
        assert!((10_000..10_000_000).contains(&read), "{read} bytes");
    }
}
