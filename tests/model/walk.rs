//! Random walks that do not spend all their faults at the start.

use stateright::Chooser;

use super::steps::Step;
use super::world::{Variant, World};

/// Chooses among what happens anyway, most of the time.
#[derive(Clone, Debug)]
pub(crate) struct MostlyUsual;

/// In how many of a hundred steps something unusual may happen.
const UNUSUAL_PERCENT: u64 = 12;

impl Chooser<Variant> for MostlyUsual {
    type State = Random;

    fn new_state(&self, seed: u64) -> Random {
        Random(seed)
    }

    fn choose_initial_state(&self, _: &mut Random, _: &[World]) -> usize {
        0
    }

    fn choose_action(&self, random: &mut Random, _: &World, steps: &[Step]) -> usize {
        let usual: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].is_usual()).collect();
        if usual.is_empty() || random.below(100) < UNUSUAL_PERCENT {
            random.below(steps.len() as u64) as usize
        } else {
            usual[random.below(usual.len() as u64) as usize]
        }
    }
}

/// SplitMix64: the same walk for the same seed, on every version of everything.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
