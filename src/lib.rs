//! tenure: leader election for any application, as a sidecar.
//!
//! Order of goals: **never two leaders by our clocks; never stuck; few API calls; then fast; then
//! everything else.**
//!
//! What is promised, as long as compare-and-swap on the Lease is linearizable, the store does not
//! go back, the rates of any two clocks differ by less than lease duration / renew deadline, and an
//! app stops by the deadline it was given (where one of these fails, only the epoch protects):
//!
//! - S1 At no instant do two candidates lead.
//! - S2 Epochs strictly increase in the order in which acquisitions are committed.
//! - S3 No answer is computed as leader at or after `valid_until`, whatever is stuck.
//! - S4 Once another holder is committed, no write of the old holder takes effect.
//! - S5 A release takes effect only for the incarnation and epoch that issued it, and only after
//!   its last answer that said leader.
//! - S6 A term is told of as acquired once, draining at most once, ended once, in this order.
//! - S7 No release takes effect before every grant given has lapsed, unless the app's word came
//!   after the last of them.
//! - L1 After a release a live watching standby leads within one watch delivery and one PUT.
//! - L2 After a crash a live standby leads within one lease duration of the last renewal it saw.
//! - L3 After any outage ends, somebody leads within one lease duration, with no restart.
//!
//! The map, from the bottom: [`timing`] has the three times and their inequalities; [`core`] the
//! rules, pure; [`seat`] is where a process keeps its core; [`shell`] drives it against the API
//! server; [`api`] answers the app; [`metrics`] counts; [`sidecar`] puts these together; [`config`]
//! and [`cli`] say how. [`embedded`] is a Lease API in the process, for tests, `--dev` and the demo.

pub mod api;
pub mod budget;
pub mod cli;
pub mod client;
pub mod config;
pub mod core;
pub mod demo;
pub mod embedded;
pub mod history;
pub mod identity;
pub mod metrics;
pub mod seat;
pub mod shell;
pub mod sidecar;
pub mod telemetry;
pub mod timing;
