//! What was asked, by whom, when, and how it ended.

use std::collections::VecDeque;

use serde_json::Value;
use tokio::time::Instant;

use super::fault::Verb;

/// One request as the server saw it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Number in the order of arrival.
    pub seq: u64,
    /// When it arrived (tokio's clock).
    pub at: Instant,
    /// Who asked.
    pub caller: String,
    /// What kind of request.
    pub verb: Verb,
    /// Namespace of the object; empty where there is none.
    pub namespace: String,
    /// Name of the object; empty where there is none.
    pub name: String,
    /// The query string as sent.
    pub query: String,
    /// The HTTP status answered; none as long as nothing was.
    pub status: Option<u16>,
    /// When it was answered.
    pub answered_at: Option<Instant>,
    /// The resourceVersion of what it committed, also where the answer was lost.
    pub committed_rv: Option<u64>,
    /// When that was committed.
    pub committed_at: Option<Instant>,
    /// The body in one line: holder, times, transitions, epoch and base resourceVersion of a Lease.
    pub summary: String,
}

#[derive(Debug)]
pub(super) struct RequestLog {
    entries: VecDeque<Request>,
    next_seq: u64,
    limit: usize,
}

impl RequestLog {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), next_seq: 0, limit }
    }

    /// Enters a request and returns its number.
    pub(super) fn arrive(&mut self, mut request: Request) -> u64 {
        request.seq = self.next_seq;
        self.next_seq += 1;
        if self.entries.len() >= self.limit {
            self.entries.pop_front();
        }
        self.entries.push_back(request);
        self.next_seq - 1
    }

    fn entry(&mut self, seq: u64) -> Option<&mut Request> {
        let first = self.entries.front()?.seq;
        self.entries.get_mut(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    pub(super) fn committed(&mut self, seq: u64, at: Instant, rv: u64) {
        if let Some(entry) = self.entry(seq) {
            entry.committed_rv = Some(rv);
            entry.committed_at = Some(at);
        }
    }

    pub(super) fn answered(&mut self, seq: u64, at: Instant, status: u16) {
        if let Some(entry) = self.entry(seq) {
            entry.status = Some(status);
            entry.answered_at = Some(at);
        }
    }

    pub(super) fn all(&self) -> Vec<Request> {
        self.entries.iter().cloned().collect()
    }

    pub(super) fn count(&self, caller: Option<&str>, verb: Option<Verb>) -> usize {
        let wanted =
            |r: &&Request| caller.is_none_or(|c| c == r.caller) && verb.is_none_or(|v| v == r.verb);
        self.entries.iter().filter(wanted).count()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// One line that tells one body from another.
pub(super) fn summarize(body: &Value) -> String {
    if body.is_null() {
        return String::new();
    }
    let mut parts = Vec::new();
    let fields = [
        ("holder", "/spec/holderIdentity"),
        ("duration", "/spec/leaseDurationSeconds"),
        ("transitions", "/spec/leaseTransitions"),
        ("acquire", "/spec/acquireTime"),
        ("renew", "/spec/renewTime"),
        ("epoch", "/metadata/annotations/tenure.dev~1epoch"),
        ("released", "/metadata/annotations/tenure.dev~1released"),
        ("rv", "/metadata/resourceVersion"),
        ("uid", "/metadata/uid"),
        ("reason", "/reason"),
        ("verb", "/spec/resourceAttributes/verb"),
    ];
    for (label, pointer) in fields {
        if let Some(value) = body.pointer(pointer) {
            // Names in a Lease can be as long as their writer likes.
            let text: String = value.to_string().chars().take(80).collect();
            parts.push(format!("{label}={text}"));
        }
    }
    parts.join(" ")
}
