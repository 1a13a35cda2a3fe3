// SPDX-License-Identifier: GPL-2.0-or-later
//! PID 1 of the guest. It sets the machine up, runs each cell in its own process with a time limit,
//! and cleans up after each cell. At the end, even after a failure, it powers the machine off.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::cgroup;
use crate::guest_setup;
use crate::handover;
use crate::kernel_log::KernelLog;
use crate::plan::{Cell, Init, Plan, Record};
use crate::record::{self, Reporter};
use crate::systemd;

/// Path of the lab's plan.
pub const PLAN: &str = "/plan.json";
/// Exit code of a cell's runner that has reported its failure.
pub const REPORTED: i32 = 3;

/// File that exists once the machine has been suspended.
pub const SLEPT: &str = "/run/slept";

/// Timeout for killed processes to exit. A process in uninterruptible sleep first waits for its
/// disk.
const REAP_LIMIT: Duration = Duration::from_secs(60);

/// Runs the plan and powers off.
pub fn run() -> ! {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("limelight-guest: PID 1 panicked: {panic}");
        power_off();
    }));
    if let Err(error) = boot() {
        eprintln!("limelight-guest: {error:#}");
    }
    power_off();
}

/// The plan of this boot.
pub fn plan() -> Result<Plan> {
    let text = fs::read_to_string(PLAN).with_context(|| format!("cannot read {PLAN}"))?;
    serde_json::from_str(&text).with_context(|| format!("{PLAN} is not a plan"))
}

fn boot() -> Result<()> {
    guest_setup::mount_kernel_file_systems()?;
    record::make_port_raw()?;
    let plan = plan()?;
    // SIGCHLD must not be blocked here: sysvinit would inherit the signal mask through exec, and
    // its children, which may wait for SIGCHLD, would inherit it too.
    if plan.machine.init != Init::Lab {
        return handover::become_init(&plan);
    }
    block_sigchld();
    carry_out(&plan, clean_up)
}

/// Carries out the plan as a service of a guest with another PID 1, and powers off.
pub fn session() -> ! {
    let outcome = (|| -> Result<()> {
        // SAFETY: prctl with these arguments only makes this process a subreaper.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        block_sigchld();
        carry_out(&plan()?, clean_up_session)
    })();
    if let Err(error) = outcome {
        eprintln!("limelight-guest: {error:#}");
    }
    power_off();
}

/// Restores the machine's state from before a cell.
type CleanUp = fn(&Plan) -> Result<()>;

fn carry_out(plan: &Plan, clean_up: CleanUp) -> Result<()> {
    record::write(&Record::Up {
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
            .trim()
            .to_owned(),
        memory_kib: guest_setup::memory_kib("MemTotal")?,
    })?;
    match guest_setup::set_up(&plan.machine) {
        Ok(_ballast) => {
            let mut log = KernelLog::open()?;
            for (index, cell) in plan.cells.iter().enumerate() {
                run_cell(plan, index, cell, &mut log, clean_up)?;
            }
        }
        Err(error) => {
            for cell in &plan.cells {
                failed(cell, format!("the machine cannot be set up: {error:#}"))?;
            }
        }
    }
    record::write(&Record::Done)
}

/// Runs one cell, restores the machine's state from before the cell, and checks the kernel log.
fn run_cell(
    plan: &Plan,
    index: usize,
    cell: &Cell,
    log: &mut KernelLog,
    clean_up: CleanUp,
) -> Result<()> {
    log.forget();
    let limit = Duration::from_secs(cell.limit_s.into());
    let mut command = Command::new("/proc/self/exe");
    command.arg("cell").arg(index.to_string());
    // SAFETY: the function makes one system call between fork and exec.
    unsafe { command.pre_exec(unblock_sigchld) };
    let runner = command.spawn().context("cannot start a cell's runner")?;
    match wait(runner, limit)? {
        None => failed(cell, format!("killed after its time limit of {limit:?}"))?,
        Some(status) if status.success() || status.code() == Some(REPORTED) => {}
        Some(status) => {
            let how = match status.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => format!("exit code {}", status.code().unwrap_or(-1)),
            };
            failed(cell, format!("the cell's runner ended early: {how}"))?;
        }
    }
    if let Err(error) = clean_up(plan) {
        failed(cell, format!("cannot clean up after the cell: {error:#}"))?;
    }
    let problems = log.problems()?;
    Reporter::new(&cell.id).check(
        "the kernel log holds no warning, bug, KASAN or lockdep report",
        problems.is_empty(),
        if problems.is_empty() {
            "clean".into()
        } else {
            problems.join("\n")
        },
    )
}

fn failed(cell: &Cell, why: String) -> Result<()> {
    record::write(&Record::Failed {
        cell: cell.id.clone(),
        why,
    })
}

/// Waits for the runner and reaps orphans meanwhile. After `limit`, kills the runner and returns
/// `None`.
fn wait(mut runner: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    let pid = runner.id() as i32;
    loop {
        if let Some(status) = reap(pid)? {
            return Ok(Some(status));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let _ = runner.kill();
            return Ok(None);
        }
        await_sigchld(left);
    }
}

/// Reaps every child that has exited; returns the status of `pid` if it was reaped.
fn reap(pid: i32) -> Result<Option<ExitStatus>> {
    let mut found = None;
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid.
        let ended = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
        match ended {
            0 => return Ok(found),
            -1 => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::ECHILD) => return Ok(found),
                    Some(libc::EINTR) => {}
                    _ => return Err(error).context("waitpid failed"),
                }
            }
            _ if ended == pid => found = Some(ExitStatus::from_raw(status)),
            _ => {}
        }
    }
}

/// As [`clean_up`], but for a guest with another PID 1: removes only a cell's leftovers. They are
/// children of this process, or in a cgroup in which cells start apps.
fn clean_up_session(plan: &Plan) -> Result<()> {
    for slice in [
        "app.slice",
        "background.slice",
        systemd::APPS,
        systemd::SESSION,
    ] {
        cgroup::kill_below(slice, REAP_LIMIT)?;
    }
    let children = format!("/proc/self/task/{}/children", std::process::id());
    let left = fs::read_to_string(&children).with_context(|| format!("cannot read {children}"))?;
    for pid in left.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        // SAFETY: no pointers are passed, and an unreaped child's PID is not reused.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    await_children()?;
    remove_limelights_files()?;
    guest_setup::reset(&plan.machine)
}

/// Kills remaining processes, removes their cgroups and files, and resets page replacement, swap
/// and caches.
fn clean_up(plan: &Plan) -> Result<()> {
    // SAFETY: from PID 1 this reaches every process but itself.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    await_children()?;
    // A cgroup becomes empty shortly after its last task is reaped.
    let deadline = Instant::now() + REAP_LIMIT;
    while let Err(error) = cgroup::remove_all() {
        if Instant::now() > deadline {
            return Err(error);
        }
        sleep(Duration::from_millis(20));
    }
    remove_limelights_files()?;
    guest_setup::reset(&plan.machine)
}

fn remove_limelights_files() -> Result<()> {
    for directory in ["/run/limelight", "/var/lib/limelight", "/etc/limelight"] {
        if Path::new(directory).exists() {
            fs::remove_dir_all(directory).with_context(|| format!("cannot remove {directory}"))?;
        }
    }
    Ok(())
}

/// Waits until no child is left.
fn await_children() -> Result<()> {
    let deadline = Instant::now() + REAP_LIMIT;
    while children_left()? {
        if Instant::now() > deadline {
            bail!("some killed processes have not exited after {REAP_LIMIT:?}");
        }
        await_sigchld(Duration::from_millis(100));
    }
    Ok(())
}

/// Whether this process still has children; reaps those that have exited.
fn children_left() -> Result<bool> {
    reap(0)?;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is valid; WNOWAIT leaves the child waitable.
    let done = unsafe {
        libc::waitid(
            libc::P_ALL,
            0,
            info.as_mut_ptr(),
            libc::WEXITED | libc::WNOHANG | libc::WNOWAIT,
        )
    };
    Ok(done == 0)
}

fn sigchld() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        set.assume_init()
    }
}

/// Blocks SIGCHLD, which stays pending until [`await_sigchld`] takes it.
fn block_sigchld() {
    // SAFETY: the set is valid.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &sigchld(), ptr::null_mut()) };
}

/// Unblocks SIGCHLD in a child, which has inherited the mask. Programs that wait for SIGCHLD, such
/// as OpenRC's, would hang otherwise.
fn unblock_sigchld() -> io::Result<()> {
    // SAFETY: the set is valid.
    match unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &sigchld(), ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn await_sigchld(limit: Duration) {
    let time = libc::timespec {
        tv_sec: limit.as_secs() as _,
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: set and time are valid.
    unsafe { libc::sigtimedwait(&sigchld(), ptr::null_mut(), &time) };
}

fn power_off() -> ! {
    // An emulated PC cannot power off after it has been suspended. With QEMU, which the lab starts
    // with -no-reboot, a reboot has the same effect.
    let how = match Path::new(SLEPT).exists() {
        true => libc::RB_AUTOBOOT,
        false => libc::RB_POWER_OFF,
    };
    // SAFETY: no pointers are passed. If the call fails, only the host can end the machine.
    unsafe {
        libc::sync();
        libc::reboot(how);
    }
    loop {
        sleep(Duration::from_secs(3600));
    }
}
