// SPDX-License-Identifier: GPL-2.0-or-later
//! An unprivileged user's app. It executes the orders of the process that runs the scenario.

use std::ffi::CString;
use std::fs;
use std::io::{self, BufRead};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::memory::{Mapping, MIB};
use crate::random::Random;

/// Time after which a child of an app exits, unless it is killed before.
const CHILD_LIVES: Duration = Duration::from_secs(120);

/// Parameters of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// UID that the process takes.
    pub uid: u32,
    /// Memory that the app allocates at its start, in MiB.
    pub mib: u32,
    /// Name that the process takes.
    pub name: String,
}

/// An order to the app. The app answers with 0 or an errno; to [`Order::Child`], with a PID.
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
    /// Forks a child. With `orphan`, forks twice instead: the new process has no parent in the app
    /// and is in another session.
    Child { orphan: bool },
    /// Moves the process to the cgroup in this directory.
    Move(String),
    /// Creates this directory as a cgroup.
    Make(String),
}

/// Runs an app: takes the user's UID and the memory, then executes orders from standard input.
pub fn app(spec: &Spec) -> Result<()> {
    // PR_SET_DUMPABLE comes last, because setuid clears the dumpable flag. The processes of a real
    // login are dumpable, because exec sets the flag.
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

/// 0, or the errno of the failure.
fn errno(done: io::Result<()>) -> i32 {
    done.err()
        .map_or(0, |error| error.raw_os_error().unwrap_or(-1))
}

/// Allocates this many MiB and fills them with random data.
fn take(mib: u32, memory: &mut Vec<Mapping>, random: &mut Random) -> Result<()> {
    // Each MiB is filled before the next one is allocated. An app that is killed midway has thus
    // used as much memory as it could get.
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
        // SAFETY: the kernel reads a string that ends in a null byte, and at most 16 bytes of it.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// Forks a child that sleeps for [`CHILD_LIVES`] and exits; returns the child's PID. For an orphan,
/// the child instead forks the process that sleeps, and exits at once. The returned PID is still
/// that of the child, which no longer exists.
fn child(orphan: bool) -> Result<i32> {
    // SAFETY: this process has one thread, and its children make only system calls until they exit.
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
                // If the child kept standard output open, the scenario would not see that the app
                // has died, and would wait for its answer.
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
