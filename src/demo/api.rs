//! The embedded Lease API on a socket, for the demo's own candidates and for anybody's client.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::embedded::LeaseApi;

/// First line of a kubeconfig that is ours to replace.
const OURS: &str = "# written by tenure demo";

/// Serves the Lease API, and what kubectl asks before it asks for a Lease, until the process ends.
pub(super) fn serve_with_discovery(lease_api: &LeaseApi, listener: TcpListener) {
    let answer = |body: Value| get(move || std::future::ready(Json(body.clone())));
    let version = json!({ "groupVersion": "coordination.k8s.io/v1", "version": "v1" });
    let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let router = Router::new()
        .route("/version", answer(json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.0" })))
        .route("/api", answer(json!({ "kind": "APIVersions", "versions": [] })))
        .route(
            "/apis",
            answer(json!({
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [{
                    "name": "coordination.k8s.io",
                    "versions": [version],
                    "preferredVersion": version,
                }],
            })),
        )
        .route(
            "/apis/coordination.k8s.io/v1",
            answer(json!({
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": "coordination.k8s.io/v1",
                "resources": [{
                    "name": "leases",
                    "singularName": "lease",
                    "namespaced": true,
                    "kind": "Lease",
                    "verbs": verbs,
                }],
            })),
        )
        .fallback_service(lease_api.router());
    tokio::spawn(async move { axum::serve(listener, router).await });
}

/// Writes a kubeconfig whose only context is this API. Another program's file is never replaced.
pub(super) fn write_kubeconfig(path: &Path, address: SocketAddr) -> io::Result<()> {
    match std::fs::read_to_string(path) {
        Ok(text) if !text.starts_with(OURS) => {
            let why = "exists and was not written by tenure demo";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let text = format!(
        "{OURS}\n\
         apiVersion: v1\n\
         kind: Config\n\
         current-context: tenure-demo\n\
         clusters:\n\
         - name: tenure-demo\n\
         \x20 cluster: {{server: \"http://{address}\"}}\n\
         users:\n\
         - name: anybody\n\
         \x20 user: {{token: anybody}}\n\
         contexts:\n\
         - name: tenure-demo\n\
         \x20 context: {{cluster: tenure-demo, user: anybody, namespace: default}}\n"
    );
    std::fs::File::create(path)?.write_all(text.as_bytes())
}
