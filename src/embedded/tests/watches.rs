use super::*;
use axum::body::Body;
use futures_util::TryStreamExt;
use kube::api::{WatchEvent, WatchParams};
use std::collections::VecDeque;
use std::pin::pin;

struct Events {
    body: Body,
    lines: VecDeque<Value>,
}

impl Events {
    async fn open(api: &LeaseApi, caller: &str, query: &str) -> Self {
        let path = format!("{PATH}?watch=true&fieldSelector=metadata.name%3Dx{query}");
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let response = api.client_service(caller).oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), lines: VecDeque::new() }
    }

    /// Type and holder of the next event; none at the end.
    async fn next(&mut self) -> Option<(String, String)> {
        let event = self.raw().await.unwrap()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some((text(&event["type"]), text(&event["object"]["spec"]["holderIdentity"])))
    }

    async fn raw(&mut self) -> Result<Option<Value>, axum::Error> {
        if let Some(line) = self.lines.pop_front() {
            return Ok(Some(line));
        }
        let Some(frame) = self.body.frame().await else { return Ok(None) };
        let data = frame?.into_data().unwrap();
        let text = std::str::from_utf8(&data).unwrap();
        self.lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        Ok(self.lines.pop_front())
    }

    async fn is_silent(&mut self) -> bool {
        timeout(20 * SECOND, self.next()).await.is_err()
    }
}

fn modified(holder: &str) -> Option<(String, String)> {
    Some(("MODIFIED".into(), holder.into()))
}

fn from_now(api: &LeaseApi) -> String {
    format!("&resourceVersion={}", api.rv())
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_stays_open_and_tells_nothing() {
    let api = api_with_lease();
    let query = format!("{}&timeoutSeconds=60", from_now(&api));
    let mut silent = Events::open(&api, "a", &query).await;
    let mut other = Events::open(&api, "b", &query).await;
    assert_eq!(api.command_watches(Some("a"), WatchCommand::Silent), 1);
    put(&api, "c", "c").await.unwrap();
    assert_eq!(other.next().await, modified("c"));
    assert!(timeout(HOUR, silent.next()).await.is_err(), "not even its timeout ends it");
    assert_eq!(other.next().await, None);
    api.command_watches(Some("a"), WatchCommand::Close);
    assert_eq!(silent.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_closed_and_another_reset() {
    let api = api_with_lease();
    let mut closed = Events::open(&api, "a", &from_now(&api)).await;
    let mut broken = Events::open(&api, "b", &from_now(&api)).await;
    assert_eq!(api.open_watches().len(), 2);
    api.command_watches(Some("a"), WatchCommand::Close);
    api.command_watches(Some("b"), WatchCommand::Reset);
    assert_eq!(closed.next().await, None);
    assert!(broken.raw().await.is_err());
    drop((closed, broken));
    assert_eq!(api.open_watches(), []);
}

#[tokio::test(start_paused = true)]
async fn events_are_held_and_delayed() {
    let api = api_with_lease();
    let mut events = Events::open(&api, "a", &from_now(&api)).await;
    api.command_watches(None, WatchCommand::Hold);
    put(&api, "b", "b").await.unwrap();
    assert!(events.is_silent().await);
    api.command_watches(None, WatchCommand::Resume);
    assert_eq!(events.next().await, modified("b"));
    api.command_watches(None, WatchCommand::Delay(7 * SECOND));
    let start = Instant::now();
    put(&api, "c", "c").await.unwrap();
    assert_eq!(events.next().await, modified("c"));
    assert_eq!(start.elapsed(), 7 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_held_watch_waits_behind_its_events() {
    let api = api_with_lease();
    let query = format!("{}&timeoutSeconds=60", from_now(&api));
    let mut events = Events::open(&api, "a", &query).await;
    api.command_watches(None, WatchCommand::Hold);
    put(&api, "b", "b").await.unwrap();
    assert!(timeout(HOUR, events.next()).await.is_err());
    api.command_watches(None, WatchCommand::Resume);
    assert_eq!((events.next().await, events.next().await), (modified("b"), None));
}

#[tokio::test(start_paused = true)]
async fn mark_f22_old_events_are_replayed() {
    let api = api_with_lease();
    let old = api.rv();
    let mut events = Events::open(&api, "a", &from_now(&api)).await;
    put(&api, "b", "b").await.unwrap();
    put(&api, "b", "c").await.unwrap();
    assert_eq!((events.next().await, events.next().await), (modified("b"), modified("c")));
    api.command_watches(None, WatchCommand::ReplayFrom(old));
    assert_eq!((events.next().await, events.next().await), (modified("b"), modified("c")));
    put(&api, "b", "d").await.unwrap();
    assert_eq!(events.next().await, modified("d"));
}

#[tokio::test(start_paused = true)]
async fn a_compacted_history_is_410_as_event_or_status() {
    let api = api_with_lease();
    let old = from_now(&api);
    put(&api, "b", "b").await.unwrap();
    api.compact(api.rv());
    let mut events = Events::open(&api, "a", &old).await;
    let error = events.raw().await.unwrap().unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.next().await, None);

    let mut open = Events::open(&api, "a", &from_now(&api)).await;
    api.command_watches(None, WatchCommand::Gone);
    assert_eq!(open.raw().await.unwrap().unwrap()["object"]["reason"], "Expired");
    assert_eq!(open.next().await, None);

    api.fault(Fault::on(Verb::Watch, Effect::status(410)));
    let path = format!("{PATH}?watch=true");
    let answer = ask(&api, "a", Method::GET, &path, Value::Null).await.unwrap();
    assert_eq!((answer.code, &answer.json()["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn faults_meet_new_watches_of_one_caller() {
    let api = api_with_lease();
    api.fault(Fault::on(Verb::Watch, Effect::Watch(WatchCommand::Silent)).caller("a").once());
    api.fault(Fault::on(Verb::Watch, Effect::tamper(|event| event["type"] = "ODD".into())));
    let mut silent = Events::open(&api, "a", "").await;
    let mut odd = Events::open(&api, "a", "").await;
    assert!(silent.is_silent().await);
    assert_eq!(odd.next().await, Some(("ODD".into(), "a".into())));
    assert_eq!(api.requests()[0].name, "x", "the selected name");
}

#[tokio::test(start_paused = true)]
async fn cutting_a_caller_off_silences_its_watches() {
    let api = api_with_lease();
    let mut events = Events::open(&api, "a", &from_now(&api)).await;
    api.cut_off("a");
    put(&api, "b", "b").await.unwrap();
    assert!(events.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_the_future_waits_for_it_after_a_restore() {
    let api = api_with_lease();
    let snapshot = api.snapshot();
    put(&api, "b", "b").await.unwrap();
    let query = from_now(&api);
    let mut open = Events::open(&api, "a", &query).await;
    api.restore(&snapshot, OpenWatches::Silent);
    let mut ahead = Events::open(&api, "a", &query).await;
    put(&api, "c", "c").await.unwrap();
    assert!(open.is_silent().await && ahead.is_silent().await);
    put(&api, "d", "d").await.unwrap();
    assert_eq!(ahead.next().await, modified("d"));
    let future = format!("{PATH}/x?resourceVersion={}", api.rv() + 1);
    assert_eq!(ask(&api, "a", Method::GET, &future, Value::Null).await.unwrap().code, 504);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_only_when_asked_for() {
    let api = api_with_lease();
    let query = from_now(&api);
    let mut plain = Events::open(&api, "a", &query).await;
    let mut marked = Events::open(&api, "a", &format!("{query}&allowWatchBookmarks=true")).await;
    api.raise_rv(500);
    let start = Instant::now();
    let bookmark = marked.raw().await.unwrap().unwrap();
    assert_eq!(start.elapsed(), 60 * SECOND);
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], "500");
    assert!(timeout(120 * SECOND, plain.next()).await.is_err());
    assert_eq!(timeout(HOUR, plain.next()).await.unwrap(), None, "after half an hour it ends");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stays_behind_too_long_is_gone() {
    let limits = Limits { watch_history: 3, ..Limits::default() };
    let api = LeaseApi::with_options(Options { limits, ..Options::default() });
    api.recreate(NS, "x", json!({"holderIdentity": "a"}));
    let mut events = Events::open(&api, "a", &from_now(&api)).await;
    for number in 0..10 {
        put(&api, "b", &format!("h{number}")).await.unwrap();
    }
    assert_eq!(events.raw().await.unwrap().unwrap()["object"]["code"], 410);
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn the_kube_api_watches_in_paused_time() {
    let api = api_with_lease();
    let params = WatchParams::default().fields("metadata.name=x");
    let stream = leases(&api, "a").watch(&params, &api.rv().to_string()).await.unwrap();
    let mut stream = pin!(stream);
    put(&api, "b", "b").await.unwrap();
    let Some(WatchEvent::Modified(lease)) = stream.try_next().await.unwrap() else { panic!() };
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("b"));
    let Some(WatchEvent::Bookmark(mark)) = stream.try_next().await.unwrap() else { panic!() };
    assert_eq!(mark.metadata.resource_version, api.rv().to_string());
    api.delete(NS, "x");
    assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))));
    api.command_watches(None, WatchCommand::Gone);
    assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Error(_))));
    assert!(stream.try_next().await.unwrap().is_none());
}
