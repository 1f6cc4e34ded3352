//! R: renewing.

use tenure::core::{Blocked, End, Event, Reason, State, Tell, Verb as Asked};
use tenure::embedded::{Effect, Fault, Verb, WatchCommand};

use crate::bed::{Bed, Pod, ms, secs};

/// The Lease is kept for a minute, in one term, in spite of what happens.
async fn keeps(bed: &Bed, a: &Pod, b: &Pod) {
    let epoch = a.epoch();
    for _ in 0..60 {
        bed.run(secs(1)).await;
        assert!(a.leads() && !b.leads());
    }
    assert_eq!(a.epoch(), epoch);
}

#[tokio::test(start_paused = true)]
async fn scenario_r1_one_request_hangs_for_ever() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    for effect in [Effect::SilentBefore, Effect::SilentAfter] {
        let hung = bed.api.fault(Fault::on(Verb::Put, effect).caller("a").once());
        bed.until(secs(3), || bed.api.hits(hung) == 1).await;
        let before = bed.count(&a, Verb::Put);
        bed.until(a.left() - secs(3), || bed.count(&a, Verb::Put) > before).await;
        keeps(&bed, &a, &b).await;
    }
    let failures = a.told().iter().filter(|t| matches!(t, Tell::RenewFailed { .. })).count();
    let recoveries = a.told().iter().filter(|t| matches!(t, Tell::RenewRecovered)).count();
    // The write that was carried out came back by the watch: that was no failure.
    assert_eq!((failures, recoveries), (1, 1), "told once a round");
}

#[tokio::test(start_paused = true)]
async fn scenario_r2_the_connection_is_swallowed() {
    // What hangs on the old connection hangs; what goes over a new one works. In process each
    // request is its own connection, so: two in a row hang, and the third gets through.
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    bed.api.fault(Fault::on(Verb::Put, Effect::SilentBefore).caller("a").times(2));
    bed.api.command_watches(Some("a"), WatchCommand::Silent);
    keeps(&bed, &a, &b).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_r3_each_put_takes_four_and_a_half_seconds() {
    for effect in [Effect::DelayAfter(ms(4_500)), Effect::DelayBefore(ms(4_500))] {
        let bed = Bed::with_lease();
        let a = bed.leader("a").await;
        let b = bed.start("b");
        bed.run(secs(5)).await;
        bed.api.fault(Fault::on(Verb::Put, effect.clone()));
        // Of what the leader knows, nothing comes by the watch.
        bed.api.fault(Fault::on(Verb::Watch, Effect::SilentBefore).caller("a"));
        bed.api.command_watches(Some("a"), WatchCommand::Silent);
        keeps(&bed, &a, &b).await;
        assert!(a.told_any(|tell| matches!(tell, Tell::RenewFailed { .. })), "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_r4_committed_and_the_answer_lost() {
    for effect in [Effect::DropAnswer, Effect::status_after_commit(500), Effect::SilentAfter] {
        let bed = Bed::with_lease();
        let a = bed.leader("a").await;
        let b = bed.start("b");
        bed.run(secs(5)).await;
        bed.api.fault(Fault::on(Verb::Watch, Effect::SilentBefore).caller("a"));
        bed.api.command_watches(Some("a"), WatchCommand::Silent);
        // Every second PUT of A.
        for nth in 1..=30 {
            let fault = Fault::on(Verb::Put, effect.clone()).caller("a");
            bed.api.fault(fault.nth(2 * nth));
        }
        keeps(&bed, &a, &b).await;
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_r5_a_hundred_resets_then_peace() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    bed.api.command_watches(Some("a"), WatchCommand::Reset);
    let resets = bed.api.fault(Fault::on_all(Effect::Reset).times(100));
    bed.until(secs(1_000), || bed.api.hits(resets) == 100).await;
    bed.until(secs(5), || a.leads()).await;
    assert!(!a.ended());
}

#[tokio::test(start_paused = true)]
async fn scenario_r6_rights_revoked_and_restored() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let forbidden = bed.api.fault(Fault::on_all(Effect::status(403)));
    bed.until(a.left() + ms(10), || !a.leads()).await;
    bed.run(secs(5)).await;
    let answer = a.answer();
    assert_eq!(
        (answer.state, answer.reason),
        (State::Blocked, Reason::Blocked(Blocked::Forbidden))
    );
    assert!(a.told_any(|tell| *tell == Tell::Denied(Asked::Put)));
    bed.run(secs(300)).await;
    bed.api.clear_requests();
    bed.run(secs(150)).await;
    let asked = bed.api.count(Some("a"), None);
    assert!(asked <= 31, "once a term each, not more: {asked}");
    bed.api.clear_fault(forbidden);
    bed.until(secs(16), || a.leads()).await;
    assert!(a.told_any(|tell| *tell == Tell::Unblocked));
}

#[tokio::test(start_paused = true)]
async fn scenario_r7_five_outages() {
    let bed = Bed::with_lease();
    let pods = [bed.start("a"), bed.start("b"), bed.start("c")];
    bed.until(secs(1), || pods.iter().any(|pod| pod.leads())).await;
    for outage in [11, 16, 30, 90, 600] {
        let down = bed.api.fault(Fault::on_all(Effect::SilentBefore));
        bed.api.command_watches(None, WatchCommand::Silent);
        bed.run(secs(outage)).await;
        assert!(!pods.iter().any(|pod| pod.leads()));
        bed.api.clear_fault(down);
        let took = bed.until(secs(15) + ms(100), || pods.iter().any(|pod| pod.leads())).await;
        assert!(pods.iter().all(|pod| !pod.ended()), "{outage}: no restart, after {took:?}");
        bed.run(secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_r8_a_token_is_refused_once() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    bed.api.fault(Fault::on(Verb::Put, Effect::status(401)).caller("a").once());
    keeps(&bed, &a, &b).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_r10_a_thousand_terms_lost_and_regained() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let mut last = 0;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut early = 0;
    for round in 0..1_000 {
        bed.held_by_client_go("k", 15);
        bed.until(secs(1), || !a.leads()).await;
        assert_eq!(a.answer().reason, Reason::Term(End::LostToOther));
        bed.edit(|lease| lease["spec"]["holderIdentity"] = "".into());
        bed.until(secs(1), || a.leads()).await;
        let epoch = a.epoch().unwrap();
        assert!(epoch > last, "E1");
        last = epoch;
        if round == 10 {
            early = tasks();
        }
    }
    assert!(tasks() <= early + 2, "{early} tasks became {}", tasks());
}

#[tokio::test(start_paused = true)]
async fn mark_f24_retry_after_is_obeyed_within_bounds() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    bed.api.fault(Fault::on(Verb::Put, Effect::retry_after(429, 3600)).caller("a").once());
    keeps(&bed, &a, &b).await;
    let slow =
        bed.api.fault(Fault::on(Verb::Put, Effect::retry_after(429, 3600)).caller("b").once());
    bed.kill(&a);
    bed.until(secs(16), || bed.api.hits(slow) == 1).await;
    bed.until(secs(16), || b.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn invariant_l3_after_any_outage_somebody_leads() {
    for effect in [Effect::Reset, Effect::status(500), Effect::status(429), Effect::DropAnswer] {
        let bed = Bed::with_lease();
        let pods = [bed.start("a"), bed.start("b")];
        bed.until(secs(1), || pods.iter().any(|pod| pod.leads())).await;
        let down = bed.api.fault(Fault::on(Verb::Put, effect.clone()));
        bed.run(secs(100)).await;
        bed.api.clear_fault(down);
        bed.until(secs(16), || pods.iter().any(|pod| pod.leads())).await;
        for pod in &pods {
            pod.send(Event::AppStopped(Default::default()));
        }
        bed.until(secs(3), || pods.iter().any(|pod| pod.leads())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_watch_has_overtaken_is_still_waited_for() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    bed.run(secs(1)).await;
    bed.api.clear_requests();
    bed.api.fault(Fault::on(Verb::Put, Effect::DelayAfter(ms(500))));
    bed.run(secs(20)).await;
    assert!(a.leads());
    let puts = bed.api.requests();
    let puts: Vec<_> = puts.iter().filter(|request| request.verb == Verb::Put).collect();
    assert_eq!(puts.len(), 10);
    // Not one was cut off, and its connection with it.
    assert!(puts[..9].iter().all(|put| put.status == Some(200)), "{puts:?}");
    assert!(!a.told_any(|tell| matches!(tell, Tell::RenewFailed { .. })));
    // One that is never answered is not waited for without end.
    bed.api.fault(Fault::on(Verb::Put, Effect::SilentAfter));
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    bed.run(secs(20)).await;
    let some = tasks();
    bed.run(secs(200)).await;
    assert!(a.leads() && tasks() <= some, "{some} tasks became {}", tasks());
}
