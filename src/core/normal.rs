//! For the model checker: makes candidates equal that will act alike. Not part of a release.

use super::*;

impl<B: Clone> Elector<B> {
    /// Forgets what nothing is decided by, and numbers the requests anew, in their order. Returns
    /// the old names: that at index i is now `RequestId(i + 1)`; all others are of no interest.
    #[doc(hidden)]
    pub fn normalize(&mut self) -> Vec<RequestId> {
        self.version = 0;
        self.renewals = 0;
        self.trying_since = None;
        self.last_release = None;
        self.reason = Reason::Started;
        let past = self.handled;
        for at in [&mut self.writes.pace.next_at, &mut self.read_pace.next_at] {
            *at = past.max(*at);
        }
        if self.watch.id.is_none() {
            self.watch.next_at = past.max(self.watch.next_at);
        }
        // Only polls are paced by it, one lease duration later.
        let span = self.options.timing.lease_duration();
        let horizon = Mono::from_nanos(past.since(Mono::ZERO + span).as_nanos() as u64);
        self.last_read = horizon.max(self.last_read);
        self.rename()
    }

    fn rename(&mut self) -> Vec<RequestId> {
        let writes = self.writes.list.iter().map(|attempt| attempt.id);
        let reads = self.reads.iter().map(|read| read.id);
        let mut old: Vec<RequestId> = writes.chain(reads).chain(self.watch.id).collect();
        old.sort();
        let name = |id: RequestId| {
            let at = old.binary_search(&id).ok();
            at.map(|at| RequestId(at as u64 + 1))
        };
        let known = |id: &mut RequestId| *id = name(*id).unwrap_or(*id);
        self.writes.list.iter_mut().for_each(|attempt| known(&mut attempt.id));
        self.reads.iter_mut().for_each(|read| known(&mut read.id));
        self.watch.id = self.watch.id.and_then(name);
        for pace in [&mut self.writes.pace, &mut self.read_pace] {
            pace.last = pace.last.and_then(name);
        }
        self.last_id = old.len() as u64;
        old
    }
}
