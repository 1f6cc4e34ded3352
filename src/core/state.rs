//! The words in which a candidate says where it stands. The same everywhere: answers, streams,
//! logs, metrics, Events.

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }
    };
}

words! {
    /// Where a candidate stands.
    State {
        /// The Lease has not been read yet.
        Starting = "starting",
        /// Somebody else holds it.
        Following = "following",
        /// It is free or has run out: trying.
        Electing = "electing",
        Leading = "leading",
        /// Giving a term up: not leader any more, the Lease still ours.
        Draining = "draining",
        /// Sitting out after a release.
        CoolingDown = "cooling_down",
        /// Needs a person.
        Blocked = "blocked",
    }
}

words! {
    /// Why a candidate cannot campaign.
    Blocked {
        Forbidden = "forbidden",
        IdentityConflict = "identity_conflict",
        CoordinatedElection = "coordinated_election",
        LeaseMissing = "lease_missing",
        EpochExhausted = "epoch_exhausted",
        BadResourceVersion = "bad_resource_version",
    }
}

words! {
    /// How a term ended.
    End {
        /// The app asked for it.
        Released = "released",
        /// The last hold closed.
        AppExited = "app_exited",
        Shutdown = "shutdown",
        LostToOther = "lost_to_other",
        RenewDeadline = "renew_deadline",
        /// The Lease is gone, or is another object.
        LeaseDeleted = "lease_deleted",
    }
}

/// Why the last change happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    Started,
    HolderChanged,
    Acquired,
    /// A term has ended, or is ending, this way.
    Term(End),
    Blocked(Blocked),
}

impl Reason {
    pub const fn word(self) -> &'static str {
        match self {
            Reason::Started => "started",
            Reason::HolderChanged => "holder_changed",
            Reason::Acquired => "acquired",
            Reason::Term(end) => end.word(),
            Reason::Blocked(blocked) => blocked.word(),
        }
    }
}
