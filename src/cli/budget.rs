//! `tenure budget`: its flags, and its answer on stdout.

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::{UsageError, value};
use crate::budget::{Budget, Question};
use crate::timing::Timing;

/// Keeps every sum far from the end of a [`Duration`].
const MAX_REQUEST_TIME: Duration = Duration::from_secs(60 * 60);

/// `tenure budget`.
#[derive(Debug, Args)]
pub struct BudgetArgs {
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
    /// The longest grant that the app asks for [default: all there is]
    #[arg(long, env = "TENURE_MAX_VALID", value_name = "DURATION")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub max_valid: Option<Duration>,
    /// How many candidates there are
    #[arg(long, env = "TENURE_REPLICAS", value_name = "NUMBER", default_value = "3")]
    #[arg(value_parser = value::replicas)]
    pub replicas: u32,
    /// What one request to the API server and its answer take
    #[arg(long, env = "TENURE_REQUEST_TIME", value_name = "DURATION", default_value = "20ms")]
    #[arg(value_parser = value::duration, allow_hyphen_values = true)]
    pub request_time: Duration,
    /// Print one JSON object; durations in whole milliseconds
    #[arg(long, env = "TENURE_JSON", value_parser = value::boolean, action = ArgAction::SetTrue)]
    pub json: bool,
}

/// Prints what follows from the timings.
///
/// # Errors
/// The broken inequality between them, or a value out of range.
pub fn budget(args: BudgetArgs) -> Result<ExitCode, UsageError> {
    let BudgetArgs {
        lease_duration,
        renew_deadline,
        retry_period,
        max_valid,
        replicas,
        request_time,
        json,
    } = args;
    let timing = Timing::new(lease_duration, renew_deadline, retry_period)
        .map_err(|error| UsageError::line(&error.to_string()))?;
    if request_time > MAX_REQUEST_TIME {
        return Err(UsageError::value(
            "--request-time",
            format_args!("{request_time:?}"),
            "allowed: at most 1h",
        ));
    }
    let budget = Budget::of(Question { timing, max_valid, replicas, request_time });
    let text = if json { format!("{:#}\n", budget.to_json()) } else { budget.to_text() };
    Ok(super::print(&text))
}
