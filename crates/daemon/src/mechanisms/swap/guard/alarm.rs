// SPDX-License-Identifier: GPL-2.0-or-later
//! Wakes the guard while most memory is free. In that state tasks can use up memory without any
//! reclaim, so no stall warns the guard.
//!
//! Only a running task takes memory: by faults, by `write()` to a tmpfs, through what the kernel
//! allocates for it, or through a driver. All of these cost CPU time. So the alarm counts the run
//! time of tasks on each CPU (the tracepoint `sched:sched_stat_runtime`, in nanoseconds). It wakes
//! the guard when one CPU has run tasks for its share of the time in which all free memory can be
//! taken. On an idle machine it never rings.
//!
//! A counter belongs to an online CPU and ends silently when the CPU goes offline. When a step of a
//! CPU hotplug is done, one of the CPUs that were online raises an event (`cpuhp:cpuhp_exit`). A
//! suspend and a resume cause such steps, too. The alarm then has to be reopened. The event at the
//! beginning of a step (`cpuhp:cpuhp_enter`) is too early. After it, the other CPUs raise no event
//! until the new CPU is online (`bringup_cpu()` in kernel/cpu.c). An alarm opened in between would
//! miss that CPU for good.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use limelight_sys::dir::Dir;
use limelight_sys::error::Error;
use limelight_sys::list;
use limelight_sys::perf::processor::Meter;
use limelight_sys::perf::Tracepoint;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tracing::debug;

use crate::system::System;

const ONLINE: &str = "devices/system/cpu/online";
/// CPUs that run a single task without a tick: its run time is known only a second later.
const TICKLESS: &str = "devices/system/cpu/nohz_full";

/// Longest run time that a counter may lag behind: one tick at the lowest tick rate of Linux.
const TICK: Duration = Duration::from_millis(10);

/// Why there is no alarm.
#[derive(Debug)]
pub struct Missing {
    /// The reason, as human-readable text.
    pub why: String,
    /// Whether CPU hotplug is in progress, so that a later attempt may succeed.
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

/// The counters of all CPUs.
#[derive(Debug)]
pub struct Alarm {
    queue: OwnedFd,
    /// The run time of tasks, one counter for each CPU.
    work: Vec<Meter>,
    /// The hotplug steps that are done, one counter for each CPU.
    service: Vec<Meter>,
    /// Run time of a CPU between two rings, while the alarm is set.
    period: Option<Duration>,
}

impl Alarm {
    /// Opens an alarm that is not set.
    ///
    /// # Errors
    ///
    /// [`Missing`] with the reason. [`Missing::passing`] is set while a CPU goes online or offline:
    /// for a moment, the CPU is then marked online although no events can be counted on it
    /// (`CPUHP_AP_PERF_ONLINE`).
    pub fn open(system: &System) -> Result<Alarm, Missing> {
        let sys = Dir::open(&system.roots.sys).map_err(Missing::for_good)?;
        let tickless = sys.read_text(TICKLESS).unwrap_or_default();
        if !list::parse(&tickless).is_empty() {
            let why = format!(
                "processors {} run without a timer tick (nohz_full)",
                tickless.trim()
            );
            return Err(Missing::for_good(why));
        }
        let tracefs = system.tracefs().map_err(Missing::for_good)?;
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
                why: "processors go online and offline".to_owned(),
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
                // It does not matter which CPU rang.
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

    /// Sets the alarm to ring at the latest when tasks have run for `time`, summed over all CPUs.
    /// Returns `false` if the time is too short to count or the alarm cannot be set; a timer is
    /// then needed.
    pub fn set(&mut self, time: Duration) -> bool {
        let Some(needed) = share(time, self.work.len()) else {
            return false;
        };
        // A period that fits is kept with its counts: each CPU still rings after one period at the
        // latest.
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

    /// Stops the alarm, so that it costs running tasks nothing.
    pub fn silence(&mut self) {
        if self.period.take().is_some() {
            self.work.iter().for_each(|meter| _ = meter.stop());
        }
    }

    /// Whether the online CPUs have changed, which makes the alarm useless.
    pub fn is_spent(&self) -> bool {
        let changes = self.service.iter().filter(|meter| meter.look());
        changes.count() > 0
    }
}

/// Becomes readable once when the alarm rings.
impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// How long each CPU may run before the alarm rings. `time` is what all CPUs together need to take
/// the memory. It is divided by their number, because all CPUs may be about to ring when the first
/// one does. This also covers a single task that moves from CPU to CPU. `None`: the share is too
/// short to count.
fn share(time: Duration, processors: usize) -> Option<Duration> {
    let processors = u32::try_from(processors).ok().filter(|count| *count > 0)?;
    let share = (time / processors).checked_sub(TICK)?;
    (share >= TICK).then_some(share)
}

/// Whether the present period is close enough to be kept: setting a new one interrupts every CPU.
fn fits(period: Duration, needed: Duration) -> bool {
    period <= needed && needed <= period * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn alarm_rings_before_all_cpus_together_exceed_the_time() {
        for processors in [1, 2, 3, 16, 128] {
            for time in [0, 15, 60, 134, 1000, 3000, 60_000].map(MS) {
                let Some(needed) = share(time, processors) else {
                    continue;
                };
                let most = (needed + TICK) * processors as u32;
                assert!(
                    needed >= TICK && most <= time,
                    "{processors} CPUs, {time:?}: {most:?} in the worst case"
                );
            }
        }
        assert_eq!(share(MS(134), 2), Some(MS(57)));
        assert_eq!(share(MS(39), 2), None);
        assert_eq!(share(MS(1000), 0), None);
    }

    #[test]
    fn period_is_set_anew_if_it_rings_too_late_or_far_too_often() {
        let needed = MS(100);
        let period = needed / 4 * 3;
        assert!(fits(period, needed));
        assert!(fits(period, MS(80)) && !fits(period, MS(74)));
        assert!(fits(period, MS(140)) && !fits(period, MS(160)));
    }

    /// Needs privileges and a tracefs; without them the guard uses the clock and the test is
    /// skipped.
    #[test]
    fn alarm_rings_on_work_and_not_once_silenced() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("cgroup")).unwrap();
        std::fs::write(temp.path().join("cgroup/cgroup.procs"), "").unwrap();
        let system = System::open(crate::system::Roots {
            cgroup: Some(temp.path().join("cgroup")),
            runtime: temp.path().to_owned(),
            ..Default::default()
        });
        let mut alarm = match Alarm::open(&system.unwrap()) {
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
        // Drain the events that had arrived by then.
        while rings(&alarm) {}
        work(time);
        assert!(!rings(&alarm));
        assert!(
            !alarm.set(MS(19) * processors),
            "a time too short to count was set"
        );
    }
}
