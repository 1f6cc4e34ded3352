//! `/leader`, `/is-leader`, `/`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Answer, exchange, request};
use crate::site::{ME, OTHER, Setup, Site};

#[tokio::test]
async fn a_leader_and_a_follower_tell_what_is_documented() {
    let site = Site::leading().await;
    let told = site.leader().await;
    assert_eq!(
        (&told["leader"], &told["state"], &told["reason"]),
        (&json!(true), &json!("leading"), &json!("acquired"))
    );
    assert_eq!((&told["identity"], &told["holder"]), (&json!(ME), &json!(ME)));
    assert_eq!(told["epoch"], told["lease"]["epoch"]);
    assert_eq!(told["lease"]["name"], "billing");
    assert_eq!(told["waited_ms"], 0);
    let valid = told["valid_for_ms"].as_u64().unwrap();
    assert!((1..=10_000).contains(&valid), "{told}");

    let site = Setup::new().held_by(OTHER).start().await;
    site.until(|core| core.has_read()).await;
    let told = site.leader().await;
    assert_eq!(
        (&told["leader"], &told["state"], &told["holder"]),
        (&json!(false), &json!("following"), &json!(OTHER))
    );
    assert_eq!((&told["epoch"], &told["lease"]["epoch"]), (&Value::Null, &json!(5)));
    assert_eq!(site.get("/is-leader").await.status, 503);
}

#[tokio::test]
async fn before_the_first_read_nothing_is_known() {
    let site = Setup::new().start().await;
    site.kill_elector();
    let told = site.leader().await;
    assert_eq!((&told["state"], &told["reason"]), (&json!("starting"), &json!("started")));
    for unknown in ["holder", "holder_observed_age_ms", "epoch", "leader_since"] {
        assert_eq!(told[unknown], Value::Null, "{unknown}");
    }
    assert_eq!(told["lease"]["uid"], Value::Null);
}

#[tokio::test]
async fn scenario_a10_a_dead_elector_turns_the_answer_false_in_time() {
    let site = Site::leading().await;
    assert_eq!(site.get("/is-leader").await.status, 200);
    assert_eq!(site.admin("GET", "/livez").await.status, 200);
    site.kill_elector();
    site.clock.skip(Duration::from_secs(10));
    let told = site.leader().await;
    assert_eq!((&told["leader"], &told["reason"]), (&json!(false), &json!("renew_deadline")));
    assert_eq!(site.get("/is-leader").await.status, 503);
    assert_eq!(site.admin("GET", "/livez").await.status, 503);
}

#[tokio::test]
async fn grants_can_be_shortened_and_demanded() {
    let site = Site::leading().await;
    let told = site.get("/leader?max_valid=2s").await.json();
    assert_eq!((&told["leader"], &told["valid_for_ms"]), (&json!(true), &json!(2_000)));
    let told = site.get("/leader?min_valid=9999ms").await.json();
    assert_eq!(told["leader"], told["valid_for_ms"].as_u64().unwrap() >= 9_999);
    site.store.lock().unwrap().silent = true;
    site.skip(Duration::from_secs(5));
    let told = site.get("/leader?min_valid=8s").await.json();
    assert_eq!(told["leader"], false, "{told}");
    assert!(told["valid_for_ms"].as_u64().unwrap() < 8_000, "{told}");
    assert_eq!(site.get("/is-leader?min_valid=8s").await.status, 503);
    assert_eq!(site.get("/is-leader?min_valid=1s&max_valid=2s").await.status, 200);
}

#[tokio::test]
async fn head_works_where_get_does_and_grants_nothing() {
    let site = Site::leading().await;
    for target in ["/leader", "/leader/events", "/leader?wait=5m", "/"] {
        let answer = site.send("HEAD", target, &[], "").await;
        assert_eq!((answer.status, &*answer.body), (200, &b""[..]), "{target}");
    }
    let answer = site.send("HEAD", "/fence/7", &[], "").await;
    assert_eq!((answer.status, &*answer.body), (200, &b""[..]));
    // Nobody was told anything, so nothing has to lapse before the release.
    site.seat.handle(tenure::core::Event::Shutdown);
    site.until(|core| core.finished()).await;
    assert!(site.seat.look(|core| core.last_release().unwrap().1), "released at once");
    let answer = site.send("HEAD", "/is-leader", &[], "").await;
    assert_eq!((answer.status, &*answer.body), (503, &b""[..]));
}

#[tokio::test]
async fn a_long_poll_ends_with_a_change_a_renewal_or_the_wait() {
    let site = Setup::new().held_by(OTHER).start().await;
    site.until(|core| core.has_read()).await;
    let version = site.leader().await["version"].as_u64().unwrap();
    let told = site.get("/leader?wait=5m&after=1").await.json();
    assert_eq!(told["version"], version, "another version: at once");
    let told = site.get(&format!("/leader?wait=40ms&after={version}")).await.json();
    assert!(told["waited_ms"].as_u64().unwrap() >= 40, "{told}");
    let target = format!("/leader?wait=5m&after={version}");
    let (told, ()) = tokio::join!(site.get(&target), async {
        // The holder dies: its record runs out, and this pod takes over.
        tokio::time::sleep(Duration::from_millis(20)).await;
        site.skip(Duration::from_secs(16));
    });
    assert!(told.json()["version"].as_u64().unwrap() > version);
    site.leads().await;
    let before = site.leader().await;
    let target = format!("/leader?wait=5m&after={}", before["version"]);
    let (told, ()) = tokio::join!(site.get(&target), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        site.skip(Duration::from_secs(2));
    });
    let told = told.json();
    assert_eq!(told["version"], before["version"], "a renewal is no change");
    let until = |told: &Value| told["valid_until_boottime_ms"].as_u64().unwrap();
    assert!(until(&told) > until(&before), "{told}");
}

#[tokio::test]
async fn a_long_poll_whose_caller_is_gone_is_not_kept() {
    use tokio::io::AsyncWriteExt as _;
    let site = Site::leading().await;
    let version = site.leader().await["version"].as_u64().unwrap();
    let mut io = site.tcp().await;
    let ask = request("GET", &format!("/is-leader?wait=5m&after={version}"), &[], "");
    io.write_all(ask.as_bytes()).await.unwrap();
    io.shutdown().await.unwrap();
    // A caller that only closed its sending side reads its answer, at once.
    let answer = exchange(io, b"").await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn the_old_image_s_contract() {
    let name = |answer: Answer| answer.json()["name"].as_str().unwrap().to_owned();
    let site = Site::leading().await;
    assert_eq!(name(site.send("GET", "/", &["Accept: text/html"], "").await), "web-0");
    // No longer so while it gives the Lease up, and when that is done nobody holds it.
    site.store.lock().unwrap().silent = true;
    assert_eq!(site.release(r#"{"wait": "0s"}"#).await.status, 202);
    assert_eq!(site.leader().await["state"], "draining");
    assert_eq!(name(site.get("/").await), "");

    let site = Setup::new().held_by(OTHER).start().await;
    site.until(|core| core.has_read()).await;
    assert_eq!(name(site.get("/").await), "api-0");
    // A pod of the same name, as a StatefulSet makes them.
    let site = Setup::new().held_by("web-0_uid-9").start().await;
    site.until(|core| core.has_read()).await;
    assert_eq!(site.leader().await["holder"], "web-0_uid-9");
    assert_eq!(name(site.get("/").await), "");
}

#[tokio::test]
async fn every_body_says_dev() {
    let mut setup = Setup::new();
    setup.config.dev = true;
    let site = setup.start().await;
    site.leads().await;
    for target in ["/leader", "/is-leader", "/", "/fence/7", "/fence/8", "/nowhere", "/leader?x=1"]
    {
        assert_eq!(site.get(target).await.json()["dev"], true, "{target}");
    }
    let mut stream = site.stream("/leader/events").await;
    assert_eq!(stream.until(|_| true).await["dev"], true);
    assert_eq!(site.release("").await.json()["dev"], true);
    assert_eq!(site.admin("GET", "/readyz").await.json()["dev"], true);
}

/// Leader, epoch and validity of each answer belong together, whatever happens around it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_a8_ten_thousand_reads_while_leadership_flaps() {
    let mut setup = Setup::new();
    setup.options.timing =
        tenure::timing::Timing::new(secs(2_000), secs(1_600), secs(400)).unwrap();
    let site = Arc::new(setup.start().await);
    let flapping = tokio::spawn({
        let site = Arc::clone(&site);
        async move {
            for _ in 0..20 {
                site.leads().await;
                site.release(r#"{"cool_down": "1ms"}"#).await;
                site.skip(secs(400));
            }
        }
    });
    let flapping = Arc::new(flapping);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (site, flapping) = (Arc::clone(&site), Arc::clone(&flapping));
            tokio::spawn(async move {
                let mut seen = BTreeMap::new();
                let mut connection = KeptAlive::new(site.tcp().await);
                let mut reads = 0;
                while reads < 2_500 || !flapping.is_finished() {
                    reads += 1;
                    let told = connection.get("/leader").await;
                    judge(&told.json(), &mut seen);
                    crate::spec::check("local", "GET", "/leader", &told);
                }
                seen
            })
        })
        .collect();
    for reader in readers {
        let seen = reader.await.unwrap();
        let terms: BTreeSet<u64> = seen.values().filter_map(|(_, epoch)| epoch.as_u64()).collect();
        assert!(terms.len() > 3, "leadership flapped: {seen:?}");
    }
}

fn secs(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One version says one thing, and an epoch is told only with the validity it has.
fn judge(told: &Value, seen: &mut BTreeMap<u64, (Value, Value)>) {
    let leading = told["state"] == "leading";
    assert_eq!(told["leader"], leading && told["valid_for_ms"] != 0, "{told}");
    assert_eq!(told["epoch"].is_null(), !leading, "{told}");
    let version = told["version"].as_u64().unwrap();
    let this = (told["state"].clone(), told["epoch"].clone());
    assert_eq!(seen.entry(version).or_insert_with(|| this.clone()), &this, "{told}");
    assert_eq!(seen.last_key_value().unwrap().0, &version, "versions only grow");
}

/// Requests one after the other over one connection.
struct KeptAlive(tokio::net::TcpStream, Vec<u8>);

impl KeptAlive {
    fn new(io: tokio::net::TcpStream) -> KeptAlive {
        KeptAlive(io, Vec::new())
    }

    async fn get(&mut self, target: &str) -> Answer {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let ask = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.write_all(ask.as_bytes()).await.unwrap();
        loop {
            if let Some(end) = self.1.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = Answer::parse(&self.1[..end + 4]);
                let length: usize = head.header("content-length").unwrap().parse().unwrap();
                if self.1.len() >= end + 4 + length {
                    let whole: Vec<u8> = self.1.drain(..end + 4 + length).collect();
                    return Answer::parse(&whole);
                }
            }
            let count = self.0.read_buf(&mut self.1).await.unwrap();
            assert!(count > 0, "closed");
        }
    }
}
