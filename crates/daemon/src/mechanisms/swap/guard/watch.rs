// SPDX-License-Identifier: GPL-2.0-or-later
//! The guard's thread. Nothing in its main loop allocates. An app is *armed* once the event loop has
//! prepared it as a possible victim.

mod close;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use limelight_core::model::shortage::{Gauge, Level, Situation};
use limelight_core::model::AppKey;
use limelight_core::policy::swap::order::{pick, Candidate};
use limelight_sys::gauge::{GaugeFiles, Memory, Paging};
use limelight_sys::psi::Trigger;
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::mechanisms::swap::guard::alarm::Alarm;
use crate::mechanisms::swap::guard::pause::{
    clock, falls, is_told, taken_in, told_within, until_full, Pause, HARDLY, OFTEN, SELDOM,
};
use crate::mechanisms::swap::guard::target::Target;
use crate::mechanisms::swap::guard::{Shared, Spared, State, STACK};
use crate::reconcile::gate::Gate;
use crate::system::now;
use crate::system::self_tuning::{come_first, wait_for_no_write};

/// How long the guard reads the gauge at [`OFTEN`] after [`Level::Low`] was reached.
const LOW_FOR: Duration = Duration::from_secs(1);

/// Interval between searches for a victim at [`Level::Crowded`], where memory does not run out. A
/// search costs several times as much as a reading of memory.
const SEARCH: Duration = Duration::from_millis(100);

/// Longest wait for a victim's memory to be freed.
const ARRIVAL: Duration = Duration::from_secs(1);

/// Interval between checks for armed apps that have died, while memory is short.
const LOOK: Duration = Duration::from_millis(100);

/// A kill that is due.
#[derive(Debug)]
struct Due {
    candidate: Candidate,
    target: Arc<Target>,
    level: Level,
    gauge: Gauge,
    burst: Option<u64>,
}

/// The thread's own state.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    /// Checked right before each kill.
    gate: Gate,
    files: GaugeFiles,
    trigger: Option<Trigger>,
    alarm: Option<Alarm>,
    /// Bytes above the kill threshold at the last reading of memory.
    headroom: u64,
    /// The paging counters at their last reading.
    paged: Paging,
    /// Time of the last reading of memory at which no kill was due.
    before: Duration,
    /// Time of the last check for dead apps.
    looked: Duration,
    /// Time of the last search for a victim.
    searched: Duration,
    /// The last app that was killed, and when.
    victim: Option<(Duration, AppKey)>,
}

impl Watch {
    /// The state before the thread starts.
    pub fn new(
        shared: Arc<Shared>,
        files: GaugeFiles,
        trigger: Option<Trigger>,
        gate: Gate,
    ) -> Watch {
        Watch {
            shared,
            gate,
            files,
            trigger,
            alarm: None,
            headroom: 0,
            paged: Paging::default(),
            before: Duration::ZERO,
            looked: Duration::ZERO,
            searched: Duration::ZERO,
            victim: None,
        }
    }

    /// Prepares the thread, so that it needs no new memory afterwards.
    pub fn prepare(&self) {
        touch_stack();
        // The process that takes the memory runs all the time; the guard must preempt it.
        come_first();
        wait_for_no_write();
    }

    /// Main loop of the thread.
    pub fn run(mut self) {
        let mut pause = Pause::Clock(Duration::ZERO);
        loop {
            self.rest(pause);
            {
                let mut state = self.shared.state();
                if state.stop {
                    return;
                }
                if let Some(fresh) = state.alarms.fresh.take() {
                    // The event loop closes the old alarm.
                    state.alarms.spent = self.alarm.replace(fresh);
                }
                if state.alarms.again {
                    self.shared.tell_loop();
                }
            }
            pause = self.turn();
        }
    }

    /// Sleeps for `pause`.
    fn rest(&mut self, pause: Pause) {
        match pause {
            Pause::Clock(time) => _ = self.sleep(time, false),
            Pause::Told(time) => {
                if let Some(alarm) = &mut self.alarm {
                    alarm.silence();
                }
                self.sleep(time, false);
            }
            Pause::Work { time, most } => {
                let begun = now();
                let is_set = self.alarm.as_mut().is_some_and(|alarm| alarm.set(time));
                let rang = is_set && self.sleep(most, true);
                if rang {
                    self.give_up_spent();
                }
                // Rate limit: on busy processors the alarm rings more often than the clock. Without
                // an alarm, the clock alone ends the pause.
                if rang || !is_set {
                    let gone = now().saturating_sub(begun);
                    self.sleep(clock(time).saturating_sub(gone), false);
                }
            }
        }
    }

    /// Sleeps until a memory stall, a wakeup by the event loop or the timeout; with `with_alarm` also
    /// until the alarm rings. Returns whether the alarm rang.
    fn sleep(&mut self, time: Duration, with_alarm: bool) -> bool {
        let timeout = Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        // Missing descriptors are replaced by the wake eventfd.
        let wake = self.shared.wake.as_fd();
        let trigger = self.trigger.as_ref().map_or(wake, Trigger::as_fd);
        let alarm = self.alarm.as_ref().filter(|_| with_alarm);
        let mut all = [
            PollFd::from_borrowed_fd(wake, PollFlags::IN),
            PollFd::from_borrowed_fd(trigger, PollFlags::PRI),
            PollFd::from_borrowed_fd(alarm.map_or(wake, Alarm::as_fd), PollFlags::IN),
        ];
        // A failed poll() only shortens the sleep.
        let _ = poll(&mut all, Some(&timeout));
        let [_, trigger, rang] = all.map(|each| each.revents());
        let rang = alarm.is_some() && rang.contains(PollFlags::IN);
        if trigger.contains(PollFlags::ERR) {
            self.trigger = None;
        }
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.wake, &mut count);
        rang
    }

    /// Gives a spent alarm back to the event loop, which opens a new one for the CPUs that are
    /// online now. Until then the clock wakes the guard.
    fn give_up_spent(&mut self) {
        if self.alarm.as_ref().is_some_and(Alarm::is_spent) {
            self.shared.state().alarms.spent = self.alarm.take();
            self.shared.tell_loop();
        }
    }

    /// Reads the gauge and acts on it. Returns how the guard may sleep afterwards.
    fn turn(&mut self) -> Pause {
        let at = now();
        let Ok(memory) = self.files.memory() else {
            return Pause::Clock(OFTEN);
        };
        let (near, level, kept, thresholds) = {
            let state = self.shared.state();
            let shortage = &state.shortage;
            let near = shortage.is_near();
            (near, shortage.level(), state.kept, shortage.thresholds())
        };
        let available = left(memory, kept);
        // `left()` counts pinned memory as available while kswapd keeps up. To set the time of the
        // next reading, assume that no pinned memory is available.
        let sure = memory
            .available
            .saturating_sub(kept.saturating_add(memory.pinned));
        let headroom = sure.saturating_sub(thresholds.kill);
        let time = taken_in(headroom, memory.total);
        let before = std::mem::replace(&mut self.headroom, headroom);
        let until_work = |most| match falls(before, headroom) {
            // Memory is being taken. Setting the alarm costs time; the clock is cheaper.
            true => Pause::Clock(clock(time)),
            false => Pause::Work { time, most },
        };
        // The paging counters matter only where memory is short.
        if !near && available >= thresholds.swap.saturating_mul(2) {
            self.before = at;
            let told = self.trigger.as_ref().map(told_within);
            return match told.is_some_and(|told| is_told(headroom, memory, told)) {
                true => Pause::Told(HARDLY),
                false => until_work(HARDLY),
            };
        }
        let narrow = is_narrow(headroom, thresholds.kill);
        let paging = self.paging(at, level, narrow);
        let level = self.observe(at, memory, paging);
        if level >= Level::Swap {
            self.look_for_deaths();
        }
        // Until the shortage is over, the level can change while no task runs, for example because
        // the paging rate decays. The alarm does not ring then, so read again within SELDOM.
        let over = self.shared.state().shortage.is_over(at);
        let near = until_work(if over { HARDLY } else { SELDOM });
        if level < Level::Low {
            self.before = at;
            return near;
        }
        if is_unhurried(level, narrow) && at.saturating_sub(self.searched) < SEARCH {
            return near;
        }
        self.searched = at;
        match self.due(paging) {
            Some(due) => self.close(&due),
            None => self.before = at,
        }
        let since = self.shared.state().shortage.since();
        match level {
            Level::Low if at.saturating_sub(since) >= LOW_FOR => Pause::Clock(until_full(memory)),
            Level::Low => Pause::Clock(OFTEN),
            // At this level memory does not run out, so closing apps can wait.
            level if level < Level::Kill => near,
            _ => Pause::Clock(OFTEN),
        }
    }

    /// The paging counters, reread where a kill may depend on them. If that fails, the last ones:
    /// any others would look like paging.
    fn paging(&mut self, at: Duration, level: Level, narrow: bool) -> Paging {
        let due = self.shared.state().shortage.are_rates_due(at);
        if due || !is_unhurried(level, narrow) {
            self.paged = self.files.paging().unwrap_or(self.paged);
        }
        self.paged
    }

    /// Feeds a complete gauge, read at this time, to the shortage model. Returns the level.
    fn observe(&mut self, at: Duration, memory: Memory, paging: Paging) -> Level {
        let mut state = self.shared.state();
        let gauge = Gauge {
            at,
            free: memory.free,
            available: left(memory, state.kept),
            swap_free: memory.swap_free,
            swap_total: memory.swap_total,
            swapped_in: paging.swapped_in,
            swapped_out: paging.swapped_out,
            refaulted: paging.refaulted,
            some: paging.some,
            full: paging.full,
            oom_kills: paging.oom_kills,
        };
        let last = state.shortage.gauge();
        let before = state.shortage.level();
        let level = state.shortage.observe(gauge);
        // The kernel's OOM killer has killed a process.
        let killed = last.at > Duration::ZERO && gauge.oom_kills > last.oom_kills;
        if killed {
            state.shortage.died(gauge.at);
        }
        drop(state);
        if level != before || killed {
            self.shared.tell_loop();
        }
        level
    }

    /// Checks for armed apps that have died, for any reason, at most every [`LOOK`]. A death delays
    /// the next kill, because the readings may not show the freed memory yet.
    fn look_for_deaths(&mut self) {
        let at = now();
        if at.saturating_sub(self.looked) < LOOK {
            return;
        }
        self.looked = at;
        let mut state = self.shared.state();
        remove_dead(&mut state, at, self.dying(at));
    }

    /// The last victim, while its exit may take time. The event loop may arm it again meanwhile.
    fn dying(&self, at: Duration) -> Option<AppKey> {
        let (killed, app) = self.victim?;
        (at.saturating_sub(killed) < ARRIVAL).then_some(app)
    }

    /// Disarms and returns the victim of a kill that is due now, if any.
    fn due(&mut self, paging: Paging) -> Option<Due> {
        loop {
            {
                let mut state = self.shared.state();
                let at = now();
                if state.paused
                    || !state.shortage.may_kill(at)
                    || remove_dead(&mut state, at, self.dying(at))
                {
                    return None;
                }
                state.armed.measure();
                state.takers.measure();
            }
            // Measuring the armed apps took time, so read the gauge again. The paging counters do
            // not change that fast, and the kernel itself needs memory to report them.
            let at = now();
            let memory = self.files.memory().ok()?;
            self.observe(at, memory, paging);
            let (listed, low) = (self.files.in_cpu_lists(), self.files.low_watermark());
            let mut state = self.shared.state();
            let gauge = state.shortage.gauge();
            if state.paused
                || !state.shortage.may_kill(gauge.at)
                || state.shortage.is_freed_memory_listed(listed, low)
            {
                return None;
            }
            // The event loop has armed other apps meanwhile, as it does when the level changes:
            // measure them. This repeats at most once, because measuring is faster than a plan.
            if !state.armed.measured {
                continue;
            }
            let total = state.shortage.thresholds().total;
            let situation = Situation {
                taker: state.takers.most(total),
                ..state.shortage.situation()
            };
            let armed = &mut state.armed;
            let place = pick(&armed.candidates, &armed.held, &situation)?;
            let (candidate, target, held_now) = armed.remove(place);
            // Another kill would free nothing.
            if self.dying(gauge.at) == Some(target.key()) {
                continue;
            }
            // Try the next candidate instead. The event loop's next plan may arm this one again.
            if target.blocked(&self.gate) {
                state.spared.push(candidate.app, Spared::Refused);
                drop(state);
                self.shared.tell_loop();
                continue;
            }
            let held = target.held();
            state
                .shortage
                .killed(gauge.at, held.anonymous, held.swapped);
            return Some(Due {
                candidate,
                target,
                level: situation.level,
                gauge,
                burst: candidate.burst(held_now, total),
            });
        }
    }
}

/// Disarms apps that have ended, and returns whether there were any other than `victim`, whose death
/// is known. Their memory is free now, though the gauge may not show it yet.
fn remove_dead(state: &mut State, at: Duration, victim: Option<AppKey>) -> bool {
    let mut found = false;
    let mut place = 0;
    while let Some(target) = state.armed.targets.get(place) {
        match target.is_gone() {
            true => {
                found |= Some(target.key()) != victim;
                drop(state.armed.remove(place));
            }
            false => place += 1,
        }
    }
    if found {
        state.shortage.died(at);
        state.shortage.freed(at);
    }
    found
}

/// Whether so few bytes are left above the kill threshold that the next reading may demand a kill.
/// From [`Level::Low`] on, that already happens a quarter above the threshold.
fn is_narrow(headroom: u64, kill: u64) -> bool {
    headroom <= kill / 4
}

/// Whether no kill is urgent, as far as the present level and the headroom tell. Only the rates then
/// depend on the paging counters. A kill at [`Level::Crowded`] can wait.
fn is_unhurried(level: Level, narrow: bool) -> bool {
    !narrow && (level < Level::Low || level == Level::Crowded)
}

/// Bytes that apps can still allocate. `kept` bytes of page cache are kept from reclaim. The
/// kernel's caches in use (`pinned`) are left out if both free memory and free swap are below the
/// low watermark. In that case kswapd does not keep up: otherwise it would have reclaimed those
/// caches. Nor can other memory go to swap instead.
fn left(memory: Memory, kept: u64) -> u64 {
    let pinned = match memory.free.max(memory.swap_free) < memory.low {
        true => memory.pinned,
        false => 0,
    };
    memory.available.saturating_sub(kept.saturating_add(pinned))
}

/// Faults in the stack while there is memory for it.
#[inline(never)]
fn touch_stack() {
    let mut pages = [0u8; STACK / 4 * 3];
    for place in (0..pages.len()).step_by(4096) {
        if let Some(byte) = pages.get_mut(place) {
            *byte = 1;
        }
    }
    std::hint::black_box(&mut pages);
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_core::model::shortage::Thresholds;
    use limelight_sys::proc::Proc;

    #[test]
    fn caches_in_use_are_unavailable_below_the_low_watermark() {
        const MIB: u64 = 1 << 20;
        let memory = |free| Memory {
            free,
            available: 12 * MIB,
            pinned: 7 * MIB,
            low: 3 * MIB,
            ..Memory::default()
        };
        assert_eq!(left(memory(2 * MIB), 0), 5 * MIB);
        assert_eq!(left(memory(2 * MIB), 6 * MIB), 0);
        // kswapd keeps up.
        assert_eq!(left(memory(3 * MIB), 2 * MIB), 10 * MIB);
        let swap = Memory {
            swap_free: 3 * MIB,
            ..memory(2 * MIB)
        };
        // The apps' memory can go to swap instead.
        assert_eq!(left(swap, 0), 12 * MIB);
    }

    #[test]
    fn counters_that_cannot_be_read_stay_the_same() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("meminfo"), "MemTotal: 100 kB\n").unwrap();
        // A directory can be opened but not read.
        std::fs::create_dir(temp.path().join("vmstat")).unwrap();
        let proc = Proc::open(&temp.path().to_string_lossy()).unwrap();
        let files = GaugeFiles::open(&proc).unwrap();
        let shared = Arc::new(Shared::new(Thresholds::default(), None, false).unwrap());
        let mut watch = Watch::new(shared, files, None, Gate::default());
        let paged = Paging {
            swapped_out: 1 << 20,
            ..Paging::default()
        };
        watch.paged = paged;
        assert_eq!(watch.paging(now(), Level::Kill, true), paged);
    }

    #[test]
    fn nothing_is_put_off_where_a_kill_may_be_urgent() {
        for level in [Level::Plenty, Level::Swap, Level::Crowded] {
            assert!(is_unhurried(level, false), "{level:?}");
            assert!(!is_unhurried(level, true), "{level:?}");
        }
        for level in [Level::Low, Level::Kill, Level::Exhausted] {
            assert!(!is_unhurried(level, false), "{level:?}");
        }
        const MIB: u64 = 1 << 20;
        assert!(is_narrow(0, 8 * MIB) && is_narrow(2 * MIB, 8 * MIB));
        assert!(!is_narrow(3 * MIB, 8 * MIB));
    }
}
