//! A: wrong or stale answers.

use tenure::core::{Blocked, End, Event, Reason, State};
use tenure::embedded::{Effect, Fault, Gate, Verb, WatchCommand};

use crate::bed::{Bed, ms, secs};

#[tokio::test(start_paused = true)]
async fn scenario_a1_renewals_forbidden_for_one_only() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    bed.api.fault(Fault::on(Verb::Put, Effect::status(403)).caller("a"));
    let left = a.left();
    bed.until(left, || !a.leads()).await;
    bed.until(secs(16), || b.leads()).await;
    for _ in 0..60 {
        bed.run(secs(1)).await;
        assert!(!a.answer().leader && b.answer().leader);
    }
    let answer = a.answer();
    assert_eq!(
        (answer.state, answer.reason),
        (State::Blocked, Reason::Blocked(Blocked::Forbidden))
    );
    assert_eq!(answer.holder.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn scenario_a2_everybody_names_the_new_leader() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let (b, c) = (bed.start("b"), bed.start("c"));
    bed.run(secs(3)).await;
    bed.kill(&a);
    bed.until(secs(16), || b.leads() || c.leads()).await;
    let leader = bed.holder();
    let d = bed.start("d");
    bed.run(secs(1)).await;
    for pod in [&b, &c, &d] {
        assert_eq!(pod.answer().holder.as_deref(), Some(&*leader), "{}", pod.name);
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_a3_every_call_hangs() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    bed.run(secs(7)).await;
    bed.api.fault(Fault::on_all(Effect::SilentBefore));
    bed.api.command_watches(None, WatchCommand::Silent);
    let left = a.left();
    bed.run(left - ms(2)).await;
    assert!(a.answer().leader);
    bed.run(ms(2)).await;
    let answer = a.answer();
    assert!(!answer.leader && answer.holder.is_none(), "{answer:?}");
    assert_eq!(answer.reason, Reason::Term(End::RenewDeadline));
    assert_eq!(bed.holder(), "a", "the Lease still names it");
}

#[tokio::test(start_paused = true)]
async fn scenario_a4_demoted_and_nobody_acquired_yet() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    bed.api.fault(Fault::on(Verb::Put, Effect::status(500)));
    bed.run(secs(30)).await;
    assert_eq!(bed.holder(), "a");
    let answer = a.answer();
    assert!(!answer.leader && answer.epoch.is_none() && answer.holder.is_none(), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn scenario_a5_released_and_not_yet_taken() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(1)).await;
    let gate = Gate::new();
    bed.api.fault(Fault::on(Verb::Put, gate.before()).caller("b"));
    a.send(Event::AppStopped(Default::default()));
    bed.until(secs(1), || bed.holder().is_empty()).await;
    bed.run(ms(100)).await;
    let answer = b.answer();
    assert_eq!((answer.state, answer.holder), (State::Electing, None));
    gate.open();
    bed.until(secs(1), || b.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_a6_a_label_edited_under_the_leader() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let epoch = a.epoch();
    // The watch must not tell of it: the conflict shall.
    bed.api.command_watches(Some("a"), WatchCommand::Silent);
    bed.edit(|lease| lease["metadata"]["labels"]["team"] = "billing".into());
    bed.api.clear_requests();
    for _ in 0..100 {
        bed.run(ms(100)).await;
        assert!(a.leads());
    }
    let conflicts = bed.api.requests().iter().filter(|r| r.status == Some(409)).count();
    assert_eq!(conflicts, 1, "one renewal met the edit");
    assert_eq!(a.epoch(), epoch);
    assert_eq!(bed.lease()["metadata"]["labels"]["team"], "billing");
}

#[tokio::test(start_paused = true)]
async fn scenario_a7_a_conflict_and_the_read_names_another() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    bed.run(secs(1)).await;
    bed.api.command_watches(Some("a"), WatchCommand::Silent);
    bed.held_by_client_go("k", 15);
    assert!(a.left() > secs(7));
    bed.until(ms(2_100), || !a.leads()).await;
    assert_eq!(a.answer().reason, Reason::Term(End::LostToOther));
    assert_eq!(a.answer().holder.as_deref(), Some("k"));
}

#[tokio::test(start_paused = true)]
async fn scenario_a10_the_elector_is_dead() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    bed.run(secs(3)).await;
    // The task is gone, the answers are not.
    a.kill();
    let left = a.left();
    bed.run(left - ms(2)).await;
    assert!(a.answer().leader);
    bed.run(ms(2)).await;
    assert!(!a.answer().leader);
}
