//! What becomes of requests on their way: by default, by a script, or by a seed.

use std::collections::VecDeque;
use std::time::Duration;

use tenure::core::{Failure, FailureClass};

use super::clock::{MS, Rng, SECOND};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Get,
    Put,
    Watch,
}

#[derive(Clone, Copy, Debug)]
pub enum Back {
    /// The answer arrives that long after the server gave it.
    After(u64),
    /// It never does.
    Lost,
    /// The connection is reset that long after the request arrived (or was lost).
    Reset(u64),
}

/// One request's fate. Times in nanoseconds of true time.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// None: it never arrives.
    pub there: Option<u64>,
    /// The server, or something before it, says that instead of doing anything.
    pub refused: Option<Failure>,
    pub back: Back,
}

impl Fate {
    pub const fn ok(there: u64, back: u64) -> Fate {
        Fate { there: Some(there), refused: None, back: Back::After(back) }
    }

    pub const LOST: Fate = Fate { there: None, refused: None, back: Back::Lost };

    /// It takes effect; nobody hears of it.
    pub const UNHEARD: Fate = Fate { there: Some(MS), refused: None, back: Back::Lost };

    /// Reset on the way there: no effect.
    pub const RESET: Fate = Fate { there: None, refused: None, back: Back::Reset(MS) };

    /// It takes effect, then the connection is reset, or the server says 5xx.
    pub const DONE_THEN_RESET: Fate =
        Fate { there: Some(MS), refused: None, back: Back::Reset(MS) };

    pub fn refused(status: u16, retry_after: Option<u64>) -> Fate {
        let class = if status >= 500 { FailureClass::Unknown } else { FailureClass::Refused };
        let retry_after = retry_after.map(Duration::from_secs);
        let failure = Failure { class, status: Some(status), retry_after };
        Fate { there: Some(MS), refused: Some(failure), back: Back::After(MS) }
    }
}

#[derive(Clone, Debug)]
pub struct Link {
    /// Neither requests nor answers nor events pass, and nothing says so.
    pub cut: bool,
    /// Connections made before are dead without a reset; fresh ones work.
    pub stranded: bool,
    /// Open watches bring nothing more.
    pub watch_silent: bool,
    /// How long an event of a watch travels.
    pub watch_delay: u64,
    pub get: Fate,
    pub put: Fate,
    pub watch: Fate,
    /// Fates of the next requests of a kind, in order.
    pub next: VecDeque<(Kind, Fate)>,
    /// What the weather does to the nth request of each kind and to the nth event: streams of their own,
    /// so that a plan without one deed has the same weather elsewhere.
    pub draws: [Rng; 4],
}

/// The stream of [`Link::draws`] that is the watch's events'.
const EVENTS: usize = 3;

impl Link {
    pub fn good() -> Link {
        Link {
            cut: false,
            stranded: false,
            watch_silent: false,
            watch_delay: MS,
            get: Fate::ok(MS, MS),
            put: Fate::ok(MS, MS),
            watch: Fate::ok(MS, MS),
            next: VecDeque::new(),
            draws: [Rng(0), Rng(1), Rng(2), Rng(3)],
        }
    }

    /// What the weather would do to the next request of that kind.
    pub fn weathered(&mut self, weather: &Weather, kind: Kind) -> Fate {
        weather.fate(&mut Rng(self.draws[kind as usize].next()))
    }

    /// How much later the weather brings the next event.
    pub fn late_event(&mut self, weather: &Weather) -> u64 {
        let mut rng = Rng(self.draws[EVENTS].next());
        if rng.permille(weather.slow) { rng.below(weather.slowest) } else { 0 }
    }

    pub fn then(&mut self, kind: Kind, fate: Fate) -> &mut Link {
        self.next.push_back((kind, fate));
        self
    }

    /// The fate of a request that is sent now.
    pub fn fate(&mut self, kind: Kind, fresh: bool) -> Fate {
        if self.cut {
            return Fate::LOST;
        }
        if self.stranded {
            if !fresh {
                return Fate::LOST;
            }
            self.stranded = false;
        }
        if let Some(at) = self.next.iter().position(|(of, _)| *of == kind) {
            return self.next.remove(at).expect("just found").1;
        }
        match kind {
            Kind::Get => self.get,
            Kind::Put => self.put,
            Kind::Watch => self.watch,
        }
    }
}

/// How bad a seed makes the network; chances in permille.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weather {
    pub lost: u64,
    pub unheard: u64,
    pub reset: u64,
    pub refused: u64,
    pub slow: u64,
    /// The longest that a slow message takes, nanoseconds.
    pub slowest: u64,
}

impl Weather {
    pub const CALM: Weather =
        Weather { lost: 0, unheard: 0, reset: 0, refused: 0, slow: 0, slowest: 0 };

    /// Each fault is there or not: swarm testing.
    pub fn draw(rng: &mut Rng) -> Weather {
        let mut chance = |most: u64| if rng.permille(500) { rng.between(1, most) } else { 0 };
        let (lost, unheard, reset) = (chance(200), chance(200), chance(150));
        let (refused, slow) = (chance(150), chance(300));
        Weather { lost, unheard, reset, refused, slow, slowest: rng.between(1, 20) * SECOND }
    }

    pub fn fate(&self, rng: &mut Rng) -> Fate {
        let there = self.delay(rng);
        let back = self.delay(rng);
        let draw = rng.below(1_000);
        let edges = [self.lost, self.unheard, self.reset, self.refused];
        let mut edge = 0;
        let hit = edges.iter().position(|chance| {
            edge += chance;
            draw < edge
        });
        match hit {
            Some(0) => Fate::LOST,
            Some(1) => Fate { there: Some(there), refused: None, back: Back::Lost },
            Some(2) => {
                let lands = rng.permille(500).then_some(there);
                Fate { there: lands, refused: None, back: Back::Reset(back) }
            }
            Some(_) => {
                let status = [403, 404, 429, 500, 503][rng.below(5) as usize];
                let retry_after = rng.permille(400).then(|| rng.below(60));
                let refused = Fate::refused(status, retry_after).refused;
                Fate { there: Some(there), refused, back: Back::After(back) }
            }
            None => Fate::ok(there, back),
        }
    }

    fn delay(&self, rng: &mut Rng) -> u64 {
        if rng.permille(self.slow) { rng.below(self.slowest) } else { rng.between(1, 20) * MS }
    }
}
