//! The flags of `tenure sidecar`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use tracing_subscriber::filter::Targets;

use super::value;
use crate::core::{DrainTimeout, MissingLease, OnAppExit};
use crate::telemetry::LogFormat;

/// How the embedded Lease of `--dev` treats this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DevRole {
    /// Nobody else is there: leads at once.
    Leader,
    /// Somebody else holds the Lease and renews it.
    Follower,
}

/// `tenure sidecar`. One field per flag; [`crate::config::Config::new`] takes it apart field by
/// field, so a flag that nothing uses does not compile.
#[derive(Debug, Args)]
pub struct SidecarArgs {
    /// The Lease (a DNS subdomain)
    #[arg(long, env = "TENURE_LEASE_NAME", value_name = "NAME")]
    pub lease_name: String,
    /// Its namespace [default: the pod's]
    #[arg(long, env = "TENURE_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// The pod's name [default: $POD_NAME]
    #[arg(long, env = "TENURE_POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,
    /// The pod's uid [default: $POD_UID]
    #[arg(long, env = "TENURE_POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,
    /// Any exact holder identity; then no take-over from a predecessor
    /// at start
    /// [default: <pod name>_<pod uid>, else <hostname>_<random uuid>]
    #[arg(long, env = "TENURE_IDENTITY", value_name = "TEXT", verbatim_doc_comment)]
    pub identity: Option<String>,

    /// L: how long others honour the record; whole seconds, at least 2s
    #[arg(long, env = "TENURE_LEASE_DURATION", value_name = "DURATION", default_value = "15s")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub lease_duration: Duration,
    /// R: how long a renewal keeps the leader leading; 1.2 R <= L
    #[arg(long, env = "TENURE_RENEW_DEADLINE", value_name = "DURATION", default_value = "10s")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub renew_deadline: Duration,
    /// P: time between renewals; 1.2 P < R and (R - P) / 3 >= 200ms
    #[arg(long, env = "TENURE_RETRY_PERIOD", value_name = "DURATION", default_value = "2s")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub retry_period: Duration,

    /// Addresses of the local API; others than loopback need
    /// --listen-anywhere
    #[arg(long, env = "TENURE_LISTEN", value_name = "IP:PORT", value_delimiter = ',')]
    #[arg(verbatim_doc_comment)]
    #[arg(value_parser = value::address, default_values = ["127.0.0.1:4040", "[::1]:4040"])]
    pub listen: Vec<SocketAddr>,
    /// Let --listen name addresses that other machines reach
    #[arg(long, env = "TENURE_LISTEN_ANYWHERE", value_parser = value::boolean)]
    #[arg(action = ArgAction::SetTrue)]
    pub listen_anywhere: bool,
    /// The same API on a Unix socket (at most 107 bytes)
    #[arg(long, env = "TENURE_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Permissions of that socket, in octal
    #[arg(long, env = "TENURE_SOCKET_MODE", value_name = "MODE", default_value = "0660")]
    #[arg(value_parser = value::mode, allow_hyphen_values = true)]
    pub socket_mode: u32,
    /// Address of /metrics, /livez and /readyz; where the kernel has no IPv6,
    /// [::] means 0.0.0.0
    #[arg(long, env = "TENURE_ADMIN_LISTEN", value_name = "IP:PORT", default_value = "[::]:4041")]
    #[arg(value_parser = value::address, verbatim_doc_comment)]
    pub admin_listen: SocketAddr,
    /// File with the bearer token that changing calls must bring
    #[arg(long, env = "TENURE_CONTROL_TOKEN_FILE", value_name = "PATH")]
    pub control_token_file: Option<PathBuf>,
    /// Further Host names that the local API answers to; may be repeated
    #[arg(long, env = "TENURE_ALLOWED_HOST", value_name = "HOST", value_delimiter = ',')]
    #[arg(value_parser = value::host)]
    pub allowed_host: Vec<String>,
    /// No answer of /leader or the stream grants more than this
    #[arg(long, env = "TENURE_MAX_VALID", value_name = "DURATION")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub max_valid: Option<Duration>,

    /// How long to go on renewing for an app that has not said it stopped;
    /// auto = up to 25s while a hold is open, else not at all
    #[arg(long, env = "TENURE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "auto")]
    #[arg(value_parser = drain_timeout, allow_hyphen_values = true, verbatim_doc_comment)]
    pub drain_timeout: DrainTimeout,
    /// When the last hold closes outside a shutdown: release, or keep
    #[arg(long, env = "TENURE_ON_APP_EXIT", value_name = "WHAT", default_value = "release")]
    #[arg(value_parser = on_app_exit)]
    pub on_app_exit: OnAppExit,
    /// SIGTERM alone counts as "the work has stopped"
    #[arg(long, env = "TENURE_UNSAFE_RELEASE_ON_SIGTERM", value_parser = value::boolean)]
    #[arg(action = ArgAction::SetTrue)]
    pub unsafe_release_on_sigterm: bool,
    /// Where there is no Lease: create (held by nobody, taken after L),
    /// create-free (at once; two leaders are possible after a deletion)
    /// or never (wait for somebody to make it)
    #[arg(long, env = "TENURE_MISSING_LEASE", value_name = "WHAT", default_value = "create")]
    #[arg(value_parser = missing_lease, verbatim_doc_comment)]
    pub missing_lease: MissingLease,

    /// The API server; http:// only on loopback [default: the pod's]
    #[arg(long, env = "TENURE_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// Its certificate authority, PEM [default: the pod's]
    #[arg(long, env = "TENURE_CA_FILE", value_name = "PATH")]
    pub ca_file: Option<PathBuf>,
    /// A service-account token, read again as it changes [default: the pod's]
    #[arg(long, env = "TENURE_TOKEN_FILE", value_name = "PATH")]
    pub token_file: Option<PathBuf>,
    /// A kubeconfig instead of the three above
    /// (only in builds with the feature `kubeconfig`)
    #[arg(verbatim_doc_comment, long, env = "TENURE_KUBECONFIG", value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig [default: its current one]
    #[arg(long, env = "TENURE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// No cluster: an embedded Lease in this process, for an app's own
    /// development
    #[arg(verbatim_doc_comment, long, env = "TENURE_DEV", value_name = "ROLE", value_enum)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "leader")]
    pub dev: Option<DevRole>,

    /// How log lines are written, on stderr
    #[arg(long, env = "TENURE_LOG_FORMAT", value_name = "FORMAT", value_enum)]
    #[arg(default_value = "text")]
    pub log_format: LogFormat,
    /// What is logged: a level, or target=level, comma-separated
    #[arg(long, env = "TENURE_LOG", value_name = "FILTER", default_value = "info")]
    #[arg(value_parser = crate::telemetry::parse_filter)]
    pub log: Targets,
}

fn drain_timeout(text: &str) -> Result<DrainTimeout, String> {
    match text {
        "auto" => Ok(DrainTimeout::Auto),
        _ => value::duration(text)
            .map(DrainTimeout::Explicit)
            .map_err(|error| format!("{error}, or auto")),
    }
}

fn on_app_exit(text: &str) -> Result<OnAppExit, String> {
    match text {
        "release" => Ok(OnAppExit::Release),
        "keep" => Ok(OnAppExit::Keep),
        _ => Err("allowed: release, keep".into()),
    }
}

fn missing_lease(text: &str) -> Result<MissingLease, String> {
    match text {
        "create" => Ok(MissingLease::Create),
        "create-free" => Ok(MissingLease::CreateFree),
        "never" => Ok(MissingLease::Never),
        _ => Err("allowed: create, create-free, never".into()),
    }
}
