//! Children that never outlive the test process, and the faults that can be done to them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// The kernel sends the "parent died" signal when the *thread* that forked ends, and libtest gives each
/// test a thread of its own. So all children are forked by one thread that lives as long as the process.
static FORKER: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (orders, inbox) = mpsc::channel::<Order>();
    thread::Builder::new()
        .name("forker".into())
        .spawn(move || {
            for (mut command, answer) in inbox {
                // Nobody waits for the answer if the asking test has panicked meanwhile: then the
                // child must not be left running.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        })
        .expect("a thread");
    Mutex::new(orders)
});

/// A command that runs `program` so that it dies with this process, however that ends (SIGKILL too).
///
/// `setpriv` (util-linux) sets the parent-death signal and then becomes the program: same pid. Setting
/// it from here would take an unsafe `pre_exec`.
pub fn dies_with_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null());
    command
}

pub fn spawn(command: Command) -> io::Result<Child> {
    let (answer, reply) = mpsc::channel();
    FORKER.lock().expect("forker").send((command, answer)).expect("the forker lives");
    reply.recv().expect("the forker answers")
}

/// A running child with a log file. Killed and reaped on drop.
#[derive(Debug)]
pub struct Process {
    pub log: PathBuf,
    child: Child,
}

impl Process {
    /// Standard output and error are appended to `log`.
    pub fn start(mut command: Command, log: &Path) -> io::Result<Process> {
        let file: File = OpenOptions::new().create(true).append(true).open(log)?;
        command.stdout(file.try_clone()?).stderr(file);
        Ok(Process { child: spawn(command)?, log: log.to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. A child that has ended but was not reaped takes it silently.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).expect("a pid")).expect("not 0");
        kill_process(pid, signal).expect("signal to a child of ours");
    }

    /// `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait for a child of ours")
    }

    /// SIGKILL, and reaped when this returns. Works on a stopped process too.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Waits for the end by itself; panics when `limit` has passed.
    pub async fn wait(&mut self, limit: Duration) -> ExitStatus {
        let step = Duration::from_millis(5);
        let mut left = limit;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(!left.is_zero(), "pid {} did not end in {limit:?}", self.pid());
            tokio::time::sleep(step.min(left)).await;
            left = left.saturating_sub(step);
        }
    }

    /// The last lines of the log, for a panic's message.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The end of a process in words: its exit code or the signal that ended it.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
