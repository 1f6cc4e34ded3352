//! Told, not asserted: how long nobody leads, as apps see it that wait at `/leader?wait`.
//!
//! `cargo test --test real measure -- --nocapture` shows the figures.

use std::time::{Duration, Instant};

use futures_util::future::select_all;
use serde_json::{Value, json};
use tenure::client::{Call, Endpoint};
use tokio::task::JoinHandle;

use crate::bed::{PATIENCE, QUICK, Sidecar, Site, eventually, led_by, one_leader};
use crate::judge::Watch;

const RELEASES: usize = 24;
const CRASHES: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn a_measure_of_releases_and_crashes_on_the_real_api_server() {
    let site = Site::new("measure", QUICK).await;
    let watch = Watch::start(&site).await;
    let mut sidecars = Vec::from(led_by(site.trio().await).await);
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..RELEASES {
        let leader = take_leader(&mut sidecars).await;
        leader.heard(&site).await;
        let next = sidecars.iter().map(waiting).collect();
        let begin = Instant::now();
        let (status, body) = leader.give_up(&site, json!({})).await;
        let end = Instant::now();
        assert_eq!((status, &body["released"]), (200, &json!(true)));
        let at = first(next).await;
        asked.push(at - begin);
        answered.push(at.saturating_duration_since(end));
        // Cooling down, it is no candidate: the next round has three again.
        eventually("it campaigns again", async || leader.state().await == "following").await;
        sidecars.push(leader);
    }
    let mut crashes = Vec::new();
    for _ in 0..CRASHES {
        let mut leader = take_leader(&mut sidecars).await;
        let next = sidecars.iter().map(waiting).collect();
        let begin = Instant::now();
        leader.kill();
        crashes.push(first(next).await - begin);
        sidecars.push(site.start("again").await);
    }
    tell("POST /release sent until the next leader's answer", asked);
    tell("POST /release answered until the next leader's answer", answered);
    tell("SIGKILL until the next leader's answer, L = 3 s", crashes);
    assert!(watch.assert_epochs_grow() > RELEASES + CRASHES);
    site.ledger.assert_no_overlap(Vec::new());
}

async fn take_leader(sidecars: &mut Vec<Sidecar>) -> Sidecar {
    let all: Vec<&Sidecar> = sidecars.iter().collect();
    let leader = one_leader(&all).await;
    for other in sidecars.iter() {
        let follows = async || matches!(&*other.state().await, "following" | "leading");
        eventually("the others follow", follows).await;
    }
    sidecars.remove(leader)
}

/// An app that waits to lead, and tells when it was told.
fn waiting(sidecar: &Sidecar) -> JoinHandle<Instant> {
    async fn ask(at: &Endpoint, target: &str) -> Value {
        let answer = Call::get(target).send(at, PATIENCE).await.expect("an answer");
        serde_json::from_slice(&answer.body).expect("a JSON body")
    }
    let at = sidecar.local.clone();
    tokio::spawn(async move {
        let mut body = ask(&at, "/leader").await;
        while body["leader"] != true {
            body = ask(&at, &format!("/leader?wait=30s&after={}", body["version"])).await;
        }
        Instant::now()
    })
}

async fn first(waiting: Vec<JoinHandle<Instant>>) -> Instant {
    let (at, _, rest) = select_all(waiting).await;
    for other in rest {
        other.abort();
    }
    at.expect("an app")
}

fn tell(what: &str, mut figures: Vec<Duration>) {
    figures.sort_unstable();
    let (count, last) = (figures.len(), figures.len() - 1);
    let [median, most] = [figures[count / 2], figures[last]];
    println!("{what}: n {count}, least {:?}, median {median:?}, most {most:?}", figures[0]);
}
