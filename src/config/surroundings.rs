//! What a process finds around itself: the variables and files that a pod is given.

use std::path::PathBuf;

/// Where the kubelet mounts the token, the CA and the namespace of the pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The defaults that come from outside the command line. An empty variable counts as none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// `KUBERNETES_SERVICE_HOST`: set in every pod of a cluster.
    pub kubernetes_host: Option<String>,
    /// `KUBERNETES_SERVICE_PORT`.
    pub kubernetes_port: Option<String>,
    /// `POD_NAME`.
    pub pod_name: Option<String>,
    /// `POD_UID`.
    pub pod_uid: Option<String>,
    /// The kernel's name for this host (in a pod, the pod's name).
    pub host_name: Option<String>,
    /// The folder with `namespace`, `token` and `ca.crt`; it need not exist.
    pub service_account: PathBuf,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            kubernetes_host: variable("KUBERNETES_SERVICE_HOST"),
            kubernetes_port: variable("KUBERNETES_SERVICE_PORT"),
            pod_name: variable("POD_NAME"),
            pod_uid: variable("POD_UID"),
            host_name: Some(host).filter(|host| !host.is_empty()),
            service_account: SERVICE_ACCOUNT.into(),
        }
    }

    /// The pod's namespace, where there is a pod.
    pub(super) fn namespace(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.service_account.join("namespace")).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }
}
