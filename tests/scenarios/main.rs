//! The scenarios from real bug reports, in virtual time: the real core, shell and kube code on the
//! embedded Lease API with its faults. Each test carries the number of its scenario.

mod answers;
mod bed;
mod identity;
mod releasing;
mod renewing;
mod taking_over;
