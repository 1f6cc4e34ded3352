//! What stands between one candidate and the API server: faults of connections first, then faults
//! of requests.

use super::{Cluster, FaultProxy, Flow, Proxy};

#[derive(Debug)]
pub struct Wire {
    /// Done to connections.
    pub bytes: Proxy,
    /// Done to requests.
    pub http: FaultProxy,
}

impl Wire {
    pub fn start(cluster: &Cluster) -> Wire {
        let http = FaultProxy::start(cluster.api_server.port, &cluster.pki);
        Wire { bytes: Proxy::start(http.port), http }
    }

    /// What the candidate is given as its API server.
    pub fn url(&self) -> String {
        self.bytes.url()
    }

    /// Everything passes again.
    pub fn heal(&self) {
        self.bytes.set(Flow::Both);
        self.http.clear();
    }
}
