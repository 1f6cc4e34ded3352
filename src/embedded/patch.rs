//! PATCH: JSON merge patch (RFC 7386) and the common operations of JSON patch (RFC 6902).

use serde_json::{Map, Value};

use super::status::{self, BadField, GROUP, LEASES, Outcome};

/// A patch as sent.
#[derive(Debug, Clone)]
pub(super) enum Patch {
    Merge(Value),
    Json(Vec<Value>),
}

impl Patch {
    /// # Errors
    /// 415 for another media type, 400 for a JSON patch that is no list.
    pub(super) fn parse(media_type: &str, body: Value) -> Outcome<Self> {
        match (media_type, body) {
            ("application/merge-patch+json" | "application/strategic-merge-patch+json", body) => {
                Ok(Patch::Merge(body))
            }
            ("application/json-patch+json", Value::Array(steps)) => Ok(Patch::Json(steps)),
            ("application/json-patch+json", _) => {
                Err(status::bad_request("error decoding patch: not a list of operations"))
            }
            _ => Err(status::unsupported_media_type()),
        }
    }

    pub(super) fn apply(&self, object: &mut Value) -> Outcome<()> {
        match self {
            Patch::Merge(patch) => {
                merge(object, patch);
                Ok(())
            }
            Patch::Json(steps) => steps.iter().try_for_each(|step| apply_step(object, step)),
        }
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (field, value) in patch {
        if value.is_null() {
            fields.remove(field);
        } else {
            merge(fields.entry(field.clone()).or_insert(Value::Null), value);
        }
    }
}

/// `add`, `replace`, `remove` and `test` on fields of objects; lists only as a whole.
fn apply_step(object: &mut Value, step: &Value) -> Outcome<()> {
    let refuse = || {
        let why = "the server rejected our request due to an error in our request";
        let bad = BadField::invalid("patch", step, why);
        status::invalid(GROUP, LEASES, "", &[bad])
    };
    let path = step["path"].as_str().ok_or_else(refuse)?;
    let (parent, field) = path.rsplit_once('/').ok_or_else(refuse)?;
    let field = field.replace("~1", "/").replace("~0", "~");
    let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).ok_or_else(refuse)?;
    let held = parent.contains_key(&field);
    match step["op"].as_str() {
        Some("add") => {
            parent.insert(field, step["value"].clone());
        }
        Some("replace") if held => {
            parent.insert(field, step["value"].clone());
        }
        Some("remove") if held => {
            parent.remove(&field);
        }
        Some("test") if parent.get(&field) == Some(&step["value"]) => {}
        _ => return Err(refuse()),
    }
    Ok(())
}
