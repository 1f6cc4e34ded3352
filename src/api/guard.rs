//! Who may ask. A web page must not: one that rebinds DNS brings a foreign `Host`, any other a
//! foreign `Origin` or `Sec-Fetch-Site`. Command-line clients and libraries pass.

use std::path::Path;

use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use http::{HeaderMap, Request, StatusCode};
use sha2::{Digest as _, Sha256};

use super::reply::Refusal;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Over TCP every call names a host that is ours.
pub(super) fn host<B>(request: &Request<B>, allowed: &[String]) -> Result<(), Refusal> {
    let ours = |authority: &str| {
        host_of(authority).is_some_and(|name| {
            LOOPBACK.iter().any(|ours| name.eq_ignore_ascii_case(ours))
                || allowed.iter().any(|ours| name.eq_ignore_ascii_case(ours))
        })
    };
    // An absolute request target overrides `Host`; where both are there, both must be ours.
    let target = request.uri().authority().is_none_or(|authority| ours(authority.as_str()));
    if target && single(request.headers(), &HOST).is_some_and(ours) {
        return Ok(());
    }
    Err(forbidden(
        "Host must be localhost, 127.0.0.1 or [::1] (others: --allowed-host), so that no web page \
         can ask",
    ))
}

/// A call that changes something comes from no web page but one of the same origin, and brings the
/// token where one is demanded.
pub(super) fn changing<B>(request: &Request<B>, token_file: Option<&Path>) -> Result<(), Refusal> {
    same_origin(request.headers())?;
    token_file.map_or(Ok(()), |file| bearer(request.headers(), file))
}

fn same_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let site = !headers.contains_key(SEC_FETCH_SITE)
        || single(headers, &SEC_FETCH_SITE) == Some("same-origin");
    let origin = !headers.contains_key(ORIGIN)
        || single(headers, &ORIGIN)
            .and_then(|origin| origin.strip_prefix("http://"))
            .zip(single(headers, &HOST))
            .is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host));
    if site && origin {
        return Ok(());
    }
    Err(forbidden("a web page of another origin may not change anything here"))
}

fn bearer(headers: &HeaderMap, file: &Path) -> Result<(), Refusal> {
    let wanted = std::fs::read_to_string(file).map_err(|error| {
        tracing::warn!(file = %file.display(), %error, "cannot read the control token");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the control token file cannot be read")
    })?;
    let wanted = wanted.trim();
    let brought = single(headers, &AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    // Digests are compared, so that the time it takes tells nothing about the token.
    let same = |token: &str| Sha256::digest(token) == Sha256::digest(wanted);
    match brought {
        Some(token) if !wanted.is_empty() && same(token) => Ok(()),
        Some(_) => Err(Refusal::unauthorized("the bearer token is not the one demanded here")),
        None => Err(Refusal::unauthorized("changing calls need the bearer token demanded here")),
    }
}

fn forbidden(error: &str) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, error)
}

/// The value of a header that is there exactly once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The name in `name`, `name:port`, `[v6]` or `[v6]:port`.
fn host_of(authority: &str) -> Option<&str> {
    let end = if authority.starts_with('[') { authority.find(']')? + 1 } else { 0 };
    let end = authority[end..].find(':').map_or(authority.len(), |colon| end + colon);
    let (name, port) = authority.split_at(end);
    let port_is_sound = port.is_empty()
        || port[1..].parse::<u16>().is_ok() && port[1..].bytes().all(|b| b.is_ascii_digit());
    port_is_sound.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::builder().uri(target);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap()
    }

    #[test]
    fn only_hosts_of_ours_pass() {
        let allowed = ["tenure.internal".to_owned()];
        for host_header in
            ["localhost", "LOCALHOST:4040", "127.0.0.1:1", "[::1]", "[::1]:4040", "tenure.internal"]
        {
            let asked = request("/leader", &[("host", host_header)]);
            assert!(host(&asked, &allowed).is_ok(), "{host_header}");
        }
        for host_header in [
            "evil.example",
            "localhost.evil.example",
            "localhost:evil",
            "localhost:+1",
            "127.0.0.1@evil",
            "::1",
            "[::1",
            "[::1]x",
            "",
            ":4040",
        ] {
            let asked = request("/leader", &[("host", host_header)]);
            assert!(host(&asked, &allowed).is_err(), "{host_header}");
        }
        assert!(host(&request("/leader", &[]), &[]).is_err(), "none");
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert!(host(&request("/leader", &twice), &[]).is_err(), "two");
        let absolute = request("http://evil.example/leader", &[("host", "localhost")]);
        assert!(host(&absolute, &[]).is_err(), "absolute target");
    }

    #[test]
    fn only_the_same_origin_changes_anything() {
        let post = |headers: &[(&str, &str)]| {
            let host = [("host", "localhost:4040")];
            changing(&request("/release", &[&host[..], headers].concat()), None)
        };
        assert!(post(&[]).is_ok());
        assert!(post(&[("origin", "http://localhost:4040")]).is_ok());
        assert!(post(&[("sec-fetch-site", "same-origin")]).is_ok());
        for headers in [
            [("origin", "http://evil.example")],
            [("origin", "http://localhost:8080")],
            [("origin", "https://localhost:4040")],
            [("origin", "null")],
            [("sec-fetch-site", "cross-site")],
            [("sec-fetch-site", "same-site")],
            [("sec-fetch-site", "none")],
        ] {
            assert!(post(&headers).is_err(), "{headers:?}");
        }
    }
}
