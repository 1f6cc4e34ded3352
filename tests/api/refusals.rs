//! What is not answered, and how that is said.

use crate::client::{exchange, request};
use crate::site::{Setup, Site};

#[tokio::test]
async fn unknown_paths_and_wrong_methods() {
    let site = Site::leading().await;
    for target in
        ["/nowhere", "/leader/", "/Leader", "/fence", "/fence/1/2", "/metrics", "/livez", "/ui"]
    {
        assert_eq!(site.get(target).await.status, 404, "{target}");
    }
    for (method, target, allow) in [
        ("POST", "/leader", "GET, HEAD"),
        ("DELETE", "/leader", "GET, HEAD"),
        ("OPTIONS", "/is-leader", "GET, HEAD"),
        ("PUT", "/leader/events", "GET, HEAD"),
        ("PATCH", "/", "GET, HEAD"),
        ("POST", "/fence/7", "GET, HEAD"),
        ("GET", "/release", "POST"),
        ("HEAD", "/release", "POST"),
    ] {
        let answer = site.send(method, target, &[], "").await;
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some(allow)),
            "{method} {target}"
        );
    }
    assert_eq!(site.leader().await["leader"], true, "nothing of this did anything");
}

#[tokio::test]
async fn bad_queries_and_epochs() {
    let site = Site::leading().await;
    for (target, status) in [
        ("/leader?wait=soon", 400),
        ("/leader?after=x", 400),
        ("/leader?max_vaild=2s", 400),
        ("/leader?wait=1s&wait=1s", 400),
        ("/leader?min_valid=%ff", 400),
        ("/leader?wait=301s", 422),
        ("/leader?min_valid=10s", 422),
        ("/leader?min_valid=3s&max_valid=2s", 422),
        ("/is-leader?max_valid=0s", 422),
        ("/leader/events?hold=yes", 400),
        ("/leader/events?hodl=true", 400),
        ("/fence/x", 400),
        ("/fence/", 400),
        ("/fence/-1", 400),
        ("/fence/+1", 400),
        ("/fence/0", 422),
        ("/fence/9007199254740992", 422),
        ("/fence/99999999999999999999999", 422),
    ] {
        assert_eq!(site.get(target).await.status, status, "{target}");
    }
}

#[tokio::test]
async fn bad_bodies() {
    let site = Site::leading().await;
    for (body, status) in [
        ("nonsense", 400),
        ("[]", 400),
        (r#"{"epoch": "7"}"#, 400),
        (r#"{"epcoh": 7}"#, 400),
        (r#"{"epoch": 0}"#, 422),
        (r#"{"wait": "1h"}"#, 422),
    ] {
        assert_eq!(site.release(body).await.status, status, "{body}");
    }
    let large = format!("{{\"wait\": \"{}\"}}", "1".repeat(5_000));
    assert_eq!(site.release(&large).await.status, 413);
    let huge = " ".repeat(900_000);
    assert_eq!(site.release(&huge).await.status, 413);
    // A chunked one, which does not say how long it will be.
    let head = "POST /release HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let chunked = format!("{head}1388\r\n{}\r\n0\r\n\r\n", " ".repeat(5_000));
    assert_eq!(exchange(site.tcp().await, chunked.as_bytes()).await.status, 413);
    assert_eq!(site.leader().await["leader"], true, "nothing of this did anything");
}

#[tokio::test]
async fn heads_are_bounded() {
    let site = Site::leading().await;
    let long = format!("X-Long: {}", "x".repeat(20_000));
    let answer =
        exchange(site.tcp().await, request("GET", "/leader", &[&long], "").as_bytes()).await;
    assert_eq!(answer.status, 431);
    let many: Vec<String> = (0..100).map(|number| format!("X-{number}: 1")).collect();
    let many: Vec<&str> = many.iter().map(|header| &**header).collect();
    let answer = exchange(site.tcp().await, request("GET", "/leader", &many, "").as_bytes()).await;
    assert_eq!(answer.status, 431);
    assert_eq!(site.leader().await["leader"], true);
}

#[tokio::test]
async fn a_web_page_that_rebinds_dns_gets_nothing() {
    let mut setup = Setup::new();
    setup.config.allowed_hosts = vec!["tenure.internal".into()];
    let site = setup.start().await;
    for host in
        ["Host: evil.example", "Host: evil.example:4040", "Host: localhost.evil.example", ""]
    {
        for (method, target) in
            [("GET", "/leader"), ("GET", "/"), ("POST", "/release"), ("GET", "/nowhere")]
        {
            let answer = site.send(method, target, &[host], "").await;
            assert_eq!(answer.status, 403, "{host} {target}");
        }
    }
    for host in
        ["Host: localhost", "Host: 127.0.0.1:4040", "Host: [::1]:4040", "Host: TENURE.internal:1"]
    {
        assert_eq!(site.send("GET", "/leader", &[host], "").await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn a_web_page_of_another_origin_changes_nothing() {
    let site = Site::leading().await;
    for header in [
        "Origin: http://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        assert_eq!(site.send("POST", "/release", &[header], "").await.status, 403, "{header}");
        // A hold's closing would be the app's word.
        let answer = site.send("GET", "/leader/events?hold=true", &[header], "").await;
        assert_eq!(answer.status, 403, "{header}");
        assert_eq!(site.send("GET", "/leader", &[header], "").await.status, 200, "{header}");
    }
    assert_eq!(site.leader().await["leader"], true);
    let same = ["Origin: http://localhost:4040", "Sec-Fetch-Site: same-origin"];
    assert_eq!(site.send("POST", "/release", &same, "").await.json()["released"], true);
}

#[tokio::test]
async fn changing_calls_bring_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "secret\n").unwrap();
    let mut setup = Setup::new();
    setup.config.control_token_file = Some(file.clone());
    let site = setup.start().await;
    site.leads().await;
    for headers in [
        &[][..],
        &["Authorization: Bearer wrong"],
        &["Authorization: Basic secret"],
        &["Authorization: Bearer "],
    ] {
        let answer = site.send("POST", "/release", headers, "").await;
        assert_eq!(answer.status, 401, "{headers:?}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"));
        let answer = site.send("GET", "/leader/events?hold=true", headers, "").await;
        assert_eq!(answer.status, 401, "{headers:?}");
    }
    assert_eq!(site.leader().await["leader"], true, "reading needs none");
    std::fs::remove_file(&file).unwrap();
    let bearer = ["Authorization: Bearer secret"];
    assert_eq!(site.send("POST", "/release", &bearer, "").await.status, 503, "unknown");
    std::fs::write(&file, "").unwrap();
    assert_eq!(site.send("POST", "/release", &["Authorization: Bearer "], "").await.status, 401);
    std::fs::write(&file, "newer").unwrap();
    assert_eq!(site.send("POST", "/release", &bearer, "").await.status, 401, "rotated");
    let bearer = ["authorization: bearer newer"];
    assert_eq!(site.send("POST", "/release", &bearer, "").await.json()["released"], true);
}
