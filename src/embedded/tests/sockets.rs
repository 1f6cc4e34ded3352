use super::*;
use std::io::ErrorKind;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Only a hang may take so long.
const PATIENCE: Duration = Duration::from_secs(30);

async fn serve(api: &LeaseApi) -> Server {
    api.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap()
}

async fn send(addr: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// What comes until the connection ends, and how it ends.
async fn rest(mut stream: TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an end");
    read.map(|_| String::from_utf8(bytes).unwrap())
}

fn get_as(token: &str) -> String {
    format!(
        "GET {PATH}/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    )
}

#[tokio::test]
async fn tokens_tell_callers_apart() {
    let api = api_with_lease();
    let server = serve(&api).await;
    api.map_token("secret", "a");
    let code = async |token: &str| {
        let answer = rest(send(server.addr(), &get_as(token)).await).await.unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!((code("secret").await, code("b").await), ("200".into(), "200".into()));
    api.revoke_token("secret");
    assert_eq!(code("secret").await, "401");
    let callers: Vec<String> = api.requests().into_iter().map(|r| r.caller).collect();
    assert_eq!(callers, ["a", "b", "a"]);
}

#[tokio::test]
async fn a_reset_is_one_and_a_dropped_answer_is_a_closed_connection() {
    let api = api_with_lease();
    let server = serve(&api).await;
    api.fault(Fault::on(Verb::Get, Effect::Reset).once());
    let reset = rest(send(server.addr(), &get_as("a")).await).await.unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    api.fault(Fault::on(Verb::Get, Effect::DropAnswer).once());
    assert_eq!(rest(send(server.addr(), &get_as("a")).await).await.unwrap(), "");
    let answer = rest(send(server.addr(), &get_as("a")).await).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn a_watch_is_closed_with_its_client() {
    let api = api_with_lease();
    let server = serve(&api).await;
    let watch = format!("GET {PATH}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    let watching = send(server.addr(), &watch).await;
    timeout(PATIENCE, api.until(|api| api.open_watches().len() == 1)).await.unwrap();
    drop(watching);
    timeout(PATIENCE, api.until(|api| api.open_watches().is_empty())).await.unwrap();
}

#[tokio::test]
async fn a_reset_breaks_an_open_watch() {
    let api = api_with_lease();
    let server = serve(&api).await;
    let watch = format!("GET {PATH}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    let watching = send(server.addr(), &watch).await;
    timeout(PATIENCE, api.until(|api| api.open_watches().len() == 1)).await.unwrap();
    api.command_watches(None, WatchCommand::Reset);
    let told = rest(watching).await.unwrap_or_default();
    assert!(!told.ends_with("0\r\n\r\n"), "no orderly end: {told}");
}

#[tokio::test]
async fn a_stopped_server_refuses_and_can_be_started_again() {
    let api = api_with_lease();
    let server = serve(&api).await;
    let addr = server.addr();
    let idle = TcpStream::connect(addr).await.unwrap();
    server.stop().await;
    assert_eq!(rest(idle).await.unwrap_or_default(), "");
    let refused = TcpStream::connect(addr).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let again = api.serve(TcpListener::bind(addr).await.unwrap()).unwrap();
    let answer = rest(send(again.addr(), &get_as("a")).await).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn a_bare_router_breaks_the_body_of_a_cut_answer() {
    let api = api_with_lease();
    api.fault(Fault::on(Verb::Get, Effect::Reset));
    let request = Request::get(format!("{PATH}/x")).body(axum::body::Body::empty()).unwrap();
    let response = api.router().oneshot(request).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
}
