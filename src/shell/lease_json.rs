//! A Lease as JSON: how each field is read, and what a write changes.
//!
//! The object is kept as it came, with a typed view beside it: a typed one would drop fields it
//! does not know and fail as a whole on one odd time.
//!
//! | field | missing, null | odd |
//! |---|---|---|
//! | `metadata.uid` | no Lease | no Lease |
//! | `metadata.resourceVersion` | no order: blocked | no order: blocked |
//! | `holderIdentity` | nobody, as is `""` | no string: its JSON text, so somebody |
//! | `leaseDurationSeconds` | none | not above zero: none; a fraction: rounded up; beyond an int32: its largest |
//! | `acquireTime`, `renewTime` | none | no RFC 3339 time: kept as text, to see it change |
//! | `leaseTransitions` | none | no integer from 0 to 2^31 - 1: none |
//! | `strategy`, `preferredHolder` | not coordinated, as is `""` | anything else: coordinated |
//! | annotations of ours | absent | absent, and counted |

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core::{
    MAX_EPOCH, Mark, Observed, Record, Released, Rules, Stamp, Version, Wall, Write,
};
use crate::seat::Base;

/// Our annotations.
const EPOCH: &str = "tenure.dev/epoch";
const INCARNATION: &str = "tenure.dev/incarnation";
const TRANSITIONS: &str = "tenure.dev/transitions";
const RELEASED: &str = "tenure.dev/released";

/// The largest int32, the type of `leaseDurationSeconds` and `leaseTransitions`.
const MAX_INT32: u32 = i32::MAX as u32;

/// Reads a Lease of this name. None: it is something else.
#[must_use]
pub fn observe(object: Value, name: &str) -> Option<Observed<Base>> {
    if object.get("kind").is_some_and(|kind| kind != "Lease")
        || object.get("metadata")?.get("name")? != name
    {
        return None;
    }
    Some(Observed { record: record(&object)?, base: Arc::new(object) })
}

/// What an object says. None: it has no uid, so it is none that an API server keeps.
#[must_use]
pub fn record(object: &Value) -> Option<Record> {
    let metadata = &object["metadata"];
    let spec = &object["spec"];
    let uid = metadata["uid"].as_str().filter(|uid| !uid.is_empty())?;
    let notes = Annotations { map: metadata["annotations"].as_object() };
    let (epoch, bad_epoch) = notes.number(EPOCH, 1, MAX_EPOCH);
    let (released, bad_released) = notes.number(RELEASED, 1, MAX_EPOCH);
    let (transitions, bad_transitions) = notes.number(TRANSITIONS, 0, MAX_INT32.into());
    let (incarnation, bad_incarnation) = notes.text(INCARNATION);
    Some(Record {
        uid: uid.into(),
        version: version(object),
        holder: holder(&spec["holderIdentity"]),
        duration: duration(&spec["leaseDurationSeconds"]),
        acquire_time: stamp(&spec["acquireTime"]),
        renew_time: stamp(&spec["renewTime"]),
        transitions: int32(&spec["leaseTransitions"]),
        epoch,
        incarnation,
        annotated_transitions: transitions.and_then(|number| u32::try_from(number).ok()),
        released,
        coordinated: is_set(&spec["strategy"]) || is_set(&spec["preferredHolder"]),
        bad_annotations: [bad_epoch, bad_released, bad_transitions, bad_incarnation]
            .into_iter()
            .map(u8::from)
            .sum(),
    })
}

/// The resourceVersion of any object, where it is a decimal number.
#[must_use]
pub fn version(object: &Value) -> Option<Version> {
    Version::parse(object["metadata"]["resourceVersion"].as_str()?)
}

fn holder(value: &Value) -> Option<Arc<str>> {
    match value {
        Value::Null => None,
        Value::String(name) if name.is_empty() => None,
        Value::String(name) => Some(name.as_str().into()),
        odd => Some(odd.to_string().into()),
    }
}

fn duration(value: &Value) -> Option<Duration> {
    // Exact for every int32; anything larger becomes the largest.
    let seconds = value.as_f64().filter(|seconds| *seconds > 0.0)?;
    Some(Duration::from_secs(seconds.ceil().min(f64::from(MAX_INT32)) as u64))
}

fn int32(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok().filter(|number| *number <= MAX_INT32)
}

fn stamp(value: &Value) -> Option<Stamp> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(match text.parse::<Timestamp>() {
            Ok(at) => Stamp::At(Wall::from_micros(at.as_microsecond())),
            Err(_) => Stamp::Odd(text.as_str().into()),
        }),
        odd => Some(Stamp::Odd(odd.to_string().into())),
    }
}

fn is_set(value: &Value) -> bool {
    !(value.is_null() || value == "")
}

struct Annotations<'a> {
    map: Option<&'a Map<String, Value>>,
}

impl Annotations<'_> {
    /// The number, and whether there is something else in its place. Only the one canonical form
    /// counts: digits without a leading zero.
    fn number(&self, key: &str, min: u64, max: u64) -> (Option<u64>, bool) {
        let Some(value) = self.map.and_then(|map| map.get(key)) else { return (None, false) };
        let number = value
            .as_str()
            .and_then(|text| Some((text, text.parse::<u64>().ok()?)))
            .filter(|(text, number)| number.to_string() == **text)
            .map(|(_, number)| number)
            .filter(|number| (min..=max).contains(number));
        (number, number.is_none())
    }

    fn text(&self, key: &str) -> (Option<Arc<str>>, bool) {
        let Some(value) = self.map.and_then(|map| map.get(key)) else { return (None, false) };
        let text = value.as_str().filter(|text| !text.is_empty()).map(Arc::from);
        let odd = text.is_none();
        (text, odd)
    }
}

/// The body of a PUT: the base with our fields changed, and everything else as it was.
#[must_use]
pub fn apply(write: &Write<Base>, namespace: &str, name: &str, rules: Rules) -> Value {
    let mut object = match &write.base {
        Some(base) => (**base).clone(),
        None => json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": namespace, "name": name},
        }),
    };
    if write.base.is_some() && !rules.on(Mark::UidSent) {
        member(&mut object, "metadata").remove("uid");
    }
    set_spec(member(&mut object, "spec"), write);
    set_annotations(&mut object, write);
    object
}

fn set_spec(spec: &mut Map<String, Value>, write: &Write<Base>) {
    spec.insert("holderIdentity".into(), json!(&*write.holder));
    spec.insert("leaseDurationSeconds".into(), json!(write.duration.as_secs()));
    spec.insert("renewTime".into(), json!(micro_time(write.renew_time)));
    if let Some(at) = write.acquire_time {
        spec.insert("acquireTime".into(), json!(micro_time(at)));
    }
    if let Some(transitions) = write.transitions {
        spec.insert("leaseTransitions".into(), json!(transitions));
    }
}

fn set_annotations(object: &mut Value, write: &Write<Base>) {
    let metadata = member(object, "metadata");
    let mut set = |key: &str, text: String| {
        let notes = metadata.entry("annotations").or_insert(Value::Null);
        as_map(notes).insert(key.into(), Value::String(text));
    };
    if let Some(transitions) = write.transitions {
        set(TRANSITIONS, transitions.to_string());
    }
    if let Some(epoch) = write.epoch {
        set(EPOCH, epoch.to_string());
    }
    if let Some(incarnation) = &write.incarnation {
        set(INCARNATION, incarnation.to_string());
    }
    match write.released {
        Released::Keep => {}
        Released::Set(epoch) => set(RELEASED, epoch.to_string()),
        Released::Remove => {
            if let Some(notes) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                notes.remove(RELEASED);
            }
        }
    }
}

/// The object in this place; what is there and is none is replaced.
fn member<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    as_map(as_map(object).entry(key).or_insert(Value::Null))
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}

/// `2026-11-30T17:51:02.000000Z`: the API server takes six decimals and nothing else.
#[must_use]
pub fn micro_time(at: Wall) -> String {
    let at = Timestamp::from_microsecond(at.as_micros())
        .unwrap_or_else(|_| if at.as_micros() < 0 { Timestamp::MIN } else { Timestamp::MAX });
    format!("{at:.6}")
}

#[cfg(test)]
#[path = "lease_json_tests.rs"]
mod tests;
