//! A proxy before the API server that speaks HTTP (over TLS, with the server's own certificate), one
//! per candidate: it does to single requests what servers, balancers and networks do to them. A
//! [`Proxy`](super::Proxy) before it adds what is done to connections: see [`Wire`](super::Wire).
//!
//! HTTP/1.1 only, which is what tenure speaks and what client-go falls back to; a GOAWAY is told
//! there by `Connection: close` ([`Fault::LastAnswer`]).

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures_util::StreamExt as _;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::pki::Pki;

/// What a request is, as far as faults tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A read of one Lease.
    Get,
    Put,
    Watch,
    /// Events, access reviews, all the rest.
    Other,
}

/// What is done to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Passed on this much later, also where its client has given it up or is gone.
    Late(Duration),
    /// Carried out, and its answer passed on this much later.
    LateAnswer(Duration),
    /// Carried out; its connection is closed without a word.
    DropAnswer,
    /// Carried out; the connection stays open and says nothing, for ever.
    SwallowAnswer,
    /// Never carried out, never answered.
    Swallow,
    /// Not carried out; this answer instead.
    Refuse(u16),
    /// 429 that asks to come back after so many seconds.
    TooMany(u32),
    /// Carried out, and answered with this status all the same.
    AnswerAfter(u16),
    /// Carried out and answered; the connection ends with the answer.
    LastAnswer,
    /// Of a read: the oldest answer ever passed on through this proxy.
    Replay,
    /// Of a watch: each event comes this much later. Takes effect on open watches, too.
    LateEvents(Duration),
}

/// Which requests meet a fault.
#[derive(Debug, Clone)]
pub struct Rule {
    /// None: all.
    pub verb: Option<Verb>,
    /// So many pass first.
    pub skip: u32,
    /// So many are hit.
    pub times: u32,
    pub fault: Fault,
}

impl Rule {
    /// Every one of a kind.
    pub fn on(verb: Verb, fault: Fault) -> Rule {
        Rule { verb: Some(verb), skip: 0, times: u32::MAX, fault }
    }

    pub fn every(fault: Fault) -> Rule {
        Rule { verb: None, skip: 0, times: u32::MAX, fault }
    }

    /// The k-th from now on, counted from 1.
    #[must_use]
    pub fn nth(self, k: u32) -> Rule {
        Rule { skip: k - 1, times: 1, ..self }
    }

    #[must_use]
    pub fn times(self, times: u32) -> Rule {
        Rule { times, ..self }
    }
}

#[derive(Debug, Default)]
struct Script {
    rules: Vec<Rule>,
    oldest: Option<(http::response::Parts, Bytes)>,
    hits: u32,
    puts: u32,
    puts_done: u32,
}

impl Script {
    /// The fault that this request meets. The first rule that matches decides.
    fn meet(&mut self, verb: Verb) -> Option<Fault> {
        for rule in &mut self.rules {
            let late_events = matches!(rule.fault, Fault::LateEvents(_));
            if rule.verb.is_some_and(|named| named != verb) || rule.times == 0 || late_events {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times = rule.times.saturating_sub(1);
            self.hits += 1;
            return Some(rule.fault.clone());
        }
        None
    }

    fn late_events(&self) -> Duration {
        let late = self.rules.iter().find_map(|rule| match rule.fault {
            Fault::LateEvents(late) => Some(late),
            _ => None,
        });
        late.unwrap_or_default()
    }
}

type Shared = Arc<Mutex<Script>>;
type Body = UnsyncBoxBody<Bytes, hyper::Error>;
type Upstream = Client<hyper_rustls::HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Runs until dropped, on a thread of its own.
#[derive(Debug)]
pub struct FaultProxy {
    pub port: u16,
    script: Shared,
    _stop: oneshot::Sender<()>,
}

impl FaultProxy {
    pub fn start(api_server_port: u16, pki: &Pki) -> FaultProxy {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port for the proxy");
        listener.set_nonblocking(true).expect("nonblocking");
        let port = listener.local_addr().expect("an address").port();
        let acceptor = TlsAcceptor::from(Arc::new(server_tls(pki)));
        let tls = super::client::tls(&pki.ca);
        let script = Shared::default();
        let (stop, stopped) = oneshot::channel::<()>();
        let shared = script.clone();
        thread::Builder::new()
            .name("fault proxy".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async move {
                    let upstream = upstream(tls);
                    tokio::select! {
                        () = accept(listener, acceptor, upstream, api_server_port, shared) => {}
                        _ = stopped => {}
                    }
                });
            })
            .expect("a thread");
        FaultProxy { port, script, _stop: stop }
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub fn add(&self, rule: Rule) {
        self.script.lock().expect("script").rules.push(rule);
    }

    /// No faults from now on.
    pub fn clear(&self) {
        self.script.lock().expect("script").rules.clear();
    }

    /// Requests that met a fault so far.
    pub fn hits(&self) -> u32 {
        self.script.lock().expect("script").hits
    }

    /// PUTs that came so far.
    pub fn puts(&self) -> u32 {
        self.script.lock().expect("script").puts
    }

    /// PUTs that the server has answered so far.
    pub fn puts_done(&self) -> u32 {
        self.script.lock().expect("script").puts_done
    }
}

fn server_tls(pki: &Pki) -> ServerConfig {
    let chain = CertificateDer::pem_file_iter(&pki.server_certificate).expect("the certificate");
    let chain = chain.map(|certificate| certificate.expect("PEM")).collect();
    let key = PrivateKeyDer::from_pem_file(&pki.server_key).expect("the key");
    let provider = rustls::crypto::ring::default_provider().into();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate and its key")
}

fn upstream(tls: rustls::ClientConfig) -> Upstream {
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .build();
    Client::builder(TokioExecutor::new()).build(connector)
}

async fn accept(
    listener: std::net::TcpListener,
    acceptor: TlsAcceptor,
    upstream: Upstream,
    target: u16,
    script: Shared,
) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let proxied = Proxied { upstream: upstream.clone(), target, script: script.clone() };
        tokio::spawn(serve(stream, acceptor.clone(), proxied));
    }
}

/// Ends the connection, which is how an answer is dropped.
#[derive(Debug)]
struct Dropped;

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("dropped on purpose")
    }
}

impl std::error::Error for Dropped {}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, proxied: Proxied) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| {
        let proxied = proxied.clone();
        async move { proxied.answer(request).await }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[derive(Clone)]
struct Proxied {
    upstream: Upstream,
    target: u16,
    script: Shared,
}

impl Proxied {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, Dropped> {
        let verb = verb(&request);
        let fault = {
            let mut script = self.script.lock().expect("script");
            script.puts += u32::from(verb == Verb::Put);
            script.meet(verb)
        };
        match fault {
            Some(Fault::Refuse(status)) => return Ok(status_answer(status, None)),
            Some(Fault::TooMany(seconds)) => return Ok(status_answer(429, Some(seconds))),
            Some(Fault::Swallow) => return std::future::pending().await,
            Some(Fault::Replay) => {
                let oldest = self.script.lock().expect("script").oldest.clone();
                if let Some((parts, body)) = oldest {
                    return Ok(Response::from_parts(parts, full(body)));
                }
            }
            _ => {}
        }
        let late = match fault {
            Some(Fault::Late(late)) => late,
            _ => Duration::ZERO,
        };
        // A client that gives up does not stop what is on its way.
        let carried = tokio::spawn(self.clone().carry_out(verb, request, late));
        let mut answer = carried.await.map_err(|_| Dropped)??;
        match fault {
            Some(Fault::LateAnswer(late)) => tokio::time::sleep(late).await,
            Some(Fault::DropAnswer) => return Err(Dropped),
            Some(Fault::SwallowAnswer) => return std::future::pending().await,
            Some(Fault::AnswerAfter(status)) => return Ok(status_answer(status, None)),
            Some(Fault::LastAnswer) => {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn carry_out(
        self,
        verb: Verb,
        request: Request<Incoming>,
        late: Duration,
    ) -> Result<Response<Body>, Dropped> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri: Uri =
            format!("https://127.0.0.1:{}{path}", self.target).parse().map_err(|_| Dropped)?;
        parts.uri = uri;
        parts.headers.remove(HOST);
        let body = body.collect().await.map_err(|_| Dropped)?.to_bytes();
        if !late.is_zero() {
            tokio::time::sleep(late).await;
        }
        let passed = self.upstream.request(Request::from_parts(parts, Full::new(body))).await;
        let (parts, body) = passed.map_err(|_| Dropped)?.into_parts();
        if verb == Verb::Watch {
            return Ok(Response::from_parts(parts, self.late_body(body)));
        }
        let body = body.collect().await.map_err(|_| Dropped)?.to_bytes();
        if verb == Verb::Put {
            self.script.lock().expect("script").puts_done += 1;
        }
        if verb == Verb::Get && parts.status == StatusCode::OK {
            let mut script = self.script.lock().expect("script");
            script.oldest.get_or_insert_with(|| (parts.clone(), body.clone()));
        }
        Ok(Response::from_parts(parts, full(body)))
    }

    fn late_body(&self, body: Incoming) -> Body {
        let script = self.script.clone();
        let frames = BodyStream::new(body).then(move |frame| {
            let late = script.lock().expect("script").late_events();
            async move {
                tokio::time::sleep(late).await;
                frame
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

fn verb(request: &Request<Incoming>) -> Verb {
    let watch = request.uri().query().is_some_and(|query| query.contains("watch="));
    let lease = request.uri().path().contains("/leases");
    match *request.method() {
        Method::GET if lease && watch => Verb::Watch,
        Method::GET if lease => Verb::Get,
        Method::PUT if lease => Verb::Put,
        _ => Verb::Other,
    }
}

fn full(body: Bytes) -> Body {
    Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// As the API server itself says no.
fn status_answer(status: u16, retry_after: Option<u32>) -> Response<Body> {
    let reason = match status {
        403 => "Forbidden",
        409 => "Conflict",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let text = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
        "message": "by the proxy", "reason": reason, "code": status,
    });
    let mut answer = Response::new(full(text.to_string().into()));
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}
