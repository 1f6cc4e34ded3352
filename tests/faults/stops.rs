//! SIGTERM while a renewal is on its way, stop after stop. `make stops` makes many.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::Signal;

use crate::cluster::{Fault, Rule, Verb, Wire, number};
use crate::facts::{Fact, What};
use crate::tenure::{Tenure, Timing};
use crate::{LEASE, LIMIT, Site, eventually, leads};

/// Renewed often, so that a stop is soon; run out is noticed: by then the test has long failed.
const TIMING: Timing = ["60s", "40s", "300ms"];
/// How late a renewal reaches the server, or its answer the sidecar.
const LATE: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Count {
    /// Stops whose renewal was unanswered when SIGTERM came.
    cut_off: u64,
    /// Of these: it committed between SIGTERM and the release, which had to be sent again.
    again: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_s5_a_renewal_cut_off_by_sigterm_that_commits_later_is_released_all_the_same() {
    let (stops, sites) = (number("STOPS", 10), number("STOP_SITES", 2));
    let begin = Instant::now();
    let all = (0..sites).map(|site| async move {
        let share = stops / sites + u64::from(site < stops % sites);
        run(&Site::new(&format!("s5-{site}")).await, share).await
    });
    let all = join_all(all).await;
    let sum = |count: fn(&Count) -> u64| all.iter().map(count).sum::<u64>();
    let (cut_off, again) = (sum(|one| one.cut_off), sum(|one| one.again));
    println!(
        "{stops} stops in {:.0} s, each a clean release; at {cut_off} of them SIGTERM came before the \
         renewal's answer; at {again} it committed then, and the release was sent again",
        begin.elapsed().as_secs_f64()
    );
    assert!(0 < again && again < cut_off);
}

async fn run(site: &Site, stops: u64) -> Count {
    let wire = site.wire();
    let mut count = Count::default();
    for stop in 0..stops {
        let name = format!("a{stop}");
        let mut a = site.start(&name, wire.url(), TIMING, &["--unsafe-release-on-sigterm"]);
        leads(&a).await;
        terminate(&wire, &a, stop).await;
        let status = a.ended(LIMIT).await;
        assert!(status.success(), "{status:?}\n{}", a.log_tail());
        let landed = async || wire.http.puts_done() == wire.http.puts();
        eventually("what was cut off reaches the server, too", landed).await;
        released(site, &a).await;
        let history = a.history(&name);
        if was_cut_off(&history) {
            count.cut_off += 1;
            count.again += u64::from(releases(&history) > 1);
        }
    }
    count
}

/// How the next renewal and the release after it come to the server.
fn meet(wire: &Wire, stop: u64) {
    let next = |fault| wire.http.add(Rule::on(Verb::Put, fault).times(1));
    match stop % 3 {
        // The release first: its sender is gone when the renewal comes.
        0 => next(Fault::Late(LATE)),
        // The renewal first, which commits after SIGTERM.
        1 => {
            next(Fault::Late(LATE));
            next(Fault::Late(2 * LATE));
        }
        // The renewal first, which has committed, as a watch may tell; its answer is on its way.
        _ => next(Fault::LateAnswer(LATE)),
    }
}

async fn terminate(wire: &Wire, tenure: &Tenure, stop: u64) {
    let hits = wire.http.hits();
    meet(wire, stop);
    let begin = Instant::now();
    while wire.http.hits() == hits {
        assert!(begin.elapsed() < LIMIT, "no renewal\n{}", tenure.log_tail());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Somewhere in the time the renewal is on its way.
    tokio::time::sleep(Duration::from_millis(stop * 7 % 40)).await;
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

/// PUTs that release.
fn releases(history: &[Fact]) -> usize {
    let release =
        |fact: &&Fact| matches!(&fact.what, What::Sent { purpose, .. } if purpose == "release");
    history.iter().filter(release).count()
}
