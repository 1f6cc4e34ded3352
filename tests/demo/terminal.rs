//! The live picture on a pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const PATIENCE: Duration = Duration::from_secs(60);
const ALTERNATE_SCREEN: &str = "\x1b[?1049h";
const ORDINARY_SCREEN: &str = "\x1b[?1049l";

struct OnTerminal {
    child: std::process::Child,
    controller: File,
    pieces: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

fn size(controller: &impl std::os::fd::AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(controller, size).unwrap();
}

impl OnTerminal {
    fn start(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        size(&controller, 80, 24);
        let terminal = || -> OwnedFd {
            ioctl_tiocgptpeer(&controller, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap()
        };
        let child = Command::new(env!("CARGO_BIN_EXE_tenure"))
            .arg("demo")
            .args(arguments)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::from(terminal()))
            .stdout(Stdio::from(terminal()))
            .stderr(Stdio::from(terminal()))
            .spawn()
            .unwrap();
        let controller = File::from(controller);
        let mut reader = controller.try_clone().unwrap();
        let (sender, pieces) = mpsc::channel();
        // Ends with an error when the last end of the terminal is closed.
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length) = reader.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, controller, pieces, seen: String::new() }
    }

    fn until(&mut self, word: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.seen.contains(word) {
            let left = end.saturating_duration_since(Instant::now());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.seen += &String::from_utf8_lossy(&piece),
                Err(_) => panic!("no {word:?} in\n{}", self.seen),
            }
        }
    }

    fn press(&mut self, key: &str) {
        self.controller.write_all(key.as_bytes()).unwrap();
    }

    /// Exit code, and all that was written.
    fn finish(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        while let Ok(piece) = self.pieces.recv_timeout(Duration::from_secs(5)) {
            self.seen += &String::from_utf8_lossy(&piece);
        }
        (code, self.seen)
    }
}

/// A colour of the foreground, of the sixteen or by number.
fn has_colour(text: &str) -> bool {
    let codes = text.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m'));
    let mut numbers = codes.flat_map(|(code, _)| code.split(';')).filter_map(|n| n.parse().ok());
    numbers.any(|number: u32| matches!(number, 30..=38 | 90..=97))
}

#[test]
fn the_picture_is_drawn_survives_resizes_and_goes_by_a_key() {
    let mut demo = OnTerminal::start(&[("TERM", "xterm-256color")], &["--seed=1"]);
    demo.until("leading");
    for (columns, rows) in [(20, 5), (1, 1), (200, 60), (80, 24)] {
        size(&demo.controller, columns, rows);
        // Two frames at each size.
        std::thread::sleep(Duration::from_millis(250));
    }
    demo.press("r");
    demo.until("release");
    demo.press("q");
    let (code, text) = demo.finish();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(ALTERNATE_SCREEN) && has_colour(&text));
    let (_, after) = text.split_once(ORDINARY_SCREEN).expect("the terminal is put back");
    assert!(after.contains("two leaders at once: 0"), "{after}");
}

#[test]
fn ctrl_c_is_a_key_too_and_no_color_is_obeyed() {
    let variables = [("TERM", "xterm-256color"), ("NO_COLOR", "1")];
    let mut demo = OnTerminal::start(&variables, &[]);
    demo.until("leading");
    demo.press("\x03");
    let (code, text) = demo.finish();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(ORDINARY_SCREEN) && !has_colour(&text), "{text:?}");
}

#[test]
fn sigterm_puts_the_terminal_back() {
    let mut demo = OnTerminal::start(&[("TERM", "xterm")], &[]);
    demo.until("leading");
    super::signal(demo.child.id(), rustix::process::Signal::TERM);
    let (code, text) = demo.finish();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(ORDINARY_SCREEN), "{text}");
}

#[test]
fn a_dumb_terminal_gets_lines() {
    for variables in [&[("TERM", "dumb")][..], &[]] {
        let (code, text) = OnTerminal::start(variables, &["--duration=2s"]).finish();
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("leads, epoch") && !text.contains('\x1b'), "{text:?}");
    }
}

#[test]
fn the_picture_of_a_run_is_an_svg() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("demo.svg");
    let flag = format!("--picture={}", path.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let output = command.args(["demo", "--json", "--duration=3s", &flag]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
    assert!(text.contains("pod-c") && text.contains("<rect"), "{text}");
}
