//! The second listener.

use std::collections::BTreeSet;

use tenure::api::{Access, Denied};
use tenure::core::{Event, Verb};

use crate::client::exchange;
use crate::site::{OTHER, Setup, Site};

/// As documented, with the kind of each and the values of its label.
const SERIES: &[(&str, &str)] = &[
    ("leader_election_master_status", "gauge"),
    ("leader_election_slowpath_total", "counter"),
    ("tenure_access_denied", "gauge"),
    ("tenure_bad_annotations_total", "counter"),
    ("tenure_build_info", "gauge"),
    ("tenure_epoch", "gauge"),
    ("tenure_holds", "gauge"),
    ("tenure_is_leader", "gauge"),
    ("tenure_last_renew_timestamp_seconds", "gauge"),
    ("tenure_leader_changes_total", "counter"),
    ("tenure_lease_requests_total", "counter"),
    ("tenure_renew_duration_seconds", "histogram"),
    ("tenure_state", "gauge"),
    ("tenure_store_went_back_total", "counter"),
    ("tenure_terms_total", "counter"),
    ("tenure_valid_until_timestamp_seconds", "gauge"),
    ("tenure_watch_restarts_total", "counter"),
];

/// All label sets, as they must exist from the start.
const SETS: &[(&str, &str, &[&str])] = &[
    ("tenure_access_denied", "verb", &["get", "put", "watch"]),
    ("tenure_lease_requests_total", "verb", &["get", "put", "watch"]),
    (
        "tenure_lease_requests_total",
        "outcome",
        &["done", "conflict", "absent", "refused", "unknown"],
    ),
    (
        "tenure_state",
        "state",
        &["starting", "following", "electing", "leading", "draining", "cooling_down", "blocked"],
    ),
    (
        "tenure_terms_total",
        "end",
        &["released", "app_exited", "shutdown", "lost_to_other", "renew_deadline", "lease_deleted"],
    ),
];

async fn metrics(site: &Site) -> String {
    let answer = site.admin("GET", "/metrics").await;
    assert_eq!(answer.status, 200);
    answer.text().to_owned()
}

/// The value of the only sample whose line has all of `parts`.
fn sample(text: &str, name: &str, parts: &[&str]) -> f64 {
    let mut lines = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            && parts.iter().all(|part| line.contains(part))
    });
    let line = lines.next().unwrap_or_else(|| panic!("no {name} {parts:?} in\n{text}"));
    assert_eq!(lines.next(), None, "{name} {parts:?} is not one sample");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn every_documented_series_exists_from_the_start() {
    let site = Setup::new().start().await;
    site.kill_elector();
    let text = metrics(&site).await;
    let mut kinds = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        kinds.push(line.split_once(' ').unwrap());
    }
    kinds.sort_unstable();
    assert_eq!(kinds, SERIES);
    for (name, _) in SERIES {
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
        let labels = if name.starts_with("leader_election_") {
            &["{name=\"billing\"}"][..]
        } else {
            &["lease=\"billing\"", "lease_namespace=\"shop\""]
        };
        let lines = text.lines().filter(|line| line.starts_with(name));
        assert!(lines.clone().count() > 0, "{name}");
        for line in lines {
            assert!(labels.iter().all(|label| line.contains(label)), "{line}");
        }
    }
    for (name, label, values) in SETS {
        let prefix = format!("{label}=\"");
        let found: BTreeSet<&str> = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")))
            .map(|line| line.split_once(&prefix).unwrap().1.split('"').next().unwrap())
            .collect();
        assert_eq!(found, values.iter().copied().collect(), "{name}");
    }
    let requests = text.lines().filter(|line| line.starts_with("tenure_lease_requests_total{"));
    assert_eq!(requests.count(), 15, "each verb with each outcome");
}

#[tokio::test]
async fn the_series_follow_what_happens_and_a_scrape_grants_nothing() {
    let site = Site::leading().await;
    let text = metrics(&site).await;
    assert_eq!(sample(&text, "tenure_is_leader", &[]), 1.0);
    assert_eq!(sample(&text, "leader_election_master_status", &[]), 1.0);
    assert_eq!(sample(&text, "tenure_state", &["\"leading\""]), 1.0);
    assert_eq!(sample(&text, "tenure_state", &["\"following\""]), 0.0);
    assert!(sample(&text, "tenure_epoch", &[]) >= 7.0);
    assert!(sample(&text, "tenure_valid_until_timestamp_seconds", &[]) > 1_796_000_000.0);
    assert!(sample(&text, "tenure_lease_requests_total", &["\"put\"", "\"done\""]) >= 1.0);
    assert_eq!(sample(&text, "tenure_leader_changes_total", &[]), 1.0);
    // Nobody was granted anything by that: the release need not wait for it.
    site.seat.handle(Event::Shutdown);
    site.until(|core| core.finished()).await;
    let text = metrics(&site).await;
    assert_eq!(sample(&text, "tenure_is_leader", &[]), 0.0);
    assert_eq!(sample(&text, "tenure_valid_until_timestamp_seconds", &[]), 0.0);
    assert_eq!(sample(&text, "tenure_terms_total", &["\"shutdown\""]), 1.0);
    assert!(!text.contains("web-0"), "no holder's name is a label");
}

#[tokio::test]
async fn scenario_c3_a_missing_right_is_named_until_it_is_there() {
    let mut setup = Setup::new().held_by(OTHER);
    setup.access = Access::Missing(vec![Denied {
        verb: "update".into(),
        resource: "leases.coordination.k8s.io/billing".into(),
        namespace: "shop".into(),
    }]);
    let site = setup.start().await;
    site.until(|core| core.has_read()).await;
    let answer = site.admin("GET", "/readyz").await;
    assert_eq!(answer.status, 503);
    for part in ["update", "leases.coordination.k8s.io/billing", "shop"] {
        assert!(answer.text().contains(part), "{answer:?}");
    }
    site.health.set_access(Access::Passed);
    assert_eq!(site.admin("GET", "/readyz").await.status, 200);
    // Ready means "can take part", and stays: scenario_p1, scenario_p7.
    site.health.set_access(Access::Missing(Vec::new()));
    assert_eq!(site.admin("GET", "/readyz").await.status, 200);
}

#[test]
fn scenario_c3_a_metric_tells_what_is_denied() {
    #[derive(Debug)]
    struct Stopped;
    impl tenure::seat::Clock for Stopped {
        fn now(&self) -> tenure::core::Now {
            let wall = tenure::core::Wall::from_micros(0);
            tenure::core::Now { mono: tenure::core::Mono::ZERO, wall }
        }
    }
    let clock: std::sync::Arc<dyn tenure::seat::Clock> = std::sync::Arc::new(Stopped);
    let seat = tenure::seat::Seat::new(Setup::new().options, clock.clone());
    let second = std::time::Duration::from_secs(1);
    let metrics = tenure::metrics::Metrics::new("billing", "shop", second, clock);
    metrics.tell(&tenure::core::Tell::Denied(Verb::Put));
    let denied = |verb: &str| sample(&metrics.render(&seat), "tenure_access_denied", &[verb]);
    assert_eq!((denied("\"put\""), denied("\"get\"")), (1.0, 0.0));
    metrics.request(Verb::Put, tenure::metrics::Outcome::Done);
    assert_eq!(denied("\"put\""), 0.0);
    // Whoever may not write is told of no conflict, and who may not read of no absence.
    metrics.tell(&tenure::core::Tell::Denied(Verb::Put));
    metrics.request(Verb::Put, tenure::metrics::Outcome::Conflict);
    metrics.tell(&tenure::core::Tell::Denied(Verb::Get));
    metrics.request(Verb::Get, tenure::metrics::Outcome::Absent);
    assert_eq!((denied("\"put\""), denied("\"get\"")), (0.0, 0.0));
    // The buckets end where no renewal goes beyond.
    metrics.tell(&tenure::core::Tell::Renewed { took: second / 4 });
    let text = metrics.render(&seat);
    assert_eq!(sample(&text, "tenure_renew_duration_seconds_bucket", &["le=\"1\""]), 1.0);
    assert!(!text.contains("le=\"2.5\""));
}

#[tokio::test]
async fn before_the_first_read_it_is_not_ready_but_alive() {
    let site = Setup::new().start().await;
    site.kill_elector();
    assert_eq!(site.admin("GET", "/readyz").await.status, 503);
    assert_eq!(site.admin("GET", "/livez").await.status, 200);
    assert_eq!(site.admin("HEAD", "/livez").await.body, b"");
}

#[tokio::test]
async fn the_second_listener_serves_nothing_else() {
    let site = Site::leading().await;
    for target in ["/leader", "/", "/release", "/leader/events?hold=true", "/fence/7"] {
        assert_eq!(site.admin("GET", target).await.status, 404, "{target}");
    }
    let answer = site.admin("POST", "/metrics").await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(site.admin("POST", "/release").await.status, 404);
    // Without a Host at all, as a prober may ask.
    let io = tokio::net::TcpStream::connect(site.admin).await.unwrap();
    let answer = exchange(io, b"GET /livez HTTP/1.0\r\n\r\n").await;
    assert_eq!(answer.status, 200);
}
