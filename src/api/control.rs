//! `POST /release`: the app's word that the guarded work has stopped.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Number, Value};

use super::reply::{Refusal, Reply};
use super::shape::ReleaseBody;
use super::{Api, guard, query};
use crate::core::{AppStopped, Elector, Event, MAX_EPOCH};
use crate::seat::Base;

/// All fields together are far smaller.
const MAX_BODY: usize = 4096;
/// A body too large is read up to here and thrown away, so that its sender gets to read the answer.
const MAX_DRAINED: usize = 1 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the release is waited for where the caller does not say: most take milliseconds, and
/// this often is the last line of somebody's shutdown.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);
const MAX_COOL_DOWN: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawRelease {
    epoch: Option<Number>,
    r#final: Option<bool>,
    cool_down: Option<String>,
    wait: Option<String>,
}

#[derive(Debug)]
struct Release {
    epoch: Option<u64>,
    last: bool,
    cool_down: Option<Duration>,
    wait: Duration,
}

/// What the core said when the word was given.
enum Verdict {
    /// This term is held, or being given up already.
    Giving(u64),
    /// Nothing is held. Whether the term that was asked about was given up by this process.
    Nothing { released: Option<u64> },
    /// The term that is held is another one.
    Other(u64),
}

impl Api {
    pub(super) async fn release(&self, request: Request<Incoming>) -> Result<Reply, Refusal> {
        guard::changing(&request, self.config.control_token_file.as_deref())?;
        let asked = Release::parse(&read(request.into_body()).await?)?;
        let mut pulse = self.seat.pulse();
        let epoch = match self.seat.decide(|core| judge(core, &asked)) {
            Verdict::Giving(epoch) => epoch,
            Verdict::Other(held) => {
                return Err(Refusal::new(
                    StatusCode::CONFLICT,
                    format!("the term that is held has epoch {held}, not the one given"),
                ));
            }
            Verdict::Nothing { released } => return Ok(self.released(released)),
        };
        let done = async {
            loop {
                pulse.borrow_and_update();
                if let Some(outcome) = self.seat.look(|core| outcome(core, epoch)) {
                    return outcome;
                }
                if pulse.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(asked.wait, done).await {
            Ok(released) => Ok(self.released(released)),
            Err(_) => {
                let body = ReleaseBody { released: false, held: Some(true), epoch: Some(epoch) };
                Ok(self.json(StatusCode::ACCEPTED, &body))
            }
        }
    }

    fn released(&self, epoch: Option<u64>) -> Reply {
        let held = epoch.is_none().then_some(false);
        self.json(StatusCode::OK, &ReleaseBody { released: epoch.is_some(), held, epoch })
    }
}

/// Judged and, unless refused, handed to the core in one step.
fn judge(core: &Elector<Base>, asked: &Release) -> (Verdict, Option<Event<Base>>) {
    let word = |epoch| {
        let (last, cool_down) = (asked.last, asked.cool_down);
        Some(Event::AppStopped(AppStopped { epoch, last, cool_down }))
    };
    match (core.held_epoch(), asked.epoch) {
        (Some(held), Some(epoch)) if held != epoch => (Verdict::Other(held), None),
        (Some(held), _) => (Verdict::Giving(held), word(Some(held))),
        (None, epoch) => {
            let released = epoch.filter(|epoch| core.last_release() == Some((*epoch, true)));
            // `final` is meant for this process, whether or not it holds anything.
            (Verdict::Nothing { released }, if asked.last { word(epoch) } else { None })
        }
    }
}

/// None: that term is still held. Else whether the Lease was freed (the epoch), or ended otherwise.
fn outcome(core: &Elector<Base>, epoch: u64) -> Option<Option<u64>> {
    match core.last_release() {
        Some((last, freed)) if last == epoch => Some(freed.then_some(epoch)),
        _ => (core.held_epoch() != Some(epoch)).then_some(None),
    }
}

impl Release {
    fn parse(body: &[u8]) -> Result<Release, Refusal> {
        let raw: RawRelease = match body.trim_ascii() {
            [] => RawRelease::default(),
            json => serde_json::from_slice::<Value>(json)
                .and_then(|value| match value {
                    Value::Object(_) => serde_json::from_value(value),
                    _ => Err(serde::de::Error::custom("not an object")),
                })
                .map_err(|error| Refusal::bad_request(format!("bad body: {error}")))?,
        };
        let epoch = raw.epoch.map(|number| {
            number.as_u64().filter(|epoch| (1..=MAX_EPOCH).contains(epoch)).ok_or_else(|| {
                Refusal::out_of_range(format!("epoch must be a whole number, 1 to {MAX_EPOCH}"))
            })
        });
        let span = |name: &str, text: Option<String>, most| {
            let Some(text) = text else { return Ok(None) };
            let span = query::duration(&text).ok_or_else(|| {
                Refusal::bad_request(format!("{name} must be a duration like 500ms, 15s or 1m30s"))
            })?;
            query::at_most(name, span, most).map(|()| Some(span))
        };
        Ok(Release {
            epoch: epoch.transpose()?,
            last: raw.r#final.unwrap_or(false),
            cool_down: span("cool_down", raw.cool_down, MAX_COOL_DOWN)?,
            wait: span("wait", raw.wait, query::MAX_WAIT)?.unwrap_or(DEFAULT_WAIT),
        })
    }
}

async fn read(body: Incoming) -> Result<Vec<u8>, Refusal> {
    tokio::time::timeout(BODY_TIMEOUT, collect(body)).await.unwrap_or_else(|_| {
        Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive"))
    })
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, Refusal> {
    let (mut read, mut seen) = (Vec::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::bad_request("the body ended too early"))?;
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen <= MAX_BODY {
            read.extend_from_slice(&data);
        } else if seen > MAX_DRAINED {
            break;
        }
    }
    if seen > MAX_BODY {
        let error = format!("the body must be at most {MAX_BODY} bytes");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_body_asks_for_everything_by_default() {
        for body in ["", " \n", "{}", r#"{"epoch": null, "wait": null}"#] {
            let asked = Release::parse(body.as_bytes()).unwrap();
            assert_eq!((asked.epoch, asked.last, asked.cool_down), (None, false, None), "{body}");
            assert_eq!(asked.wait, DEFAULT_WAIT);
        }
        let all = r#"{"epoch": 184467, "final": true, "cool_down": "60s", "wait": "10s"}"#;
        let asked = Release::parse(all.as_bytes()).unwrap();
        assert_eq!((asked.epoch, asked.last), (Some(184_467), true));
        assert_eq!(asked.cool_down, Some(Duration::from_secs(60)));
    }

    #[test]
    fn what_is_no_release_is_refused() {
        let status = |body: &str| Release::parse(body.as_bytes()).map_err(|r| format!("{r:?}"));
        for bad in [
            "nonsense",
            "null",
            "[]",
            "7",
            "{} {}",
            r#"{"epoch": "7"}"#,
            r#"{"final": 1}"#,
            r#"{"finale": true}"#,
            r#"{"wait": 10}"#,
            r#"{"wait": "soon"}"#,
            r#"{"epoch": 1, "epoch": 2"#,
            "\u{0}",
        ] {
            assert!(status(bad).unwrap_err().contains("400"), "{bad}");
        }
        for out in [
            r#"{"epoch": 0}"#,
            r#"{"epoch": -1}"#,
            r#"{"epoch": 1.5}"#,
            r#"{"epoch": 9007199254740992}"#,
            r#"{"epoch": 1e300}"#,
            r#"{"wait": "6m"}"#,
            r#"{"cool_down": "25h"}"#,
        ] {
            assert!(status(out).unwrap_err().contains("422"), "{out}");
        }
    }
}
