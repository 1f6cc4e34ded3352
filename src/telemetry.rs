//! Logging: one subscriber, text or JSON, always on stderr.
//!
//! stderr for both formats, because stdout belongs to what a command answers (`tenure wait` prints
//! an epoch there); a container's log holds both streams alike.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;

/// Targets that say nothing unless the filter names them: kube reports each failed request as an
/// error of its own, beside the one line per round that is ours.
const QUIET: [&str; 1] = ["kube_client"];

/// Lines that wait for a slow stderr; what comes on top of them is lost.
const BACKLOG: usize = 1024;

/// How long an exit waits for a stuck stderr.
const FLUSH: Duration = Duration::from_millis(500);

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

/// What the thread that writes to stderr is sent.
#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// Takes lines without ever waiting for whoever reads stderr: a log pipe that stands still must
/// not stop the elector, the local API and the way out, which share one thread with the logging.
#[derive(Clone, Debug)]
pub struct Lines(SyncSender<Entry>);

impl Lines {
    fn to(mut sink: impl Write + Send + 'static) -> io::Result<Lines> {
        let (sender, entries) = mpsc::sync_channel(BACKLOG);
        let write = move || write_out(&entries, &mut sink);
        std::thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok(Lines(sender))
    }

    /// Waits until all lines are written, half a second at most.
    pub fn catch_up(&self) {
        let (done, written) = mpsc::sync_channel(1);
        if self.0.try_send(Entry::Flush(done)).is_ok() {
            let _ = written.recv_timeout(FLUSH);
        }
    }
}

fn write_out(entries: &Receiver<Entry>, sink: &mut impl Write) {
    for entry in entries {
        // A line that cannot be written is lost: where should that be told?
        match entry {
            Entry::Line(line) => drop(sink.write_all(&line)),
            Entry::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// One call is one line; it never fails.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.try_send(Entry::Line(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes this process log. Called once, before anything is logged; a second call changes nothing.
///
/// # Errors
/// No thread can be had.
pub fn init(log: &Log) -> io::Result<Lines> {
    let written = Lines::to(io::stderr())?;
    let writer = written.clone();
    // A line that cannot be written is lost: complaining about it on the same broken stderr would
    // panic, and end a healthy leader.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || writer.clone())
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
    Ok(written)
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
    fn catching_up_waits_for_the_lines_before_it() {
        let (mut reader, sink) = io::pipe().unwrap();
        let mut lines = Lines::to(sink).unwrap();
        lines.write_all(b"last words").unwrap();
        lines.catch_up();
        let mut read = [0; 10];
        io::Read::read_exact(&mut reader, &mut read).unwrap();
        assert_eq!(&read, b"last words");
    }
}
