//! The rules that answer one of the traces in the protocol's appendix, by their marks, and the
//! switch that turns one off to show that a test notices (feature `mutants`, never in a release).

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` switches safety rules off: it is for tests only");

macro_rules! marks {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// A rule of the protocol that can be switched off in tests.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mark { $($(#[doc = $doc])* $name,)* }

        impl Mark {
            pub const ALL: &'static [Mark] = &[$(Mark::$name),*];

            /// What goes wrong without the rule, in one line.
            pub fn text(self) -> &'static str {
                match self { $(Mark::$name => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

marks! {
    /// A missing Lease is made held by nobody, and taken one full term later.
    F1,
    /// The wait for a Lease made anew counts from the first sight of its uid.
    F2,
    /// An empty holder is free only in the uid in which the last holder was seen.
    F3,
    /// An empty holder that was not released is waited out: somebody blanked a living holder.
    F4,
    /// The wait is never shorter than our own lease duration; renewals repair the duration.
    F5,
    /// Take-over from a predecessor only where its death is known.
    F6,
    /// A read credits the send time of the write it shows, never its own or a later attempt's.
    F7,
    /// A late answer never revives a term that has ended.
    F8,
    /// Only a renewTime in a later whole second counts, since client-go sees no other.
    F9,
    /// A release names the epoch it gives up.
    F10,
    /// A store that went back is believed only after a full term.
    F11,
    /// After a take-over at start the predecessor's grants are honoured.
    F13,
    /// Until we have led or seen another holder, the predecessor's late writes change nothing.
    F20,
    /// A record with our name and a foreign incarnation is a foreign holder.
    F21,
    /// Only an object newer than any seen counts.
    F22,
    /// An acquire in flight at the end is waited for, and undone.
    F23,
    /// Retry-After is obeyed only as far as the term allows.
    F24,
    /// The next renewal is due after the send of the last, not after its answer.
    F25,
    /// Absence is a Status NotFound for this Lease; a lost creation race is no alarm.
    F26,
    /// Our own record after our term ended is acquired at once, with a new epoch.
    F28,
    /// The lease duration leaves room for clock drift over the renew deadline.
    F32,
    /// Mutant: validity counts from the send of a write, not from its answer.
    ValidityFromSend,
    /// Mutant: validity ends at the renew deadline, not at the end of the lease.
    Margin,
    /// Mutant: the epoch is our own number, not leaseTransitions.
    EpochNotTransitions,
    /// Mutant: no release before the app stopped or its grants have lapsed.
    AppFirst,
    /// Mutant: every write is a compare-and-swap on the resourceVersion.
    CompareAndSwap,
    /// Mutant: a renewTime is never compared with a clock.
    OwnClockOnly,
    /// Mutant: an answer is judged by the time it is computed at.
    ValidityNotBoolean,
    /// Mutant: every write names the uid.
    UidSent,
    /// Mutant: a record is ours by incarnation, not by name alone.
    Incarnation,
}

/// All rules are on, but for those a test has switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    #[cfg(feature = "mutants")]
    off: u64,
}

impl Rules {
    #[cfg(feature = "mutants")]
    pub fn without(mark: Mark) -> Rules {
        Rules { off: 1 << mark as u64 }
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn on(self, mark: Mark) -> bool {
        self.off & (1 << mark as u64) == 0
    }

    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub(crate) const fn on(self, _: Mark) -> bool {
        true
    }
}
