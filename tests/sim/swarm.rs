//! Deeds: what a script or a plan does to the world, and the worlds that seeds draw.

use std::time::Duration;

use tenure::core::{AppStopped, Ask, DrainTimeout, Event, OnAppExit, Tell, WatchEvent};
use tenure::timing::Timing;

use super::clock::{Clock, MS, Rng, SECOND};
use super::script::timing;
use super::serve::watch_event;
use super::world::{Setup, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Cut(usize),
    Heal(usize),
    Strand(usize),
    SilenceWatch(usize),
    CloseWatch(usize),
    ForgetWatch(usize),
    Replay(usize, usize),
    Pause(usize),
    Resume(usize),
    Crash(usize),
    /// Killed and started again at once, in the same pod.
    Restart(usize),
    Start(usize),
    Shutdown(usize),
    /// The app says it stopped: of the term held; and for good?
    Stopped(usize, bool),
    Hold(usize),
    Unhold(usize),
    Poll(usize, u64),
    Access(usize, bool),
    WallJump(usize, i64),
    Delete,
    /// Deleted and made anew, empty, in one stroke.
    Remake,
    EditLabel,
    EditDuration(u64),
    StripAnnotations,
    SkipVersions,
    Compact,
    PausePeer,
    ResumePeer,
    StopPeer,
}

impl Deed {
    /// One of all, from two numbers.
    pub fn number(kind: u64, pods: usize, with: u64) -> Deed {
        let pod = (with % pods as u64) as usize;
        let with = with / pods as u64;
        match kind % 40 {
            0 | 1 => Deed::Cut(pod),
            2..=4 => Deed::Heal(pod),
            5 => Deed::Strand(pod),
            6 => Deed::SilenceWatch(pod),
            7 => Deed::CloseWatch(pod),
            8 => Deed::ForgetWatch(pod),
            9 => Deed::Replay(pod, with as usize),
            10 => Deed::Pause(pod),
            11..=13 => Deed::Resume(pod),
            14 if with.is_multiple_of(2) => Deed::Restart(pod),
            14 => Deed::Crash(pod),
            15..=19 => Deed::Start(pod),
            20 => Deed::Shutdown(pod),
            21 => Deed::Stopped(pod, with.is_multiple_of(8)),
            22 => Deed::Hold(pod),
            23 => Deed::Unhold(pod),
            24..=26 => Deed::Poll(pod, with),
            27 => Deed::Access(pod, with.is_multiple_of(4)),
            28 => Deed::WallJump(pod, (with % 7_200_000) as i64 * 1_000 - 3_600_000_000),
            29 => Deed::Delete,
            30 => Deed::Remake,
            31 => Deed::EditLabel,
            32 => Deed::EditDuration(1 + with % 20),
            33 => Deed::StripAnnotations,
            34 => Deed::SkipVersions,
            35 => Deed::Compact,
            36 => Deed::PausePeer,
            37 | 38 => Deed::ResumePeer,
            _ => Deed::StopPeer,
        }
    }
}

/// What the deeds of a plan have to mind.
#[derive(Clone, Debug, Default)]
pub struct Swarm {
    /// No process may start before: it would be fooled by a Lease re-made empty.
    pub no_starts_until: u64,
    /// Pods whose app has said that it stopped for good.
    pub finals: Vec<usize>,
    /// When a Lease was last deleted or made.
    pub remade_at: Option<u64>,
    /// The longest duration that was written by hand, nanoseconds.
    pub edited: u64,
}

const TIMINGS: [(u64, u64, u64); 5] =
    [(15, 10_000, 2_000), (15, 12_500, 3_000), (3, 2_400, 300), (6, 4_000, 1_000), (2, 1_600, 150)];

impl World {
    /// Lets those take part whom a seed draws. None is started.
    pub fn cast(&mut self, rng: &mut Rng) {
        let pods = rng.between(3, 5) as usize;
        let common = rng.below(5) as usize;
        let mixed = rng.permille(150);
        for number in 0..pods {
            let which = if mixed { rng.below(5) as usize } else { common };
            let setup = draw_setup(rng, TIMINGS[which]);
            // Within what every two timings of these allow: 1.09 / 0.92 < 1.2.
            let wide = !mixed && (common == 0 || common == 3);
            let rate = match rng.below(3) {
                0 => 1_000_000,
                _ if wide => rng.between(830_000, 1_230_000),
                _ => rng.between(920_000, 1_090_000),
            };
            let clock = Clock { rate, ..Clock::exact(number) };
            self.add_pod(clock, setup);
            self.pods[number].app.poll_every = match rng.below(3) {
                0 => None,
                1 => Some(rng.between(100, 900) * MS),
                _ => Some(rng.between(1, 4) * SECOND),
            };
            self.pods[number].app.ask = draw_ask(rng.next());
        }
        // Two with one name, of whom neither knows the other to be dead.
        if rng.permille(100) {
            self.pods[1].identity = self.pods[0].identity.clone();
            (0..2).for_each(|twin| self.pods[twin].setup.takes_over = false);
        }
        if rng.permille(800) {
            self.store.create_empty();
        }
        // A client-go that blanks a record takes its duration away.
        if !mixed && rng.permille(300) {
            let (lease, renew, retry) = TIMINGS[common];
            let clock = Clock { rate: 1_000_000, ..Clock::exact(20) };
            self.add_peer(clock, [lease * SECOND, renew * MS * 5 / 6, retry * MS]);
        }
        self.sow(rng);
    }

    pub fn runs(&self, pod: usize) -> bool {
        self.pods[pod].elector.is_some()
    }

    pub fn deed(&mut self, deed: Deed) {
        self.note(|| format!("! {deed:?}"));
        match deed {
            Deed::Cut(pod) => self.cut(pod),
            Deed::Heal(pod) => self.heal(pod),
            Deed::Strand(pod) => self.link(pod).stranded = true,
            Deed::SilenceWatch(pod) => self.link(pod).watch_silent = true,
            Deed::CloseWatch(pod) => self.end_watch(pod, WatchEvent::Closed),
            Deed::ForgetWatch(pod) => self.end_watch(pod, WatchEvent::Gone),
            Deed::Replay(pod, which) => {
                let log = &self.store.log;
                if !log.is_empty() {
                    let event = watch_event(&log[which % log.len()]);
                    self.feed(pod, event);
                }
            }
            Deed::Pause(pod) if self.runs(pod) => self.pause(pod),
            Deed::Resume(pod) if self.pods[pod].paused => self.resume(pod),
            Deed::Crash(pod) if self.runs(pod) => self.crash(pod),
            Deed::Restart(pod) if self.runs(pod) => {
                self.crash(pod);
                self.deed(Deed::Start(pod));
            }
            Deed::Start(pod) => {
                let early =
                    self.swarm.as_ref().is_some_and(|swarm| self.now < swarm.no_starts_until);
                if !self.runs(pod) && !early {
                    self.start(pod);
                }
            }
            Deed::Shutdown(pod) if self.runs(pod) => self.shutdown(pod),
            Deed::Stopped(pod, last) if self.runs(pod) && !self.pods[pod].paused => {
                if let Some(swarm) = self.swarm.as_mut().filter(|_| last) {
                    swarm.finals.push(pod);
                }
                self.app_stopped(pod, AppStopped { last, ..AppStopped::default() });
            }
            Deed::Hold(pod) if self.runs(pod) && !self.pods[pod].app.holding => self.hold(pod),
            Deed::Unhold(pod) if self.pods[pod].app.holding && !self.pods[pod].paused => {
                self.unhold(pod);
            }
            Deed::Poll(pod, with) => {
                self.ask(pod, draw_ask(with));
            }
            Deed::Access(pod, denied) => self.happen(pod, Event::Access { denied }),
            Deed::WallJump(pod, micros) => self.pods[pod].clock.wall += micros,
            Deed::EditLabel => self.edit(|object| object.label += 1),
            Deed::SkipVersions => self.store.skip(17),
            Deed::Compact => self.store.compacted = self.store.version(),
            Deed::Delete | Deed::Remake | Deed::EditDuration(_) | Deed::StripAnnotations => {
                self.rude_deed(deed);
            }
            Deed::PausePeer if !self.peers.is_empty() => self.peers[0].paused = true,
            Deed::ResumePeer if !self.peers.is_empty() => self.peer_resume(0),
            Deed::StopPeer if !self.peers.is_empty() && !self.peers[0].paused => self.peer_stop(0),
            _ => {}
        }
    }

    /// What only tenure among itself is safe against (client-go takes a Lease that is gone or short at
    /// once), and only with one lease duration: what was deleted does not tell its own any more.
    fn rude_deed(&mut self, deed: Deed) {
        if !self.peers.is_empty() || !self.same_lease_durations() {
            return;
        }
        match deed {
            Deed::Delete => {
                self.delete();
                self.remade();
            }
            // A process that has never seen a holder would be fooled: said in the docs.
            Deed::Remake if self.all_have_seen_a_holder() => {
                self.delete();
                self.create_empty();
                self.remade();
                let longest = self.longest_lease();
                if let Some(swarm) = &mut self.swarm {
                    swarm.no_starts_until = self.now + 2 * longest;
                }
            }
            Deed::EditDuration(seconds) => {
                if let Some(swarm) = &mut self.swarm {
                    swarm.edited = swarm.edited.max(seconds * SECOND);
                }
                self.edit(|object| object.record.duration = Some(Duration::from_secs(seconds)));
            }
            Deed::StripAnnotations => self.edit(|object| {
                object.record.epoch = None;
                object.record.incarnation = None;
                object.record.annotated_transitions = None;
                object.record.released = None;
            }),
            _ => {}
        }
    }

    fn remade(&mut self) {
        let now = self.now;
        if let Some(swarm) = &mut self.swarm {
            swarm.remade_at = Some(now);
        }
    }

    fn all_have_seen_a_holder(&self) -> bool {
        let seen = |pod: usize| {
            let author = self.author(pod);
            self.tells
                .iter()
                .any(|(_, of, tell)| *of == author && matches!(tell, Tell::HolderChanged { .. }))
        };
        (0..self.pods.len()).filter(|&pod| self.runs(pod)).all(seen)
    }

    fn same_lease_durations(&self) -> bool {
        let first = self.pods[0].setup.timing.lease_duration();
        self.pods.iter().all(|pod| pod.setup.timing.lease_duration() == first)
    }

    /// The longest of the record's own duration and the candidates', in true time, as the slowest clock
    /// measures it.
    pub fn longest_lease(&self) -> u64 {
        let record = self.store.object.as_ref().and_then(|object| object.record.duration);
        self.longest(|timing| timing.lease_duration().max(record.unwrap_or_default()))
    }

    /// The longest of a span of the candidates' timings, likewise.
    pub fn longest(&self, span: impl Fn(&Timing) -> Duration) -> u64 {
        let of = |pod: &super::Pod| {
            let span = span(&pod.setup.timing).as_nanos();
            (span * 1_000_000 / u128::from(pod.clock.rate)) as u64 + 1
        };
        self.pods.iter().map(of).max().unwrap_or(0)
    }

    fn end_watch(&mut self, pod: usize, event: WatchEvent<super::store::Base>) {
        self.feed(pod, event);
        if let Some(stream) = &mut self.pods[pod].stream {
            stream.ending = true;
        }
    }

    /// All faults off: what is stopped goes on, what is dead is started again.
    pub fn calm(&mut self) {
        self.note(|| "! all is well from here on".into());
        self.weather = None;
        let finals = self.swarm.take().map(|swarm| swarm.finals).unwrap_or_default();
        for pod in 0..self.pods.len() {
            self.heal(pod);
            self.link(pod).stranded = false;
            if self.pods[pod].paused {
                self.resume(pod);
            }
            if finals.contains(&pod) && self.runs(pod) {
                self.crash(pod);
            }
            if self.pods[pod].app.holding && self.runs(pod) {
                self.unhold(pod);
            }
            self.happen(pod, Event::Access { denied: false });
        }
        if !self.peers.is_empty() {
            self.peer_resume(0);
        }
        for pod in 0..self.pods.len() {
            if !self.runs(pod) {
                self.start(pod);
            }
        }
    }
}

fn draw_setup(rng: &mut Rng, (lease, renew, retry): (u64, u64, u64)) -> Setup {
    Setup {
        timing: timing(lease, renew, retry),
        takes_over: rng.permille(800),
        drain_timeout: match rng.below(2) {
            0 => DrainTimeout::Auto,
            _ => DrainTimeout::Explicit(Duration::from_secs(rng.between(0, 8))),
        },
        on_app_exit: if rng.permille(500) { OnAppExit::Release } else { OnAppExit::Keep },
        unsafe_release_on_sigterm: rng.permille(100),
        max_valid: rng.permille(200).then(|| Duration::from_millis(700)),
        ..Setup::default()
    }
}

fn draw_ask(with: u64) -> Ask {
    Ask {
        min_valid: with.is_multiple_of(7).then(|| Duration::from_millis(300)),
        max_valid: with.is_multiple_of(3).then(|| Duration::from_millis(200 + with % 2_000)),
        sees_no_length: with.is_multiple_of(5),
    }
}
