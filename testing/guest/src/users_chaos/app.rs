// SPDX-License-Identifier: GPL-2.0-or-later
//! A user's app. It executes the driver's orders, which need no privilege.

use std::ffi::CString;
use std::fs;
use std::io::{self, BufRead};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::memory::{Mapping, MIB};
use crate::random::Random;

/// Longest life of an app's child.
const CHILD_LIVES: Duration = Duration::from_secs(120);

/// Parameters of the app's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// UID that the process takes.
    pub uid: u32,
    /// Memory of the app, in MiB.
    pub mib: u32,
    /// Name that the process takes.
    pub name: String,
}

/// An order to the app, which answers with 0, an errno, or the PID of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Allocates this many MiB more.
    Grow(u32),
    /// Changes the name of the process.
    Rename(String),
    /// Sets the process's `oom_score_adj`.
    Score(i16),
    /// Sets the process's nice value.
    Nice(i32),
    /// Forks a child; an orphan leaves its session and its parent.
    Child { orphan: bool },
    /// Moves the process to the cgroup in this directory.
    Move(String),
    /// Creates this directory as a cgroup.
    Make(String),
}

/// The app's process.
pub fn app(spec: &Spec) -> Result<()> {
    // PR_SET_DUMPABLE has the effect of the exec that follows a login.
    // SAFETY: the only pointer is a null pointer with a length of 0.
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
    // In small steps, so that an app that is killed meanwhile has taken as much as it could.
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

/// Forks a child that sleeps for [`CHILD_LIVES`] and exits; returns the child's PID. An orphan is
/// forked by a process in between, which exits at once; then that process's PID is returned.
fn child(orphan: bool) -> Result<i32> {
    // SAFETY: each child makes only system calls until it exits, and this process has one thread.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()).context("the app cannot fork"),
            0 => {
                if orphan {
                    libc::setsid();
                    if libc::fork() != 0 {
                        libc::_exit(0);
                    }
                }
                // If the child kept the pipe, the driver would wait for an answer from a dead app.
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
