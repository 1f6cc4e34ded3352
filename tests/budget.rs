//! `tenure budget` as a process.

use std::process::{Command, Output};

fn budget(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("budget").args(arguments).env_clear().output().unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = budget(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn text_fits_a_terminal_and_says_what_is_asked() {
    let output = budget(&["--max-valid=2s", "--replicas=5"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["release", "crash", "partition", "5 replicas", "max_valid", "<- tight"] {
        assert!(text.contains(word), "no {word:?} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn shorter_timings_cost_more_and_fail_over_faster() {
    let (long, short) =
        (json(&[]), json(&["--lease-duration=6s", "--renew-deadline=4s", "--retry-period=1s"]));
    let number = |value: &serde_json::Value, path: &str| value.pointer(path).unwrap().as_f64();
    for (path, falls) in [
        ("/failover/crash/worst_ms", true),
        ("/failover/partition/typical_ms", true),
        ("/tolerated/pause_ms", true),
        ("/load/etcd_writes_per_day", false),
        ("/load/requests_per_minute", false),
    ] {
        assert_eq!(number(&short, path) < number(&long, path), falls, "{path}");
    }
    // A hand-over waits for no timer.
    assert_eq!(long["failover"]["release"], short["failover"]["release"]);
}

#[test]
fn writes_do_not_grow_with_the_replicas() {
    let (three, many) = (json(&[]), json(&["--replicas=100"]));
    assert_eq!(three["load"]["etcd_writes_per_day"], many["load"]["etcd_writes_per_day"]);
    assert_eq!(three["load"]["writes_per_minute"], many["load"]["writes_per_minute"]);
}

#[test]
fn scenario_c1_broken_timings_are_refused_in_the_words_of_the_sidecar() {
    for flag in ["--lease-duration=11s", "--retry-period=9s", "--renew-deadline=0s"] {
        let refused = budget(&[flag]);
        let mut sidecar = Command::new(env!("CARGO_BIN_EXE_tenure"));
        let same = sidecar.args(["sidecar", "--dev", "--lease-name=x", flag]).env_clear();
        let same = same.output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert_eq!(refused.stderr, same.stderr, "{flag}");
    }
    for flag in ["--replicas=0", "--request-time=2h", "--request-time=-1s", "--max-valid=x"] {
        let refused = budget(&[flag]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert_eq!(String::from_utf8(refused.stderr).unwrap().lines().count(), 1);
    }
}
