//! tenure: leader election for any application, as a sidecar.
pub mod identity;
pub mod telemetry;
pub mod timing;
