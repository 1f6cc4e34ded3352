//! The hand of the test: edits past every rule, and the store as a whole.

use std::sync::Arc;

use serde_json::{Value, json};

use super::store::{Key, Snapshot, Version};
use super::watch::WatchCommand;
use super::{LeaseApi, Stamp, State};

/// The name that edits of the test have in histories.
const RUDE: &str = "rude";

/// What becomes of the open watches when the store is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenWatches {
    /// Their streams end.
    Close,
    /// Their connections break.
    Reset,
    /// They stay open and deliver nothing ever again.
    Silent,
}

/// Edits by "somebody else": no validation, no compare-and-swap; every one is a commit.
impl LeaseApi {
    fn rude<T>(&self, edit: impl FnOnce(&mut State, &Stamp) -> T) -> T {
        self.shared.change(|state| {
            let stamp = state.stamp(RUDE);
            edit(state, &stamp)
        })
    }

    /// The object as stored.
    #[must_use]
    pub fn lease(&self, namespace: &str, name: &str) -> Option<Value> {
        self.shared.lock().store.get(&Key::new(namespace, name)).map(|o| Value::clone(&o))
    }

    /// Changes the stored object in whatever way. The server sets the new resourceVersion.
    /// Returns it, or none where there is no such object.
    pub fn edit(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Option<u64> {
        let key = Key::new(namespace, name);
        self.rude(|state, stamp| {
            let mut object = Value::clone(&*state.store.get(&key)?);
            change(&mut object);
            state.store.force(stamp, &key, Some(object)).rv
        })
    }

    /// Makes an object (with a new uid), also in the place of one that is there, which is deleted
    /// first. Returns its resourceVersion.
    pub fn recreate(&self, namespace: &str, name: &str, spec: Value) -> Option<u64> {
        let key = Key::new(namespace, name);
        self.rude(|state, stamp| {
            state.store.force(stamp, &key, None);
            let object = state.store.blank(stamp, &key, spec);
            state.store.force(stamp, &key, Some(object)).rv
        })
    }

    /// Deletes an object. Returns the deletion's resourceVersion, none where there was no such object.
    pub fn delete(&self, namespace: &str, name: &str) -> Option<u64> {
        self.rude(|state, stamp| state.store.force(stamp, &Key::new(namespace, name), None).rv)
    }

    /// Empties the holder as client-go's release does: holderIdentity "", leaseDurationSeconds 1.
    pub fn blank_holder(&self, namespace: &str, name: &str) -> Option<u64> {
        self.edit(namespace, name, |lease| {
            lease["spec"]["holderIdentity"] = "".into();
            lease["spec"]["leaseDurationSeconds"] = 1.into();
        })
    }

    /// Sets an annotation, or removes it.
    pub fn annotate(
        &self,
        namespace: &str,
        name: &str,
        annotation: &str,
        value: Option<&str>,
    ) -> Option<u64> {
        self.edit(namespace, name, |lease| {
            let metadata = &mut lease["metadata"];
            if !metadata["annotations"].is_object() {
                metadata["annotations"] = json!({});
            }
            match (value, metadata["annotations"].as_object_mut()) {
                (Some(value), _) => metadata["annotations"][annotation] = value.into(),
                (None, Some(annotations)) => drop(annotations.remove(annotation)),
                (None, None) => {}
            }
        })
    }

    /// The resourceVersion counter.
    #[must_use]
    pub fn rv(&self) -> u64 {
        self.shared.lock().store.rv()
    }

    /// Lets the counter jump forward, as writes to other objects do.
    pub fn raise_rv(&self, rv: u64) {
        self.shared.change(|state| state.store.raise_rv(rv));
    }

    /// Forgets the history up to this resourceVersion: a watch from before it gets 410.
    pub fn compact(&self, rv: u64) {
        self.shared.change(|state| state.store.compact(rv));
    }

    /// The store as it is now, to be put back later.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.lock().store.snapshot()
    }

    /// Puts the whole store back, its resourceVersion counter too.
    pub fn restore(&self, snapshot: &Snapshot, watches: OpenWatches) {
        let command = match watches {
            OpenWatches::Close => WatchCommand::Close,
            OpenWatches::Reset => WatchCommand::Reset,
            OpenWatches::Silent => WatchCommand::Silent,
        };
        self.rude(|state, stamp| {
            state.watches.command(None, command);
            state.store.restore(stamp, snapshot);
        });
    }

    /// Every commit kept, in commit order, and how many older ones were dropped.
    #[must_use]
    pub fn versions(&self) -> (Vec<Arc<Version>>, u64) {
        self.shared.lock().store.versions()
    }

    /// The commits of one object, in commit order.
    #[must_use]
    pub fn versions_of(&self, namespace: &str, name: &str) -> Vec<Arc<Version>> {
        self.shared.lock().store.versions_of(&Key::new(namespace, name))
    }
}
