//! Elections, and what they cost.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::bed::{DEFAULT, LEASE, PATIENCE, ROOMY, SLOW, Site, Timing, eventually, led_by, within};
use crate::cluster::Request;
use crate::cluster::peer::PeerEvent;
use crate::judge::{Commit, Watch};

#[tokio::test(flavor = "multi_thread")]
async fn scenario_a2_everybody_names_the_new_leader_on_the_real_api_server() {
    let site = Site::new("a2", ROOMY).await;
    let [a, b, c] = led_by(site.trio().await).await;
    let old = a.identity();
    for other in [&b, &c] {
        eventually("it follows", async || other.sees().await == Some(old.clone())).await;
    }
    let (status, body) = a.give_up(&site, json!({"final": true})).await;
    assert_eq!((status, &body["released"]), (200, &json!(true)));
    let [b, c] = led_by([b, c]).await;
    let new = Some(b.identity());
    // A second, as the scenario says, and one more for a busy machine.
    let limit = Duration::from_secs(2);
    for other in [&a, &c] {
        within(limit, "it names the new leader", async || other.sees().await == new).await;
    }
    let d = site.start("d").await;
    within(limit, "a late one names it", async || {
        let seen = d.sees().await;
        assert!(seen.is_none() || seen == new, "{seen:?}");
        seen == new
    })
    .await;
    for sidecar in [&a, &c, &d] {
        assert_eq!(sidecar.sees().await, new, "nobody goes back to an old holder");
    }
    b.heard(&site).await;
    assert_eq!(site.ledger.assert_no_overlap(Vec::new()), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_s1_a_standby_leads_by_its_watch_and_one_put_on_the_real_api_server() {
    // Had anything to run out or to be polled for, it would take longer than the test waits.
    let site = Site::new("s1", SLOW).await;
    let watch = Watch::start(&site).await;
    let [mut a, b, c] = led_by(site.trio().await).await;
    let epoch = a.epoch().await;
    settled(&site).await;
    let before = site.namespace.cluster.audit().of_user(&site.user()).0.len();
    let (status, _) = a.give_up(&site, json!({"final": true})).await;
    assert_eq!(status, 200);
    a.signal(Signal::TERM);
    assert_eq!(a.exit_code().await, Some(0));
    let next = async || b.leads().await || c.leads().await;
    within(Duration::from_secs(5), "a standby leads", next).await;
    let audit = site.namespace.cluster.audit().of_user(&site.user()).0;
    let since = audit[before..].iter().filter(|request| request.resource == "leases");
    let mut conflicts = 0;
    for request in since {
        match (&*request.verb, request.code) {
            ("update", 409) => conflicts += 1,
            // Only who lost the race reads, and only then.
            ("get", _) if conflicts > 0 => conflicts -= 1,
            // The loser's watch was faster than its answer, and the doomed write was cut off.
            ("update", 200 | 504) => {}
            _ => panic!("L1: nobody had to ask: {request:?} of {:#?}", &audit[before..]),
        }
    }
    let [b, _c] = led_by([b, c]).await;
    assert!(b.heard(&site).await > epoch);
    assert_eq!(site.transitions().await, 2);
    assert_eq!((site.ledger.assert_no_overlap(Vec::new()), watch.assert_epochs_grow()), (2, 2));
    // The released record in between, held by nobody, was committed once.
    let commits = watch.commits();
    let free: Vec<_> =
        commits.iter().filter(|c| c.holder.is_empty() && c.epoch.is_some()).collect();
    assert_eq!(free.len(), 1, "{free:?}");
    assert_eq!(free[0].epoch, Some(epoch));
}

/// The three of them have asked all that a start asks: a watch each, and an Event of the election.
async fn settled(site: &Site) {
    let asked = async || {
        let audit = site.namespace.cluster.audit().of_user(&site.user());
        audit.count("watch", "leases", 200) == 3 && audit.verbs("events") == ["create"]
    };
    eventually("they are settled", asked).await;
}

/// With the default timings: 30 writes a minute by the leader, and not one request more.
#[tokio::test(flavor = "multi_thread")]
async fn thirty_writes_a_minute_and_no_other_request_on_the_real_api_server() {
    let site = Site::new("minute", DEFAULT).await;
    let [a, b, c] = led_by(site.trio().await).await;
    for other in [&b, &c] {
        eventually("it follows", async || other.sees().await == Some(a.identity())).await;
    }
    let epoch = a.epoch().await;
    settled(&site).await;
    let audit = || site.namespace.cluster.audit().of_namespace(&site.namespace.name);
    let before = audit().0.len();
    // The scenario itself: a minute in which nothing happens.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let requests = audit().0.split_off(before);
    let of_leases = |r: &&Request| r.resource == "leases" && r.verb == "update";
    let writes = requests.iter().filter(of_leases).count();
    assert_eq!(requests.len(), writes, "nothing else by anybody: {requests:#?}");
    // A busy machine is late with some of them; one more fits in where the minute is cut.
    assert!((20..=31).contains(&writes), "{writes} writes in a minute");
    assert_eq!(a.epoch().await, epoch);
}

/// The shortest period that is allowed: a hundred renewals in ten seconds.
const BUSY: Timing = Timing {
    lease_duration: Duration::from_secs(6),
    renew_deadline: Duration::from_secs(5),
    retry_period: Duration::from_millis(100),
};

#[tokio::test(flavor = "multi_thread")]
async fn scenario_e4_renewals_leave_transitions_alone_and_takeovers_count_on_the_real_api_server() {
    let site = Site::new("e4", BUSY).await;
    let watch = Watch::start(&site).await;
    let a = site.start("a").await;
    eventually("it leads", async || a.leads().await).await;
    eventually("a hundred renewals", async || watch.commits().len() > 102).await;
    let held = |commits: &[Commit]| {
        commits.iter().filter(|c| c.holder == a.identity()).all(|c| c.transitions == 1)
    };
    assert!(held(&watch.commits()));
    assert_eq!(site.transitions().await, 1);

    // Ten more, from one to the other.
    let account = site.namespace.access(LEASE).await;
    for round in 0..5 {
        let mut peer = site.peer_with(&account, &format!("k{round}"));
        let sees = |event: &PeerEvent| event.event == "new_leader";
        peer.wait_for(PATIENCE, sees).await;
        // Out of the way for long enough.
        let (status, _) = a.give_up(&site, json!({"cool_down": "3s"})).await;
        assert_eq!(status, 200);
        peer.leads(PATIENCE).await;
        assert_eq!(site.transitions().await, 2 * round + 2);
        eventually("it follows", async || a.sees().await == Some(peer.identity.clone())).await;
        assert!(peer.stop(PATIENCE).await.success());
        eventually("it leads again", async || a.leads().await).await;
        assert_eq!(site.transitions().await, 2 * round + 3);
    }
    assert_eq!(watch.assert_epochs_grow(), 6);
}
