//! tenure: leader election for any application, as a sidecar.
pub mod timing;
