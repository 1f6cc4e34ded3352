//! A TCP proxy before the API server, one per candidate, to cut that candidate off in every way a
//! network does: silence, silence one way, connections that died unseen, resets.
//!
//! Held bytes are delivered when the flow comes back, late, as a network that heals delivers them.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// What passes at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Both,
    /// Requests arrive and are carried out; the answers are held.
    RequestsOnly,
    /// Packets are swallowed both ways; new connections are taken and hear nothing.
    Nothing,
    /// Open connections are reset, and so is each new one.
    Reset,
}

#[derive(Debug, Clone, Copy)]
struct State {
    flow: Flow,
    /// Connections with a smaller number are dead for ever, and nobody is told.
    first_living: u64,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Request,
    Answer,
}

/// Runs until dropped, on a thread of its own: a test's busy or paused runtime does not slow it.
#[derive(Debug)]
pub struct Proxy {
    pub port: u16,
    state: watch::Sender<State>,
    connections: watch::Receiver<u64>,
    _stop: oneshot::Sender<()>,
}

impl Proxy {
    /// Passes everything on to a port of this machine.
    pub fn start(target_port: u16) -> Proxy {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port for the proxy");
        Proxy::on(listener, target_port)
    }

    /// With a listener that may be of another network namespace.
    pub fn on(listener: std::net::TcpListener, target_port: u16) -> Proxy {
        listener.set_nonblocking(true).expect("nonblocking");
        let port = listener.local_addr().expect("an address").port();
        let (state, states) = watch::channel(State { flow: Flow::Both, first_living: 0 });
        let (count, connections) = watch::channel(0);
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("proxy".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async move {
                    tokio::select! {
                        () = accept(listener, target_port, states, count) => {}
                        _ = stopped => {}
                    }
                });
            })
            .expect("a thread");
        Proxy { port, state, connections, _stop: stop }
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, flow: Flow) {
        self.state.send_modify(|state| state.flow = flow);
    }

    /// Every connection open now falls silent for ever, without a reset; new ones work.
    pub fn strand(&self) {
        let next = *self.connections.borrow();
        self.state.send_modify(|state| state.first_living = next);
    }

    /// Connections taken so far.
    pub fn connections(&self) -> u64 {
        *self.connections.borrow()
    }
}

async fn accept(
    listener: std::net::TcpListener,
    target_port: u16,
    states: watch::Receiver<State>,
    count: watch::Sender<u64>,
) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    let target = SocketAddr::from(([127, 0, 0, 1], target_port));
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: not a reason to spin.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let number = *count.borrow();
        count.send_replace(number + 1);
        tokio::spawn(serve(client, target, number, states.clone()));
    }
}

async fn serve(
    mut client: TcpStream,
    target: SocketAddr,
    number: u64,
    mut states: watch::Receiver<State>,
) {
    if states.borrow().flow == Flow::Reset {
        let _ = client.set_zero_linger();
        return;
    }
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let reset = {
        let (client_in, client_out) = client.split();
        let (server_in, server_out) = server.split();
        let requests = pump(client_in, server_out, number, Direction::Request, states.clone());
        let answers = pump(server_in, client_out, number, Direction::Answer, states.clone());
        tokio::select! {
            _ = async { tokio::try_join!(requests, answers) } => false,
            _ = states.wait_for(|s| s.flow == Flow::Reset && !stranded(*s, number)) => true,
        }
    };
    if reset {
        // Makes the closing a reset.
        let _ = client.set_zero_linger();
    }
}

/// The error: nothing will ever pass again, and this side has gone.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    number: u64,
    direction: Direction,
    mut states: watch::Receiver<State>,
) -> Result<(), ()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let mut read = from.read(&mut buffer).await.unwrap_or(0);
        let wanted = |state: &State| stranded(*state, number) || passes(*state, direction);
        let state = states.wait_for(wanted).await.map(|state| *state);
        if state.as_ref().is_ok_and(|state| stranded(*state, number)) {
            while read > 0 {
                read = from.read(&mut buffer).await.unwrap_or(0);
            }
            return Err(());
        }
        if state.is_err() || read == 0 {
            let _ = to.shutdown().await;
            return Ok(());
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return Ok(());
        }
    }
}

fn stranded(state: State, number: u64) -> bool {
    number < state.first_living
}

fn passes(state: State, direction: Direction) -> bool {
    match state.flow {
        Flow::Both => true,
        Flow::RequestsOnly => matches!(direction, Direction::Request),
        Flow::Nothing | Flow::Reset => false,
    }
}
