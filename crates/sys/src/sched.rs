// SPDX-License-Identifier: GPL-2.0-or-later
//! Scheduling parameters of a thread: nice value and slice for the CPU, priority for disks.
//!
//! The kernel identifies threads by their id, and reuses ids. Use
//! [`Process::thread_start`](crate::process::Process::thread_start) to check that an id still
//! belongs to the same thread.

use rustix::io::Errno;

use crate::error::{Error, Result};

/// `SCHED_OTHER`: the default policy.
const OTHER: u32 = 0;
/// `SCHED_BATCH`: like `SCHED_OTHER`, but a thread that wakes up does not preempt others.
const BATCH: u32 = 3;
/// `SCHED_FLAG_RESET_ON_FORK`: children start with default scheduling. [`Cpu::set`] preserves no
/// other flag.
const RESET_ON_FORK: u64 = 1;

/// `struct sched_attr` of Linux 3.14, 48 bytes. Later kernels accept it too.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Attr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// CPU scheduling parameters of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    attr: Attr,
}

impl Cpu {
    /// Reads the parameters of a thread; [`Error::Gone`] if it does not exist. `tid` 0 means the
    /// calling thread.
    pub fn of(tid: i32) -> Result<Cpu> {
        let size = std::mem::size_of::<Attr>() as u32;
        let mut attr = Attr::default();
        // SAFETY: `attr` is valid for `size` bytes, which is the size passed to the kernel.
        let done = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &mut attr, size, 0) };
        match done {
            0 => Ok(Cpu { attr }),
            _ => Err(failed("read the scheduling of", tid)),
        }
    }

    /// Whether nice value and slice apply: true for the policies `SCHED_OTHER` and `SCHED_BATCH`,
    /// false for real-time, deadline and idle policies.
    pub fn is_fair(&self) -> bool {
        matches!(self.attr.policy, OTHER | BATCH)
    }

    /// The nice value, -20 to 19.
    pub fn nice(&self) -> i32 {
        self.attr.nice
    }

    /// The slice in nanoseconds; the kernel's default if the thread has no slice of its own. 0 if
    /// no slice applies, and before Linux 6.12, which introduced slices per thread.
    pub fn slice_ns(&self) -> u64 {
        match self.is_fair() {
            true => self.attr.runtime,
            false => 0,
        }
    }

    /// Whether new threads and children start with default scheduling: nice value 0 if that of their
    /// creator is negative, and the kernel's own slice (`sched_fork()`).
    pub fn resets_on_fork(&self) -> bool {
        self.attr.flags & RESET_ON_FORK != 0
    }

    /// The same parameters with or without the reset on fork. Clearing it requires CAP_SYS_NICE.
    pub fn with_reset_on_fork(self, resets: bool) -> Cpu {
        let mut attr = self.attr;
        attr.flags = match resets {
            true => attr.flags | RESET_ON_FORK,
            false => attr.flags & !RESET_ON_FORK,
        };
        Cpu { attr }
    }

    /// Sets nice value and slice of a thread; its other parameters become those in `self`. The
    /// slice is in nanoseconds; 0 selects the kernel's default. A lower nice value requires
    /// CAP_SYS_NICE.
    pub fn set(&self, tid: i32, nice: i32, slice_ns: u64) -> Result<()> {
        let attr = Attr {
            size: std::mem::size_of::<Attr>() as u32,
            flags: self.attr.flags & RESET_ON_FORK,
            nice,
            runtime: slice_ns,
            ..self.attr
        };
        // SAFETY: `attr` is valid and contains its size.
        let done = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &attr, 0) };
        match done {
            0 => Ok(()),
            _ => Err(failed("set the scheduling of", tid)),
        }
    }
}

/// The nice value of a thread with any policy. For a real-time or idle thread, the value applies
/// when the thread returns to `SCHED_OTHER` or `SCHED_BATCH`.
pub fn nice(tid: i32) -> Result<i32> {
    rustix::process::getpriority_process(pid(tid))
        .map_err(|errno| Error::new("read the nice value of", format!("/proc/{tid}"), errno))
}

/// Sets the nice value of a thread. A lower value requires CAP_SYS_NICE.
pub fn set_nice(tid: i32, nice: i32) -> Result<()> {
    rustix::process::setpriority_process(pid(tid), nice)
        .map_err(|errno| Error::new("set the nice value of", format!("/proc/{tid}"), errno))
}

/// Converts a thread id. 0 becomes `None`, which means the calling thread.
fn pid(tid: i32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(tid)
}

/// Priority of a thread's disk requests: the class in the upper three bits, the level in the lower
/// bits. 0 means that the priority follows from the nice value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoPriority(pub u16);

const CLASS_SHIFT: u16 = 13;
const BEST_EFFORT: u16 = 2;
const WHO_PROCESS: libc::c_int = 1;

impl IoPriority {
    /// A priority of the best-effort class, the default class. `level` is 0 (highest) to 7.
    pub fn best_effort(level: u8) -> IoPriority {
        IoPriority(BEST_EFFORT << CLASS_SHIFT | u16::from(level.min(7)))
    }

    /// Whether the class is best-effort or not set, as opposed to real-time or idle.
    pub fn is_ordinary(self) -> bool {
        matches!(self.0 >> CLASS_SHIFT, 0 | BEST_EFFORT)
    }

    /// Reads a thread's priority.
    pub fn of(tid: i32) -> Result<IoPriority> {
        // SAFETY: no pointers are passed.
        let value = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, tid) };
        match u16::try_from(value) {
            Ok(value) => Ok(IoPriority(value)),
            Err(_) => Err(failed("read the I/O priority of", tid)),
        }
    }

    /// Sets a thread's priority.
    pub fn set(self, tid: i32) -> Result<()> {
        let value = libc::c_int::from(self.0);
        // SAFETY: no pointers are passed.
        let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, tid, value) };
        match done {
            0 => Ok(()),
            _ => Err(failed("set the I/O priority of", tid)),
        }
    }
}

impl std::fmt::Display for IoPriority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = self.0 & ((1 << CLASS_SHIFT) - 1);
        match self.0 >> CLASS_SHIFT {
            0 => f.write_str("none"),
            1 => write!(f, "real-time {level}"),
            BEST_EFFORT => write!(f, "best-effort {level}"),
            3 => f.write_str("idle"),
            class => write!(f, "class {class} level {level}"),
        }
    }
}

fn failed(action: &'static str, tid: i32) -> Error {
    let errno = std::io::Error::last_os_error();
    let errno = Errno::from_io_error(&errno).unwrap_or(Errno::IO);
    Error::new(action, format!("/proc/{tid}"), errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_thread<T: Send + 'static>(work: impl FnOnce(i32) -> T + Send + 'static) -> T {
        let thread =
            std::thread::spawn(move || work(rustix::thread::gettid().as_raw_nonzero().get()));
        thread.join().unwrap()
    }

    #[test]
    fn thread_gets_a_higher_nice_value_and_keeps_its_policy() {
        in_a_thread(|tid| {
            let before = Cpu::of(tid).unwrap();
            assert!(before.is_fair());
            let nice = (before.nice() + 1).min(19);
            before.set(tid, nice, 0).unwrap();
            let after = Cpu::of(tid).unwrap();
            assert_eq!((after.nice(), after.is_fair()), (nice, true));
            assert_eq!(Cpu::of(0).unwrap(), after);
        });
    }

    #[test]
    fn slice_is_set_or_unsupported_and_0_restores_the_default() {
        in_a_thread(|tid| {
            let before = Cpu::of(tid).unwrap();
            before.set(tid, before.nice(), 700_100).unwrap();
            let taken = Cpu::of(tid).unwrap().slice_ns();
            assert!(taken == 700_100 || taken == 0, "{taken}");
            before.set(tid, before.nice(), 0).unwrap();
            assert_ne!(Cpu::of(tid).unwrap().slice_ns(), 700_100);
        });
    }

    #[test]
    fn child_of_a_thread_that_resets_on_fork_has_default_scheduling() {
        in_a_thread(|tid| {
            let before = Cpu::of(tid).unwrap();
            assert!(!before.resets_on_fork());
            let resetting = before.with_reset_on_fork(true);
            resetting.set(tid, before.nice(), 700_100).unwrap();
            assert!(Cpu::of(tid).unwrap().resets_on_fork());
            let child = in_a_thread(|tid| Cpu::of(tid).unwrap());
            assert!(!child.resets_on_fork() && child.slice_ns() != 700_100);
        });
    }

    #[test]
    fn io_priority_round_trips() {
        in_a_thread(|tid| {
            let before = IoPriority::of(tid).unwrap();
            IoPriority::best_effort(6).set(tid).unwrap();
            assert_eq!(IoPriority::of(tid).unwrap(), IoPriority::best_effort(6));
            assert_eq!(IoPriority::best_effort(6).to_string(), "best-effort 6");
            before.set(tid).unwrap();
        });
    }

    #[test]
    fn real_time_and_idle_classes_are_not_ordinary() {
        assert!(IoPriority(0).is_ordinary() && IoPriority::best_effort(7).is_ordinary());
        assert!(!IoPriority(1 << CLASS_SHIFT).is_ordinary());
        assert!(!IoPriority(3 << CLASS_SHIFT).is_ordinary());
    }

    #[test]
    fn idle_thread_keeps_a_nice_value() {
        in_a_thread(|tid| {
            let attr = Attr {
                size: std::mem::size_of::<Attr>() as u32,
                policy: libc::SCHED_IDLE as u32,
                ..Attr::default()
            };
            // SAFETY: `attr` is valid and contains its size.
            let done = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &attr, 0) };
            assert_eq!(done, 0);
            // The tests may run at nice 19, which has no higher value.
            let higher = (nice(tid).unwrap() + 1).min(19);
            set_nice(tid, higher).unwrap();
            assert_eq!(nice(tid).unwrap(), higher);
            assert!(!Cpu::of(tid).unwrap().is_fair());
        });
    }

    #[test]
    fn missing_thread_is_gone() {
        assert!(Cpu::of(i32::MAX).unwrap_err().is_gone());
        assert!(nice(i32::MAX).unwrap_err().is_gone());
        assert!(IoPriority::of(i32::MAX).unwrap_err().is_gone());
        assert!(IoPriority::best_effort(0)
            .set(i32::MAX)
            .unwrap_err()
            .is_gone());
    }
}
