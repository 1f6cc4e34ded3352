//! Raw HTTP through a `kube::Client`, and the API servers a check runs against.

use std::any::Any;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::timeout;

/// Longest wait for anything that must come; only a broken server takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An API server, and three callers of it.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// May do everything.
    pub(crate) client: kube::Client,
    /// A known caller without any right.
    pub(crate) stranger: kube::Client,
    /// A caller whose token is not accepted.
    pub(crate) refused: kube::Client,
    /// An existing namespace.
    pub(crate) namespace: String,
    /// Makes the server forget the history of watches up to now.
    pub(crate) forget: Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>,
    /// What must live as long as the target: the server, its processes.
    pub(crate) _keep: Box<dyn Any + Send + Sync>,
}

/// A transport over plain HTTP with a bearer token.
pub(crate) fn plain_client(addr: SocketAddr, token: &str) -> kube::Client {
    let http = legacy::Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http::<Body>();
    let bearer = http::HeaderValue::try_from(format!("Bearer {token}")).expect("a token");
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = format!("http://{addr}{path}").parse().expect("a URI");
        *request.uri_mut() = uri;
        request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        http.request(request)
    });
    kube::Client::new(service, "default")
}

/// An answer, whatever its status. A body that is no JSON is a JSON string.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// Asserts status and reason.
    #[track_caller]
    pub(crate) fn is(self, code: u16, reason: &str) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        let body = self.body;
        if reason.is_empty() {
            assert_eq!(body.get("reason"), None, "{body}");
        } else {
            assert_eq!(body["reason"], reason, "{body}");
        }
        assert_eq!(body["kind"], "Status", "{body}");
        assert_eq!(body["apiVersion"], "v1", "{body}");
        assert_eq!(body["status"], "Failure", "{body}");
        assert_eq!(body["code"], code, "{body}");
        body
    }

    /// Asserts a success and returns the object.
    #[track_caller]
    pub(crate) fn ok(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        self.body
    }
}

pub(crate) async fn send(
    client: &kube::Client,
    method: Method,
    path: &str,
    media_type: &str,
    body: Vec<u8>,
) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, media_type)
        .body(Body::from(body))
        .expect("a request");
    let exchange = async {
        let response = client.send(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a whole body").to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::String(text));
        Answer { code: parts.status.as_u16(), headers: parts.headers, body }
    };
    timeout(PATIENCE, exchange).await.expect("an answer in time")
}

impl Target {
    pub(crate) fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.leases())
    }

    pub(crate) async fn json(&self, method: Method, path: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        send(&self.client, method, path, "application/json", bytes).await
    }

    pub(crate) async fn get(&self, name: &str) -> Answer {
        self.json(Method::GET, &self.path(name), &Value::Null).await
    }

    pub(crate) async fn put(&self, name: &str, lease: &Value) -> Answer {
        self.json(Method::PUT, &self.path(name), lease).await
    }

    pub(crate) async fn post(&self, lease: &Value) -> Answer {
        self.json(Method::POST, &self.leases(), lease).await
    }

    pub(crate) async fn delete(&self, name: &str, options: &Value) -> Answer {
        self.json(Method::DELETE, &self.path(name), options).await
    }

    pub(crate) async fn patch(&self, name: &str, media_type: &str, patch: &Value) -> Answer {
        let bytes = patch.to_string().into_bytes();
        send(&self.client, Method::PATCH, &self.path(name), media_type, bytes).await
    }

    /// Makes a Lease by PUT and returns it as answered.
    pub(crate) async fn create(&self, name: &str) -> Value {
        self.put(name, &lease(name)).await.ok(201)
    }

    /// Opens a watch on one name; `query` begins with `&` or is empty.
    pub(crate) async fn watch(&self, name: &str, query: &str) -> Result<Lines, Answer> {
        let path =
            format!("{}?watch=true&fieldSelector=metadata.name%3D{name}{query}", self.leases());
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = timeout(PATIENCE, self.client.send(request))
            .await
            .expect("in time")
            .expect("an answer");
        if response.status() == StatusCode::OK {
            return Ok(Lines { body: response.into_body(), buffer: Vec::new() });
        }
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let body = serde_json::from_slice(&bytes).expect("JSON");
        Err(Answer { code: parts.status.as_u16(), headers: parts.headers, body })
    }
}

/// The events of a watch, one JSON object a line.
pub(crate) struct Lines {
    body: Body,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next event; none when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event"));
            }
            let frame = timeout(PATIENCE, self.body.frame()).await.expect("a frame in time")?;
            if let Ok(data) = frame.expect("an unbroken stream").into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// The next event, which must be of this type; returns its object. Bookmarks are passed over
    /// unless one is wanted.
    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        loop {
            let mut event = self.next().await.expect("an event, not the end");
            if event["type"] == "BOOKMARK" && kind != "BOOKMARK" {
                continue;
            }
            assert_eq!(event["type"], kind, "{event}");
            return event["object"].take();
        }
    }
}

/// A Lease with every field that an elector writes.
pub(crate) fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 1,
            "acquireTime": "2026-01-01T00:00:00.000001Z",
            "renewTime": "2026-01-01T00:00:02.000002Z",
        },
    })
}

/// The same object with one value changed, by JSON pointer.
pub(crate) fn with(object: &Value, pointer: &str, value: impl Into<Value>) -> Value {
    let mut changed = object.clone();
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    changed.pointer_mut(parent).expect("a parent")[field] = value.into();
    changed
}

/// The same object without one field of its metadata.
pub(crate) fn without_meta(object: &Value, field: &str) -> Value {
    let mut changed = object.clone();
    changed["metadata"].as_object_mut().expect("metadata").remove(field);
    changed
}

pub(crate) fn rv(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no version in {object}"))
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
