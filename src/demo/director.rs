//! What happens to the leaders, in turn or as a person wants it.

use std::io;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::board::{Kind, Life, PODS};
use super::pods::{Pod, Theatre};
use super::stage::boottime;

/// How long a leader is left in peace: at least this, and at most as much again.
const PEACE: Duration = Duration::from_millis(800);
/// How long a fault goes on after somebody else leads.
const AFTERMATH: Duration = Duration::from_millis(600);
/// A write is on its way in each round of the app; this is many of them.
const NEXT_WRITE: Duration = Duration::from_secs(2);
/// What left before a freeze has reached the register after this.
const ARRIVAL: Duration = Duration::from_millis(50);
/// How often a freeze is tried that comes too late for the write.
const FREEZES: u32 = 20;

/// What a person asks for by a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command(pub(super) Kind);

#[derive(Debug)]
pub(super) struct Director {
    theatre: Theatre,
    keys: mpsc::Receiver<Command>,
    dice: Dice,
    pods: [Option<Pod>; 3],
    generation: u32,
    script: Vec<Kind>,
}

impl Director {
    pub(super) fn new(theatre: Theatre, keys: mpsc::Receiver<Command>, seed: u64) -> Self {
        let pods = [None, None, None];
        Self { theatre, keys, dice: Dice(seed), pods, generation: 0, script: Vec::new() }
    }

    /// Until dropped. Everything it started ends with it.
    pub(super) async fn run(mut self) -> io::Result<()> {
        for index in 0..self.pods.len() {
            self.start(index)?;
        }
        loop {
            let stage = self.theatre.stage.clone();
            let patience = self.theatre.timing.lease_duration() * 4 + Duration::from_secs(5);
            if stage.until_within(patience, |board| board.settled()).await.is_none() {
                stage.change(|board| board.fail("the candidates do not come to rest".into()));
            }
            let peace = PEACE + self.dice.up_to(PEACE);
            let key = tokio::time::timeout(peace, self.keys.recv()).await.ok().flatten();
            let kind = match key {
                Some(Command(kind)) => kind,
                None => self.next_of_script(),
            };
            self.perform(kind).await?;
        }
    }

    /// Each kind once, in an order of the dice, then again.
    fn next_of_script(&mut self) -> Kind {
        if self.script.is_empty() {
            self.script = Kind::ALL.into();
            for last in (1..self.script.len()).rev() {
                let other = self.dice.below(last + 1);
                self.script.swap(last, other);
            }
        }
        self.script.pop().unwrap_or(Kind::Release)
    }

    fn start(&mut self, index: usize) -> io::Result<()> {
        self.generation += 1;
        self.pods[index] = Some(Pod::start(&self.theatre, index, self.generation)?);
        Ok(())
    }

    async fn perform(&mut self, kind: Kind) -> io::Result<()> {
        let stage = self.theatre.stage.clone();
        let Some((pod, epoch)) = stage.look(|board| board.leader()) else { return Ok(()) };
        let struck = self.strike(kind, pod, epoch).await?;
        let l = self.theatre.timing.lease_duration();
        let next =
            stage.until_within(l * 3 + Duration::from_secs(5), |board| board.leader_after(epoch));
        if next.await.is_none() {
            let word = kind.word();
            stage.change(|board| board.fail(format!("nobody leads after {word} of {}", PODS[pod])));
        }
        self.undo(kind, pod, struck).await
    }

    /// Does it, and returns when.
    async fn strike(&mut self, kind: Kind, pod: usize, epoch: u64) -> io::Result<Duration> {
        let stage = self.theatre.stage.clone();
        let at = match kind {
            Kind::Release => {
                if let Some(pod) = &mut self.pods[pod] {
                    pod.tell_release().await?;
                }
                // The app itself says when it gave its word.
                return Ok(boottime());
            }
            Kind::Pause => {
                let Some(at) = self.freeze(pod, epoch).await? else { return Ok(boottime()) };
                at
            }
            Kind::CutOff => {
                self.theatre.lease_api.cut_off(PODS[pod]);
                boottime()
            }
            Kind::Kill => {
                if let Some(pod) = self.pods[pod].take() {
                    pod.kill().await?;
                }
                boottime()
            }
        };
        stage.change(|board| {
            board.strike(kind, pod, epoch, at);
            board.set_life(
                pod,
                match kind {
                    Kind::Kill => Life::Killed,
                    Kind::Pause => Life::Paused,
                    Kind::CutOff => Life::CutOff,
                    Kind::Release => Life::Running,
                },
            );
        });
        Ok(at)
    }

    /// Freezes it with a write on its way, so that it comes late. On a busy machine the write may
    /// have arrived before the freeze: then the pod goes on, and its next one is waited for.
    async fn freeze(&self, pod: usize, epoch: u64) -> io::Result<Option<Duration>> {
        let stage = &self.theatre.stage;
        let Some(frozen) = &self.pods[pod] else { return Ok(None) };
        for tries_left in (0..FREEZES).rev() {
            if stage.until_within(NEXT_WRITE, |b| b.write_is_open(pod, epoch)).await.is_none() {
                return Ok(None);
            }
            frozen.pause()?;
            let at = boottime();
            sleep(ARRIVAL).await;
            if stage.look(|b| b.write_is_open(pod, epoch)).is_some() || tries_left == 0 {
                return Ok(Some(at));
            }
            frozen.go_on()?;
        }
        Ok(None)
    }

    async fn undo(&mut self, kind: Kind, pod: usize, struck: Duration) -> io::Result<()> {
        let stage = self.theatre.stage.clone();
        let l = self.theatre.timing.lease_duration();
        match kind {
            Kind::Release => {}
            Kind::Kill => {
                sleep(AFTERMATH).await;
                self.start(pod)?;
                let text = format!("{} is there again, as a new pod", PODS[pod]);
                stage.change(|board| board.tell("started", text, json!({ "pod": PODS[pod] })));
            }
            Kind::Pause => {
                let end = struck + l + AFTERMATH;
                sleep(end.saturating_sub(boottime()).max(AFTERMATH)).await;
                let at = boottime();
                if let Some(pod) = &self.pods[pod] {
                    pod.go_on()?;
                }
                stage.change(|board| {
                    let still = super::board::ms(at.saturating_sub(struck));
                    let text = format!("{} goes on after {still} ms", PODS[pod]);
                    board.tell("resumed", text, json!({ "pod": PODS[pod], "paused_ms": still }));
                    board.set_life(pod, Life::Running);
                });
            }
            Kind::CutOff => {
                sleep(AFTERMATH).await;
                self.theatre.lease_api.heal(PODS[pod]);
                stage.change(|board| {
                    let text = format!("{} reaches the API again", PODS[pod]);
                    board.tell("healed", text, json!({ "pod": PODS[pod] }));
                    board.set_life(pod, Life::Running);
                });
            }
        }
        Ok(())
    }
}

/// SplitMix64: enough for an order of events, and the same everywhere.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_millis(self.next() % (super::board::ms(most) + 1))
    }
}
