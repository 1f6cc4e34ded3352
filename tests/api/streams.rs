//! `GET /leader/events`.

use std::time::Duration;

use serde_json::json;

use crate::client::{Said, Stream};
use crate::site::{OTHER, Setup, Site};

#[tokio::test]
async fn the_current_state_comes_first_then_changes_and_renewals() {
    let site = Setup::new().held_by(OTHER).start().await;
    site.until(|core| core.has_read()).await;
    let mut stream = site.stream("/leader/events").await;
    assert_eq!(stream.said().await, Some(Said::Retry(1_000)));
    let Some(Said::Leader { id, data }) = stream.said().await else { panic!("no state") };
    assert_eq!((&data["state"], data["holds"].as_u64()), (&json!("following"), Some(0)));
    site.skip(Duration::from_secs(16));
    let told = stream.until(|told| told["leader"] == true).await;
    assert!(told["version"].as_u64().unwrap() > id);
    site.skip(Duration::from_secs(2));
    let Said::Renewed { data } = stream.event().await else { panic!("not renewed") };
    assert_eq!((&data["epoch"], &data["version"]), (&told["epoch"], &told["version"]));
    assert!(
        data["valid_until_boottime_ms"].as_u64() > told["valid_until_boottime_ms"].as_u64(),
        "{data}"
    );
}

#[tokio::test]
async fn a_quiet_stream_carries_comments() {
    let site = Setup::new().held_by(OTHER).start().await;
    site.until(|core| core.has_read()).await;
    let mut stream = site.stream("/leader/events?hold=false").await;
    stream.event().await;
    assert_eq!(stream.said().await, Some(Said::Comment));
    assert_eq!(stream.said().await, Some(Said::Comment));
}

#[tokio::test]
async fn the_same_over_the_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::new();
    setup.socket = Some(folder.path().join("tenure.sock"));
    let site = setup.start().await;
    site.leads().await;
    let mut stream = Stream::open(site.unix().await, "/leader/events?hold=true").await;
    assert_eq!(stream.until(|told| told["leader"] == true).await["holds"], 1);
    drop(stream);
    let released = |core: &tenure::core::Elector<_>| core.last_release().is_some();
    site.until(released).await;
}

/// Nothing is promised by an observer, so its end says nothing.
#[tokio::test]
async fn scenario_s12_an_observer_closes_and_nothing_is_released() {
    let site = Site::leading().await;
    let mut hold = site.stream("/leader/events?hold=true").await;
    hold.event().await;
    let mut observer = site.stream("/leader/events").await;
    observer.event().await;
    drop(observer);
    let before = site.leader().await;
    // Three seconds of leading and renewing later it is still the same term.
    site.skip(Duration::from_secs(2));
    assert!(matches!(hold.event().await, Said::Renewed { .. }));
    let told = site.leader().await;
    assert_eq!(
        (&told["epoch"], &told["leader"], &told["holds"]),
        (&before["epoch"], &json!(true), &json!(1))
    );
    // Likewise while it drains: a hold is open, so it goes on being renewed.
    site.seat.handle(tenure::core::Event::Shutdown);
    assert_eq!(hold.until(|told| told["state"] == "draining").await["epoch"], before["epoch"]);
    let mut observer = site.stream("/leader/events").await;
    observer.event().await;
    drop(observer);
    site.skip(Duration::from_secs(2));
    assert!(matches!(hold.event().await, Said::Renewed { .. }));
    assert_eq!(site.leader().await["state"], "draining");
    drop(hold);
    site.until(|core| core.finished()).await;
    assert!(site.seat.look(|core| core.last_release().unwrap().1), "the app's word");
}
