//! The shortest life of a term, and orders of events that a test in virtual time hardly meets. All
//! else is shown by tests/.

use std::time::Duration;

use super::*;
use crate::timing::Timing;

fn at(ms: u64) -> Now {
    Now { mono: Mono::from_millis(100_000 + ms), wall: Wall::from_micros(ms as i64 * 1_000) }
}

fn candidate() -> Elector<u32> {
    let options = Options {
        identity: "a_1".into(),
        incarnation: "i1".into(),
        takes_over: true,
        timing: Timing::default(),
        missing_lease: MissingLease::Create,
        drain_timeout: DrainTimeout::Auto,
        on_app_exit: OnAppExit::Release,
        unsafe_release_on_sigterm: false,
        max_valid: None,
        rules: Rules::default(),
    };
    Elector::new(options, at(0))
}

fn actions(elector: &mut Elector<u32>) -> Vec<Action<u32>> {
    std::iter::from_fn(|| elector.poll_action()).collect()
}

fn empty(version: u128) -> Observed<u32> {
    let record = Record {
        uid: "u1".into(),
        version: Some(Version::new(version)),
        holder: None,
        duration: None,
        acquire_time: None,
        renew_time: None,
        transitions: None,
        epoch: None,
        incarnation: None,
        annotated_transitions: None,
        released: None,
        coordinated: false,
        bad_annotations: 0,
    };
    Observed { record, base: version as u32 }
}

fn apply(write: &Write<u32>, version: u128) -> Observed<u32> {
    let mut object = empty(version);
    let record = &mut object.record;
    record.holder = Some(write.holder.clone()).filter(|holder| !holder.is_empty());
    record.duration = Some(write.duration);
    record.renew_time = Some(Stamp::At(write.renew_time));
    record.acquire_time = write.acquire_time.map(Stamp::At);
    record.transitions = write.transitions;
    record.annotated_transitions = write.transitions;
    record.epoch = write.epoch;
    record.incarnation = write.incarnation.clone();
    object
}

#[test]
fn an_empty_lease_is_read_acquired_renewed_and_released() {
    let mut elector = candidate();
    let Some(Action::Read { id }) = elector.poll_action() else { panic!("no read") };
    let found = ReadOutcome::Found(empty(7));
    elector.handle(at(5), Event::Read { id, outcome: found });
    let list = actions(&mut elector);
    let [Action::Write { id, write, .. }, Action::Watch { after, .. }] = &list[..] else {
        panic!("{list:?}")
    };
    assert_eq!(*after, Some(Version::new(7)));
    assert_eq!((write.purpose, write.base, write.epoch), (Purpose::Acquire, Some(7), Some(7)));
    assert_eq!(elector.answer(at(6), Ask::default()).state, State::Electing);
    let done = WriteOutcome::Done { created: false, object: apply(write, 8) };
    elector.handle(at(9), Event::Write { id: *id, outcome: done });
    let answer = elector.answer(at(10), Ask::default());
    assert!(answer.leader, "{answer:?}");
    assert_eq!(answer.valid_for, Duration::from_millis(9_995), "counted from the send");
    // The renewal is due two seconds after the send of the acquisition; before that, the
    // watch that was not opened in time is opened anew.
    elector.handle(at(2_005), Event::Timeout);
    let list = actions(&mut elector);
    assert!(
        list.iter().any(|action| matches!(action, Action::Write { write, .. }
            if write.purpose == Purpose::Renew && write.base == Some(8))),
        "{list:?}"
    );
    // The app's word: a release goes out at once, and no answer says leader before.
    elector.handle(at(2_100), Event::AppStopped(AppStopped::default()));
    let answer = elector.answer(at(2_100), Ask::default());
    assert_eq!((answer.leader, answer.state, answer.epoch), (false, State::Draining, None));
    let list = actions(&mut elector);
    assert!(
        list.iter().any(|action| matches!(action, Action::Write { write, .. }
            if write.purpose == Purpose::Release && write.released == Released::Set(7))),
        "{list:?}"
    );
}

#[test]
fn validity_ends_without_any_event() {
    let mut elector = candidate();
    let Some(Action::Read { id }) = elector.poll_action() else { panic!("no read") };
    elector.handle(at(0), Event::Read { id, outcome: ReadOutcome::Found(empty(7)) });
    let list = actions(&mut elector);
    let Some(Action::Write { id, write, .. }) = list.first() else { panic!("{list:?}") };
    let done = WriteOutcome::Done { created: false, object: apply(write, 8) };
    elector.handle(at(1), Event::Write { id: *id, outcome: done });
    assert!(elector.answer(at(9_998), Ask::default()).leader);
    let answer = elector.answer(at(10_000), Ask::default());
    assert_eq!((answer.leader, answer.state), (false, State::Electing));
    assert_eq!(answer.reason, Reason::Term(End::RenewDeadline));
}

/// Killed and started again in its pod, told to stop while it takes over: the app may still be at
/// work on what the dead process granted.
#[test]
fn invariant_s7_an_acquisition_is_undone_only_after_the_predecessors_grants() {
    let mut elector = candidate();
    let Some(Action::Read { id }) = elector.poll_action() else { panic!("no read") };
    let mut left = empty(7);
    left.record.holder = Some("a_1".into());
    left.record.incarnation = Some("i0".into());
    left.record.epoch = Some(5);
    elector.handle(at(5), Event::Read { id, outcome: ReadOutcome::Found(left) });
    let list = actions(&mut elector);
    let Some(Action::Write { id, write, .. }) = list.first() else { panic!("{list:?}") };
    elector.handle(at(6), Event::Shutdown);
    let done = WriteOutcome::Done { created: false, object: apply(write, 8) };
    elector.handle(at(7), Event::Write { id: *id, outcome: done });
    let releases = |elector: &mut Elector<u32>| {
        actions(elector).iter().any(|action| {
            matches!(action, Action::Write { write, .. } if write.purpose == Purpose::Release)
        })
    };
    assert!(!releases(&mut elector), "the dead process may have granted up to its start + R");
    assert!(!elector.answer(at(8), Ask::default()).leader);
    elector.handle(at(9_999), Event::Timeout);
    assert!(!releases(&mut elector));
    elector.handle(at(10_000), Event::Timeout);
    assert!(releases(&mut elector) && !elector.finished());
}

/// Leads since `at(0)`, with what it has written: version 8.
fn leader_with(change: impl FnOnce(&mut Options)) -> (Elector<u32>, Observed<u32>) {
    let mut options = candidate().options().clone();
    change(&mut options);
    let mut elector = Elector::new(options, at(0));
    let id = reads(&actions(&mut elector))[0];
    elector.handle(at(0), Event::Read { id, outcome: ReadOutcome::Found(empty(7)) });
    let (id, write) = writes(&actions(&mut elector)).remove(0);
    let object = apply(&write, 8);
    let outcome = WriteOutcome::Done { created: false, object: object.clone() };
    elector.handle(at(1), Event::Write { id, outcome });
    assert_eq!(elector.state(), State::Leading);
    actions(&mut elector);
    (elector, object)
}

/// Follows `b`, whose term is a minute, since `at(0)`; with its watch.
fn follower() -> (Elector<u32>, RequestId) {
    let mut elector = candidate();
    let id = reads(&actions(&mut elector))[0];
    elector.handle(at(0), Event::Read { id, outcome: ReadOutcome::Found(of_b(7)) });
    assert_eq!(elector.state(), State::Following);
    let watch = actions(&mut elector).into_iter().find_map(|action| match action {
        Action::Watch { id, .. } => Some(id),
        _ => None,
    });
    (elector, watch.unwrap())
}

fn of_b(version: u128) -> Observed<u32> {
    let mut object = empty(version);
    object.record.holder = Some("b_2".into());
    object.record.duration = Some(Duration::from_secs(60));
    object.record.renew_time = Some(Stamp::At(Wall::from_micros(version as i64)));
    object
}

fn reads(list: &[Action<u32>]) -> Vec<RequestId> {
    let id = |action: &Action<u32>| match action {
        Action::Read { id } => Some(*id),
        _ => None,
    };
    list.iter().filter_map(id).collect()
}

fn writes(list: &[Action<u32>]) -> Vec<(RequestId, Write<u32>)> {
    let write = |action: &Action<u32>| match action {
        Action::Write { id, write, .. } => Some((*id, write.clone())),
        _ => None,
    };
    list.iter().filter_map(write).collect()
}

/// What went out when the time was this.
fn wake(elector: &mut Elector<u32>, ms: u64) -> Vec<Action<u32>> {
    elector.handle(at(ms), Event::Timeout);
    actions(elector)
}

fn refused(status: u16, retry_after: Option<u64>) -> Failure {
    let retry_after = retry_after.map(Duration::from_secs);
    Failure { class: FailureClass::Refused, status: Some(status), retry_after }
}

#[test]
fn what_an_answer_finds_run_out_is_acted_upon() {
    let (mut elector, _) = leader_with(|_| {});
    for ms in [2_000, 4_667, 7_334] {
        assert_eq!(writes(&wake(&mut elector, ms)).len(), 1, "a renewal that nobody answers");
    }
    // The app asks in the very moment in which the timer would have gone off.
    assert!(!elector.answer(at(10_000), Ask::default()).leader);
    let sent = writes(&actions(&mut elector));
    assert!(
        matches!(&sent[..], [(_, write)] if write.purpose == Purpose::Acquire),
        "our own record is acquired at once: {sent:?}"
    );
}

#[test]
fn an_answer_names_no_holder_whose_term_is_over_whatever_is_stuck() {
    let (mut elector, _) = follower();
    assert_eq!(elector.answer(at(59_999), Ask::default()).holder.as_deref(), Some("b_2"));
    let version = elector.version();
    let answer = elector.answer(at(60_000), Ask::default());
    assert_eq!((answer.holder, answer.state), (None, State::Electing));
    assert_eq!(answer.version, version + 1);
}

#[test]
fn a_version_without_order_blocks_until_the_known_one_is_read_again() {
    let (mut elector, watch) = follower();
    elector.handle(at(10), Event::Watch { id: watch, event: WatchEvent::Opened });
    let mut odd = of_b(8);
    odd.record.version = None;
    elector.handle(at(20), Event::Watch { id: watch, event: WatchEvent::Object(odd) });
    let answer = elector.answer(at(20), Ask::default());
    assert_eq!(answer.reason, Reason::Blocked(Blocked::BadResourceVersion));
    let id = reads(&wake(&mut elector, 15_000))[0];
    elector.handle(at(15_001), Event::Read { id, outcome: ReadOutcome::Found(of_b(7)) });
    assert_eq!(elector.state(), State::Following);
}

#[test]
fn mark_f22_a_late_event_brings_no_lease_back_that_is_gone() {
    let (mut elector, object) = leader_with(|_| {});
    let watch = elector.watch.id.unwrap();
    elector.handle(at(2), Event::Watch { id: watch, event: WatchEvent::Opened });
    // The watch lags: the Lease was deleted after version 8, which it has not shown yet.
    let (id, _) = writes(&wake(&mut elector, 2_000)).remove(0);
    elector.handle(at(2_002), Event::Write { id, outcome: WriteOutcome::Conflict });
    let id = reads(&actions(&mut elector))[0];
    elector.handle(at(2_003), Event::Read { id, outcome: ReadOutcome::Absent });
    let (creation, _) = writes(&actions(&mut elector)).remove(0);
    let event = WatchEvent::Object(object.clone());
    elector.handle(at(2_004), Event::Watch { id: watch, event });
    assert_eq!(elector.answer(at(2_004), Ask::default()).lease_uid, None);
    assert_eq!(actions(&mut elector), [], "and its creation goes on");
    // Where the quorum says so, the store went back to that very version.
    elector.handle(at(2_005), Event::Write { id: creation, outcome: WriteOutcome::Conflict });
    let id = reads(&actions(&mut elector))[0];
    elector.handle(at(2_006), Event::Read { id, outcome: ReadOutcome::Found(object) });
    assert_eq!(elector.answer(at(2_006), Ask::default()).lease_uid.as_deref(), Some("u1"));
}

#[test]
fn a_poll_that_failed_or_is_not_answered_is_not_the_last_for_a_whole_term() {
    // Its watch never opens.
    let (mut elector, _) = follower();
    let id = reads(&wake(&mut elector, 15_000))[0];
    elector.handle(at(15_001), Event::Read { id, outcome: ReadOutcome::Failed(Failure::UNKNOWN) });
    assert_eq!(reads(&wake(&mut elector, 16_999)).len(), 0);
    assert_eq!(reads(&wake(&mut elector, 17_000)).len(), 1, "P after the one that failed");
    assert_eq!(reads(&wake(&mut elector, 19_667)).len(), 1, "T after the one that is open");
}

#[test]
fn mark_f24_a_retry_after_of_zero_is_no_invitation_to_a_storm() {
    let (mut elector, _) = leader_with(|_| {});
    let (id, _) = writes(&wake(&mut elector, 2_000)).remove(0);
    let outcome = WriteOutcome::Failed(refused(429, Some(0)));
    elector.handle(at(2_001), Event::Write { id, outcome });
    assert_eq!(writes(&actions(&mut elector)), []);
    assert_eq!(writes(&wake(&mut elector, 3_999)), []);
    assert_eq!(writes(&wake(&mut elector, 4_000)).len(), 1);
}

#[test]
fn scenario_e9_unreadable_annotations_are_told_once_and_not_with_each_renewal() {
    let (mut elector, watch) = follower();
    elector.handle(at(1), Event::Watch { id: watch, event: WatchEvent::Opened });
    let mut told = Vec::new();
    for (version, bad) in [(8, 1), (9, 1), (10, 0), (11, 2), (12, 2)] {
        let mut object = of_b(version);
        object.record.bad_annotations = bad;
        let event = WatchEvent::Object(object);
        elector.handle(at(version as u64 * 1_000), Event::Watch { id: watch, event });
        told.extend(actions(&mut elector).into_iter().filter_map(|action| match action {
            Action::Tell(Tell::BadAnnotations { count }) => Some((version, count)),
            _ => None,
        }));
    }
    assert_eq!(told, [(8, 1), (11, 2)]);
}

#[test]
fn a_term_that_was_still_renewed_while_draining_ends_by_the_renew_deadline() {
    let span = Duration::from_secs(25);
    let (mut elector, _) =
        leader_with(|options| options.drain_timeout = DrainTimeout::Explicit(span));
    elector.handle(at(1_000), Event::Shutdown);
    for ms in [2_000, 4_667, 7_334] {
        wake(&mut elector, ms);
    }
    let list = wake(&mut elector, 10_000);
    let end = End::RenewDeadline;
    assert!(
        list.contains(&Action::Tell(Tell::Ended { epoch: 7, end, released: false })),
        "{list:?}"
    );
    assert!(elector.finished());
}

#[test]
fn a_release_gets_out_where_three_renewals_hang() {
    let (mut elector, _) = leader_with(|_| {});
    let sent = [2_000, 4_667, 7_334].map(|ms| writes(&wake(&mut elector, ms)).remove(0).0);
    elector.handle(at(8_000), Event::AppStopped(AppStopped::default()));
    let list = actions(&mut elector);
    let out = writes(&list);
    assert!(matches!(&out[..], [(_, w)] if w.purpose == Purpose::Release), "{list:?}");
    assert!(list.contains(&Action::Cancel { id: sent[0] }), "the oldest makes room: {list:?}");
}

#[test]
fn a_new_lease_that_named_another_holder_ends_the_claim_to_a_newer_one() {
    let (mut elector, _) = leader_with(|_| {});
    let watch = elector.watch.id.unwrap();
    let mut seen = |ms, event| {
        elector.handle(at(ms), Event::Watch { id: watch, event });
        writes(&actions(&mut elector))
    };
    seen(2, WatchEvent::Opened);
    let mut by_b = of_b(20);
    by_b.record.uid = "u2".into();
    // `b` leads by the new Lease; then that one is deleted as well, and made anew.
    seen(1_000, WatchEvent::Object(by_b));
    seen(1_100, WatchEvent::Deleted { uid: "u2".into(), version: Some(Version::new(21)) });
    let mut anew = empty(22);
    anew.record.uid = "u3".into();
    anew.record.holder = Some(HOLDER_NEW.into());
    let sent = seen(1_200, WatchEvent::Object(anew));
    assert_eq!(sent, [], "the term of b is waited out");
}
