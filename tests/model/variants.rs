//! What is explored: who there is, and how much may go wrong.

use tenure::core::{DrainTimeout, Mark, OnAppExit};

use super::world::{Budget, FirstLease, Variant};

/// Two candidates; the first leads, the second watches.
const TWO: Variant = Variant {
    name: "",
    words: String::new(),
    pods: 2,
    budget: Budget::NONE,
    horizon: 12,
    settled: true,
    lease: FirstLease::Empty,
    twins: false,
    drain: DrainTimeout::Auto,
    on_app_exit: OnAppExit::Release,
    without: None,
};

/// A variant by words such as `pods=3 cut=1 late=2 horizon=14 lease=missing`, to explore by hand.
pub(crate) fn parse(words: &str) -> Variant {
    let mut variant = Variant { words: words.into(), ..TWO };
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap_or((word, "1"));
        let number = || value.parse::<u8>().expect("a number");
        let left = &mut variant.budget;
        match name {
            "pods" => variant.pods = number().into(),
            "horizon" => variant.horizon = number().into(),
            "unsettled" => variant.settled = false,
            "twins" => variant.twins = true,
            "without" => {
                let named = |mark: &&Mark| format!("{mark:?}") == value;
                variant.without = Some(*Mark::ALL.iter().find(named).expect("a mark"));
            }
            "keep" => variant.on_app_exit = OnAppExit::Keep,
            "drain" => {
                let span = std::time::Duration::from_secs(number().into());
                variant.drain = DrainTimeout::Explicit(span);
            }
            "lease" if value == "missing" => variant.lease = FirstLease::Missing,
            "lease" => variant.lease = FirstLease::Peer,
            "late" => left.late = number(),
            "fail" => left.fail = number(),
            "cut" => left.cut = number(),
            "pause" => left.pause = number(),
            "stall" => left.stall = number(),
            "replay" => left.replay = number(),
            "crash" => left.crash = number(),
            "restart" => left.restart = number(),
            "delete" => left.delete = number(),
            "remake" => left.remake = number(),
            "poll" => left.poll = number(),
            "word" => left.word = number(),
            "hold" => left.hold = number(),
            "shutdown" => left.shutdown = number(),
            "peer" => left.peer = number(),
            _ => panic!("what is {word}?"),
        }
    }
    variant
}

/// What each variant is, in the words of [`parse`].
type Named = (&'static str, &'static str);

/// Exhausted within seconds each.
const SMALL: &[Named] = &[
    ("cut off, one answer late", "cut late horizon=9"),
    ("silent watch, cut off", "stall cut horizon=9"),
    ("old events, failed requests", "replay=2 fail late"),
    ("deleted, made again by hand", "delete remake horizon=9"),
    ("crash and restart", "crash restart"),
    ("restart, grants, SIGTERM", "crash restart poll shutdown horizon=6"),
    ("grants, the app's word, SIGTERM", "poll word shutdown horizon=9"),
    ("holds, explicit drain timeout", "hold poll shutdown drain=2 horizon=8"),
    ("client-go holds it", "lease=peer peer=4 horizon=9"),
    ("three candidates", "pods=3 cut horizon=9"),
    ("two with one name", "twins cut"),
    ("no Lease yet", "unsettled lease=missing late horizon=12"),
];

/// Exhausted within minutes each.
const BIG: &[Named] = &[
    ("cut off twice", "cut=2 late horizon=9"),
    ("lost and late", "cut late=2 fail horizon=9"),
    ("stuck elector", "pause late cut horizon=8"),
    ("silent watch, old events, cut off", "stall replay cut late horizon=8"),
    ("deleted while cut off", "delete cut horizon=9"),
    ("deleted, made again, cut off", "delete remake cut horizon=8"),
    ("restart while cut off", "crash restart cut horizon=10"),
    ("restart, grants, word, SIGTERM", "crash restart poll shutdown word horizon=9"),
    ("restart, holds that are kept", "hold=2 keep poll shutdown crash restart horizon=9"),
    ("drain timeout, word, grants", "poll=2 shutdown drain=3 late word"),
    ("client-go and a cut", "lease=peer peer=4 cut horizon=8"),
    ("three candidates, a late answer", "pods=3 cut late horizon=9"),
    ("three candidates, deleted", "pods=3 delete late horizon=9"),
    ("two with one name, deleted", "twins delete cut horizon=9"),
    ("no Lease yet, cut off", "unsettled lease=missing cut fail horizon=10"),
];

/// Too big to exhaust: walked at random.
const WALKED: &[Named] = &[
    (
        "everything",
        "late=4 fail=3 cut=2 pause stall=2 replay=2 crash restart delete remake \
                    poll=2 word hold shutdown horizon=30",
    ),
    (
        "everything, three candidates",
        "pods=3 late=4 fail=3 cut=2 pause stall=2 replay=2 crash=2 \
                                      restart=2 delete poll=3 word hold shutdown horizon=30",
    ),
    (
        "everything, client-go",
        "lease=peer peer=9 late=3 fail=2 cut=2 stall replay crash restart \
                               poll=2 word shutdown horizon=30",
    ),
    (
        "everything, from the start",
        "unsettled lease=missing late=4 fail=3 cut=2 crash=2 restart=2 \
                                    delete=2 poll=2 shutdown horizon=40",
    ),
];

/// The variants that the environment's `MODEL` names: `small` (also where it is unset), `big`,
/// `walked`, or the words of [`parse`].
pub(crate) fn asked_for() -> Vec<Variant> {
    let asked = std::env::var("MODEL").unwrap_or_default();
    let list = match asked.as_str() {
        "" | "small" => SMALL,
        "big" => BIG,
        "walked" => WALKED,
        words => return vec![parse(words)],
    };
    list.iter().map(|&(name, words)| Variant { name, ..parse(words) }).collect()
}

/// Rules whose absence breaks one of the model's properties, and what it takes to see it: the ten ways in
/// which elections are commonly wrong first.
const MUTANTS: &[(Mark, &str)] = &[
    (Mark::ValidityFromSend, "cut=2"),
    (Mark::Margin, "cut"),
    (Mark::F1, "cut delete"),
    (Mark::EpochNotTransitions, "delete"),
    (Mark::AppFirst, "poll shutdown"),
    (Mark::CompareAndSwap, "unsettled"),
    (Mark::OwnClockOnly, "unsettled"),
    (Mark::ValidityNotBoolean, "pause"),
    (Mark::UidSent, "cut stall delete"),
    (Mark::Incarnation, "twins cut"),
    (Mark::F2, "cut stall delete"),
    (Mark::F3, "cut delete remake"),
    (Mark::F4, "lease=peer peer=4 cut"),
    (Mark::F6, "twins unsettled"),
    (Mark::F7, "cut late=2"),
    (Mark::F10, "late fail word horizon=9"),
    (Mark::F13, "crash restart poll shutdown"),
    (Mark::F21, "twins unsettled horizon=9"),
];

pub(crate) fn mutants() -> Vec<Variant> {
    let of = |(mark, words)| Variant { name: words, without: Some(mark), ..parse(words) };
    MUTANTS.iter().copied().map(of).collect()
}
