//! T: taking over.

use serde_json::{Value, json};
use tenure::core::State;
use tenure::embedded::{Effect, Fault, Verb, WatchCommand};

use crate::bed::{Bed, ms, secs, setup};

#[tokio::test(start_paused = true)]
async fn scenario_t1_renew_times_of_other_years() {
    for time in ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        for (seconds, wait) in [(15, 15), (60, 60), (1, 15)] {
            let bed = Bed::with_spec(json!({
                "holderIdentity": "old", "leaseDurationSeconds": seconds,
                "acquireTime": time, "renewTime": time, "leaseTransitions": 3,
            }));
            let a = bed.start("a");
            bed.run(secs(wait) - ms(20)).await;
            assert!(!a.leads(), "{time} {seconds}: too early");
            bed.until(ms(100), || a.leads()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_t2_durations_that_differ() {
    // A writes 60 and renews every 10 s; B is configured with 15.
    let bed = Bed::with_lease();
    let a = bed.start_as("a", setup("a").timing(60, 40, 10));
    bed.until(secs(1), || a.leads()).await;
    let b = bed.start("b");
    bed.run(secs(200)).await;
    assert!(a.leads() && !b.leads());
    bed.kill(&a);
    // Its last renewal was up to 10 s ago.
    bed.run(secs(49)).await;
    assert!(!b.leads());
    bed.until(secs(12), || b.leads()).await;

    // A writes 15; B is configured with 60 and waits that long.
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start_as("b", setup("b").timing(60, 40, 10));
    bed.run(secs(20)).await;
    bed.kill(&a);
    bed.run(secs(57)).await;
    assert!(!b.leads());
    bed.until(secs(4), || b.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_t3_nulls_and_nothing() {
    let free: [Value; 6] = [
        json!({}),
        Value::Null,
        json!({"holderIdentity": null}),
        json!({"holderIdentity": ""}),
        json!({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": null}),
        json!({"holderIdentity": null, "renewTime": null, "acquireTime": null,
               "leaseDurationSeconds": null, "leaseTransitions": null}),
    ];
    for spec in free {
        let bed = Bed::with_spec(spec.clone());
        let a = bed.start("a");
        bed.until(ms(50), || a.leads()).await;
        assert_eq!(bed.lease()["spec"]["leaseTransitions"], 1, "{spec}");
    }
    // Somebody holds it, whatever else is missing: a full term of ours.
    for spec in [
        json!({"holderIdentity": "x"}),
        json!({"holderIdentity": "x", "leaseDurationSeconds": null, "renewTime": null}),
        json!({"holderIdentity": "x", "renewTime": "never", "leaseDurationSeconds": "15"}),
        json!({"holderIdentity": "x", "leaseDurationSeconds": -5, "leaseTransitions": -1}),
        json!({"holderIdentity": "x", "leaseDurationSeconds": true, "acquireTime": {}}),
    ] {
        let bed = Bed::with_spec(spec.clone());
        // Such fields pass no validation: kept as they are until our write sets them.
        let a = bed.start("a");
        bed.run(secs(15) - ms(20)).await;
        assert!(!a.leads(), "{spec}");
        bed.run(ms(100)).await;
        assert!(a.leads(), "{spec}: {:?}", a.answer());
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_t5_twenty_candidates_race() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let others: Vec<_> = (0..20).map(|n| bed.start(&format!("b{n}"))).collect();
    bed.run(secs(3)).await;
    bed.api.clear_requests();
    a.send(tenure::core::Event::AppStopped(Default::default()));
    bed.until(ms(50), || others.iter().any(|pod| pod.leads())).await;
    bed.run(ms(500)).await;
    assert_eq!(others.iter().filter(|pod| pod.leads()).count(), 1);
    for pod in &others {
        assert!(bed.count(pod, Verb::Put) <= 1, "{} tried once", pod.name);
        assert!(bed.count(pod, Verb::Get) <= 1, "{} read at most once", pod.name);
        assert!(!pod.leads() || bed.count(pod, Verb::Get) == 0, "no read before the winning PUT");
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_t6_all_replicas_restart_with_new_names() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    bed.run(secs(4)).await;
    bed.kill(&a);
    let pods = [bed.start("x"), bed.start("y"), bed.start("z")];
    let took = bed.until(secs(16), || pods.iter().any(|pod| pod.leads())).await;
    assert!(took >= secs(15) - ms(20), "not before a full term: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn scenario_t7_names_that_begin_alike() {
    let bed = Bed::with_spec(json!({"holderIdentity": "web-1", "leaseDurationSeconds": 15}));
    let longer = bed.start_as("a", setup("web-1_uid").restarted(2));
    bed.run(secs(14)).await;
    assert_eq!(longer.answer().state, State::Following);
    bed.until(secs(2), || longer.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_t8_wall_clocks_jump() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    let epoch = a.epoch();
    for seconds in [3600, -7200, 3600] {
        for pod in [&a, &b] {
            pod.jump_wall(seconds);
            bed.run(secs(30)).await;
            assert!(a.leads() && a.left() > secs(5), "{seconds}: {:?}", a.left());
        }
    }
    assert_eq!(a.epoch(), epoch);
    let mut times: Vec<String> = bed
        .api
        .versions()
        .0
        .iter()
        .filter_map(|v| v.object["spec"]["renewTime"].as_str().map(str::to_owned))
        .collect();
    let all = times.len();
    times.sort();
    times.dedup();
    assert_eq!(times.len(), all, "every write has a renewTime of its own");
}

#[tokio::test(start_paused = true)]
async fn scenario_t9_no_api_for_the_first_minute() {
    let bed = Bed::with_lease();
    let down = bed.api.fault(Fault::on_all(Effect::Reset));
    let a = bed.start("a");
    for _ in 0..60 {
        bed.run(secs(1)).await;
        assert!(!a.ended());
        assert_eq!(a.answer().state, State::Starting);
    }
    bed.api.clear_fault(down);
    bed.until(secs(3), || a.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_t10_whatever_becomes_of_the_watch() {
    for command in [
        WatchCommand::Silent,
        WatchCommand::Close,
        WatchCommand::Reset,
        WatchCommand::Gone,
        WatchCommand::ReplayFrom(1),
    ] {
        let bed = Bed::with_lease();
        let a = bed.leader("a").await;
        let b = bed.start("b");
        bed.run(secs(5)).await;
        for _ in 0..10 {
            bed.api.command_watches(Some("b"), command);
            bed.run(secs(6)).await;
            assert!(!b.leads() && a.leads(), "{command:?}: no wrong takeover");
        }
        bed.run(secs(10)).await;
        // Restored: the next change arrives at once.
        a.send(tenure::core::Event::AppStopped(Default::default()));
        bed.until(ms(100), || b.leads()).await;
        // A takeover with the watch broken is at most one term late.
        bed.api.command_watches(Some("a"), command);
        bed.kill(&b);
        bed.until(secs(31), || a.leads()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_with_a_live_watch_asks_for_nothing() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let _b = bed.start("b");
    bed.run(secs(5)).await;
    bed.api.clear_requests();
    bed.run(secs(2_000)).await;
    let watches = bed.api.count(Some("b"), Some(Verb::Watch));
    assert!((1..=3).contains(&watches), "opened anew now and then: {watches}");
    assert_eq!(bed.api.count(Some("b"), None), watches, "and nothing else");
    let puts = bed.count(&a, Verb::Put);
    assert!((999..=1_001).contains(&puts), "thirty writes a minute: {puts} in 2,000 s");
    assert_eq!(bed.count(&a, Verb::Get), 0, "a leader reads nothing");
}

#[tokio::test(start_paused = true)]
async fn invariant_l1_a_release_is_taken_with_one_put() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    bed.api.clear_requests();
    a.send(tenure::core::Event::AppStopped(Default::default()));
    bed.until(ms(20), || b.leads()).await;
    assert_eq!(bed.count(&b, Verb::Put), 1);
    assert_eq!(bed.count(&b, Verb::Get), 0);
}
