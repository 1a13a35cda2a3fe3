// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds programs that compete for a CPU with a topmost app that no cgroup weight isolates. Without
//! that isolation, each of their threads competes on its own with the app's cgroup, or with the
//! app's threads. Against ten such threads, the largest weight gives the app 91 % of one CPU, and
//! the lowest nice value gives it 90 %.
//!
//! Processes are sampled only for such an app, and only while tasks wait for a CPU
//! (`/proc/pressure/cpu`).

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::{App, Harm, ProcessId};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::psi::Pressure;

use crate::reconcile::gate::Gate;
use crate::system::System;

/// Shortest time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(400);

/// CPUs count as contended if some task waits for one during at least this percentage of the time.
const WAITED_PERCENT: u64 = 10;

/// Shortest time between two readings of the CPU pressure. The kernel adds up waits every 2 s
/// (`psi_avgs_work`, kernel/sched/psi.c), so a shorter interval may show none.
const PSI_PERIOD: Duration = Duration::from_millis(2500);

/// A process that uses at least this percentage of one CPU counts as a competitor.
const TAKEN_PERCENT: u64 = 3;

/// A process whose main thread runs or waits for a CPU during at least this percentage of the time
/// also counts as a competitor. Beside an app at nice -20, ten busy programs run 1 % of the time
/// each and wait for the rest.
const DEMANDED_PERCENT: u32 = 30;

/// After this many samples without a new competitor, contention alone triggers no further samples,
/// because each sample takes CPU time from the topmost app.
const SETTLED: u8 = 4;

/// Clock ticks per second in `/proc/PID/stat` (`USER_HZ`).
const TICKS_PER_S: u64 = 100;

/// Maximum number of competitors that are listed for one app.
const MOST: usize = 64;

/// The competitors of the topmost app.
#[derive(Debug, Default)]
pub struct Competitors {
    app: Option<limelight_core::model::AppKey>,
    sampled_at: Duration,
    /// The last reading of the CPU pressure: when it was taken, and the total time in which some
    /// task waited for a CPU.
    waited: Option<(Duration, Duration)>,
    /// CPU time of each process at the last sample, in clock ticks.
    used: BTreeMap<ProcessId, u64>,
    /// The last measurement of each process that was not idle at a sample: when it was taken, and
    /// how long the main thread had run or waited for a CPU by then. A process is idle if it was
    /// not runnable and had used no CPU time since the previous sample.
    demanded: BTreeMap<ProcessId, (Duration, Duration)>,
    /// Number of samples in a row that found no new competitor.
    settled: u8,
    /// The competitors found so far, ascending.
    found: Vec<ProcessId>,
    /// Whether tasks waited for a CPU at the last reading of the pressure, or this is unknown.
    contended: bool,
}

impl Competitors {
    /// Whether tasks waited for a CPU at the last sample, and fewer than [`SETTLED`] samples in a
    /// row have found no new competitor.
    pub fn is_contended(&self) -> bool {
        self.contended && self.settled < SETTLED
    }

    /// Returns the competitors of this app, ascending. Takes a sample first if the last one is at
    /// least 400 ms old. Competitors stay listed until another app is topmost.
    pub fn sample(
        &mut self,
        system: &System,
        gate: &Gate,
        app: &App,
        owner: u32,
        now: Duration,
    ) -> &[ProcessId] {
        if self.app != Some(app.key) {
            *self = Competitors {
                app: Some(app.key),
                ..Competitors::default()
            };
        }
        let elapsed = now.saturating_sub(self.sampled_at);
        if elapsed >= SAMPLE_EVERY {
            self.sampled_at = now;
            self.take(system, gate, owner, now, elapsed);
        }
        &self.found
    }

    fn take(&mut self, system: &System, gate: &Gate, owner: u32, now: Duration, elapsed: Duration) {
        self.observe_waits(system, now);
        if !self.contended {
            self.used.clear();
            self.demanded.clear();
            self.settled = 0;
            return;
        }
        let percent = |part: Duration| percent_of(part, elapsed);
        let Ok(tree) = system.proc.tree() else {
            return;
        };
        let known = self.found.len();
        let mut used = BTreeMap::new();
        for stat in tree.iter().filter(|stat| stat.pid != 2 && stat.ppid != 2) {
            let id = ProcessId {
                pid: stat.pid,
                starttime: stat.start_ticks,
            };
            used.insert(id, stat.cpu_ticks);
            let before = self.used.get(&id).copied();
            let ticks = before.map_or(0, |before| stat.cpu_ticks.saturating_sub(before));
            let taken = Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_S));
            let idle = ticks == 0 && stat.state != 'R';
            if idle || self.found.len() >= MOST || self.found.contains(&id) {
                continue;
            }
            let busy = percent(taken) >= TAKEN_PERCENT || self.demands(system, id, now);
            if busy && competes(system, gate, id, owner) {
                self.found.push(id);
            }
        }
        self.demanded.retain(|id, _| used.contains_key(id));
        self.settled = match self.found.len() > known {
            true => 0,
            false => self.settled.saturating_add(1),
        };
        self.found.sort_unstable();
        self.used = used;
    }

    /// Updates `contended`. Contention is assumed until there are two readings, and wherever the
    /// kernel reports no CPU pressure.
    fn observe_waits(&mut self, system: &System, now: Duration) {
        let text = system.proc.dir().read_text("pressure/cpu");
        let some = text.ok().and_then(|text| Pressure::parse(&text));
        let some = some.map(|pressure| Duration::from_micros(pressure.some.total_us));
        let (Some(total), Some((since, before))) = (some, self.waited) else {
            self.waited = some.map(|total| (now, total));
            self.contended = true;
            return;
        };
        let elapsed = now.saturating_sub(since);
        if elapsed >= PSI_PERIOD {
            let part = percent_of(total.saturating_sub(before), elapsed);
            self.contended = part >= WAITED_PERCENT;
            self.waited = Some((now, total));
        }
    }

    /// Whether a process's main thread has run or waited for a CPU during at least
    /// [`DEMANDED_PERCENT`] of the time since its last measurement.
    fn demands(&mut self, system: &System, id: ProcessId, now: Duration) -> bool {
        let process = system.same_process(id);
        let Some(demand) = process.and_then(|process| process.cpu_demand().ok()) else {
            return false;
        };
        let Some((since, before)) = self.demanded.insert(id, (now, demand)) else {
            return false;
        };
        let elapsed = now.saturating_sub(since);
        let part = demand.saturating_sub(before).saturating_mul(100);
        !elapsed.is_zero() && part >= elapsed.saturating_mul(DEMANDED_PERCENT)
    }
}

/// `part` as a percentage of `all`.
fn percent_of(part: Duration, all: Duration) -> u64 {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    us(part).saturating_mul(100) / us(all).max(1)
}

/// Whether a busy process may be slowed down in favour of the app. It must belong to the app's
/// user, the gate must not protect it, and no `cpu.weight` may apply to it.
fn competes(system: &System, gate: &Gate, id: ProcessId, owner: u32) -> bool {
    let Some(process) = system.same_process(id) else {
        return false;
    };
    let path = process.cgroup().ok().flatten();
    let path = path.and_then(|path| CgroupPath::parse(&path));
    let grouped = path.is_some_and(|path| system.cgroups.groups_for_cpu(&path));
    let own = process.owner_uid().is_ok_and(|uid| uid == owner);
    own && !grouped && gate.process(id, None, Harm::Slow).is_none()
}
