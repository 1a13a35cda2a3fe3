// SPDX-License-Identifier: GPL-2.0-or-later
//! Processes started by a cell.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::cgroup::Cgroup;

/// The executable of this program.
const SELF: &str = "/proc/self/exe";

/// A process that is killed on drop.
pub struct Process {
    child: Child,
    name: String,
}

/// How a process is started.
pub struct Start<'a> {
    /// The process's initial cgroup; `None` is the runner's cgroup. Under the lab's init the
    /// runner's cgroup is the root cgroup.
    pub cgroup: Option<&'a Cgroup>,
    /// The process's nice value.
    pub nice: i32,
    /// Whether the process gets its own session, which the scheduler may treat as a task group.
    pub session: bool,
}

impl<'a> Start<'a> {
    /// In the runner's cgroup, at nice 0.
    pub const PLAIN: Start<'static> = Start {
        cgroup: None,
        nice: 0,
        session: false,
    };

    /// At nice 0, in this cgroup; `None` is the runner's cgroup.
    pub fn in_cgroup(cgroup: impl Into<Option<&'a Cgroup>>) -> Self {
        Start {
            cgroup: cgroup.into(),
            ..Start::PLAIN
        }
    }

    /// Prepares `command` to start with this cgroup, session and nice value, and with oom_score_adj
    /// 0 instead of the value of the cell's runner.
    pub fn prepare(&self, command: &mut Command) -> Result<()> {
        let procs: Option<File> = match self.cgroup {
            None => None,
            Some(cgroup) => {
                let path = cgroup.path().join("cgroup.procs");
                Some(
                    OpenOptions::new()
                        .write(true)
                        .open(&path)
                        .with_context(|| format!("cannot open {}", path.display()))?,
                )
            }
        };
        let (nice, session) = (self.nice, self.session);
        // SAFETY: the closure runs between fork and exec of a single-threaded child and makes only
        // async-signal-safe calls.
        unsafe {
            command.pre_exec(move || {
                write_file(c"/proc/self/oom_score_adj", b"0")?;
                if let Some(procs) = &procs {
                    if libc::write(procs.as_raw_fd(), b"0".as_ptr().cast(), 1) != 1 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                if session && libc::setsid() < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                if nice != 0 && libc::setpriority(libc::PRIO_PROCESS, 0, nice) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        Ok(())
    }

    /// Starts a program.
    pub fn program(&self, mut command: Command, name: &str) -> Result<Process> {
        self.prepare(&mut command)?;
        Process::spawn(command, name)
    }

    /// Starts a shell in another root directory. After a line on standard input, it becomes the
    /// program of this command line, which may refer to the arguments as `$0` and so on.
    /// `environment`: all variables except `PATH`.
    pub fn after_a_line(
        &self,
        (line, arguments): (&str, &[&str]),
        root: &str,
        environment: &[(&str, &str)],
        name: &str,
    ) -> Result<Process> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &format!("read go; exec {line}")])
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped());
        self.prepare(&mut command)?;
        change_root(&mut command, root)?;
        Process::spawn(command, name)
    }

    /// Starts a subcommand of this program with its specification as an argument.
    pub fn part(&self, subcommand: &str, spec: &impl Serialize) -> Result<Process> {
        let mut command = Command::new(SELF);
        command
            .arg(subcommand)
            .arg(serde_json::to_string(spec)?)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        self.program(command, subcommand)
    }

    /// As [`Start::part`], with pipes for commands and answers.
    pub fn conversation(&self, subcommand: &str, spec: &impl Serialize) -> Result<Conversation> {
        self.conversation_of(Path::new(SELF), subcommand, spec)
    }

    /// As [`Start::conversation`], with `program`, a copy of this program, as the executable.
    pub fn conversation_of(
        &self,
        program: &Path,
        subcommand: &str,
        spec: &impl Serialize,
    ) -> Result<Conversation> {
        let mut command = Command::new(program);
        command
            .arg(subcommand)
            .arg(serde_json::to_string(spec)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = self.program(command, subcommand)?;
        let stdin = process.child.stdin.take();
        let stdout = process.child.stdout.take().map(BufReader::new);
        match (stdin, stdout) {
            (Some(stdin), Some(stdout)) => Ok(Conversation {
                process,
                stdin,
                stdout,
            }),
            _ => bail!("{subcommand} has no pipes"),
        }
    }
}

/// Has `command` change its root to this directory before it executes. `pre_exec` hooks that were
/// registered earlier run first, outside the new root.
pub fn change_root(command: &mut Command, root: &str) -> Result<()> {
    let root = std::ffi::CString::new(root)?;
    // SAFETY: the closure runs between fork and exec of a single-threaded child and makes only
    // async-signal-safe calls.
    unsafe {
        command.pre_exec(move || {
            if libc::chroot(root.as_ptr()) != 0 || libc::chdir(c"/".as_ptr()) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    Ok(())
}

fn write_file(path: &std::ffi::CStr, bytes: &[u8]) -> std::io::Result<()> {
    // SAFETY: plain system calls on a valid path and buffer.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let result = if written < 0 {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        };
        libc::close(fd);
        result
    }
}

impl Process {
    /// Starts a prepared command.
    pub fn spawn(mut command: Command, name: &str) -> Result<Self> {
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Process {
            child,
            name: name.to_owned(),
        })
    }

    /// The process's PID.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Whether the process is still running.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The process's exit status; `None` while it is running.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Writes a line to the process's standard input, which must be a pipe that has not been taken.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let input = self
            .child
            .stdin
            .as_mut()
            .with_context(|| format!("{} has no pipe as standard input", self.name))?;
        input
            .write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("cannot write to the standard input of {}", self.name))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // The child has not been reaped, so the PID has not been reused.
        send(self.pid(), signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Runs the process under SCHED_FIFO, above all tasks of the default class.
    pub fn make_realtime(&self) -> Result<()> {
        set_policy(self.pid(), libc::SCHED_FIFO, 1).with_context(|| {
            format!(
                "cannot run {} (pid {}) under SCHED_FIFO",
                self.name,
                self.pid()
            )
        })
    }

    /// Sets the process's `oom_score_adj`. Children that it starts later inherit it.
    pub fn set_oom_score_adj(&self, value: i32) -> Result<()> {
        let path = format!("/proc/{}/oom_score_adj", self.pid());
        fs::write(&path, value.to_string()).with_context(|| format!("cannot write {path}"))
    }

    /// Waits until the process ends; returns its exit code, or 128 plus the signal that killed it.
    /// A process that is still running after `limit` is an error.
    pub fn wait(&mut self, limit: Duration) -> Result<i32> {
        use std::os::unix::process::ExitStatusExt;
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
            }
            if Instant::now() > deadline {
                bail!(
                    "{} (pid {}) has not ended after {limit:?}",
                    self.name,
                    self.pid()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failure means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that answers commands.
pub struct Conversation {
    /// The process.
    pub process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Conversation {
    /// Sends a command without waiting for the answer.
    pub fn say(&mut self, command: &str) -> Result<()> {
        self.stdin
            .write_all(format!("{command}\n").as_bytes())
            .with_context(|| {
                format!(
                    "cannot write to the standard input of {}",
                    self.process.name
                )
            })
    }

    /// Waits for an answer; the end of the process is an error.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        if line.is_empty() {
            bail!(
                "{} (pid {}) ended before it answered",
                self.process.name,
                self.process.pid()
            );
        }
        serde_json::from_str(&line)
            .with_context(|| format!("{} answered {line:?}", self.process.name))
    }

    /// Sends a command and waits for the answer.
    pub fn ask<T: DeserializeOwned>(&mut self, command: &str) -> Result<T> {
        self.say(command)?;
        self.hear()
    }
}

/// Sends a signal to a process that has not been reaped.
pub fn send(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => {
            Err(std::io::Error::last_os_error()).with_context(|| format!("cannot signal pid {pid}"))
        }
    }
}

/// PID of the process or kernel thread of this name, which must be unique.
pub fn named(name: &str) -> Result<Option<i32>> {
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let path = entry?.path();
        let comm = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if comm.trim() == name {
            let number = path.file_name().unwrap_or_default().to_string_lossy();
            return Ok(number.parse().ok());
        }
    }
    Ok(None)
}

/// Sets the scheduling policy and priority of task `pid`; 0 is the calling task. Makes the system
/// call itself, because musl's function always fails.
pub fn set_policy(pid: i32, policy: i32, priority: i32) -> Result<()> {
    // SAFETY: the kernel reads one int (struct sched_param of linux/sched/types.h).
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, pid, policy, &priority) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("sched_setscheduler failed"),
    }
}

/// PIDs of a process's children, in this PID namespace.
pub fn children(pid: i32) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    Ok(found)
}

/// Waits until a child ends, and leaves it unreaped.
pub fn await_end(pid: i32) -> Result<()> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is valid; WNOWAIT leaves the child waitable.
    let done = unsafe {
        let flags = libc::WEXITED | libc::WNOWAIT;
        libc::waitid(libc::P_PID, pid as libc::id_t, info.as_mut_ptr(), flags)
    };
    if done != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("cannot wait for pid {pid}"));
    }
    Ok(())
}

/// Runs a program to its end; returns its exit code and the output of both streams.
pub fn run(program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<(i32, String)> {
    use std::os::unix::process::ExitStatusExt;
    let program = program.as_ref();
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let code = output
        .status
        .code()
        .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    Ok((code, text))
}
