//! The judge sees what it is there for: each promise broken once, in a history made up by hand.

use crate::checker::{Foreign, Verdict, check};
use crate::facts::{Fact, Version, What};
use crate::timeline;

const SECOND: u64 = 1_000_000_000;
const R: u64 = 10 * SECOND;

fn fact(at_s: u64, who: &str, what: What) -> Fact {
    Fact { at: at_s * SECOND, who: who.into(), what }
}

/// Wall clock and boottime are the same here.
fn version(at_s: u64, number: u64, holder: &str, epoch: u64) -> Fact {
    let version = Version {
        number,
        uid: "u".into(),
        holder: holder.into(),
        duration_ns: 15 * SECOND,
        renew_us: at_s * 1_000_000,
        epoch,
        released: 0,
    };
    fact(at_s, "lease", What::Version(version))
}

fn stand(at_s: u64, who: &str, epoch: u64, until_s: u64) -> Fact {
    let state = if until_s > 0 { "leading" } else { "following" };
    let valid_until = until_s * SECOND;
    fact(at_s, who, What::Stand { state: state.into(), epoch, valid_until })
}

fn told(at_s: u64, who: &str, tell: &str, epoch: u64) -> Fact {
    fact(at_s, who, What::Told { tell: tell.into(), epoch })
}

fn answer(at_s: u64, who: &str, epoch: u64, until_s: u64) -> Fact {
    fact(at_s, who, What::Answer { leader: true, epoch, until: until_s * SECOND })
}

fn release(at_s: u64, who: &str, epoch: u64) -> Fact {
    fact(at_s, who, What::Sent { purpose: "release".into(), epoch })
}

fn verdict(facts: &[Fact]) -> Verdict {
    let mut facts = facts.to_vec();
    facts.sort_by_key(|fact| fact.at);
    check(&facts, 0, R)
}

#[track_caller]
fn breaks(rule: &str, facts: &[Fact]) {
    let broken = verdict(facts).violations;
    assert!(broken.len() == 1 && broken[0].1.starts_with(rule), "{rule}: {broken:?}");
}

/// `a` leads from 0 to 10 by a write at 0.
fn a_leads() -> Vec<Fact> {
    vec![version(0, 1, "a", 5), stand(0, "a/0", 5, 10)]
}

fn and(mut facts: Vec<Fact>, more: impl IntoIterator<Item = Fact>) -> Vec<Fact> {
    facts.extend(more);
    facts
}

#[test]
fn a_clean_hand_over_breaks_nothing() {
    let lost = and(a_leads(), [version(15, 2, "b", 6), stand(15, "b/0", 6, 25)]);
    let verdict = verdict(&lost);
    assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    assert_eq!((verdict.reigns.len(), verdict.versions), (2, 2));
}

#[test]
fn two_leaders_break_s1_but_not_two_processes_of_a_pod() {
    breaks("S1", &and(a_leads(), [version(9, 2, "b", 6), stand(9, "b/0", 6, 19)]));
    let again = and(a_leads(), [version(9, 2, "a", 6), stand(9, "a/1", 6, 19)]);
    assert!(verdict(&again).violations.is_empty());
    breaks("S1", &and(a_leads(), [stand(1, "a/0", 5, 14)]));
}

#[test]
fn an_epoch_that_goes_back_breaks_s2() {
    breaks("S2", &[version(0, 1, "a", 5), version(1, 2, "b", 4)]);
    breaks("version", &[version(0, 2, "a", 5), version(1, 1, "a", 5)]);
}

#[test]
fn an_answer_beyond_validity_breaks_s3() {
    breaks("S3", &and(a_leads(), [answer(10, "a/0", 5, 10)]));
    breaks("S3", &and(a_leads(), [answer(1, "a/0", 5, 11)]));
    assert!(verdict(&and(a_leads(), [answer(1, "a/0", 5, 10)])).violations.is_empty());
}

#[test]
fn a_release_before_the_grants_end_breaks_s7_but_not_after_the_apps_word() {
    let granted = and(a_leads(), [answer(1, "a/0", 5, 10)]);
    breaks("S7", &and(granted.clone(), [stand(4, "a/0", 5, 0), release(4, "a/0", 5)]));
    let word = fact(3, "a/0", What::Word);
    let told = and(granted.clone(), [word, stand(4, "a/0", 5, 0), release(4, "a/0", 5)]);
    assert!(verdict(&told).violations.is_empty());
    // A predecessor's grants count, too.
    let again = [version(2, 2, "a", 6), stand(2, "a/1", 6, 12), stand(4, "a/1", 6, 0)];
    breaks("S7", &and(and(granted, again), [release(4, "a/1", 6)]));
}

#[test]
fn leader_after_the_release_breaks_s5() {
    let mut facts = and(a_leads(), [release(4, "a/0", 5), answer(5, "a/0", 5, 6)]);
    breaks("S5", &facts);
    facts.pop();
    assert!(verdict(&facts).violations.is_empty());
}

/// client-go keeps the epoch that it finds annotated.
#[test]
fn a_late_write_over_client_go_breaks_s4_or_s5() {
    let taken = || and(a_leads(), [stand(10, "a/0", 5, 0), version(15, 2, "k", 5)]);
    assert!(verdict(&taken()).violations.is_empty());
    breaks("S4", &and(taken(), [version(16, 3, "a", 5)]));
    let free = |at_s, number| {
        let mut free = version(at_s, number, "", 5);
        let What::Version(version) = &mut free.what else { unreachable!("a version") };
        version.released = 5;
        free
    };
    breaks("S5", &and(taken(), [release(16, "a/0", 5), free(16, 3)]));
    let released = || and(a_leads(), [stand(3, "a/0", 5, 0), release(3, "a/0", 5), free(3, 2)]);
    let lawful = verdict(&released());
    assert!(lawful.violations.is_empty() && lawful.releases == 1, "{lawful:?}");
    breaks("S4", &and(released(), [version(4, 3, "a", 5)]));
    // Blanked by somebody else, it is put back.
    let blanked = and(a_leads(), [version(3, 2, "", 5), version(4, 3, "a", 5)]);
    assert!(verdict(&blanked).violations.is_empty());
}

#[test]
fn an_epoch_of_two_holders_breaks_s2() {
    breaks("S2", &and(a_leads(), [stand(1, "b/0", 0, 0), version(15, 2, "b", 5)]));
}

#[test]
fn terms_told_twice_or_out_of_order_break_s6() {
    let tells = ["Acquired", "Draining", "Ended"];
    let all = |order: &[usize]| -> Vec<Fact> {
        order
            .iter()
            .enumerate()
            .map(|(at, place)| told(at as u64, "a/0", tells[*place], 5))
            .collect()
    };
    assert!(verdict(&all(&[0, 1, 2])).violations.is_empty());
    assert!(verdict(&all(&[0, 2, 0, 1])).violations.is_empty());
    breaks("S6", &all(&[0, 0]));
    breaks("S6", &all(&[0, 1, 1]));
    breaks("S6", &all(&[0, 2, 2]));
}

#[test]
fn what_client_go_does_late_is_told_apart_from_what_tenure_does_early() {
    let late = |at_s| {
        let taken = [version(at_s, 2, "a", 5), stand(at_s, "a/0", 5, at_s + 10)];
        and(vec![fact(0, "k", What::PeerLeads), version(0, 1, "k", 0)], taken)
    };
    let stops = fact(20, "k", What::PeerStops);
    let lawful = verdict(&and(late(15), [stops.clone()]));
    assert!(lawful.violations.is_empty(), "{:?}", lawful.violations);
    assert_eq!(lawful.foreign[&Foreign::LateStop], 1);
    breaks("S1", &and(late(14), [stops]));

    // Blanked by another client-go, taken, run out, and taken again at once: it is late all the same.
    let blanked = [fact(0, "k", What::PeerLeads), version(0, 1, "k", 0), version(1, 2, "", 0)];
    let taken = [version(2, 3, "a", 5), stand(2, "a/0", 5, 12), stand(12, "a/0", 0, 0)];
    let again = [version(12, 4, "a", 6), stand(12, "a/0", 6, 22), fact(13, "k", What::PeerStops)];
    let both = verdict(&[&blanked[..], &taken, &again].concat());
    assert!(both.violations.is_empty(), "{:?}", both.violations);
    assert_eq!(both.foreign[&Foreign::LateStop], 2);

    let blank = |released| {
        let mut blank = version(3, 2, "", 5);
        let What::Version(version) = &mut blank.what else { unreachable!("a version") };
        version.released = released;
        let taken =
            [version_of("k", 4), fact(4, "k", What::PeerLeads), fact(5, "k", What::PeerStops)];
        and(and(a_leads(), [blank]), taken)
    };
    assert_eq!(verdict(&blank(0)).foreign[&Foreign::Blanked], 1);
    breaks("S1", &blank(5));
}

fn version_of(holder: &str, at_s: u64) -> Fact {
    version(at_s, 3, holder, 5)
}

#[test]
fn the_page_shows_what_was_broken_and_needs_nothing_else() {
    let facts = and(a_leads(), [version(9, 2, "b", 6), stand(9, "b/0", 6, 19)]);
    let file = tempfile::NamedTempFile::new().expect("a file");
    timeline::write(file.path(), "a <test>", &facts, &verdict(&facts), None);
    let page = std::fs::read_to_string(file.path()).expect("a page");
    for part in ["<svg", "a &lt;test>", "S1: a/0", "epoch 5", "epoch 6", "</svg>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("src=") && !page.contains("href="));
}
