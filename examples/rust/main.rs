//! Guarded work in Rust: one unit at a time, only while this pod leads.
//!
//! It holds one stream open and needs nothing else: each event carries the deadline on the clock
//! that counts suspended time, and the closing of the stream, however this process ends, is its word
//! that the work has stopped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

/// Epoch and deadline, on the boottime clock in milliseconds.
type Grant = Option<(u64, u64)>;

fn now_ms() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Reads the stream until it ends. An event is no grant by its arrival: its deadline is what counts.
fn follow(address: &str, grant: &Mutex<Grant>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let request = "GET /leader/events?hold=true HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes())?;
    for line in BufReader::new(stream).lines() {
        // Everything else is heads, chunk sizes and comments.
        let Some(data) = line?.strip_prefix("data:").map(str::to_owned) else { continue };
        let said: Value = serde_json::from_str(&data)?;
        let deadline = said["valid_until_boottime_ms"].as_u64();
        *grant.lock().unwrap() = match (said["epoch"].as_u64(), deadline) {
            // A renewal has no field `leader`; in draining there is work to finish, none to start.
            (Some(epoch), Some(deadline)) if said["leader"] != false => Some((epoch, deadline)),
            _ => None,
        };
    }
    Ok(())
}

fn main() {
    let url = std::env::var("TENURE_URL").unwrap_or("http://localhost:4040".into());
    let address = url.trim_start_matches("http://").to_owned();
    let grant = Arc::new(Mutex::new(None));
    let reading = grant.clone();
    thread::spawn(move || {
        loop {
            // Silence is no grant; the one before runs out by itself.
            let _ = follow(&address, &reading);
            thread::sleep(Duration::from_millis(200));
        }
    });
    let mut working = false;
    loop {
        let current = *grant.lock().unwrap();
        match current.filter(|(_, deadline)| now_ms() < *deadline) {
            Some((epoch, _)) => {
                // One unit: much shorter than a grant, and with its epoch on every write.
                println!("work epoch={epoch}");
                working = true;
            }
            None if std::mem::take(&mut working) => println!("stop"),
            None => {}
        }
        thread::sleep(Duration::from_millis(200));
    }
}
