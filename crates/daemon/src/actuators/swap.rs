// SPDX-License-Identifier: GPL-2.0-or-later
//! `swap`: apps are kept out of swap, squeezed, stopped, and brought back.
//!
//! What stays turned (`memory.swap.max`, `cgroup.freeze`) is in the restore record. What is done
//! once is done by the [`Swapper`](crate::swapper::Swapper)'s threads, and what it came to arrives
//! later.

use std::time::Duration;

use limelight_core::control::{Change, Deed, Outcome};
use limelight_core::model::apps::Known;
use limelight_core::model::shortage::{Gauge, Level, Shortage};
use limelight_core::model::{AppKey, Home};
use limelight_core::policy::swap::order::Candidate;
use limelight_core::policy::swap::Step;
use limelight_sys::cgroup::{Cgroup, CgroupPath, Limit, MemoryKnob};

use super::changes::Reach;
use super::{Actuators, Context};
use crate::doors::Doors;
use crate::guard::{Guard, Report, Victim};
use crate::restore::{Entry, Place};
use crate::swapper::{Done, Errand, Squeeze};
use crate::undo::{open_place, undo, Undone};

/// Something that people should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Something was done to an app.
    Did {
        /// When, since boot.
        at: Duration,
        /// What.
        deed: Deed,
        /// To whom.
        app: AppKey,
        /// What it came to, in bytes.
        bytes: u64,
        /// How long it took.
        took: Option<Duration>,
        /// Why.
        reason: String,
        /// The gauge at which it was decided; `None`: the present one.
        gauge: Option<(Level, Gauge)>,
    },
    /// How short memory is.
    Level {
        /// The level.
        level: Level,
        /// Who would be killed next.
        next: Option<AppKey>,
    },
    /// The app in front takes memory without end.
    Grows {
        /// The app.
        app: AppKey,
        /// Bytes by which it grew lately.
        grown: u64,
    },
}

/// Growth that is worth a word, in bytes.
const LEAST_BURST: u64 = 8 << 20;

const SWAP_MAX: &str = "memory.swap.max";
const FREEZE: &str = "cgroup.freeze";

fn place(home: &Home) -> Place {
    Place {
        path: home.path.clone(),
        inode: home.inode,
    }
}

/// The entry that says which cgroup of an app is changed.
fn is_about(entry: &Entry, file: &str, inode: u64) -> bool {
    match entry {
        Entry::SwapMax { cgroup, .. } => file == SWAP_MAX && cgroup.inode == inode,
        Entry::Frozen { cgroup } => file == FREEZE && cgroup.inode == inode,
        _ => false,
    }
}

impl Actuators {
    /// Carries a step out.
    pub(super) fn swap(&mut self, step: &Step, context: Context<'_>) {
        let in_force = &mut self.in_force.swapping;
        match step {
            Step::Exempt { app, home, rule } => self.exempt(*app, home, rule, context),
            Step::Admit { app } => {
                self.put_back(*app, SWAP_MAX, context);
                self.in_force.swapping.exempt.retain(|key| key != app);
            }
            Step::Freeze { app, home, rule } => self.freeze(*app, home, rule, context),
            Step::Thaw { app, rule } => {
                self.put_back(*app, FREEZE, context);
                self.in_force.swapping.frozen.retain(|(key, _)| key != app);
                self.say(*app, Deed::Thaw, 0, rule.clone(), context);
            }
            Step::Ask { level, next } => {
                in_force.asked = Some((*level, context.now));
                self.said.push(Said::Level {
                    level: *level,
                    next: *next,
                });
            }
            Step::Warn { app, grown } => {
                in_force.warned = Some((*app, context.now));
                self.said.push(Said::Grows {
                    app: *app,
                    grown: *grown,
                });
            }
            Step::Squeeze {
                app,
                home,
                members,
                bytes,
                dry,
                rule,
            } => {
                let job = Squeeze {
                    app: *app,
                    place: place(home),
                    members: members.clone(),
                    bytes: *bytes,
                    dry: *dry,
                };
                self.squeeze(job, rule);
            }
            Step::Return { app, members, most } => {
                in_force.returned = Some(*app);
                in_force.lean.retain(|lean| lean != app);
                if let Some(swapper) = &self.swapper {
                    swapper.ask(Errand::Return {
                        app: *app,
                        members: members.clone(),
                        most: *most,
                    });
                }
            }
            Step::Arm { order } => {
                in_force.armed = order.iter().map(|one| one.app).collect();
                self.arm(order, context);
            }
        }
    }

    /// Says what a step would do.
    pub(super) fn plan_swap(&mut self, step: &Step, context: Context<'_>) {
        let (app, home, file, to, rule) = match step {
            Step::Exempt { app, home, rule } => (app, home, SWAP_MAX, "0", rule.clone()),
            Step::Freeze { app, home, rule } => (app, home, FREEZE, "1", rule.clone()),
            Step::Squeeze {
                app,
                home,
                bytes,
                rule,
                ..
            } => {
                let rule = format!("{rule}: {} MiB", bytes >> 20);
                (app, home, "memory.reclaim", "", rule)
            }
            // Nothing is in force in a dry run, and words are no knobs.
            _ => return,
        };
        let knob = context.doors.cgroup_file(&home.path, file);
        let change = change(context, knob, String::new(), to, &rule, Outcome::Planned);
        self.changes.note(Reach::App(*app), change);
    }

    fn say(&mut self, app: AppKey, deed: Deed, bytes: u64, reason: String, context: Context<'_>) {
        self.said.push(Said::Did {
            at: context.now,
            deed,
            app,
            bytes,
            took: None,
            reason,
            gauge: None,
        });
    }

    fn exempt(&mut self, app: AppKey, home: &Home, rule: &str, context: Context<'_>) {
        // What cannot be done is not tried again at each look.
        self.in_force.swapping.exempt.push(app);
        let handed_down = match CgroupPath::parse(&home.path) {
            Some(path) => self.hand_down(&path, context).map(|_| ()),
            None => Err(format!("{} is no cgroup path", home.path)),
        };
        let knob = context.doors.cgroup_file(&home.path, SWAP_MAX);
        let (from, outcome) = match handed_down {
            Ok(()) => self.forbid_swap(home, context),
            Err(why) => (String::new(), Outcome::Inert { why }),
        };
        let change = change(context, knob, from, "0", rule, outcome);
        self.changes.note(Reach::App(app), change);
    }

    /// Writes the limit and looks whether it stands. Returns the value before it.
    fn forbid_swap(&mut self, home: &Home, context: Context<'_>) -> (String, Outcome) {
        let failed = |why: String| (String::new(), Outcome::Failed { why });
        let Some(group) = open_place(context.doors, &place(home)) else {
            return failed(format!("{} has ended", home.path));
        };
        let found = match group.limit(MemoryKnob::SwapMax) {
            Ok(found) => found,
            Err(error) => return failed(error.to_string()),
        };
        if found == Limit::ZERO {
            self.keep(SWAP_MAX, home);
            return (found.to_string(), Outcome::Applied);
        }
        let entry = Entry::SwapMax {
            cgroup: place(home),
            original: found.to_string(),
        };
        if let Err(error) = self.ledger.intend([entry.clone()]) {
            return (
                found.to_string(),
                Outcome::Failed {
                    why: error.to_string(),
                },
            );
        }
        let outcome = match group.set_limit(MemoryKnob::SwapMax, Limit::ZERO) {
            Ok(()) => verified(&group),
            Err(error) => {
                self.ledger.forget(&entry);
                Outcome::Failed {
                    why: error.to_string(),
                }
            }
        };
        (found.to_string(), outcome)
    }

    fn freeze(&mut self, app: AppKey, home: &Home, rule: &str, context: Context<'_>) {
        self.in_force.swapping.frozen.push((app, context.now));
        let outcome = self.stop(home, context);
        if outcome == Outcome::Applied {
            self.say(app, Deed::Freeze, 0, rule.to_owned(), context);
        }
        let knob = context.doors.cgroup_file(&home.path, FREEZE);
        let change = change(context, knob, "0".to_owned(), "1", rule, outcome);
        self.changes.note(Reach::App(app), change);
    }

    fn stop(&mut self, home: &Home, context: Context<'_>) -> Outcome {
        let failed = |why: String| Outcome::Failed { why };
        let Some(group) = open_place(context.doors, &place(home)) else {
            return failed(format!("{} has ended", home.path));
        };
        match group.freezes() {
            Ok(true) if self.keep(FREEZE, home) => return Outcome::Applied,
            Ok(true) => {
                return Outcome::Inert {
                    why: "somebody else stopped it".to_owned(),
                }
            }
            Ok(false) => {}
            Err(error) => return failed(error.to_string()),
        }
        let entry = Entry::Frozen {
            cgroup: place(home),
        };
        if let Err(error) = self.ledger.intend([entry.clone()]) {
            return failed(error.to_string());
        }
        match group.set_freeze(true) {
            Ok(()) => Outcome::Applied,
            Err(error) => {
                self.ledger.forget(&entry);
                failed(error.to_string())
            }
        }
    }

    /// Whether a knob is turned by us; it stays so.
    fn keep(&mut self, file: &str, home: &Home) -> bool {
        let mut entries = self.ledger.entries().iter();
        let entry = entries.find(|entry| is_about(entry, file, home.inode));
        let entry = entry.cloned();
        entry.inspect(|entry| self.ledger.keep(entry)).is_some()
    }

    /// Puts one knob of an app back, if it is turned.
    fn put_back(&mut self, app: AppKey, file: &str, context: Context<'_>) {
        let known = context.apps.iter().find(|known| known.key() == app);
        let home = |known: &Known| Some(known.found.app.home.as_ref()?.inode);
        let inode = own_group(&app).or_else(|| known.and_then(home));
        let results = undo(&mut self.ledger, context.doors, |entry| {
            inode.is_some_and(|inode| is_about(entry, file, inode))
        });
        for (entry, undone) in results {
            match undone {
                Undone::Failed { why } => tracing::error!("{entry} cannot be put back: {why}"),
                Undone::Theirs { found } => {
                    tracing::info!("{entry} stays at {found}: somebody else set it");
                }
                Undone::Restored | Undone::Gone => {}
            }
        }
        self.changes
            .drop_where(|reach, change| reach == Reach::App(app) && change.knob.ends_with(file));
    }

    fn squeeze(&mut self, job: Squeeze, rule: &str) {
        let Some(swapper) = &self.swapper else {
            return;
        };
        let app = job.app;
        if swapper.squeeze(job) {
            self.in_force.swapping.squeezing = Some(app);
            self.squeezing_for = rule.to_owned();
        }
    }

    fn arm(&mut self, order: &[Candidate], context: Context<'_>) {
        let Some(guard) = &mut self.guard else {
            return;
        };
        let victims = order.iter().filter_map(|candidate| {
            let mut apps = context.apps.iter();
            Some((candidate, apps.find(|known| known.key() == candidate.app)?))
        });
        let victims: Vec<(&Candidate, &Known)> = victims.collect();
        let armed = victims.iter().map(|(_, known)| *known);
        self.armed.renew(armed, context.now);
        let victims = victims.into_iter().map(|(candidate, known)| Victim {
            candidate: *candidate,
            app: &known.found.app,
            members: &known.found.members,
        });
        guard.arm(context.doors, victims);
    }

    /// How short memory is; plenty where nobody watches.
    pub fn shortage(&self) -> Shortage {
        self.guard.as_ref().map(Guard::shortage).unwrap_or_default()
    }

    /// Takes in whom the guard has killed.
    pub fn take_kills(&mut self) {
        let Some(guard) = &self.guard else {
            return;
        };
        for report in guard.reports() {
            // Memory ran short at some moment between the last two looks: the earlier one counts.
            let since = |then: Duration| then.saturating_sub(report.before);
            let done = report.freed.unwrap_or(report.killed);
            tracing::debug!(
                "guard: due after {:?}, killed after {:?}, free after {:?}; {:?}",
                since(report.crossed),
                since(report.killed),
                report.freed.map(since),
                report.how
            );
            self.said.push(Said::Did {
                at: report.crossed,
                deed: Deed::Kill,
                app: report.candidate.app,
                bytes: report.bytes,
                took: Some(since(done)),
                reason: why_killed(&report),
                gauge: Some((report.level, report.gauge)),
            });
        }
    }

    /// Takes in what the threads have done.
    pub fn take_done(&mut self) {
        let done = match &self.swapper {
            Some(swapper) => swapper.answers().take(),
            None => return,
        };
        for done in done {
            match done {
                Done::Squeezed {
                    app,
                    at,
                    took,
                    swapped,
                    freed,
                    lean,
                    failed,
                } => {
                    let in_force = &mut self.in_force.swapping;
                    in_force.squeezing = None;
                    in_force.squeezed.retain(|(key, _)| *key != app);
                    in_force.squeezed.push((app, at + took));
                    if lean && !in_force.lean.contains(&app) {
                        in_force.lean.push(app);
                    }
                    if let Some(why) = &failed {
                        tracing::warn!("an app could not be squeezed: {why}");
                    }
                    if freed > 0 {
                        self.said.push(Said::Did {
                            at,
                            deed: Deed::Squeeze,
                            app,
                            bytes: freed,
                            took: Some(took),
                            reason: format!(
                                "{}; {} MiB of it went to swap",
                                self.squeezing_for,
                                swapped >> 20
                            ),
                            gauge: None,
                        });
                    }
                }
                Done::Learnt { app, working_set } => {
                    let in_force = &mut self.in_force.swapping;
                    // Of an app that misses little only that little is seen.
                    let unseen = in_force.exempt.contains(&app);
                    if working_set > 0 && !unseen {
                        in_force.working_sets.retain(|(known, _)| *known != app);
                        in_force.working_sets.push((app, working_set));
                    }
                }
                Done::Returned {
                    app,
                    at,
                    took,
                    swapped,
                    files,
                    failed,
                } => {
                    self.returns.push((swapped, took));
                    if let Some(why) = &failed {
                        tracing::warn!("an app's memory could not be brought back: {why}");
                    }
                    if swapped > 0 {
                        self.said.push(Said::Did {
                            at,
                            deed: Deed::Return,
                            app,
                            bytes: swapped,
                            took: Some(took),
                            reason: format!(
                                "it is topmost; {} MiB of its files were asked for too",
                                files >> 20
                            ),
                            gauge: None,
                        });
                    }
                }
            }
        }
    }

    /// How fast memory came back lately: bytes, and the time that it took.
    pub fn take_returns(&mut self) -> Vec<(u64, Duration)> {
        std::mem::take(&mut self.returns)
    }

    /// Notes that an app has left the front, so that it can be brought back.
    pub fn left_front(&mut self, errand: Errand) {
        self.in_force.swapping.returned = None;
        if let Some(swapper) = &self.swapper {
            swapper.interrupt();
            swapper.ask(errand);
        }
    }

    /// Notes that the app in front has answered.
    pub fn answered(&mut self, app: AppKey) {
        if let Some(swapper) = &self.swapper {
            swapper.ask(Errand::Learn { app });
        }
    }

    /// Forgets apps that are gone.
    pub fn forget_apps(&mut self, doors: &Doors, gone: Vec<AppKey>) {
        let swapping = &mut self.in_force.swapping;
        swapping.exempt.retain(|app| !gone.contains(app));
        swapping.frozen.retain(|(app, _)| !gone.contains(app));
        swapping.squeezed.retain(|(app, _)| !gone.contains(app));
        swapping.lean.retain(|app| !gone.contains(app));
        swapping.working_sets.retain(|(app, _)| !gone.contains(app));
        // An app may be gone while its cgroup is still there, and gets another process.
        let inodes: Vec<u64> = gone.iter().filter_map(own_group).collect();
        undo(&mut self.ledger, doors, |entry| {
            let about = |file| inodes.iter().any(|inode| is_about(entry, file, *inode));
            about(SWAP_MAX) || about(FREEZE)
        });
        self.changes
            .drop_where(|reach, _| matches!(reach, Reach::App(app) if gone.contains(&app)));
        if let Some(swapper) = &self.swapper {
            swapper.ask(Errand::Forget { apps: gone });
        }
    }
}

/// What spoke for this kill, as a clause.
fn why_killed(report: &Report) -> String {
    let gauge = &report.gauge;
    let candidate = &report.candidate;
    let who = match (candidate.leaks, report.held.saturating_sub(candidate.held)) {
        (true, _) => "it takes memory without end".to_owned(),
        (false, grown) if grown > LEAST_BURST => {
            format!("it grew by {} MiB just now", grown >> 20)
        }
        _ => format!(
            "of those that are {} it was used longest ago",
            candidate.class
        ),
    };
    let late = match report.freed {
        Some(_) => "",
        None => "; its memory has not come back within a second",
    };
    format!(
        "{} MiB available and {} MiB of swap free ({}); {who}{late}",
        gauge.available >> 20,
        gauge.swap_free >> 20,
        report.level.name()
    )
}

/// The cgroup of an app that is one.
fn own_group(app: &AppKey) -> Option<u64> {
    match app {
        AppKey::Cgroup { inode } => Some(*inode),
        AppKey::Tree(_) => None,
    }
}

/// Whether the limit really holds now.
fn verified(group: &Cgroup) -> Outcome {
    match group.limit(MemoryKnob::SwapMax) {
        Ok(Limit::ZERO) => Outcome::Applied,
        Ok(found) => Outcome::Inert {
            why: format!("the kernel says {found}"),
        },
        Err(error) => Outcome::Failed {
            why: error.to_string(),
        },
    }
}

fn change(
    context: Context<'_>,
    knob: String,
    from: String,
    to: &str,
    rule: &str,
    outcome: Outcome,
) -> Change {
    Change {
        knob,
        from,
        to: to.to_owned(),
        rule: format!("swap: {rule}"),
        at_ms: context.now.as_millis() as u64,
        outcome,
        undone_by: "limelightd stopping".to_owned(),
    }
}
