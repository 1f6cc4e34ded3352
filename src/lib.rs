//! tenure: leader election for any application, as a sidecar.

pub mod api;
pub mod budget;
pub mod cli;
pub mod client;
pub mod config;
pub mod core;
pub mod embedded;
pub mod identity;
pub mod metrics;
pub mod seat;
pub mod shell;
pub mod sidecar;
pub mod telemetry;
pub mod timing;
