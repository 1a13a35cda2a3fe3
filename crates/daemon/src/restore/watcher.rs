// SPDX-License-Identifier: GPL-2.0-or-later
//! The watcher: a second process that restores everything when the daemon dies without being
//! stopped in an orderly way.
//!
//! The daemon holds the write end of a pipe, and the watcher blocks on the read end. A daemon that
//! is stopped in an orderly way first writes [`FAREWELL`]. If the pipe ends without that byte, the
//! daemon was killed or has crashed.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use limelight_sys::pidfd::Pidfd;
use limelight_sys::signal::Signals;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use tracing::{debug, info, warn};

use crate::exit::Failure;
use crate::log;
use crate::restore::put_back;
use crate::system::{self_tuning, Roots};

/// The argument that makes `limelightd` the watcher; the runtime directory follows.
const ARGUMENT: &str = "--watch";

/// The file of the running program, even after an upgrade has replaced it.
pub const SELF: &str = "/proc/self/exe";

/// Byte that a stopping daemon writes into the pipe.
const FAREWELL: u8 = b'.';

/// Shortest and longest time between two starts of a watcher. The time doubles while watchers end
/// within [`STEADY`] of their start.
const RESTART_MIN: Duration = Duration::from_secs(1);
const RESTART_MAX: Duration = Duration::from_secs(8);
const STEADY: Duration = Duration::from_secs(60);

/// Longest wait for the watcher to exit after the farewell; then it is killed.
const FAREWELL_PATIENCE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Maximum number of the watcher's attempts to restore, and the pause after a failed one.
const ATTEMPTS: usize = 5;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);

/// The daemon's side: keeps one watcher running.
#[derive(Debug)]
pub struct Watcher {
    /// The program to run; `None` for no watcher.
    program: Option<PathBuf>,
    runtime: PathBuf,
    running: Option<Running>,
    /// When the next watcher is started.
    next_start: Option<Duration>,
    /// When the last watcher was started.
    started: Duration,
    restart_after: Duration,
    is_missing_reported: bool,
}

#[derive(Debug)]
struct Running {
    /// Holds the pipe's writing end as its standard input.
    child: Child,
    pidfd: Pidfd,
}

impl Watcher {
    /// Starts a watcher for the daemon whose runtime directory is `runtime`. Without a program,
    /// none is started. A failure is logged, and the start is tried again at the next deadline.
    pub fn start(program: Option<PathBuf>, runtime: PathBuf, now: Duration) -> Watcher {
        let mut watcher = Watcher {
            program,
            runtime,
            running: None,
            next_start: None,
            started: now,
            restart_after: RESTART_MIN,
            is_missing_reported: false,
        };
        watcher.spawn(now);
        watcher
    }

    /// PID of the watcher process; `None` if none runs.
    pub fn pid(&self) -> Option<i32> {
        self.running.as_ref().map(|running| running.pidfd.pid())
    }

    /// Readable once the watcher has ended.
    pub fn pidfd(&self) -> Option<&Pidfd> {
        self.running.as_ref().map(|running| &running.pidfd)
    }

    /// When a new watcher is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.next_start
    }

    /// Reaps a watcher that has ended and schedules the next one.
    pub fn reap(&mut self, now: Duration) {
        let Some(running) = &mut self.running else {
            return;
        };
        let ended = match running.child.try_wait() {
            Ok(None) => return,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        warn!(
            "the watcher process (pid {}) ended: {ended}; starting another one",
            running.pidfd.pid()
        );
        self.running = None;
        self.schedule(now);
    }

    /// Starts a watcher if one is due; returns whether one was started.
    pub fn restart_if_due(&mut self, now: Duration) -> bool {
        self.next_start.is_some_and(|at| at <= now) && self.spawn(now)
    }

    fn schedule(&mut self, now: Duration) {
        let lived = now.saturating_sub(self.started);
        if lived >= STEADY {
            self.restart_after = RESTART_MIN;
        }
        self.next_start = Some(self.started + self.restart_after);
        self.restart_after = (self.restart_after * 2).min(RESTART_MAX);
    }

    fn spawn(&mut self, now: Duration) -> bool {
        self.next_start = None;
        let Some(program) = &self.program else {
            return false;
        };
        self.started = now;
        let mut command = Command::new(program);
        command
            .arg0("limelightd")
            .arg(ARGUMENT)
            .arg(&self.runtime)
            .stdin(Stdio::piped());
        // The service manager expects messages from the daemon only.
        for variable in ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"] {
            command.env_remove(variable);
        }
        let started = command.spawn().and_then(|mut child| {
            let pid = i32::try_from(child.id()).unwrap_or_default();
            match Pidfd::open(pid) {
                Ok(pidfd) => Ok(Running { child, pidfd }),
                Err(error) => {
                    // Without a pidfd the watcher's end would go unnoticed.
                    let _ = child.kill();
                    let _ = child.wait();
                    Err(io::Error::other(error.to_string()))
                }
            }
        });
        match started {
            Ok(running) => {
                debug!("watcher process: pid {}", running.pidfd.pid());
                self.running = Some(running);
                self.is_missing_reported = false;
            }
            Err(error) => {
                if !self.is_missing_reported {
                    warn!(
                        "cannot start the watcher process: {error}; trying again. If limelightd is \
                         killed meanwhile, apps stay frozen until its next start or limelightd \
                         --restore"
                    );
                }
                self.is_missing_reported = true;
                self.schedule(now);
            }
        }
        self.running.is_some()
    }

    /// Makes the watcher exit without restoring anything, and reaps it.
    pub fn dismiss(&mut self) {
        self.next_start = None;
        self.program = None;
        let Some(Running { mut child, pidfd }) = self.running.take() else {
            return;
        };
        // A watcher that has exited already needs no farewell.
        let _ = child
            .stdin
            .take()
            .map(|mut pipe| pipe.write_all(&[FAREWELL]));
        let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
        if !matches!(poll(&mut ended, Some(&FAREWELL_PATIENCE)), Ok(1)) {
            // The watcher does not exit, for example because SIGSTOP has suspended it.
            let _ = child.kill();
        }
        let _ = child.wait();
    }
}

impl Drop for Watcher {
    /// Dismisses the watcher, except in a panic: the daemon has then restored nothing, so the
    /// watcher must restore everything.
    fn drop(&mut self) {
        if !thread::panicking() {
            self.dismiss();
        }
    }
}

/// The runtime directory, if these are a watcher's arguments.
pub fn runtime_of(arguments: impl IntoIterator<Item = OsString>) -> Option<PathBuf> {
    let mut arguments = arguments.into_iter().skip(1);
    let is_watcher = arguments.next()? == ARGUMENT;
    let runtime = arguments.next()?;
    (is_watcher && arguments.next().is_none()).then(|| runtime.into())
}

/// Main function of the watcher process: `limelightd --watch DIR`. It uses almost no memory until
/// the pipe ends.
pub fn watch(roots: Roots) -> Result<(), Failure> {
    // Service managers and terminals signal every process of a service or a job: to stop it, or
    // with SIGABRT when the daemon hangs. These signals are blocked, because only the daemon's end
    // matters here.
    let _signals = Signals::block(&[
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::ABORT,
    ]);
    // Fails only for the leader of a process group, such as a watcher that was started by hand from
    // a shell.
    let _ = rustix::process::setsid();
    // Otherwise the process name would be "exe", and `killall limelightd` would end both processes
    // at once.
    let _ = rustix::thread::set_name(c"limelight-watch");
    // Fails without CAP_SYS_RESOURCE; the watcher then keeps the daemon's value.
    let _ = fs::write(
        "/proc/self/oom_score_adj",
        self_tuning::OWN_SCORE.to_string(),
    );
    let daemon = rustix::process::getppid();
    // A failed read does not prove that the daemon has ended. A restore is safe all the same: it
    // fails while a running daemon holds the lock.
    if hears_farewell(&mut io::stdin()).unwrap_or(false) {
        return Ok(());
    }
    log::start();
    self_tuning::come_first();
    self_tuning::wait_for_no_write();
    let name = daemon.map_or_else(
        || "limelightd".to_owned(),
        |pid| format!("limelightd (pid {pid})"),
    );
    restore_for(&name, roots)
}

/// Reads until the farewell or the end of the pipe. Returns whether the farewell came.
fn hears_farewell(pipe: &mut impl Read) -> io::Result<bool> {
    let mut byte = [0];
    loop {
        match pipe.read(&mut byte) {
            Ok(read) => return Ok(read > 0 && byte == [FAREWELL]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn restore_for(daemon: &str, roots: Roots) -> Result<(), Failure> {
    let mut attempt = 1;
    loop {
        match put_back(roots.clone()) {
            Ok(()) => {
                warn!("{daemon} died unexpectedly: its watcher thawed and restored everything");
                return Ok(());
            }
            Err(error) if attempt < ATTEMPTS => debug!("attempt {attempt}: {error}"),
            Err(Failure::Running { pid }) => {
                let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
                info!("{daemon} died unexpectedly: its successor{pid} restores everything");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        attempt += 1;
        thread::sleep(ATTEMPT_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_farewell_byte_is_a_farewell() {
        assert!(hears_farewell(&mut &[FAREWELL][..]).unwrap());
        assert!(!hears_farewell(&mut &[][..]).unwrap());
        assert!(!hears_farewell(&mut &b"x"[..]).unwrap());
    }

    #[test]
    fn watcher_arguments_are_exactly_two() {
        let of = |arguments: &[&str]| runtime_of(arguments.iter().map(OsString::from));
        assert_eq!(of(&["limelightd", "--watch", "/run"]), Some("/run".into()));
        for other in [
            &["limelightd"][..],
            &["limelightd", "--watch"],
            &["limelightd", "--watch", "/run", "--dry-run"],
            &["limelightd", "--runtime-dir", "/run"],
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn restarts_are_at_least_a_second_apart_and_back_off() {
        let temp = tempfile::tempdir().unwrap();
        let missing = temp.path().join("missing");
        let start = Duration::from_secs(100);
        let mut watcher = Watcher::start(Some(missing), temp.path().to_owned(), start);
        let mut starts = Vec::new();
        let mut at = start;
        while starts.len() < 5 {
            at = watcher.next_deadline().unwrap();
            assert!(!watcher.restart_if_due(at - Duration::from_millis(1)));
            assert!(!watcher.restart_if_due(at));
            starts.push((at - start).as_secs());
        }
        assert_eq!(starts, [1, 3, 7, 15, 23]);
        // The next start is due a second after the start of a watcher that ran for long. That time
        // has passed, so the next watcher starts at once.
        watcher.schedule(at + STEADY);
        assert!(watcher.next_deadline().unwrap() <= at + STEADY);
    }

    #[test]
    fn without_a_program_there_is_no_watcher() {
        let mut watcher = Watcher::start(None, PathBuf::new(), Duration::ZERO);
        assert_eq!((watcher.pid(), watcher.next_deadline()), (None, None));
        assert!(!watcher.restart_if_due(Duration::from_secs(9)));
    }
}
