// SPDX-License-Identifier: GPL-2.0-or-later
//! The app of the test: an unprivileged process that changes its own values and creates threads and
//! processes on request.

use std::io::{self, BufRead};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use super::PATIENCE;

const USER: u32 = 1000;

/// A command to the app.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Sets the app's `oom_score_adj`; answers with 0 or the errno.
    Score(i16),
    /// Sets the nice value of the app's main thread; answers with 0 or the errno.
    Nice(i32),
    /// Creates a thread, optionally under SCHED_IDLE; answers with its TID.
    Thread { idle: bool },
    /// Creates an orphan by a double fork; answers with the orphan's PID.
    Orphan(Orphan),
    /// Starts a chain of processes: each of them forks the next one and exits. After this many
    /// milliseconds, the last one stays. Answers with 0 at once.
    Chain { ms: u64 },
    /// Waits until the chain stops forking; answers with the PID of its last process.
    Chained,
}

/// Settings of an orphan: a process whose parent has exited. It has a session of its own.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Orphan {
    /// The `oom_score_adj` that the orphan sets; `None`: it keeps the inherited one.
    pub score: Option<i16>,
    /// The nice value that the orphan sets; `None`: it keeps the inherited one.
    pub nice: Option<i32>,
    /// Whether the orphan makes itself not dumpable, so that its `/proc` files belong to root.
    pub hidden: bool,
    /// Whether the orphan tries to lower its `oom_score_adj` again when it gets SIGUSR1.
    pub later: bool,
}

/// Runs the app: drops all privileges, then executes commands from standard input.
pub fn app() -> Result<()> {
    // PR_SET_DUMPABLE comes last, because setuid clears the dumpable flag. The processes of a real
    // login are dumpable, because exec sets the flag.
    // SAFETY: no pointers are passed.
    let done = unsafe {
        libc::setgid(USER) == 0
            && libc::setuid(USER) == 0
            && libc::prctl(libc::PR_SET_DUMPABLE, 1) == 0
    };
    if !done {
        return Err(io::Error::last_os_error()).context("cannot become a user's process");
    }
    let mut chain = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match serde_json::from_str(&line)? {
            Order::Score(score) => errno(write_score(score)),
            Order::Nice(nice) => {
                // SAFETY: no pointers are passed.
                errno(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } == 0)
            }
            Order::Thread { idle } => thread(idle)?,
            Order::Orphan(orphan) => hear(&orphaned(|tell| live_as(orphan, tell))?)?,
            Order::Chain { ms } => {
                let end = Instant::now() + Duration::from_millis(ms);
                chain = Some(orphaned(|tell| fork_until(end, tell))?);
                0
            }
            Order::Chained => hear(chain.as_ref().context("no chain was started")?)?,
        };
        println!("{answer}");
    }
    Ok(())
}

/// 0 if the last system call succeeded, else its errno.
fn errno(done: bool) -> i32 {
    match done {
        true => 0,
        false => io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

/// Sets the process's own `oom_score_adj`. Async-signal-safe: a forked child and a signal handler
/// call it too.
fn write_score(score: i16) -> bool {
    let mut text = [0u8; 8];
    let mut at = text.len();
    let mut rest = score.unsigned_abs();
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if score < 0 {
        at -= 1;
        text[at] = b'-';
    }
    // SAFETY: plain system calls on a valid path and buffer.
    unsafe {
        let fd = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        if fd < 0 {
            return false;
        }
        let len = text.len() - at;
        let written = libc::write(fd, text[at..].as_ptr().cast(), len);
        let error = *libc::__errno_location();
        libc::close(fd);
        *libc::__errno_location() = error;
        written == len as isize
    }
}

/// Creates a thread that sleeps until the process ends; returns its TID.
fn thread(idle: bool) -> Result<i32> {
    let (tell, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: the kernel reads one int through the pointer (struct sched_param).
        let done = unsafe {
            let nothing = 0;
            !idle || libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &nothing) == 0
        };
        // SAFETY: no pointers are passed.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        let _ = tell.send(done.then_some(tid));
        loop {
            sleep(PATIENCE);
        }
    });
    hear.recv()?.context("a thread cannot use SCHED_IDLE")
}

/// Signal handler: tries to lower `oom_score_adj` again. The test sends the signal when the app has
/// left the foreground. The kernel must then refuse this write.
extern "C" fn lower_again(_signal: libc::c_int) {
    write_score(-400);
}

/// Creates an orphan by a double fork: a grandchild that runs `live` and whose parent exits. `live`
/// gets the write end of a pipe for the orphan's answer, and may make only async-signal-safe calls.
/// Returns the read end.
fn orphaned(live: impl FnOnce(libc::c_int)) -> Result<OwnedFd> {
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for both descriptors, and no other code uses them. The children make
    // only async-signal-safe calls.
    unsafe {
        if libc::pipe(pipe.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error()).context("cannot create a pipe");
        }
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()).context("cannot fork"),
            0 => {
                if libc::fork() == 0 {
                    live(pipe[1]);
                }
                libc::_exit(0);
            }
            child => libc::waitpid(child, std::ptr::null_mut(), 0),
        };
        libc::close(pipe[1]);
        Ok(OwnedFd::from_raw_fd(pipe[0]))
    }
}

/// Waits until an orphan has applied its settings, and returns the PID that it sends.
fn hear(pipe: &OwnedFd) -> Result<i32> {
    let mut pid = [0u8; 4];
    // SAFETY: the kernel writes at most `pid.len()` bytes into `pid`.
    let read = unsafe { libc::read(pipe.as_raw_fd(), pid.as_mut_ptr().cast(), pid.len()) };
    match (read, i32::from_ne_bytes(pid)) {
        (4, pid) if pid > 0 => Ok(pid),
        (_, pid) => bail!("an orphan cannot apply its settings: it sent {pid}"),
    }
}

/// Called in a forked child: forks a child, which continues, and exits. This repeats until `end`;
/// the last process stays.
fn fork_until(end: Instant, tell: libc::c_int) {
    while Instant::now() < end {
        // SAFETY: only async-signal-safe calls.
        unsafe {
            match libc::fork() {
                0 => {}
                _ => libc::_exit(0),
            }
        }
    }
    live_as(Orphan::default(), tell);
}

/// Called in a forked child: applies the settings, enters a session of its own, sends its PID, and
/// waits to be killed. If a setting cannot be applied, sends the negative errno and exits.
fn live_as(orphan: Orphan, tell: libc::c_int) -> ! {
    let mut done = orphan.score.is_none_or(write_score);
    // SAFETY: valid pointers, a handler that makes only async-signal-safe calls, and an open pipe.
    unsafe {
        done &= libc::setsid() > 0;
        if let Some(nice) = orphan.nice {
            done &= libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0;
        }
        if orphan.later {
            let handler = lower_again as extern "C" fn(libc::c_int);
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
        }
        if orphan.hidden {
            done &= libc::prctl(libc::PR_SET_DUMPABLE, 0) == 0;
        }
        let error = *libc::__errno_location();
        let pid = if done { libc::getpid() } else { -error };
        let pid = pid.to_ne_bytes();
        libc::write(tell, pid.as_ptr().cast(), pid.len());
        if !done {
            libc::_exit(1);
        }
        loop {
            libc::pause();
        }
    }
}
