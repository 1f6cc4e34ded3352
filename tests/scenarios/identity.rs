//! E: identity, epoch, odd leases.

use serde_json::{Value, json};
use tenure::core::{Blocked, End, Event, MAX_EPOCH, MissingLease, Reason, State, Tell};
use tenure::embedded::{Effect, Fault, KeepFields, OpenWatches, Verb, WatchCommand};

use crate::bed::{Bed, LEASE, NAMESPACE, ms, secs, setup};

#[tokio::test(start_paused = true)]
async fn scenario_e1_every_grant_has_a_greater_epoch() {
    let bed = Bed::with_lease();
    let mut last = 0;
    let mut pod = bed.leader("a").await;
    for round in 0..40_u32 {
        let epoch = pod.answer().epoch.unwrap();
        assert!(epoch > last, "round {round}: {epoch} after {last}");
        assert_eq!(bed.annotation("tenure.dev/epoch"), Some(epoch.to_string()));
        last = epoch;
        match round % 4 {
            // Released and taken again.
            0 => pod.send(Event::AppStopped(Default::default())),
            // Crashed and restarted.
            1 => {
                bed.kill(&pod);
                pod = bed.start_as("a", setup("a").restarted(round + 2));
            }
            // A foreign holder in between, which frees it.
            2 => {
                bed.held_by_client_go("k", 15);
                bed.run(secs(1)).await;
                bed.api.blank_holder(NAMESPACE, LEASE);
            }
            // Another pod.
            _ => {
                bed.kill(&pod);
                pod = bed.start(&format!("p{round}"));
            }
        }
        bed.run(ms(50)).await;
        bed.until(secs(16), || pod.leads()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_e2_deleted_under_a_connected_leader() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(4)).await;
    let before = a.epoch().unwrap();
    bed.api.delete(NAMESPACE, LEASE);
    let c = bed.start("c");
    bed.until(secs(1), || a.leads() && a.epoch().unwrap() > before).await;
    assert!(a.told_any(|tell| *tell == Tell::LeaseDeleted));
    assert!(a.told_any(|tell| matches!(tell, Tell::Ended { end: End::LeaseDeleted, .. })));
    bed.run(secs(60)).await;
    assert!(a.leads() && !b.leads() && !c.leads());
}

#[tokio::test(start_paused = true)]
async fn scenario_e2_deleted_while_the_leader_is_cut_off() {
    for seed in 0..60_u64 {
        let bed = Bed::with_lease();
        let a = bed.leader("a").await;
        let (b, c) = (bed.start("b"), bed.start("c"));
        bed.run(secs(3)).await;
        if seed % 5 == 0 {
            // B's watch has been silent, so that it saw no renewal for long.
            bed.api.command_watches(Some("b"), WatchCommand::Silent);
            bed.api.fault(Fault::on(Verb::Watch, Effect::SilentBefore).caller("b"));
        }
        bed.run(ms(seed * 37 % 14_000)).await;
        bed.api.cut_off("a");
        bed.run(ms(seed * 91 % 9_000)).await;
        let before: u64 = bed.annotation("tenure.dev/epoch").unwrap().parse().unwrap();
        bed.api.delete(NAMESPACE, LEASE);
        bed.run(ms(seed * 53 % 700)).await;
        let d = bed.start("d");
        // The witness sees any overlap of A with the others.
        bed.until(secs(40), || b.leads() || c.leads() || d.leads()).await;
        let after: u64 = bed.annotation("tenure.dev/epoch").unwrap().parse().unwrap();
        assert!(after > before, "seed {seed}");
        assert!(!a.leads());
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_lease_as_told() {
    // Safe: held by nobody for a full term.
    let bed = Bed::new();
    let a = bed.start("a");
    bed.run(secs(15) - ms(20)).await;
    assert!(!a.leads());
    assert_eq!((bed.holder(), a.answer().holder), ("tenure/new".into(), None));
    bed.until(ms(100), || a.leads()).await;
    // At once, and said to be dangerous.
    let bed = Bed::new();
    let free =
        |options: &mut tenure::core::Options| options.missing_lease = MissingLease::CreateFree;
    let a = bed.start_as("a", setup("a").with(free));
    bed.until(ms(100), || a.leads()).await;
    // Never: a person must make it.
    let bed = Bed::new();
    let never = |options: &mut tenure::core::Options| options.missing_lease = MissingLease::Never;
    let a = bed.start_as("a", setup("a").with(never));
    bed.run(secs(60)).await;
    let answer = a.answer();
    assert_eq!(
        (answer.state, answer.reason),
        (State::Blocked, Reason::Blocked(Blocked::LeaseMissing))
    );
    bed.api.recreate(NAMESPACE, LEASE, json!({}));
    bed.until(secs(16), || a.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_e3_transitions_at_their_maximum() {
    let bed = Bed::with_spec(json!({
        "holderIdentity": "old", "leaseDurationSeconds": 15, "leaseTransitions": 2147483647,
    }));
    let a = bed.start("a");
    bed.until(secs(16), || a.leads()).await;
    let first = a.epoch().unwrap();
    a.send(Event::AppStopped(Default::default()));
    bed.until(secs(5), || a.leads()).await;
    assert!(a.epoch().unwrap() > first);
    assert_eq!(bed.lease()["spec"]["leaseTransitions"], 2147483647);
}

#[tokio::test(start_paused = true)]
async fn scenario_e4_transitions_count_takeovers_only() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let start = bed.lease()["spec"]["leaseTransitions"].as_i64().unwrap();
    bed.run(secs(200)).await;
    assert_eq!(bed.lease()["spec"]["leaseTransitions"], start, "a hundred renewals");
    for _ in 0..5 {
        bed.held_by_client_go("k", 15);
        bed.until(secs(1), || !a.leads()).await;
        bed.edit(|lease| lease["spec"]["holderIdentity"] = "".into());
        bed.until(secs(1), || a.leads()).await;
    }
    assert_eq!(bed.lease()["spec"]["leaseTransitions"], start + 10);
}

#[tokio::test(start_paused = true)]
async fn scenario_e5_two_with_one_name() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    // A second process with the same name, which could not show that the first is dead.
    let twin = bed.start_as("twin", setup("a").with(|o| o.incarnation = "other".into()));
    for _ in 0..60 {
        bed.run(secs(1)).await;
        assert!(a.leads());
        let answer = twin.answer();
        assert_eq!(answer.reason, Reason::Blocked(Blocked::IdentityConflict));
        assert!(!answer.leader && answer.holder.is_none());
    }
    assert!(twin.told_any(|tell| *tell == Tell::Blocked(Blocked::IdentityConflict)));
    assert!(!a.told_any(|tell| matches!(tell, Tell::Ended { .. })), "no ping-pong");
    bed.kill(&a);
    bed.until(secs(16), || twin.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_e6_coordinated_election() {
    // A preferredHolder is valid only beside a strategy.
    for fields in [
        json!({"strategy": "OldestEmulationVersion"}),
        json!({"strategy": "OldestEmulationVersion", "preferredHolder": "x"}),
    ] {
        let bed = Bed::new();
        bed.api.keep_fields(KeepFields { coordinated: true, unknown: true });
        bed.api.recreate(NAMESPACE, LEASE, fields.clone());
        let a = bed.start("a");
        bed.run(secs(60)).await;
        let answer = a.answer();
        assert_eq!(answer.reason, Reason::Blocked(Blocked::CoordinatedElection));
        assert_eq!(bed.count(&a, Verb::Put), 0);
        // Gone again: it campaigns. Set under a living term: renewed on, and kept.
        bed.edit(|lease| lease["spec"] = json!({}));
        bed.until(secs(1), || a.leads()).await;
        bed.edit(|lease| {
            for (key, value) in fields.as_object().unwrap() {
                lease["spec"][key] = value.clone();
            }
        });
        bed.run(secs(60)).await;
        assert!(a.leads());
        for (key, value) in fields.as_object().unwrap() {
            assert_eq!(bed.lease()["spec"][key], *value);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_e7_what_is_not_ours_survives() {
    let bed = Bed::new();
    bed.api.keep_fields(KeepFields { coordinated: true, unknown: true });
    bed.api.recreate(NAMESPACE, LEASE, json!({"future": {"field": [1, 2]}}));
    let metadata = json!({
        "labels": {"app": "billing"},
        "annotations": {"team": "shop", "big": "x".repeat(200 << 10)},
        "finalizers": ["example.com/keep"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
    });
    bed.edit(|lease| {
        for (key, value) in metadata.as_object().unwrap() {
            lease["metadata"][key] = value.clone();
        }
    });
    let a = bed.start("a");
    bed.until(secs(1), || a.leads()).await;
    bed.run(secs(200)).await;
    a.send(Event::AppStopped(Default::default()));
    bed.until(secs(5), || a.leads()).await;
    assert!(bed.count(&a, Verb::Put) > 100);
    let lease = bed.lease();
    for key in ["labels", "finalizers", "ownerReferences"] {
        assert_eq!(lease["metadata"][key], metadata[key]);
    }
    for key in ["team", "big"] {
        assert_eq!(lease["metadata"]["annotations"][key], metadata["annotations"][key]);
    }
    assert_eq!(lease["spec"]["future"], json!({"field": [1, 2]}));
}

#[tokio::test(start_paused = true)]
async fn scenario_e8_made_again_with_another_uid() {
    for watch in [WatchCommand::Silent, WatchCommand::Resume] {
        let bed = Bed::with_lease();
        let a = bed.leader("a").await;
        bed.run(secs(1)).await;
        bed.api.command_watches(None, watch);
        let old = bed.lease()["metadata"]["uid"].clone();
        bed.api.recreate(
            NAMESPACE,
            LEASE,
            json!({
                "holderIdentity": "k", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            }),
        );
        assert_ne!(bed.lease()["metadata"]["uid"], old);
        bed.until(ms(2_100), || !a.leads()).await;
        assert!(a.told_any(|tell| matches!(tell, Tell::Ended { end: End::LeaseDeleted, .. })));
        bed.run(secs(5)).await;
        assert_eq!(bed.holder(), "k");
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_e9_odd_epochs() {
    for odd in ["", "-1", "abc", "9000000000000000000", "9007199254740992", "1.5", " 7", "0"] {
        let bed = Bed::with_lease();
        bed.api.annotate(NAMESPACE, LEASE, "tenure.dev/epoch", Some(odd));
        let a = bed.leader("a").await;
        assert!(a.epoch().unwrap() >= 100, "{odd:?}");
        assert!(a.told_any(|tell| *tell == Tell::BadAnnotations { count: 1 }), "{odd:?}");
    }
    // Near the end: one left, then none.
    let bed = Bed::with_lease();
    let near = (MAX_EPOCH - 1).to_string();
    bed.api.annotate(NAMESPACE, LEASE, "tenure.dev/epoch", Some(&near));
    bed.api.annotate(NAMESPACE, LEASE, "tenure.dev/released", Some(&near));
    let a = bed.leader("a").await;
    assert_eq!(a.epoch(), Some(MAX_EPOCH));
    a.send(Event::AppStopped(Default::default()));
    bed.run(secs(60)).await;
    assert_eq!(a.answer().reason, Reason::Blocked(Blocked::EpochExhausted));
    // Changed by others under the leader: put back, and never smaller.
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let epoch = a.epoch().unwrap();
    for odd in ["1", "abc", "123456789"] {
        bed.api.annotate(NAMESPACE, LEASE, "tenure.dev/epoch", Some(odd));
        bed.run(secs(3)).await;
        assert_eq!((a.leads(), a.epoch()), (true, Some(epoch)));
        assert_eq!(bed.annotation("tenure.dev/epoch"), Some(epoch.to_string()), "{odd}");
    }
    a.send(Event::AppStopped(Default::default()));
    bed.until(secs(5), || a.leads()).await;
    assert!(a.epoch().unwrap() > 123_456_789);
}

#[tokio::test(start_paused = true)]
async fn scenario_e10_a_version_that_is_no_number() {
    let bed = Bed::with_lease();
    let odd = Effect::tamper(|body: &mut Value| {
        for path in ["/metadata/resourceVersion", "/object/metadata/resourceVersion"] {
            if let Some(version) = body.pointer_mut(path) {
                *version = "r-17".into();
            }
        }
    });
    let fault = bed.api.fault(Fault::on_all(odd));
    let a = bed.start("a");
    bed.run(secs(60)).await;
    assert_eq!(a.answer().reason, Reason::Blocked(Blocked::BadResourceVersion));
    assert_eq!(bed.count(&a, Verb::Put), 0);
    bed.api.clear_fault(fault);
    bed.until(secs(16), || a.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_e11_a_stale_client_blanks_a_living_holder() {
    for cut_off in [false, true] {
        let bed = Bed::with_lease();
        let a = bed.leader("a").await;
        let c = bed.start("c");
        bed.run(secs(5)).await;
        let epoch = a.epoch();
        if cut_off {
            bed.api.cut_off("a");
        }
        bed.api.blank_holder(NAMESPACE, LEASE);
        if cut_off {
            // C must not take for free what A still holds; the witness looks.
            let took = bed.until(secs(16), || c.leads()).await;
            assert!(took >= secs(15) - ms(20), "{took:?}");
        } else {
            bed.until(ms(50), || bed.holder() == "a").await;
            bed.run(secs(30)).await;
            assert_eq!((a.leads(), a.epoch(), c.leads()), (true, epoch, false));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_e12_the_store_goes_back() {
    for watches in [OpenWatches::Close, OpenWatches::Silent, OpenWatches::Reset] {
        // To a time when the Lease was empty: nobody believes that it is free.
        let bed = Bed::with_lease();
        let snapshot = bed.api.snapshot();
        let a = bed.leader("a").await;
        let (b, c) = (bed.start("b"), bed.start("c"));
        bed.run(secs(20)).await;
        bed.api.restore(&snapshot, watches);
        bed.until(secs(60), || !a.leads()).await;
        bed.until(secs(60), || a.leads() || b.leads() || c.leads()).await;
        let told = |tell: &Tell| matches!(tell, Tell::StoreWentBack { .. });
        assert!([&a, &b, &c].iter().any(|pod| pod.told_any(told)), "{watches:?}");

        // To an earlier term of somebody who is gone.
        let bed = Bed::with_lease();
        let a = bed.leader("a").await;
        bed.run(secs(3)).await;
        let snapshot = bed.api.snapshot();
        let b = bed.start("b");
        bed.run(secs(1)).await;
        a.send(Event::AppStopped(tenure::core::AppStopped { last: true, ..Default::default() }));
        bed.until(secs(1), || b.leads()).await;
        bed.run(secs(20)).await;
        let (epoch, c) = (b.epoch().unwrap(), bed.start("c"));
        bed.run(secs(1)).await;
        bed.api.restore(&snapshot, watches);
        bed.run(secs(5)).await;
        bed.until(secs(60), || b.leads() || c.leads()).await;
        let later = if b.leads() { b.epoch() } else { c.epoch() }.unwrap();
        assert!(later > epoch, "{watches:?}: {later} after {epoch}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_longer_term_is_waited_out_after_a_blanking_and_after_a_deletion() {
    // In the middle of a rolling update that shortens the timings: A is valid for longer than B's
    // whole term.
    for deleted in [false, true] {
        let bed = Bed::with_lease();
        let a = bed.start_as("a", setup("a").timing(60, 40, 10));
        bed.until(secs(1), || a.leads()).await;
        let b = bed.start("b");
        bed.run(secs(15)).await;
        bed.api.cut_off("a");
        if deleted {
            bed.api.delete(NAMESPACE, LEASE);
        } else {
            bed.api.blank_holder(NAMESPACE, LEASE);
        }
        // The witness looks.
        bed.until(secs(62), || b.leads()).await;
    }
}
