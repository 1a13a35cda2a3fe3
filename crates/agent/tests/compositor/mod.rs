// SPDX-License-Identifier: GPL-2.0-or-later
//! Real compositors without a screen, a client for them, and a daemon simulated by the test.
//!
//! Compositors refuse to run as root, or should not be run as root. So if the test runs as root,
//! everything else runs as another user, from a directory that this user can access.

pub mod client;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use limelight_proto::{FocusTarget, Request, Response, Use};

/// Only a hang takes this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Uid of the unprivileged user that runs everything if the test runs as root.
const NOBODY: u32 = 65534;

/// A message of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The source in use.
    Source(Option<String>),
    /// The focus claim, and its source.
    Focus(String, FocusTarget),
    /// Whether a process has a visible window.
    Visible(i32, bool),
}

/// A process that is killed on drop.
pub struct Running(pub Child);

impl Running {
    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that serves as `$HOME`, `$XDG_RUNTIME_DIR` and more.
pub struct Place {
    directory: tempfile::TempDir,
    uid: u32,
}

impl Place {
    pub fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let uid = match rustix::process::geteuid().is_root() {
            true => NOBODY,
            false => rustix::process::geteuid().as_raw(),
        };
        let place = Place { directory, uid };
        place.give(place.path(""));
        // The unprivileged user may not be able to access the build directory.
        std::fs::copy(env!("CARGO_BIN_EXE_limelight-agent"), place.path("agent")).unwrap();
        std::fs::copy(std::env::current_exe().unwrap(), place.path("client")).unwrap();
        place
    }

    pub fn uid(&self) -> u32 {
        self.uid
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Changes the owner to the user that runs everything.
    pub fn give(&self, path: PathBuf) {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(self.uid), Some(self.uid)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A command with only this environment.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path(""))
            .env("XDG_RUNTIME_DIR", self.path(""))
            .env("DBUS_SESSION_BUS_ADDRESS", self.bus())
            .stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(self.uid).gid(self.uid);
        }
        command
    }

    /// Starts a command; its output goes to a file that is shown if the test fails.
    pub fn start(&self, command: &mut Command, name: &str) -> Running {
        let log = std::fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        command.stderr(log.try_clone().unwrap()).stdout(log);
        Running(
            command
                .spawn()
                .unwrap_or_else(|error| panic!("{command:?}: {error}")),
        )
    }

    fn bus(&self) -> String {
        format!("unix:path={}", self.path("bus").display())
    }

    /// Starts a session bus.
    pub fn start_bus(&self) -> Running {
        let mut command = self.command("dbus-daemon");
        command.args(["--session", "--nofork", "--nopidfile", "--address"]);
        command.arg(self.bus());
        let bus = self.start(&mut command, "bus");
        // The socket exists before the bus listens.
        wait_for("the session bus", || {
            UnixStream::connect(self.path("bus")).is_ok()
        });
        bus
    }

    /// Starts an X server; returns it and its display.
    pub fn start_xvfb(&self) -> (Running, String) {
        let mut command = self.command("Xvfb");
        command.args(["-displayfd", "1", "-screen", "0", "640x480x24"]);
        command.args(["-nolisten", "tcp"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Running(command.spawn().unwrap());
        // Xvfb chooses the first free display, and prints its number once it accepts clients.
        let mut line = String::new();
        let stdout = server.0.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).unwrap();
        (server, format!(":{}", line.trim()))
    }

    /// The name of the first Wayland socket, once there is one.
    pub fn wayland(&self) -> String {
        let mut found = None;
        wait_for("a Wayland socket", || {
            let names = std::fs::read_dir(self.path("")).unwrap().flatten();
            let names = names.filter_map(|file| file.file_name().into_string().ok());
            found = names
                .filter(|name| name.starts_with("wayland-") && !name.ends_with(".lock"))
                .max();
            found.is_some()
        });
        found.unwrap()
    }

    /// Starts the agent. It must find the compositor by itself unless `arguments` name a source.
    pub fn start_agent(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(self.path("agent"));
        command
            .args(["--stay", "--verbose", "--no-notifications", "--socket"])
            .arg(self.path("control.sock"))
            .args(arguments);
        self.start(&mut command, "agent")
    }

    /// Opens a window of a program with this name and app id.
    pub fn open(&self, app_id: &str, wayland: &str) -> Running {
        self.start(&mut self.window(app_id, wayland), app_id)
    }

    /// Opens such a window in a cgroup: the process is moved there before it executes the program.
    pub fn open_in(&self, app_id: &str, wayland: &str, cgroup: &str) -> Running {
        self.start_in(&self.window(app_id, wayland), app_id, cgroup)
    }

    fn window(&self, app_id: &str, wayland: &str) -> Command {
        let program = self.path(app_id);
        if !program.exists() {
            std::os::unix::fs::symlink(self.path("client"), &program).unwrap();
        }
        let mut command = self.command(program);
        command
            .args(["client", app_id])
            .env("WAYLAND_DISPLAY", wayland);
        command
    }

    /// Starts a command in a cgroup; requires root.
    pub fn start_in(&self, command: &Command, name: &str, cgroup: &str) -> Running {
        let mut shell = self.command("sh");
        shell
            .args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""])
            .arg(command.get_program())
            .args(command.get_args());
        let set = command
            .get_envs()
            .filter_map(|(name, to)| Some((name, to?)));
        shell.envs(set);
        let process = self.start(&mut shell, name);
        let stat = format!("/proc/{}/stat", process.pid());
        wait_for("the process to stop", || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('T'))
        });
        std::fs::write(format!("{cgroup}/cgroup.procs"), process.pid().to_string()).unwrap();
        let pid = rustix::process::Pid::from_raw(process.pid()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        process
    }

    pub fn logs(&self) -> String {
        let files = std::fs::read_dir(self.path("")).unwrap().flatten();
        let logs = files.filter(|file| file.path().extension().is_some_and(|e| e == "log"));
        logs.map(|file| {
            let text = std::fs::read(file.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let end: Vec<&str> = text.lines().rev().take(15).collect();
            let end: Vec<&str> = end.into_iter().rev().collect();
            format!("--- {}\n{}\n", file.path().display(), end.join("\n"))
        })
        .collect()
    }
}

/// A daemon that accepts everything and passes on what it receives.
pub struct TestDaemon {
    said: Receiver<Said>,
}

impl TestDaemon {
    /// Serves one connection.
    pub fn serve(place: &Place) -> TestDaemon {
        let socket = place.path("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        place.give(socket);
        let (send, said) = channel();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut answers = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { return };
                let request: Request = serde_json::from_str(&line).unwrap();
                let (word, answer) = match request {
                    Request::Focus { target, source, .. } => {
                        (Some(Said::Focus(source, target)), ok())
                    }
                    Request::Agent { source, detail, .. } => {
                        println!("    {}: {detail}", source.as_deref().unwrap_or("no source"));
                        let answer = Response::Agent { own_scopes: true };
                        (Some(Said::Source(source)), answer)
                    }
                    Request::InUse {
                        pid,
                        what: Use::Visible,
                        on,
                    } => (Some(Said::Visible(pid, on)), ok()),
                    _ => (None, ok()),
                };
                let answer = serde_json::to_string(&answer).unwrap() + "\n";
                let passed = word.is_none_or(|word| send.send(word).is_ok());
                if !passed || answers.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
        TestDaemon { said }
    }

    /// Waits for this message and skips earlier ones.
    pub fn expect(&self, wanted: &Said, place: &Place) {
        self.expect_all(std::slice::from_ref(wanted), place);
    }

    /// Waits for these messages in any order and skips others.
    pub fn expect_all(&self, wanted: &[Said], place: &Place) {
        let deadline = Instant::now() + PATIENCE;
        let mut missing: Vec<&Said> = wanted.iter().collect();
        let mut told = Vec::new();
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let Ok(said) = self.said.recv_timeout(left) else {
                break;
            };
            missing.retain(|wanted| **wanted != said);
            if missing.is_empty() {
                return;
            }
            told.push(said);
        }
        panic!("expected {missing:?}, received {told:?}\n{}", place.logs());
    }
}

fn ok() -> Response {
    Response::Ok {
        message: "done".into(),
    }
}

/// Observation time for an idle process, and the maximum number of wakeups of all its threads in
/// that time: fewer than one per second.
const QUIET: Duration = Duration::from_secs(4);
const QUIET_WAKEUPS: u64 = 3;

/// Waits until a process is idle.
pub fn wait_until_quiet(process: &Running) {
    let wakeups = || -> u64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", process.pid()));
        let threads = threads.unwrap().flatten();
        let status = threads.map(|thread| std::fs::read_to_string(thread.path().join("status")));
        status
            .flatten()
            .map(|status| {
                let line = status.lines().find(|l| l.starts_with("voluntary_ctxt"));
                let count = line.and_then(|line| line.split_whitespace().nth(1));
                count.and_then(|count| count.parse::<u64>().ok()).unwrap()
            })
            .sum()
    };
    wait_for("the agent to be quiet", || {
        let before = wakeups();
        std::thread::sleep(QUIET);
        // The sum can shrink, because a thread's count is lost when the thread ends.
        wakeups().saturating_sub(before) <= QUIET_WAKEUPS
    });
}

pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A copy of a program without its file capabilities, which need more rights than a test has.
pub fn plain_copy(program: &str, place: &Place) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(program));
    let found = found.into_iter().find(|path: &PathBuf| Path::is_file(path));
    let copy = place.path(program);
    std::fs::copy(found.unwrap(), &copy).unwrap();
    copy
}
