//! A stand-in for the sidecar's local API: answers as its contract has them, and what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::watch;

/// What the stub says at the moment.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// A body of `/leader`.
    Body(Value),
    /// A status with an error, as in `{"error": "…"}`.
    Error(u16),
    /// Nothing: requests are taken and never answered.
    Nothing,
}

/// One request that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) target: String,
    pub(crate) host: String,
    pub(crate) bearer: Option<String>,
    pub(crate) body: String,
}

#[derive(Clone)]
pub(crate) struct Stub {
    says: watch::Sender<Says>,
    release: Arc<Mutex<(u16, Value)>>,
    asked: watch::Sender<Vec<Asked>>,
}

pub(crate) fn leading(version: u64, epoch: u64, valid_for_ms: u64) -> Says {
    Says::Body(json!({
        "leader": true, "state": "leading", "reason": "acquired", "version": version,
        "epoch": epoch, "valid_for_ms": valid_for_ms, "waited_ms": 0,
        "valid_until_boottime_ms": 912_345_678, "boot_id": "3f1c",
        "leader_since": "2026-11-30T17:51:02Z", "identity": "web-a_1", "holder": "web-a_1",
        "holder_observed_age_ms": 412, "holds": 1,
        "lease": {"namespace": "shop", "name": "billing", "uid": "u", "duration_ms": 15000,
                  "transitions": 3, "epoch": epoch},
        "a field of a later version": [1, 2],
    }))
}

pub(crate) fn following(version: u64, holder: Option<&str>, epoch: Option<u64>) -> Says {
    Says::Body(json!({
        "leader": false, "state": "following", "reason": "holder_changed", "version": version,
        "epoch": null, "valid_for_ms": 0, "waited_ms": 0, "valid_until_boottime_ms": null,
        "boot_id": "3f1c", "leader_since": null, "identity": "web-a_1", "holder": holder,
        "holder_observed_age_ms": null, "holds": 0,
        "lease": {"namespace": "shop", "name": "billing", "uid": null, "duration_ms": 15000,
                  "transitions": 3, "epoch": epoch},
    }))
}

impl Stub {
    pub(crate) fn new(says: Says) -> Self {
        let nothing_held = (200, json!({"released": false, "held": false}));
        Self {
            says: watch::channel(says).0,
            release: Arc::new(Mutex::new(nothing_held)),
            asked: watch::channel(Vec::new()).0,
        }
    }

    pub(crate) fn say(&self, says: Says) {
        self.says.send_replace(says);
    }

    pub(crate) fn answer_release(&self, status: u16, body: Value) {
        *self.release.lock().unwrap() = (status, body);
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.borrow().clone()
    }

    /// Waits until that many requests were taken.
    pub(crate) async fn asked_times(&self, times: usize) {
        self.asked.subscribe().wait_for(|asked| asked.len() >= times).await.unwrap();
    }

    pub(crate) fn router(&self) -> Router {
        Router::new()
            .route("/is-leader", get(is_leader))
            .route("/release", post(release))
            .with_state(self.clone())
    }

    /// Serves on a free port of loopback, until the test ends; its URL.
    pub(crate) async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, self.router()).into_future());
        url
    }

    fn note(&self, target: String, headers: &HeaderMap, body: String) {
        let header = |name: &str| headers.get(name).map(|v| v.to_str().unwrap().to_owned());
        let (host, bearer) = (header("host").unwrap_or_default(), header("authorization"));
        self.asked.send_modify(|asked| asked.push(Asked { target, host, bearer, body }));
    }
}

#[derive(serde::Deserialize)]
struct Poll {
    wait: Option<String>,
    after: Option<u64>,
}

async fn is_leader(
    State(stub): State<Stub>,
    Query(poll): Query<Poll>,
    uri: axum::http::Uri,
    headers: HeaderMap,
) -> impl IntoResponse {
    let mut says = stub.says.subscribe();
    stub.note(uri.to_string(), &headers, String::new());
    let wait = poll.wait.map_or(0, |wait| wait.strip_suffix("ms").unwrap().parse().unwrap());
    let news = |says: &Says| match says {
        Says::Body(body) => poll.after.is_none_or(|after| body["version"] != after),
        Says::Error(_) => true,
        Says::Nothing => false,
    };
    let wait = tokio::time::timeout(Duration::from_millis(wait), says.wait_for(news)).await;
    drop(wait);
    let now = says.borrow().clone();
    match now {
        Says::Body(body) if body["leader"] == true => (StatusCode::OK, Json(body)),
        Says::Body(body) => (StatusCode::SERVICE_UNAVAILABLE, Json(body)),
        Says::Error(status) => {
            (StatusCode::from_u16(status).unwrap(), Json(json!({"error": "not for you"})))
        }
        Says::Nothing => std::future::pending().await,
    }
}

async fn release(State(stub): State<Stub>, headers: HeaderMap, body: String) -> impl IntoResponse {
    stub.note("/release".into(), &headers, body);
    let (status, body) = stub.release.lock().unwrap().clone();
    (StatusCode::from_u16(status).unwrap(), Json(body))
}
