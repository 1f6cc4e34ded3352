//! Where Leases are kept: the pod's cluster, a kubeconfig's, or nowhere (`--dev`).

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::{Surroundings, read_text};
use crate::cli::{DevRole, UsageError};
use crate::client::port_of;

/// One API server, or the embedded Lease in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiServer {
    /// A service account's way: address, CA and a token file that changes.
    InCluster {
        /// `https://HOST[:PORT]`, or `http://` on loopback; no path.
        server: http::Uri,
        /// PEM, was readable and held a certificate at the start; `None` exactly for `http://`.
        ca_file: Option<PathBuf>,
        /// Was readable and not empty at the start; `None` only for `http://`.
        token_file: Option<PathBuf>,
    },
    /// Through kube's own code.
    #[cfg(feature = "kubeconfig")]
    Kubeconfig {
        /// Was a readable kubeconfig at the start.
        path: PathBuf,
        /// One of its contexts; `None` = its current one.
        context: Option<String>,
    },
    /// The embedded Lease.
    Dev(DevRole),
}

/// The flags that say which.
pub(super) struct Given {
    pub(super) server: Option<String>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
    pub(super) dev: Option<DevRole>,
}

impl ApiServer {
    pub(super) fn new(given: Given, around: &Surroundings) -> Result<Self, UsageError> {
        let Given { server, ca_file, token_file, kubeconfig, context, dev } = given;
        let direct = [
            ("--server", server.is_some()),
            ("--ca-file", ca_file.is_some()),
            ("--token-file", token_file.is_some()),
        ];
        let excluded = |flag: &str, others: &[(&str, bool)]| match others.iter().find(|o| o.1) {
            Some((other, _)) => {
                Err(UsageError::flag(flag, format_args!("cannot be used together with {other}")))
            }
            None => Ok(()),
        };
        if let Some(role) = dev {
            excluded("--dev", &direct)?;
            excluded("--dev", &[("--kubeconfig", kubeconfig.is_some())])?;
            excluded("--dev", &[("--context", context.is_some())])?;
            return Self::dev(role, around);
        }
        match (kubeconfig, context) {
            (Some(path), context) => {
                excluded("--kubeconfig", &direct)?;
                Self::kubeconfig(path, context)
            }
            (None, Some(context)) => {
                Err(UsageError::value("--context", context, "needs --kubeconfig beside it"))
            }
            (None, None) => Self::in_cluster(server, ca_file, token_file, around),
        }
    }

    /// An embedded Lease in a cluster would make every replica a leader.
    fn dev(role: DevRole, around: &Surroundings) -> Result<Self, UsageError> {
        match &around.kubernetes_host {
            Some(host) => Err(UsageError::flag(
                "--dev",
                format_args!("not allowed in a cluster (KUBERNETES_SERVICE_HOST={host})"),
            )),
            None => Ok(Self::Dev(role)),
        }
    }

    fn in_cluster(
        server: Option<String>,
        ca_file: Option<PathBuf>,
        token_file: Option<PathBuf>,
        around: &Surroundings,
    ) -> Result<Self, UsageError> {
        let server = match server {
            Some(text) => parse_server(&text)?,
            None => pod_server(around)?,
        };
        if server.scheme_str() == Some("http") {
            if let Some(path) = ca_file {
                let problem = format_args!("has no use with --server={server}");
                return Err(UsageError::value("--ca-file", path.display(), problem));
            }
            let token_file = token_file.map(checked_token).transpose()?;
            return Ok(Self::InCluster { server, ca_file: None, token_file });
        }
        let default = |name| around.service_account.join(name);
        let ca_file = checked_ca(ca_file.unwrap_or_else(|| default("ca.crt")))?;
        let token_file = checked_token(token_file.unwrap_or_else(|| default("token")))?;
        Ok(Self::InCluster { server, ca_file: Some(ca_file), token_file: Some(token_file) })
    }

    #[cfg(not(feature = "kubeconfig"))]
    fn kubeconfig(path: PathBuf, _context: Option<String>) -> Result<Self, UsageError> {
        let problem = "this tenure was built without the feature kubeconfig; allowed: --server, \
                       --ca-file and --token-file";
        Err(UsageError::value("--kubeconfig", path.display(), problem))
    }

    #[cfg(feature = "kubeconfig")]
    fn kubeconfig(path: PathBuf, context: Option<String>) -> Result<Self, UsageError> {
        let config = kube::config::Kubeconfig::read_from(&path).map_err(|error| {
            let problem = format_args!("cannot be read: {error}");
            UsageError::value("--kubeconfig", path.display(), problem)
        })?;
        if let Some(name) = &context {
            let known: Vec<&str> = config.contexts.iter().map(|c| c.name.as_str()).collect();
            if !known.contains(&name.as_str()) {
                let allowed = format_args!("allowed: {}", known.join(", "));
                return Err(UsageError::value("--context", name, allowed));
            }
        }
        Ok(Self::Kubeconfig { path, context })
    }
}

fn parse_server(text: &str) -> Result<http::Uri, UsageError> {
    let refuse = |allowed: &str| UsageError::value("--server", text, allowed);
    let uri: http::Uri = text
        .parse()
        .map_err(|_| refuse("allowed: a URL such as https://10.0.0.1:443, without a path"))?;
    // A user's name before the host is refused with whatever else is no port after it.
    let plain = uri.path() == "/" && uri.query().is_none() && port_of(&uri).is_some();
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(host)) if plain && !host.is_empty() => Ok(uri),
        (Some("http"), Some(host)) if plain && is_loopback(host) => Ok(uri),
        (Some("http"), Some(_)) if plain => {
            // The token would cross the network readable by everybody.
            Err(refuse("allowed: https://; http:// only on loopback"))
        }
        _ => Err(refuse("allowed: a URL such as https://10.0.0.1:443, without a path")),
    }
}

fn pod_server(around: &Surroundings) -> Result<http::Uri, UsageError> {
    let host = around.kubernetes_host.as_deref().ok_or_else(|| {
        UsageError::flag(
            "--server",
            "required outside a cluster (KUBERNETES_SERVICE_HOST is not set), or TENURE_SERVER in \
             the environment; without a cluster: --dev",
        )
    })?;
    let port = around.kubernetes_port.as_deref().unwrap_or("443");
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("https://{host}:{port}").parse().map_err(|_| {
        let problem = format_args!(
            "KUBERNETES_SERVICE_HOST={host} and KUBERNETES_SERVICE_PORT={port} are no address"
        );
        UsageError::flag("--server", problem)
    })
}

fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

fn checked_ca(path: PathBuf) -> Result<PathBuf, UsageError> {
    let pem = read_text("--ca-file", &path)?;
    let refuse = |problem: &dyn std::fmt::Display| {
        UsageError::value("--ca-file", path.display(), format_args!("{problem}; allowed: PEM"))
    };
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| refuse(&error))?;
    if certificates.is_empty() {
        return Err(refuse(&"holds no certificate"));
    }
    Ok(path)
}

fn checked_token(path: PathBuf) -> Result<PathBuf, UsageError> {
    let token = read_text("--token-file", Path::new(&path))?;
    if token.trim().is_empty() {
        return Err(UsageError::value(
            "--token-file",
            path.display(),
            "is empty; allowed: a token",
        ));
    }
    Ok(path)
}
