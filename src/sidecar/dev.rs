//! `--dev`: the real core on an embedded Lease API in this process.

use std::time::Duration;

use serde_json::json;

use crate::cli::DevRole;
use crate::config::Config;
use crate::embedded::{LeaseApi, Limits, Options};
use crate::seat::Clock as _;
use crate::shell::Connect;
use crate::shell::clock::SystemClock;
use crate::shell::lease_json::micro_time;

/// Who holds the Lease in `--dev=follower`.
const OTHER: &str = "dev-other";

/// A free Lease, or one that somebody else holds and renews.
pub(super) fn connect(role: DevRole, config: &Config) -> Connect {
    // A laptop's sidecar may run for weeks: little is kept.
    let limits = Limits { versions: 1000, requests: 1000, events: 1000, ..Limits::default() };
    let api = LeaseApi::with_options(Options { limits, ..Options::default() });
    let (namespace, name) = (config.lease.namespace.clone(), config.lease.name.clone());
    api.recreate(&namespace, &name, json!({}));
    if role == DevRole::Follower {
        let lease_duration = config.timing.lease_duration();
        hold(&api, &namespace, &name, lease_duration);
        let (api, namespace) = (api.clone(), namespace.clone());
        let retry_period = config.timing.retry_period();
        // It ends with the runtime.
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(retry_period).await;
                hold(&api, &namespace, &name, lease_duration);
            }
        });
    }
    let service = api.client_service(config.identity.holder());
    Connect::new(move || kube::Client::new(service.clone(), namespace.clone()))
}

fn hold(api: &LeaseApi, namespace: &str, name: &str, lease_duration: Duration) {
    let now = micro_time(SystemClock.now().wall);
    api.edit(namespace, name, |lease| {
        let acquired = match &lease["spec"]["acquireTime"] {
            serde_json::Value::String(at) => at.clone(),
            _ => now.clone(),
        };
        lease["spec"] = json!({
            "holderIdentity": OTHER,
            "leaseDurationSeconds": lease_duration.as_secs(),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": 1,
        });
    });
}
