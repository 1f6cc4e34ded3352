use proptest::prelude::*;

use super::*;
use crate::core::Purpose;

fn lease(spec: Value, annotations: Value) -> Value {
    json!({"kind": "Lease", "metadata": {"name": "l", "uid": "u", "resourceVersion": "7",
           "annotations": annotations}, "spec": spec})
}

fn read(spec: Value) -> Record {
    record(&lease(spec, Value::Null)).unwrap()
}

fn at(micros: i64) -> Option<Stamp> {
    Some(Stamp::At(Wall::from_micros(micros)))
}

fn renewal(base: Option<Value>) -> Write<Base> {
    Write {
        purpose: Purpose::Renew,
        base: base.map(Arc::new),
        holder: "me".into(),
        duration: Duration::from_secs(15),
        renew_time: Wall::from_micros(1_767_225_600_000_001),
        acquire_time: None,
        transitions: None,
        epoch: None,
        incarnation: None,
        released: Released::Keep,
    }
}

#[test]
fn scenario_t3_nulls_and_absent_fields_have_one_reading() {
    let empty = read(Value::Null);
    assert_eq!(empty, read(json!({})));
    assert_eq!(
        empty,
        read(json!({"holderIdentity": null, "leaseDurationSeconds": null, "renewTime": null,
                    "acquireTime": null, "leaseTransitions": null, "strategy": null}))
    );
    assert_eq!(empty, read(json!({"holderIdentity": "", "strategy": "", "preferredHolder": ""})));
    assert_eq!(
        (empty.holder, empty.duration, empty.renew_time, empty.transitions, empty.coordinated),
        (None, None, None, None, false)
    );
    let spec_is_text = lease(json!("what"), json!("notes"));
    assert_eq!(record(&spec_is_text).unwrap().holder, None);
}

#[test]
fn scenario_t3_odd_numbers_have_one_reading() {
    let seconds = |value: Value| {
        read(json!({"leaseDurationSeconds": value})).duration.map(|duration| duration.as_secs())
    };
    let max = u64::from(MAX_INT32);
    assert_eq!(seconds(json!(15)), Some(15));
    assert_eq!(seconds(json!(1.5)), Some(2));
    assert_eq!(seconds(json!(max)), Some(max));
    assert_eq!(seconds(json!(u64::MAX)), Some(max));
    assert_eq!(seconds(json!(1e300)), Some(max));
    for odd in [json!(0), json!(-1), json!(-1e300), json!("15"), json!([15]), json!(true)] {
        assert_eq!(seconds(odd.clone()), None, "{odd}");
    }
    let transitions = |value: Value| read(json!({"leaseTransitions": value})).transitions;
    assert_eq!(transitions(json!(0)), Some(0));
    assert_eq!(transitions(json!(i32::MAX)), Some(MAX_INT32));
    for odd in [json!(-1), json!(2_147_483_648_u64), json!(1.5), json!("3"), json!({})] {
        assert_eq!(transitions(odd.clone()), None, "{odd}");
    }
}

#[test]
fn scenario_t3_times_are_points_or_odd_text() {
    let time = |value: Value| read(json!({"renewTime": value})).renew_time;
    let second = 1_767_225_600_000_000;
    assert_eq!(time(json!("2026-01-01T00:00:00.000000Z")), at(second));
    assert_eq!(time(json!("2026-01-01T00:00:00Z")), at(second));
    assert_eq!(time(json!("2026-01-01T01:00:00.000001+01:00")), at(second + 1));
    assert_eq!(time(json!("2026-01-01T00:00:00.000001999Z")), at(second + 1));
    assert!(matches!(time(json!("0001-01-01T00:00:00Z")), Some(Stamp::At(_))));
    for odd in ["", "yesterday", "2026-01-01", "2026-13-01T00:00:00Z", "99999-01-01T00:00:00Z"] {
        assert_eq!(time(json!(odd)), Some(Stamp::Odd(odd.into())));
    }
    assert_eq!(time(json!(17)), Some(Stamp::Odd("17".into())));
}

#[test]
fn a_holder_that_is_no_text_is_still_somebody() {
    assert_eq!(read(json!({"holderIdentity": 7})).holder.as_deref(), Some("7"));
    assert_eq!(read(json!({"holderIdentity": {}})).holder.as_deref(), Some("{}"));
}

#[test]
fn scenario_e6_coordinated_election_is_seen() {
    assert!(read(json!({"strategy": "OldestEmulationVersion"})).coordinated);
    assert!(read(json!({"preferredHolder": "b"})).coordinated);
}

#[test]
fn scenario_e9_epochs_that_are_none_are_absent_and_counted() {
    let epoch = |value: Value| {
        let record = record(&lease(json!({}), json!({ EPOCH: value }))).unwrap();
        (record.epoch, record.bad_annotations)
    };
    assert_eq!(epoch(json!("1")), (Some(1), 0));
    assert_eq!(epoch(json!("9007199254740991")), (Some(MAX_EPOCH), 0));
    for odd in ["", "0", "-1", "+1", "abc", "01", " 1", "1.0", "9e18", "9007199254740992"] {
        assert_eq!(epoch(json!(odd)), (None, 1), "{odd}");
    }
    assert_eq!(epoch(json!("9".repeat(1_000_000))), (None, 1));
    assert_eq!(epoch(json!(5)), (None, 1));
    let all = json!({EPOCH: "x", RELEASED: "", TRANSITIONS: "-1", INCARNATION: ""});
    assert_eq!(record(&lease(json!({}), all)).unwrap().bad_annotations, 4);
}

#[test]
fn scenario_e10_versions_without_an_order_are_none() {
    for odd in [json!("abc"), json!(""), json!("0"), json!("07"), json!(7), json!(null)] {
        let mut object = lease(json!({}), json!({}));
        object["metadata"]["resourceVersion"] = odd.clone();
        assert_eq!(record(&object).unwrap().version, None, "{odd}");
    }
}

#[test]
fn only_a_lease_of_that_name_with_a_uid_is_observed() {
    let good = lease(json!({}), json!({}));
    assert!(observe(good.clone(), "l").is_some());
    assert!(observe(good.clone(), "other").is_none());
    let mut status = good.clone();
    status["kind"] = json!("Status");
    assert!(observe(status, "l").is_none());
    let mut no_uid = good;
    no_uid["metadata"]["uid"] = json!("");
    assert!(observe(no_uid, "l").is_none());
    for junk in [json!(null), json!([]), json!("x"), json!({"metadata": 1})] {
        assert!(observe(junk, "l").is_none());
    }
}

#[test]
fn scenario_e7_what_is_not_ours_survives_a_write() {
    let base = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "labels": {"a": "b"}, "finalizers": ["f"], "ownerReferences": [{"uid": "o"}],
            "managedFields": [{}], "annotations": {"x": "y".repeat(1 << 20)}},
        "spec": {"holderIdentity": "old", "strategy": "S", "future": {"deep": [1]}}});
    let written = apply(&renewal(Some(base.clone())), "n", "l", Rules::default());
    assert_eq!(written["metadata"], base["metadata"]);
    assert_eq!(
        written["spec"],
        json!({"holderIdentity": "me", "strategy": "S", "future": {"deep": [1]},
               "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z"})
    );
}

#[test]
fn an_acquisition_sets_all_that_is_ours() {
    let write = Write {
        acquire_time: Some(Wall::from_micros(0)),
        transitions: Some(3),
        epoch: Some(9),
        incarnation: Some("i".into()),
        released: Released::Remove,
        ..renewal(Some(lease(json!(null), json!({RELEASED: "8"}))))
    };
    let written = apply(&write, "n", "l", Rules::default());
    assert_eq!(
        written["metadata"]["annotations"],
        json!({EPOCH: "9", INCARNATION: "i", TRANSITIONS: "3"})
    );
    let read = record(&written).unwrap();
    assert_eq!((read.epoch, read.transitions, read.released), (Some(9), Some(3), None));
    assert_eq!(written["spec"]["acquireTime"], "1970-01-01T00:00:00.000000Z");
    let released = Write { released: Released::Set(9), ..renewal(Some(written)) };
    let written = apply(&released, "n", "l", Rules::default());
    assert_eq!(written["metadata"]["annotations"][RELEASED], "9");
}

#[test]
fn a_creation_names_neither_version_nor_uid() {
    let written = apply(&renewal(None), "n", "l", Rules::default());
    assert_eq!(written["metadata"], json!({"namespace": "n", "name": "l"}));
    assert_eq!(written["kind"], "Lease");
}

#[test]
fn micro_times_have_six_decimals_whatever_the_clock_says() {
    assert_eq!(micro_time(Wall::from_micros(-1)), "1969-12-31T23:59:59.999999Z");
    assert!(micro_time(Wall::from_micros(i64::MAX)).ends_with('Z'));
    assert!(micro_time(Wall::from_micros(i64::MIN)).ends_with('Z'));
}

fn junk() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "[0-9]{1,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

prop_compose! {
    /// A Lease in which every field can be anything.
    fn any_lease()(
        spec in prop::collection::btree_map(
            prop::sample::select(vec!["holderIdentity", "leaseDurationSeconds", "renewTime",
                "acquireTime", "leaseTransitions", "strategy", "preferredHolder", "other"]),
            junk(), 0..8),
        notes in prop::collection::btree_map(
            prop::sample::select(vec![EPOCH, INCARNATION, TRANSITIONS, RELEASED, "other"]),
            junk(), 0..5),
        version in junk(),
    ) -> Value {
        let mut object = lease(json!(spec), json!(notes));
        object["metadata"]["resourceVersion"] = version;
        object
    }
}

proptest! {
    #[test]
    fn anything_is_read_without_a_panic(value in junk(), lease in any_lease()) {
        let _ = observe(value, "l");
        let read = record(&lease);
        prop_assert!(read.is_some());
        prop_assert_eq!(read, record(&lease));
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else_changes(
        lease in any_lease(), micros in 0..4_000_000_000_000_000_i64, epoch in 1..=MAX_EPOCH,
        transitions in 0..=MAX_INT32,
    ) {
        let write = Write {
            renew_time: Wall::from_micros(micros),
            acquire_time: Some(Wall::from_micros(micros)),
            transitions: Some(transitions),
            epoch: Some(epoch),
            incarnation: Some("inc".into()),
            released: Released::Set(epoch),
            ..renewal(Some(lease.clone()))
        };
        let written = apply(&write, "n", "l", Rules::default());
        let read = record(&written).unwrap();
        prop_assert_eq!(read.holder.as_deref(), Some("me"));
        prop_assert_eq!(read.renew_time, at(micros));
        prop_assert_eq!(read.acquire_time, at(micros));
        prop_assert_eq!((read.epoch, read.released), (Some(epoch), Some(epoch)));
        prop_assert_eq!(read.transitions, Some(transitions));
        prop_assert_eq!(read.annotated_transitions, Some(transitions));
        prop_assert_eq!(read.bad_annotations, 0);
        for key in ["strategy", "preferredHolder", "other"] {
            prop_assert_eq!(lease["spec"].get(key), written["spec"].get(key));
        }
        prop_assert_eq!(&lease["metadata"]["resourceVersion"], &written["metadata"]["resourceVersion"]);
        prop_assert_eq!(&lease["metadata"]["uid"], &written["metadata"]["uid"]);
    }
}
