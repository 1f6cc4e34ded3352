//! Network namespaces, as pods have them. They need root.
//!
//! A socket belongs to the namespace it was made in: a listener that was bound inside is served from
//! outside, so that a proxy brings the API server in without any network between the two.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::cluster::process::{Process, dies_with_us};

/// Exists as long as the process that was started with it, which is killed on drop.
#[derive(Clone, Debug)]
pub struct NetNs(Arc<Held>);

#[derive(Debug)]
struct Held {
    process: Process,
    _folder: tempfile::TempDir,
}

/// Whether this process may make them. Where it may not, the test fails, unless it was told not to.
pub fn possible() -> bool {
    let root = rustix::process::geteuid().is_root();
    let left_out = std::env::var_os("TEST_WITHOUT_ROOT").is_some();
    assert!(root || left_out, "network namespaces need root; TEST_WITHOUT_ROOT=1 leaves this out");
    root
}

impl NetNs {
    /// Nothing in it but `lo`, which is down.
    pub async fn new() -> NetNs {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = dies_with_us("unshare".as_ref());
        command.args(["--net", "sleep", "infinity"]);
        let process = Process::start(command, &folder.path().join("log")).expect("start unshare");
        let netns = NetNs(Arc::new(Held { process, _folder: folder }));
        let ours = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
        let other = async {
            while std::fs::read_link(netns.path()).ok().is_none_or(|theirs| theirs == ours) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), other).await.expect("a namespace");
        netns
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.process.pid()).into()
    }

    /// A command that runs what is appended to it inside, as the same process.
    pub fn enter(&self) -> Command {
        let mut command = dies_with_us("nsenter".as_ref());
        command.arg(format!("--net={}", self.path().display()));
        command
    }

    /// Runs a command inside to its end.
    pub fn sh(&self, script: &str) {
        let mut command = self.enter();
        let output = command.args(["sh", "-ec", script]).output().expect("run nsenter");
        assert!(output.status.success(), "{script}: {output:?}");
    }

    /// Listens inside.
    pub fn bind(&self, address: SocketAddr) -> TcpListener {
        self.thread(move || TcpListener::bind(address).expect("an address inside"))
    }

    /// Does it with sockets that are made inside.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let netns = self.clone();
        let thread = tokio::task::spawn_blocking(move || {
            netns.thread(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(work)
            })
        });
        thread.await.expect("the work inside")
    }

    /// On a thread of its own, for it never comes back.
    fn thread<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let file = File::open(self.path()).expect("the namespace");
        let thread = std::thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("enter the namespace");
            work()
        });
        thread.join().expect("the work inside")
    }
}
