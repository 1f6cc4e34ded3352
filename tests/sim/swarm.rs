//! A swarm of faults, chosen by a seed.

use super::world::World;

pub struct Swarm {}

impl World {
    pub fn swarm_step(&mut self) {}
}
