//! A client that can be rude: bytes out, bytes in.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::spec;

/// Longest wait for anything that must come; only a broken server takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Answer { status, headers, body: bytes[end + 4..].to_vec() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A request's bytes. `Host` is localhost, unless `headers` brings one (or an empty line: none).
pub(crate) fn request(method: &str, target: &str, headers: &[&str], body: &str) -> String {
    let mut head = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|h| h.is_empty() || h.to_ascii_lowercase().starts_with("host:")) {
        head.push_str("Host: localhost:4040\r\n");
    }
    for header in headers.iter().filter(|header| !header.is_empty()) {
        head.push_str(header);
        head.push_str("\r\n");
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    format!("{head}\r\n{body}")
}

/// Sends bytes, reads until the server closes.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut io: S, bytes: &[u8]) -> Answer {
    let mut read = Vec::new();
    timeout(PATIENCE, async {
        io.write_all(bytes).await.unwrap();
        io.read_to_end(&mut read).await.unwrap();
    })
    .await
    .expect("an answer in time");
    Answer::parse(&read)
}

/// What a stream says.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    Retry(u64),
    Leader { id: u64, data: Value },
    Renewed { data: Value },
    Comment,
}

/// An open event stream. It reads only when asked to.
pub(crate) struct Stream<S> {
    pub(crate) io: S,
    raw: Vec<u8>,
    text: String,
    pub(crate) read: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    /// Asks, and reads the head of the answer.
    pub(crate) async fn open(mut io: S, target: &str) -> Stream<S> {
        let ask = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        io.write_all(ask.as_bytes()).await.unwrap();
        let mut stream = Stream { io, raw: Vec::new(), text: String::new(), read: 0 };
        let end = loop {
            if let Some(at) = stream.raw.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(stream.fill().await, "no head");
        };
        let head = Answer::parse(&stream.raw[..end]);
        spec::check("local", "GET", target, &head);
        assert_eq!(head.status, 200);
        stream.raw.drain(..end);
        stream
    }

    async fn fill(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let count = timeout(PATIENCE, self.io.read(&mut bytes)).await.expect("in time");
        let count = count.unwrap_or(0);
        self.raw.extend_from_slice(&bytes[..count]);
        self.read += count;
        count > 0
    }

    /// The next chunk's text, None at the end.
    async fn chunk(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.raw.windows(2).position(|window| window == b"\r\n") {
                let size = std::str::from_utf8(&self.raw[..line]).unwrap();
                let size = usize::from_str_radix(size, 16).unwrap();
                if self.raw.len() >= line + 2 + size + 2 {
                    let data = self.raw[line + 2..line + 2 + size].to_vec();
                    self.raw.drain(..line + 2 + size + 2);
                    return Some(String::from_utf8(data).unwrap());
                }
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// The next thing said; None once the stream has ended.
    pub(crate) async fn said(&mut self) -> Option<Said> {
        loop {
            if let Some(retry) = self.text.strip_prefix("retry: ") {
                let (number, rest) = retry.split_once('\n').unwrap();
                let said = Said::Retry(number.parse().unwrap());
                self.text = rest.to_owned();
                return Some(said);
            }
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let said = said(block);
                self.text = rest.to_owned();
                return Some(said);
            }
            let chunk = self.chunk().await?;
            self.text.push_str(&chunk);
        }
    }

    /// The next event, comments and `retry` apart.
    pub(crate) async fn event(&mut self) -> Said {
        loop {
            match self.said().await.expect("the stream goes on") {
                Said::Comment | Said::Retry(_) => {}
                event => return event,
            }
        }
    }

    /// The data of the next `event: leader` that `wanted` likes.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            match self.event().await {
                Said::Leader { data, .. } if wanted(&data) => return data,
                _ => {}
            }
        }
    }
}

fn said(block: &str) -> Said {
    if block.starts_with(':') {
        return Said::Comment;
    }
    let field =
        |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
    let data: Value = serde_json::from_str(field("data:").unwrap()).unwrap();
    let event = field("event:").unwrap();
    spec::check_event(event, &data);
    match event {
        "leader" => {
            let id: u64 = field("id:").unwrap().parse().unwrap();
            assert_eq!(data["version"], id);
            Said::Leader { id, data }
        }
        "renewed" => {
            assert_eq!(field("id:"), None, "{block}");
            Said::Renewed { data }
        }
        other => panic!("event {other}"),
    }
}
