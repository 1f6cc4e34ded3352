//! `tenure status`, `wait` and `release`: what they ask, print and exit with.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};

use super::{ReleaseArgs, StatusArgs, UrlArg, WaitArgs};
use crate::client::{Answer, Call, CallError, Endpoint, LeaderBody};
use crate::core::Mono;
use crate::seat::Clock as _;
use crate::shell::clock::SystemClock;

/// What a local, unhurried answer may take at most.
const CALL_BOUND: Duration = Duration::from_secs(5);
/// How long one poll of `wait` is held by the server.
const POLL: Duration = Duration::from_secs(30);
/// Between attempts where no answer came, and after one that was no news.
const PAUSE: Duration = Duration::from_millis(200);
/// What an answer takes to arrive, once it is given.
const ARRIVAL: Duration = Duration::from_millis(50);
/// The longest `wait` that is asked of the server; a longer one is cut to it.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// `/is-leader`, not `/leader`: whoever reads only an exit code sees no length, and the sidecar
/// must know that it granted all it has.
const TARGET: &str = "/is-leader";

/// What `tenure wait` waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// This pod leads.
    Leader,
    /// This pod does not lead.
    NotLeader,
    /// Somebody known holds the Lease: a whole identity, or the part before its first `_`.
    Holder(String),
}

impl FromStr for Goal {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("holder=")) {
            ("leader", _) => Ok(Self::Leader),
            ("not-leader", _) => Ok(Self::NotLeader),
            (_, Some(name)) if !name.is_empty() => Ok(Self::Holder(name.to_owned())),
            _ => Err("allowed: leader, not-leader, holder=NAME"),
        }
    }
}

impl Goal {
    fn reached(&self, told: &Told) -> bool {
        match self {
            Self::Leader => told.leads(),
            Self::NotLeader => !told.leads(),
            Self::Holder(name) => told.body.holder.as_deref().is_some_and(|holder| {
                holder == name || holder.split_once('_').is_some_and(|(pod, _)| pod == name)
            }),
        }
    }

    /// The sidecar no longer answers, and the last that it granted is over.
    fn reached_by_silence(&self, told: &Told) -> bool {
        *self == Self::NotLeader && !told.leads()
    }
}

/// An answer, and when it was asked for (by [`now`]): a grant counts from there.
struct Told {
    asked: Mono,
    raw: Answer,
    body: LeaderBody,
}

impl Told {
    fn leads(&self) -> bool {
        now() < self.leads_until()
    }

    /// When this grant is over; `asked` itself where there is none.
    fn leads_until(&self) -> Mono {
        let granted = self.body.waited_ms.saturating_add(self.body.valid_for_ms);
        let granted = Duration::from_millis(if self.body.leader { granted } else { 0 });
        self.asked + granted
    }
}

/// By the clock that counts suspended time: a grant goes on lapsing in it.
fn now() -> Mono {
    SystemClock.now().mono
}

/// No usable answer.
enum Untold {
    /// It may come yet: not up, restarting, overloaded.
    NotYet(String),
    /// Asking again would not help.
    Never(String),
}

async fn ask(url: &Endpoint, query: &str, bound: Duration) -> Result<Told, Untold> {
    let asked = now();
    let answer = Call::get(&format!("{TARGET}{query}")).send(url, bound).await;
    let raw = answer.map_err(|error| Untold::NotYet(error.to_string()))?;
    if matches!(raw.status, StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE)
        && let Ok(body) = serde_json::from_slice::<LeaderBody>(&raw.body)
    {
        return Ok(Told { asked, raw, body });
    }
    match raw.status.as_u16() {
        500..=599 => Err(Untold::NotYet(raw.error())),
        200 => Err(Untold::Never("is no tenure: its answer cannot be read".into())),
        _ => Err(Untold::Never(raw.error())),
    }
}

/// Exit code 0 leader, 1 not leader, 2 cannot tell.
pub async fn status(args: StatusArgs) -> ExitCode {
    let StatusArgs { url: UrlArg { url }, json } = args;
    let told = match ask(&url, "", CALL_BOUND).await {
        Ok(told) => told,
        Err(Untold::NotYet(why) | Untold::Never(why)) => {
            eprintln!("tenure: {url} {why}");
            return ExitCode::from(2);
        }
    };
    let leads = told.leads();
    if json {
        say(String::from_utf8_lossy(&told.raw.body).trim_end());
    } else {
        say(&summary(&told.body, leads));
    }
    ExitCode::from(u8::from(!leads))
}

fn summary(body: &LeaderBody, leads: bool) -> String {
    let epoch = body.epoch.map_or_else(|| "-".into(), |epoch| epoch.to_string());
    format!(
        "{} state={} reason={} epoch={epoch} valid_for={}ms holder={} lease={}/{}",
        if leads { "leader" } else { "not-leader" },
        body.state,
        body.reason,
        body.valid_for_ms,
        body.holder.as_deref().unwrap_or("-"),
        body.lease.namespace,
        body.lease.name,
    )
}

/// Exit code 0 when it is so, 1 when the time is over or the epoch cannot be printed, 2 where no asking would ever tell.
pub async fn wait(args: WaitArgs) -> ExitCode {
    let WaitArgs { url: UrlArg { url }, goal, timeout } = args;
    let end = timeout.map(|timeout| now() + timeout);
    let mut told: Option<Told> = None;
    let mut last = "was not asked".to_owned();
    loop {
        let left = end.map_or(Duration::MAX, |end| end.since(now()));
        if left.is_zero() {
            eprintln!("tenure: --timeout={:?} is over: {url} {last}", timeout.unwrap_or_default());
            return ExitCode::FAILURE;
        }
        let (query, bound) = next_poll(&goal, told.as_ref(), left);
        match ask(&url, &query, bound).await {
            Ok(new) => {
                last = format!("says {}", summary(&new.body, new.leads()));
                let again = told.as_ref().is_some_and(|old| old.body.version == new.body.version);
                if goal.reached(&new) {
                    return reached(&new);
                }
                told = Some(new);
                // A change is followed at once; the same again (a renewal) not faster than this.
                if again {
                    tokio::time::sleep(PAUSE.min(left)).await;
                }
            }
            Err(Untold::NotYet(why)) => {
                last = why;
                match &told {
                    Some(old) if goal.reached_by_silence(old) => return reached(old),
                    _ => tokio::time::sleep(PAUSE.min(left)).await,
                }
            }
            Err(Untold::Never(why)) => {
                eprintln!("tenure: {url} {why}");
                return ExitCode::from(2);
            }
        }
    }
}

/// The query of the next poll and the bound on it. Whoever waits for the end of leadership does not
/// wait for an answer beyond the grant: silence ends it.
fn next_poll(goal: &Goal, told: Option<&Told>, left: Duration) -> (String, Duration) {
    // Short of the end: "nothing new" must still arrive, else a living sidecar looks silent.
    let held = left.saturating_sub(ARRIVAL).min(POLL);
    let bound = left.min(held + CALL_BOUND);
    let Some(told) = told else { return (String::new(), left.min(CALL_BOUND)) };
    let query = format!("?wait={}ms&after={}", held.as_millis(), told.body.version);
    let granted = told.leads_until().since(now());
    match goal {
        Goal::NotLeader if !granted.is_zero() => (query, bound.min(granted)),
        _ => (query, bound),
    }
}

fn reached(told: &Told) -> ExitCode {
    if let Some(epoch) = told.body.epoch.or(told.body.lease.epoch) {
        return super::print(&format!("{epoch}\n"));
    }
    ExitCode::SUCCESS
}

/// Exit code 0 once the Lease is given up or nothing was held, else 1.
pub async fn release(args: ReleaseArgs) -> ExitCode {
    let ReleaseArgs { url: UrlArg { url }, epoch, r#final, wait, control_token_file } = args;
    let wait = wait.min(MAX_WAIT);
    let bearer = match control_token_file.map(read_bearer).transpose() {
        Ok(bearer) => bearer,
        Err(line) => {
            eprintln!("tenure: {line}");
            return ExitCode::from(super::EXIT_USAGE);
        }
    };
    let mut body =
        serde_json::json!({ "final": r#final, "wait": format!("{}ms", wait.as_millis()) });
    if let Some(epoch) = epoch {
        body["epoch"] = epoch.into();
    }
    let call = Call { method: Method::POST, target: "/release", body: body.to_string(), bearer };
    match outcome(call.send(&url, wait + CALL_BOUND).await, wait) {
        Ok(line) => {
            say(&line);
            ExitCode::SUCCESS
        }
        Err(line) => {
            eprintln!("tenure: {url} {line}");
            ExitCode::FAILURE
        }
    }
}

fn outcome(answer: Result<Answer, CallError>, wait: Duration) -> Result<String, String> {
    #[derive(serde::Deserialize)]
    struct Body {
        released: bool,
        epoch: Option<u64>,
        held: Option<bool>,
    }
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.status {
        StatusCode::OK => match serde_json::from_slice(&answer.body) {
            Ok(Body { released: true, epoch, .. }) => Ok(match epoch {
                Some(epoch) => format!("released epoch {epoch}"),
                None => "released".into(),
            }),
            Ok(Body { held: Some(false), .. }) => Ok("nothing held".into()),
            Ok(_) => Err("answered that the Lease is not released".into()),
            Err(_) => Err("is no tenure: its answer cannot be read".into()),
        },
        StatusCode::ACCEPTED => {
            Err(format!("was told, but has not released the Lease within {wait:?}"))
        }
        _ => Err(answer.error()),
    }
}

fn read_bearer(path: std::path::PathBuf) -> Result<HeaderValue, String> {
    let flag = format!("--control-token-file={}", path.display());
    let token =
        std::fs::read_to_string(&path).map_err(|e| format!("{flag}: cannot be read: {e}"))?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
        .map_err(|_| format!("{flag}: allowed: a file with one token of printable ASCII"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// For people: the exit code speaks for itself.
fn say(line: &str) {
    let _ = super::print(&format!("{line}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read_as_documented() {
        assert_eq!("leader".parse(), Ok(Goal::Leader));
        assert_eq!("not-leader".parse(), Ok(Goal::NotLeader));
        assert_eq!("holder=web-0".parse(), Ok(Goal::Holder("web-0".into())));
        for bad in ["", "Leader", "holder", "holder="] {
            assert!(bad.parse::<Goal>().is_err(), "{bad}");
        }
    }
}
