//! One test for each mark of the protocol's appendix: its trace, step by step, with all rules
//! (nothing goes wrong) and without the one rule (the trace goes wrong, so the test would notice).
//!
//! Candidates are `A` (pod 0), `B` (pod 1), `C` (pod 2); they renew 2 ms after each even second.
//! `make marks` prints the table.

mod sim;

#[path = "marks/found.rs"]
mod found;
#[path = "marks/leading.rs"]
mod leading;
#[path = "marks/leaving.rs"]
mod leaving;
#[path = "marks/taking.rs"]
mod taking;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use sim::World;
use tenure::core::{Mark, Rules};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

/// A trace is told to a fresh world of three candidates and an empty Lease.
type Trace = fn(&mut World);

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics that are wanted out of the output.
fn quiet() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !EXPECTED.get() {
                usual(panic);
            }
        }));
    });
}

fn run(trace: Trace, mark: Option<Mark>) -> Result<(), String> {
    let rules = mark.map_or(Rules::default(), Rules::without);
    let mut world = World::of(3, rules, mark);
    if std::env::var_os("TIMELINE").is_some() {
        world.timeline = Some(Vec::new());
    }
    quiet();
    EXPECTED.set(mark.is_some());
    let told = catch_unwind(AssertUnwindSafe(|| {
        trace(&mut world);
        world.sound();
    }));
    EXPECTED.set(false);
    if let Some(timeline) = &world.timeline {
        println!("{}\n", timeline.join("\n"));
    }
    told.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or(panic.downcast_ref::<&str>().map(|text| (*text).into())).unwrap_or_default()
    })
}

#[track_caller]
fn both(mark: Mark, trace: Trace) {
    if let Err(why) = run(trace, None) {
        panic!("with all rules: {why}");
    }
    match run(trace, Some(mark)) {
        Ok(()) => panic!("without {mark:?} nothing went wrong: the test cannot fail"),
        Err(why) => println!("without {mark:?}: {}", why.lines().next().unwrap_or_default()),
    }
}

macro_rules! marks {
    ($($test:ident: $mark:ident = $trace:path;)*) => {
        $(#[test] fn $test() { both(Mark::$mark, $trace); })*

        const TABLE: &[(Mark, &str, Trace)] = &[$((Mark::$mark, stringify!($test), $trace)),*];
    };
}

marks! {
    mark_f1: F1 = taking::made_anew_held_by_nobody;
    mark_f2: F2 = taking::wait_from_first_sight_of_the_uid;
    mark_f3: F3 = taking::empty_in_another_uid;
    mark_f4: F4 = taking::blanked_by_client_go;
    mark_f5: F5 = taking::duration_patched;
    mark_f6: F6 = taking::predecessor_that_lives;
    mark_f7: F7 = leading::credit_of_the_attempt_that_landed;
    mark_f8: F8 = leading::late_answer_revives_nothing;
    mark_f9: F9 = leading::renewals_within_one_second;
    mark_f10: F10 = leaving::slow_release_and_the_next_term;
    mark_f11: F11 = taking::store_went_back;
    mark_f13: F13 = leaving::grants_of_the_predecessor;
    mark_f20: F20 = taking::late_renewal_of_the_predecessor;
    mark_f21: F21 = taking::my_name_by_another_process;
    mark_f22: F22 = leading::replayed_events;
    mark_f23: F23 = leaving::acquisition_in_flight_at_the_end;
    mark_f24: F24 = leading::retry_after;
    mark_f25: F25 = leading::slow_server;
    mark_f28: F28 = taking::my_own_record_after_the_term;
    mark_f32: F32 = leading::room_for_drift;
    validity_from_send: ValidityFromSend = leading::validity_counts_from_the_send;
    margin: Margin = leading::validity_ends_before_the_lease;
    epoch_not_transitions: EpochNotTransitions = taking::epochs_outlive_the_lease;
    app_first: AppFirst = leaving::no_release_under_a_grant;
    compare_and_swap: CompareAndSwap = taking::two_want_the_free_lease;
    own_clock_only: OwnClockOnly = taking::wall_clock_an_hour_ahead;
    validity_not_boolean: ValidityNotBoolean = leading::stuck_elector;
    uid_sent: UidSent = taking::acquiring_a_deleted_lease;
    incarnation: Incarnation = taking::my_name_by_another_process;
}

/// Judged where HTTP is read, in the tests of src/shell/lease_api.rs and in tests/shell.rs.
const ELSEWHERE: &[(Mark, &str)] =
    &[(Mark::F26, "mark_f26_switched_off_takes_any_404_for_absence")];

#[test]
fn every_mark_has_a_test() {
    for mark in Mark::ALL {
        let here = TABLE.iter().filter(|(of, ..)| of == mark).count();
        let elsewhere = ELSEWHERE.iter().filter(|(of, _)| of == mark).count();
        assert_eq!(here + elsewhere, 1, "{mark:?}");
    }
}

macro_rules! found {
    ($($test:ident;)*) => { $(#[test] fn $test() { assert_eq!(run(found::$test, None), Ok(())); })* };
}

// What reading and searching have found.
found! {
    watch_of_an_idle_lease;
    watch_that_never_opens;
    undone_take_over_under_a_grant;
    read_from_before_the_question;
    shortest_timings;
    wall_clock_set_back;
    wall_clock_set_back_a_little;
    blanked_with_an_older_number;
    freed_by_a_foreign_elector;
    deleted_within_one_second;
}

/// Prints the table of `make marks`.
#[test]
fn table() {
    println!("| mark | rule | test | with all rules | without it |");
    println!("|---|---|---|---|---|");
    let mut bad = 0;
    for &(mark, test, trace) in TABLE {
        let passes = run(trace, None).is_ok();
        let caught = run(trace, Some(mark)).is_err();
        bad += usize::from(!passes || !caught);
        let passes = if passes { "passes" } else { "FAILS" };
        let caught = if caught { "caught" } else { "NOT CAUGHT" };
        println!("| {mark:?} | {} | {test} | {passes} | {caught} |", mark.text());
    }
    for (mark, test) in ELSEWHERE {
        println!("| {mark:?} | {} | {test} | | in the shell's own tests |", mark.text());
    }
    assert_eq!(bad, 0, "rules without a test that notices");
}
