//! The shortest life of a term. All else is shown by tests/ in virtual time.

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
