// SPDX-License-Identifier: GPL-2.0-or-later
//! The processes of the scenario: compositor, terminal emulator, shell, editor, build, compiler.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::termios::{tcgetattr, tcsetattr, OptionalActions};
use serde::{Deserialize, Serialize};

use crate::guest_setup::wait;
use crate::memory::{now_ns, Mapping};
use crate::spin::{add_loop, sleep_until, take_name};

/// Time between two frames, for 60 frames a second.
pub const FRAME_NS: u64 = 16_666_667;

/// The compositor's socket.
const SOCKET: &str = "/run/terminal-keys";
/// File to which each build appends one byte for each of its compilers that has ended.
const BUILT: &str = "/run/terminal-built";

/// Outer loops that a process spends on a key: compositor, editor, emulator.
const COMPOSE: u64 = 100;
const EDIT: u64 = 200;
const DRAW: u64 = 300;
/// Shortest time between two keys, and the bound of the time that is added to it.
const KEY_NS: u64 = 30_000_000;
const JITTER_NS: u64 = 13_000_000;

/// Concurrent compilers of a build, as with `make -j8`, and the work and memory of each.
const JOBS: usize = 8;
const COMPILE: u64 = 6000;
const COMPILER_PAGES: usize = 64;

/// The program in the foreground of a tab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// A build. The kernel echoes the keys.
    Build,
    /// A program that echoes the keys itself.
    Editor,
    /// An editor that runs a build.
    Agent,
}

/// A tab of a terminal.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Tab {
    /// The program that the tab's shell runs in the foreground.
    pub program: Program,
    /// The build's nice value.
    pub nice: i32,
    /// Whether builds run; otherwise they sleep.
    pub builds: bool,
}

/// A process of the scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Part {
    /// Sends keys and shows frames.
    Compositor,
    /// A terminal emulator.
    Emulator {
        /// The emulator's tabs.
        tabs: Vec<Tab>,
        /// Whether the compositor sends the emulator keys, which go to the first tab.
        front: bool,
    },
    /// The shell of a tab.
    Shell(Tab),
    /// The program of a tab.
    Program(Tab),
    /// A compiler.
    Compiler,
}

/// Runs a part until it is killed.
pub fn run(part: &Part) -> Result<()> {
    match part {
        Part::Compositor => compositor(),
        Part::Emulator { tabs, front } => emulator(tabs, *front),
        Part::Shell(tab) => shell(*tab),
        Part::Program(tab) => program(*tab),
        Part::Compiler => compiler(),
    }
}

/// Number of compilers that have ended.
pub fn built() -> Result<u64> {
    match fs::metadata(BUILT) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).context("cannot read the build's progress"),
    }
}

/// The compositor's process. It answers `listen` once terminals can connect, and `type N` with the
/// time from each of N keys to its frame, in nanoseconds.
fn compositor() -> Result<()> {
    take_name("sway")?;
    fs::remove_file(SOCKET).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    let listener = UnixListener::bind(SOCKET).context("cannot bind the key socket")?;
    let mut stream = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line
            .strip_prefix("type ")
            .and_then(|keys| keys.parse().ok())
        {
            Some(keys) => {
                let stream = match &mut stream {
                    Some(stream) => stream,
                    none => none.insert(listener.accept()?.0),
                };
                println!("{}", serde_json::to_string(&press(stream, keys)?)?);
            }
            None => println!("true"),
        }
    }
    Ok(())
}

fn press(stream: &mut UnixStream, keys: u64) -> Result<Vec<u64>> {
    let mut times = Vec::new();
    let mut due = now_ns() + KEY_NS;
    for key in 0..keys {
        sleep_until(due);
        stream.write_all(b"k")?;
        stream.read_exact(&mut [0])?;
        add_loop(COMPOSE);
        let shown = now_ns();
        times.push(shown - due);
        due = shown.max(due + KEY_NS + key * 7_919_017 % JITTER_NS);
    }
    Ok(times)
}

/// The emulator's end of a tab.
struct Screen {
    master: File,
    _shell: Child,
}

fn emulator(tabs: &[Tab], front: bool) -> Result<()> {
    take_name("foot")?;
    let screens: Result<Vec<Screen>> = tabs.iter().map(|tab| open(*tab)).collect();
    let mut screens = screens?;
    let mut keys = front.then(connect).transpose()?;
    let mut buffer = [0; 4096];
    loop {
        let mut ready: Vec<PollFd<'_>> = Vec::new();
        ready.extend(keys.iter().map(|keys| PollFd::new(keys, PollFlags::IN)));
        let masters = screens
            .iter()
            .map(|one| PollFd::new(&one.master, PollFlags::IN));
        ready.extend(masters);
        poll(&mut ready, None)?;
        let is_ready: Vec<bool> = ready.iter().map(|one| !one.revents().is_empty()).collect();
        let (key, outputs) = is_ready.split_at(usize::from(front));
        if let (Some(keys), [true]) = (&mut keys, key) {
            if keys.read(&mut buffer)? == 0 {
                return Ok(());
            }
            if let Some(first) = screens.first_mut() {
                first.master.write_all(b"k")?;
            }
        }
        for (index, screen) in screens.iter_mut().enumerate() {
            if !outputs.get(index).copied().unwrap_or_default() {
                continue;
            }
            if screen.master.read(&mut buffer).unwrap_or(0) == 0 {
                bail!("a tab has ended");
            }
            add_loop(DRAW);
            if let (Some(keys), 0) = (&mut keys, index) {
                keys.write_all(b"f")?;
            }
        }
    }
}

fn connect() -> Result<UnixStream> {
    let mut stream = None;
    wait(|| {
        stream = UnixStream::connect(SOCKET).ok();
        Ok(stream.is_some())
    })?;
    stream.context("cannot connect to the compositor")
}

/// Opens a pseudo-terminal and starts a shell on it.
fn open(tab: Tab) -> Result<Screen> {
    let (master, slave) = pseudo_terminal().context("cannot open a pseudo-terminal")?;
    let mut command = itself(&Part::Shell(tab))?;
    command
        .stdin(slave.try_clone()?)
        .stdout(slave.try_clone()?)
        .stderr(slave);
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY as _, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    Ok(Screen {
        master,
        _shell: command.spawn().context("cannot start a shell")?,
    })
}

/// Both ends of a new pseudo-terminal.
fn pseudo_terminal() -> io::Result<(File, File)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let master = options.open("/dev/ptmx")?;
    let (mut locked, mut number): (libc::c_int, libc::c_int) = (0, 0);
    // SAFETY: the first call reads an int, the second writes one.
    let failed = unsafe {
        libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK as _, &mut locked) != 0
            || libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN as _, &mut number) != 0
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    let slave = options.open(format!("/dev/pts/{number}"))?;
    Ok((master, slave))
}

/// The command that runs this program as `part`.
fn itself(part: &Part) -> Result<Command> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("terminal-part")
        .arg(serde_json::to_string(part)?);
    Ok(command)
}

fn shell(tab: Tab) -> Result<()> {
    take_name("sh")?;
    let mut command = itself(&Part::Program(tab))?;
    // The new process group is in the background, where tcsetpgrp() would stop the process by
    // SIGTTOU. The closure therefore ignores that signal for the time of the call.
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGTTOU, libc::SIG_IGN);
            if libc::setpgid(0, 0) != 0 || libc::tcsetpgrp(0, libc::getpid()) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::signal(libc::SIGTTOU, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut job = command
        .spawn()
        .context("a shell cannot start its program")?;
    let status = job.wait()?;
    bail!("the program of a tab has ended: {status}");
}

fn program(tab: Tab) -> Result<()> {
    match tab.program {
        Program::Build => {
            take_name("make")?;
            build(tab)
        }
        Program::Editor => edit("editor"),
        Program::Agent => {
            let make = Tab {
                program: Program::Build,
                ..tab
            };
            let _make = itself(&Part::Program(make))?.spawn()?;
            edit("agent")
        }
    }
}

/// Echoes each key after some work.
fn edit(name: &str) -> Result<()> {
    take_name(name)?;
    let mut mode = tcgetattr(io::stdin())?;
    mode.make_raw();
    tcsetattr(io::stdin(), OptionalActions::Now, &mode)?;
    let (mut key, mut input, mut output) =
        ([0], io::stdin(), File::from(rustix::io::dup(io::stdout())?));
    loop {
        input.read_exact(&mut key)?;
        add_loop(EDIT);
        output.write_all(&key)?;
    }
}

/// Keeps [`JOBS`] compilers running.
fn build(tab: Tab) -> Result<()> {
    if !tab.builds {
        loop {
            std::thread::sleep(Duration::from_secs(1000));
        }
    }
    // SAFETY: no pointers are passed.
    if tab.nice != 0 && unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, tab.nice) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot renice the build");
    }
    let mut progress = OpenOptions::new().create(true).append(true).open(BUILT)?;
    let mut jobs: Vec<Child> = Vec::new();
    loop {
        while jobs.len() < JOBS {
            let job = itself(&Part::Compiler)?.spawn();
            jobs.push(job.context("a build cannot start a compiler")?);
        }
        // Waits for any compiler, as make does.
        let mut status = 0;
        // SAFETY: `status` is valid.
        let ended = unsafe { libc::waitpid(-1, &mut status, 0) };
        if ended < 0 || status != 0 {
            bail!("a compiler failed: {status}");
        }
        progress.write_all(b".")?;
        jobs.retain(|job| i32::try_from(job.id()) != Ok(ended));
    }
}

fn compiler() -> Result<()> {
    let mut memory = Mapping::anonymous(COMPILER_PAGES * crate::memory::PAGE)?;
    for page in 0..memory.pages() {
        memory.dirty_page(page, 1);
    }
    add_loop(COMPILE);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_the_command_line() {
        let tab = Tab {
            program: Program::Agent,
            nice: 10,
            builds: true,
        };
        let part = Part::Emulator {
            tabs: vec![tab],
            front: true,
        };
        let text = serde_json::to_string(&part).unwrap();
        let read: Part = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{read:?}"), format!("{part:?}"));
    }
}
