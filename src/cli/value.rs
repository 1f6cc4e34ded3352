//! Parsers of single values. Each error says what is allowed; flag and value are put before it.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

/// The greatest epoch: exact in every language's numbers.
const MAX_EPOCH: u64 = (1 << 53) - 1;

/// `15s`, `500ms`, `1m30s`. jiff reads them: it is in the binary for the Lease's times anyway.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let friendly = text.starts_with(|c: char| c.is_ascii_digit());
    text.parse::<SignedDuration>()
        .ok()
        .filter(|_| friendly)
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| "allowed: a duration such as 15s, 500ms or 1m30s".into())
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "allowed: true or false".into())
}

pub(super) fn epoch(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|epoch| (1..=MAX_EPOCH).contains(epoch))
        .ok_or_else(|| format!("allowed: an epoch, 1 to {MAX_EPOCH}"))
}

pub(super) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("allowed: a whole number, 0 to {}", u64::MAX))
}

pub(super) fn replicas(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("allowed: a whole number, 1 to {}", u32::MAX))
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "allowed: IP:PORT, such as 127.0.0.1:4040 or [::1]:4040".into())
}

/// Permission bits of a socket in octal, as for chmod.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777 && !text.starts_with('+'))
        .ok_or_else(|| "allowed: octal permissions, 0000 to 0777".into())
}

/// A name as it stands in a `Host` header, without its port; lower case.
pub(super) fn host(text: &str) -> Result<String, String> {
    text.parse::<http::uri::Authority>()
        .ok()
        .filter(|authority| authority.host() == text)
        .map(|_| text.to_ascii_lowercase())
        .ok_or_else(|| "allowed: a host name without scheme and port".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_documented() {
        let ms = |ms| Ok(Duration::from_millis(ms));
        assert_eq!(duration("15s"), ms(15_000));
        assert_eq!(duration("500ms"), ms(500));
        assert_eq!(duration("1m30s"), ms(90_000));
        assert_eq!(duration("1.5s"), ms(1_500));
        assert_eq!(duration("0s"), ms(0));
        let huge = "9".repeat(40) + "s";
        for bad in ["", "15", "-1s", "s", "1x", "PT15S", "15s ago", "1s-2s", "1y", "+1s", &huge] {
            assert!(duration(bad).is_err(), "{bad} became {:?}", duration(bad));
        }
    }

    #[test]
    fn modes_epochs_and_hosts_have_bounds() {
        assert_eq!(mode("0660"), Ok(0o660));
        assert!(["", "0o660", "1777", "888", "-1", "+660"].iter().all(|bad| mode(bad).is_err()));
        assert_eq!(epoch("9007199254740991"), Ok(MAX_EPOCH));
        assert!(["0", "9007199254740992", "-1", "x"].iter().all(|bad| epoch(bad).is_err()));
        assert_eq!(host("Sidecar.Local"), Ok("sidecar.local".into()));
        assert_eq!(host("[fd00::1]"), Ok("[fd00::1]".into()));
        assert!(["", "a:80", "http://a", "a/b", "u@a"].iter().all(|bad| host(bad).is_err()));
    }
}
