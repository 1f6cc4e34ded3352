//! `status`, `wait` and `release` against a stand-in for the sidecar.

use serde_json::{Value, json};

use super::stub::{Says, Stub, following, leading};
use super::{Ran, run, tenure};

const EPOCH: u64 = (1 << 53) - 1;

#[tokio::test]
async fn status_exits_0_for_the_leader_and_1_for_others() {
    let stub = Stub::new(leading(7, EPOCH, 8_123));
    let url = stub.serve().await;
    let ran = run(&["status"], &[("TENURE_URL", &url)]).await;
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    let words = ["leader state=leading reason=acquired", "epoch=9007199254740991", "shop/billing"];
    assert!(words.iter().all(|word| ran.out.contains(word)), "{}", ran.out);

    stub.say(following(8, Some("web-b_2"), Some(3)));
    let ran = run(&["status", "--url", &url], &[("TENURE_URL", "http://127.0.0.1:1")]).await;
    assert_eq!((ran.code, &*ran.err), (Some(1), ""));
    assert!(ran.out.starts_with("not-leader state=following"), "{}", ran.out);
    assert!(ran.out.contains("holder=web-b_2"), "{}", ran.out);
    assert_eq!(stub.asked()[1].host, url.strip_prefix("http://").unwrap());
}

#[tokio::test]
async fn status_json_is_the_body_as_it_came() {
    let says = leading(7, 42, 8_123);
    let Says::Body(body) = says.clone() else { unreachable!() };
    let url = Stub::new(says).serve().await;
    let ran = run(&["status", "--json", "--url", &url], &[]).await;
    assert_eq!(ran.code, Some(0));
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), body);
    assert_eq!(run(&["status", "--url", &url], &[("TENURE_JSON", "true")]).await.out, ran.out);
}

#[tokio::test]
async fn status_exits_2_where_it_cannot_tell() {
    let stub = Stub::new(Says::Error(403));
    let url = stub.serve().await;
    let one_line = |ran: &Ran, word: &str| {
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{}", ran.err);
        assert!(ran.err.lines().count() == 1 && ran.err.contains(word), "{}", ran.err);
    };
    one_line(&run(&["status", "--url", &url], &[]).await, "403 Forbidden: not for you");
    stub.say(Says::Body(json!({"leader": true})));
    one_line(&run(&["status", "--url", &url], &[]).await, "cannot be read");
    stub.say(Says::Nothing);
    one_line(&run(&["status", "--url", &url], &[]).await, "no answer within");
    one_line(&run(&["status", "--url=unix:/gone"], &[]).await, "unix:/gone cannot be reached");
}

#[tokio::test]
async fn status_does_not_believe_a_grant_that_is_over() {
    let url = Stub::new(leading(7, 42, 0)).serve().await;
    assert_eq!(run(&["status", "--url", &url], &[]).await.code, Some(1));
}

#[tokio::test]
async fn an_unknown_variable_only_warns() {
    let url = Stub::new(leading(7, 42, 8_123)).serve().await;
    let variables = [("TENURE_ULR", "x"), ("TENURE_PORT", "tcp://10.0.0.7:80")];
    let ran = run(&["status", "--url", &url], &variables).await;
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.lines().count() == 1 && ran.err.contains("TENURE_ULR"), "{}", ran.err);
}

#[tokio::test]
async fn wait_follows_the_changes_and_prints_the_epoch() {
    let stub = Stub::new(following(7, None, None));
    let url = stub.serve().await;
    let child = tenure(&["wait", "--url", &url], &[]).spawn().unwrap();
    stub.asked_times(2).await;
    stub.say(following(8, Some("web-b_2"), Some(41)));
    stub.asked_times(3).await;
    stub.say(leading(9, 42, 8_123));
    let ran = Ran::from(child.wait_with_output().await.unwrap());
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "42\n", ""));
    let targets: Vec<String> = stub.asked().into_iter().map(|asked| asked.target).collect();
    assert_eq!(
        targets,
        ["/is-leader", "/is-leader?wait=30000ms&after=7", "/is-leader?wait=30000ms&after=8"]
    );
}

#[tokio::test]
async fn wait_for_a_holder_takes_an_identity_or_a_pods_name() {
    let url = Stub::new(following(7, Some("web-b_2"), Some(41))).serve().await;
    for name in ["holder=web-b", "holder=web-b_2"] {
        let ran = run(&["wait", "--for", name, "--url", &url], &[]).await;
        assert_eq!((ran.code, &*ran.out), (Some(0), "41\n"), "{}", ran.err);
    }
    let ran = run(&["wait", "--for=holder=web", "--timeout=100ms", "--url", &url], &[]).await;
    assert_eq!(ran.code, Some(1), "a prefix is no name");
}

#[tokio::test]
async fn wait_gives_up_after_its_timeout_with_what_it_heard_last() {
    let stub = Stub::new(following(7, Some("web-b_2"), Some(41)));
    let url = stub.serve().await;
    let ran = run(&["wait", "--timeout=300ms", "--url", &url], &[]).await;
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    assert!(ran.err.lines().count() == 1 && ran.err.contains("--timeout=300ms"), "{}", ran.err);
    stub.say(Says::Error(403));
    assert_eq!(run(&["wait", "--url", &url], &[]).await.code, Some(2), "asking on would not help");
}

#[tokio::test]
async fn wait_survives_a_sidecar_that_is_not_up_yet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.sock");
    let url = format!("unix:{}", path.display());
    let child = tenure(&["wait", "--url", &url], &[]).spawn().unwrap();
    // One that takes the call and dies: proof that it was asked.
    let dying = tokio::net::UnixListener::bind(&path).unwrap();
    drop(dying.accept().await.unwrap());
    drop(dying);
    std::fs::remove_file(&path).unwrap();
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let stub = Stub::new(leading(1, 42, 8_123));
    tokio::spawn(axum::serve(listener, stub.router()).into_future());
    let ran = Ran::from(child.wait_with_output().await.unwrap());
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "42\n", ""));
    assert_eq!(stub.asked()[0].host, "localhost");
}

#[tokio::test]
async fn wait_for_not_leader_takes_silence_beyond_the_grant_as_the_end() {
    let stub = Stub::new(leading(7, 42, 1_000));
    let url = stub.serve().await;
    let child = tenure(&["wait", "--for=not-leader", "--url", &url], &[]).spawn().unwrap();
    // The first was answered before the second came.
    stub.asked_times(2).await;
    stub.say(Says::Nothing);
    let ran = Ran::from(child.wait_with_output().await.unwrap());
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
}

/// Scenario P5 from the app's side: whichever family `localhost` has, the sidecar is found.
#[tokio::test]
async fn scenario_p5_localhost_is_every_loopback_address() {
    use socket2::{Domain, Socket, Type};
    let v6 = tokio::net::TcpListener::bind("[::1]:0").await.unwrap();
    let port = v6.local_addr().unwrap().port();
    // Bound and not listening: nobody else can be found on 127.0.0.1.
    let v4 = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    v4.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
    let stub = Stub::new(leading(7, 42, 8_123));
    tokio::spawn(axum::serve(v6, stub.router()).into_future());
    let url = format!("http://localhost:{port}");
    assert_eq!(run(&["status", "--url", &url], &[]).await.code, Some(0));
    assert_eq!(stub.asked()[0].host, format!("localhost:{port}"));
}

#[tokio::test]
async fn release_says_what_it_was_told_to() {
    let stub = Stub::new(Says::Nothing);
    let url = stub.serve().await;
    stub.answer_release(200, json!({"released": true, "epoch": 42}));
    let ran = run(&["release", "--url", &url], &[]).await;
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "released epoch 42\n", ""));
    let flags = ["release", "--epoch=42", "--final", "--wait=1m1s", "--url", &url];
    assert_eq!(run(&flags, &[]).await.code, Some(0));
    let bodies: Vec<Value> =
        stub.asked().iter().map(|asked| serde_json::from_str(&asked.body).unwrap()).collect();
    assert_eq!(bodies[0], json!({"final": false, "wait": "10000ms"}));
    assert_eq!(bodies[1], json!({"final": true, "wait": "61000ms", "epoch": 42}));
    assert_eq!(stub.asked()[0].bearer, None);
}

#[tokio::test]
async fn release_of_nothing_held_is_success() {
    let url = Stub::new(Says::Nothing).serve().await;
    let ran = run(&["release", "--url", &url], &[]).await;
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "nothing held\n", ""));
}

#[tokio::test]
async fn release_that_did_not_happen_is_one_line_and_exit_code_1() {
    let stub = Stub::new(Says::Nothing);
    let url = stub.serve().await;
    let cases = [
        (202, json!({"released": false, "epoch": 42}), "not released the Lease within 10s"),
        (409, json!({"error": "epoch 43 is held"}), "409 Conflict: epoch 43 is held"),
        (401, json!({"error": "token"}), "401 Unauthorized: token"),
        (200, json!({}), "cannot be read"),
        (200, json!({"released": false}), "not released"),
    ];
    let times = cases.len();
    for (status, body, word) in cases {
        stub.answer_release(status, body);
        let ran = run(&["release", "--url", &url], &[]).await;
        assert_eq!((ran.code, &*ran.out), (Some(1), ""), "{}", ran.err);
        assert!(ran.err.lines().count() == 1 && ran.err.contains(word), "{}", ran.err);
    }
    assert_eq!(stub.asked().len(), times, "each was said once: saying it again is not the same");
    let ran = run(&["release", "--url=unix:/gone"], &[]).await;
    assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{}", ran.err);
}

#[tokio::test]
async fn release_brings_the_control_token() {
    let stub = Stub::new(Says::Nothing);
    let url = stub.serve().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "s3cret\n").unwrap();
    let variables = [("TENURE_CONTROL_TOKEN_FILE", path.to_str().unwrap()), ("TENURE_URL", &url)];
    assert_eq!(run(&["release"], &variables).await.code, Some(0));
    assert_eq!(stub.asked()[0].bearer.as_deref(), Some("Bearer s3cret"));
}
