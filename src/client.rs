//! A client of the sidecar's local API, for `status`, `wait` and `release`.
//!
//! One connection per call and no pool: a call comes every few seconds at most. Every call has one
//! bound over everything: resolving, connecting, sending, waiting and reading.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// An answer is a few hundred bytes; whatever sends more is no sidecar.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Where a sidecar listens: `http://HOST[:PORT]` or `unix:/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Over TCP, without TLS.
    Http {
        /// Name or address, IPv6 without brackets.
        host: String,
        /// 80 where the URL has none.
        port: u16,
    },
    /// Over a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ALLOWED: &str = "allowed: http://HOST:PORT or unix:/PATH";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') { Ok(Self::Unix(path.into())) } else { Err(ALLOWED) };
        }
        let uri: http::Uri = text.parse().map_err(|_| ALLOWED)?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let plain = uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
        let port = port_of(&uri).ok_or(ALLOWED)?.unwrap_or(80);
        if host.is_empty() || !plain {
            return Err(ALLOWED);
        }
        Ok(Self::Http { host: host.to_owned(), port })
    }
}

/// The port of a URL, `Some(None)` where it has none; `None` where what is written is no port
/// (which [`http::Uri::port`] would tell as none at all).
pub(crate) fn port_of(uri: &http::Uri) -> Option<Option<u16>> {
    let authority = uri.authority()?;
    match authority.as_str().strip_prefix(authority.host())? {
        "" => Some(None),
        written => written.strip_prefix(':')?.parse().ok().map(Some),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { .. } => write!(f, "http://{}", self.host_header()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Endpoint {
    fn host_header(&self) -> String {
        match self {
            Self::Http { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Http { host, port } => format!("{host}:{port}"),
            Self::Unix(_) => "localhost".into(),
        }
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, CallError> {
        match self {
            Self::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(CallError::Unreachable(error.to_string())),
            },
            Self::Http { host, port } => connect_tcp(host, *port).await,
        }
    }
}

/// Tries every address of the name: the sidecar may have only one family, and so may the pod.
async fn connect_tcp(host: &str, port: u16) -> Result<Box<dyn Stream>, CallError> {
    let mut refusals = Vec::new();
    for address in addresses(host, port).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(Box::new(stream)),
            Err(error) => refusals.push(format!("{address}: {error}")),
        }
    }
    Err(CallError::Unreachable(refusals.join("; ")))
}

async fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, CallError> {
    // Known without a resolver, which an image without /etc/hosts would ask over the network.
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]);
    }
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => Ok(found.collect()),
        Err(error) => Err(CallError::Unreachable(format!("{host}: {error}"))),
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Nothing was sent.
    Unreachable(String),
    /// Something was sent; whether it took effect is unknown.
    Broken(String),
    /// The bound ran out; whether it took effect is unknown.
    TimedOut(Duration),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "cannot be reached: {why}"),
            Self::Broken(why) => write!(f, "broke off: {why}"),
            Self::TimedOut(bound) => {
                let whole = Duration::new(bound.as_secs(), bound.subsec_millis() * 1_000_000);
                write!(f, "gave no answer within {whole:?}")
            }
        }
    }
}

impl std::error::Error for CallError {}

/// One request to the local API.
#[derive(Debug)]
pub struct Call<'a> {
    /// GET or POST.
    pub method: Method,
    /// Path and query.
    pub target: &'a str,
    /// JSON; empty for none.
    pub body: String,
    /// For changing calls to a sidecar with a control token.
    pub bearer: Option<HeaderValue>,
}

impl<'a> Call<'a> {
    /// A GET.
    #[must_use]
    pub fn get(target: &'a str) -> Self {
        Self { method: Method::GET, target, body: String::new(), bearer: None }
    }

    /// Makes the call, all of it within `bound`.
    ///
    /// # Errors
    /// Only where no whole HTTP answer came; every status is an answer.
    pub async fn send(self, to: &Endpoint, bound: Duration) -> Result<Answer, CallError> {
        match tokio::time::timeout(bound, self.exchange(to)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallError::TimedOut(bound)),
        }
    }

    async fn exchange(self, to: &Endpoint) -> Result<Answer, CallError> {
        let broken = |error: &dyn fmt::Display| CallError::Broken(error.to_string());
        let stream = TokioIo::new(to.connect().await?);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(stream).await.map_err(|e| broken(&e))?;
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.target)
            .header(HOST, to.host_header())
            .header(CONTENT_TYPE, "application/json");
        if let Some(bearer) = self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(Full::<Bytes>::from(self.body)).map_err(|e| broken(&e))?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(|e| broken(&e))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_BODY_BYTES).collect().await;
            Ok(Answer { status, body: body.map_err(|e| broken(&e))?.to_bytes() })
        };
        // The connection does its work as it is polled; it must not outlive the call.
        tokio::pin!(answer, connection);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            _ = &mut connection => answer.await,
        }
    }
}

/// A whole HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// As it came.
    pub status: StatusCode,
    /// At most 64 KiB.
    pub body: Bytes,
}

impl Answer {
    /// Why a call was refused, from `{"error": "…"}` where there is one.
    #[must_use]
    pub fn error(&self) -> String {
        #[derive(Deserialize)]
        struct Body {
            error: String,
        }
        let status = self.status;
        match serde_json::from_slice(&self.body) {
            Ok(Body { error }) => format!("answered {status}: {error}"),
            Err(_) => format!("answered {status}"),
        }
    }
}

/// The body of `/leader` and its other forms, as far as the commands read it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct LeaderBody {
    /// True while `valid_for_ms` > 0.
    pub leader: bool,
    /// Such as `leading`.
    pub state: String,
    /// Why the state came about.
    pub reason: String,
    /// Grows with each change.
    pub version: u64,
    /// The fencing token; only while leading or draining.
    pub epoch: Option<u64>,
    /// The length of this grant.
    pub valid_for_ms: u64,
    /// How long the server held the request.
    pub waited_ms: u64,
    /// Nobody is known to hold the Lease where null.
    pub holder: Option<String>,
    /// The Lease itself.
    pub lease: LeaseBody,
}

/// `lease` of [`LeaderBody`].
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct LeaseBody {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The newest epoch seen.
    pub epoch: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_shown() {
        let http = |host: &str, port| Ok(Endpoint::Http { host: host.into(), port });
        assert_eq!("http://localhost:4040".parse(), http("localhost", 4040));
        assert_eq!("http://localhost:4040/".parse(), http("localhost", 4040));
        assert_eq!("http://[::1]:4040".parse(), http("::1", 4040));
        assert_eq!("http://app".parse(), http("app", 80));
        assert_eq!("unix:/run/t.sock".parse(), Ok(Endpoint::Unix("/run/t.sock".into())));
        assert_eq!("unix:///run/t.sock".parse(), Ok(Endpoint::Unix("/run/t.sock".into())));
        for shown in ["http://[::1]:4040", "http://localhost:4040", "unix:/run/t.sock"] {
            assert_eq!(shown.parse::<Endpoint>().unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "localhost:4040",
            "https://localhost:4040",
            "http://",
            "http://:80",
            "http://u@h",
            "http://h/path",
            "http://h?q",
            "http://h:99999",
            "http://h:x",
            "unix:run",
            "unix:",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad} became {:?}", bad.parse::<Endpoint>());
        }
    }
}
