//! SIGTERM while a renewal is on its way, stop after stop. `make stops` makes many.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::Signal;

use crate::cluster::{Fault, Rule, Verb, Wire, number};
use crate::facts::{Fact, What};
use crate::tenure::{Tenure, Timing};
use crate::{LEASE, LIMIT, Site, leads};

/// Renewed often, so that a stop is soon; run out is noticed: by then the test has long failed.
const TIMING: Timing = ["60s", "40s", "300ms"];
/// How late a renewal reaches the server.
const LATE: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn scenario_s5_a_renewal_cut_off_by_sigterm_that_commits_later_is_released_all_the_same() {
    let (stops, sites) = (number("STOPS", 10), number("STOP_SITES", 2));
    let begin = Instant::now();
    let all = (0..sites).map(|site| async move {
        let share = stops / sites + u64::from(site < stops % sites);
        run(&Site::new(&format!("s5-{site}")).await, share).await
    });
    let cut_off: u64 = join_all(all).await.into_iter().sum();
    println!(
        "{stops} stops in {:.0} s, each a clean release; at {cut_off} of them SIGTERM came before the \
         renewal's answer",
        begin.elapsed().as_secs_f64()
    );
    assert!(cut_off > 0);
}

/// Tells at how many of the stops the renewal was unanswered.
async fn run(site: &Site, stops: u64) -> u64 {
    let wire = site.wire();
    let mut cut_off = 0;
    for stop in 0..stops {
        let name = format!("a{stop}");
        let mut a = site.start(&name, wire.url(), TIMING, &["--unsafe-release-on-sigterm"]);
        leads(&a).await;
        // Somewhere in the time the renewal is on its way.
        terminate(&wire, &a, Duration::from_millis(stop * 7 % 40)).await;
        let status = a.ended(LIMIT).await;
        assert!(status.success(), "{status:?}\n{}", a.log_tail());
        released(site, &a).await;
        cut_off += u64::from(was_cut_off(&a.history(&name)));
    }
    cut_off
}

async fn terminate(wire: &Wire, tenure: &Tenure, after: Duration) {
    let hits = wire.http.hits();
    wire.http.add(Rule::on(Verb::Put, Fault::Late(LATE)).times(1));
    let begin = Instant::now();
    while wire.http.hits() == hits {
        assert!(begin.elapsed() < LIMIT, "no renewal\n{}", tenure.log_tail());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(after).await;
    tenure.signal(Signal::TERM);
}

async fn released(site: &Site, tenure: &Tenure) {
    let lease = site.namespace.get_lease(LEASE).await.expect("the Lease");
    let holder = lease.spec.clone().unwrap_or_default().holder_identity;
    let log = tenure.log_tail();
    assert_eq!(holder.as_deref(), Some(""), "{}: {lease:?}\n{log}", tenure.identity);
    let notes = lease.metadata.annotations.unwrap_or_default();
    assert_eq!(notes["tenure.dev/released"], notes["tenure.dev/epoch"], "{log}");
}

/// Whether the sidecar's own history has a renewal that was sent before it was told to stop, and not
/// answered by then.
fn was_cut_off(history: &[Fact]) -> bool {
    let mut open = None;
    for fact in history {
        let What::Seen(text) = &fact.what else { continue };
        match text.split(' ').collect::<Vec<_>>()[..] {
            ["PUT", id, "renew", ..] => open = Some(id),
            ["written", id, ..] if open == Some(id) => open = None,
            ["shutdown", ..] => return open.is_some(),
            _ => {}
        }
    }
    false
}
