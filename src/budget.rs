//! What follows from given timings: how long a failover takes, what is tolerated, what it costs.
//!
//! Pure arithmetic on a [`Timing`]; the rules behind each formula are those of the election core.
//! Times on the network are counted as [`Question::request_time`] each: one for a request and its
//! answer, and one for a commit and its delivery on a watch. Results are rounded against the reader:
//! waits up, tolerances down, to whole milliseconds.

use std::time::Duration;

use crate::timing::Timing;

mod report;

/// A renewal counts once its renewTime lies in a later whole second than the one before [F9].
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);
/// A watch is opened anew after 15 to 30 minutes.
const WATCH_LIFE: Duration = Duration::from_secs(22 * 60 + 30);
/// After the first attempt of a round, two more may be open beside it, T apart.
const ATTEMPTS_BESIDE: u32 = 2;
/// As [`Timing`] demands them.
const MIN_ATTEMPT: Duration = Duration::from_millis(200);
const MIN_LEASE: Duration = Duration::from_secs(2);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// L, R and P.
    pub timing: Timing,
    /// The longest grant that the app asks for; none: the app takes all there is.
    pub max_valid: Option<Duration>,
    /// Candidates, the leader among them. At least 1.
    pub replicas: u32,
    /// One request to the API server and its answer.
    pub request_time: Duration,
}

/// How long until somebody leads again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// One word per case, stable, as in the JSON.
    pub name: &'static str,
    /// What happened, in words.
    pub what: &'static str,
    /// In the middle of the cases; none where only the worst says something.
    pub typical: Option<Duration>,
    /// Never longer, as long as the API server answers within the request time.
    pub worst: Duration,
}

/// What may go wrong without a change of leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// One word per case, stable, as in the JSON.
    pub name: &'static str,
    /// What happened, in words.
    pub what: &'static str,
    /// As long as this at any moment, also at the worst one.
    pub at_least: Duration,
}

/// What the election costs the API server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// PUTs of the leader in a minute; nobody else writes.
    pub writes_per_minute: f64,
    /// All requests in a minute: the writes, and each candidate's watch opened anew.
    pub requests_per_minute: f64,
    /// Objects sent on watches in a minute.
    pub watch_events_per_minute: f64,
    /// Revisions of etcd in a day.
    pub etcd_writes_per_day: u64,
    /// All requests in a minute if no watch delivers anything.
    pub requests_per_minute_without_watch: f64,
}

/// A rule between the timings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inequality {
    /// As written in the reference.
    pub rule: &'static str,
    /// The greater side.
    pub have: Duration,
    /// The smaller side.
    pub need: Duration,
}

impl Inequality {
    /// Have by need: 1 is none to spare.
    #[must_use]
    pub fn room(&self) -> f64 {
        self.have.as_secs_f64() / self.need.as_secs_f64()
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    question: Question,
    /// Without a leader, from the event to the next leader.
    pub failover: Vec<Wait>,
    /// Without a change of leader.
    pub tolerated: Vec<Tolerance>,
    /// Any two clocks' rates may differ by less than this factor: L / R.
    pub clock_rate_factor: f64,
    /// What it costs.
    pub load: Load,
    /// Every rule that the timings obey.
    pub inequalities: Vec<Inequality>,
    /// Sound, but most likely not what was meant.
    pub notes: Vec<String>,
}

impl Budget {
    /// Works everything out.
    #[must_use]
    pub fn of(question: Question) -> Self {
        let timing = question.timing;
        Self {
            question,
            failover: failover(&question),
            tolerated: tolerated(&question),
            clock_rate_factor: timing.lease_duration().as_secs_f64()
                / timing.renew_deadline().as_secs_f64(),
            load: load(&question),
            inequalities: inequalities(&timing),
            notes: notes(&question),
        }
    }

    /// The inequality with the least room.
    #[must_use]
    pub fn tight(&self) -> Option<&Inequality> {
        self.inequalities.iter().min_by(|a, b| a.room().total_cmp(&b.room()))
    }
}

/// The longest time between two renewals that count: P, or for P < 1 s the first multiple of P that
/// always reaches another whole second.
fn counted_period(period: Duration) -> Duration {
    let renewals = SECOND.as_nanos().div_ceil(period.as_nanos().max(1)).max(1);
    period.saturating_mul(u32::try_from(renewals).unwrap_or(u32::MAX))
}

fn failover(question: &Question) -> Vec<Wait> {
    let Question { timing, max_valid, request_time: request, .. } = *question;
    let (l, r, p) = (timing.lease_duration(), timing.renew_deadline(), timing.retry_period());
    let counted = counted_period(p);
    // The release's PUT, its delivery to the standby, the standby's PUT.
    let hand_over = request * 3;
    // What the standby has seen of the last renewal came that late; and then its own PUT.
    let seen = request * 2;
    let mut waits = vec![
        wait("release", "release: the app says that it stopped", Some(hand_over), hand_over),
        wait(
            "release_unseen",
            "  the same, and the standby's watch delivers nothing",
            None,
            // Its first PUT fails, it reads, and takes what it then sees to be free.
            l + seen + request,
        ),
        wait(
            "shutdown",
            "shutdown: no word, and the app may have been told all of R",
            Some(r.saturating_sub(p / 2) + hand_over),
            r + hand_over,
        ),
    ];
    if let Some(most) = max_valid {
        let most = most.min(r);
        let what = "  the same, and the app asks with max_valid";
        waits.push(wait("shutdown_max_valid", what, Some(most + hand_over), most + hand_over));
    }
    waits.extend([
        wait(
            "crash",
            "crash: the leader's pod or its node is gone",
            Some(l.saturating_sub(p / 2) + seen),
            l + seen,
        ),
        wait(
            "restart",
            "restart of the sidecar in its pod, beside the restart itself",
            Some(request * 2),
            request * 2,
        ),
        wait(
            "partition",
            "partition: the leader is cut off from the API server",
            Some(l.saturating_sub(p / 2) + seen),
            l + seen,
        ),
        wait(
            "partition_leaderless",
            "  of which nobody says leader",
            Some(l.saturating_sub(r) + counted.saturating_sub(p) / 2 + seen),
            // The last renewal was committed, and its answer lost: it counts for others only.
            l.saturating_sub(r) + counted + seen,
        ),
        wait("outage", "outage of the API server, from its end", None, l + seen),
        wait("missing_lease", "no Lease was made beforehand, or it was deleted", None, l + seen),
    ]);
    waits
}

fn wait(
    name: &'static str,
    what: &'static str,
    typical: Option<Duration>,
    worst: Duration,
) -> Wait {
    Wait { name, what, typical, worst }
}

fn tolerated(question: &Question) -> Vec<Tolerance> {
    let Question { timing, request_time: request, .. } = *question;
    let (r, p, t) = (timing.renew_deadline(), timing.retry_period(), timing.attempt_timeout());
    let counted = counted_period(p);
    let left = r.saturating_sub(counted).saturating_sub(request);
    // After a failure the next attempt goes out min(P, T) later.
    let refused = left.saturating_sub(p.min(t));
    // Unanswered attempts stay open, three at most: the last goes out after two T.
    let attempts = (1..=ATTEMPTS_BESIDE).rev().map(|n| t * n).find(|&span| span <= left);
    vec![
        tolerance("pause", "the sidecar or its machine stands still", left),
        tolerance("refused", "the API server refuses, resets or answers 5xx", refused),
        tolerance("swallowed", "packets vanish without an answer", attempts.unwrap_or_default()),
        tolerance("slow", "every write takes this long", (r / 2).min(r.saturating_sub(counted))),
    ]
}

fn tolerance(name: &'static str, what: &'static str, at_least: Duration) -> Tolerance {
    Tolerance { name, what, at_least }
}

fn load(question: &Question) -> Load {
    let Question { timing, replicas, .. } = *question;
    let per = |span: Duration, period: Duration| span.as_secs_f64() / period.as_secs_f64();
    let writes = per(MINUTE, timing.retry_period());
    let watches = f64::from(replicas) * per(MINUTE, WATCH_LIFE);
    let polls = f64::from(replicas.saturating_sub(1)) * per(MINUTE, timing.lease_duration());
    let per_day = DAY.as_nanos() / timing.retry_period().as_nanos().max(1);
    Load {
        writes_per_minute: writes,
        requests_per_minute: writes + watches,
        watch_events_per_minute: writes * f64::from(replicas),
        etcd_writes_per_day: u64::try_from(per_day).unwrap_or(u64::MAX),
        requests_per_minute_without_watch: writes + watches + polls,
    }
}

fn inequalities(timing: &Timing) -> Vec<Inequality> {
    let (l, r, p) = (timing.lease_duration(), timing.renew_deadline(), timing.retry_period());
    vec![
        Inequality { rule: "1.2 R <= L", have: l, need: r * 6 / 5 },
        Inequality { rule: "1.2 P < R", have: r, need: p * 6 / 5 },
        Inequality {
            rule: "T = (R - P) / 3 >= 200ms",
            have: timing.attempt_timeout(),
            need: MIN_ATTEMPT,
        },
        Inequality { rule: "L >= 2s", have: l, need: MIN_LEASE },
    ]
}

fn notes(question: &Question) -> Vec<String> {
    let Question { timing, max_valid, request_time, .. } = *question;
    let (r, p) = (timing.renew_deadline(), timing.retry_period());
    let mut notes = Vec::new();
    if p < SECOND {
        notes.push(format!(
            "--retry-period={p:?}: below 1s not every renewal counts (client-go compares whole \
             seconds); validity is renewed every {:?} at the latest",
            counted_period(p)
        ));
    }
    if request_time >= timing.attempt_timeout() {
        notes.push(format!(
            "--request-time={request_time:?}: second attempts go out after T = {:?}, so each \
             renewal is sent more than once",
            timing.attempt_timeout()
        ));
    }
    if request_time * 2 > r {
        notes.push(format!(
            "--request-time={request_time:?}: above half of --renew-deadline={r:?} leadership is \
             lost again and again"
        ));
    }
    if max_valid.is_some_and(|most| most >= r) {
        notes.push(format!("--max-valid: no answer grants more than --renew-deadline={r:?}"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(l: u64, r: u64, p: u64, max_valid: Option<u64>) -> Budget {
        let ms = Duration::from_millis;
        Budget::of(Question {
            timing: Timing::new(ms(l), ms(r), ms(p)).unwrap(),
            max_valid: max_valid.map(ms),
            replicas: 3,
            request_time: ms(20),
        })
    }

    fn worst(budget: &Budget, name: &str) -> u128 {
        let found = budget.failover.iter().find(|wait| wait.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).worst.as_millis()
    }

    fn at_least(budget: &Budget, name: &str) -> u128 {
        let found = budget.tolerated.iter().find(|tolerance| tolerance.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).at_least.as_millis()
    }

    #[test]
    fn the_defaults_by_hand() {
        let budget = budget(15_000, 10_000, 2_000, Some(2_000));
        assert_eq!(worst(&budget, "release"), 60);
        assert_eq!(worst(&budget, "shutdown"), 10_060);
        assert_eq!(worst(&budget, "shutdown_max_valid"), 2_060);
        assert_eq!(worst(&budget, "crash"), 15_040);
        assert_eq!(worst(&budget, "partition_leaderless"), 7_040);
        assert_eq!(at_least(&budget, "pause"), 7_980);
        assert_eq!(at_least(&budget, "refused"), 5_980);
        assert_eq!(at_least(&budget, "swallowed"), 5_333);
        assert_eq!(at_least(&budget, "slow"), 5_000);
        assert_eq!(budget.load.etcd_writes_per_day, 43_200);
        assert!((budget.load.writes_per_minute - 30.0).abs() < 1e-9);
        assert_eq!(budget.tight().unwrap().rule, "1.2 R <= L");
        assert_eq!(budget.notes, [""; 0]);
    }

    #[test]
    fn mark_f9_below_a_second_not_every_renewal_counts() {
        let ms = Duration::from_millis;
        for (period, counted) in [
            (500, 1_000),
            (400, 1_200),
            (999, 1_998),
            (1_000, 1_000),
            (1_001, 1_001),
            (2_000, 2_000),
        ] {
            assert_eq!(counted_period(ms(period)), ms(counted), "{period}");
        }
        let budget = budget(2_000, 1_600, 400, None);
        assert_eq!(at_least(&budget, "pause"), 380);
        assert_eq!(at_least(&budget, "swallowed"), 0);
        assert!(budget.notes[0].contains("--retry-period=400ms"), "{:?}", budget.notes);
    }

    #[test]
    fn nothing_overflows_at_the_extremes() {
        let most = Duration::from_secs(i32::MAX as u64);
        let long = Timing::new(most, most / 2, most / 4).unwrap();
        for timing in [long, Timing::default()] {
            for request_time in [Duration::ZERO, Duration::from_secs(3600)] {
                let replicas = u32::MAX;
                let max_valid = Some(Duration::MAX);
                let budget = Budget::of(Question { timing, max_valid, replicas, request_time });
                assert!(budget.inequalities.iter().all(|rule| rule.room() >= 1.0));
                assert!(!budget.to_text().is_empty() && budget.to_json().is_object());
            }
        }
    }

    #[test]
    fn text_says_what_the_json_says() {
        let budget = budget(15_000, 10_000, 2_000, None);
        let json = budget.to_json();
        assert_eq!(json["failover"]["crash"]["worst_ms"], 15_040);
        assert_eq!(json["failover"]["outage"]["typical_ms"], serde_json::Value::Null);
        assert_eq!(json["tolerated"]["pause_ms"], 7_980);
        assert_eq!(json["tight"], "1.2 R <= L");
        let text = budget.to_text();
        assert!(text.contains("15.04s") && text.contains("43200"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
