//! What happened, from whoever saw it, on the one clock that all processes of a machine share.

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;

/// Nanoseconds of CLOCK_BOOTTIME.
pub fn boottime() -> u64 {
    nanos(ClockId::Boottime)
}

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let number = |part: i64| u64::try_from(part).expect("after 1970");
    number(now.tv_sec) * 1_000_000_000 + number(now.tv_nsec)
}

/// What to add to a boottime to get the wall clock's nanoseconds.
pub fn wall_offset() -> u64 {
    let before = boottime();
    let wall = nanos(ClockId::Realtime);
    wall - before.midpoint(boottime())
}

/// A version of the Lease, as the harness's own watch brought it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    pub number: u64,
    pub uid: String,
    /// "" is nobody.
    pub holder: String,
    pub duration_ns: u64,
    /// Wall clock, microseconds.
    pub renew_us: u64,
    pub epoch: u64,
    /// The epoch that the `released` annotation names, 0 for none.
    pub released: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Version(Version),
    Deleted {
        number: u64,
    },
    /// The watch had to begin anew: versions may be missing here.
    Relisted,
    /// A tenure process after an event. `valid_until` 0: no term.
    Stand {
        state: String,
        epoch: u64,
        valid_until: u64,
    },
    /// A tenure process told its app. `until` 0: nothing granted.
    Answer {
        leader: bool,
        epoch: u64,
        until: u64,
    },
    /// The app's word reached a tenure process.
    Word,
    /// A tenure process sent a PUT.
    Sent {
        purpose: String,
        epoch: u64,
    },
    /// A tenure process told of its term: Acquired, Draining, Ended.
    Told {
        tell: String,
        epoch: u64,
    },
    /// Anything else that a tenure process saw or did; for people.
    Seen(String),
    PeerLeads,
    PeerStops,
    /// A client-go elector wrote; for people.
    PeerWrote(String),
    /// The harness did something: kind, and to whom.
    Fault(String),
    /// SIGKILL.
    Killed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub at: u64,
    /// The process, or `lease` or `harness`.
    pub who: String,
    pub what: What,
}

/// One line of target `tenure::history`.
#[derive(Debug, Deserialize)]
struct Line {
    at: u64,
    did: String,
    #[serde(default)]
    event: String,
    #[serde(default)]
    action: String,
    #[serde(default)]
    id: u64,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    word: bool,
    #[serde(default)]
    purpose: String,
    #[serde(default)]
    tell: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    valid_until: u64,
    #[serde(default)]
    leader: bool,
    #[serde(default)]
    until: u64,
}

/// The history in a sidecar's log. Other lines are passed over, as is one cut off by a SIGKILL.
pub fn of_tenure(who: &str, log: &Path) -> Vec<Fact> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter(|line| line.contains("\"target\":\"tenure::history\""));
    let lines = lines.filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.flat_map(|line| meaning(who, &line)).collect()
}

fn meaning(who: &str, line: &Line) -> Vec<Fact> {
    let fact = |what| Fact { at: line.at, who: who.to_owned(), what };
    let Line { id, detail, .. } = line;
    match (&*line.did, &*line.action) {
        ("stand", _) => vec![fact(What::Stand {
            state: line.state.clone(),
            epoch: line.epoch,
            valid_until: line.valid_until,
        })],
        ("answer", _) => {
            vec![fact(What::Answer { leader: line.leader, epoch: line.epoch, until: line.until })]
        }
        ("event", _) if line.event == "timeout" => Vec::new(),
        ("event", _) => {
            let seen = fact(What::Seen(format!("{} {id} {detail}", line.event)));
            if line.word { vec![seen, fact(What::Word)] } else { vec![seen] }
        }
        (_, "write") => {
            let sent = What::Sent { purpose: line.purpose.clone(), epoch: line.epoch };
            vec![fact(What::Seen(format!("PUT {id} {} {detail}", line.purpose))), fact(sent)]
        }
        (_, "tell") => {
            let seen = fact(What::Seen(detail.clone()));
            let epoch = detail.split_once("epoch: ").map_or("", |(_, rest)| rest);
            let end = epoch.find(|c: char| !c.is_ascii_digit()).unwrap_or(epoch.len());
            match (&*line.tell, epoch[..end].parse()) {
                ("Acquired" | "Draining" | "Ended", Ok(epoch)) => {
                    vec![seen, fact(What::Told { tell: line.tell.clone(), epoch })]
                }
                _ => vec![seen],
            }
        }
        (_, action) => vec![fact(What::Seen(format!("{action} {id} {detail}")))],
    }
}
