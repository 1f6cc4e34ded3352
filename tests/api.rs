//! The local API as its clients see it: over sockets, with the real core, each answer checked
//! against docs/openapi.yaml.

#[path = "api/answers.rs"]
mod answers;
#[path = "api/client.rs"]
mod client;
#[path = "api/holds.rs"]
mod holds;
#[path = "api/listeners.rs"]
mod listeners;
#[path = "api/probes.rs"]
mod probes;
#[path = "api/refusals.rs"]
mod refusals;
#[path = "api/site.rs"]
mod site;
#[path = "api/spec.rs"]
mod spec;
#[path = "api/streams.rs"]
mod streams;
#[path = "api/telling.rs"]
mod telling;
