//! The watch on the one Lease: a stream of JSON lines, each of them bounded.
//!
//! Whether it has gone silent is judged by the core, which knows when something should have come.

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::mpsc;

use super::lease_api::{self, MAX_BODY_BYTES, Target};
use super::lease_json;
use crate::core::{Failure, RequestId, Version, WatchEvent};
use crate::seat::Base;

/// How long a watch is asked to last: 15 to 30 minutes, so that those of many pods do not end
/// together. A standby asks for nothing else.
const MIN_SECONDS: u32 = 15 * 60;
const SPREAD_SECONDS: u32 = 15 * 60;

/// What one watch says, in order.
pub(crate) type Events = mpsc::Sender<(RequestId, WatchEvent<Base>)>;

/// Watches until the stream ends, which is the last thing told; stops when nobody listens.
pub(crate) async fn run(
    client: kube::Client,
    target: Target,
    id: RequestId,
    after: Option<Version>,
    events: Events,
) {
    let last = match open(&client, &target, after).await {
        Ok(body) => {
            if events.send((id, WatchEvent::Opened)).await.is_err() {
                return;
            }
            let mut lines = Lines { body, buffer: Vec::new(), searched: 0 };
            follow(&mut lines, &target, id, &events).await
        }
        Err(event) => Some(event),
    };
    if let Some(last) = last {
        // Nobody listens any more: then it does not matter.
        let _ = events.send((id, last)).await;
    }
}

async fn open(
    client: &kube::Client,
    target: &Target,
    after: Option<Version>,
) -> Result<Body, WatchEvent<Base>> {
    let unknown = WatchEvent::Failed(Failure::UNKNOWN);
    let mut path = format!(
        "{}?watch=true&fieldSelector=metadata.name%3D{}&allowWatchBookmarks=true&timeoutSeconds={}",
        target.collection(),
        target.name,
        timeout_seconds()
    );
    if let Some(version) = after {
        path.push_str(&format!("&resourceVersion={}", version.number()));
    }
    let request = lease_api::request(Method::GET, &path, None).map_err(|_| unknown.clone())?;
    let response = client.send(request).await.map_err(|error| {
        tracing::debug!(error = %lease_api::chain(&error), "watch failed");
        unknown
    })?;
    match response.status() {
        StatusCode::OK => Ok(response.into_body()),
        StatusCode::GONE => Err(WatchEvent::Gone),
        status => Err(WatchEvent::Failed(lease_api::failure(status, response.headers()))),
    }
}

/// None: nobody listens any more.
async fn follow(
    lines: &mut Lines,
    target: &Target,
    id: RequestId,
    events: &Events,
) -> Option<WatchEvent<Base>> {
    loop {
        let line = match lines.next().await {
            Next::Line(line) => line,
            Next::End => return Some(WatchEvent::Closed),
            Next::Broken => return Some(WatchEvent::Failed(Failure::UNKNOWN)),
        };
        match parse(&line, target) {
            Parsed::Event(event) => events.send((id, event)).await.ok()?,
            Parsed::Ignore => {}
            Parsed::Last(event) => return Some(event),
        }
    }
}

/// Not drawn by the core, so not reproducible, and of no consequence to it.
fn timeout_seconds() -> u32 {
    // Without random numbers all watches last as long: no harm but a bunched reopening.
    MIN_SECONDS + getrandom::u32().unwrap_or(0) % SPREAD_SECONDS
}

struct Lines {
    body: Body,
    buffer: Vec<u8>,
    /// How much of the buffer is known to hold no end of line.
    searched: usize,
}

enum Next {
    Line(Vec<u8>),
    End,
    /// Reset, or a line without an end.
    Broken,
}

impl Lines {
    async fn next(&mut self) -> Next {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + at + 1);
                self.searched = 0;
                return Next::Line(std::mem::replace(&mut self.buffer, rest));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_BODY_BYTES {
                return Next::Broken;
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "watch broke off");
                    return Next::Broken;
                }
                None => return Next::End,
            }
        }
    }
}

#[derive(Debug, PartialEq)]
enum Parsed {
    Event(WatchEvent<Base>),
    Ignore,
    Last(WatchEvent<Base>),
}

fn parse(line: &[u8], target: &Target) -> Parsed {
    let garbage = Parsed::Last(WatchEvent::Failed(Failure::UNKNOWN));
    if line.trim_ascii().is_empty() {
        return Parsed::Ignore;
    }
    let Ok(mut event) = serde_json::from_slice::<Value>(line) else { return garbage };
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    match event["type"].as_str() {
        Some("BOOKMARK") => {
            let version = lease_json::version(&object);
            Parsed::Event(WatchEvent::Bookmark { version })
        }
        Some("ERROR") => Parsed::Last(error(&object)),
        Some("ADDED" | "MODIFIED" | "DELETED") if object["metadata"]["name"] != *target.name => {
            Parsed::Ignore
        }
        Some("ADDED" | "MODIFIED") => match lease_json::observe(object, &target.name) {
            Some(observed) => Parsed::Event(WatchEvent::Object(observed)),
            None => garbage,
        },
        Some("DELETED") => match lease_json::record(&object) {
            Some(record) => {
                Parsed::Event(WatchEvent::Deleted { uid: record.uid, version: record.version })
            }
            None => garbage,
        },
        Some(_) => Parsed::Ignore,
        None => garbage,
    }
}

fn error(status: &Value) -> WatchEvent<Base> {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    match code.and_then(|code| StatusCode::from_u16(code).ok()) {
        Some(StatusCode::GONE) => WatchEvent::Gone,
        Some(code) => WatchEvent::Failed(lease_api::failure(code, &http::HeaderMap::new())),
        None => WatchEvent::Failed(Failure::UNKNOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Rules;

    fn parsed(line: &str) -> Parsed {
        let target = Target { namespace: "n".into(), name: "l".into(), rules: Rules::default() };
        parse(line.as_bytes(), &target)
    }

    #[test]
    fn each_type_of_event_is_told_as_what_it_is() {
        let object = r#"{"metadata":{"name":"l","uid":"u","resourceVersion":"7"}}"#;
        for kind in ["ADDED", "MODIFIED"] {
            let line = format!(r#"{{"type":"{kind}","object":{object}}}"#);
            let Parsed::Event(WatchEvent::Object(seen)) = parsed(&line) else { panic!("{kind}") };
            assert_eq!(seen.record.version, Some(Version::new(7)));
        }
        assert_eq!(
            parsed(&format!(r#"{{"type":"DELETED","object":{object}}}"#)),
            Parsed::Event(WatchEvent::Deleted { uid: "u".into(), version: Some(Version::new(7)) })
        );
        assert_eq!(
            parsed(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#),
            Parsed::Event(WatchEvent::Bookmark { version: Some(Version::new(9)) })
        );
        assert_eq!(
            parsed(r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#),
            Parsed::Last(WatchEvent::Gone)
        );
        let Parsed::Last(WatchEvent::Failed(failure)) =
            parsed(r#"{"type":"ERROR","object":{"code":500}}"#)
        else {
            panic!()
        };
        assert_eq!(failure.status, Some(500));
    }

    #[test]
    fn what_is_not_ours_is_ignored_and_garbage_ends_it() {
        let other = r#"{"type":"ADDED","object":{"metadata":{"name":"x","uid":"u"}}}"#;
        assert_eq!(parsed(other), Parsed::Ignore);
        assert_eq!(parsed(r#"{"type":"NEWS","object":{}}"#), Parsed::Ignore);
        assert_eq!(parsed("\n"), Parsed::Ignore);
        let no_uid = r#"{"type":"ADDED","object":{"metadata":{"name":"l"}}}"#;
        for junk in ["{", "[]", "{}", "7", r#"{"type":5}"#, no_uid] {
            let end = Parsed::Last(WatchEvent::Failed(Failure::UNKNOWN));
            assert_eq!(parsed(junk), end, "{junk}");
        }
    }

    #[tokio::test]
    async fn lines_come_whole_however_they_were_cut_and_never_without_bound() {
        let body =
            |bytes: Vec<u8>| Lines { body: Body::from(bytes), buffer: Vec::new(), searched: 0 };
        let mut lines = body(b"one\ntwo\nthree".to_vec());
        for expected in ["one\n", "two\n"] {
            let Next::Line(line) = lines.next().await else { panic!() };
            assert_eq!(line, expected.as_bytes());
        }
        assert!(matches!(lines.next().await, Next::End));
        let mut endless = body(vec![b' '; MAX_BODY_BYTES + 1]);
        assert!(matches!(endless.next().await, Next::Broken));
    }

    #[test]
    fn watches_last_fifteen_to_thirty_minutes() {
        for _ in 0..100 {
            assert!((900..1800).contains(&timeout_seconds()));
        }
    }
}
