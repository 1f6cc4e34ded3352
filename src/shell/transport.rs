//! How requests reach the API server: a service of our own under `kube::Client`.
//!
//! HTTP/1.1 over rustls. One request that is dropped drops its connection with it, so nothing that
//! hangs is ever used twice, and no request can wait for another's connection. Nothing is sent
//! again in here: the core decides on attempts.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tower::{BoxError, Service};

use super::token::Token;

/// How long a CA file is believed to be unchanged.
const CA_AGE: Duration = Duration::from_secs(50);
/// Unused connections are closed well before load balancers (60 s) and API servers (90 s) would:
/// a request must not find its connection just closed.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// A peer that vanished is noticed by its kernel's silence after 15 + 3 x 5 s.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// Sent bytes that nobody acknowledges for this long break their connection.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest head of an answer, and the most read from a connection at once, in bytes. Whoever
/// sends interim answers (1xx) without end is parsed in turns that are short, so that all else on
/// this thread goes on until the request's own timeout drops the connection.
const MAX_HEAD: usize = 16 * 1024;

/// Makes clients, each with connections of its own.
#[derive(Clone)]
pub struct Connect(Arc<dyn Fn() -> kube::Client + Send + Sync>);

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").finish_non_exhaustive()
    }
}

impl Connect {
    /// By any means: an embedded API, kube's own client.
    pub fn new(connect: impl Fn() -> kube::Client + Send + Sync + 'static) -> Connect {
        Connect(Arc::new(connect))
    }

    /// A client without any connection yet. Call it inside the runtime.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        (self.0)()
    }

    /// To this server, over our own transport.
    ///
    /// # Errors
    /// One line on a CA file that is missing, unreadable or without a certificate.
    pub fn to_server(server: Server) -> Result<Connect, String> {
        let first = Connector::new(&server)?;
        let token = server.token_file.clone().map(|file| Arc::new(Token::new(file)));
        let namespace = server.namespace.clone();
        let tls = Arc::new(Mutex::new(Trust::new(first)));
        let server = Arc::new(server);
        Ok(Connect::new(move || {
            let direct = Direct { server: server.clone(), trust: tls.clone(), pool: None };
            let service =
                Authenticated { inner: direct, base: server.base.clone(), token: token.clone() };
            kube::Client::new(service, namespace.clone())
        }))
    }

    /// Through kube's own code, which knows all that a kubeconfig can say.
    ///
    /// # Errors
    /// One line on a kubeconfig that cannot be used.
    #[cfg(feature = "kubeconfig")]
    pub async fn by_kubeconfig(
        path: &std::path::Path,
        context: Option<String>,
        connect_timeout: Duration,
    ) -> Result<Connect, String> {
        use kube::config::{KubeConfigOptions, Kubeconfig};
        let problem =
            |error: &dyn fmt::Display| format!("--kubeconfig={}: {error}", path.display());
        let file = Kubeconfig::read_from(path).map_err(|error| problem(&error))?;
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let mut config = kube::Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| problem(&error))?;
        config.connect_timeout = Some(connect_timeout);
        config.read_timeout = None;
        // The core decides on attempts.
        config.default_retry = false;
        let first = kube::Client::try_from(config.clone()).map_err(|error| problem(&error))?;
        Ok(Connect::new(move || {
            kube::Client::try_from(config.clone()).unwrap_or_else(|error| {
                tracing::warn!(%error, "no new connections: the first ones are used");
                first.clone()
            })
        }))
    }
}

/// Where the API server is, and how to be known to it.
#[derive(Clone, Debug)]
pub struct Server {
    /// `https://10.0.0.1:443`, `http://127.0.0.1:8001/prefix`.
    pub base: Uri,
    /// PEM certificates to trust. Required for https.
    pub ca_file: Option<PathBuf>,
    /// Holds the bearer token; None: none is sent.
    pub token_file: Option<PathBuf>,
    /// What `kube::Client` calls its default namespace.
    pub namespace: String,
    /// The longest a TCP connection may take to be made.
    pub connect_timeout: Duration,
}

type Https = HttpsConnector<HttpConnector>;

#[derive(Clone)]
struct Connector {
    https: Https,
    ca: Vec<u8>,
}

/// What all connections trust, read anew when its file has changed.
struct Trust {
    connector: Connector,
    looked: Option<tokio::time::Instant>,
    /// The file cannot be used, which was told.
    broken: bool,
}

impl Connector {
    fn new(server: &Server) -> Result<Connector, String> {
        let ca = read_ca(server)?;
        let tls = trust(server, &ca)?;
        Ok(Connector { https: connector(tls, server.connect_timeout), ca })
    }
}

impl Trust {
    fn new(connector: Connector) -> Trust {
        Trust { connector, looked: None, broken: false }
    }

    /// Looks at the file at most once in [`CA_AGE`], or at once after `failed`.
    fn current(&mut self, server: &Server, failed: bool) -> Connector {
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= CA_AGE);
        if due || failed {
            self.looked = Some(tokio::time::Instant::now());
            match self.look(server) {
                Ok(()) => self.broken = false,
                Err(error) if !self.broken => {
                    self.broken = true;
                    tracing::warn!("{error}; the earlier certificates stay trusted");
                }
                Err(_) => {}
            }
        }
        self.connector.clone()
    }

    fn look(&mut self, server: &Server) -> Result<(), String> {
        let ca = read_ca(server)?;
        if ca != self.connector.ca {
            let tls = trust(server, &ca)?;
            self.connector = Connector { https: connector(tls, server.connect_timeout), ca };
        }
        Ok(())
    }
}

fn read_ca(server: &Server) -> Result<Vec<u8>, String> {
    match (&server.ca_file, server.base.scheme_str()) {
        (Some(file), _) => std::fs::read(file)
            .map_err(|error| format!("--ca-file={}: cannot be read: {error}", file.display())),
        (None, Some("https")) => Err(format!(
            "--server={}: https needs --ca-file, a file of PEM certificates",
            server.base
        )),
        (None, _) => Ok(Vec::new()),
    }
}

fn trust(server: &Server, pem: &[u8]) -> Result<rustls::ClientConfig, String> {
    let file = server.ca_file.as_deref().unwrap_or(std::path::Path::new("")).display();
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("--ca-file={file}: {error}"))?;
        roots.add(certificate).map_err(|error| format!("--ca-file={file}: {error}"))?;
    }
    if roots.is_empty() && server.ca_file.is_some() {
        return Err(format!("--ca-file={file}: holds no PEM certificate"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn connector(tls: rustls::ClientConfig, connect_timeout: Duration) -> Https {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
    HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp)
}

/// One pool of connections; another one once the trusted certificates change.
#[derive(Clone)]
struct Direct {
    server: Arc<Server>,
    trust: Arc<Mutex<Trust>>,
    pool: Option<(Vec<u8>, Pool<Https, Body>)>,
}

impl Direct {
    fn pool(&mut self) -> Pool<Https, Body> {
        let connector = lock(&self.trust).current(&self.server, false);
        match &self.pool {
            Some((ca, pool)) if *ca == connector.ca => pool.clone(),
            _ => {
                let pool = Pool::builder(TokioExecutor::new())
                    .pool_timer(TokioTimer::new())
                    .timer(TokioTimer::new())
                    .pool_idle_timeout(POOL_IDLE)
                    .http1_max_buf_size(MAX_HEAD)
                    // A request of which not one byte was sent, because its pooled connection had
                    // just been closed, goes over another connection. That is no second attempt.
                    .retry_canceled_requests(true)
                    .build(connector.https);
                self.pool = Some((connector.ca, pool.clone()));
                pool
            }
        }
    }
}

type Answered<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

impl Service<Request<Body>> for Direct {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Answered<Incoming>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let pool = self.pool();
        let (trust, server) = (self.trust.clone(), self.server.clone());
        Box::pin(async move {
            pool.request(request).await.map_err(|error| {
                if error.is_connect() {
                    // It may be the certificates: look before the next attempt.
                    lock(&trust).current(&server, true);
                }
                error.into()
            })
        })
    }
}

/// Adds the server's base and the token; a 401 makes the token be read again for the next request.
#[derive(Clone)]
pub struct Authenticated<S> {
    inner: S,
    base: Uri,
    token: Option<Arc<Token>>,
}

impl<S: fmt::Debug> fmt::Debug for Authenticated<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticated").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S> Authenticated<S> {
    /// Around any service.
    pub fn new(inner: S, base: Uri, token_file: Option<PathBuf>) -> Authenticated<S> {
        Authenticated { inner, base, token: token_file.map(|file| Arc::new(Token::new(file))) }
    }

    fn prepare(&self, request: &mut Request<Body>) -> Result<u64, BoxError> {
        *request.uri_mut() = resolve(&self.base, request.uri())?;
        let agent = HeaderValue::from_static(concat!("tenure/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        let Some(token) = &self.token else { return Ok(0) };
        let (value, generation) = token.current();
        if let Some(value) = value {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        Ok(generation)
    }
}

impl<S, B> Service<Request<Body>> for Authenticated<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Answered<B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let generation = match self.prepare(&mut request) {
            Ok(generation) => generation,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let token = self.token.clone();
        let answered = self.inner.call(request);
        Box::pin(async move {
            let response = answered.await.map_err(Into::into)?;
            if let (Some(token), StatusCode::UNAUTHORIZED) = (token, response.status()) {
                token.refused(generation);
            }
            Ok(response)
        })
    }
}

/// `/apis/…?…` under the base, whose own path comes first.
fn resolve(base: &Uri, relative: &Uri) -> Result<Uri, BoxError> {
    let path = relative.path_and_query().map_or("/", |path| path.as_str());
    let path = format!("{}{path}", base.path().trim_end_matches('/'));
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path.parse()?);
    Ok(Uri::from_parts(parts)?)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(base: &str, ca_file: Option<PathBuf>) -> Server {
        Server {
            base: base.parse().unwrap(),
            ca_file,
            token_file: None,
            namespace: "n".into(),
            connect_timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn the_base_comes_before_the_path() {
        let relative: Uri = "/apis/x?a=b".parse().unwrap();
        let under = |base: &str| resolve(&base.parse().unwrap(), &relative).unwrap().to_string();
        assert_eq!(under("https://h:1"), "https://h:1/apis/x?a=b");
        assert_eq!(under("https://h:1/"), "https://h:1/apis/x?a=b");
        assert_eq!(under("http://[::1]:1/k8s/"), "http://[::1]:1/k8s/apis/x?a=b");
    }

    #[test]
    fn scenario_c2_what_is_wrong_with_certificates_is_said_in_one_line() {
        let error = |server| Connect::to_server(server).unwrap_err();
        assert!(error(server("https://h", None)).contains("--ca-file"));
        let missing = error(server("https://h", Some("/does/not/exist".into())));
        assert!(missing.contains("/does/not/exist") && !missing.contains('\n'), "{missing}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let empty = error(server("https://h", Some(file.path().into())));
        assert!(empty.contains("no PEM certificate"), "{empty}");
        assert!(Connect::to_server(server("http://h", None)).is_ok());
    }

    /// A log line whose place is met for the first time by two threads at once, one with a subscriber
    /// and one without, may be taken for one that nobody wants.
    static FIRST_LINE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    #[tokio::test(start_paused = true)]
    async fn a_changed_ca_file_is_trusted_and_a_broken_one_changes_nothing() {
        let _alone = FIRST_LINE.lock().await;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), CA).unwrap();
        let server = server("https://h", Some(file.path().into()));
        let first = Connector::new(&server).unwrap();
        let mut trust = Trust::new(first);
        assert_eq!(trust.current(&server, false).ca, CA.as_bytes());
        let both = format!("{CA}{CA}");
        std::fs::write(file.path(), &both).unwrap();
        assert_eq!(trust.current(&server, false).ca, CA.as_bytes(), "believed a while");
        assert_eq!(trust.current(&server, true).ca, both.as_bytes(), "after a failure at once");
        std::fs::write(file.path(), "none").unwrap();
        tokio::time::advance(CA_AGE).await;
        assert_eq!(trust.current(&server, false).ca, both.as_bytes(), "what works is kept");
        std::fs::write(file.path(), CA).unwrap();
        tokio::time::advance(CA_AGE).await;
        assert_eq!(trust.current(&server, false).ca, CA.as_bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn certificates_that_cannot_be_used_are_told_of_once_and_not_at_each_attempt() {
        let _alone = FIRST_LINE.lock().await;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), CA).unwrap();
        let server = server("https://h", Some(file.path().into()));
        let mut trust = Trust::new(Connector::new(&server).unwrap());
        let log = tempfile::NamedTempFile::new().unwrap();
        let lines = Arc::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_writer(lines).finish();
        let _here = tracing::subscriber::set_default(subscriber);
        let mut told = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            for _ in 0..3 {
                trust.current(&server, true);
            }
            std::fs::read_to_string(log.path()).unwrap().lines().count()
        };
        assert_eq!(told("none"), 1);
        assert_eq!(told(CA), 1);
        assert_eq!(told("none"), 2);
    }

    /// openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500
    const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBezCCASGgAwIBAgIUNCJyBMwxRgnUFgSJZV9yvvzzrYEwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHdGVzdCBDQTAgFw0yNjExMzAyMjQ0NDdaGA8yMTI2MTEwNjIy
NDQ0N1owEjEQMA4GA1UEAwwHdGVzdCBDQTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABKd0uBGVvtEvIy+AsdBCFAe8be2ney2+XTTPfXPE/cLDVmwcip8R6+h6v/MG
xspa332yRDIvTqhOJo9LM18AicGjUzBRMB0GA1UdDgQWBBQ7+msDuf2163SSPS99
oDJiX0kbxTAfBgNVHSMEGDAWgBQ7+msDuf2163SSPS99oDJiX0kbxTAPBgNVHRMB
Af8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCID6395SbhZchp59RyW8ySH8Ek9Hx
DFraf74/JCdEKnO1AiEA7pbRXv2EmXoxsTCF/bsUljIyV2eRd1wyZX5tVOwgW/c=
-----END CERTIFICATE-----
";
}
