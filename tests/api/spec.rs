//! docs/openapi.yaml, as a judge of answers.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use serde_json::{Value, json};

use crate::client::Answer;

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../docs/openapi.yaml");
    let mut document: Value = serde_yaml_ng::from_str(text).expect("docs/openapi.yaml is YAML");
    close(&mut document["components"]["schemas"]);
    document
});

static VALIDATORS: LazyLock<Mutex<HashMap<String, jsonschema::Validator>>> =
    LazyLock::new(Mutex::default);

/// Clients ignore fields they don't know; here, one that is not documented is a mistake.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") && object.contains_key("type") {
                object.entry("additionalProperties").or_insert(json!(false));
            }
            object.values_mut().for_each(close);
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').expect("a local reference");
            document.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere"))
        }
        None => value,
    }
}

/// Panics unless the document has such an answer to such a request.
pub(crate) fn check(tag: &str, method: &str, target: &str, answer: &Answer) {
    let path = target.split('?').next().unwrap_or_default();
    let status = answer.status.to_string();
    let path = match path.strip_prefix("/fence/") {
        Some(epoch) if !epoch.contains('/') => "/fence/{epoch}",
        _ => path,
    };
    let operations = &DOCUMENT["paths"][path];
    let served = operations.as_object().is_some_and(|operations| {
        operations.values().any(|operation| operation["tags"] == json!([tag]))
    });
    // Over TCP a foreign Host is refused whatever is asked for.
    if !served && answer.status != 403 {
        assert_eq!(answer.status, 404, "{method} {target} is not documented: {answer:?}");
    }
    if !served {
        return judge(&json!({"$ref": "#/components/schemas/Error"}), &answer.json());
    }
    // A wrong method is described with the right one.
    let name = if method == "POST" { "post" } else { "get" };
    let operation = operations.get(name).or_else(|| operations.as_object()?.values().next());
    let responses = &operation.expect("an operation")["responses"];
    let response = responses.get(&status).unwrap_or_else(|| {
        panic!("{method} {target}: {status} is not documented: {answer:?}");
    });
    let response = resolve(&DOCUMENT, response);
    for (name, _) in response["headers"].as_object().into_iter().flatten() {
        assert!(answer.header(name).is_some(), "{name} is missing: {answer:?}");
    }
    let (content_type, media) = response["content"].as_object().unwrap().iter().next().unwrap();
    let told = answer.header("content-type").unwrap_or_default();
    assert_eq!(told.split(';').next(), Some(&**content_type), "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    if method != "HEAD" && content_type == "application/json" {
        assert!(answer.body.ends_with(b"\n"), "{answer:?}");
        judge(&media["schema"], &answer.json());
    }
}

/// Checks the data of an event of the stream.
pub(crate) fn check_event(event: &str, data: &Value) {
    let stream = &DOCUMENT["paths"]["/leader/events"]["get"]["responses"]["200"];
    let events = &stream["content"]["text/event-stream"]["x-events"];
    judge(&events[event], data);
}

fn judge(schema: &Value, instance: &Value) {
    let mut validators = VALIDATORS.lock().unwrap();
    let validator = validators.entry(schema.to_string()).or_insert_with(|| {
        let mut whole = schema.clone();
        whole["components"] = DOCUMENT["components"].clone();
        whole["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        jsonschema::validator_for(&whole).expect("a sound schema")
    });
    let errors: Vec<String> =
        validator.iter_errors(instance).map(|e| format!("{}: {e}", e.instance_path())).collect();
    drop(validators);
    assert!(errors.is_empty(), "{errors:#?}\n{instance:#}");
}

#[test]
fn the_judge_refuses_what_is_not_documented() {
    let verdict = |body: &str| {
        let answer = Answer::parse(
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                 cache-control: no-store\r\n\r\n{body}\n"
            )
            .as_bytes(),
        );
        std::panic::catch_unwind(|| check("local", "GET", "/", &answer)).is_ok()
    };
    assert!(verdict(r#"{"name": "web"}"#));
    assert!(!verdict(r#"{"name": 7}"#));
    assert!(!verdict(r#"{"name": "web", "surprise": 1}"#));
    assert!(!verdict(r#"{}"#));
}
