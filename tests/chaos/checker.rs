//! Judges recorded histories by what protocol.md promises. It knows nothing of how the core decides:
//! only what processes said, what they granted, and what a watch of its own saw in the API server.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::facts::{Fact, Version, What};

/// Answers and records count whole milliseconds and microseconds; both are rounded down.
const ROUNDING_NS: u64 = 2_000;

/// Names nobody: a Lease that was made anew.
const MADE_ANEW: &str = "tenure/new";

/// Somebody led, by its own word, from then to then.
#[derive(Debug, Clone)]
pub struct Reign {
    pub who: String,
    /// None: client-go, which has none.
    pub epoch: Option<u64>,
    pub from: u64,
    pub until: u64,
}

/// Overlaps that tenure did not cause, told apart and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Foreign {
    /// client-go says that it stopped only after its lease had run out or was released.
    LateStop,
    /// client-go blanked the record of a living tenure, and another client-go took it.
    Blanked,
    /// Between two client-go electors.
    Among,
}

#[derive(Debug, Default)]
pub struct Verdict {
    pub violations: Vec<(u64, String)>,
    pub foreign: BTreeMap<Foreign, u32>,
    pub reigns: Vec<Reign>,
    /// Answers, versions, terms looked at: a checker that saw nothing proves nothing.
    pub answers: u64,
    pub versions: u64,
    pub releases: u64,
}

impl Verdict {
    fn broken(&mut self, at: u64, what: String) {
        self.violations.push((at, what));
    }
}

/// All that is promised. `offset` is what the wall clock is ahead of boottime; `renew_deadline_ns` is
/// tenure's R.
pub fn check(facts: &[Fact], offset: u64, renew_deadline_ns: u64) -> Verdict {
    let mut verdict = Verdict::default();
    let lease = Lease::of(facts, &mut verdict);
    let mut by_process: BTreeMap<&str, Vec<&Fact>> = BTreeMap::new();
    for fact in facts.iter().filter(|fact| fact.who != "lease" && fact.who != "harness") {
        by_process.entry(&fact.who).or_default().push(fact);
    }
    let mut by_pod: BTreeMap<&str, Vec<&Fact>> = BTreeMap::new();
    for (who, history) in by_process {
        by_pod.entry(pod(who)).or_default().extend(&history);
        told_once(who, &history, &mut verdict);
        let mut terms = terms(who, &history, &mut verdict);
        for term in &terms {
            backed(term, &lease, offset, renew_deadline_ns, &mut verdict);
        }
        verdict.reigns.extend(terms.drain(..).map(|term| term.reign));
        verdict.reigns.extend(peer_reigns(who, &history));
    }
    let tells =
        |history: &[&Fact]| history.iter().any(|fact| matches!(fact.what, What::Stand { .. }));
    let tenures =
        by_pod.iter().filter(|(_, history)| tells(history)).map(|(pod, _)| *pod).collect();
    one_holder(&lease, &tenures, &mut verdict);
    for (pod, mut history) in by_pod {
        history.sort_by_key(|fact| fact.at);
        releases(pod, &history, &lease, &mut verdict);
    }
    verdict.reigns.sort_by_key(|reign| reign.from);
    succeed(&mut verdict.reigns);
    overlaps(&lease, &mut verdict);
    verdict.violations.sort();
    verdict
}

/// `<identity>/<nth process>`: an app belongs to its pod, and so do grants.
pub fn pod(who: &str) -> &str {
    who.split('/').next().unwrap_or(who)
}

/// The next process in the same pod goes on where a killed one ended. Its validity is the longer one,
/// and the grants of the other are its own to wait for.
fn succeed(reigns: &mut [Reign]) {
    for place in 1..reigns.len() {
        let (earlier, later) = reigns.split_at_mut(place);
        let later = &later[0];
        let same = earlier.iter_mut().filter(|reign| pod(&reign.who) == pod(&later.who));
        same.for_each(|reign| reign.until = reign.until.min(later.from));
    }
}

/// The versions in the order of the store.
struct Lease {
    versions: Vec<(u64, Version)>,
    /// Place of the first version of each epoch.
    acquired: HashMap<u64, usize>,
}

impl Lease {
    /// Versions in order, epochs in the order of commits (S2), nothing of an old holder after a new
    /// one (S4).
    fn of(facts: &[Fact], verdict: &mut Verdict) -> Lease {
        let mut lease = Lease { versions: Vec::new(), acquired: HashMap::new() };
        let mut highest = 0;
        for fact in facts {
            let What::Version(version) = &fact.what else { continue };
            verdict.versions += 1;
            let last = lease.versions.last().map_or(0, |(_, last)| last.number);
            if version.number < last {
                verdict.broken(fact.at, format!("version {} after {last}", version.number));
            }
            if version.number <= last {
                continue;
            }
            let epoch = version.epoch;
            // A Lease that was made anew has none until it is taken.
            if epoch != 0 && epoch < highest {
                verdict.broken(fact.at, format!("S2, S4: epoch {epoch} written after {highest}"));
            }
            highest = highest.max(epoch);
            let place = lease.versions.len();
            lease.acquired.entry(epoch).or_insert(place);
            lease.versions.push((fact.at, version.clone()));
        }
        lease
    }

    /// Before `limit` or there: where somebody else came to hold the Lease after it had named `holder`.
    fn taken_from(&self, holder: &str, limit: usize) -> Option<usize> {
        let last = self.versions[..limit].iter().rposition(|(_, v)| v.holder == holder)?;
        let held = |(_, v): &(u64, Version)| !v.holder.is_empty() && v.holder != MADE_ANEW;
        let taken = self.versions[last + 1..=limit].iter().position(held)?;
        Some(last + 1 + taken)
    }

    fn before(&self, place: usize) -> Option<&Version> {
        place.checked_sub(1).map(|place| &self.versions[place].1)
    }
}

/// An epoch belongs to the candidate that acquired it (S2), until it is released or somebody else holds
/// the Lease (S4): client-go keeps the annotated epoch, so epochs alone do not show a late write.
fn one_holder(lease: &Lease, tenures: &BTreeSet<&str>, verdict: &mut Verdict) {
    let mut owners: HashMap<u64, &str> = HashMap::new();
    let mut over: BTreeSet<u64> = BTreeSet::new();
    for (at, Version { holder, epoch, released, .. }) in &lease.versions {
        if tenures.contains(&**holder) {
            let owner = *owners.entry(*epoch).or_insert(holder);
            if owner != holder {
                verdict.broken(*at, format!("S2: {holder} holds {epoch}, which is {owner}'s"));
            } else if over.contains(epoch) {
                verdict.broken(*at, format!("S4: {holder} writes in {epoch}, which was over"));
            }
        } else if !holder.is_empty() || released == epoch {
            over.insert(*epoch);
        }
    }
}

struct Term {
    reign: Reign,
    valid_until: u64,
}

/// The terms that a process held, and that no answer said leader beyond what was valid (S3).
fn terms(who: &str, history: &[&Fact], verdict: &mut Verdict) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    let mut open = false;
    for fact in history {
        match fact.what {
            What::Stand { epoch, valid_until, .. } if valid_until > 0 => {
                let same = open && terms.last().is_some_and(|t| t.reign.epoch == Some(epoch));
                if !same {
                    let from = fact.at;
                    let epoch = Some(epoch);
                    let reign = Reign { who: who.into(), epoch, from, until: valid_until };
                    terms.push(Term { reign, valid_until });
                    open = true;
                }
                let term = terms.last_mut().expect("just opened");
                term.valid_until = valid_until;
                term.reign.until = valid_until;
            }
            What::Stand { .. } => {
                if let Some(term) = terms.last_mut().filter(|_| open) {
                    term.reign.until = term.reign.until.min(fact.at);
                }
                open = false;
            }
            What::Answer { leader, epoch, until } => {
                verdict.answers += 1;
                let term = terms.last().filter(|term| open && term.reign.epoch == Some(epoch));
                let valid = term.map_or(0, |term| term.valid_until);
                if leader && (fact.at >= valid || until > valid) {
                    let late = fact.at.saturating_sub(valid);
                    verdict.broken(fact.at, format!("S3: {who} leader in {epoch}, {late} ns late"));
                }
            }
            _ => {}
        }
    }
    terms
}

/// A term may call itself valid only by a write that the API server took: its time plus R.
fn backed(term: &Term, lease: &Lease, offset: u64, deadline: u64, verdict: &mut Verdict) {
    let Some(epoch) = term.reign.epoch else { return };
    let writes = lease.versions.iter().filter(|(_, version)| version.epoch == epoch);
    // A release writes the time, too, but makes nothing valid.
    let writes = writes.filter(|(_, version)| version.released != epoch);
    let newest = writes.map(|(_, version)| version.renew_us * 1000).max().unwrap_or(0);
    let most = (newest + deadline).saturating_sub(offset) + 5_000_000;
    if term.valid_until > most {
        let over = term.valid_until - most;
        let who = &term.reign.who;
        let text = format!("S1: {who} valid in {epoch}, {over} ns more than any write gives");
        verdict.broken(term.reign.from, text);
    }
}

/// Per term exactly one `acquired`, at most one `draining`, exactly one `ended`, in order (S6). A
/// process that was killed may owe the last.
fn told_once(who: &str, history: &[&Fact], verdict: &mut Verdict) {
    let mut now: Option<(u64, bool)> = None;
    for fact in history {
        let What::Told { tell, epoch } = &fact.what else { continue };
        now = match (&**tell, now) {
            ("Acquired", None) => Some((*epoch, false)),
            ("Draining", Some((held, false))) if held == *epoch => Some((held, true)),
            ("Ended", Some((held, _))) if held == *epoch => None,
            (tell, now) => {
                verdict.broken(fact.at, format!("S6: {who} tells {tell} {epoch} in {now:?}"));
                now
            }
        };
    }
}

/// A release is sent only after the last answer that said leader (S5), and not before what was
/// granted has lapsed, unless the app's word came after the last grant (S7). It takes effect only for
/// the term that issued it.
fn releases(pod: &str, history: &[&Fact], lease: &Lease, verdict: &mut Verdict) {
    // Over all terms of the pod: a predecessor's grants are waited for, too [F13].
    let mut granted = 0;
    let mut sent: HashMap<u64, u64> = HashMap::new();
    for fact in history {
        match &fact.what {
            What::Answer { epoch, until, leader } if *until > 0 => {
                granted = granted.max(*until);
                if *leader && let Some(release) = sent.get(epoch) {
                    let text = format!("S5: leader in {epoch}, release sent at {release}");
                    verdict.broken(fact.at, text);
                }
            }
            What::Word => granted = 0,
            What::Sent { purpose, epoch } if purpose == "release" => {
                sent.entry(*epoch).or_insert(fact.at);
                if fact.at + ROUNDING_NS < granted {
                    let early = granted - fact.at;
                    let text = format!("S7: {epoch} released {early} ns before the grant's end");
                    verdict.broken(fact.at, text);
                }
            }
            _ => {}
        }
    }
    for epoch in sent.keys() {
        let mut versions = lease.versions.iter().enumerate();
        let landed = versions.find(|(_, (_, v))| v.released == *epoch && v.holder.is_empty());
        let Some((place, (at, version))) = landed else { continue };
        verdict.releases += 1;
        let Some(before) = lease.before(place) else { continue };
        if before.epoch != *epoch || before.uid != version.uid || before.holder != pod {
            let Version { holder, epoch: hit, .. } = before;
            verdict.broken(*at, format!("S5: {pod}'s release of {epoch} hit {holder} in {hit}"));
        }
    }
}

fn peer_reigns(who: &str, history: &[&Fact]) -> Vec<Reign> {
    let mut reigns: Vec<Reign> = Vec::new();
    let mut open = false;
    for fact in history {
        match fact.what {
            What::PeerLeads => {
                let (from, until) = (fact.at, u64::MAX);
                reigns.push(Reign { who: who.into(), epoch: None, from, until });
                open = true;
            }
            What::PeerStops | What::Killed if open => {
                reigns.last_mut().expect("open").until = fact.at;
                open = false;
            }
            _ => {}
        }
    }
    let last = history.last().map_or(0, |fact| fact.at);
    if let Some(reign) = reigns.last_mut().filter(|reign| reign.until == u64::MAX) {
        reign.until = last;
    }
    reigns
}

/// No two at once (S1), or somebody else's doing.
fn overlaps(lease: &Lease, verdict: &mut Verdict) {
    let reigns = std::mem::take(&mut verdict.reigns);
    for (place, later) in reigns.iter().enumerate() {
        for earlier in &reigns[..place] {
            if earlier.until <= later.from || earlier.who == later.who && later.epoch.is_none() {
                continue;
            }
            match excuse(lease, earlier, later) {
                Some(foreign) => *verdict.foreign.entry(foreign).or_default() += 1,
                None => {
                    let ms = (earlier.until.min(later.until) - later.from) / 1_000_000;
                    let name = |r: &Reign| format!("{} ({:?})", r.who, r.epoch);
                    let text = format!("S1: {} and {}, {ms} ms", name(earlier), name(later));
                    verdict.broken(later.from, text);
                }
            }
        }
    }
    verdict.reigns = reigns;
}

/// Why an overlap with client-go is not of tenure's doing.
fn excuse(lease: &Lease, earlier: &Reign, later: &Reign) -> Option<Foreign> {
    match (earlier.epoch, later.epoch) {
        (None, None) => Some(Foreign::Among),
        (Some(_), Some(_)) => None,
        // tenure began while client-go said that it led. How that one lost the Lease counts, be it terms
        // ago: it may have been blanked by another client-go, or robbed by it.
        (None, Some(epoch)) => {
            let place = *lease.acquired.get(&epoch)?;
            let place = lease.taken_from(&earlier.who, place).unwrap_or(place);
            let (taken_at, taken) = &lease.versions[place];
            let by_tenure = taken.epoch > 0 && lease.acquired.get(&taken.epoch) == Some(&place);
            let before = lease.before(place)?;
            // By the watch's clock: a renewTime runs ahead of the wall clock where many attempts of
            // one candidate fell into one second.
            let waited = taken_at - lease.versions[place - 1].0;
            let free = before.holder.is_empty() || waited + LATE_NS >= before.duration_ns;
            (free || !by_tenure).then_some(Foreign::LateStop)
        }
        // client-go began while tenure was valid.
        (Some(epoch), None) => {
            let theirs =
                |(at, v): &(u64, Version)| v.holder == later.who && *at + MARGIN_NS > later.from;
            let place = lease.versions.iter().position(theirs)?;
            // Back over its own renewals to its acquisition.
            let same = |place: &usize| lease.versions[*place].1.holder == later.who;
            let first = (0..=place).rev().take_while(same).last()?;
            let before = lease.before(first)?;
            let blanked = before.holder.is_empty() && before.released != epoch;
            blanked.then_some(Foreign::Blanked)
        }
    }
}

/// A commit is seen by the watch and told by its author within that.
const MARGIN_NS: u64 = 2_000_000_000;

/// What one event of the watch may be later than another: far less than the time that a living holder
/// leaves of its lease.
const LATE_NS: u64 = 500_000_000;
