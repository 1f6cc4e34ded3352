//! Holds: what their end means, and what only looks like one.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tenure::core::{Event, State};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

use crate::client::{Said, Stream};
use crate::site::Site;

const HOLDER: &str = "TENURE_TEST_HOLD_ADDRESS";

/// Not a test of its own: the process that holds, in a test below.
#[test]
fn the_holding_process() {
    let Ok(address) = std::env::var(HOLDER) else { return };
    let mut io = std::net::TcpStream::connect(address).unwrap();
    io.write_all(b"GET /leader/events?hold=true HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut byte = [0];
    while io.read_exact(&mut byte).is_ok() {}
}

fn holding_process(site: &Site) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds::the_holding_process", "--nocapture"])
        .env(HOLDER, site.local.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

async fn holds(site: &Site, number: u32) {
    let wait = async {
        while site.seat.look(|core| core.holds()) != number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(crate::client::PATIENCE, wait).await.expect("in time");
}

#[tokio::test]
async fn scenario_s9_a_killed_holder_releases_the_lease() {
    let site = Site::leading().await;
    let mut child = holding_process(&site);
    holds(&site, 1).await;
    child.kill().unwrap();
    child.wait().unwrap();
    site.until(|core| core.last_release().is_some()).await;
    let told = site.leader().await;
    assert_eq!((&told["reason"], &told["holds"]), (&json!("app_exited"), &json!(0)));
    assert_eq!(site.store.lock().unwrap().record.as_ref().unwrap().holder, None);
}

#[tokio::test]
async fn scenario_s9_the_first_of_two_holders_dies_and_nothing_happens() {
    let site = Site::leading().await;
    let mut child = holding_process(&site);
    holds(&site, 1).await;
    let mut other = site.stream("/leader/events?hold=true").await;
    holds(&site, 2).await;
    child.kill().unwrap();
    child.wait().unwrap();
    holds(&site, 1).await;
    assert_eq!(site.leader().await["leader"], true);
    other.event().await;
    drop(other);
    site.until(|core| core.last_release().is_some()).await;
}

/// It shut down its sending side and goes on reading: it lives, and holds.
#[tokio::test]
async fn a_half_closed_hold_is_kept() {
    let site = Site::leading().await;
    let mut observer = site.stream("/leader/events").await;
    observer.event().await;
    let mut hold = site.stream("/leader/events?hold=true").await;
    hold.event().await;
    hold.io.shutdown().await.unwrap();
    // The end-of-file is answered by a comment at once: earlier than one that comes for want of
    // anything else to say.
    tokio::select! {
        biased;
        said = hold.said() => assert_eq!(said, Some(Said::Comment)),
        said = observer.said() => panic!("{said:?} came first"),
    }
    site.skip(Duration::from_secs(2));
    assert!(matches!(hold.event().await, Said::Renewed { .. }));
    let told = site.leader().await;
    assert_eq!((&told["leader"], &told["holds"]), (&json!(true), &json!(1)));
    drop(hold);
    site.until(|core| core.last_release().is_some()).await;
}

/// Further bytes on the connection are no end of it.
#[tokio::test]
async fn a_hold_that_goes_on_talking_is_kept() {
    let site = Site::leading().await;
    let mut hold = site.stream("/leader/events?hold=true").await;
    hold.event().await;
    hold.io.write_all(b"GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    site.skip(Duration::from_secs(2));
    assert!(matches!(hold.event().await, Said::Renewed { .. }));
    assert_eq!(site.leader().await["holds"], 1);
    drop(hold);
    site.until(|core| core.last_release().is_some()).await;
}

/// The sidecar's own end is not the app's word.
#[tokio::test]
async fn a_hold_closed_by_the_server_says_nothing() {
    let mut site = Site::leading().await;
    let mut hold = site.stream("/leader/events?hold=true").await;
    hold.event().await;
    site.stop_serving().await;
    while hold.said().await.is_some() {}
    holds(&site, 0).await;
    assert_eq!(site.seat.look(|core| core.state()), State::Leading);
}

/// A peer that resets instead of closing.
#[tokio::test]
async fn a_reset_hold_is_the_app_s_word() {
    let site = Site::leading().await;
    let mut hold = site.stream("/leader/events?hold=true").await;
    hold.event().await;
    hold.io.set_zero_linger().unwrap();
    drop(hold);
    site.until(|core| core.last_release().is_some()).await;
}

/// It never reads: its buffers fill, and the rest of its backlog is one frame. It is kept, and
/// delays nobody; when it reads at last, the newest state follows what the kernel had buffered.
#[tokio::test]
async fn scenario_s13_a_hold_that_never_reads_is_kept() {
    let site = Site::leading().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let io = socket.connect(site.local).await.unwrap();
    let mut hold = Stream::open(io, "/leader/events?hold=true").await;
    holds(&site, 1).await;
    // Renewals until no more are told to it: the number of grants made stands still.
    let mut reader = site.stream("/leader/events").await;
    reader.event().await;
    let renew = async |reader: &mut Stream<_>| {
        site.skip(Duration::from_secs(2));
        loop {
            if let Said::Renewed { data } = reader.event().await {
                return data["valid_until_boottime_ms"].as_u64().unwrap();
            }
        }
    };
    for _ in 0..1_500 {
        renew(&mut reader).await;
    }
    let renewals = site.seat.look(|core| core.renewals());
    for _ in 0..100 {
        renew(&mut reader).await;
    }
    assert!(site.seat.look(|core| core.renewals()) >= renewals + 100, "it delays nobody");
    let told = site.leader().await;
    assert_eq!((&told["leader"], &told["holds"]), (&json!(true), &json!(1)), "it is kept");
    let newest = told["valid_until_boottime_ms"].as_u64().unwrap();
    // Now it reads. Far fewer events than were made come, and the newest is among them.
    let mut events = 0;
    loop {
        events += 1;
        if let Said::Renewed { data } | Said::Leader { data, .. } = hold.event().await
            && data["valid_until_boottime_ms"].as_u64().unwrap() >= newest
        {
            break;
        }
    }
    assert!(events < 1_000, "no backlog: {events}");
    // Blocked or not, its death is the app's word.
    drop(hold);
    site.until(|core| core.last_release().is_some()).await;
}

/// The same while its buffers are full: the kernel answers with a reset, and a write fails.
#[tokio::test]
async fn scenario_s13_a_full_hold_that_dies_is_noticed() {
    let site = Site::leading().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let io = socket.connect(site.local).await.unwrap();
    let hold = Stream::open(io, "/leader/events?hold=true").await;
    let mut reader = site.stream("/leader/events").await;
    for _ in 0..1_000 {
        site.skip(Duration::from_secs(2));
        while !matches!(reader.event().await, Said::Renewed { .. }) {}
    }
    drop(hold);
    site.until(|core| core.last_release().is_some()).await;
    assert_eq!(site.leader().await["reason"], "app_exited");
}

/// SIGTERM comes first; the work goes on until the hold closes.
#[tokio::test]
async fn scenario_s2_a_hold_keeps_a_draining_term_until_it_closes() {
    let site = Site::leading().await;
    let mut hold = site.stream("/leader/events?hold=true").await;
    let before = hold.until(|told| told["leader"] == true).await;
    site.seat.handle(Event::Shutdown);
    let told = hold.until(|told| told["state"] == "draining").await;
    assert_eq!((&told["leader"], &told["epoch"]), (&json!(false), &before["epoch"]));
    for _ in 0..5 {
        site.skip(Duration::from_secs(4));
        assert!(matches!(hold.event().await, Said::Renewed { .. }));
    }
    drop(hold);
    site.until(|core| core.finished()).await;
    assert!(site.seat.look(|core| core.last_release().unwrap().1));
}
