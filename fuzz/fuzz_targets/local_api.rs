//! Bytes as what a client sends to the local API, over TCP, the Unix socket or the second listener.
//! Whatever comes, the process lives and answers the next one.

#![no_main]

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tenure::api::{Api, ApiConfig, Health, ListenConfig, Listeners, QuorumRead, Reading};
use tenure::core::{DrainTimeout, MissingLease, OnAppExit, Options, Rules};
use tenure::metrics::Metrics;
use tenure::seat::{Clock, Seat};
use tenure::shell::clock::SystemClock;
use tenure::timing::Timing;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Streams and `?wait=` never end by themselves.
const PATIENCE: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct NoQuorum;

impl QuorumRead for NoQuorum {
    fn read(&self) -> Pin<Box<dyn Future<Output = Reading> + Send>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

struct Site {
    runtime: Runtime,
    local: std::net::SocketAddr,
    admin: std::net::SocketAddr,
    folder: tempfile::TempDir,
}

fn site() -> Site {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = Options {
        identity: "a_1".into(),
        incarnation: "i1".into(),
        takes_over: false,
        timing: Timing::default(),
        missing_lease: MissingLease::Create,
        drain_timeout: DrainTimeout::Auto,
        on_app_exit: OnAppExit::Release,
        unsafe_release_on_sigterm: false,
        max_valid: None,
        rules: Rules::default(),
    };
    let seat = Arc::new(Seat::new(options, clock.clone()));
    let health = Arc::new(Health::new(clock.now().mono, Duration::from_secs(5)));
    let metrics = Arc::new(Metrics::new("l", "n", Timing::default().renew_deadline(), clock));
    let config = ApiConfig {
        identity: "a_1".into(),
        lease_namespace: "n".into(),
        lease_name: "l".into(),
        boot_id: "boot".into(),
        dev: false,
        allowed_hosts: Vec::new(),
        control_token_file: None,
    };
    let api = Api::new(config, seat, health, metrics, Arc::new(NoQuorum));
    let guard = runtime.enter();
    // A program of its own main ignores it; a fuzz target has none.
    drop(signal(SignalKind::pipe()).expect("a handler"));
    let listeners = Listeners::bind(&ListenConfig {
        local: vec!["127.0.0.1:0".parse().expect("an address")],
        socket: Some((folder.path().join("s"), 0o660)),
        admin: "127.0.0.1:0".parse().expect("an address"),
    });
    let listeners = listeners.expect("bound");
    let local = listeners.local_addresses()[0];
    let admin = listeners.admin_address().expect("an address");
    runtime.spawn(listeners.serve(api));
    drop(guard);
    Site { runtime, local, admin, folder }
}

thread_local! {
    static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
}

async fn say(mut io: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let talk = async {
        io.write_all(bytes).await?;
        io.shutdown().await?;
        io.read_to_end(&mut answer).await
    };
    let _ = tokio::time::timeout(PATIENCE, talk).await;
    answer
}

fuzz_target!(|data: &[u8]| {
    let Some((&face, bytes)) = data.split_first() else { return };
    SITE.with_borrow_mut(|site| {
        let Site { runtime, local, admin, folder } = site.get_or_insert_with(self::site);
        runtime.block_on(async {
            match face % 3 {
                0 => drop(say(TcpStream::connect(*local).await.expect("tcp"), bytes).await),
                1 => drop(say(TcpStream::connect(*admin).await.expect("admin"), bytes).await),
                _ => {
                    let socket = folder.path().join("s");
                    say(UnixStream::connect(socket).await.expect("unix"), bytes).await;
                }
            }
            let check = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            let io = TcpStream::connect(*admin).await.expect("it still accepts");
            if face & 128 > 0 {
                let mut io = io;
                io.write_all(check).await.expect("it still reads");
                let mut answer = Vec::new();
                io.read_to_end(&mut answer).await.expect("it still answers");
                assert!(answer.starts_with(b"HTTP/1.1 "), "{answer:?}");
            }
        });
    });
});
