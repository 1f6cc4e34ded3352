//! Refusals with the words of a real API server.

use http::StatusCode;
use serde_json::{Value, json};

pub(super) const GROUP: &str = "coordination.k8s.io";
pub(super) const LEASES: &str = "leases";

/// A request that was refused: the HTTP status and the `Status` object of the answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    pub(super) body: Value,
    /// `Retry-After` in seconds, where the real server sends that header.
    pub(super) retry_after_seconds: Option<u32>,
}

pub(super) type Outcome<T> = Result<T, Refusal>;

fn status(code: StatusCode, reason: &str, message: String, details: Option<Value>) -> Refusal {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "code": code.as_u16(),
    });
    if !reason.is_empty() {
        body["reason"] = reason.into();
    }
    if let Some(details) = details {
        body["details"] = details;
    }
    Refusal { code, body, retry_after_seconds: None }
}

fn lease_details(name: &str) -> Option<Value> {
    Some(json!({"name": name, "group": GROUP, "kind": LEASES}))
}

pub(super) fn not_found(name: &str) -> Refusal {
    let message = format!("{LEASES}.{GROUP} \"{name}\" not found");
    status(StatusCode::NOT_FOUND, "NotFound", message, lease_details(name))
}

pub(super) fn already_exists(name: &str) -> Refusal {
    let message = format!("{LEASES}.{GROUP} \"{name}\" already exists");
    status(StatusCode::CONFLICT, "AlreadyExists", message, lease_details(name))
}

/// The compare-and-swap on the resourceVersion failed.
pub(super) fn conflict(name: &str) -> Refusal {
    conflict_because(
        name,
        "the object has been modified; please apply your changes to the latest version and try \
         again",
    )
}

/// The uid in the object is not the stored one; `stored` is empty for an absent object.
pub(super) fn uid_conflict(namespace: &str, name: &str, sent: &str, stored: &str) -> Refusal {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/leases/{namespace}/{name}, \
         ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, \
         UID in object meta: {stored}"
    );
    conflict_because(name, &why)
}

fn conflict_because(name: &str, why: &str) -> Refusal {
    let message = format!("Operation cannot be fulfilled on {LEASES}.{GROUP} \"{name}\": {why}");
    status(StatusCode::CONFLICT, "Conflict", message, lease_details(name))
}

/// A precondition of a DELETE failed. `field` is `UID` or `ResourceVersion`.
pub(super) fn delete_conflict(name: &str, field: &str, sent: &str, stored: &str) -> Refusal {
    let hint = if field == "UID" { "deleted and then recreated" } else { "modified" };
    let message = format!(
        "Operation cannot be fulfilled on Lease.{GROUP} \"{name}\": the {field} in the \
         precondition ({sent}) does not match the {field} in record ({stored}). The object might \
         have been {hint}"
    );
    let details = json!({"name": name, "group": GROUP, "kind": "Lease"});
    status(StatusCode::CONFLICT, "Conflict", message, Some(details))
}

/// One field that breaks a rule of validation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BadField {
    pub(super) field: String,
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldValueTooLong`.
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl BadField {
    pub(super) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { field: field.into(), reason: "FieldValueInvalid", message }
    }

    pub(super) fn required(field: &str, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    pub(super) fn too_long(field: &str, limit: usize) -> Self {
        let message = format!("Too long: may not be more than {limit} bytes");
        Self { field: field.into(), reason: "FieldValueTooLong", message }
    }
}

/// 422. `kind` is `Lease` for rules of the object, `leases` for rules of the store.
pub(super) fn invalid(group: &str, kind: &str, name: &str, bad: &[BadField]) -> Refusal {
    let texts: Vec<String> = bad.iter().map(|b| format!("{}: {}", b.field, b.message)).collect();
    let list = match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let message = format!("{kind}.{group} \"{name}\" is invalid: {list}");
    let causes: Vec<Value> = bad
        .iter()
        .map(|b| json!({"reason": b.reason, "message": b.message, "field": b.field}))
        .collect();
    let details = json!({"name": name, "group": group, "kind": kind, "causes": causes});
    status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message, Some(details))
}

/// 422: a PUT to an existing object carried no resourceVersion.
pub(super) fn version_required(name: &str) -> Refusal {
    let bad =
        BadField::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
    invalid(GROUP, LEASES, name, &[bad])
}

pub(super) fn bad_request(message: impl Into<String>) -> Refusal {
    status(StatusCode::BAD_REQUEST, "BadRequest", message.into(), None)
}

/// 500 without a reason: what the real server makes of an error it has no name for.
pub(super) fn internal(message: impl Into<String>) -> Refusal {
    status(StatusCode::INTERNAL_SERVER_ERROR, "", message.into(), None)
}

pub(super) fn unauthorized() -> Refusal {
    status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".into(), None)
}

/// What a caller was not allowed to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forbidden<'a> {
    pub(super) user: &'a str,
    pub(super) verb: &'a str,
    pub(super) resource: &'a str,
    pub(super) group: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) name: Option<&'a str>,
}

pub(super) fn forbidden(what: Forbidden<'_>) -> Refusal {
    let Forbidden { user, verb, resource, group, namespace, name } = what;
    let object = name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let place = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let message = format!(
        "{resource}.{group}{object} is forbidden: User \"{user}\" cannot {verb} resource \
         \"{resource}\" in API group \"{group}\" {place}"
    );
    let mut details = json!({"group": group, "kind": resource});
    if let Some(name) = name {
        details["name"] = name.into();
    }
    status(StatusCode::FORBIDDEN, "Forbidden", message, Some(details))
}

/// 410: the version was compacted away.
pub(super) fn expired(asked: u64, oldest: u64) -> Refusal {
    let message = format!("too old resource version: {asked} ({oldest})");
    status(StatusCode::GONE, "Expired", message, None)
}

/// 504: the version lies in the future.
pub(super) fn too_large_version(asked: u64, current: u64) -> Refusal {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    let cause =
        json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    let details = json!({"causes": [cause], "retryAfterSeconds": 1});
    let mut refusal = status(StatusCode::GATEWAY_TIMEOUT, "Timeout", message, Some(details));
    refusal.retry_after_seconds = Some(1);
    refusal
}

pub(super) fn no_such_path() -> Refusal {
    let message = "the server could not find the requested resource".to_owned();
    status(StatusCode::NOT_FOUND, "NotFound", message, Some(json!({})))
}

pub(super) fn method_not_allowed() -> Refusal {
    let message = "the server does not allow this method on the requested resource".to_owned();
    status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message, Some(json!({})))
}

pub(super) fn too_large_body() -> Refusal {
    let message = "Request entity too large: limit is 3145728".to_owned();
    status(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message, None)
}

pub(super) fn unsupported_media_type() -> Refusal {
    let message = "the body of the request was in an unknown format - accepted media types \
                   include: application/json"
        .to_owned();
    status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message, None)
}

/// The body a fault answers with when it names a status and no text.
pub(super) fn of_code(code: StatusCode) -> Refusal {
    let reason = match code.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let message = code.canonical_reason().unwrap_or("a fault of the test").to_owned();
    status(code, reason, message, None)
}

/// The answer to a DELETE that removed the object.
pub(super) fn deleted(name: &str, uid: &Value) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": name, "group": GROUP, "kind": LEASES, "uid": uid},
    })
}
