//! Who this process is: the holder identity it writes into the Lease, the incarnation that tells it
//! from its predecessors, and whether it may take over from one of them at start.

use std::io;

use sha2::{Digest, Sha256};

/// The name under which this process holds the Lease, and where it came from. Compared exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// `<pod name>_<pod uid>`: the same for every process that this pod ever runs.
    Pod {
        /// `metadata.name` of the pod.
        name: String,
        /// `metadata.uid` of the pod.
        uid: String,
        /// The two joined.
        holder: String,
    },
    /// `--identity`, taken as it stands.
    Explicit {
        /// What was given.
        holder: String,
    },
    /// `<hostname>_<random uuid>`: never used before, so it has no predecessor.
    Random {
        /// The two joined.
        holder: String,
    },
}

impl Identity {
    /// The pod's own identity.
    #[must_use]
    pub fn of_pod(name: &str, uid: &str) -> Self {
        Self::Pod { name: name.into(), uid: uid.into(), holder: format!("{name}_{uid}") }
    }

    /// A new identity on this host.
    ///
    /// # Errors
    /// Where the kernel gives no random numbers.
    pub fn random(host: &str) -> io::Result<Self> {
        Ok(Self::Random { holder: format!("{host}_{}", random_uuid()?) })
    }

    /// What is written into `spec.holderIdentity`.
    #[must_use]
    pub fn holder(&self) -> &str {
        match self {
            Self::Pod { holder, .. } | Self::Explicit { holder } | Self::Random { holder } => {
                holder
            }
        }
    }

    /// Name and uid of the pod, where both are known (Events are related to it).
    #[must_use]
    pub fn pod(&self) -> Option<(&str, &str)> {
        match self {
            Self::Pod { name, uid, .. } => Some((name, uid)),
            Self::Explicit { .. } | Self::Random { .. } => None,
        }
    }

    /// Whether a record with this identity and another incarnation, found in the first read, is
    /// that of a dead predecessor, to be taken over at once [F6].
    ///
    /// Only for a pod's own identity; only if no living process shares it (`claim` was bound); and
    /// only if the service-account token, where it tells its pod, tells this one: two pods that
    /// were given one uid by hand differ there.
    #[must_use]
    pub fn takes_over(&self, claim: &Claim, token: Option<&str>) -> bool {
        let Self::Pod { uid, .. } = self else { return false };
        matches!(claim, Claim::Bound(_))
            && token.and_then(pod_uid_claim).is_none_or(|claimed| claimed == *uid)
    }
}

/// The outcome of claiming an identity on this machine; see [`claim`].
#[derive(Debug)]
pub enum Claim {
    /// No other living process in this network namespace has it. Keep the guard for life.
    Bound(ClaimGuard),
    /// Another living process has it.
    Taken,
    /// This machine cannot tell (no abstract sockets, or the kernel refused for another reason).
    Unknown(io::Error),
}

/// Holds the abstract socket; the kernel frees it when the process dies, however it dies.
#[derive(Debug)]
pub struct ClaimGuard(#[expect(dead_code, reason = "held only to keep the name bound")] Socket);

#[cfg(target_os = "linux")]
type Socket = std::os::unix::net::UnixListener;
#[cfg(not(target_os = "linux"))]
type Socket = std::convert::Infallible;

/// Binds the abstract Unix socket that stands for this identity on this Lease.
#[must_use]
pub fn claim(namespace: &str, lease: &str, identity: &Identity) -> Claim {
    bind(&claim_name(namespace, lease, identity.holder()))
}

#[cfg(target_os = "linux")]
fn bind(name: &str) -> Claim {
    use std::os::linux::net::SocketAddrExt as _;
    let bound = std::os::unix::net::SocketAddr::from_abstract_name(name)
        .and_then(|address| Socket::bind_addr(&address));
    match bound {
        Ok(socket) => Claim::Bound(ClaimGuard(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Claim::Taken,
        Err(error) => Claim::Unknown(error),
    }
}

#[cfg(not(target_os = "linux"))]
fn bind(_name: &str) -> Claim {
    Claim::Unknown(io::ErrorKind::Unsupported.into())
}

/// `tenure/<h>`, without the leading `@`. Hashed because the plain text often passes 107 bytes.
fn claim_name(namespace: &str, lease: &str, holder: &str) -> String {
    let digest = Sha256::digest(format!("{namespace}/{lease}/{holder}"));
    format!("tenure/{}", hex(&digest[..16]))
}

/// A random id of this process: 128 bits as 32 hex digits.
///
/// # Errors
/// Where the kernel gives no random numbers.
pub fn new_incarnation() -> io::Result<String> {
    Ok(hex(&random_bytes()?))
}

/// The pod uid that a service-account token names, `None` where it names none (an opaque token, one
/// not bound to a pod). The signature is not looked at: it is our own token, and only read to
/// notice that we are not who we think we are.
fn pod_uid_claim(token: &str) -> Option<String> {
    use base64::Engine as _;
    let payload = token.trim().split('.').nth(1)?;
    let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(payload.trim_end_matches('='))
        .ok()?;
    let payload: serde_json::Value = serde_json::from_slice(&payload).ok()?;
    match payload.get("kubernetes.io")?.get("pod")?.get("uid")? {
        serde_json::Value::String(uid) => Some(uid.clone()),
        // Present but no uid: equal to nobody's, hence no take-over.
        other => Some(other.to_string()),
    }
}

/// A version 4 UUID.
fn random_uuid() -> io::Result<String> {
    let mut bytes = random_bytes()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let h = hex(&bytes);
    Ok(format!("{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..]))
}

fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6f0c2a1e-0000-4000-8000-000000000001";

    fn token(payload: &str) -> String {
        use base64::Engine as _;
        let b64 = &base64::engine::general_purpose::URL_SAFE_NO_PAD;
        format!("{}.{}.sig", b64.encode("{}"), b64.encode(payload))
    }

    fn token_of(uid: &str) -> String {
        token(&format!(r#"{{"kubernetes.io":{{"pod":{{"name":"web","uid":"{uid}"}}}}}}"#))
    }

    /// Each test claims a name of its own: abstract names are shared by the whole machine.
    fn unique() -> Identity {
        Identity::of_pod(&random_uuid().unwrap(), UID)
    }

    #[test]
    fn holder_is_pod_name_and_uid_or_host_and_a_uuid() {
        assert_eq!(Identity::of_pod("web", UID).holder(), format!("web_{UID}"));
        let (a, b) = (Identity::random("h").unwrap(), Identity::random("h").unwrap());
        assert_ne!(a, b);
        let uuid = a.holder().strip_prefix("h_").unwrap();
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"), "{uuid}");
    }

    #[test]
    fn an_incarnation_is_128_bits_of_hex() {
        let id = new_incarnation().unwrap();
        assert_eq!(id.len(), 32);
        assert!(id.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_ne!(id, new_incarnation().unwrap());
    }

    #[test]
    fn the_claim_is_the_documented_hash_and_fits_an_address() {
        // printf %s shop/billing/web_1 | sha256sum
        assert_eq!(
            claim_name("shop", "billing", "web_1"),
            "tenure/f30329113d0033c385fe87263ce30e8d"
        );
        assert!(claim_name("n", "l", &"x".repeat(4096)).len() <= 107);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn mark_f6_the_second_process_with_one_identity_does_not_take_over() {
        let me = unique();
        let first = claim("ns", "lease", &me);
        assert!(matches!(first, Claim::Bound(_)), "{first:?}");
        assert!(me.takes_over(&first, None));
        let second = claim("ns", "lease", &me);
        assert!(matches!(second, Claim::Taken), "{second:?}");
        assert!(!me.takes_over(&second, Some(&token_of(UID))));
        assert!(matches!(claim("ns", "other-lease", &me), Claim::Bound(_)));
        drop(first);
        assert!(matches!(claim("ns", "lease", &me), Claim::Bound(_)), "freed with its owner");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn mark_f6_a_token_of_another_pod_forbids_the_take_over() {
        let me = unique();
        let bound = claim("ns", "lease", &me);
        let other = "6f0c2a1e-0000-4000-8000-000000000002";
        assert!(me.takes_over(&bound, Some(&token_of(UID))));
        assert!(!me.takes_over(&bound, Some(&token_of(other))));
        assert!(!me.takes_over(&bound, Some(&token(r#"{"kubernetes.io":{"pod":{"uid":7}}}"#))));
        // No claim: a token that is not bound to a pod, or is no JWT at all.
        for none in [token(r#"{"kubernetes.io":{"namespace":"ns"}}"#), "opaque".into(), "..".into()]
        {
            assert!(me.takes_over(&bound, Some(&none)), "{none}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn mark_f6_an_identity_given_by_hand_never_takes_over() {
        let explicit = Identity::Explicit { holder: random_uuid().unwrap() };
        let bound = claim("ns", "lease", &explicit);
        assert!(matches!(bound, Claim::Bound(_)));
        assert!(!explicit.takes_over(&bound, Some(&token_of(UID))));
        assert!(!Identity::random("h").unwrap().takes_over(&bound, None));
    }
}
