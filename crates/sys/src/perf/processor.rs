// SPDX-License-Identifier: GPL-2.0-or-later
//! Events of a processor, whoever runs there.
//!
//! Needs no memory once it is open: for whoever has to act when there is none.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, NoArg, Opcode, Setter};

use super::{Attr, Buffer, Tracepoint, KIND_TRACEPOINT};
use crate::error::{Error, Result};

/// Of `flags`: counts when it is told to.
const DISABLED: u64 = 1;

/// include/uapi/linux/perf_event.h.
const IOC_ENABLE: Opcode = opcode::none(b'$', 0);
const IOC_DISABLE: Opcode = opcode::none(b'$', 1);
const IOC_PERIOD: Opcode = opcode::write::<u64>(b'$', 4);

/// A tracepoint that is counted on one processor. Readable (`EPOLLIN`), once to each look, when the
/// count has grown by a period: that is so many events, or so many units of what the event stands
/// for (`__perf_count` in the kernel: nanoseconds, for `sched_stat_runtime`).
///
/// It ends, and says nothing of it, when the processor is taken out of service.
#[derive(Debug)]
pub struct Meter {
    fd: OwnedFd,
    buffer: Buffer,
}

impl Meter {
    /// Opens one that does not count yet.
    ///
    /// # Errors
    ///
    /// [`Error::Permission`] without CAP_PERFMON or CAP_SYS_ADMIN, [`Error::Unsupported`] on a kernel
    /// without perf, [`Error::Gone`] when the processor is not in service.
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
        // Its first page is mapped when it is touched, which is now.
        buffer.clear();
        Ok(Meter { fd, buffer })
    }

    /// Counts from 0 on, and tells each time that so much more has come. `period` is not 0.
    pub fn start(&self, period: u64) -> std::result::Result<(), Errno> {
        // A new period takes effect at once, and is over, while it counts (perf_event_set_period()).
        self.stop()?;
        // SAFETY: the kernel reads one u64, and takes no address.
        unsafe {
            ioctl(&self.fd, Setter::<IOC_PERIOD, u64>::new(period))?;
            ioctl(&self.fd, NoArg::<IOC_ENABLE>::new())
        }
    }

    /// Counts no more.
    pub fn stop(&self) -> std::result::Result<(), Errno> {
        // SAFETY: there is no argument.
        unsafe { ioctl(&self.fd, NoArg::<IOC_DISABLE>::new()) }
    }

    /// Whether it has told anything since the last look. Without looks it falls silent: its buffer
    /// is full.
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

    /// Runs until so much processor time was used.
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

    /// Needs the rights and a tracefs; where they are missing, so is the feature.
    #[test]
    fn whoever_works_is_noticed_by_his_time() {
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
        // One that does not count says nothing.
        work(Duration::from_millis(20));
        assert!(!meters.iter().any(is_readable));
        for round in 0..3 {
            for meter in &meters {
                meter
                    .start(Duration::from_millis(50).as_nanos() as u64)
                    .unwrap();
            }
            // On some processor it is a period, and a tick.
            work(Duration::from_millis(60) * processors);
            let told = meters.iter().filter(|meter| is_readable(meter)).count();
            assert!(told > 0, "round {round}");
            meters.iter().for_each(|meter| meter.stop().unwrap());
            assert!(meters.iter().filter(|meter| meter.look()).count() >= told);
            assert!(!meters.iter().any(Meter::look));
        }
        // Far more than its buffer has room for; it still tells, because it is looked at.
        meters.iter().for_each(|meter| meter.start(1_000).unwrap());
        for _ in 0..50 {
            work(Duration::from_millis(10));
            meters.iter().for_each(|meter| _ = meter.look());
        }
        work(Duration::from_millis(20));
        assert!(meters.iter().any(is_readable));
    }
}
