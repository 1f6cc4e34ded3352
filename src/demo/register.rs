//! The shared register that the apps write to, with a fence: the smallest store that compares epochs.

use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::stage::Stage;
use crate::client::Endpoint;

#[derive(Deserialize)]
struct Request {
    pod: String,
    epoch: u64,
    value: Option<u64>,
}

type Reply = (StatusCode, Json<Value>);

/// Serves it on a free loopback port until the process ends.
pub(super) async fn open(stage: Arc<Stage>) -> io::Result<Endpoint> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let router = Router::new()
        .route("/begin", post(begin))
        .route("/sent", post(sent))
        .route("/commit", post(commit))
        .with_state(stage);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(Endpoint::Http { host: "127.0.0.1".into(), port })
}

/// A read by whoever means to write: it raises the fence as a write does. Else an older write could
/// come between this read and the write that builds on it.
async fn begin(State(stage): State<Arc<Stage>>, Json(request): Json<Request>) -> Reply {
    match stage.change(|board| board.begin_write(request.epoch)) {
        Ok(value) => (StatusCode::OK, Json(json!({ "value": value }))),
        Err(newest) => stale(newest),
    }
}

/// For the director alone: from here on the write is on its way.
async fn sent(State(stage): State<Arc<Stage>>, Json(request): Json<Request>) -> Reply {
    stage.change(|board| board.send_write(&request.pod, request.epoch));
    (StatusCode::OK, Json(json!({})))
}

async fn commit(State(stage): State<Arc<Stage>>, Json(request): Json<Request>) -> Reply {
    let Request { pod, epoch, value } = request;
    let Some(value) = value else {
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": "no value" })));
    };
    match stage.change(|board| board.commit_write(&pod, epoch, value)) {
        Ok(()) => (StatusCode::OK, Json(json!({ "value": value }))),
        Err(newest) => stale(newest),
    }
}

fn stale(newest: u64) -> Reply {
    let body = json!({ "error": "a greater epoch was here", "newest_epoch": newest });
    (StatusCode::CONFLICT, Json(body))
}
