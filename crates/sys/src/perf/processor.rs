// SPDX-License-Identifier: GPL-2.0-or-later
//! Events of a processor, for all processes that run there.
//!
//! Needs no memory once it is open, for callers that must act when none is left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, NoArg, Opcode, Setter};

use super::{Attr, Buffer, Tracepoint, KIND_TRACEPOINT};
use crate::error::{Error, Result};

/// In `flags`: counts only when enabled.
const DISABLED: u64 = 1;

/// include/uapi/linux/perf_event.h.
const IOC_ENABLE: Opcode = opcode::none(b'$', 0);
const IOC_DISABLE: Opcode = opcode::none(b'$', 1);
const IOC_PERIOD: Opcode = opcode::write::<u64>(b'$', 4);

/// A tracepoint counted on one processor. Readable (`EPOLLIN`), once per [`Meter::look`], when the
/// count has grown by a period: that many events, or that many units of the event's weight
/// (`__perf_count` in the kernel: nanoseconds, for `sched_stat_runtime`).
///
/// It ends silently when the processor is taken offline.
#[derive(Debug)]
pub struct Meter {
    fd: OwnedFd,
    buffer: Buffer,
}

impl Meter {
    /// Opens a meter that does not count yet.
    ///
    /// # Errors
    ///
    /// [`Error::Permission`] without CAP_PERFMON or CAP_SYS_ADMIN, [`Error::Unsupported`] on a
    /// kernel without perf, [`Error::Gone`] if the processor is offline.
    pub fn open(tracepoint: &Tracepoint, processor: u32) -> Result<Meter> {
        let attr = Attr {
            kind: KIND_TRACEPOINT,
            size: std::mem::size_of::<Attr>() as u32,
            config: tracepoint.id,
            sample_period: 1,
            flags: DISABLED,
            wakeup_events: 1,
            ..Attr::default()
        };
        let failed = |errno| Error::new("watch", format!("processor {processor}"), errno);
        let number = i32::try_from(processor).map_err(|_| failed(Errno::NODEV))?;
        let everybody = -1;
        let fd = attr.open_for(everybody, number).map_err(failed)?;
        // A record without contents has 8 bytes.
        let buffer = Buffer::map(&fd, 1).map_err(failed)?;
        // Touch the first page now, because that is when it gets mapped.
        buffer.clear();
        Ok(Meter { fd, buffer })
    }

    /// Counts from 0, and becomes readable each time the count has grown by `period`, which is not
    /// 0.
    pub fn start(&self, period: u64) -> std::result::Result<(), Errno> {
        // If a new period is set while it counts, it takes effect and expires at once
        // (perf_event_set_period()).
        self.stop()?;
        // SAFETY: the kernel reads one u64, and takes no address.
        unsafe {
            ioctl(&self.fd, Setter::<IOC_PERIOD, u64>::new(period))?;
            ioctl(&self.fd, NoArg::<IOC_ENABLE>::new())
        }
    }

    /// Stops counting.
    pub fn stop(&self) -> std::result::Result<(), Errno> {
        // SAFETY: there is no argument.
        unsafe { ioctl(&self.fd, NoArg::<IOC_DISABLE>::new()) }
    }

    /// Whether a period has expired since the last call. Without calls its buffer fills up and it
    /// becomes silent.
    pub fn look(&self) -> bool {
        self.buffer.clear()
    }
}

impl AsFd for Meter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::thread_time;
    use crate::dir::Dir;
    use rustix::event::{poll, PollFd, PollFlags, Timespec};
    use std::time::Duration;

    /// Busy-loops until this much CPU time is used.
    fn work(time: Duration) {
        let begun = thread_time();
        while thread_time().saturating_sub(begun) < time {
            std::hint::spin_loop();
        }
    }

    fn is_readable(meter: &Meter) -> bool {
        let mut fds = [PollFd::new(meter, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&at_once)).unwrap() == 1
    }

    /// Requires privileges and a tracefs; without them the feature is unavailable too.
    #[test]
    fn cpu_time_of_any_task_is_noticed() {
        let Ok(tracefs) = Dir::open("/sys/kernel/tracing") else {
            eprintln!("SKIPPED: no tracefs");
            return;
        };
        let Ok(point) = Tracepoint::find(&tracefs, "sched", "sched_stat_runtime") else {
            eprintln!("SKIPPED: no such tracepoint");
            return;
        };
        let processors = std::thread::available_parallelism().unwrap().get() as u32;
        let open = |processor| Meter::open(&point, processor);
        let meters = match (0..processors).map(open).collect::<Result<Vec<_>>>() {
            Ok(meters) => meters,
            Err(error) if error.is_permission() || error.is_unsupported() => {
                eprintln!("SKIPPED: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        // A meter that does not count reports nothing.
        work(Duration::from_millis(20));
        assert!(!meters.iter().any(is_readable));
        for round in 0..3 {
            for meter in &meters {
                meter
                    .start(Duration::from_millis(50).as_nanos() as u64)
                    .unwrap();
            }
            // On at least one processor this exceeds a period and a tick.
            work(Duration::from_millis(60) * processors);
            let told = meters.iter().filter(|meter| is_readable(meter)).count();
            assert!(told > 0, "round {round}");
            meters.iter().for_each(|meter| meter.stop().unwrap());
            assert!(meters.iter().filter(|meter| meter.look()).count() >= told);
            assert!(!meters.iter().any(Meter::look));
        }
        // Far more than its buffer can hold; it keeps reporting because the buffer is drained.
        meters.iter().for_each(|meter| meter.start(1_000).unwrap());
        for _ in 0..50 {
            work(Duration::from_millis(10));
            meters.iter().for_each(|meter| _ = meter.look());
        }
        work(Duration::from_millis(20));
        assert!(meters.iter().any(is_readable));
    }
}
