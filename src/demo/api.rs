//! The embedded Lease API on a socket, for the demo's own candidates and for anybody's client.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use tokio::net::TcpListener;

use crate::embedded::{LeaseApi, Server};

/// First line of a kubeconfig that is ours to replace.
const OURS: &str = "# written by tenure demo";

pub(super) fn serve(lease_api: &LeaseApi, listener: TcpListener) -> io::Result<Server> {
    lease_api.serve(listener)
}

/// Writes a kubeconfig whose only context is this API. Another program's file is never replaced.
pub(super) fn write_kubeconfig(path: &Path, address: SocketAddr) -> io::Result<()> {
    match std::fs::read_to_string(path) {
        Ok(text) if !text.starts_with(OURS) => {
            let why = "exists and was not written by tenure demo";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let text = format!(
        "{OURS}\n\
         apiVersion: v1\n\
         kind: Config\n\
         current-context: tenure-demo\n\
         clusters:\n\
         - name: tenure-demo\n\
         \x20 cluster: {{server: \"http://{address}\"}}\n\
         users:\n\
         - name: anybody\n\
         \x20 user: {{token: anybody}}\n\
         contexts:\n\
         - name: tenure-demo\n\
         \x20 context: {{cluster: tenure-demo, user: anybody, namespace: default}}\n"
    );
    std::fs::File::create(path)?.write_all(text.as_bytes())
}
