//! What the real server's decoder and validation make of the JSON of a Lease or an Event.

use k8s_openapi::jiff::ToSpan;
use k8s_openapi::jiff::civil::DateTime;
use k8s_openapi::jiff::fmt::strtime;
use serde_json::{Map, Value};

use super::status::{BadField, GROUP, Outcome, bad_request, invalid};

/// Bytes of all annotations (keys and values) of one object.
const ANNOTATIONS_LIMIT_BYTES: usize = 256 * 1024;
/// Bytes of an object's name (a DNS subdomain).
const NAME_LIMIT_BYTES: usize = 253;

/// Fields of the spec that the real server drops, but a test may want to see kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepFields {
    /// Keep spec fields this version of Kubernetes does not know.
    pub unknown: bool,
    /// Keep `strategy` and `preferredHolder`, as with the feature gate on.
    pub coordinated: bool,
}

/// Decodes a Lease as the real server does: types checked, times normalised to Z, nulls and
/// unknown fields dropped.
///
/// # Errors
/// 400 for wrong types and times without exactly six fraction digits.
pub(super) fn decode_lease(body: Value, keep: KeepFields) -> Outcome<Value> {
    let Value::Object(mut body) = body else {
        return Err(cannot_handle("json: cannot unmarshal into Go value of type v1.Lease"));
    };
    expect_type(&body, "apiVersion", "coordination.k8s.io/v1")?;
    expect_type(&body, "kind", "Lease")?;
    let metadata = decode_metadata(body.remove("metadata"))?;
    let spec = decode_spec(body.remove("spec"), keep)?;
    let mut lease = Map::new();
    lease.insert("kind".into(), "Lease".into());
    lease.insert("apiVersion".into(), "coordination.k8s.io/v1".into());
    lease.insert("metadata".into(), metadata.into());
    lease.insert("spec".into(), spec.into());
    Ok(lease.into())
}

fn expect_type(body: &Map<String, Value>, field: &str, wanted: &str) -> Outcome<()> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(sent)) if sent.is_empty() || sent == wanted => Ok(()),
        Some(sent) => Err(bad_request(format!(
            "the {field} in the data ({sent}) does not match the expected {field} ({wanted})"
        ))),
    }
}

fn cannot_handle(why: &str) -> super::status::Refusal {
    bad_request(format!("Lease in version \"v1\" cannot be handled as a Lease: {why}"))
}

fn wrong_type(value: &Value, field: &str, wanted: &str) -> super::status::Refusal {
    let got = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(n) => format!("number {n}"),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    cannot_handle(&format!(
        "json: cannot unmarshal {got} into Go struct field {field} of type {wanted}"
    ))
}

fn decode_metadata(metadata: Option<Value>) -> Outcome<Map<String, Value>> {
    let mut known = Map::new();
    let sent = match metadata {
        None | Some(Value::Null) => return Ok(known),
        Some(Value::Object(sent)) => sent,
        Some(other) => return Err(wrong_type(&other, "Lease.metadata", "v1.ObjectMeta")),
    };
    for (field, value) in sent {
        if value.is_null() {
            continue;
        }
        let place = format!("ObjectMeta.metadata.{field}");
        match field.as_str() {
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion"
            | "creationTimestamp" | "deletionTimestamp" => match value.as_str() {
                None => return Err(wrong_type(&value, &place, "string")),
                Some("") => continue,
                Some(_) => {}
            },
            "deletionGracePeriodSeconds" | "generation" => {
                if value.as_i64().is_none() {
                    return Err(wrong_type(&value, &place, "int64"));
                }
            }
            "labels" | "annotations" => {
                if !is_map_of_strings(&value) {
                    return Err(wrong_type(&value, &place, "map[string]string"));
                }
            }
            "finalizers" | "ownerReferences" | "managedFields" => {
                if !value.is_array() {
                    return Err(wrong_type(&value, &place, "slice"));
                }
            }
            _ => continue,
        }
        known.insert(field, value);
    }
    Ok(known)
}

fn is_map_of_strings(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(Value::is_string))
}

fn decode_spec(spec: Option<Value>, keep: KeepFields) -> Outcome<Map<String, Value>> {
    let mut known = Map::new();
    let sent = match spec {
        None | Some(Value::Null) => return Ok(known),
        Some(Value::Object(sent)) => sent,
        Some(other) => return Err(wrong_type(&other, "Lease.spec", "v1.LeaseSpec")),
    };
    for (field, value) in sent {
        if value.is_null() {
            continue;
        }
        let place = format!("LeaseSpec.spec.{field}");
        let value = match field.as_str() {
            "holderIdentity" if !value.is_string() => {
                return Err(wrong_type(&value, &place, "string"));
            }
            "holderIdentity" => value,
            "leaseDurationSeconds" | "leaseTransitions" => {
                let number = value.as_i64().and_then(|n| i32::try_from(n).ok());
                number.ok_or_else(|| wrong_type(&value, &place, "int32"))?.into()
            }
            "acquireTime" | "renewTime" => {
                let text = value.as_str().ok_or_else(|| wrong_type(&value, &place, "string"))?;
                match normalize_micro_time(text)? {
                    time if time == ZERO_TIME => Value::Null,
                    time => time.into(),
                }
            }
            "strategy" | "preferredHolder" if !value.is_string() => {
                return Err(wrong_type(&value, &place, "string"));
            }
            "strategy" | "preferredHolder" if keep.coordinated => value,
            "strategy" | "preferredHolder" => continue,
            _ if keep.unknown => value,
            _ => continue,
        };
        known.insert(field, value);
    }
    Ok(known)
}

/// Go's zero time, which the real server takes and answers as null.
const ZERO_TIME: &str = "0001-01-01T00:00:00.000000Z";

/// `2006-01-02T15:04:05.000000Z07:00`, to UTC. Civil time, because the real server knows the years
/// 0 to 9999 to their ends and no leap seconds.
///
/// # Errors
/// 400 unless there are exactly six fraction digits.
pub(super) fn normalize_micro_time(text: &str) -> Outcome<String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let refuse = |rest: &str| {
        cannot_handle(&format!(
            "parsing time \"{text}\" as \"{LAYOUT}\": cannot parse \"{rest}\" as \".000000\""
        ))
    };
    let (Some(head), Some(rest)) = (text.get(..19), text.get(19..)) else {
        return Err(refuse(text));
    };
    let digits = rest.get(1..).map_or(0, |r| r.bytes().take_while(u8::is_ascii_digit).count());
    let shape = head.as_bytes()[10] == b'T' && !head.contains(['.', ',']) && !head.ends_with("60");
    if !shape || digits != 6 || !rest.starts_with(['.', ',']) {
        return Err(refuse(rest));
    }
    let local: DateTime = format!("{head}.{}", &rest[1..7]).parse().map_err(|_| refuse(rest))?;
    let offset = offset_minutes(&rest[7..]).ok_or_else(|| refuse(rest))?;
    let utc = local.checked_sub(offset.minutes()).map_err(|_| refuse(rest))?;
    strtime::format("%Y-%m-%dT%H:%M:%S%.6fZ", utc).map_err(|_| refuse(rest))
}

/// `Z`, `+01:00`, `-00:30`.
fn offset_minutes(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let number = |text: &str, limit: i64| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number: &i64| digits && *number <= limit)
    };
    Some(sign * (number(hours, 24)? * 60 + number(minutes, 59)?))
}

/// The rules the real server has for a decoded Lease.
///
/// # Errors
/// 422 that names every broken rule.
pub(super) fn validate_lease(name: &str, lease: &Value) -> Outcome<()> {
    let mut bad = validate_metadata(&lease["metadata"]);
    let spec = &lease["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64()
        && seconds <= 0
    {
        let why = "must be greater than 0";
        bad.push(BadField::invalid("spec.leaseDurationSeconds", &seconds.into(), why));
    }
    if let Some(transitions) = spec["leaseTransitions"].as_i64()
        && transitions < 0
    {
        let why = "must be greater than or equal to 0";
        bad.push(BadField::invalid("spec.leaseTransitions", &transitions.into(), why));
    }
    let unset = |field: &str| spec[field].as_str().unwrap_or_default().is_empty();
    if !unset("preferredHolder") && unset("strategy") {
        let why = "must be specified when `preferredHolder` is specified";
        bad.push(BadField::required("spec.strategy", why));
    }
    if bad.is_empty() { Ok(()) } else { Err(invalid(GROUP, "Lease", name, &bad)) }
}

fn validate_metadata(metadata: &Value) -> Vec<BadField> {
    let mut bad = Vec::new();
    let name = metadata["name"].as_str();
    // Of a prefix only a dash at its end is forgiven: something follows it.
    let prefix = metadata["generateName"].as_str().map(|prefix| (prefix, "metadata.generateName"));
    for (sent, field) in name.map(|name| (name, "metadata.name")).into_iter().chain(prefix) {
        let shape = if field == "metadata.name" { sent } else { sent.trim_end_matches('-') };
        if !is_dns_subdomain(shape) {
            let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                       characters, '-' or '.', and must start and end with an alphanumeric character";
            bad.push(BadField::invalid(field, &sent.into(), why));
        }
    }
    if let Some(annotations) = metadata["annotations"].as_object() {
        let bytes: usize =
            annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
        if bytes > ANNOTATIONS_LIMIT_BYTES {
            bad.push(BadField::too_long("metadata.annotations", ANNOTATIONS_LIMIT_BYTES));
        }
    }
    bad
}

fn is_dns_subdomain(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= NAME_LIMIT_BYTES && name.split('.').all(label)
}

/// The rules of `events.k8s.io/v1` for a new Event in `namespace`.
///
/// # Errors
/// 400 for an odd eventTime, 422 for the rest.
pub(super) fn validate_event(namespace: &str, event: &mut Value) -> Outcome<()> {
    const SHORT_LIMIT_BYTES: usize = 128;
    const NOTE_LIMIT_BYTES: usize = 1024;
    let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut bad = validate_metadata(&event["metadata"]);
    match event["eventTime"].as_str().map(normalize_micro_time) {
        Some(time) => event["eventTime"] = time?.into(),
        None => bad.push(BadField::required("eventTime", "")),
    }
    for field in ["reportingController", "reportingInstance", "action", "reason"] {
        match event[field].as_str().unwrap_or_default() {
            "" => bad.push(BadField::required(field, "")),
            text if text.len() > SHORT_LIMIT_BYTES => {
                bad.push(BadField::too_long(field, SHORT_LIMIT_BYTES));
            }
            _ => {}
        }
    }
    if event["note"].as_str().is_some_and(|note| note.len() > NOTE_LIMIT_BYTES) {
        bad.push(BadField::too_long("note", NOTE_LIMIT_BYTES));
    }
    if !matches!(event["type"].as_str(), Some("Normal" | "Warning")) {
        bad.push(BadField::invalid("type", &event["type"], "has invalid value"));
    }
    if event["regarding"]["namespace"].as_str().unwrap_or_default() != namespace {
        let why = "does not match event.namespace";
        bad.push(BadField::invalid(
            "involvedObject.namespace",
            &event["regarding"]["namespace"],
            why,
        ));
    }
    if bad.is_empty() { Ok(()) } else { Err(invalid("", "Event", &name, &bad)) }
}
