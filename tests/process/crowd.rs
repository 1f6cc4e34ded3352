//! More connections than there is room for.

use std::time::{Duration, Instant};

use rustix::process::{Resource, prlimit};
use tenure::client::Endpoint;
use tokio::net::UnixStream;

use super::sidecar::{Sidecar, eventually};

async fn connect(sidecar: &Sidecar) -> UnixStream {
    let Endpoint::Unix(path) = &sidecar.endpoint else { panic!("no socket") };
    UnixStream::connect(path).await.unwrap()
}

#[tokio::test]
async fn a_full_listener_says_so_once_and_serves_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let a = Sidecar::with_descriptors(folder.path(), 400).await;
    eventually(async || a.leads().await).await;
    let told = || a.lines("no more connections are taken");
    assert_eq!(told().len(), 0);
    for _ in 0..3 {
        let mut crowd = Vec::new();
        for _ in 0..100 {
            crowd.push(connect(&a).await);
        }
        eventually(async || !told().is_empty()).await;
        drop(crowd);
        assert!(a.leads().await);
    }
    let lines = told();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let connections = lines[0]["connections"].as_u64().unwrap();
    assert!((1..100).contains(&connections) && lines[0]["listener"] == "Unix", "{}", lines[0]);
}

#[tokio::test]
async fn without_descriptors_it_says_so_once_waits_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let a = Sidecar::with_descriptors(folder.path(), 400).await;
    eventually(async || a.leads().await).await;
    let limit = |soft| {
        let mut limit = rustix::process::getrlimit(Resource::Nofile);
        (limit.current, limit.maximum) = (Some(soft), Some(400));
        prlimit(Some(a.pid()), Resource::Nofile, limit).unwrap();
    };
    limit(3);
    let begin = Instant::now();
    let told = || a.lines("connections cannot be taken");
    let _waiting = connect(&a).await;
    eventually(async || !told().is_empty()).await;
    let failed = || a.lines("could not be accepted").len();
    eventually(async || failed() > 5).await;
    let tries = failed() as u128;
    let most = begin.elapsed().as_millis() / Duration::from_millis(100).as_millis() + 1;
    assert!(tries <= most, "{tries}: it is tried again without a pause");
    assert_eq!(told().len(), 1, "{}", a.log());
    limit(400);
    assert!(a.leads().await);
    assert_eq!(told().len(), 1, "{}", a.log());
}
