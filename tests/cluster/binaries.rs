//! Where the programs come from: the environment as envtest users set it, else the project's cache.

use std::env;
use std::path::{Path, PathBuf};

/// A program this harness runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Etcd,
    KubeApiserver,
    Kubectl,
    /// The client-go elector of `tests/peer`.
    Peer,
}

impl Program {
    pub fn file_name(self) -> &'static str {
        match self {
            Program::Etcd => "etcd",
            Program::KubeApiserver => "kube-apiserver",
            Program::Kubectl => "kubectl",
            Program::Peer => "tenure-peer",
        }
    }

    fn variable(self) -> Option<&'static str> {
        match self {
            Program::Etcd => Some("TEST_ASSET_ETCD"),
            Program::KubeApiserver => Some("TEST_ASSET_KUBE_APISERVER"),
            Program::Kubectl => Some("TEST_ASSET_KUBECTL"),
            Program::Peer => None,
        }
    }

    fn make_target(self) -> &'static str {
        if self == Program::Peer { "make peer" } else { "make cluster-binaries" }
    }

    /// The program's path. A test without its programs must fail, not pass unseen: so this panics.
    pub fn path(self) -> PathBuf {
        self.find().unwrap_or_else(|looked_at| {
            panic!(
                "{} is missing (looked at {}): run {}",
                self.file_name(),
                looked_at.display(),
                self.make_target()
            )
        })
    }

    /// `Err` is the last place looked at.
    fn find(self) -> Result<PathBuf, PathBuf> {
        if let Some(given) = self.variable().and_then(env::var_os) {
            return existing(PathBuf::from(given));
        }
        if self != Program::Peer
            && let Some(assets) = env::var_os("KUBEBUILDER_ASSETS")
            && let Ok(path) = existing(Path::new(&assets).join(self.file_name()))
        {
            return Ok(path);
        }
        existing(self.cached())
    }

    fn cached(self) -> PathBuf {
        let folder = match self {
            Program::Peer => PathBuf::from("peer"),
            _ => Path::new("kubernetes").join(kubernetes_version()),
        };
        cache().join(folder).join("bin").join(self.file_name())
    }
}

fn existing(path: PathBuf) -> Result<PathBuf, PathBuf> {
    if path.is_file() { Ok(path) } else { Err(path) }
}

fn cache() -> PathBuf {
    match env::var_os("TENURE_CACHE") {
        Some(given) => PathBuf::from(given),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache"),
    }
}

/// The one place that names the version is the Go module the binaries are built from.
fn kubernetes_version() -> &'static str {
    include_str!("binaries/go.mod")
        .lines()
        .find_map(|line| line.split_once("k8s.io/kubernetes ").map(|(_, version)| version.trim()))
        .expect("go.mod requires k8s.io/kubernetes")
}
