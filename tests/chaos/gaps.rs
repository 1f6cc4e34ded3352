//! Times without a leader: how long, who came after whom, and what had been done.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::checker::{Reign, Verdict, pod};
use crate::facts::{Fact, What};
use crate::lane::{Harm, Outages};

#[derive(Debug, Clone)]
pub struct Gap {
    /// The harm before it. Of the servers: their outage itself is not counted, the time after it is.
    pub harm: String,
    /// More was done before anybody led again: what comes of it is nobody's promise.
    pub more: bool,
    /// "tenure > client-go", for one.
    pub kind: String,
    /// Nanoseconds of boottime.
    pub from: u64,
    pub until: u64,
}

impl Gap {
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.until.saturating_sub(self.from))
    }

    fn between(before: &Reign, after: &Reign, facts: &[Fact], outages: &Outages) -> Gap {
        let faults = facts.iter().filter_map(|fact| match &fact.what {
            What::Fault(text) => Some((fact.at, text.split(' ').next().unwrap_or_default())),
            _ => None,
        });
        let faults: Vec<_> = faults.filter(|(at, _)| *at <= after.from).collect();
        let outages = outages.lock().expect("outages");
        // Nobody can lead through an outage of the servers, which every lane feels.
        let mut felt = outages.iter().filter(|(a, b, _)| *a < after.from && before.until < *b);
        let (from, outage) = match felt.next_back() {
            Some((_, end, harm)) => (before.until.max(*end), Some(*harm)),
            None => (before.until, None),
        };
        let since = faults.iter().filter(|(at, _)| *at > from).count();
        let caused = faults.get(faults.len().wrapping_sub(since + 1));
        let caused = caused.map_or("start".into(), |(_, harm)| String::from(*harm));
        let harm = outage.map_or(caused, |harm: Harm| format!("{harm:?}"));
        Gap { harm, more: since > 0, kind: kind(before, after), from, until: after.from }
    }
}

fn kind(before: &Reign, after: &Reign) -> String {
    let name = |reign: &Reign| if reign.epoch.is_some() { "tenure" } else { "client-go" };
    match pod(&before.who) == pod(&after.who) {
        true => format!("the same {}", name(after)),
        false => format!("{} > {}", name(before), name(after)),
    }
}

/// In the order of time.
pub fn gaps(facts: &[Fact], verdict: &Verdict, outages: &Outages) -> Vec<Gap> {
    // client-go may lead on, by its own word, while others come and go.
    let mut led = 0;
    let pairs = verdict.reigns.windows(2);
    let between = |pair: &[Reign]| {
        led = pair[0].until.max(led);
        let before = Reign { until: led, ..pair[0].clone() };
        Gap::between(&before, &pair[1], facts, outages)
    };
    pairs.map(between).collect()
}

/// Prints how often who came after whom, and how long nobody led.
pub fn report(gaps: &[Gap]) {
    let mut kinds: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    let mut rows: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for gap in gaps {
        let harm = if gap.more { "more than one" } else { &gap.harm };
        kinds.entry(&gap.kind).or_default().push(gap.length());
        rows.entry(format!("{harm:<16}{:>24}", gap.kind)).or_default().push(gap.length());
    }
    println!("{:<40}{:>6}{:>11}{:>11}", "hand-over", "times", "median ms", "worst ms");
    let kinds = kinds.into_iter().map(|(kind, times)| (format!("{:<16}{kind:>24}", "all"), times));
    for (name, mut times) in kinds.chain(rows) {
        times.sort();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        let (median, worst) = (median.as_millis(), worst.as_millis());
        println!("{name:<40}{:>6}{median:>11}{worst:>11}", times.len());
    }
}
