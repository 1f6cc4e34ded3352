//! The flags of `tenure demo`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::value;

/// `tenure demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// L of the three candidates; whole seconds, at least 2s
    #[arg(long, env = "TENURE_LEASE_DURATION", value_name = "DURATION", default_value = "3s")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub lease_duration: Duration,
    /// R: how long a renewal keeps the leader leading; 1.2 R <= L
    #[arg(long, env = "TENURE_RENEW_DEADLINE", value_name = "DURATION", default_value = "2400ms")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub renew_deadline: Duration,
    /// P: time between renewals; 1.2 P < R and (R - P) / 3 >= 200ms
    #[arg(long, env = "TENURE_RETRY_PERIOD", value_name = "DURATION", default_value = "500ms")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub retry_period: Duration,
    /// End after this long [default: go on until stopped]
    #[arg(long, env = "TENURE_DURATION", value_name = "DURATION")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// Do what happens to the leaders in the order of this number
    /// [default: a random one]
    #[arg(long, env = "TENURE_SEED", value_name = "NUMBER", verbatim_doc_comment)]
    #[arg(value_parser = value::number)]
    pub seed: Option<u64>,
    /// Let the register take every write, to show what the fence is for
    #[arg(long, env = "TENURE_NO_FENCE", value_parser = value::boolean, action = ArgAction::SetTrue)]
    pub no_fence: bool,
    /// One JSON object per event and one summary, on stdout
    #[arg(long, env = "TENURE_JSON", value_parser = value::boolean, action = ArgAction::SetTrue)]
    pub json: bool,
    /// Lines instead of the live picture, also on a terminal
    #[arg(long, env = "TENURE_PLAIN", value_parser = value::boolean, action = ArgAction::SetTrue)]
    pub plain: bool,
    /// Write the last picture of the run here, as SVG
    /// (only in builds with the feature `demo-tui`)
    #[arg(verbatim_doc_comment, long, env = "TENURE_PICTURE", value_name = "PATH")]
    pub picture: Option<PathBuf>,
    /// Only the Lease API, without candidates
    #[arg(long, env = "TENURE_API_ONLY", value_parser = value::boolean, action = ArgAction::SetTrue)]
    pub api_only: bool,
    /// Address of the Lease API; loopback only, port 0 for any free one
    #[arg(long, env = "TENURE_LISTEN", value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    #[arg(value_parser = value::address)]
    pub listen: SocketAddr,
    /// Write a kubeconfig for the Lease API here
    #[arg(long, env = "TENURE_WRITE_KUBECONFIG", value_name = "PATH")]
    pub write_kubeconfig: Option<PathBuf>,
}
