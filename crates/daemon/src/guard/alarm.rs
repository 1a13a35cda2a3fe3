// SPDX-License-Identifier: GPL-2.0-or-later
//! What wakes the guard where most memory is free: nobody has to reclaim then before memory is
//! gone, so no stall tells of it.
//!
//! Memory is taken by somebody who runs: by faults, by `write()` to a tmpfs, by what the kernel
//! keeps for him, by a driver. Only his time on the processor is common to all of that, and while
//! nobody has any, nothing can happen. So the time that tasks have run on each processor is counted
//! (the tracepoint `sched:sched_stat_runtime`, which stands for nanoseconds), and the guard is woken when
//! on one of them it has reached what it takes to take all that is left. Where nobody runs that is
//! never.
//!
//! A count belongs to a processor in service and ends silently with that. Each step of a change of who is in
//! service, also before and after a suspend, is seen on one of those that were when it is done
//! (`cpuhp:cpuhp_exit`), and the alarm has to be made anew. When it begins (`cpuhp:cpuhp_enter`) is too soon: nothing
//! more is told on an old processor between that and the moment at which the new one is in service (`bringup_cpu()` in
//! kernel/cpu.c), so that an alarm made between would leave it out for good.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use limelight_sys::dir::Dir;
use limelight_sys::error::Error;
use limelight_sys::list;
use limelight_sys::perf::processor::Meter;
use limelight_sys::perf::Tracepoint;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tracing::debug;

use crate::doors::Doors;

const ONLINE: &str = "devices/system/cpu/online";
/// Processors whose one task is not interrupted: what it has run is known a second later.
const TICKLESS: &str = "devices/system/cpu/nohz_full";

/// How long a task may have run before that is counted: a tick of the slowest clock that Linux has.
const TICK: Duration = Duration::from_millis(10);

/// Why there is none.
#[derive(Debug)]
pub struct Missing {
    /// For people.
    pub why: String,
    /// It is being decided who is in service: a little later there may be one.
    pub passing: bool,
}

impl Missing {
    fn for_good(why: impl ToString) -> Missing {
        Missing {
            why: why.to_string(),
            passing: false,
        }
    }
}

/// The counts of all processors.
#[derive(Debug)]
pub struct Alarm {
    queue: OwnedFd,
    work: Vec<Meter>,
    service: Vec<Meter>,
    /// Between two rings of a processor, while it is set.
    period: Option<Duration>,
}

impl Alarm {
    /// One that is not set.
    ///
    /// # Errors
    ///
    /// [`Missing::passing`] too while a processor comes or goes: it is in service before events can be counted on
    /// it, and still is when they cannot any more (`CPUHP_AP_PERF_ONLINE`).
    pub fn open(doors: &Doors) -> Result<Alarm, Missing> {
        let sys = Dir::open(&doors.roots.sys).map_err(Missing::for_good)?;
        let tickless = sys.read_text(TICKLESS).unwrap_or_default();
        if !list::parse(&tickless).is_empty() {
            let why = format!("processors {} run without a tick", tickless.trim());
            return Err(Missing::for_good(why));
        }
        let tracefs = doors.tracefs().map_err(Missing::for_good)?;
        let tracefs = Dir::open(tracefs).map_err(Missing::for_good)?;
        let find =
            |system, event| Tracepoint::find(&tracefs, system, event).map_err(Missing::for_good);
        let points = (
            find("sched", "sched_stat_runtime")?,
            find("cpuhp", "cpuhp_exit")?,
        );
        let online = || sys.read_text(ONLINE).map_err(Missing::for_good);
        let before = online()?;
        match Alarm::on(&list::parse(&before), &points) {
            Ok(alarm) if online()? == before => Ok(alarm),
            Ok(_) => Err(Missing {
                why: "processors come and go".to_owned(),
                passing: true,
            }),
            Err(error) => Err(Missing {
                why: error.to_string(),
                passing: error.is_gone(),
            }),
        }
    }

    fn on(processors: &[u32], points: &(Tracepoint, Tracepoint)) -> limelight_sys::Result<Alarm> {
        let failed = |errno| Error::new("wait for", "the alarm of the processors", errno);
        let queue = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let open = |point| -> limelight_sys::Result<Vec<Meter>> {
            let meters = processors.iter().map(|&processor| {
                let meter = Meter::open(point, processor)?;
                // Which one it was does not matter.
                epoll::add(&queue, &meter, EventData::new_u64(0), EventFlags::IN)
                    .map_err(failed)?;
                Ok(meter)
            });
            meters.collect()
        };
        let (work, service) = (open(&points.0)?, open(&points.1)?);
        for meter in &service {
            meter.start(1).map_err(failed)?;
        }
        Ok(Alarm {
            queue,
            work,
            service,
            period: None,
        })
    }

    /// To be woken at the latest when tasks have run for `time`, all of them together. `false`: it is
    /// so short that a clock does as well, or it cannot be set.
    pub fn set(&mut self, time: Duration) -> bool {
        let Some(needed) = share(time, self.work.len()) else {
            return false;
        };
        // What has been counted may stay: no processor then runs longer than a period before it rings.
        if !self.period.is_some_and(|period| fits(period, needed)) {
            let period = needed / 4 * 3;
            let nanoseconds = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
            self.period = Some(period);
            let mut meters = self.work.iter();
            if let Err(errno) = meters.try_for_each(|meter| meter.start(nanoseconds)) {
                debug!("the alarm cannot be set: {errno}");
                self.silence();
                return false;
            }
        }
        self.work.iter().for_each(|meter| _ = meter.look());
        true
    }

    /// Not to be woken by anybody's work. What it costs those who work ends.
    pub fn silence(&mut self) {
        if self.period.take().is_some() {
            self.work.iter().for_each(|meter| _ = meter.stop());
        }
    }

    /// Whether the processors in service are others by now: it is of no use any more.
    pub fn is_spent(&self) -> bool {
        let changes = self.service.iter().filter(|meter| meter.look());
        changes.count() > 0
    }
}

/// Readable when it rings, once.
impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// How long each of the processors may run: all may be about to ring when the first one does. What
/// can be taken in a time is as much as all of them can take together, so one that does it alone, and moves
/// from each to the next, is covered too. `None`: less than can be counted.
fn share(time: Duration, processors: usize) -> Option<Duration> {
    let processors = u32::try_from(processors).ok().filter(|count| *count > 0)?;
    let share = (time / processors).checked_sub(TICK)?;
    (share >= TICK).then_some(share)
}

/// Whether it may stay as it is. To set it interrupts each processor.
fn fits(period: Duration, needed: Duration) -> bool {
    period <= needed && needed <= period * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn all_processors_together_run_no_longer_than_that_before_it_rings() {
        for processors in [1, 2, 3, 16, 128] {
            for time in [0, 15, 60, 134, 1000, 3000, 60_000].map(MS) {
                let Some(needed) = share(time, processors) else {
                    continue;
                };
                let most = (needed + TICK) * processors as u32;
                assert!(needed >= TICK && most <= time, "{processors} {time:?}");
            }
        }
        assert_eq!(share(MS(134), 2), Some(MS(57)));
        assert_eq!(share(MS(39), 2), None);
        assert_eq!(share(MS(1000), 0), None);
    }

    #[test]
    fn it_is_set_anew_when_it_would_ring_too_late_or_far_too_often() {
        let needed = MS(100);
        let period = needed / 4 * 3;
        assert!(fits(period, needed));
        assert!(fits(period, MS(80)) && !fits(period, MS(74)));
        assert!(fits(period, MS(140)) && !fits(period, MS(160)));
    }

    /// Needs the rights and a tracefs; where they are missing the clock is kept.
    #[test]
    fn it_rings_when_somebody_works_and_not_when_it_is_silent() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("cgroup")).unwrap();
        std::fs::write(temp.path().join("cgroup/cgroup.procs"), "").unwrap();
        let doors = Doors::open(crate::doors::Roots {
            cgroup: Some(temp.path().join("cgroup")),
            runtime: temp.path().to_owned(),
            ..Default::default()
        });
        let mut alarm = match Alarm::open(&doors.unwrap()) {
            Ok(alarm) => alarm,
            Err(missing) => return eprintln!("SKIPPED: {}", missing.why),
        };
        let rings = |alarm: &Alarm| {
            use rustix::event::{poll, PollFd, PollFlags, Timespec};
            let at_once = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            poll(&mut [PollFd::new(alarm, PollFlags::IN)], Some(&at_once)).unwrap() > 0
        };
        let processors = alarm.work.len() as u32;
        let work = |time: Duration| {
            let begun = limelight_sys::clock::thread_time();
            while limelight_sys::clock::thread_time().saturating_sub(begun) < time {
                std::hint::spin_loop();
            }
        };
        work(MS(50));
        assert!(!rings(&alarm) && !alarm.is_spent());
        let time = MS(50) * processors;
        assert!(alarm.set(time));
        work(time);
        assert!(rings(&alarm));
        alarm.silence();
        // What had been told by then.
        while rings(&alarm) {}
        work(time);
        assert!(!rings(&alarm));
        assert!(!alarm.set(MS(19) * processors), "a clock does as well");
    }
}
