//! Every fault, shown in paused time with the real `kube` code or on a socket.

mod faults;
mod sockets;
mod store;
mod watches;

use std::time::Duration;

use axum::body::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower::ServiceExt;

use super::*;

const NS: &str = "ns";
const SECOND: Duration = Duration::from_secs(1);
/// In paused time as good as for ever.
const HOUR: Duration = Duration::from_secs(3600);
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";

fn client(api: &LeaseApi, caller: &str) -> kube::Client {
    kube::Client::new(api.client_service(caller), NS)
}

fn leases(api: &LeaseApi, caller: &str) -> Api<Lease> {
    Api::default_namespaced(client(api, caller))
}

/// An API with one Lease `x`, held by `a`.
fn api_with_lease() -> LeaseApi {
    let api = LeaseApi::new();
    api.recreate(NS, "x", json!({"holderIdentity": "a", "leaseDurationSeconds": 15}));
    api
}

#[derive(Debug)]
struct Raw {
    code: u16,
    headers: http::HeaderMap,
    text: String,
}

impl Raw {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

/// One request in process; an error is a cut connection.
async fn ask(
    api: &LeaseApi,
    caller: &str,
    method: Method,
    path: &str,
    body: Value,
) -> std::io::Result<Raw> {
    let bytes = if body.is_null() { String::new() } else { body.to_string() };
    let request =
        Request::builder().method(method).uri(path).body(Full::new(Bytes::from(bytes))).unwrap();
    let response = api.client_service(caller).oneshot(request).await?;
    let (parts, body) = response.into_parts();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Ok(Raw { code: parts.status.as_u16(), headers: parts.headers, text })
}

async fn get(api: &LeaseApi, caller: &str) -> std::io::Result<Raw> {
    ask(api, caller, Method::GET, &format!("{PATH}/x"), Value::Null).await
}

/// Reads `x` past the faults and writes it with this holder.
async fn put(api: &LeaseApi, caller: &str, holder: &str) -> std::io::Result<Raw> {
    let mut lease = api.lease(NS, "x").unwrap();
    lease["spec"]["holderIdentity"] = holder.into();
    ask(api, caller, Method::PUT, &format!("{PATH}/x"), lease).await
}

fn holder(api: &LeaseApi) -> String {
    api.lease(NS, "x").unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}
