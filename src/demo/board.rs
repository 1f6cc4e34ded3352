//! The board: what was seen, by whom, and what follows from it.
//!
//! Nobody here takes a sidecar's word for more than it is: an answer was computed somewhere between
//! the request and its arrival, and only what is proven by that is counted as a broken promise.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::stage::boottime;
use super::summary::Summary;
use crate::timing::Timing;

/// The three candidates.
pub(super) const PODS: [&str; 3] = ["pod-a", "pod-b", "pod-c"];
/// Lines of the log kept for the picture.
const LOG_LINES: usize = 50;

/// What is done to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Release,
    Kill,
    Pause,
    CutOff,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::Release, Kind::Kill, Kind::Pause, Kind::CutOff];

    /// One word, as in the JSON.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Release => "release",
            Kind::Kill => "kill",
            Kind::Pause => "pause",
            Kind::CutOff => "cut_off",
        }
    }
}

/// What the director has done to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    Killed,
    Paused,
    CutOff,
}

/// One answer of one sidecar. Times are on the boottime clock.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) leader: bool,
    pub(super) state: String,
    pub(super) reason: String,
    pub(super) epoch: Option<u64>,
    pub(super) valid_until: Duration,
    /// Not computed before this…
    pub(super) computed_after: Duration,
    /// …nor after this.
    pub(super) received: Duration,
}

/// One candidate.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) life: Life,
    pub(super) said: Option<Said>,
    /// When it first said that the last term of its own is over.
    ended: Option<Duration>,
    /// The last deadline of that term.
    granted_until: Duration,
}

impl Lane {
    /// How much is left of its last grant, whether or not it is there to say so.
    pub(super) fn valid_for(&self, now: Duration) -> Duration {
        let grant = self.said.as_ref().filter(|said| said.leader && self.life != Life::Killed);
        grant.map_or(Duration::ZERO, |said| said.valid_until.saturating_sub(now))
    }
}

/// A term, as far as it is proven by answers.
#[derive(Clone, Debug)]
struct Term {
    pod: usize,
    epoch: u64,
    /// Surely leader from here…
    from: Duration,
    /// …to here.
    to: Duration,
}

/// What was done to the newest leader.
#[derive(Clone, Copy, Debug)]
struct Struck {
    kind: Kind,
    at: Duration,
}

/// A change of leader.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// None: the first leader, or one that nobody asked for.
    pub(super) kind: Option<Kind>,
    pub(super) from: Option<usize>,
    pub(super) to: usize,
    pub(super) epoch: u64,
    /// From what was done to the next leader's first answer.
    pub(super) took: Duration,
    /// Of which nobody said leader.
    pub(super) leaderless: Duration,
}

impl Change {
    /// After what, in one word. A machine that is busy enough takes leadership away by itself: no
    /// promise is broken by that.
    pub(super) fn why(&self) -> &'static str {
        match (self.kind, self.from) {
            (Some(kind), _) => kind.word(),
            (None, None) => "start",
            (None, Some(_)) => "nothing",
        }
    }
}

/// The store that the apps write to.
#[derive(Clone, Debug, Default)]
pub(super) struct Register {
    /// Each accepted write adds one to what it read, so without damage this is their number.
    pub(super) value: u64,
    pub(super) newest_epoch: u64,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    /// Writes with an old epoch that were taken.
    pub(super) stale_accepted: u64,
    /// Who has read and not yet written.
    open: Option<(usize, u64)>,
}

impl Register {
    /// Accepted writes of which nothing is left.
    pub(super) fn lost(&self) -> u64 {
        self.accepted.saturating_sub(self.value)
    }
}

/// One line for whoever watches.
#[derive(Debug)]
pub(super) struct Happening {
    /// Since the start.
    pub(super) at: Duration,
    pub(super) event: &'static str,
    pub(super) text: String,
    pub(super) fields: Map<String, Value>,
}

#[derive(Debug)]
pub(super) struct Board {
    pub(super) start: Duration,
    pub(super) title: String,
    pub(super) seed: u64,
    pub(super) fence: bool,
    pub(super) lanes: [Lane; 3],
    pub(super) register: Register,
    pub(super) changes: Vec<Change>,
    pub(super) log: VecDeque<(Duration, String)>,
    /// Answers that said leader while another surely led, and pairs of terms that surely overlap.
    pub(super) overlaps: u64,
    /// What should not have happened.
    pub(super) failures: Vec<String>,
    terms: Vec<Term>,
    struck: Option<Struck>,
    happenings: Option<mpsc::UnboundedSender<Happening>>,
}

impl Board {
    pub(super) fn new(
        timing: &Timing,
        seed: u64,
        fence: bool,
        happenings: mpsc::UnboundedSender<Happening>,
    ) -> Self {
        let lane =
            || Lane { life: Life::Killed, said: None, ended: None, granted_until: Duration::ZERO };
        let title = format!(
            "L {:?}  R {:?}  P {:?}  seed {seed}{}",
            timing.lease_duration(),
            timing.renew_deadline(),
            timing.retry_period(),
            if fence { "" } else { "  NO FENCE" }
        );
        let mut board = Self {
            start: boottime(),
            title,
            seed,
            fence,
            lanes: [lane(), lane(), lane()],
            register: Register::default(),
            changes: Vec::new(),
            log: VecDeque::new(),
            overlaps: 0,
            failures: Vec::new(),
            terms: Vec::new(),
            struck: None,
            happenings: Some(happenings),
        };
        board.tell("start", format!("three candidates, {}", board.title), json!({ "seed": seed }));
        board
    }

    /// Nothing is told any more.
    pub(super) fn fall_silent(&mut self) {
        self.happenings = None;
    }

    /// `fields` is an object.
    pub(super) fn tell(&mut self, event: &'static str, text: String, fields: Value) {
        let at = boottime().saturating_sub(self.start);
        if self.log.len() >= LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back((at, text.clone()));
        let Value::Object(fields) = fields else { return };
        if let Some(happenings) = &self.happenings {
            // Nobody listens any more: then nobody misses it.
            let _ = happenings.send(Happening { at, event, text, fields });
        }
    }

    pub(super) fn fail(&mut self, why: String) {
        self.tell("failure", why.clone(), json!({}));
        self.failures.push(why);
    }

    /// Who says leader and is there to say it, with its epoch.
    pub(super) fn leader(&self) -> Option<(usize, u64)> {
        let now = boottime();
        let leading = |lane: &Lane| lane.life == Life::Running && !lane.valid_for(now).is_zero();
        let pod = self.lanes.iter().position(leading)?;
        Some((pod, self.lanes[pod].said.as_ref()?.epoch?))
    }

    /// The leader of a greater epoch than this one.
    pub(super) fn leader_after(&self, epoch: u64) -> Option<(usize, u64)> {
        self.leader().filter(|(_, newer)| *newer > epoch)
    }

    /// All are there and follow or lead.
    pub(super) fn settled(&self) -> Option<()> {
        let calm = |lane: &Lane| {
            lane.life == Life::Running
                && lane.said.as_ref().is_some_and(|said| {
                    said.leader || said.state == "following" || said.state == "electing"
                })
        };
        (self.leader().is_some() && self.lanes.iter().all(calm)).then_some(())
    }

    /// Whether this pod has a write on its way under this epoch.
    pub(super) fn write_is_open(&self, pod: usize, epoch: u64) -> Option<()> {
        (self.register.open == Some((pod, epoch))).then_some(())
    }

    /// Something is done to the leader.
    pub(super) fn strike(&mut self, kind: Kind, pod: usize, epoch: u64, at: Duration) {
        self.struck = Some(Struck { kind, at });
        let text = match kind {
            Kind::Release => format!("{} (epoch {epoch}) has stopped its work: release", PODS[pod]),
            Kind::Kill => format!("{} (epoch {epoch}) is killed", PODS[pod]),
            Kind::Pause => {
                format!("{} (epoch {epoch}) stands still, a write on its way", PODS[pod])
            }
            Kind::CutOff => format!("{} (epoch {epoch}) is cut off from the API", PODS[pod]),
        };
        self.tell(kind.word(), text, json!({ "pod": PODS[pod], "epoch": epoch }));
    }

    pub(super) fn set_life(&mut self, pod: usize, life: Life) {
        let lane = &mut self.lanes[pod];
        lane.life = life;
        if life == Life::Killed {
            lane.said = None;
        }
    }

    /// An answer came.
    pub(super) fn hear(&mut self, pod: usize, said: Said) {
        let was_leading = self.lanes[pod].said.as_ref().is_some_and(|before| before.leader);
        match said.epoch.filter(|_| said.leader) {
            Some(epoch) => {
                self.lanes[pod].ended = None;
                self.hear_leader(pod, epoch, &said);
                self.lanes[pod].granted_until = said.valid_until;
            }
            None if was_leading => {
                self.lanes[pod].ended = Some(said.received);
                let (state, reason) = (&said.state, &said.reason);
                let text = format!("{} leads no more: {state}, {reason}", PODS[pod]);
                let fields = json!({ "pod": PODS[pod], "state": state, "reason": reason });
                self.tell("ended", text, fields);
            }
            None => {}
        }
        self.lanes[pod].said = Some(said);
    }

    fn hear_leader(&mut self, pod: usize, epoch: u64, said: &Said) {
        let newest = self.terms.iter().map(|term| term.epoch).max().unwrap_or(0);
        let known = self.terms.iter().position(|term| term.pod == pod && term.epoch == epoch);
        let index = known.unwrap_or_else(|| {
            let (from, to) = (said.received, said.computed_after);
            self.terms.push(Term { pod, epoch, from, to });
            self.terms.len() - 1
        });
        self.terms[index].to = self.terms[index].to.max(said.computed_after);
        let mine = self.terms[index].clone();
        let overlaps = |other: &Term| {
            other.epoch != epoch && mine.from.max(other.from) < mine.to.min(other.to)
        };
        // Said leader at a moment at which a later term had surely begun.
        let stale = |other: &Term| other.epoch > epoch && other.from < said.computed_after;
        let broken = self.terms.iter().find(|other| overlaps(other) || stale(other));
        if let Some(other) = broken.map(|other| other.epoch) {
            self.overlaps += 1;
            self.fail(format!("{} says leader of {epoch} beside epoch {other}", PODS[pod]));
        }
        if known.is_none() {
            if epoch <= newest {
                self.fail(format!("{} began epoch {epoch} after epoch {newest}", PODS[pod]));
            }
            self.change_of_leader(pod, epoch, said.received);
        }
    }

    fn change_of_leader(&mut self, to: usize, epoch: u64, at: Duration) {
        let from = self.changes.last().map(|change| change.to);
        let struck = self.struck.take();
        let began = struck.map_or(self.start, |struck| struck.at);
        // When the one before said leader for the last time, as far as it could still say so.
        let old_end = match (from.map(|pod| &self.lanes[pod]), struck) {
            (Some(lane), Some(struck)) if lane.life == Life::Killed => {
                struck.at.min(lane.granted_until)
            }
            (Some(lane), Some(struck)) if struck.kind == Kind::Release => {
                lane.ended.unwrap_or(struck.at)
            }
            (Some(lane), _) => lane.granted_until.min(lane.ended.unwrap_or(lane.granted_until)),
            (None, _) => self.start,
        };
        let change = Change {
            kind: struck.map(|struck| struck.kind),
            from,
            to,
            epoch,
            took: at.saturating_sub(began),
            leaderless: at.saturating_sub(old_end),
        };
        let (took, leaderless) = (ms(change.took), ms(change.leaderless));
        let why = change.why();
        let text = format!(
            "{} leads, epoch {epoch}: {took} ms after {why}, {leaderless} ms leaderless",
            PODS[to]
        );
        let fields = json!({
            "pod": PODS[to],
            "epoch": epoch,
            "after": why,
            "from": from.map(|pod| PODS[pod]),
            "took_ms": took,
            "leaderless_ms": leaderless,
        });
        self.changes.push(change);
        self.tell("leader", text, fields);
    }

    /// A reader that means to write: the newest value, or the newest epoch if it comes too late.
    pub(super) fn begin_write(&mut self, epoch: u64) -> Result<u64, u64> {
        let register = &mut self.register;
        if self.fence && epoch < register.newest_epoch {
            register.refused += 1;
            return Err(register.newest_epoch);
        }
        register.newest_epoch = register.newest_epoch.max(epoch);
        Ok(register.value)
    }

    /// Its writer has looked at its deadline for the last time: nothing but the fence can stop it.
    pub(super) fn send_write(&mut self, pod: &str, epoch: u64) {
        self.register.open = PODS.iter().position(|name| *name == pod).map(|pod| (pod, epoch));
    }

    /// A write; the newest epoch if it is refused.
    pub(super) fn commit_write(&mut self, pod: &str, epoch: u64, value: u64) -> Result<(), u64> {
        let fence = self.fence;
        let register = &mut self.register;
        let newest = register.newest_epoch;
        if register.open.is_some_and(|(_, open)| open == epoch) {
            register.open = None;
        }
        let stale = epoch < newest;
        let fields = json!({ "pod": pod, "epoch": epoch, "newest_epoch": newest });
        if stale && fence {
            register.refused += 1;
            let text = format!("late write of {pod} (epoch {epoch}) refused: newest is {newest}");
            self.tell("refused", text, fields);
            return Err(newest);
        }
        let before = register.value;
        register.value = value;
        register.accepted += 1;
        if stale {
            register.stale_accepted += 1;
            let lost = register.lost();
            let text = format!(
                "DAMAGE: late write of {pod} (epoch {epoch}) put {value} over {before}; {lost} writes lost"
            );
            self.tell("damage", text, fields);
        }
        Ok(())
    }

    pub(super) fn summarize(&self) -> Summary {
        Summary::of(self, boottime().saturating_sub(self.start))
    }
}

pub(super) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
