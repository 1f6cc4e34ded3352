//! One Lease in a store with the real semantics: one version counter, compare-and-swap on uid and
//! version, PUT creates, a PUT that changes nothing is none.

use std::sync::Arc;

use tenure::core::{Record, Released, Stamp, Version, Write};

/// One version of the Lease, with a field that tenure knows nothing of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    pub record: Record,
    pub label: u32,
}

pub type Base = Arc<Object>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Put(Base),
    Deleted { uid: Arc<str>, version: u128 },
}

impl Change {
    pub fn version(&self) -> u128 {
        match self {
            Change::Put(object) => version_of(object),
            Change::Deleted { version, .. } => *version,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutError {
    /// 409
    Conflict,
    /// 422: it exists, and no version was sent.
    Invalid,
}

#[derive(Debug)]
pub struct Put {
    pub created: bool,
    /// False: nothing differed, nothing was written.
    pub changed: bool,
    pub object: Base,
}

/// What a PUT is conditioned on.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    pub version: Option<u128>,
    pub uid: Option<Arc<str>>,
    /// Mutant: whatever version there is.
    pub any_version: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    counter: u128,
    uids: u32,
    pub object: Option<Base>,
    /// All changes since the store was made, for watches.
    pub log: Vec<Change>,
    /// Watches cannot begin before this version.
    pub compacted: u128,
}

pub fn version_of(object: &Object) -> u128 {
    object.record.version.expect("the store's own versions have an order").number()
}

pub fn empty_record() -> Record {
    Record {
        uid: "".into(),
        version: None,
        holder: None,
        duration: None,
        acquire_time: None,
        renew_time: None,
        transitions: None,
        epoch: None,
        incarnation: None,
        annotated_transitions: None,
        released: None,
        coordinated: false,
        bad_annotations: 0,
    }
}

/// The object a write makes of its base: all that it does not name survives.
pub fn apply(write: &Write<Base>) -> Object {
    let fresh = || Object { record: empty_record(), label: 0 };
    let mut object = write.base.as_ref().map_or_else(fresh, |base| (**base).clone());
    let record = &mut object.record;
    record.holder = Some(write.holder.clone()).filter(|holder| !holder.is_empty());
    record.duration = Some(write.duration);
    record.renew_time = Some(Stamp::At(write.renew_time));
    if let Some(at) = write.acquire_time {
        record.acquire_time = Some(Stamp::At(at));
    }
    if let Some(transitions) = write.transitions {
        record.transitions = Some(transitions);
        record.annotated_transitions = Some(transitions);
    }
    record.epoch = write.epoch.or(record.epoch);
    record.incarnation = write.incarnation.clone().or(record.incarnation.take());
    match write.released {
        Released::Keep => {}
        Released::Remove => record.released = None,
        Released::Set(epoch) => record.released = Some(epoch),
    }
    object
}

impl Store {
    pub fn new() -> Store {
        Store { counter: 100, uids: 0, object: None, log: Vec::new(), compacted: 0 }
    }

    pub fn version(&self) -> u128 {
        self.counter
    }

    fn next(&mut self) -> Version {
        self.counter += 1;
        Version::new(self.counter)
    }

    /// Other objects are written too.
    pub fn skip(&mut self, versions: u128) {
        self.counter += versions;
    }

    /// The order of the checks is the real store's: uid, existence, version.
    pub fn put(&mut self, mut body: Object, condition: &Condition) -> Result<Put, PutError> {
        let current = self.object.clone();
        let uid = current.as_ref().map(|object| object.record.uid.clone());
        if condition.uid.is_some() && condition.uid != uid {
            return Err(PutError::Conflict);
        }
        let Some(current) = current else {
            self.uids += 1;
            body.record.uid = format!("u{}", self.uids).into();
            return Ok(Put { created: true, changed: true, object: self.store(body) });
        };
        if !condition.any_version {
            match condition.version {
                None => return Err(PutError::Invalid),
                Some(version) if version != version_of(&current) => return Err(PutError::Conflict),
                Some(_) => {}
            }
        }
        body.record.uid = current.record.uid.clone();
        body.record.version = current.record.version;
        if body == *current {
            return Ok(Put { created: false, changed: false, object: current });
        }
        Ok(Put { created: false, changed: true, object: self.store(body) })
    }

    fn store(&mut self, mut body: Object) -> Base {
        body.record.version = Some(self.next());
        let object = Arc::new(body);
        self.log.push(Change::Put(object.clone()));
        self.object = Some(object.clone());
        object
    }

    /// Whoever has the rights can edit.
    pub fn edit(&mut self, edit: impl FnOnce(&mut Object)) {
        if let Some(current) = self.object.clone() {
            let mut body = (*current).clone();
            edit(&mut body);
            self.store(body);
        }
    }

    pub fn delete(&mut self) {
        if let Some(gone) = self.object.take() {
            let version = self.next().number();
            self.log.push(Change::Deleted { uid: gone.record.uid.clone(), version });
        }
    }

    /// Makes a Lease as a person or a chart would: empty.
    pub fn create_empty(&mut self) {
        let body = Object { record: empty_record(), label: 7 };
        let _ = self.put(body, &Condition::default());
    }

    /// Goes back to an older state of itself.
    pub fn restore(&mut self, old: Store) {
        *self = old;
    }
}
