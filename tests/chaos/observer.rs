//! The harness's own watch of the Lease: every version, in the order of the store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, WatchEvent, WatchParams};
use tokio::task::JoinHandle;

use crate::facts::{Fact, Version, What, boottime};

#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Vec<Fact>>>,
    task: JoinHandle<()>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer {
    /// `leases` belongs to an admin, past all proxies.
    pub fn start(leases: Api<Lease>, name: &str) -> Observer {
        let seen = Arc::<Mutex<Vec<Fact>>>::default();
        let task = tokio::spawn(watch(leases, name.to_owned(), seen.clone()));
        Observer { seen, task }
    }

    pub fn facts(&self) -> Vec<Fact> {
        self.seen.lock().expect("seen").clone()
    }

    /// The newest version, while the Lease is there.
    pub fn newest(&self) -> Option<Version> {
        let seen = self.seen.lock().expect("seen");
        seen.iter().rev().find_map(|fact| match &fact.what {
            What::Version(version) => Some(Some(version.clone())),
            What::Deleted { .. } => Some(None),
            _ => None,
        })?
    }
}

async fn watch(leases: Api<Lease>, name: String, seen: Arc<Mutex<Vec<Fact>>>) {
    let push = |what| {
        let at = boottime();
        seen.lock().expect("seen").push(Fact { at, who: "lease".into(), what });
    };
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(60);
    let mut after = String::new();
    loop {
        if after.is_empty() {
            let list = leases.list(&kube::api::ListParams::default()).await;
            if let Ok(list) = list {
                push(What::Relisted);
                let found = list.items.iter().filter(|l| l.metadata.name.as_ref() == Some(&name));
                found.for_each(|lease| push(What::Version(version(lease))));
                after = list.metadata.resource_version.unwrap_or_default();
            }
        }
        let outcome = async {
            let mut events = std::pin::pin!(leases.watch(&parameters, &after).await.ok()?);
            while let Some(event) = events.try_next().await.ok()? {
                match event {
                    WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                        after = lease.metadata.resource_version.clone()?;
                        push(What::Version(version(&lease)));
                    }
                    WatchEvent::Deleted(lease) => {
                        after = lease.metadata.resource_version.clone()?;
                        push(What::Deleted { number: after.parse().ok()? });
                    }
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(_) => after.clear(),
                }
            }
            Some(())
        };
        if outcome.await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn version(lease: &Lease) -> Version {
    let spec = lease.spec.clone().unwrap_or_default();
    let note = |key: &str| {
        let notes = lease.metadata.annotations.as_ref();
        notes.and_then(|notes| notes.get(key)).and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let number = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
    Version {
        number: number(&lease.metadata.resource_version).expect("a number"),
        uid: lease.metadata.uid.clone().unwrap_or_default(),
        holder: spec.holder_identity.unwrap_or_default(),
        duration_ns: spec.lease_duration_seconds.map_or(0, |s| s.unsigned_abs().into())
            * 1_000_000_000,
        renew_us: spec
            .renew_time
            .and_then(|time| u64::try_from(time.0.as_microsecond()).ok())
            .unwrap_or(0),
        epoch: note("tenure.dev/epoch"),
        released: note("tenure.dev/released"),
    }
}
