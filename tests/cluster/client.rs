//! A `kube::Client` over hyper and rustls that trusts the test cluster's CA only.

use std::fs;
use std::path::Path;

use http::header::{AUTHORIZATION, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube::client::Body;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tower::ServiceExt;

/// `url` is `https://host:port`. Belongs to the runtime that calls this.
pub fn new(url: &str, ca_file: &Path, token: &str) -> kube::Client {
    let base: Uri = url.parse().expect("a URL");
    let authority: Authority = base.authority().expect("host and port").clone();
    let bearer = HeaderValue::try_from(format!("Bearer {token}")).expect("a token");
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls(ca_file))
        .https_only()
        .enable_http1()
        .build();
    let transport = Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = transport.map_request(move |mut request: http::Request<Body>| {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::builder()
            .scheme(Scheme::HTTPS)
            .authority(authority.clone())
            .path_and_query(path.unwrap_or(PathAndQuery::from_static("/")))
            .build()
            .expect("parts of URIs make a URI");
        request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        request
    });
    kube::Client::new(service, "default")
}

pub fn tls(ca_file: &Path) -> ClientConfig {
    let pem = fs::read(ca_file).expect("the CA's file");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.expect("a certificate")).expect("a CA");
    }
    let provider = rustls::crypto::ring::default_provider().into();
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
