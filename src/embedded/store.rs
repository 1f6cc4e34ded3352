//! The objects: compare-and-swap, one resourceVersion over all of them, and their history.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::lease_type::{KeepFields, decode_lease, validate_lease};
use super::patch::Patch;
use super::status::{self, Outcome};
use super::{Limits, Stamp};

/// Namespace and name of one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// What a commit did to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The object is new.
    Added,
    /// The object was there before.
    Modified,
    /// The object is gone; the version shows it as it last was, with the deletion's resourceVersion.
    Deleted,
    /// The whole store was put back to `rv`; the version names no object.
    Restored,
}

impl Change {
    pub(super) fn event_type(self) -> &'static str {
        match self {
            Change::Added => "ADDED",
            Change::Modified | Change::Restored => "MODIFIED",
            Change::Deleted => "DELETED",
        }
    }
}

/// One committed change, in commit order: what a checker of histories reads.
#[derive(Debug, Clone)]
pub struct Version {
    /// Number in commit order; never goes back, not even by a restore.
    pub seq: u64,
    /// When it was committed (tokio's clock).
    pub at: Instant,
    /// The resourceVersion given to it.
    pub rv: u64,
    /// What happened.
    pub change: Change,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Who committed it; `rude` for edits made by the test itself.
    pub caller: String,
    /// The whole object as committed.
    pub object: Arc<Value>,
}

impl Version {
    fn is_of(&self, key: &Key) -> bool {
        self.namespace == key.namespace && self.name == key.name
    }
}

/// The whole store at one moment, to be put back later.
#[derive(Debug, Clone)]
pub struct Snapshot {
    objects: BTreeMap<Key, Arc<Value>>,
    rv: u64,
    recent: VecDeque<Arc<Version>>,
    compacted: u64,
    recent_from: u64,
}

impl Snapshot {
    /// The resourceVersion counter at that moment.
    #[must_use]
    pub fn rv(&self) -> u64 {
        self.rv
    }
}

/// The answer to a write.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) object: Arc<Value>,
    /// The object did not exist before.
    pub(super) created: bool,
    /// The resourceVersion of the commit; none where nothing changed.
    pub(super) rv: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Store {
    objects: BTreeMap<Key, Arc<Value>>,
    rv: u64,
    uids: u64,
    /// The present timeline since `compacted`: what watches are served from.
    recent: VecDeque<Arc<Version>>,
    compacted: u64,
    /// The lowest number that `recent` is sure to hold.
    recent_from: u64,
    /// Every commit, also of timelines that a restore gave up.
    versions: VecDeque<Arc<Version>>,
    versions_dropped: u64,
    next_seq: u64,
    limits: Limits,
    pub(super) keep: KeepFields,
}

impl Store {
    pub(super) fn new(first_rv: u64, limits: Limits) -> Self {
        Self {
            objects: BTreeMap::new(),
            rv: first_rv,
            uids: 0,
            recent: VecDeque::new(),
            compacted: first_rv,
            recent_from: 0,
            versions: VecDeque::new(),
            versions_dropped: 0,
            next_seq: 0,
            limits,
            keep: KeepFields::default(),
        }
    }

    pub(super) fn rv(&self) -> u64 {
        self.rv
    }

    /// Lets the counter jump forward, as other objects' writes do.
    pub(super) fn raise_rv(&mut self, rv: u64) {
        self.rv = self.rv.max(rv);
    }

    /// Takes the next resourceVersion.
    pub(super) fn bump(&mut self) -> u64 {
        self.rv += 1;
        self.rv
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(key).cloned()
    }

    /// The objects of one namespace (or of all), of one name (or of all).
    pub(super) fn list(&self, namespace: Option<&str>, name: Option<&str>) -> Vec<Arc<Value>> {
        let wanted = |key: &Key| {
            namespace.is_none_or(|n| n == key.namespace) && name.is_none_or(|n| n == key.name)
        };
        self.objects.iter().filter(|(key, _)| wanted(key)).map(|(_, o)| o.clone()).collect()
    }

    /// The object as it was at `rv`, out of the history.
    pub(super) fn get_as_of(&self, key: &Key, rv: u64) -> Option<Arc<Value>> {
        let last = self.versions.iter().rev().find(|v| v.is_of(key) && v.rv <= rv)?;
        (last.change != Change::Deleted).then(|| last.object.clone())
    }

    pub(super) fn create(&mut self, by: &Stamp, key: &Key, body: Value) -> Outcome<Written> {
        let lease = decode_lease(body, self.keep)?;
        if lease["metadata"].get("resourceVersion").is_some() {
            return Err(status::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        validate_lease(&key.name, &lease)?;
        if self.objects.contains_key(key) {
            return Err(status::already_exists(&key.name));
        }
        self.insert_new(by, key, lease)
    }

    /// PUT: the real store's order of checks is uid, existence, version, rules.
    pub(super) fn update(
        &mut self,
        by: &Stamp,
        key: &Key,
        body: Value,
        may_create: bool,
    ) -> Outcome<Written> {
        let lease = decode_lease(body, self.keep)?;
        let stored = self.get(key);
        if let Some(sent) = lease["metadata"]["resourceVersion"].as_str()
            && sent.parse::<u64>().is_err()
        {
            return Err(status::internal(format!("invalid resource version \"{sent}\"")));
        }
        if let Some(sent) = lease["metadata"]["uid"].as_str() {
            let uid = stored.as_ref().map_or("", |o| o["metadata"]["uid"].as_str().unwrap_or(""));
            if sent != uid {
                return Err(status::uid_conflict(&key.namespace, &key.name, sent, uid));
            }
        }
        let Some(stored) = stored else {
            if !may_create {
                return Err(status::not_found(&key.name));
            }
            validate_lease(&key.name, &lease)?;
            return self.insert_new(by, key, lease);
        };
        match lease["metadata"]["resourceVersion"].as_str() {
            None | Some("0") => return Err(status::version_required(&key.name)),
            Some(sent) if Some(sent) != stored["metadata"]["resourceVersion"].as_str() => {
                return Err(status::conflict(&key.name));
            }
            Some(_) => {}
        }
        self.replace(by, key, &stored, lease)
    }

    /// Applies a patch to the stored object; a resourceVersion in the patch is a condition.
    pub(super) fn patch(&mut self, by: &Stamp, key: &Key, patch: &Patch) -> Outcome<Written> {
        let Some(stored) = self.get(key) else {
            return Err(status::not_found(&key.name));
        };
        let mut patched = Value::clone(&stored);
        patch.apply(&mut patched)?;
        self.update(by, key, patched, false)
    }

    fn replace(
        &mut self,
        by: &Stamp,
        key: &Key,
        stored: &Value,
        mut lease: Value,
    ) -> Outcome<Written> {
        validate_lease(&key.name, &lease)?;
        let server_set = [
            "namespace",
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ];
        for field in server_set {
            copy_field(stored, &mut lease, field);
        }
        if lease == *stored {
            return Ok(Written { object: Arc::new(lease), created: false, rv: None });
        }
        let metadata = &lease["metadata"];
        let finalizers_left = metadata["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        if metadata["deletionTimestamp"].is_string() && !finalizers_left {
            return Ok(self.commit(by, key, Change::Deleted, lease));
        }
        self.check_room(key)?;
        Ok(self.commit(by, key, Change::Modified, lease))
    }

    fn insert_new(&mut self, by: &Stamp, key: &Key, mut lease: Value) -> Outcome<Written> {
        self.check_room(key)?;
        self.uids += 1;
        let metadata = &mut lease["metadata"];
        metadata["name"] = key.name.clone().into();
        metadata["namespace"] = key.namespace.clone().into();
        metadata["uid"] = uid(self.uids).into();
        metadata["creationTimestamp"] = by.wall.clone().into();
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("deletionTimestamp");
            metadata.remove("deletionGracePeriodSeconds");
        }
        Ok(self.commit(by, key, Change::Added, lease))
    }

    fn check_room(&self, key: &Key) -> Outcome<()> {
        if self.objects.len() >= self.limits.objects && !self.objects.contains_key(key) {
            return Err(status::internal("the embedded API holds no more objects"));
        }
        Ok(())
    }

    /// DELETE with optional preconditions. Finalizers keep the object, marked, until they go.
    pub(super) fn delete(&mut self, by: &Stamp, key: &Key, options: &Value) -> Outcome<Written> {
        let Some(stored) = self.get(key) else {
            return Err(status::not_found(&key.name));
        };
        let metadata = &stored["metadata"];
        for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let stored_value = metadata[field].as_str().unwrap_or_default();
            if let Some(sent) = options["preconditions"][field].as_str()
                && sent != stored_value
            {
                return Err(status::delete_conflict(&key.name, label, sent, stored_value));
            }
        }
        let mut object = Value::clone(&stored);
        if metadata["finalizers"].as_array().is_none_or(Vec::is_empty) {
            return Ok(self.commit(by, key, Change::Deleted, object));
        }
        if metadata["deletionTimestamp"].is_string() {
            return Ok(Written { object: stored, created: false, rv: None });
        }
        object["metadata"]["deletionTimestamp"] = by.wall.clone().into();
        object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        Ok(self.commit(by, key, Change::Modified, object))
    }

    /// Stores whatever it is given, without any check: the hand of a test.
    pub(super) fn force(&mut self, by: &Stamp, key: &Key, object: Option<Value>) -> Written {
        match (object, self.get(key)) {
            (Some(object), Some(_)) => self.commit(by, key, Change::Modified, object),
            (Some(object), None) => self.commit(by, key, Change::Added, object),
            (None, Some(stored)) => self.commit(by, key, Change::Deleted, Value::clone(&stored)),
            (None, None) => Written { object: Arc::new(Value::Null), created: false, rv: None },
        }
    }

    /// A Lease as the server would make it, with the next uid, for `force`.
    pub(super) fn blank(&mut self, by: &Stamp, key: &Key, spec: Value) -> Value {
        self.uids += 1;
        json!({
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
            "metadata": {
                "name": key.name, "namespace": key.namespace, "uid": uid(self.uids),
                "creationTimestamp": by.wall,
            },
            "spec": spec,
        })
    }

    fn commit(&mut self, by: &Stamp, key: &Key, change: Change, mut object: Value) -> Written {
        let rv = self.bump();
        if object["metadata"].is_object() {
            object["metadata"]["resourceVersion"] = rv.to_string().into();
        }
        let object = Arc::new(object);
        if change == Change::Deleted {
            self.objects.remove(key);
        } else {
            self.objects.insert(key.clone(), object.clone());
        }
        let version = self.record(by, key, change, rv, object.clone());
        self.recent.push_back(version);
        if self.recent.len() > self.limits.watch_history {
            let gone = self.recent[self.recent.len() - 1 - self.limits.watch_history].rv;
            self.compact(gone);
        }
        Written { object, created: change == Change::Added, rv: Some(rv) }
    }

    fn record(
        &mut self,
        by: &Stamp,
        key: &Key,
        change: Change,
        rv: u64,
        object: Arc<Value>,
    ) -> Arc<Version> {
        let version = Arc::new(Version {
            seq: self.next_seq,
            at: by.at,
            rv,
            change,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            caller: by.caller.clone(),
            object,
        });
        self.next_seq += 1;
        self.versions.push_back(version.clone());
        if self.versions.len() > self.limits.versions {
            self.versions.pop_front();
            self.versions_dropped += 1;
        }
        version
    }

    /// All commits kept, oldest first, and how many older ones were dropped.
    pub(super) fn versions(&self) -> (Vec<Arc<Version>>, u64) {
        (self.versions.iter().cloned().collect(), self.versions_dropped)
    }

    pub(super) fn versions_of(&self, key: &Key) -> Vec<Arc<Version>> {
        self.versions.iter().filter(|v| v.is_of(key)).cloned().collect()
    }

    /// The number the next commit will have.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Forgets the watch history up to `rv` (at most up to now).
    pub(super) fn compact(&mut self, rv: u64) {
        self.compacted = self.compacted.max(rv.min(self.rv));
        while let Some(gone) = self.recent.pop_front_if(|v| v.rv <= self.compacted) {
            self.recent_from = gone.seq + 1;
        }
    }

    /// The commits after `rv`.
    ///
    /// # Errors
    /// 410 where they are forgotten.
    pub(super) fn changes_after(&self, rv: u64) -> Outcome<impl Iterator<Item = &Arc<Version>>> {
        if rv < self.compacted {
            return Err(status::expired(rv, self.compacted));
        }
        Ok(self.recent.iter().filter(move |v| v.rv > rv))
    }

    /// The first commit with a number of at least `seq`; an error where some were forgotten.
    pub(super) fn change_from(&self, seq: u64) -> Outcome<Option<Arc<Version>>> {
        if seq < self.recent_from {
            return Err(status::expired(self.compacted.saturating_sub(1), self.compacted));
        }
        let index = self.recent.partition_point(|v| v.seq < seq);
        Ok(self.recent.get(index).cloned())
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            objects: self.objects.clone(),
            rv: self.rv,
            recent: self.recent.clone(),
            compacted: self.compacted,
            recent_from: self.recent_from,
        }
    }

    pub(super) fn restore(&mut self, by: &Stamp, snapshot: &Snapshot) {
        self.objects.clone_from(&snapshot.objects);
        self.rv = snapshot.rv;
        self.recent.clone_from(&snapshot.recent);
        self.compacted = snapshot.compacted;
        self.recent_from = snapshot.recent_from;
        let nothing = Key::new("", "");
        self.record(by, &nothing, Change::Restored, snapshot.rv, Arc::new(Value::Null));
    }
}

/// Deterministic, and unlike any uid a test would write by hand.
fn uid(number: u64) -> String {
    format!("7e4e0000-0000-4000-8000-{number:012x}")
}

fn copy_field(from: &Value, to: &mut Value, field: &str) {
    let Some(target) = to["metadata"].as_object_mut() else { return };
    match from["metadata"].get(field) {
        Some(value) => {
            target.insert(field.to_owned(), value.clone());
        }
        None => {
            target.remove(field);
        }
    }
}
