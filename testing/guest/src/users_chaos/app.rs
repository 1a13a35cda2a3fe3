// SPDX-License-Identifier: GPL-2.0-or-later
//! A user's app: what it does is all that a process may do without privilege.

use std::ffi::CString;
use std::fs;
use std::io::{self, BufRead};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::memory::{Mapping, MIB};
use crate::random::Random;

/// How long the child of an app lives at most.
const CHILD_LIVES: Duration = Duration::from_secs(120);

/// The app as its process gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The user that it becomes.
    pub uid: u32,
    /// Its memory, in MiB.
    pub mib: u32,
    /// What it calls itself.
    pub name: String,
}

/// What the app does next. It answers with an error number, 0, or the number of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Takes so many MiB more.
    Grow(u32),
    /// Takes another name.
    Rename(String),
    /// Sets its own `oom_score_adj`.
    Score(i16),
    /// Sets its own nice value.
    Nice(i32),
    /// Makes a child; it leaves session and parent if so.
    Child { orphan: bool },
    /// Moves itself to the cgroup in this directory.
    Move(String),
    /// Makes a cgroup in this directory.
    Make(String),
}

/// The app's process.
pub fn app(spec: &Spec) -> Result<()> {
    // SAFETY: no pointers are passed but for a null one with a length of 0. What exec would do after
    // a login is done at the end.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(spec.uid) == 0
            && libc::setuid(spec.uid) == 0
            && libc::prctl(libc::PR_SET_DUMPABLE, 1) == 0
    };
    if !done {
        return Err(io::Error::last_os_error()).context("cannot become a user's process");
    }
    rename(&spec.name);
    let mut random = Random::new(u64::from(spec.uid));
    let mut memory = Vec::new();
    take(spec.mib, &mut memory, &mut random)?;
    println!("0");
    for line in io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Order::Grow(mib) => {
                take(mib, &mut memory, &mut random)?;
                0
            }
            Order::Rename(name) => {
                rename(&name);
                0
            }
            Order::Score(score) => errno(fs::write("/proc/self/oom_score_adj", score.to_string())),
            Order::Nice(nice) => {
                // SAFETY: no pointers are passed.
                match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
                    0 => 0,
                    _ => errno(Err(io::Error::last_os_error())),
                }
            }
            Order::Child { orphan } => child(orphan)?,
            Order::Move(group) => errno(fs::write(format!("{group}/cgroup.procs"), "0")),
            Order::Make(group) => errno(fs::create_dir(group)),
        };
        println!("{answer}");
    }
    Ok(())
}

fn errno(done: io::Result<()>) -> i32 {
    done.err()
        .map_or(0, |error| error.raw_os_error().unwrap_or(-1))
}

fn take(mib: u32, memory: &mut Vec<Mapping>, random: &mut Random) -> Result<()> {
    // In small pieces: what is killed half-way has taken as much as it could.
    for _ in 0..mib {
        let mut more = Mapping::anonymous(MIB)?;
        for page in 0..more.pages() {
            more.fill_page(page, random);
        }
        memory.push(more);
    }
    Ok(())
}

fn rename(name: &str) {
    if let Ok(name) = CString::new(name) {
        // SAFETY: the kernel copies at most 16 bytes of a terminated string.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// Makes a child that waits for its end.
fn child(orphan: bool) -> Result<i32> {
    // SAFETY: between fork and the end of each child there are only system calls; this process has one
    // thread.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()).context("no fork"),
            0 => {
                if orphan {
                    libc::setsid();
                    if libc::fork() != 0 {
                        libc::_exit(0);
                    }
                }
                // Else the driver waits for this child when the app dies in the middle of an order.
                libc::close(libc::STDOUT_FILENO);
                sleep(CHILD_LIVES);
                libc::_exit(0)
            }
            child => {
                if orphan {
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                }
                Ok(child)
            }
        }
    }
}
