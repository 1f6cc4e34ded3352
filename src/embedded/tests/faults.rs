use super::*;
use std::io::ErrorKind;

/// Answered after exactly this time.
async fn lasts<T>(future: impl Future<Output = T>) -> (Duration, T) {
    let start = Instant::now();
    let result = timeout(HOUR, future).await.expect("an answer");
    (start.elapsed(), result)
}

#[tokio::test(start_paused = true)]
async fn a_delay_before_commits_late_and_answers_late() {
    let api = api_with_lease();
    let start = Instant::now();
    api.fault(Fault::on(Verb::Put, Effect::DelayBefore(5 * SECOND)));
    let (took, answer) = lasts(put(&api, "a", "b")).await;
    assert_eq!((took, answer.unwrap().code), (5 * SECOND, 200));
    let version = api.versions_of(NS, "x").pop().unwrap();
    assert_eq!((version.at - start, version.caller.as_str()), (5 * SECOND, "a"));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_write_lands_after_its_client_has_gone() {
    let api = api_with_lease();
    api.fault(Fault::on(Verb::Put, Effect::DelayBefore(5 * SECOND)).once());
    assert!(timeout(SECOND, put(&api, "a", "b")).await.is_err());
    assert_eq!(holder(&api), "a");
    timeout(HOUR, api.until(|api| holder(api) == "b")).await.unwrap();
    let request = &api.requests()[0];
    assert_eq!(request.status, None, "nobody was answered");
    assert_eq!(request.committed_rv, Some(api.rv()));
    assert_eq!(request.committed_at.unwrap() - request.at, 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_delay_after_commits_at_once_and_answers_late() {
    let api = api_with_lease();
    let start = Instant::now();
    api.fault(Fault::on(Verb::Put, Effect::DelayAfter(3 * SECOND)));
    let (took, answer) = lasts(put(&api, "a", "b")).await;
    assert_eq!((took, answer.unwrap().code), (3 * SECOND, 200));
    assert_eq!(api.versions_of(NS, "x").pop().unwrap().at, start);
    assert_eq!(api.requests()[0].answered_at.unwrap() - start, 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn gates_hold_a_request_until_they_open() {
    let api = api_with_lease();
    let (before, after) = (Gate::new(), Gate::new());
    api.fault(Fault::on(Verb::Put, before.before()));
    api.fault(Fault::on(Verb::Put, after.after()));
    let call = tokio::spawn({
        let api = api.clone();
        async move { put(&api, "a", "b").await.unwrap().code }
    });
    api.until(|api| api.count(None, Some(Verb::Put)) == 1).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(holder(&api), "a");
    before.open();
    api.until(|api| holder(api) == "b").await;
    tokio::time::sleep(HOUR).await;
    assert!(!call.is_finished());
    after.open();
    assert_eq!(call.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_gate_dropped_shut_never_opens() {
    let api = api_with_lease();
    api.fault(Fault::on(Verb::Put, Gate::new().before()));
    assert!(timeout(HOUR, put(&api, "a", "b")).await.is_err());
    assert_eq!(holder(&api), "a");
}

#[tokio::test(start_paused = true)]
async fn silence_before_and_after_never_answers() {
    let api = api_with_lease();
    let before = api.fault(Fault::on(Verb::Put, Effect::SilentBefore));
    assert!(timeout(HOUR, put(&api, "a", "b")).await.is_err());
    assert_eq!(holder(&api), "a");
    api.clear_fault(before);
    api.fault(Fault::on(Verb::Put, Effect::SilentAfter));
    assert!(timeout(HOUR, put(&api, "a", "c")).await.is_err());
    assert_eq!(holder(&api), "c");
    assert!(api.requests().iter().all(|request| request.status.is_none()));
}

#[tokio::test(start_paused = true)]
async fn reset_commits_nothing_and_a_dropped_answer_does() {
    let api = api_with_lease();
    let reset = api.fault(Fault::on(Verb::Put, Effect::Reset));
    assert_eq!(put(&api, "a", "b").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(holder(&api), "a");
    api.clear_fault(reset);
    api.fault(Fault::on(Verb::Put, Effect::DropAnswer));
    assert_eq!(put(&api, "a", "c").await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(holder(&api), "c");
}

#[tokio::test(start_paused = true)]
async fn any_status_is_answered_without_carrying_out() {
    let api = api_with_lease();
    api.fault(Fault::on(Verb::Put, Effect::retry_after(429, 30)).once());
    let answer = put(&api, "a", "b").await.unwrap();
    assert_eq!((answer.code, &answer.headers["retry-after"]), (429, &"30".parse().unwrap()));
    assert_eq!(answer.json()["reason"], "TooManyRequests");
    api.fault(Fault::on(Verb::Get, Effect::plain_text(404, "no such backend")));
    let answer = get(&api, "a").await.unwrap();
    assert_eq!((answer.code, answer.text.as_str()), (404, "no such backend"));
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(holder(&api), "a");
}

#[tokio::test(start_paused = true)]
async fn an_error_after_the_commit_hides_it() {
    let api = api_with_lease();
    api.fault(Fault::on(Verb::Put, Effect::status_after_commit(500)).once());
    assert_eq!(put(&api, "a", "b").await.unwrap().code, 500);
    assert_eq!(holder(&api), "b");
    let request = &api.requests()[0];
    assert_eq!((request.status, request.committed_rv), (Some(500), Some(api.rv())));
}

#[tokio::test(start_paused = true)]
async fn an_old_read_is_replayed() {
    let api = api_with_lease();
    let old = api.rv();
    put(&api, "a", "b").await.unwrap();
    api.fault(Fault::on(Verb::Get, Effect::ReplayOld(old)).once());
    let answer = get(&api, "a").await.unwrap().json();
    assert_eq!(answer["spec"]["holderIdentity"], "a");
    assert_eq!(answer["metadata"]["resourceVersion"], old.to_string());
    assert_eq!(get(&api, "a").await.unwrap().json()["spec"]["holderIdentity"], "b");
    api.fault(Fault::on(Verb::Get, Effect::ReplayOld(old - 1)));
    assert_eq!(get(&api, "a").await.unwrap().code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_tampered_answer_differs_from_the_store() {
    let api = api_with_lease();
    api.fault(Fault::on_all(Effect::tamper(|answer| {
        answer["metadata"]["resourceVersion"] = "not-a-number".into();
    })));
    let answer = get(&api, "a").await.unwrap().json();
    assert_eq!(answer["metadata"]["resourceVersion"], "not-a-number");
    let stored = api.lease(NS, "x").unwrap();
    assert_eq!(stored["metadata"]["resourceVersion"], api.rv().to_string());
}

#[tokio::test(start_paused = true)]
async fn faults_know_verb_caller_name_body_and_number() {
    let api = api_with_lease();
    let error = || Effect::status(500);
    let second = api.fault(Fault::on(Verb::Get, error()).caller("a").nth(2));
    let codes = async |caller: &str| get(&api, caller).await.unwrap().code;
    assert_eq!((codes("a").await, codes("b").await), (200, 200));
    assert_eq!((codes("b").await, codes("a").await, codes("a").await), (200, 500, 200));
    assert_eq!(api.hits(second), 1);
    api.clear_faults();

    api.fault(Fault::on(Verb::Get, error()).from_nth(2).times(2));
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(codes("a").await);
    }
    assert_eq!(seen, [200, 500, 500, 200, 200]);
    api.clear_faults();

    api.fault(Fault::on(Verb::Get, error()).name("y"));
    api.fault(Fault::on(Verb::Put, error()).when(|body| body["spec"]["holderIdentity"] == ""));
    assert_eq!(codes("a").await, 200);
    assert_eq!(put(&api, "a", "").await.unwrap().code, 500);
    assert_eq!(put(&api, "a", "b").await.unwrap().code, 200);
}

#[tokio::test(start_paused = true)]
async fn delays_add_up_and_precede_an_answer() {
    let api = api_with_lease();
    api.fault(Fault::on(Verb::Get, Effect::DelayBefore(SECOND)));
    api.fault(Fault::on_all(Effect::DelayBefore(2 * SECOND)));
    api.fault(Fault::on(Verb::Get, Effect::status(503)));
    let (took, answer) = lasts(get(&api, "a")).await;
    assert_eq!((took, answer.unwrap().code), (3 * SECOND, 503));
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_cut_off_and_healed() {
    let api = api_with_lease();
    api.cut_off("a");
    assert!(timeout(HOUR, get(&api, "a")).await.is_err());
    assert_eq!(get(&api, "b").await.unwrap().code, 200);
    api.heal("a");
    assert_eq!(get(&api, "a").await.unwrap().code, 200);
}

#[tokio::test(start_paused = true)]
async fn denied_verbs_are_forbidden_and_reviews_say_so() {
    let api = api_with_lease();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({"spec": {"resourceAttributes": {
        "verb": "update", "resource": "leases", "group": "coordination.k8s.io", "namespace": NS,
    }}});
    let allowed = async || {
        let answer = ask(&api, "a", Method::POST, path, review.clone()).await.unwrap();
        answer.json()["status"]["allowed"].as_bool().unwrap()
    };
    assert!(allowed().await);
    api.deny("a", "leases", "update");
    assert!(!allowed().await);
    assert_eq!(put(&api, "a", "b").await.unwrap().json()["reason"], "Forbidden");
    assert_eq!(put(&api, "b", "b").await.unwrap().code, 200);
    api.allow_all("a");
    // A PUT where nothing is needs both verbs, one where something is only the one.
    api.deny("a", "leases", "create");
    assert_eq!(put(&api, "a", "b2").await.unwrap().code, 200);
    let new = json!({"metadata": {"name": "y"}});
    let refused = ask(&api, "a", Method::PUT, &format!("{PATH}/y"), new).await.unwrap().json();
    assert!(refused["message"].as_str().unwrap().contains("cannot create"), "{refused}");
    api.allow_all("a");
    assert!(allowed().await);
    assert_eq!(put(&api, "a", "c").await.unwrap().code, 200);
    api.fault(Fault::on(Verb::Ssar, Effect::SilentBefore));
    assert!(timeout(HOUR, allowed()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn events_are_stored_counted_and_fail_on_demand() {
    let api = LeaseApi::new();
    let path = "/apis/events.k8s.io/v1/namespaces/ns/events";
    let event = json!({
        "metadata": {"name": "x.1"}, "eventTime": "2026-01-01T00:00:00.000001Z",
        "reportingController": "tenure.dev/sidecar", "reportingInstance": "a", "action": "Acquire",
        "reason": "Acquired", "type": "Normal", "regarding": {"kind": "Lease", "namespace": NS},
    });
    let post = async || ask(&api, "a", Method::POST, path, event.clone()).await.unwrap().code;
    assert_eq!(post().await, 201);
    api.fault(Fault::on(Verb::Event, Effect::status(503)).once());
    assert_eq!((post().await, post().await), (503, 201));
    assert_eq!((api.events().len(), api.count(Some("a"), Some(Verb::Event))), (2, 3));
    assert_eq!(api.events()[0]["reason"], "Acquired");
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_who_asked_what_and_how_it_ended() {
    let api = api_with_lease();
    let start = Instant::now();
    get(&api, "b").await.unwrap();
    tokio::time::advance(SECOND).await;
    put(&api, "a", "me").await.unwrap();
    let [read, write] = api.requests().try_into().unwrap();
    assert_eq!((read.verb, read.caller.as_str(), read.status), (Verb::Get, "b", Some(200)));
    assert_eq!((write.seq, write.at - start), (1, SECOND));
    assert_eq!((write.committed_rv, write.name.as_str()), (Some(api.rv()), "x"));
    assert!(write.summary.contains("holder=\"me\" duration=15"), "{}", write.summary);
    api.clear_requests();
    assert_eq!(api.count(None, None), 0);
}
