//! The sidecar's main job on the real thing: `tenure sidecar` processes with tokens of the TokenRequest
//! API and the shipped Role, on a real kube-apiserver and etcd, beside a client-go elector on the same
//! Lease, while apps read them over localhost.
//!
//! What is asserted is the order of events, counts of requests, and bounds of a second and more.

#![allow(unreachable_pub, reason = "modules of a test binary, not a library")]

#[path = "real/bed.rs"]
mod bed;
mod cluster;
#[path = "real/deletions.rs"]
mod deletions;
#[path = "real/electing.rs"]
mod electing;
#[path = "real/identity.rs"]
mod identity;
#[path = "real/judge.rs"]
mod judge;
#[path = "real/leaving.rs"]
mod leaving;
#[path = "real/measure.rs"]
mod measure;
#[path = "real/netns.rs"]
mod netns;
#[path = "real/outages.rs"]
mod outages;
#[path = "real/rights.rs"]
mod rights;
#[path = "real/rounds.rs"]
mod rounds;
