// SPDX-License-Identifier: GPL-2.0-or-later
//! Programs that compete for a processor with a topmost app that no weight isolates: each of their
//! threads stands beside the app's cgroup, or beside its threads, on its own. Beside ten of them the
//! largest weight is 91 % of one processor, and the lowest nice value 90 %.
//!
//! They are sampled only where that is so and tasks really wait for a processor
//! (`/proc/pressure/cpu`).

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::{App, Harm, ProcessId};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::psi::Pressure;

use crate::doors::Doors;
use crate::gate::Gate;

/// Two samples are at least so far apart.
const SAMPLE_EVERY: Duration = Duration::from_millis(400);

/// Tasks wait for a processor for at least this part of the time, in percent.
const WAITED_PERCENT: u64 = 10;

/// A competitor takes at least this part of one processor, in percent.
const TAKEN_PERCENT: u64 = 3;

/// Clock ticks of `/proc/PID/stat` a second (`USER_HZ`).
const TICKS_PER_S: u64 = 100;

/// Most competitors of one app.
const MOST: usize = 64;

/// The competitors of the topmost app.
#[derive(Debug, Default)]
pub struct Competitors {
    app: Option<limelight_core::model::AppKey>,
    sampled_at: Duration,
    /// Time in which some task waited for a processor, at the last sample.
    waited: Option<Duration>,
    /// Processor time of each process at the last sample, in clock ticks.
    used: BTreeMap<ProcessId, u64>,
    found: Vec<ProcessId>,
    contended: bool,
}

impl Competitors {
    /// Whether tasks waited for a processor at the last sample: more competitors may come.
    pub fn is_contended(&self) -> bool {
        self.contended
    }

    /// Samples, and returns the competitors of this app, ascending. They stay listed until another app
    /// is topmost.
    pub fn sample(
        &mut self,
        doors: &Doors,
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
            self.take(doors, gate, owner, elapsed);
        }
        &self.found
    }

    fn take(&mut self, doors: &Doors, gate: &Gate, owner: u32, elapsed: Duration) {
        let text = doors.proc.dir().read_text("pressure/cpu");
        let some = text.ok().and_then(|text| Pressure::parse(&text));
        let some = some.map(|pressure| Duration::from_micros(pressure.some.total_us));
        let before = std::mem::replace(&mut self.waited, some);
        let percent = |part: Duration| {
            let all = u64::try_from(elapsed.as_micros())
                .unwrap_or(u64::MAX)
                .max(1);
            u64::try_from(part.as_micros())
                .unwrap_or(u64::MAX)
                .saturating_mul(100)
                / all
        };
        let waited = some
            .zip(before)
            .map(|(now, before)| now.saturating_sub(before));
        // Where the kernel does not tell, every sample counts.
        self.contended = waited.is_some_and(|waited| percent(waited) >= WAITED_PERCENT);
        if waited.is_some() && !self.contended {
            self.used.clear();
            return;
        }
        let Ok(tree) = doors.proc.tree() else {
            return;
        };
        let mut used = BTreeMap::new();
        for stat in tree.iter().filter(|stat| stat.pid != 2 && stat.ppid != 2) {
            let id = ProcessId {
                pid: stat.pid,
                starttime: stat.start_ticks,
            };
            used.insert(id, stat.cpu_ticks);
            let Some(before) = self.used.get(&id) else {
                continue;
            };
            let ticks = stat.cpu_ticks.saturating_sub(*before);
            let taken = Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_S));
            let room = self.found.len() < MOST && !self.found.contains(&id);
            if room && percent(taken) >= TAKEN_PERCENT && competes(doors, gate, id, owner) {
                self.found.push(id);
            }
        }
        self.found.sort_unstable();
        self.used = used;
    }
}

/// Whether a busy process may give way: a user's app is served at the expense of that user's other
/// programs only, of no protected process, and of none that a cgroup's weight holds back already.
fn competes(doors: &Doors, gate: &Gate, id: ProcessId, owner: u32) -> bool {
    let Some(process) = doors.same_process(id) else {
        return false;
    };
    let path = process.cgroup().ok().flatten();
    let path = path.and_then(|path| CgroupPath::parse(&path));
    let grouped = path.is_some_and(|path| doors.cgroups.groups_for_cpu(&path));
    let own = process.owner_uid().is_ok_and(|uid| uid == owner);
    own && !grouped && gate.process(id, None, Harm::Slow).is_none()
}
