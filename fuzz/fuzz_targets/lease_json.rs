//! Bytes as the JSON of a Lease: whatever they say has one reading, and a write on top of it is read
//! back as what was written.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tenure::core::{Purpose, Released, Rules, Wall, Write};
use tenure::shell::lease_json::{apply, micro_time, observe, record};

fuzz_target!(|data: &[u8]| {
    let Ok(object) = serde_json::from_slice::<Value>(data) else { return };
    let _ = record(&object);
    let Some(name) = object["metadata"]["name"].as_str().map(String::from) else { return };
    let Some(observed) = observe(object, &name) else { return };
    // A time of its own for each input.
    let micros = data.iter().fold(0_i64, |sum, byte| sum.wrapping_mul(31) ^ i64::from(*byte));
    let written = Wall::from_micros(micros);
    let _ = micro_time(written);
    let at = Wall::from_micros(micros.rem_euclid(4_000_000_000_000_000));
    let write = Write {
        purpose: Purpose::Acquire,
        base: Some(observed.base.clone()),
        holder: "me_1".into(),
        duration: Duration::from_secs(15),
        renew_time: at,
        acquire_time: Some(at),
        transitions: Some(7),
        epoch: Some(41),
        incarnation: Some("i1".into()),
        released: Released::Remove,
    };
    let object = apply(&write, "n", &name, Rules::default());
    let again = record(&object).expect("it keeps its uid");
    assert_eq!(again.uid, observed.record.uid);
    assert_eq!(again.version, observed.record.version);
    assert_eq!(again.holder.as_deref(), Some("me_1"));
    assert_eq!(again.duration, Some(Duration::from_secs(15)));
    assert_eq!((again.epoch, again.transitions), (Some(41), Some(7)));
    assert_eq!((again.annotated_transitions, again.released), (Some(7), None));
    assert_eq!(again.renewed_at(), Some(at));
    assert_eq!(again.coordinated, observed.record.coordinated);
});
