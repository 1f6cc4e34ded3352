use std::ffi::OsString;

use super::*;
use crate::cli::{Command, Refusal};

/// What a pod finds around itself, with its folder.
fn pod() -> (Surroundings, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("namespace"), "shop\n").unwrap();
    std::fs::write(folder.path().join("token"), "t0ken\n").unwrap();
    std::fs::write(folder.path().join("ca.crt"), CERTIFICATE).unwrap();
    let around = Surroundings {
        kubernetes_host: Some("fd00::1".into()),
        kubernetes_port: Some("6443".into()),
        pod_name: Some("web-0".into()),
        pod_uid: Some("6f0c-1".into()),
        host_name: Some("host".into()),
        service_account: folder.path().into(),
    };
    (around, folder)
}

/// Well-formed PEM; what stands in it is the TLS code's business.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn outside() -> Surroundings {
    Surroundings {
        kubernetes_host: None,
        kubernetes_port: None,
        pod_name: None,
        pod_uid: None,
        host_name: Some("host".into()),
        service_account: "/nonexistent".into(),
    }
}

fn config(flags: &[&str], around: &Surroundings) -> Result<Config, String> {
    let argv = ["tenure", "sidecar", "--lease-name=billing"];
    let argv = argv.iter().chain(flags).map(OsString::from);
    match crate::cli::parse(argv) {
        Ok(Command::Sidecar(args)) => Config::new(*args, around).map_err(|e| e.to_string()),
        Ok(other) => panic!("{other:?}"),
        Err(Refusal::Usage(error)) => Err(error.to_string()),
        Err(Refusal::Tell(text)) => panic!("{text}"),
    }
}

fn refused(flags: &[&str], around: &Surroundings, words: &[&str]) {
    let line = config(flags, around).expect_err(&flags.join(" "));
    assert!(!line.contains('\n'), "{line:?}");
    for word in words {
        assert!(line.contains(word), "{flags:?} gave {line:?}, without {word:?}");
    }
}

#[test]
fn a_pod_needs_no_flag_but_the_name_of_the_lease() {
    let (around, folder) = pod();
    let config = config(&[], &around).unwrap();
    assert_eq!(config.lease, LeaseRef { namespace: "shop".into(), name: "billing".into() });
    assert_eq!(config.identity.holder(), "web-0_6f0c-1");
    assert_eq!(config.timing, Timing::default());
    assert_eq!(
        config.api_server,
        ApiServer::InCluster {
            server: "https://[fd00::1]:6443".parse().unwrap(),
            ca_file: Some(folder.path().join("ca.crt")),
            token_file: Some(folder.path().join("token")),
        }
    );
    let api = &config.local_api;
    assert_eq!(api.listen, ["127.0.0.1:4040", "[::1]:4040"].map(|a| a.parse().unwrap()));
    assert_eq!(api.admin_listen, "[::]:4041".parse().unwrap());
    assert_eq!((&api.socket, api.max_valid, &*api.allowed_hosts), (&None, None, &[][..]));
    assert_eq!(config.stepping_down.drain_timeout, DrainTimeout::Auto);
    assert_eq!(config.stepping_down.on_app_exit, OnAppExit::Release);
    assert!(!config.stepping_down.unsafe_release_on_sigterm);
    assert_eq!(config.missing_lease, MissingLease::Create);
    assert_eq!((config.dev(), config.warnings), (None, vec![]));
}

#[test]
fn scenario_c2_outside_a_cluster_what_is_missing_is_named() {
    refused(&[], &outside(), &["--server: required", "KUBERNETES_SERVICE_HOST", "TENURE_SERVER"]);
    let server = "--server=http://127.0.0.1:1";
    refused(&[server], &outside(), &["--namespace: required", "TENURE_NAMESPACE"]);
    let nameless = Surroundings { host_name: None, ..outside() };
    refused(&[server, "--namespace=n"], &nameless, &["--identity: required"]);
    assert!(config(&[server, "--namespace=n"], &outside()).is_ok());
}

#[test]
fn scenario_c2_what_cannot_be_read_is_named() {
    let (around, folder) = pod();
    let path = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let gone = ["--ca-file=/gone/a", "--token-file=/gone/a", "--control-token-file=/gone/a"];
    for flag in gone {
        refused(&[flag], &around, &[flag, "cannot be read", "No such file"]);
    }
    let empty = path("empty", b"\n");
    refused(&[&format!("--token-file={empty}")], &around, &["is empty"]);
    refused(&[&format!("--control-token-file={empty}")], &around, &["allowed"]);
    refused(&[&format!("--ca-file={empty}")], &around, &["holds no certificate"]);
    let binary = path("binary", &[0xff, 0xfe]);
    refused(&[&format!("--ca-file={binary}")], &around, &["cannot be read"]);
    let spaced = path("spaced", b"two words");
    refused(&[&format!("--control-token-file={spaced}")], &around, &["allowed"]);
}

#[test]
fn names_must_be_names_of_kubernetes() {
    let (around, _folder) = pod();
    let long = "a".repeat(254);
    for bad in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a/b", "ü", &long] {
        refused(&["--namespace=x", &format!("--namespace={bad}")], &around, &["--namespace"]);
        refused(&[&format!("--pod-name={bad}")], &around, &["--pod-name"]);
        let lone = ["tenure", "sidecar", "--lease-name", bad].map(OsString::from);
        let Ok(Command::Sidecar(args)) = crate::cli::parse(lone) else { continue };
        let line = Config::new(*args, &around).unwrap_err().to_string();
        assert!(line.starts_with(&format!("--lease-name={bad}: allowed")), "{line}");
    }
    refused(&["--namespace=a.b"], &around, &["--namespace=a.b"]);
    assert!(config(&["--pod-name=a.b"], &around).is_ok());
}

#[test]
fn identities_come_from_the_pod_the_flag_or_the_host() {
    let (around, _folder) = pod();
    let explicit = config(&["--identity=any text_x"], &around).unwrap().identity;
    assert_eq!(explicit, Identity::Explicit { holder: "any text_x".into() });
    for bad in ["", "tenure/new", "a\nb", "$(POD_NAME)-x"] {
        refused(&[&format!("--identity={bad}")], &around, &["--identity"]);
    }
    refused(&["--pod-name=$(POD_NAME)"], &around, &["--pod-name"]);
    refused(&["--pod-uid=$(POD_UID)"], &around, &["--pod-uid"]);
    let nameless = Surroundings { pod_name: None, ..around.clone() };
    refused(&[], &nameless, &["--pod-uid=6f0c-1", "--pod-name"]);

    let no_uid = config(&[], &Surroundings { pod_uid: None, ..around }).unwrap();
    assert!(no_uid.identity.holder().starts_with("web-0_"), "{:?}", no_uid.identity);
    assert_eq!((no_uid.identity.pod(), no_uid.warnings.len()), (None, 1));
    let host = config(&["--dev"], &outside()).unwrap();
    assert!(host.identity.holder().starts_with("host_"), "{:?}", host.identity);
    assert!(host.warnings.is_empty(), "{:?}", host.warnings);
}

#[test]
fn dev_needs_nothing_and_excludes_every_real_server() {
    let config_of = |flag| config(&[flag], &outside()).unwrap();
    assert_eq!(config_of("--dev").dev(), Some(DevRole::Leader));
    assert_eq!(config_of("--dev=follower").dev(), Some(DevRole::Follower));
    assert_eq!(config_of("--dev").lease.namespace, "default");
    for other in ["--server=http://[::1]:1", "--ca-file=/x", "--token-file=/x", "--kubeconfig=/x"] {
        let flag = other.split('=').next().unwrap();
        refused(&["--dev", other], &outside(), &["--dev", "together with", flag]);
    }
    let (around, _folder) = pod();
    refused(&["--dev"], &around, &["--dev: not allowed in a cluster", "KUBERNETES_SERVICE_HOST"]);
}

#[test]
fn the_server_is_https_or_on_loopback() {
    let (around, folder) = pod();
    for good in ["https://10.0.0.1", "https://k8s.example:6443/"] {
        assert!(config(&[&format!("--server={good}")], &around).is_ok(), "{good}");
    }
    for good in ["http://127.0.0.1:8001", "http://[::1]:8001", "http://localhost:8001"] {
        let api_server = config(&[&format!("--server={good}")], &around).unwrap().api_server;
        let ApiServer::InCluster { ca_file, token_file, .. } = api_server else { panic!() };
        assert_eq!((ca_file, token_file), (None, None));
    }
    let bad = [
        "",
        "x",
        "10.0.0.1:443",
        "ftp://x",
        "https://x/p",
        "https://x?q",
        "https://u@x",
        "https://x:y",
    ];
    for bad in bad.into_iter().chain(["http://10.0.0.1", "http://example.com:80"]) {
        refused(&[&format!("--server={bad}")], &around, &["--server", "allowed"]);
    }
    let ca = format!("--ca-file={}", folder.path().join("ca.crt").display());
    refused(&["--server=http://127.0.0.1:1", &ca], &around, &["--ca-file", "no use"]);
    refused(&["--context=c"], &around, &["--context=c", "--kubeconfig"]);
    refused(&["--kubeconfig=/x", &ca], &around, &["--kubeconfig", "together with --ca-file"]);
}

#[cfg(not(feature = "kubeconfig"))]
#[test]
fn a_build_without_kubeconfig_says_so() {
    let words = ["--kubeconfig=/x", "without the feature kubeconfig", "--token-file"];
    refused(&["--kubeconfig=/x"], &outside(), &words);
}

#[cfg(feature = "kubeconfig")]
#[test]
fn scenario_c2_a_kubeconfig_must_be_readable_and_know_the_context() {
    refused(&["--kubeconfig=/gone"], &outside(), &["--kubeconfig=/gone", "cannot be read"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, "{contexts: [{name: a, context: {cluster: c, user: u}}]}").unwrap();
    let flag = format!("--kubeconfig={}", path.display());
    let flags = [&flag, "--namespace=n", "--context=b"];
    refused(&flags, &outside(), &["--context=b", "allowed: a"]);
    let good = config(&[&flag, "--namespace=n", "--context=a"], &outside()).unwrap();
    assert_eq!(good.api_server, ApiServer::Kubeconfig { path, context: Some("a".into()) });
}

#[test]
fn only_loopback_is_listened_on_unless_told() {
    let (around, _folder) = pod();
    for bad in ["0.0.0.0:4040", "[::]:4040", "10.1.2.3:1", "127.0.0.1:1,[::]:2", "[::ffff:a00:1]:1"]
    {
        let listen = format!("--listen={bad}");
        refused(&[&listen], &around, &["--listen=", "loopback", "--listen-anywhere"]);
        assert!(config(&[&listen, "--listen-anywhere"], &around).is_ok(), "{bad}");
    }
    assert!(config(&["--listen=127.9.9.9:1,[::1]:2,[::ffff:7f00:1]:1"], &around).is_ok());
    for bad in ["localhost:4040", "4040", "127.0.0.1", "127.0.0.1:99999", ""] {
        refused(&[&format!("--listen={bad}")], &around, &["--listen="]);
    }
}

#[test]
fn scenario_c2_a_socket_path_that_is_too_long_is_refused() {
    let (around, _folder) = pod();
    let path = |bytes: usize| format!("--socket=/{}", "s".repeat(bytes - 1));
    refused(&[&path(108)], &around, &["--socket=/s", "108 bytes", "1 to 107 bytes"]);
    let socket = config(&[&path(107), "--socket-mode=0600"], &around).unwrap().local_api.socket;
    assert_eq!(socket.map(|socket| socket.mode), Some(0o600));
    refused(&["--socket-mode=rw"], &around, &["--socket-mode=rw", "octal"]);
}

#[test]
fn max_valid_is_more_than_nothing_and_useless_beyond_the_renew_deadline() {
    let (around, _folder) = pod();
    refused(&["--max-valid=0s"], &around, &["--max-valid", "at least 1ms"]);
    refused(&["--max-valid=999us"], &around, &["--max-valid", "at least 1ms"]);
    assert!(config(&["--max-valid=9s"], &around).unwrap().warnings.is_empty());
    let warned = config(&["--max-valid=10s"], &around).unwrap();
    assert_eq!(warned.local_api.max_valid, Some(Duration::from_secs(10)));
    assert!(warned.warnings[0].contains("--max-valid=10s has no effect"));
}

#[test]
fn the_way_out_is_read_as_documented() {
    let (around, _folder) = pod();
    let flags = ["--drain-timeout=1m30s", "--on-app-exit=keep", "--unsafe-release-on-sigterm"];
    let config_of = |flags: &[&str]| config(flags, &around).unwrap();
    let expected = SteppingDown {
        drain_timeout: DrainTimeout::Explicit(Duration::from_secs(90)),
        on_app_exit: OnAppExit::Keep,
        unsafe_release_on_sigterm: true,
    };
    assert_eq!(config_of(&flags).stepping_down, expected);
    assert_eq!(config_of(&["--missing-lease=never"]).missing_lease, MissingLease::Never);
    assert_eq!(config_of(&["--missing-lease=create-free"]).missing_lease, MissingLease::CreateFree);
    refused(&["--missing-lease=no"], &around, &["--missing-lease=no: allowed: create,"]);
    refused(&["--on-app-exit=no"], &around, &["--on-app-exit=no: allowed: release, keep"]);
    refused(&["--drain-timeout=never"], &around, &["--drain-timeout=never: allowed", "or auto"]);
}
