// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts events of one processor, for all tasks that run on it.
//!
//! An open [`Meter`] allocates no memory, so callers can use it when no memory is left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, NoArg, Opcode, Setter};

use super::{Attr, Buffer, Tracepoint, KIND_TRACEPOINT};
use crate::error::{Error, Result};

/// Bit of `flags`: the event counts only after it is enabled.
const DISABLED: u64 = 1;

/// Ioctl numbers of include/uapi/linux/perf_event.h.
const IOC_ENABLE: Opcode = opcode::none(b'$', 0);
const IOC_DISABLE: Opcode = opcode::none(b'$', 1);
const IOC_PERIOD: Opcode = opcode::write::<u64>(b'$', 4);

/// Counts a tracepoint on one processor. The count grows by 1 with each event, or by the weight of
/// the event if the tracepoint defines one (`__perf_count` in the kernel). `sched_stat_runtime`,
/// for example, adds nanoseconds.
///
/// The meter becomes readable (`EPOLLIN`) each time the count has grown by a period. Call
/// [`Meter::look`] then.
///
/// When the processor is taken offline, the meter stops counting without an error.
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
        let all_tasks = -1;
        let fd = attr.open_for(all_tasks, number).map_err(failed)?;
        // One page suffices: a record without contents has 8 bytes.
        let buffer = Buffer::map(&fd, 1).map_err(failed)?;
        // Touches the first page, so that the kernel maps it now and not on first use.
        buffer.clear();
        Ok(Meter { fd, buffer })
    }

    /// Starts to count from 0. The meter becomes readable each time the count has grown by
    /// `period`, which must not be 0.
    pub fn start(&self, period: u64) -> std::result::Result<(), Errno> {
        // Stops first: a period that is set on a counting meter expires at once
        // (perf_event_set_period()).
        self.stop()?;
        // SAFETY: the first request makes the kernel read one u64; the second one has no argument.
        unsafe {
            ioctl(&self.fd, Setter::<IOC_PERIOD, u64>::new(period))?;
            ioctl(&self.fd, NoArg::<IOC_ENABLE>::new())
        }
    }

    /// Stops counting.
    pub fn stop(&self) -> std::result::Result<(), Errno> {
        // SAFETY: the request has no argument.
        unsafe { ioctl(&self.fd, NoArg::<IOC_DISABLE>::new()) }
    }

    /// Drains the buffer. Returns whether a period has expired since the last call. If this is
    /// never called, the buffer fills up and the meter no longer becomes readable.
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

    /// Busy-loops until this thread has used this much CPU time.
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

    /// Skipped without privileges or a tracefs, because the feature needs both.
    #[test]
    fn cpu_time_of_any_task_makes_a_meter_readable() {
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
        // A meter that was not started does not become readable.
        work(Duration::from_millis(20));
        assert!(!meters.iter().any(is_readable));
        for round in 0..3 {
            for meter in &meters {
                meter
                    .start(Duration::from_millis(50).as_nanos() as u64)
                    .unwrap();
            }
            // Afterwards, at least one processor has counted 60 ms: the period of 50 ms and one
            // tick of at most 10 ms.
            work(Duration::from_millis(60) * processors);
            let readable = meters.iter().filter(|meter| is_readable(meter)).count();
            assert!(readable > 0, "round {round}");
            meters.iter().for_each(|meter| meter.stop().unwrap());
            assert!(meters.iter().filter(|meter| meter.look()).count() >= readable);
            assert!(!meters.iter().any(Meter::look));
        }
        // This produces far more records than the buffer can hold. The meter still becomes
        // readable, because look() drains the buffer.
        meters.iter().for_each(|meter| meter.start(1_000).unwrap());
        for _ in 0..50 {
            work(Duration::from_millis(10));
            meters.iter().for_each(|meter| _ = meter.look());
        }
        work(Duration::from_millis(20));
        assert!(meters.iter().any(is_readable));
    }
}
