//! Queries, parsed strictly: a misspelt `min_valid` that was ignored would be believed.

use std::time::Duration;

use axum::extract::Query;
use http::Uri;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::reply::Refusal;
use crate::core::Ask;

/// The longest a caller may ask to be kept waiting.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(5 * 60);

/// The query of `/leader` and `/is-leader`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeaderQuery {
    /// How long to wait for a change; zero: answer at once.
    pub(super) wait: Duration,
    /// The version the caller knows; None: the one of now.
    pub(super) after: Option<u64>,
    pub(super) ask: Ask,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLeader {
    wait: Option<String>,
    after: Option<String>,
    min_valid: Option<String>,
    max_valid: Option<String>,
}

impl LeaderQuery {
    /// `renew_deadline`: no term is ever valid for longer; `cap`: nor any answer, where it is given.
    pub(super) fn parse(
        uri: &Uri,
        renew_deadline: Duration,
        cap: Option<Duration>,
    ) -> Result<LeaderQuery, Refusal> {
        let raw: RawLeader = parse(uri)?;
        let wait = span("wait", raw.wait.as_deref())?.unwrap_or_default();
        at_most("wait", wait, MAX_WAIT)?;
        let min_valid = span("min_valid", raw.min_valid.as_deref())?;
        if min_valid.is_some_and(|min| min >= renew_deadline) {
            return Err(Refusal::out_of_range(format!(
                "min_valid must be less than the renew deadline, {renew_deadline:?}: it could \
                 never be true"
            )));
        }
        let max_valid = span("max_valid", raw.max_valid.as_deref())?;
        if max_valid.is_some_and(|max| max < Duration::from_millis(1)) {
            return Err(Refusal::out_of_range("max_valid must be at least 1ms"));
        }
        let most = [max_valid, cap].into_iter().flatten().min();
        if let Some(most) = most.filter(|most| min_valid.is_some_and(|min| min > *most)) {
            return Err(Refusal::out_of_range(format!(
                "min_valid must be at most max_valid, {most:?} here: it could never be true"
            )));
        }
        let after = raw.after.as_deref().map(|text| {
            decimal(text)
                .ok_or_else(|| Refusal::bad_request("after must be a version: a decimal number"))
        });
        Ok(LeaderQuery {
            wait,
            after: after.transpose()?,
            ask: Ask { min_valid, max_valid, sees_no_length: false },
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEvents {
    hold: Option<String>,
}

/// Whether a stream is a hold.
pub(super) fn hold(uri: &Uri) -> Result<bool, Refusal> {
    match parse::<RawEvents>(uri)?.hold.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Refusal::bad_request("hold must be true or false")),
    }
}

fn parse<T: DeserializeOwned + Default>(uri: &Uri) -> Result<T, Refusal> {
    if uri.query().is_none() {
        return Ok(T::default());
    }
    Query::<T>::try_from_uri(uri)
        .map(|Query(query)| query)
        .map_err(|error| Refusal::bad_request(format!("bad query: {}", error.body_text())))
}

fn span(name: &str, text: Option<&str>) -> Result<Option<Duration>, Refusal> {
    text.map(|text| {
        duration(text).ok_or_else(|| {
            Refusal::bad_request(format!("{name} must be a duration like 500ms, 15s or 1m30s"))
        })
    })
    .transpose()
}

pub(super) fn at_most(name: &str, value: Duration, most: Duration) -> Result<(), Refusal> {
    if value > most {
        return Err(Refusal::out_of_range(format!("{name} must be at most {}s", most.as_secs())));
    }
    Ok(())
}

/// `15s`, `500ms`, `1m30s`, `1h`: numbers with units, largest first, each at most once. Also `0`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut units = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1_u64)].iter();
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number = decimal(&rest[..digits])?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (_, ms) = units.find(|(unit, _)| *unit == &rest[..end])?;
        total = total.checked_add(number.checked_mul(*ms)?)?;
        rest = &rest[end..];
    }
    (!text.is_empty()).then(|| Duration::from_millis(total))
}

/// Digits only: Rust's own parser would take a `+`.
pub(super) fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: Duration = Duration::from_secs(10);

    fn capped(query: &str, cap: Option<Duration>) -> Result<LeaderQuery, Refusal> {
        LeaderQuery::parse(&format!("/leader?{query}").parse().unwrap(), R, cap)
    }

    fn leader(query: &str) -> Result<LeaderQuery, Refusal> {
        capped(query, None)
    }

    #[test]
    fn durations_are_read_as_documented() {
        let ms = |ms| Some(Duration::from_millis(ms));
        for (text, want) in [
            ("15s", ms(15_000)),
            ("500ms", ms(500)),
            ("1m30s", ms(90_000)),
            ("1h1m1s1ms", ms(3_661_001)),
            ("0", ms(0)),
            ("0s", ms(0)),
        ] {
            assert_eq!(duration(text), want, "{text}");
        }
        for text in ["", "5", "s", "-5s", "+5s", "1.5s", "5 s", "1s1m", "1s1s", "5d", "5S", "1é"] {
            assert_eq!(duration(text), None, "{text}");
        }
        assert_eq!(duration("18446744073709551615h"), None);
    }

    #[test]
    fn a_leader_query_is_taken_whole_or_not_at_all() {
        let query = leader("wait=30s&after=7&min_valid=2s&max_valid=5s").unwrap();
        assert_eq!((query.wait, query.after), (Duration::from_secs(30), Some(7)));
        assert_eq!(query.ask.min_valid, Some(Duration::from_secs(2)));
        assert_eq!(query.ask.max_valid, Some(Duration::from_secs(5)));
        assert_eq!(leader("").unwrap().ask, Ask::default());
        for bad in
            ["wait=soon", "after=-1", "after=+1", "after=", "min_vaild=5s", "wait=1s&wait=2s"]
        {
            let refusal = leader(bad).unwrap_err();
            assert!(format!("{refusal:?}").contains("400"), "{bad}: {refusal:?}");
        }
        for out in ["wait=5m1ms", "min_valid=10s", "max_valid=0s", "min_valid=2001ms&max_valid=2s"]
        {
            let refusal = leader(out).unwrap_err();
            assert!(format!("{refusal:?}").contains("422"), "{out}: {refusal:?}");
        }
        leader("min_valid=2s&max_valid=2s").unwrap();
        let two = Some(Duration::from_secs(2));
        capped("min_valid=2s", two).unwrap();
        for query in ["min_valid=3s", "min_valid=3s&max_valid=4s"] {
            assert!(format!("{:?}", capped(query, two).unwrap_err()).contains("422"), "{query}");
        }
    }
}
