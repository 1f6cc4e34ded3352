//! What can happen to a candidate, and what it can ask for.

use std::sync::Arc;
use std::time::Duration;

use super::lease::{Observed, Version, Write};
use super::state::{Blocked, End};

/// Names a request, so that its answer finds the attempt it belongs to. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event<B> {
    /// The time of `poll_timeout` has come.
    Timeout,
    Read {
        id: RequestId,
        outcome: ReadOutcome<B>,
    },
    Write {
        id: RequestId,
        outcome: WriteOutcome<B>,
    },
    Watch {
        id: RequestId,
        event: WatchEvent<B>,
    },
    /// The access self-check has an answer: is a verb that we need denied?
    Access {
        denied: bool,
    },
    HoldOpened,
    /// A hold has ended. Only its closing by the peer, in a term, is the app's word.
    HoldClosed {
        by_peer: bool,
    },
    /// `POST /release`: the guarded work has stopped.
    AppStopped(AppStopped),
    /// SIGTERM or SIGINT: begin the ordered way out.
    Shutdown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AppStopped {
    /// The term it speaks of; None: whatever term is held now.
    pub epoch: Option<u64>,
    /// This process does not campaign again.
    pub last: bool,
    /// Instead of one retry period.
    pub cool_down: Option<Duration>,
}

/// A quorum read (a GET without resourceVersion).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReadOutcome<B> {
    Found(Observed<B>),
    /// A Status NotFound for this very Lease, nothing less [F26].
    Absent,
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WriteOutcome<B> {
    /// 200, or 201 where `created`.
    Done {
        created: bool,
        object: Observed<B>,
    },
    /// 409, and 422 to a creation: somebody was faster.
    Conflict,
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WatchEvent<B> {
    /// The server has accepted the watch.
    Opened,
    Object(Observed<B>),
    /// Deleted: the uid it had, and the version of the deletion.
    Deleted {
        uid: Arc<str>,
        version: Option<Version>,
    },
    Bookmark {
        version: Option<Version>,
    },
    /// The server ended it, as it does now and then.
    Closed,
    /// 410: the version it was to begin after is no longer known.
    Gone,
    Failed(Failure),
}

/// A request that brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    pub class: FailureClass,
    /// The HTTP status, where there was an answer.
    pub status: Option<u16>,
    pub retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// The server said no (4xx): nothing was changed.
    Refused,
    /// Timeout, reset, 5xx, garbage: a write may still have landed, or land later.
    Unknown,
}

impl Failure {
    pub const UNKNOWN: Failure =
        Failure { class: FailureClass::Unknown, status: None, retry_after: None };

    pub fn forbidden(self) -> bool {
        self.status == Some(403)
    }
}

/// What the core asks of its driver, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action<B> {
    /// Read the Lease from the quorum.
    Read { id: RequestId },
    /// PUT the Lease; over a fresh connection where an earlier one may be dead.
    Write { id: RequestId, write: Write<B>, fresh_connection: bool },
    /// The answer of this read or write is of no more interest: drop it and its connection. Those
    /// of others may be of no interest either by the time they come, and are then ignored; none is
    /// waited for longer than one renew deadline.
    Cancel { id: RequestId },
    /// Watch the Lease, instead of any earlier watch, for what comes after that version.
    Watch { id: RequestId, after: Option<Version> },
    /// Something to log, count, and tell people of.
    Tell(Tell),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    Put,
    Watch,
}

/// What a release waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Awaits {
    /// The app's word was given.
    Nothing,
    /// The app's word; the Lease is renewed meanwhile.
    Word,
    /// The app's word, or the end of the last grant.
    Grants,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tell {
    /// A term has begun. `took`: since this candidate last saw another's term or none.
    Acquired {
        epoch: u64,
        took: Duration,
    },
    /// Leader no more; the release waits for `awaits`, `at_most` that long.
    Draining {
        epoch: u64,
        cause: End,
        awaits: Awaits,
        at_most: Duration,
    },
    Ended {
        epoch: u64,
        end: End,
        /// Whether the Lease was given up in the API server, so that others need not wait.
        released: bool,
    },
    /// Another holder than the last one seen, ourselves included; not told of the first read.
    HolderChanged {
        holder: Arc<str>,
        epoch: Option<u64>,
    },
    /// A round of renewals has failed for the first time; `left` of the validity.
    RenewFailed {
        failure: Option<Failure>,
        left: Duration,
    },
    /// It works again.
    RenewRecovered,
    /// A write was acknowledged, this long after its send.
    Renewed {
        took: Duration,
    },
    /// The Lease is gone, or another one has its name.
    LeaseDeleted,
    StoreWentBack {
        from: Version,
        to: Version,
    },
    BadAnnotations {
        count: u8,
    },
    Blocked(Blocked),
    Unblocked,
    /// 403 where there was none before.
    Denied(Verb),
    WatchRestarted,
}
