// SPDX-License-Identifier: GPL-2.0-or-later
//! The failures that the chaos test causes, called troubles: how each begins and ends.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use limelight_sys::device::DEVICE_PATH;

use super::world::{soon, World, NO_FOCUS, RUN};
use crate::daemon::{Line, LIMELIGHTD, LOG, STATE};
use crate::guest_setup::{remount, suspend};
use crate::process::run;

/// File that fills the runtime directory or the state directory.
const BALLAST: &str = "ballast";
/// Duration of [`Trouble::Stopped`], and of the test for a busy loop in [`Trouble::NoDescriptors`].
const MOMENT: Duration = Duration::from_millis(500);
/// Maximum number of lines that the daemon may log while it has no free descriptor: it must not log
/// every failure.
const LINES_MAX: usize = 40;
/// limelightd's exit code when it has no permission to change values.
const NO_PERMISSION: i32 = 13;
/// A jump of the clock, in seconds.
const JUMP: i64 = 400 * 24 * 3600;

/// A failure that the test causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// `kill -9` of limelightd and its watcher, followed by a successor.
    Killed,
    /// As [`Trouble::Killed`], but the service's stop hook, `limelightd --restore`, runs before the
    /// successor starts.
    KilledForGood,
    /// `kill -9` of limelightd while an app is frozen. The watcher survives and must restore all
    /// values.
    KilledAlone,
    /// `kill -9` of the watcher.
    WatcherKilled,
    /// `kill -9` of limelightd and its watcher while /sys is read-only. With Limelight's device,
    /// the successor restores values later; without it, the successor refuses to start.
    KilledReadOnly,
    /// `kill -9` of the session's agent. Without a session, the connection that holds an agent's
    /// claim is closed instead.
    AgentKilled,
    /// `kill -9` of the session's X server.
    ServerKilled,
    /// The foreground app dies, its cgroup is removed, and an app starts in a new cgroup of the
    /// same name.
    GroupGone,
    /// The daemon has no file descriptor left.
    NoDescriptors,
    /// /sys is read-only.
    ReadOnly,
    /// The runtime directory is full.
    FullRun,
    /// The state directory is full.
    FullState,
    /// The clock jumps back, then ahead again.
    ClockBack,
    /// The clock jumps ahead, then back again.
    ClockAhead,
    /// SIGSTOP suspends the daemon, and SIGCONT resumes it after `MOMENT`.
    Stopped,
    /// The machine suspends.
    Suspended,
}

/// State that [`Trouble::end`] needs from [`Trouble::begin`].
pub enum State {
    Nothing,
    /// For [`Trouble::NoDescriptors`]: the number of lines in the daemon's log, the daemon's
    /// previous RLIMIT_NOFILE, and a connection that was accepted before the limit changed.
    Descriptors(usize, libc::rlimit, Line),
    /// The connection that holds an agent's claim.
    Agent(UnixStream),
}

impl Trouble {
    /// All troubles.
    pub const ALL: [Trouble; 16] = [
        Trouble::Killed,
        Trouble::KilledForGood,
        Trouble::KilledAlone,
        Trouble::WatcherKilled,
        Trouble::KilledReadOnly,
        Trouble::AgentKilled,
        Trouble::ServerKilled,
        Trouble::GroupGone,
        Trouble::NoDescriptors,
        Trouble::ReadOnly,
        Trouble::FullRun,
        Trouble::FullState,
        Trouble::ClockBack,
        Trouble::ClockAhead,
        Trouble::Stopped,
        Trouble::Suspended,
    ];

    /// The trouble's name in results.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::Killed => "killed",
            Trouble::KilledForGood => "killed_for_good",
            Trouble::KilledAlone => "killed_alone",
            Trouble::WatcherKilled => "watcher_killed",
            Trouble::KilledReadOnly => "killed_read_only",
            Trouble::AgentKilled => "agent_killed",
            Trouble::ServerKilled => "server_killed",
            Trouble::GroupGone => "group_gone",
            Trouble::NoDescriptors => "no_descriptors",
            Trouble::ReadOnly => "read_only",
            Trouble::FullRun => "full_run",
            Trouble::FullState => "full_state",
            Trouble::ClockBack => "clock_back",
            Trouble::ClockAhead => "clock_ahead",
            Trouble::Stopped => "stopped",
            Trouble::Suspended => "suspended",
        }
    }

    /// Begins the trouble.
    pub fn begin(self, world: &mut World) -> Result<State> {
        match self {
            Trouble::Killed => world.kill()?,
            Trouble::KilledForGood => {
                world.kill()?;
                let (code, text) = run(LIMELIGHTD, &["--restore"])?;
                if code != 0 {
                    world.note(
                        self,
                        format!("limelightd --restore exited with {code}: {text}"),
                    );
                }
                world.check_nothing_left(self)?;
            }
            Trouble::KilledAlone => world.kill_alone(self)?,
            Trouble::WatcherKilled => world.kill_watcher(self)?,
            Trouble::KilledReadOnly => {
                set_writable(false)?;
                world.kill()?;
                // The device works although /sys is read-only, so a successor can start.
                if Path::new(DEVICE_PATH).exists() {
                    world.succeed()?;
                    return Ok(State::Nothing);
                }
                // Without the device, limelightd must exit and leave the restore to a later start.
                let (code, text) = run(LIMELIGHTD, &[])?;
                if code != NO_PERMISSION || !text.contains("not writable") {
                    world.note(
                        self,
                        format!("limelightd exited with {code} while /sys was read-only: {text}"),
                    );
                }
            }
            Trouble::AgentKilled => match &mut world.session {
                None => return agent(world),
                Some(session) => {
                    session.kill_agent()?;
                    // Without the agent, no source reports the foreground app. The daemon keeps
                    // that app's boosted values only briefly.
                    world.check_nothing_left_by_and_by(self)?;
                }
            },
            Trouble::ServerKilled => {
                world.session()?.kill_server()?;
                world.check_nothing_left_by_and_by(self)?;
            }
            Trouble::GroupGone => {
                let app = world.apps.remove(0);
                let cgroup = app.cgroup().clone();
                world.focus(Some((0, app.pid())))?;
                drop(app);
                if !soon(|| cgroup.remove().is_ok()) {
                    bail!("{} cannot be removed", cgroup.path().display());
                }
                world.start_app(0)?;
                world.show()?;
            }
            Trouble::NoDescriptors => {
                let mut line = Line::connect()?;
                // An answer shows that the daemon has accepted the connection.
                line.send(r#"{"op":"status"}"#)?;
                line.answer()?;
                let pid = world.running()?.pid();
                let numbers = fs::read_dir(format!("/proc/{pid}/fd"))?;
                let numbers = numbers.filter_map(|entry| {
                    entry
                        .ok()?
                        .file_name()
                        .to_str()?
                        .parse::<libc::rlim_t>()
                        .ok()
                });
                let bound = numbers.max().unwrap_or(0) + 1;
                let before = limit_descriptors(pid, bound)?;
                return Ok(State::Descriptors(lines(), before, line));
            }
            Trouble::ReadOnly => set_writable(false)?,
            Trouble::FullRun => fill(RUN)?,
            Trouble::FullState => fill(STATE)?,
            Trouble::ClockBack => jump(-JUMP)?,
            Trouble::ClockAhead => jump(JUMP)?,
            Trouble::Stopped => {
                world.running()?.signal(libc::SIGSTOP)?;
                sleep(MOMENT);
                world.running()?.signal(libc::SIGCONT)?;
            }
            Trouble::Suspended => suspend()?,
        }
        Ok(State::Nothing)
    }

    /// Ends the trouble.
    pub fn end(self, world: &mut World, state: State) -> Result<()> {
        match (self, state) {
            (Trouble::Killed | Trouble::KilledForGood | Trouble::KilledAlone, _) => {
                world.succeed()?
            }
            (Trouble::ReadOnly, _) => set_writable(true)?,
            (Trouble::KilledReadOnly, _) => {
                set_writable(true)?;
                match world.daemon {
                    None => world.succeed()?,
                    Some(_) => {
                        world.focus_nobody()?;
                        world.check_nothing_left_by_and_by(self)?;
                    }
                }
            }
            (Trouble::FullRun, _) => empty(RUN)?,
            (Trouble::FullState, _) => empty(STATE)?,
            (Trouble::ClockBack, _) => jump(JUMP)?,
            (Trouble::ClockAhead, _) => jump(-JUMP)?,
            (Trouble::AgentKilled, State::Nothing) => world.session()?.start_agent()?,
            (Trouble::ServerKilled, _) => {
                world.session()?.start_server()?;
                world.show()?;
            }
            (_, State::Descriptors(before, limit, mut line)) => {
                world.focus_nobody()?;
                line.tell(NO_FOCUS)?;
                // Long enough to detect a busy loop.
                sleep(MOMENT);
                let pid = world.running()?.pid();
                limit_descriptors(pid, limit.rlim_cur)?;
                // Restores that failed for lack of a descriptor succeed now.
                world.check_nothing_left_by_and_by(self)?;
                let logged = lines() - before;
                if logged > LINES_MAX {
                    world.note(
                        self,
                        format!("limelightd logged {logged} lines without a free descriptor"),
                    );
                }
            }
            (_, State::Agent(stream)) => drop(stream),
            _ => {}
        }
        Ok(())
    }
}

/// Claims the foreground for the first app, as a session agent does. Drops the test's own claim
/// first, so that no other claim outranks the agent's.
fn agent(world: &World) -> Result<State> {
    world.ask(NO_FOCUS);
    let mut stream = UnixStream::connect(Path::new(RUN).join("control.sock"))?;
    let pid = world.apps[0].pid();
    let claim =
        format!(r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"agent","hold":true}}"#);
    stream.write_all(format!("{claim}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut answer)?;
    if !answer.contains(r#""result":"ok""#) {
        bail!("limelightd answered {answer:?} to an agent's claim");
    }
    Ok(State::Agent(stream))
}

pub fn set_writable(writable: bool) -> Result<()> {
    for directory in ["/sys", "/sys/fs/cgroup"] {
        remount(directory, writable)?;
    }
    Ok(())
}

fn fill(directory: &str) -> Result<()> {
    let mut file = fs::File::create(Path::new(directory).join(BALLAST))?;
    let block = [0u8; 4096];
    while file.write(&block).is_ok() {}
    Ok(())
}

fn empty(directory: &str) -> Result<()> {
    let ballast = Path::new(directory).join(BALLAST);
    fs::remove_file(&ballast).with_context(|| format!("cannot remove {}", ballast.display()))
}

fn lines() -> usize {
    fs::read_to_string(LOG).unwrap_or_default().lines().count()
}

fn limit_descriptors(pid: i32, bound: libc::rlim_t) -> Result<libc::rlimit> {
    let mut before = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both structs are valid.
    let done = unsafe {
        libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &mut before) == 0
            && libc::prlimit(
                pid,
                libc::RLIMIT_NOFILE,
                &libc::rlimit {
                    rlim_cur: bound,
                    ..before
                },
                std::ptr::null_mut(),
            ) == 0
    };
    match done {
        true => Ok(before),
        false => Err(std::io::Error::last_os_error()).context("cannot limit descriptors"),
    }
}

fn jump(seconds: i64) -> Result<()> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid.
    let done = unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) == 0 && {
            time.tv_sec += seconds;
            libc::clock_settime(libc::CLOCK_REALTIME, &time) == 0
        }
    };
    match done {
        true => Ok(()),
        false => Err(std::io::Error::last_os_error()).context("cannot set the clock"),
    }
}
