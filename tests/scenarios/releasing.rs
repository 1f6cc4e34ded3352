//! S: releasing and stopping.

use tenure::core::{AppStopped, DrainTimeout, End, Event, OnAppExit, Reason, State, Tell};
use tenure::embedded::{Effect, Fault, Verb, WatchCommand};

use crate::bed::{Bed, ms, secs, setup};

#[tokio::test(start_paused = true)]
async fn scenario_s1_sigterm_and_the_app_is_done() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    let epoch = a.answer().epoch.unwrap();
    a.send(Event::AppStopped(AppStopped { epoch: Some(epoch), last: true, cool_down: None }));
    a.sigterm();
    let took = bed.until(ms(50), || b.leads()).await;
    assert!(took < ms(50));
    bed.until(ms(50), || a.ended()).await;
    assert!(b.epoch().unwrap() > epoch);
}

#[tokio::test(start_paused = true)]
async fn scenario_s2_the_app_needs_twenty_seconds() {
    for explicit in [false, true] {
        let bed = Bed::with_lease();
        let a = bed.start_as(
            "a",
            setup("a").with(|options| {
                if explicit {
                    options.drain_timeout = DrainTimeout::Explicit(secs(25));
                }
            }),
        );
        bed.until(secs(1), || a.leads()).await;
        let b = bed.start("b");
        if !explicit {
            a.send(Event::HoldOpened);
        }
        bed.run(secs(5)).await;
        let epoch = a.answer().epoch;
        a.sigterm();
        for _ in 0..20 {
            bed.run(secs(1)).await;
            let answer = a.answer();
            assert_eq!((answer.leader, answer.state), (false, State::Draining));
            assert_eq!((answer.epoch, answer.reason), (epoch, Reason::Term(End::Shutdown)));
            assert!(answer.valid_for > secs(5), "renewed: {answer:?}");
            assert!(!b.leads());
        }
        if explicit {
            a.send(Event::AppStopped(AppStopped::default()));
        } else {
            a.send(Event::HoldClosed { by_peer: true });
        }
        bed.until(ms(50), || b.leads() && a.ended()).await;
        let ends: Vec<Tell> =
            a.told().into_iter().filter(|tell| matches!(tell, Tell::Ended { .. })).collect();
        let epoch = epoch.unwrap();
        assert_eq!(ends, [Tell::Ended { epoch, end: End::Shutdown, released: true }]);
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_s3_the_app_never_says_that_it_stopped() {
    // Granted ten seconds just before, and it goes on polling.
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(6)).await;
    let granted = a.answer().valid_for;
    assert!(granted > secs(7));
    a.sigterm();
    bed.run(ms(10)).await;
    bed.api.clear_requests();
    let mut waited = ms(10);
    while !bed.holder().is_empty() && bed.holder() == "a" {
        assert!(a.answer().valid_for <= granted, "no grant beyond the last one");
        assert!(!b.leads());
        bed.run(ms(50)).await;
        waited += ms(50);
    }
    assert!(waited + ms(60) >= granted, "released after {waited:?}, granted {granted:?}");
    assert!(waited <= granted + ms(60));
    assert_eq!(bed.count(&a, Verb::Put), 1, "the release, and not one more renewal");
    bed.until(ms(100), || b.leads() && a.ended()).await;

    // Told to drain for 25 s: renewed for that long, then released when the grants have lapsed.
    let bed = Bed::with_lease();
    let drain = DrainTimeout::Explicit(secs(25));
    let a = bed.start_as("a", setup("a").with(|options| options.drain_timeout = drain));
    bed.until(secs(1), || a.leads()).await;
    let b = bed.start("b");
    bed.run(secs(3)).await;
    a.sigterm();
    bed.run(secs(25)).await;
    assert_eq!(bed.holder(), "a");
    bed.until(secs(10), || b.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_s3_a_hold_that_never_closes_lets_the_lease_run_out() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    a.send(Event::HoldOpened);
    bed.run(secs(3)).await;
    bed.api.clear_requests();
    a.sigterm();
    let took = bed.until(secs(60), || b.leads()).await;
    assert!(took >= secs(25 + 13), "drained, then run out: {took:?}");
    assert!(a.ended());
    let ends: Vec<bool> = a
        .told()
        .iter()
        .filter_map(|tell| match tell {
            Tell::Ended { released, .. } => Some(*released),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [false], "never released");
}

#[tokio::test(start_paused = true)]
async fn scenario_s4_false_before_the_release_leaves() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let seat = a.seat.clone();
    let seen = bed.api.fault(Fault::on(Verb::Put, Effect::DelayBefore(ms(0))).when(move |body| {
        let release = body["spec"]["holderIdentity"] == "";
        assert!(!release || seat.look(|core| core.state()) != State::Leading);
        release
    }));
    a.send(Event::AppStopped(AppStopped::default()));
    assert!(!a.answer().leader, "already");
    bed.until(ms(100), || bed.api.hits(seen) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_s5_sigterm_while_a_renewal_is_in_flight() {
    for round in 0..1_000_u64 {
        let bed = Bed::with_lease();
        let a = bed.leader("a").await;
        // The renewal is carried out 50 ms after it was sent, also if it is cut off.
        let fault = Fault::on(Verb::Put, Effect::DelayBefore(ms(50)));
        let slow = bed.api.fault(fault.once());
        bed.until(secs(3), || bed.api.hits(slow) == 1).await;
        tokio::time::sleep(std::time::Duration::from_micros(round * 50)).await;
        a.sigterm();
        bed.until(secs(1), || a.ended()).await;
        bed.run(ms(100)).await;
        assert_eq!(bed.holder(), "", "round {round}: {}", bed.lease());
        let epoch = bed.annotation("tenure.dev/epoch");
        assert_eq!(bed.annotation("tenure.dev/released"), epoch, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_s6_the_api_hangs_at_shutdown() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    bed.run(secs(3)).await;
    assert!(a.answer().leader);
    bed.api.fault(Fault::on_all(Effect::SilentBefore));
    bed.api.command_watches(None, WatchCommand::Silent);
    a.sigterm();
    bed.run(ms(10)).await;
    assert!(!a.answer().leader, "the app was told first");
    bed.until(secs(25), || a.ended()).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_s7_a_standby_is_told_to_stop() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(3)).await;
    bed.api.clear_requests();
    b.sigterm();
    bed.until(ms(50), || b.ended()).await;
    bed.run(secs(30)).await;
    assert_eq!(bed.count(&b, Verb::Put), 0);
    assert!(!b.answer().leader && a.leads());
    assert!(!b.told_any(|tell| matches!(tell, Tell::Acquired { .. })));
}

#[tokio::test(start_paused = true)]
async fn scenario_s8_released_and_the_pod_lives_on() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let first = a.epoch().unwrap();
    for (cool_down, wait) in [(None, secs(2)), (Some(secs(60)), secs(60))] {
        a.send(Event::AppStopped(AppStopped { cool_down, ..AppStopped::default() }));
        bed.run(ms(20)).await;
        assert_eq!(a.answer().state, State::CoolingDown);
        bed.run(wait - ms(60)).await;
        assert_eq!((a.answer().state, bed.holder()), (State::CoolingDown, String::new()));
        bed.until(ms(100), || a.leads()).await;
    }
    assert!(a.epoch().unwrap() > first);
    // For good.
    a.send(Event::AppStopped(AppStopped { last: true, ..AppStopped::default() }));
    bed.run(secs(300)).await;
    assert!(!a.leads() && bed.holder().is_empty() && !a.ended());
}

#[tokio::test(start_paused = true)]
async fn scenario_s9_the_last_hold_is_closed_by_its_peer() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(3)).await;
    a.send(Event::HoldOpened);
    a.send(Event::HoldOpened);
    assert!(a.answer().leader);
    a.send(Event::HoldClosed { by_peer: true });
    bed.run(secs(3)).await;
    assert!(a.leads(), "one is still open");
    a.send(Event::HoldClosed { by_peer: true });
    bed.until(ms(100), || b.leads()).await;
    assert_eq!(a.answer().state, State::CoolingDown);
    assert!(a.told_any(|tell| matches!(tell, Tell::Ended { end: End::AppExited, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_hold_closed_by_the_server_is_no_word() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    a.send(Event::HoldOpened);
    a.send(Event::HoldClosed { by_peer: false });
    bed.run(secs(10)).await;
    assert!(a.leads());
}

#[tokio::test(start_paused = true)]
async fn on_app_exit_keep_goes_on_until_the_next_grant_makes_the_word_void() {
    for granted_again in [false, true] {
        let bed = Bed::with_lease();
        let keep = |options: &mut tenure::core::Options| options.on_app_exit = OnAppExit::Keep;
        let a = bed.start_as("a", setup("a").with(keep));
        bed.until(secs(1), || a.leads()).await;
        let b = bed.start("b");
        bed.run(secs(3)).await;
        a.send(Event::HoldOpened);
        assert!(a.answer().leader);
        a.send(Event::HoldClosed { by_peer: true });
        bed.run(ms(100)).await;
        assert!(a.leads(), "kept");
        let granted = if granted_again { a.answer().valid_for } else { ms(0) };
        a.sigterm();
        let took = bed.until(secs(11), || b.leads()).await;
        assert!(took >= granted && took <= granted + ms(50), "{took:?} {granted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_s10_killed_and_restarted_in_the_same_pod() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    let before = a.epoch().unwrap();
    bed.kill(&a);
    let again = bed.start_as("a", setup("a").restarted(2));
    bed.until(ms(100), || again.leads()).await;
    assert!(again.epoch().unwrap() > before);
    bed.run(secs(60)).await;
    assert!(again.leads() && !b.leads());
}

#[tokio::test(start_paused = true)]
async fn mark_f13_the_predecessors_grants_are_honoured() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    assert!(a.answer().leader);
    bed.kill(&a);
    let again = bed.start_as("a", setup("a").restarted(2));
    bed.until(ms(100), || again.leads()).await;
    again.sigterm();
    let took = bed.until(secs(11), || b.leads()).await;
    assert!(took >= secs(10) - ms(200), "the app still works on the old grant: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn scenario_s14_short_grants_make_short_hand_overs() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    bed.run(secs(5)).await;
    for _ in 0..10 {
        bed.run(ms(300)).await;
        let answer = a.ask(secs(2));
        assert!(answer.leader && answer.valid_for <= secs(2));
    }
    bed.run(ms(700)).await;
    a.sigterm();
    bed.run(ms(10)).await;
    let took = bed.until(secs(3), || b.leads()).await;
    assert!(took >= ms(1_270) && took <= ms(1_340), "2 s after the last grant: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn scenario_s15_the_word_of_an_earlier_term() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let first = a.epoch().unwrap();
    a.send(Event::AppStopped(AppStopped::default()));
    bed.until(secs(5), || a.leads()).await;
    a.send(Event::AppStopped(AppStopped { epoch: Some(first), ..AppStopped::default() }));
    bed.run(secs(5)).await;
    assert!(a.leads() && a.epoch().unwrap() > first);
}

#[tokio::test(start_paused = true)]
async fn mark_f23_an_acquisition_in_flight_at_sigterm_is_undone() {
    let bed = Bed::with_lease();
    let a = bed.leader("a").await;
    let b = bed.start("b");
    let c = bed.start("c");
    bed.run(secs(5)).await;
    bed.api.fault(Fault::on(Verb::Put, Effect::DelayBefore(ms(500))).caller("b").once());
    bed.api.fault(Fault::on(Verb::Put, Effect::DelayBefore(secs(2))).caller("c").once());
    a.send(Event::AppStopped(AppStopped { last: true, ..AppStopped::default() }));
    bed.run(ms(100)).await;
    b.sigterm();
    bed.until(secs(3), || b.ended()).await;
    assert!(!b.told_any(|tell| matches!(tell, Tell::Acquired { .. })), "never said leader");
    bed.until(secs(3), || c.leads()).await;
}
