//! Wrong usage, help, version, and variables that are not ours.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{Ran, run, tenure};

/// Exit code 2, nothing on stdout, one line on stderr with all of `words`.
fn assert_refused(ran: &Ran, words: &[&str]) {
    assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{:?}", ran.err);
    assert!(ran.err.starts_with("tenure: ") && ran.err.ends_with('\n'), "{:?}", ran.err);
    for word in words {
        assert!(ran.err.contains(word), "{:?} lacks {word:?}", ran.err);
    }
}

async fn sidecar(flags: &[&str], variables: &[(&str, &str)]) -> Ran {
    let arguments: Vec<&str> = ["sidecar"].iter().chain(flags).copied().collect();
    run(&arguments, variables).await
}

#[tokio::test]
async fn scenario_c1_broken_timings_are_refused_in_one_line_each() {
    let cases: [(&[&str], &[&str]); 13] = [
        // L < 1.2 R.
        (&["--lease-duration=11s"], &["--renew-deadline=10s", "1.2 x", "--lease-duration=11s"]),
        (&["--renew-deadline=12501ms"], &["--renew-deadline=12.501s", "up to 12.5s"]),
        // R <= 1.2 P.
        (&["--retry-period=9s"], &["--retry-period=9s", "1.2 x", "--renew-deadline=10s"]),
        (&["--lease-duration=12s", "--renew-deadline=6s", "--retry-period=5s"], &["below 5s"]),
        // Fractions of a second in L; L < 2 s; more than the Lease can hold.
        (&["--lease-duration=15500ms"], &["--lease-duration=15.5s", "whole seconds"]),
        (&["--lease-duration=1s"], &["--lease-duration=1s", "at least 2s"]),
        (&["--lease-duration=2147483648s"], &["--lease-duration=2147483648s", "at most"]),
        // Zero and negative.
        (&["--lease-duration=0s"], &["--lease-duration=0s", "greater than zero"]),
        (&["--renew-deadline=0s"], &["--renew-deadline=0s", "greater than zero"]),
        (&["--retry-period=0s"], &["--retry-period=0s", "greater than zero"]),
        (&["--retry-period=-1s"], &["--retry-period=-1s", "allowed: a duration such as 15s"]),
        (&["--renew-deadline", "-10s"], &["--renew-deadline=-10s", "allowed"]),
        // No room for three attempts.
        (
            &["--lease-duration=2s", "--renew-deadline=1s", "--retry-period=500ms"],
            &["--retry-period=500ms", "--renew-deadline=1s", "/ 3", "200ms", "3 attempts"],
        ),
    ];
    for (flags, words) in cases {
        let all: Vec<&str> = ["--lease-name=x", "--dev"].iter().chain(flags).copied().collect();
        assert_refused(&sidecar(&all, &[]).await, words);
    }
}

#[tokio::test]
async fn scenario_c1_values_that_are_none_are_refused_with_what_is_allowed() {
    let cases: [(&[&str], &[&str]); 12] = [
        (&["--lease-duration=15"], &["--lease-duration=15:", "allowed: a duration such as 15s"]),
        (&["--max-valid=soon"], &["--max-valid=soon", "allowed: a duration"]),
        (&["--drain-timeout=x"], &["--drain-timeout=x", "allowed: a duration", "auto"]),
        (&["--on-app-exit=x"], &["--on-app-exit=x", "allowed: release, keep"]),
        (&["--missing-lease=x"], &["--missing-lease=x", "allowed: create, create-free, never"]),
        (&["--dev=x"], &["--dev=x", "allowed: leader, follower"]),
        (&["--log-format=x"], &["--log-format=x", "allowed: text, json"]),
        (&["--log=x=y"], &["--log=x=y", "allowed: error, warn, info"]),
        (&["--listen=localhost:4040"], &["--listen=localhost:4040", "allowed: IP:PORT"]),
        (&["--listen=0.0.0.0:4040"], &["--listen=0.0.0.0:4040", "loopback", "--listen-anywhere"]),
        (&["--socket-mode=999"], &["--socket-mode=999", "allowed: octal"]),
        (&["--allowed-host=a\nb"], &["--allowed-host=a b", "allowed: a host name"]),
    ];
    for (flags, words) in cases {
        let variables = [("TENURE_LEASE_NAME", "x"), ("TENURE_DEV", "leader")];
        assert_refused(&sidecar(flags, &variables).await, words);
    }
}

#[tokio::test]
async fn scenario_c2_what_is_missing_or_unreadable_is_refused_in_one_line_each() {
    let long = format!("--socket=/{}", "s".repeat(107));
    let server = "--server=http://127.0.0.1:1";
    let cases: [(&[&str], &[&str]); 11] = [
        (&["--lease-name=x", "--dev", "--socket=@x"], &["--socket=@x", "abstract", "./@NAME"]),
        (&[], &["--lease-name", "required", "TENURE_LEASE_NAME"]),
        (&["--lease-name=x"], &["--server", "required", "KUBERNETES_SERVICE_HOST"]),
        (&["--lease-name=x", server], &["--namespace", "required", "TENURE_NAMESPACE"]),
        (&["--lease-name=x", server, "--namespace=n", "--identity="], &["--identity=", "allowed"]),
        (&["--lease-name=x", server, "--namespace=n", "--pod-uid=u"], &["--pod-uid", "--pod-name"]),
        (&["--lease-name=x", "--kubeconfig=/gone"], &["--kubeconfig=/gone"]),
        (
            &["--lease-name=x", "--server=https://h", "--ca-file=/gone"],
            &["--ca-file=/gone", "read"],
        ),
        (&["--lease-name=x", server, "--token-file=/gone"], &["--token-file=/gone", "read"]),
        (
            &["--lease-name=x", "--dev", "--control-token-file=/gone"],
            &["--control-token-file=/gone"],
        ),
        (&["--lease-name=x", "--dev", &long], &["--socket=/sss", "108 bytes", "1 to 107 bytes"]),
    ];
    for (flags, words) in cases {
        assert_refused(&sidecar(flags, &[]).await, words);
    }
    let in_cluster = [("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
    let ran = sidecar(&["--lease-name=x", "--dev"], &in_cluster).await;
    assert_refused(&ran, &["--dev", "KUBERNETES_SERVICE_HOST=10.0.0.1"]);
}

#[tokio::test]
async fn a_flag_wins_over_its_variable_and_the_line_names_where_a_value_came_from() {
    let variables = [("TENURE_LEASE_NAME", "x"), ("TENURE_DEV", "leader"), ("TENURE_LOG", "a=b")];
    assert_refused(&sidecar(&[], &variables).await, &["--log=a=b", "(from TENURE_LOG)"]);
    let ran = sidecar(&["--log=info", "--retry-period=0s"], &variables).await;
    assert_refused(&ran, &["--retry-period=0s"]);
    let ran = sidecar(&["--log=c=d"], &variables).await;
    assert_refused(&ran, &["--log=c=d"]);
    assert!(!ran.err.contains("TENURE_LOG"), "{}", ran.err);
}

#[tokio::test]
async fn commands_and_flags_that_do_not_exist_are_refused() {
    assert_refused(&run(&[], &[]).await, &["a command is required", "sidecar, status, wait"]);
    assert_refused(&run(&["elect"], &[]).await, &["elect", "allowed: sidecar, status, wait"]);
    assert_refused(&run(&["status", "--nope"], &[]).await, &["--nope"]);
    assert_refused(&run(&["status", "nope"], &[]).await, &["nope"]);
    assert_refused(&run(&["wait", "--for"], &[]).await, &["--for"]);
    assert_refused(&run(&["wait", "--for=x"], &[]).await, &["--for=x", "holder=NAME"]);
    assert_refused(&run(&["status", "--url=x"], &[]).await, &["--url=x", "unix:/PATH"]);
    assert_refused(&run(&["release", "--epoch=0"], &[]).await, &["--epoch=0", "9007199254740991"]);
    assert_refused(&run(&["release", "--control-token-file=/gone"], &[]).await, &["/gone"]);
}

#[tokio::test]
async fn help_and_version_are_everywhere() {
    for command in [&[][..], &["sidecar"], &["status"], &["wait"], &["release"]] {
        for flag in ["--help", "--version"] {
            let ran = run(&[command, &[flag]].concat(), &[]).await;
            assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{command:?} {flag}");
            let word = if flag == "--help" { "Usage: tenure" } else { env!("CARGO_PKG_VERSION") };
            assert!(ran.out.contains(word), "{}", ran.out);
        }
    }
    let version = run(&["--version"], &[]).await.out;
    let commit =
        version.trim_end().strip_prefix(concat!("tenure ", env!("CARGO_PKG_VERSION"), " ("));
    let commit = commit.and_then(|rest| rest.strip_suffix(')')).expect(&version);
    assert!(commit.len() >= 7 && commit.bytes().all(|b| b.is_ascii_alphanumeric()), "{version}");
}

async fn printing_to(stdout: Stdio, arguments: &[&str]) -> Ran {
    let child = tenure(arguments, &[]).stdout(stdout).spawn().unwrap();
    child.wait_with_output().await.unwrap().into()
}

#[tokio::test]
async fn what_cannot_be_printed_is_told_unless_nobody_reads_it() {
    for arguments in [&["--help"][..], &["--version"], &["budget"], &["budget", "--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ran = printing_to(full.into(), arguments).await;
        assert_eq!(ran.code, Some(1), "{arguments:?}");
        assert!(ran.err.starts_with("tenure: stdout cannot be written: "), "{}", ran.err);
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let ran = printing_to(closed.into(), arguments).await;
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_value_that_is_no_text_is_refused_by_the_name_of_its_variable() {
    let odd = OsStr::from_bytes(b"o\xffdd");
    let flags = ["sidecar", "--lease-name=x", "--dev", "--socket=/gone/x"];
    // A path is no text, and a flag wins over its variable.
    let passed = [("TENURE_SOCKET", odd), ("TENURE_LEASE_NAME", odd)];
    for variable in ["TENURE_LOG", "TENURE_LEASE_DURATION", "TENURE_LISTEN_ANYWHERE"] {
        let mut command = tenure(&flags, &[]);
        command.envs(passed).env(variable, odd);
        let ran: Ran = command.output().await.unwrap().into();
        assert_refused(&ran, &[variable, "not UTF-8"]);
    }
    let mut command = tenure(&flags, &[]);
    let ran: Ran = command.arg("--identity").arg(odd).output().await.unwrap().into();
    assert_refused(&ran, &["o\u{fffd}dd", "not UTF-8"]);
}

/// What the kubelet puts into every pod of a namespace with a Service named `tenure`.
const SERVICE: [(&str, &str); 8] = [
    ("TENURE_PORT", "tcp://10.0.0.7:4041"),
    ("TENURE_PORT_4041_TCP", "tcp://10.0.0.7:4041"),
    ("TENURE_PORT_4041_TCP_ADDR", "10.0.0.7"),
    ("TENURE_PORT_4041_TCP_PORT", "4041"),
    ("TENURE_PORT_4041_TCP_PROTO", "tcp"),
    ("TENURE_SERVICE_HOST", "10.0.0.7"),
    ("TENURE_SERVICE_PORT", "4041"),
    ("TENURE_SERVICE_PORT_METRICS", "4041"),
];

#[tokio::test]
async fn scenario_c4_a_service_named_tenure_has_no_effect_and_a_typing_error_warns() {
    let typo = ("TENURE_ZEASE_NAME", "y");
    let variables: Vec<_> = SERVICE.into_iter().chain([typo]).collect();
    let flags = ["sidecar", "--lease-name=x", "--dev", "--log-format=json"];
    let listen = ["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"];
    let mut child = tenure(&[&flags[..], &listen].concat(), &variables).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // Warnings come sorted, so those of the Service would come before this one.
    let warning = loop {
        let line = lines.next_line().await.unwrap().expect("ended without the warning");
        assert!(!line.contains("TENURE_PORT") && !line.contains("TENURE_SERVICE"), "{line}");
        if line.contains(typo.0) {
            break serde_json::from_str::<serde_json::Value>(&line).unwrap();
        }
    };
    assert_eq!((&warning["level"], &warning["variable"]), (&"WARN".into(), &typo.0.into()));
    // Either still running, as it should, or ended by itself: stopped by its own handle.
    let _ = child.kill().await;
}
