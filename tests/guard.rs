//! What must not grow unseen, without a clock: requests to the API server, heap allocations of the
//! core, crates in the shipped tree. The binary's size is guarded by `make size`.

#[allow(dead_code, reason = "the scenarios use the rest")]
#[path = "scenarios/bed.rs"]
mod bed;
#[path = "support/renewing.rs"]
mod renewing;

use std::collections::BTreeSet;
use std::process::Command;

use bed::{Bed, ms, secs};
use renewing::Leader;
use tenure::core::{Ask, Event, Mono, Now, Wall};
use tenure::embedded::Verb;

/// Crates that `tenure` is linked from, itself included. A new dependency raises it in the commit that
/// gives its reason.
const MOST_CRATES: usize = 125;

#[tokio::test(start_paused = true)]
async fn a_leader_asks_once_a_retry_period_and_a_standby_hardly_ever() {
    const MINUTES: u64 = 60;
    let bed = Bed::with_lease();
    let leader = bed.leader("leader").await;
    let standbys = [bed.start("standby-1"), bed.start("standby-2")];
    bed.run(secs(60)).await;
    bed.api.clear_requests();
    tokio::time::sleep(secs(60 * MINUTES)).await;

    let per_minute = |count: usize| count as f64 / MINUTES as f64;
    let puts = per_minute(bed.count(&leader, Verb::Put));
    assert!(puts <= 30.1, "{puts} renewals a minute");
    assert_eq!(bed.count(&leader, Verb::Get), 0);
    // A watch lasts a while, then the server ends it, and the standby reads once.
    let watches = per_minute(bed.count(&leader, Verb::Watch));
    assert!(watches < 0.1, "{watches} watches a minute");
    for standby in &standbys {
        assert_eq!(bed.count(standby, Verb::Put), 0);
        let all = per_minute(bed.api.count(Some(&standby.name), None));
        assert!(all < 0.2, "{all} requests of a standby a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn a_freed_lease_costs_fifty_candidates_fewer_than_two_requests_each() {
    const CANDIDATES: usize = 50;
    let bed = Bed::with_lease();
    let leader = bed.leader("leader").await;
    let others: Vec<_> = (0..CANDIDATES).map(|n| bed.start(&format!("b{n}"))).collect();
    bed.run(secs(3)).await;
    bed.api.clear_requests();
    leader.send(Event::AppStopped(tenure::core::AppStopped::default()));
    bed.until(ms(50), || others.iter().any(|pod| pod.leads())).await;
    bed.run(secs(1)).await;

    assert_eq!(others.iter().filter(|pod| pod.leads()).count(), 1);
    let requests: usize = others.iter().map(|pod| bed.api.count(Some(&pod.name), None)).sum();
    assert!(requests < 2 * CANDIDATES, "{requests} requests of {CANDIDATES} candidates");
}

#[test]
fn a_renewal_and_an_answer_allocate_nothing_in_the_core() {
    const RENEWALS: u64 = 1_000;
    let mut leader = Leader::new();
    let renewing = allocation_counter::measure(|| {
        for _ in 0..RENEWALS {
            leader.renew();
        }
    });
    assert_eq!(renewing.count_total, 0, "{RENEWALS} renewals: {renewing:?}");

    let now = Now { mono: Mono::ZERO, wall: Wall::from_micros(0) };
    let answering = allocation_counter::measure(|| {
        assert!(leader.elector.answer(now, Ask::default()).leader);
    });
    assert_eq!(answering.count_total, 0, "{answering:?}");
}

/// The measure itself: it would also say zero if it saw nothing.
#[test]
fn allocations_are_seen() {
    let seen = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1_u64))));
    assert_eq!(seen.count_total, 1);
}

#[test]
fn the_shipped_tree_does_not_grow() {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges=normal,no-proc-macro",
            "--prefix=none",
            "--target",
        ])
        .args([&target, "--format={p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("the names of crates");
    let crates: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split(" (").next()).filter(|l| !l.is_empty()).collect();
    assert!(crates.len() <= MOST_CRATES, "{} crates, {MOST_CRATES} allowed", crates.len());
}
