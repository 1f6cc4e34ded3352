//! What the core tells, for people: one line per change, one at the first failure of a round, one
//! when it is over. Never a line per attempt.

use std::sync::Arc;

use super::events::{Events, Kind};
use super::lease_api::failure_word;
use super::{Observer, Target};
use crate::core::{Awaits, Blocked, End, Failure, ReadOutcome, Tell, Verb};
use crate::seat::Base;

/// The most causes that are told until the Lease can be read again.
const MAX_CAUSES: usize = 8;

/// Logs, counts and reports.
#[derive(Debug)]
pub struct Teller {
    pub(crate) observer: Arc<dyn Observer>,
    events: Option<Events>,
    target: Target,
    identity: Arc<str>,
    uid: Option<Arc<str>>,
    /// Why the last write that failed did.
    why: Option<String>,
    /// Why reads have failed since the last one that did not, as told; empty: none has.
    unread: Vec<String>,
}

impl Teller {
    /// `identity` is our own name on the Lease.
    #[must_use]
    pub fn new(
        target: Target,
        identity: Arc<str>,
        observer: Arc<dyn Observer>,
        events: Option<Events>,
    ) -> Teller {
        Teller { observer, events, target, identity, uid: None, why: None, unread: Vec::new() }
    }

    /// The uid under which Events regard the Lease.
    pub(crate) fn see_uid(&mut self, uid: &Arc<str>) {
        if self.uid.as_ref() != Some(uid) {
            self.uid = Some(uid.clone());
        }
    }

    /// Says once for each cause that the Lease cannot be read, and once that it can again.
    pub(crate) fn read(&mut self, outcome: &ReadOutcome<Base>, why: Option<String>) {
        let lease = &*self.target.name;
        let ReadOutcome::Failed(failure) = outcome else {
            if !self.unread.is_empty() {
                tracing::info!(lease, "the Lease can be read again");
                self.unread.clear();
            }
            return;
        };
        let (class, status) = describe(Some(failure));
        // The same cause may come with another time or port in each attempt.
        let words = why.as_deref().unwrap_or_default().replace(|c: char| c.is_ascii_digit(), "");
        let cause = format!("{status:?} {words}");
        if self.unread.len() < MAX_CAUSES && !self.unread.contains(&cause) {
            tracing::warn!(class, status, error = why, lease, "the Lease cannot be read");
            self.unread.push(cause);
        }
    }

    /// Keeps why a write has failed, for the line that tells of it.
    pub(crate) fn wrote(&mut self, why: Option<String>) {
        self.why = why;
    }

    pub(crate) fn tell(&self, tell: &Tell) {
        self.observer.tell(tell);
        self.log(tell);
        if let (Some(events), Some((kind, note))) = (&self.events, self.event(tell)) {
            events.emit(kind, note, self.uid.clone());
        }
    }

    fn log(&self, tell: &Tell) {
        let (namespace, lease) = (&*self.target.namespace, &*self.target.name);
        match tell {
            Tell::Acquired { epoch, took } => tracing::info!(
                reason = "acquired",
                epoch,
                holder = &*self.identity,
                ?took,
                lease,
                "leader"
            ),
            Tell::Draining { epoch, cause, awaits, at_most } => tracing::info!(
                reason = cause.word(),
                epoch,
                waits_for = awaited(*awaits),
                ?at_most,
                lease,
                "giving leadership up: not leader any more"
            ),
            Tell::Ended { epoch, end, released } => {
                tracing::info!(reason = end.word(), epoch, released, lease, "term ended");
            }
            // Our own name: the line of the acquisition says it.
            Tell::HolderChanged { holder, .. } if *holder == self.identity => {}
            Tell::HolderChanged { holder, epoch } => {
                tracing::info!(
                    reason = "holder_changed",
                    epoch,
                    holder = &**holder,
                    lease,
                    "following"
                );
            }
            Tell::RenewFailed { failure, left } => {
                let (class, status) = describe(failure.as_ref());
                let error = failure.and(self.why.as_deref());
                tracing::warn!(class, status, error, validity_left = ?left, lease, "renewal failed");
            }
            Tell::RenewRecovered => tracing::info!(lease, "renewing again"),
            Tell::Renewed { took } => tracing::debug!(?took, lease, "renewed"),
            Tell::LeaseDeleted => tracing::warn!(namespace, lease, "the Lease was deleted"),
            Tell::StoreWentBack { from, to } => tracing::warn!(
                from = %from.number(), to = %to.number(), lease,
                "the API server's store went back: a full term is waited"
            ),
            Tell::BadAnnotations { count } => {
                tracing::warn!(count, lease, "unreadable tenure.dev annotations, read as absent");
            }
            Tell::Blocked(blocked) => {
                tracing::warn!(reason = blocked.word(), namespace, lease, "cannot campaign");
            }
            Tell::Unblocked => tracing::info!(lease, "can campaign again"),
            Tell::Denied(verb) => tracing::warn!(
                verb = rbac_verb(*verb),
                resource = "leases.coordination.k8s.io",
                namespace,
                lease,
                "forbidden: the Role does not allow it"
            ),
            Tell::WatchRestarted => tracing::debug!(lease, "watch restarted"),
        }
    }

    fn event(&self, tell: &Tell) -> Option<(Kind, String)> {
        let me = &*self.identity;
        Some(match tell {
            Tell::Acquired { epoch, .. } => {
                (Kind::LeaderElected, format!("{me} leads with epoch {epoch}"))
            }
            Tell::Ended { epoch, end, released } => match end {
                End::Released | End::AppExited | End::Shutdown => {
                    let how = if *released { "released" } else { "left to run out" };
                    let end = end.word();
                    (
                        Kind::LeaderReleased,
                        format!("{me} leads no more ({end}): epoch {epoch} {how}"),
                    )
                }
                End::LostToOther | End::RenewDeadline | End::LeaseDeleted => {
                    let end = end.word();
                    (Kind::LeaderLost, format!("{me} lost epoch {epoch} ({end})"))
                }
            },
            Tell::LeaseDeleted => (Kind::LeaseDeleted, format!("seen by {me}")),
            Tell::Blocked(Blocked::IdentityConflict) => {
                (Kind::IdentityConflict, format!("another process holds the Lease as {me}"))
            }
            Tell::StoreWentBack { from, to } => {
                let (from, to) = (from.number(), to.number());
                (Kind::StoreWentBack, format!("from resourceVersion {from} to {to}, seen by {me}"))
            }
            _ => return None,
        })
    }
}

fn describe(failure: Option<&Failure>) -> (&'static str, Option<u16>) {
    // None: no answer yet.
    failure.map_or(("unknown", None), |failure| (failure_word(failure), failure.status))
}

const fn awaited(awaits: Awaits) -> &'static str {
    match awaits {
        Awaits::Nothing => "nothing: the app's work has stopped",
        Awaits::Word => "the app's word",
        Awaits::Grants => "the app's word, or the end of what it was granted",
    }
}

/// The verb a Role must allow.
const fn rbac_verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::Put => "update",
        Verb::Watch => "watch",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Rules;
    use crate::shell::NoObserver;

    #[test]
    fn each_cause_that_the_lease_cannot_be_read_is_told_once() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let lines = Arc::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_writer(lines).finish();
        let _here = tracing::subscriber::set_default(subscriber);
        let target = Target { namespace: "n".into(), name: "l".into(), rules: Rules::default() };
        let mut teller = Teller::new(target, "me".into(), Arc::new(NoObserver), None);
        let mut told = |outcome: &ReadOutcome<Base>, why: &str| {
            teller.read(outcome, Some(why.into()));
            std::fs::read_to_string(log.path()).unwrap().lines().count()
        };
        let failed = ReadOutcome::Failed(Failure::UNKNOWN);
        assert_eq!(told(&failed, "connection refused"), 1);
        assert_eq!(told(&failed, "connection refused"), 1);
        assert_eq!(told(&failed, "certificate expired at 1795000000, it is 1796000001"), 2);
        assert_eq!(told(&failed, "certificate expired at 1795000000, it is 1796000003"), 2);
        assert_eq!(told(&failed, "connection refused"), 2, "to and fro");
        let refused = Failure { status: Some(500), ..Failure::UNKNOWN };
        assert_eq!(told(&ReadOutcome::Failed(refused), "connection refused"), 3);
        for letter in 'a'..='z' {
            assert!(told(&failed, &letter.to_string()) <= MAX_CAUSES);
        }
        let again = MAX_CAUSES + 1;
        assert_eq!(told(&ReadOutcome::Absent, ""), again);
        assert_eq!(told(&ReadOutcome::Absent, ""), again);
        assert_eq!(told(&failed, "connection refused"), again + 1);
    }
}
