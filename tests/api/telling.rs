//! `POST /release` and `GET /fence/{epoch}`.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::core::State;

use crate::site::{OTHER, Setup, Site};

async fn epoch(site: &Site) -> u64 {
    site.leader().await["epoch"].as_u64().unwrap()
}

#[tokio::test]
async fn a_release_is_done_when_it_is_answered() {
    let site = Site::leading().await;
    let epoch = epoch(&site).await;
    let body = json!({"epoch": epoch, "cool_down": "60s", "wait": "10s"}).to_string();
    let answer = site.release(&body).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"released": true, "epoch": epoch})));
    assert_eq!(site.store.lock().unwrap().record.as_ref().unwrap().holder, None);
    assert_eq!(site.leader().await["state"], "cooling_down");
    // Once more says the same; without the epoch it speaks of what is held now: nothing.
    let answer = site.release(&body).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"released": true, "epoch": epoch})));
    let answer = site.release("").await;
    assert_eq!((answer.status, answer.json()), (200, json!({"released": false, "held": false})));
}

#[tokio::test]
async fn a_release_that_takes_longer_than_the_wait_goes_on() {
    let site = Site::leading().await;
    let epoch = epoch(&site).await;
    site.store.lock().unwrap().silent = true;
    let answer = site.release(r#"{"wait": "10ms"}"#).await;
    let held = json!({"released": false, "held": true, "epoch": epoch});
    assert_eq!((answer.status, answer.json()), (202, held));
    let told = site.leader().await;
    assert_eq!(
        (&told["leader"], &told["state"], &told["epoch"]),
        (&json!(false), &json!("draining"), &Value::Null)
    );
    site.store.lock().unwrap().silent = false;
    let body = json!({ "epoch": epoch }).to_string();
    let (answer, ()) = tokio::join!(site.release(&body), async {
        site.skip(Duration::from_secs(4));
    });
    assert_eq!(answer.json()["released"], true, "the one who asks again waits for it too");
}

#[tokio::test]
async fn a_release_that_fails_is_told() {
    let site = Site::leading().await;
    let epoch = epoch(&site).await;
    site.store.lock().unwrap().silent = true;
    let (answer, ()) = tokio::join!(site.release(r#"{"wait": "5m"}"#), async {
        site.until(|core| core.state() == State::Draining).await;
        site.skip(Duration::from_secs(30));
    });
    assert_eq!((answer.status, answer.json()), (200, json!({"released": false, "held": false})));
    let answer = site.release(&json!({ "epoch": epoch }).to_string()).await;
    assert_eq!(answer.json()["released"], false, "{answer:?}");
}

#[tokio::test]
async fn scenario_s15_the_epoch_of_an_earlier_term_ends_no_new_one() {
    let site = Site::leading().await;
    let first = epoch(&site).await;
    assert_eq!(site.release(r#"{"cool_down": "1ms"}"#).await.status, 200);
    site.leads().await;
    let second = epoch(&site).await;
    assert!(second > first);
    assert_eq!(site.release(&json!({ "epoch": first }).to_string()).await.status, 409);
    let told = site.leader().await;
    assert_eq!((&told["leader"], &told["epoch"]), (&json!(true), &json!(second)));

    let standby = Setup::new().held_by(OTHER).start().await;
    standby.until(|core| core.has_read()).await;
    for body in ["", r#"{"epoch": 7}"#] {
        let answer = standby.release(body).await;
        let nothing = json!({"released": false, "held": false});
        assert_eq!((answer.status, answer.json()), (200, nothing), "{body}");
    }
}

#[tokio::test]
async fn final_means_this_process_whether_it_holds_anything_or_not() {
    let site = Setup::new().held_by(OTHER).start().await;
    site.until(|core| core.has_read()).await;
    assert_eq!(site.release(r#"{"final": true}"#).await.json()["held"], false);
    site.skip(Duration::from_secs(60));
    assert_eq!(site.leader().await["state"], "cooling_down");
    assert_eq!(site.store.lock().unwrap().record.as_ref().unwrap().holder.as_deref(), Some(OTHER));
}

#[tokio::test]
async fn the_fence_tells_whether_a_greater_epoch_is_granted() {
    let site = Site::leading().await;
    let epoch = epoch(&site).await;
    let fence = async |epoch: u64| {
        let answer = site.get(&format!("/fence/{epoch}")).await;
        (answer.status, answer.json())
    };
    let (status, told) = fence(epoch).await;
    let current =
        json!({"current": true, "held": true, "newest_epoch": epoch, "holder": crate::site::ME});
    assert_eq!((status, told), (200, current));
    for other in [epoch - 1, epoch + 1] {
        let (status, told) = fence(other).await;
        assert_eq!((status, &told["newest_epoch"]), (409, &json!(epoch)), "{told}");
    }
    site.release(r#"{"final": true}"#).await;
    let (status, told) = fence(epoch).await;
    let free = json!({"current": true, "held": false, "newest_epoch": epoch, "holder": null});
    assert_eq!((status, told), (200, free), "released, and no greater one granted");
    // An elector without epochs takes it.
    {
        let mut store = site.store.lock().unwrap();
        let record = store.record.as_mut().unwrap();
        record.holder = Some("client-go".into());
        record.transitions = record.transitions.map(|number| number + 1);
    }
    assert_eq!(fence(epoch).await.0, 409);
    site.store.lock().unwrap().record = None;
    assert_eq!(fence(epoch).await.0, 409, "missing");
    site.quorum.broken.store(true, SeqCst);
    assert_eq!(fence(epoch).await.0, 503);
}
