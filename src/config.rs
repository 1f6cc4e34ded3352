//! Flags, variables and surroundings become a [`Config`], or one line that says why not.
//!
//! Parse, don't validate: nobody who is given a `Config` looks again at what it holds.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::{DevRole, SidecarArgs, UsageError};
use crate::core::{DrainTimeout, MissingLease, OnAppExit};
use crate::identity::Identity;
use crate::telemetry::Log;
use crate::timing::Timing;

mod api_server;
mod surroundings;

pub use api_server::ApiServer;
pub use surroundings::Surroundings;

/// The longest path a Unix socket's address can hold: 108 bytes with the final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// Limits of Kubernetes' own names.
const MAX_SUBDOMAIN_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;
/// The holder that stands for "made, but held by nobody".
const RESERVED_IDENTITY: &str = "tenure/new";

/// All that `tenure sidecar` is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which Lease.
    pub lease: LeaseRef,
    /// Who we are on it.
    pub identity: Identity,
    /// L, R and P.
    pub timing: Timing,
    /// Where the app and the probes ask.
    pub local_api: LocalApi,
    /// How leadership is given up.
    pub stepping_down: SteppingDown,
    /// What to do where there is no Lease.
    pub missing_lease: MissingLease,
    /// Where Leases are kept.
    pub api_server: ApiServer,
    /// How to log.
    pub log: Log,
    /// Lines to warn with once, at the start: sound, but most likely not what was meant.
    pub warnings: Vec<String>,
}

/// A Lease by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// A DNS label.
    pub namespace: String,
    /// A DNS subdomain.
    pub name: String,
}

/// The listeners and their rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalApi {
    /// At least one; all loopback unless `--listen-anywhere`.
    pub listen: Vec<SocketAddr>,
    /// The Unix socket, if asked for.
    pub socket: Option<UnixSocket>,
    /// `/metrics`, `/livez`, `/readyz`.
    pub admin_listen: SocketAddr,
    /// Was readable, and held a token, at the start.
    pub control_token_file: Option<PathBuf>,
    /// Lower case, without ports.
    pub allowed_hosts: Vec<String>,
    /// The most that an answer grants to callers that see its length. At least 1 ms.
    pub max_valid: Option<Duration>,
}

/// A Unix socket to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// 1 to 107 bytes.
    pub path: PathBuf,
    /// Permission bits, at most 0o777.
    pub mode: u32,
}

/// The rules of the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteppingDown {
    /// How long to go on renewing.
    pub drain_timeout: DrainTimeout,
    /// When the last hold closes outside a shutdown.
    pub on_app_exit: OnAppExit,
    /// SIGTERM alone is the app's word.
    pub unsafe_release_on_sigterm: bool,
}

impl Config {
    /// Makes the arguments sound.
    ///
    /// # Errors
    /// The first thing that is missing, unreadable or contradicts another, as one line.
    pub fn new(args: SidecarArgs, around: &Surroundings) -> Result<Self, UsageError> {
        // Taken apart field by field: a flag that nothing uses is an unused variable.
        let SidecarArgs {
            lease_name,
            namespace,
            pod_name,
            pod_uid,
            identity,
            lease_duration,
            renew_deadline,
            retry_period,
            listen,
            listen_anywhere,
            socket,
            socket_mode,
            admin_listen,
            control_token_file,
            allowed_host,
            max_valid,
            drain_timeout,
            on_app_exit,
            unsafe_release_on_sigterm,
            missing_lease,
            server,
            ca_file,
            token_file,
            kubeconfig,
            context,
            dev,
            log_format,
            log,
        } = args;
        let mut warnings = Vec::new();
        let timing = Timing::new(lease_duration, renew_deadline, retry_period)
            .map_err(|error| UsageError::line(&error.to_string()))?;
        let given = api_server::Given { server, ca_file, token_file, kubeconfig, context, dev };
        let api_server = ApiServer::new(given, around)?;
        Ok(Self {
            lease: LeaseRef::new(lease_name, namespace, &api_server, around)?,
            identity: identity_of(identity, pod_name, pod_uid, around, &mut warnings)?,
            timing,
            local_api: LocalApi {
                listen: listen_addresses(listen, listen_anywhere)?,
                socket: socket.map(|path| UnixSocket::new(path, socket_mode)).transpose()?,
                admin_listen,
                control_token_file: control_token_file.map(checked_token_file).transpose()?,
                allowed_hosts: allowed_host,
                max_valid: max_valid
                    .map(|most| checked_max_valid(most, &timing, &mut warnings))
                    .transpose()?,
            },
            stepping_down: SteppingDown { drain_timeout, on_app_exit, unsafe_release_on_sigterm },
            missing_lease,
            api_server,
            log: Log { format: log_format, filter: log },
            warnings,
        })
    }

    /// The role in `--dev`, `None` with a real API server.
    #[must_use]
    pub fn dev(&self) -> Option<DevRole> {
        match self.api_server {
            ApiServer::Dev(role) => Some(role),
            _ => None,
        }
    }
}

impl LeaseRef {
    fn new(
        name: String,
        namespace: Option<String>,
        api_server: &ApiServer,
        around: &Surroundings,
    ) -> Result<Self, UsageError> {
        if !is_subdomain(&name) {
            return Err(UsageError::value(
                "--lease-name",
                name,
                "allowed: a DNS subdomain (a-z, 0-9, '-' and '.', at most 253 bytes)",
            ));
        }
        let namespace = match (namespace, api_server) {
            (Some(given), _) => given,
            // Nobody else sees the embedded Lease: any namespace will do.
            (None, ApiServer::Dev(_)) => "default".into(),
            (None, _) => around.namespace().ok_or_else(|| {
                UsageError::flag(
                    "--namespace",
                    "required outside a pod, or TENURE_NAMESPACE in the environment",
                )
            })?,
        };
        if namespace.len() > MAX_LABEL_BYTES || !is_label(&namespace) {
            return Err(UsageError::value(
                "--namespace",
                namespace,
                "allowed: a DNS label (a-z, 0-9 and '-', at most 63 bytes)",
            ));
        }
        Ok(Self { namespace, name })
    }
}

impl UnixSocket {
    fn new(path: PathBuf, mode: u32) -> Result<Self, UsageError> {
        let bytes = path.as_os_str().len();
        if bytes == 0 || bytes > MAX_SOCKET_PATH_BYTES {
            return Err(UsageError::value(
                "--socket",
                path.display(),
                format_args!("{bytes} bytes long; allowed: 1 to {MAX_SOCKET_PATH_BYTES} bytes"),
            ));
        }
        if path.as_os_str().as_encoded_bytes().starts_with(b"@") {
            return Err(UsageError::value(
                "--socket",
                path.display(),
                "an abstract socket has no mode, so any process of the pod could connect; allowed: \
                 a file's path (./@NAME for a file of such a name)",
            ));
        }
        Ok(Self { path, mode })
    }
}

fn identity_of(
    explicit: Option<String>,
    pod_name: Option<String>,
    pod_uid: Option<String>,
    around: &Surroundings,
    warnings: &mut Vec<String>,
) -> Result<Identity, UsageError> {
    if let Some(holder) = explicit {
        return explicit_identity(holder);
    }
    let name = pod_name.or_else(|| around.pod_name.clone());
    let uid = pod_uid.or_else(|| around.pod_uid.clone());
    // Also catches a manifest's "$(POD_NAME)" that was never expanded.
    if let Some(name) = name.as_ref().filter(|name| !is_subdomain(name)) {
        return Err(UsageError::value(
            "--pod-name",
            name,
            "allowed: a pod's name, a DNS subdomain",
        ));
    }
    let uid_is_sound =
        |uid: &str| !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if let Some(uid) = uid.as_ref().filter(|uid| !uid_is_sound(uid)) {
        return Err(UsageError::value(
            "--pod-uid",
            uid,
            "allowed: a pod's uid (A-Z, a-z, 0-9, '-')",
        ));
    }
    match (name, uid) {
        (Some(name), Some(uid)) => Ok(Identity::of_pod(&name, &uid)),
        (None, Some(uid)) => {
            Err(UsageError::value("--pod-uid", uid, "needs --pod-name, or POD_NAME, beside it"))
        }
        (name, None) => {
            if name.is_some() {
                warnings.push(
                    "--pod-name without --pod-uid (POD_UID): a random identity is used, and after \
                     a restart of this container its own Lease is waited out"
                        .into(),
                );
            }
            let host = name.or_else(|| around.host_name.clone()).ok_or_else(|| {
                UsageError::flag("--identity", "required where the host has no name")
            })?;
            Identity::random(&host).map_err(|error| UsageError::flag("--identity", error))
        }
    }
}

fn explicit_identity(holder: String) -> Result<Identity, UsageError> {
    let problem = if holder.is_empty() {
        "allowed: any text but the empty one"
    } else if holder.chars().any(char::is_control) {
        "allowed: text without control characters"
    } else if holder == RESERVED_IDENTITY {
        "stands for a Lease that nobody holds"
    } else if holder.contains("$(") {
        // Every replica would have the same identity, and each take the others' Lease for its own.
        "holds a variable that was not expanded"
    } else {
        return Ok(Identity::Explicit { holder });
    };
    Err(UsageError::value("--identity", holder, problem))
}

fn listen_addresses(
    listen: Vec<SocketAddr>,
    anywhere: bool,
) -> Result<Vec<SocketAddr>, UsageError> {
    let foreign = listen.iter().find(|address| !address.ip().to_canonical().is_loopback());
    match foreign {
        Some(address) if !anywhere => Err(UsageError::value(
            "--listen",
            address,
            "allowed: loopback addresses; with --listen-anywhere any (whoever reaches it can ask \
             and, without --control-token-file, end leadership)",
        )),
        _ => Ok(listen),
    }
}

fn checked_max_valid(
    most: Duration,
    timing: &Timing,
    warnings: &mut Vec<String>,
) -> Result<Duration, UsageError> {
    // Validity is told in whole milliseconds: less than one would never say leader.
    if most < Duration::from_millis(1) {
        let flag = "--max-valid";
        return Err(UsageError::value(flag, format_args!("{most:?}"), "allowed: at least 1ms"));
    }
    let deadline = timing.renew_deadline();
    if most >= deadline {
        warnings.push(format!(
            "--max-valid={most:?} has no effect: no answer grants more than \
             --renew-deadline={deadline:?}"
        ));
    }
    Ok(most)
}

fn checked_token_file(path: PathBuf) -> Result<PathBuf, UsageError> {
    let flag = "--control-token-file";
    let token = read_text(flag, &path)?;
    let token = token.trim();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        let allowed = "allowed: a file with one token of printable ASCII, without spaces";
        return Err(UsageError::value(flag, path.display(), allowed));
    }
    Ok(path)
}

fn read_text(flag: &str, path: &Path) -> Result<String, UsageError> {
    std::fs::read_to_string(path).map_err(|error| {
        UsageError::value(flag, path.display(), format_args!("cannot be read: {error}"))
    })
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN_BYTES && text.split('.').all(is_label)
}

/// Letters, digits and inner hyphens, not empty; the length is the caller's.
fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests;
