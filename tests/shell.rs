//! The shell against the embedded Lease API, in paused time and with the real kube code.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure::core::{
    Ask, DrainTimeout, Event, Failure, FailureClass, MissingLease, Mono, OnAppExit, Options,
    Purpose, ReadOutcome, Released, Rules, State, Tell, Wall, Write, WriteOutcome,
};
use tenure::embedded::{Effect, Fault, LeaseApi as Api, Verb, WatchCommand};
use tenure::seat::{Base, Seat};
use tenure::shell::clock::TokioClock;
use tenure::shell::transport::Authenticated;
use tenure::shell::{
    Connect, Driver, Ending, LeaseApi, NoObserver, Observer, Signals, Target, Teller, access,
};
use tenure::timing::Timing;

const NAMESPACE: &str = "shop";
const LEASE: &str = "billing";

fn target() -> Target {
    Target { namespace: NAMESPACE.into(), name: LEASE.into(), rules: Rules::default() }
}

fn connect(api: &Api, caller: &str) -> Connect {
    let service = api.client_service(caller);
    Connect::new(move || kube::Client::new(service.clone(), NAMESPACE))
}

fn write(purpose: Purpose, base: Option<Base>) -> Write<Base> {
    Write {
        purpose,
        base,
        holder: "me".into(),
        duration: Duration::from_secs(15),
        renew_time: Wall::from_micros(1_767_225_600_000_000),
        acquire_time: None,
        transitions: None,
        epoch: Some(7),
        incarnation: None,
        released: Released::Keep,
    }
}

fn found(outcome: ReadOutcome<Base>) -> Base {
    match outcome {
        ReadOutcome::Found(observed) => observed.base,
        other => panic!("{other:?}"),
    }
}

fn failed(status: Option<u16>, class: FailureClass) -> Failure {
    Failure { class, status, retry_after: None }
}

#[tokio::test(start_paused = true)]
async fn mark_f26_a_missing_lease_is_absent_and_the_faster_creation_a_conflict() {
    let api = Api::new();
    let mut lease = LeaseApi::new(target(), connect(&api, "a"));
    assert_eq!(lease.read().await.outcome, ReadOutcome::Absent);
    let plain = api.fault(Fault::on(Verb::Get, Effect::plain_text(404, "no such backend")).once());
    let outcome = lease.read().await.outcome;
    assert_eq!(outcome, ReadOutcome::Failed(failed(Some(404), FailureClass::Refused)));
    api.clear_fault(plain);
    let created = lease.write(write(Purpose::Create, None), false).await.outcome;
    assert!(matches!(created, WriteOutcome::Done { created: true, .. }), "{created:?}");
    let second = lease.write(write(Purpose::Create, None), true).await.outcome;
    assert_eq!(second, WriteOutcome::Conflict);
}

#[tokio::test(start_paused = true)]
async fn scenario_e8_a_write_is_conditioned_on_version_and_uid() {
    let api = Api::new();
    api.recreate(NAMESPACE, LEASE, json!({}));
    let mut lease = LeaseApi::new(target(), connect(&api, "a"));
    let base = found(lease.read().await.outcome);
    let first = lease.write(write(Purpose::Renew, Some(base.clone())), false).await.outcome;
    let WriteOutcome::Done { created: false, object } = first else { panic!("{first:?}") };
    assert_eq!(object.record.epoch, Some(7));
    let stale = lease.write(write(Purpose::Renew, Some(base)), false).await.outcome;
    assert_eq!(stale, WriteOutcome::Conflict);
    api.delete(NAMESPACE, LEASE);
    let gone = lease.write(write(Purpose::Renew, Some(object.base)), false).await.outcome;
    assert_eq!(gone, WriteOutcome::Conflict, "not made anew: the uid was sent");
    assert_eq!(api.lease(NAMESPACE, LEASE), None);
}

#[tokio::test(start_paused = true)]
async fn every_other_answer_is_refused_or_unknown() {
    let api = Api::new();
    api.recreate(NAMESPACE, LEASE, json!({}));
    let mut lease = LeaseApi::new(target(), connect(&api, "a"));
    let base = found(lease.read().await.outcome);
    for (effect, expected) in [
        (Effect::status(403), failed(Some(403), FailureClass::Refused)),
        (Effect::status(500), failed(Some(500), FailureClass::Unknown)),
        (Effect::status(503), failed(Some(503), FailureClass::Unknown)),
        (Effect::status_after_commit(504), failed(Some(504), FailureClass::Unknown)),
        (Effect::Reset, Failure::UNKNOWN),
        (Effect::DropAnswer, Failure::UNKNOWN),
        (
            Effect::retry_after(429, 30),
            Failure {
                retry_after: Some(Duration::from_secs(30)),
                ..failed(Some(429), FailureClass::Refused)
            },
        ),
    ] {
        let before = api.count(None, Some(Verb::Put));
        api.fault(Fault::on(Verb::Put, effect.clone()).once());
        let outcome = lease.write(write(Purpose::Renew, Some(base.clone())), false).await.outcome;
        assert_eq!(outcome, WriteOutcome::Failed(expected), "{effect:?}");
        assert_eq!(api.count(None, Some(Verb::Put)), before + 1, "sent once, never again");
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_r8_a_refused_token_is_read_again_before_the_next_attempt() {
    let api = Api::new();
    api.recreate(NAMESPACE, LEASE, json!({}));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "old").unwrap();
    let service = Authenticated::new(
        api.client_service("a"),
        "http://api.test/".parse().unwrap(),
        Some(file.path().into()),
    );
    let lease = LeaseApi::new(
        target(),
        Connect::new(move || kube::Client::new(service.clone(), NAMESPACE)),
    );
    found(lease.read().await.outcome);
    std::fs::write(file.path(), "new").unwrap();
    api.revoke_token("old");
    let refused = lease.read().await.outcome;
    assert_eq!(refused, ReadOutcome::Failed(failed(Some(401), FailureClass::Refused)));
    found(lease.read().await.outcome);
}

#[tokio::test(start_paused = true)]
async fn scenario_r2_a_request_that_hangs_is_dropped_with_its_connection() {
    let api = Api::new();
    api.recreate(NAMESPACE, LEASE, json!({}));
    let lease = LeaseApi::new(target(), connect(&api, "a"));
    let silent = api.fault(Fault::on(Verb::Get, Effect::SilentBefore).once());
    let hung = tokio::spawn(lease.read());
    api.until(|api| api.hits(silent) == 1).await;
    hung.abort();
    assert!(hung.await.unwrap_err().is_cancelled());
    found(lease.read().await.outcome);
}

#[test]
fn what_is_shared_between_threads_may_be() {
    fn shared<T: Send + Sync>() {}
    shared::<LeaseApi>();
    shared::<Arc<tenure::shell::Events>>();
}

#[derive(Debug, Default)]
struct Missing(std::sync::Mutex<Vec<Vec<&'static str>>>);

impl Observer for Missing {
    fn beat(&self, _: Mono) {}
    fn request(&self, _: tenure::core::Verb, _: tenure::metrics::Outcome) {}
    fn tell(&self, _: &Tell) {}
    fn access(&self, missing: &[&'static str]) {
        self.0.lock().unwrap().push(missing.to_vec());
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_c3_access_is_reviewed_until_nothing_is_missing_and_again_when_something_is_forbidden()
 {
    let api = free_lease();
    let seat = Arc::new(Seat::new(options("a"), Arc::new(TokioClock::new(L, 0))));
    let seen = Arc::new(Missing::default());
    api.deny("a", "leases", "update");
    let silent = api.fault(Fault::on(Verb::Ssar, Effect::SilentBefore).caller("a"));
    let client = connect(&api, "a").client();
    let checking = tokio::spawn(access::run(client, target(), seat.clone(), seen.clone()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(seen.0.lock().unwrap().is_empty(), "no answer says nothing");
    api.clear_fault(silent);
    // A review that hangs takes 5 s, and the next one comes P later.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(*seen.0.lock().unwrap(), [vec!["update"]]);
    api.allow_all("a");
    tokio::time::sleep(L + SLACK).await;
    assert_eq!(*seen.0.lock().unwrap(), [vec!["update"], vec![]]);
    assert!(!seat.look(|core| core.is_denied()));
    let asked = api.count(Some("a"), Some(Verb::Ssar));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(api.count(Some("a"), Some(Verb::Ssar)), asked, "asked no more");
    seat.handle(Event::Access { denied: true });
    tokio::time::sleep(L + SLACK).await;
    assert!(!seat.look(|core| core.is_denied()), "asked again");
    assert_eq!(api.count(Some("a"), Some(Verb::Ssar)), asked + 4);
    checking.abort();
}

// The driver with the real core.

fn options(name: &str) -> Options {
    Options {
        identity: name.into(),
        incarnation: format!("{name}-1").into(),
        takes_over: false,
        timing: Timing::default(),
        missing_lease: MissingLease::Create,
        drain_timeout: DrainTimeout::Auto,
        on_app_exit: OnAppExit::Release,
        unsafe_release_on_sigterm: false,
        max_valid: None,
        rules: Rules::default(),
    }
}

#[derive(Debug)]
struct Pod {
    seat: Arc<Seat>,
    stop: tokio::sync::mpsc::Sender<()>,
    driver: tokio::task::JoinHandle<Ending>,
}

impl Pod {
    fn start(api: &Api, name: &str) -> Pod {
        let clock = Arc::new(TokioClock::new(Duration::from_secs(1000), 0));
        let seat = Arc::new(Seat::new(options(name), clock));
        let lease = LeaseApi::new(target(), connect(api, name));
        let teller = Teller::new(target(), name.into(), Arc::new(NoObserver), None);
        let (stop, signals) = Signals::by_hand();
        let driver = tokio::spawn(Driver::new(seat.clone(), lease, teller, signals).run());
        Pod { seat, stop, driver }
    }

    fn leads(&self) -> bool {
        self.seat.look(|elector| elector.held_epoch()).is_some()
    }

    async fn until(&self, what: impl Fn(&Pod) -> bool) {
        let mut pulse = self.seat.pulse();
        while !what(self) {
            pulse.changed().await.unwrap();
        }
    }
}

fn free_lease() -> Api {
    let api = Api::new();
    api.recreate(NAMESPACE, LEASE, json!({}));
    api
}

fn holder(api: &Api) -> String {
    api.lease(NAMESPACE, LEASE).unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

/// How long a lease may be nobody's: L and a little.
const L: Duration = Duration::from_secs(15);
const SLACK: Duration = Duration::from_millis(200);

#[tokio::test(start_paused = true)]
async fn invariant_l1_a_standby_takes_a_released_lease_with_one_put_and_no_read() {
    let api = free_lease();
    let a = Pod::start(&api, "a");
    a.until(Pod::leads).await;
    let b = Pod::start(&api, "b");
    api.until(|api| api.open_watches().iter().any(|watch| watch.caller == "b")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let gets = api.count(Some("b"), Some(Verb::Get));
    assert_eq!(gets, 1, "a live watch spares every poll");
    a.stop.send(()).await.unwrap();
    assert_eq!(a.driver.await.unwrap(), Ending::Ordered);
    b.until(Pod::leads).await;
    assert_eq!(api.count(Some("b"), Some(Verb::Get)), gets);
    assert_eq!(api.count(Some("b"), Some(Verb::Put)), 1);
    assert_eq!(holder(&api), "b");
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_nothing_wrong_writes_thirty_times_a_minute_and_asks_nothing_else() {
    let api = free_lease();
    let a = Pod::start(&api, "a");
    a.until(Pod::leads).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    api.clear_requests();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let puts = api.count(Some("a"), Some(Verb::Put));
    assert!((29..=31).contains(&puts), "{puts}");
    assert_eq!(api.count(None, None), puts);
    assert!(a.leads());
}

#[tokio::test(start_paused = true)]
async fn scenario_s7_a_standby_told_to_stop_writes_nothing() {
    let api = free_lease();
    let a = Pod::start(&api, "a");
    a.until(Pod::leads).await;
    let b = Pod::start(&api, "b");
    tokio::time::sleep(Duration::from_secs(5)).await;
    b.stop.send(()).await.unwrap();
    assert_eq!(b.driver.await.unwrap(), Ending::Ordered);
    assert_eq!(api.count(Some("b"), Some(Verb::Put)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_ends_at_once_and_releases_nothing() {
    let api = free_lease();
    let a = Pod::start(&api, "a");
    a.until(Pod::leads).await;
    // A grant that lasts makes the ordered way out wait.
    let granted = a.seat.answer(Ask::default());
    assert!(granted.leader);
    a.stop.send(()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begin = tokio::time::Instant::now();
    a.stop.send(()).await.unwrap();
    assert_eq!(a.driver.await.unwrap(), Ending::Forced);
    assert!(begin.elapsed() < SLACK);
    assert_eq!(holder(&api), "a");
}

#[tokio::test(start_paused = true)]
async fn scenario_t10_whatever_befalls_the_watch_takeover_is_at_most_a_lease_late() {
    for trouble in [
        WatchCommand::Close,
        WatchCommand::Reset,
        WatchCommand::Silent,
        WatchCommand::Gone,
        WatchCommand::ReplayFrom(100),
    ] {
        let api = free_lease();
        let a = Pod::start(&api, "a");
        a.until(Pod::leads).await;
        let b = Pod::start(&api, "b");
        api.until(|api| api.open_watches().iter().any(|watch| watch.caller == "b")).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        api.command_watches(Some("b"), trouble);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(a.leads() && !b.leads(), "{trouble:?}: no wrong takeover");
        let live = api.open_watches().iter().any(|watch| watch.caller == "b");
        assert!(live, "{trouble:?}: the watch is restored");
        let begin = tokio::time::Instant::now();
        api.cut_off("a");
        b.until(Pod::leads).await;
        let took = begin.elapsed();
        assert!(took <= 2 * L + SLACK, "{trouble:?}: {took:?}");
        assert!(!a.seat.answer(Ask::default()).leader, "{trouble:?}");
        // The watch, silent or new, was worth something: the usual time, not another L.
        assert!(took <= L + SLACK, "{trouble:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_a3_every_call_hangs_and_the_leader_is_none_in_time() {
    let api = free_lease();
    let a = Pod::start(&api, "a");
    a.until(Pod::leads).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    api.cut_off("a");
    let begin = tokio::time::Instant::now();
    a.until(|pod| !pod.leads()).await;
    let took = begin.elapsed();
    assert!(took <= Duration::from_secs(10) && took >= Duration::from_secs(7), "{took:?}");
    assert_eq!(holder(&api), "a", "though the Lease still names it");
    api.heal("a");
    let begin = tokio::time::Instant::now();
    a.until(Pod::leads).await;
    assert!(begin.elapsed() <= L + SLACK, "its own record is taken again at once");
}

#[tokio::test(start_paused = true)]
async fn scenario_r1_one_hanging_request_changes_nothing() {
    let api = free_lease();
    let a = Pod::start(&api, "a");
    a.until(Pod::leads).await;
    let epoch = a.seat.look(|elector| elector.held_epoch());
    tokio::time::sleep(Duration::from_secs(5)).await;
    api.fault(Fault::on(Verb::Put, Effect::SilentBefore).once());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(a.seat.look(|elector| elector.held_epoch()), epoch);
}

#[tokio::test(start_paused = true)]
async fn scenario_t9_the_election_starts_when_the_api_answers() {
    let api = free_lease();
    api.cut_off("a");
    let a = Pod::start(&api, "a");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(a.seat.answer(Ask::default()).state, State::Starting);
    api.heal("a");
    let begin = tokio::time::Instant::now();
    a.until(Pod::leads).await;
    assert!(begin.elapsed() <= Duration::from_secs(5), "{:?}", begin.elapsed());
}
