//! Listeners: what can be bound, and what is said where it can't.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tenure::api::{ListenConfig, Listeners};

use crate::client::{exchange, request};
use crate::site::Setup;

fn config(local: &[&str], socket: Option<&Path>) -> ListenConfig {
    ListenConfig {
        local: local.iter().map(|address| address.parse().unwrap()).collect(),
        socket: socket.map(|path| (path.to_owned(), 0o600)),
        admin: "[::]:0".parse().unwrap(),
    }
}

fn refused(config: &ListenConfig) -> String {
    let line = Listeners::bind(config).map(drop).unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[tokio::test]
async fn scenario_p5_both_families_are_served() {
    let listeners = Listeners::bind(&config(&["127.0.0.1:0", "[::1]:0"], None)).unwrap();
    let addresses = listeners.local_addresses();
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    assert_eq!(addresses.len(), 1 + usize::from(has_ipv6), "a family that is lacking is skipped");
    assert!(addresses.iter().all(|address| address.ip().is_loopback()));
}

#[tokio::test]
async fn scenario_p6_a_family_that_is_lacking_is_skipped_unless_none_is_left() {
    // An address that no interface has fails as a lacking family does.
    let listeners = Listeners::bind(&config(&["127.0.0.1:0", "192.0.2.1:0"], None)).unwrap();
    assert_eq!(listeners.local_addresses().len(), 1);
    let line = refused(&config(&["192.0.2.1:4040"], None));
    assert!(line.starts_with("--listen=192.0.2.1:4040: "), "{line}");
}

#[tokio::test]
async fn scenario_c2_a_port_in_use_is_one_clear_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let line = refused(&config(&[&address.to_string()], None));
    assert_eq!(line, format!("--listen={address}: already in use"));
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let admin = SocketAddr::new("0.0.0.0".parse().unwrap(), taken.local_addr().unwrap().port());
    let line = refused(&ListenConfig { admin, ..config(&["127.0.0.1:0"], None) });
    assert_eq!(line, format!("--admin-listen={admin}: already in use"));
}

#[tokio::test]
async fn the_unix_socket_has_its_mode_and_goes_with_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.sock");
    let with = config(&["127.0.0.1:0"], Some(&path));
    let listeners = Listeners::bind(&with).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let line = refused(&with);
    assert_eq!(line, format!("--socket={}: already in use", path.display()));
    drop(listeners);
    assert!(!path.exists(), "removed at the end");
    // One that a killed process left behind is replaced, a file that is no socket is not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(Listeners::bind(&with).unwrap());
    std::fs::write(&path, "precious").unwrap();
    assert!(refused(&with).contains("no socket"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[tokio::test]
async fn scenario_c2_a_socket_path_that_is_too_long_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x".repeat(120));
    assert!(refused(&config(&["127.0.0.1:0"], Some(&path))).starts_with("--socket="));
}

#[tokio::test]
async fn the_unix_socket_asks_for_no_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::new();
    setup.socket = Some(folder.path().join("tenure.sock"));
    let site = setup.start().await;
    site.leads().await;
    for host in ["Host: whatever", ""] {
        let bytes = request("GET", "/leader", &[host], "");
        let answer = exchange(site.unix().await, bytes.as_bytes()).await;
        crate::spec::check("local", "GET", "/leader", &answer);
        assert_eq!(answer.json()["leader"], true, "{host}");
    }
    let bytes = request("POST", "/release", &["Host: tenure"], "");
    let answer = exchange(site.unix().await, bytes.as_bytes()).await;
    assert_eq!(answer.json()["released"], true);
}
