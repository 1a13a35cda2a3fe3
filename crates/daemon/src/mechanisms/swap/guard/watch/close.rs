// SPDX-License-Identifier: GPL-2.0-or-later
//! Closes a victim: asks it to exit if memory allows a wait, kills it if it does not exit, and waits
//! for its memory.

use std::sync::Arc;
use std::time::Duration;

use limelight_core::model::shortage::Level;

use super::{Due, Watch, ARRIVAL};
use crate::mechanisms::swap::guard::pause::OFTEN;
use crate::mechanisms::swap::guard::target::{nap, Held, Killed, Target};
use crate::mechanisms::swap::guard::{Report, Spared};
use crate::system::now;

/// Interval between readings of a victim's memory until it is free.
const STEP: Duration = Duration::from_millis(1);
/// Longest wait once the victim has exited. Memory that is not free by then is shared with another
/// process.
const LINGERS: Duration = Duration::from_millis(100);
/// Time after which a killed app exits late: it gets no processor time.
const LATE: Duration = Duration::from_millis(20);

impl Watch {
    /// Closes the victim, waits for its memory and reports the result.
    pub(super) fn close(&mut self, due: &Due) {
        let mut target = Arc::clone(&due.target);
        let held = target.held();
        let charged = target.charged();
        let asked = self.ask(&mut target);
        let how = match asked {
            Some(_) if target.is_gone() => None,
            Some(_) => {
                if let Some(why) = self.spares(&target) {
                    let mut state = self.shared.state();
                    state.spared.push(due.candidate.app, why);
                    drop(state);
                    return self.shared.set_closing(None);
                }
                let mut state = self.shared.state();
                state.shortage.killed(now(), held.anonymous, held.swapped);
                drop(state);
                Some(target.kill())
            }
            None => Some(target.kill()),
        };
        self.victim = Some((now(), target.key()));
        self.report(due, (held, charged), asked, how);
    }

    /// Asks the victim to exit and waits until it has exited, the grace is over, or memory is
    /// exhausted. Returns when the victim was asked; `None` if there is no time for that. Meanwhile
    /// the event loop may arm the app again, with younger processes. They are asked too, and
    /// `target` is then the app with them.
    fn ask(&mut self, target: &mut Arc<Target>) -> Option<Duration> {
        let (grace, level) = {
            let state = self.shared.state();
            (state.grace, state.shortage.level())
        };
        if grace.is_zero() || level >= Level::Exhausted || target.ask() == 0 {
            return None;
        }
        self.shared.set_closing(Some(target.key()));
        let asked = now();
        while !target.is_gone() && now().saturating_sub(asked) < grace {
            let at = now();
            // The rates of paging, which tell how long memory lasts, need no fresher counters.
            let paging = self.paging(at, Level::Swap, false);
            let memory = self.files.memory();
            let level = memory.map_or(Level::Exhausted, |memory| self.observe(at, memory, paging));
            let state = self.shared.state();
            if level >= Level::Exhausted || state.stop || state.paused {
                break;
            }
            let newer = state.armed.newer(target);
            drop(state);
            if let Some(newer) = newer.filter(|newer| !newer.blocked(&self.gate)) {
                newer.ask_younger(target);
                *target = newer;
            }
            nap(OFTEN);
        }
        Some(asked)
    }

    /// Why a victim that was asked to exit and still runs is not killed; `None` if it is.
    fn spares(&self, target: &Target) -> Option<Spared> {
        let state = self.shared.state();
        if state.paused {
            return Some(Spared::Paused);
        }
        if state.stop || state.shortage.level() < Level::Low {
            return Some(Spared::NoShortage);
        }
        drop(state);
        // The user may have brought the app to the foreground meanwhile.
        target.blocked(&self.gate).then_some(Spared::Refused)
    }

    /// Waits for the victim's memory and reports the result. `before`: the victim's memory before, and
    /// the bytes that were charged to it. The wait ends early if another app must be killed: a victim
    /// that gets no processor time exits late.
    fn report(
        &mut self,
        due: &Due,
        before: (Held, u64),
        asked: Option<Duration>,
        how: Option<Killed>,
    ) {
        let target = &due.target;
        let killed = now();
        let (held, charged) = before;
        let expected = held.anonymous / 4 * 3;
        let arrived = |left: u64| expected > 0 && charged.saturating_sub(left) >= expected;
        let mut left = target.charged();
        let mut freed = None;
        let mut gone = None;
        let mut observed = killed;
        loop {
            let at = now();
            // After the exit, wait for up to [`LINGERS`]: a process that reads the victim's memory
            // while the victim exits delays the release a little.
            let ended = target.is_gone() && {
                let since = *gone.get_or_insert(at);
                expected == 0 || at.saturating_sub(since) >= LINGERS
            };
            if arrived(left) || ended {
                freed = Some(at);
                break;
            }
            if at.saturating_sub(killed) >= ARRIVAL {
                break;
            }
            if at.saturating_sub(observed) >= OFTEN {
                observed = at;
                let late = at.saturating_sub(killed) >= LATE && gone.is_none();
                if late && self.shared.state().closing.is_none() {
                    self.shared.set_closing(Some(target.key()));
                }
                let paging = self.paging(at, Level::Swap, false);
                if let Ok(memory) = self.files.memory() {
                    self.observe(at, memory, paging);
                }
                if self.shared.state().shortage.is_urgent(at) {
                    break;
                }
            }
            nap(STEP);
            left = target.charged();
        }
        let mut state = self.shared.state();
        match freed {
            Some(at) => state.shortage.freed(at),
            None => freed = state.shortage.freed_at(),
        }
        state.reports.push(Report {
            candidate: due.candidate,
            level: due.level,
            before: self.before,
            crossed: due.gauge.at,
            asked,
            killed,
            freed,
            gauge: due.gauge,
            held: held.allocated(),
            burst: due.burst,
            bytes: charged.saturating_sub(left),
            how,
        });
        state.closing = None;
        drop(state);
        self.before = now();
        self.shared.tell_loop();
    }
}
