//! A deterministic world in virtual time for the election core: one Lease store, machines with
//! clocks of their own, links that lose and delay, apps, and a client-go peer; and a checker of the
//! invariants that shares no logic with the core.

// Each test target uses a part of it.
#![allow(dead_code, unused_imports, unreachable_pub, missing_debug_implementations)]

pub mod calm;
pub mod checker;
pub mod clock;
pub mod link;
pub mod peer;
pub mod plan;
pub mod script;
pub mod serve;
pub mod show;
pub mod store;
pub mod swarm;
pub mod world;

pub use clock::{Clock, MS, Rng, SECOND};
pub use link::{Back, Fate, Kind, Link, Weather};
pub use plan::{Plan, Shrinking};
pub use world::{App, Pod, Setup, World};
