//! An API server, or something between, that answers without ever coming to an answer.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

/// Sends `piece` over and over on each connection.
pub(crate) struct Flood {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Flood {
    pub(crate) fn new(address: SocketAddr, begin: &'static str, piece: &'static str) -> Flood {
        let listener = TcpListener::bind(address).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let accepting = thread::spawn(move || {
            let mut pouring = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if stop.load(SeqCst) {
                    break;
                }
                let stop = Arc::clone(&stop);
                pouring.push(thread::spawn(move || pour(stream, begin, piece, &stop)));
            }
            for thread in pouring {
                thread.join().unwrap();
            }
        });
        Flood { address, over, accepting: Some(accepting) }
    }
}

/// As fast as it is taken, until the other side closes.
fn pour(mut stream: TcpStream, begin: &str, piece: &str, stop: &AtomicBool) {
    let chunk = piece.repeat((64 << 10) / piece.len());
    let asked = stream.read(&mut [0; 4096]).unwrap_or(0) > 0;
    if !asked || stream.write_all(begin.as_bytes()).is_err() {
        return;
    }
    while !stop.load(SeqCst) && stream.write_all(chunk.as_bytes()).is_ok() {}
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        // It may be waiting for one more.
        drop(TcpStream::connect(self.address));
        self.accepting.take().unwrap().join().unwrap();
    }
}
