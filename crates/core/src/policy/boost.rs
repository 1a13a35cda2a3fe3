// SPDX-License-Identifier: GPL-2.0-or-later
//! `boost`: the topmost app gets processor and disk time first.
//!
//! EIMOS gives the topmost process extra weight in the scheduler. Limelight uses these knobs, in
//! this order:
//!
//! 1. *A weight*: `cpu.weight` of the app's own cgroup and of all its ancestors, because each level
//!    of the tree divides its time separately.
//! 2. *Nice values* of all its threads, if the app has no cgroup of its own, the cpu controller is
//!    not enabled for it, or a sched_ext scheduler is loaded. Where a weight acts, nice values are
//!    left alone, because they would only shift time between the app's own threads. If the app's
//!    session is an autogroup, nice values count only inside it, so the autogroup's nice value is
//!    lowered as well.
//! 3. *A short slice* for its threads: a thread that wakes up may preempt a thread with a longer
//!    slice at once. A short slice gives no more time, only an earlier turn.
//! 4. `io.weight` and I/O priorities, if the scheduler of a disk honours them.
//!
//! # In the daemon's own cgroup tree
//!
//! Without a service manager, nothing enables the cpu controller for an app's cgroup, because the
//! boot scripts make no cgroups for apps. For an app that `protect` has moved into one of the
//! daemon's cgroups, boost enables the controllers from the root down. It does not enable the cpu
//! controller where the kernel grants real-time priority by group (`CONFIG_RT_GROUP_SCHED`): a
//! sound server in another cgroup would lose its priority.
//!
//! # Apps that are starting
//!
//! A user who starts an app waits for it before it has a window. If there is a record of an earlier
//! start of a program, the program came to the foreground soon after that start and will probably
//! do so again. For the duration of its start it is boosted like the foreground app, in addition to
//! that app.
//!
//! # Helper processes
//!
//! The display server must run before a frame is shown. If the app got all processors, the display
//! server would have to wait. Helpers are therefore boosted like the app: the same weight from the
//! level at which their cgroups diverge from the app's, the same nice value, and an even shorter
//! slice.
//!
//! At that level, the helper's branch may also contain other processes (an X server in
//! `system.slice`). A higher weight of the branch would boost them too. So the branch keeps its
//! weight, and the app's branch gets no more than [`BESIDE_HELPER`], which leaves the helper's
//! branch a fifth of the processor time.
//!
//! A helper that shares its own cgroup with other programs gets a lower nice value even if a weight
//! acts for the app: the nice value ranks the helper among the threads of that cgroup.
//!
//! # Terminals
//!
//! In an app with terminals, only the processes that may answer a key press are boosted
//! ([`crate::model::terminal`]). A build shares the terminal's cgroup, as a rule. So these processes
//! get lower nice values even if a weight acts for the app, and the app's cgroup and its ancestors
//! keep their weights while a job runs. Children of a shell or a command start without the boost, because the
//! kernel resets their nice value and slice (`SCHED_FLAG_RESET_ON_FORK`).
//!
//! # Apps that are closed
//!
//! An app that is asked to exit saves its state first, and one that is killed frees its memory
//! itself. Beside a weight of 10,000 it would get no processor time, and the foreground app would
//! wait for the memory. Until it has exited, its cgroup gets the weight of the foreground app.
//!
//! # Reclaim
//!
//! The kernel's `kswapd` works for the app too: if it gets too little time, the app's allocations
//! do direct reclaim. `kswapd` is in the root cgroup and competes with the app's whole branch, so
//! it gets the nice value that corresponds to the branch's weight.

mod knobs;

use super::plan::Event;
use crate::model::app::{AppKey, Home, ProcessId};
use crate::model::boost::{Autogroup, Helper, Threads, Tuning, Weight, WeightFile};
use crate::model::never::Never;
use crate::model::snapshot::{Measured, Snapshot};

use self::knobs::io_file;
pub use self::knobs::{knobs, Knobs, Standing};

/// Maximum weight of the app's branch beside a branch that contains a helper and other processes:
/// four times the default.
pub const BESIDE_HELPER: u32 = 400;

/// The kernel's default weight of a cgroup.
const WEIGHT_DEFAULT: u32 = 100;

/// Points by which a competitor's nice value is raised. The weight of nice value 7 is 215 instead
/// of 1,024 (sched_prio_to_weight[]). Beside ten competitors, an app of nice value -20 then still
/// gets 97 % of a processor.
const COMPETITOR_POINTS: u8 = 7;

/// One step of `boost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Enable these controllers for the app's cgroup, which the daemon has made.
    HandDown {
        /// The app.
        app: AppKey,
        /// The controllers: `cpu`, `io`.
        controllers: Vec<&'static str>,
    },
    /// Set the weights of these cgroups, and restore every other weight that boost has changed.
    Weigh {
        /// The app.
        app: AppKey,
        /// All weights, ancestors first.
        weights: Vec<Weight>,
    },
    /// Restore all weights.
    Unweigh {
        /// The app.
        app: AppKey,
    },
    /// Set nice value, slice and I/O priority of these threads, and forget threads that ended.
    Tune {
        /// The app.
        app: AppKey,
        /// The settings.
        tuning: Tuning,
        /// All threads of the app and of its helpers, by process.
        threads: Vec<Threads>,
    },
    /// Restore all threads.
    Untune {
        /// The app.
        app: AppKey,
    },
    /// Lower the nice values of these sessions' autogroups.
    Regroup {
        /// The app.
        app: AppKey,
        /// Points by which the nice values are lowered, down to -20.
        nice_points: u8,
        /// The autogroups, by number.
        groups: Vec<Autogroup>,
    },
    /// Restore all autogroups.
    Ungroup {
        /// The app.
        app: AppKey,
    },
}

/// The app to boost now: the foreground app, else the starting one. Beside a foreground app that is
/// never boosted, a starting app is not boosted either.
fn wanted<'a>(event: &Event, snapshot: &'a Snapshot) -> Option<&'a Measured> {
    if *event == Event::Stop || !snapshot.settings.boost.enabled {
        return None;
    }
    match &snapshot.topmost {
        Some(topmost) => Some(topmost).filter(|topmost| topmost.never(Never::Boost).is_none()),
        None => starting(snapshot),
    }
}

/// The starting app, unless it is never boosted.
fn starting(snapshot: &Snapshot) -> Option<&Measured> {
    let starting = snapshot.starting.as_ref();
    starting.filter(|starting| starting.never(Never::Boost).is_none())
}

/// Adds weights to the list. Of two weights for a cgroup it keeps the smaller one, which leaves
/// time for a helper.
fn add_weights(weights: &mut Vec<Weight>, more: Vec<Weight>) {
    for weight in more {
        let same =
            |known: &&mut Weight| (known.file, &known.cgroup) == (weight.file, &weight.cgroup);
        match weights.iter_mut().find(same) {
            Some(known) => known.weight = known.weight.min(weight.weight),
            None => weights.push(weight),
        }
    }
}

/// The desired state for an app.
struct Target {
    weights: Vec<Weight>,
    tuning: Tuning,
    threads: Vec<Threads>,
    groups: Vec<Autogroup>,
}

fn target(snapshot: &Snapshot, topmost: &Measured) -> Target {
    let (settings, view) = (&snapshot.settings.boost, &snapshot.boost);
    let knobs = knobs(settings, view, topmost.app.home.as_ref());
    let starting = starting(snapshot).map(|starting| &starting.app);
    let starting = starting.filter(|app| app.key != topmost.app.key);
    let mut weights: Vec<Weight> = Vec::new();
    for app in std::iter::once(&topmost.app).chain(starting) {
        let Some(home) = app.own_home() else { continue };
        let mut add = |file, weight| {
            add_weights(&mut weights, share(file, weight, home, &view.helpers));
        };
        if knobs.cpu_weight.is_live() {
            add(WeightFile::Cpu, settings.cpu_weight);
        }
        if let (true, Some(file)) = (knobs.io_weight.is_live(), io_file(view)) {
            add(file, settings.io_weight);
        }
    }
    if let Some(home) = topmost.app.own_home().filter(|_| runs_job(topmost)) {
        let chain = levels(&home.path);
        weights.retain(|weight| !chain.contains(&weight.cgroup.as_str()));
    }
    let closing = snapshot.closing.as_ref();
    if let Some(home) = closing.filter(|_| knobs.cpu_weight.is_live()) {
        let weight = Weight {
            file: WeightFile::Cpu,
            cgroup: home.path.clone(),
            inode: Some(home.inode),
            weight: settings.cpu_weight,
        };
        add_weights(&mut weights, vec![weight]);
    }
    let tuning = Tuning {
        nice_points: match knobs.nice.is_live() {
            true => settings.nice_points,
            false => 0,
        },
        among_points: settings.nice_points,
        reclaim_points: match (knobs.cpu_weight.is_live(), knobs.nice.is_live()) {
            (true, _) => points_of(settings.cpu_weight),
            (false, true) => settings.nice_points,
            (false, false) => 0,
        },
        competitor_points: match settings.nice_points {
            0 => 0,
            _ => COMPETITOR_POINTS,
        },
        slice_us: match knobs.slice.is_live() {
            true => settings.slice_us,
            false => 0,
        },
        io_level: knobs.io_priority.is_live().then_some(settings.io_level),
    };
    let mut threads = view.threads.clone();
    let serving = view.helpers.iter().map(|helper| &helper.threads);
    let competing = &view.competitors;
    let of_starting = view.starting.iter().filter(|_| starting.is_some());
    for more in of_starting.chain(serving).chain(competing) {
        if !threads.iter().any(|known| known.process == more.process) {
            threads.push(more.clone());
        }
    }
    threads.retain(|threads| !threads.tids.is_empty() && !tuning.spares(threads.role));
    let groups = match knobs.autogroup.is_live() {
        true => view.autogroups.clone(),
        false => Vec::new(),
    };
    Target {
        weights,
        tuning,
        threads,
        groups,
    }
}

/// Whether a job of an app with terminals uses processor time. A weight of the app's cgroup or of
/// its ancestors would favour the job over all other apps, and over the kernel's workers, which pass
/// each key through the terminal.
fn runs_job(topmost: &Measured) -> bool {
    let terminal = topmost.terminal.as_ref();
    terminal.is_some_and(|terminal| terminal.job_runs)
}

/// Nice points that correspond to a cgroup's weight: each point gives 25 % more time
/// (sched_prio_to_weight[] in the kernel's kernel/sched/core.c).
fn points_of(weight: u32) -> u8 {
    let points = (f64::from(weight) / f64::from(WEIGHT_DEFAULT)).ln() / 1.25f64.ln();
    points.round().clamp(0.0, 20.0) as u8
}

/// The weights of an app's cgroup, of its ancestors, and of its helpers' cgroups.
fn share(file: WeightFile, weight: u32, home: &Home, helpers: &[Helper]) -> Vec<Weight> {
    let weight = weight.min(file.max());
    let app = levels(&home.path);
    let mut weights: Vec<Weight> = app
        .iter()
        .map(|cgroup| Weight {
            file,
            cgroup: (*cgroup).to_owned(),
            inode: (*cgroup == home.path).then_some(home.inode),
            weight,
        })
        .collect();
    for helper in helpers.iter().filter_map(|helper| helper.home.as_ref()) {
        let branch = levels(&helper.path);
        let common = app.iter().zip(&branch).take_while(|(a, b)| a == b).count();
        let (Some(parting), Some(ours)) = (branch.get(common), weights.get_mut(common)) else {
            // One cgroup contains the other, so the app's weights already cover the helper.
            continue;
        };
        let only_helpers = is_session(parting) || *parting == helper.path;
        let shared = !(helper.own && only_helpers);
        if shared {
            ours.weight = ours.weight.min(BESIDE_HELPER);
        }
        let alike = branch.iter().skip(common + usize::from(shared));
        for cgroup in alike.filter(|_| helper.own) {
            let leaf = *cgroup == helper.path;
            let found = weights.iter().any(|known| known.cgroup == *cgroup);
            if !found {
                weights.push(Weight {
                    file,
                    cgroup: (*cgroup).to_owned(),
                    inode: leaf.then_some(helper.inode),
                    weight,
                });
            }
        }
    }
    weights
}

/// Whether this systemd slice contains only the desktop's own processes.
fn is_session(cgroup: &str) -> bool {
    cgroup.ends_with("/session.slice")
}

/// A cgroup and its ancestors, starting below the root.
fn levels(path: &str) -> Vec<&str> {
    let mut ends: Vec<usize> = path.match_indices('/').skip(1).map(|(at, _)| at).collect();
    ends.push(path.len());
    ends.into_iter()
        .filter_map(|end| path.get(..end))
        .filter(|path| path.len() > 1)
        .collect()
}

/// The step that enables missing controllers for the foreground app's cgroup, if the daemon made
/// that cgroup.
fn hand_down(snapshot: &Snapshot) -> Option<Step> {
    let topmost = snapshot.topmost.as_ref()?;
    let ours = topmost.app.own_home().is_some_and(|home| home.adopted);
    if !ours || !snapshot.may_hand_down {
        return None;
    }
    let view = &snapshot.boost;
    let mut controllers = Vec::new();
    if view.without_cpu.is_some() && knobs::may_weigh(view) {
        controllers.push("cpu");
    }
    if view.without_io.is_some() && io_file(view).is_some() {
        controllers.push("io");
    }
    (!controllers.is_empty()).then_some(Step::HandDown {
        app: topmost.app.key,
        controllers,
    })
}

/// Steps that undo settings which no longer apply; they run before the steps of [`grant`].
pub fn withdraw(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let in_force = &snapshot.in_force;
    let wanted = wanted(event, snapshot);
    let target = wanted.map(|topmost| (topmost.app.key, target(snapshot, topmost)));
    let mut steps = Vec::new();
    if let Some((app, _)) = &in_force.weighed {
        let stays =
            matches!(&target, Some((key, wanted)) if key == app && !wanted.weights.is_empty());
        if !stays {
            steps.push(Step::Unweigh { app: *app });
        }
    }
    if let Some((app, tuning, _)) = &in_force.tuned {
        // A changed tuning starts from the original values, so the old tuning is undone first.
        let stays = matches!(&target, Some((key, wanted))
            if key == app && wanted.tuning == *tuning && !wanted.threads.is_empty());
        if !stays {
            steps.push(Step::Untune { app: *app });
        }
    }
    if let Some((app, _)) = &in_force.regrouped {
        let stays =
            matches!(&target, Some((key, wanted)) if key == app && !wanted.groups.is_empty());
        if !stays {
            steps.push(Step::Ungroup { app: *app });
        }
    }
    steps
}

/// Steps that put settings in force; they run after the steps of [`withdraw`].
pub fn grant(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let Some(topmost) = wanted(event, snapshot) else {
        return Vec::new();
    };
    let app = topmost.app.key;
    let Target {
        weights,
        tuning,
        threads,
        groups,
    } = target(snapshot, topmost);
    let in_force = &snapshot.in_force;
    let mut steps: Vec<Step> = hand_down(snapshot).into_iter().collect();
    let weighed =
        matches!(&in_force.weighed, Some((key, known)) if *key == app && *known == weights);
    if !weighed && !weights.is_empty() {
        steps.push(Step::Weigh { app, weights });
    }
    let tuned = matches!(&in_force.tuned, Some((key, known, seen))
        if *key == app && *known == tuning && *seen == threads);
    if !tuned && !threads.is_empty() {
        steps.push(Step::Tune {
            app,
            tuning,
            threads,
        });
    }
    let numbers =
        |groups: &[Autogroup]| -> Vec<u64> { groups.iter().map(|group| group.number).collect() };
    let regrouped = matches!(&in_force.regrouped, Some((key, known))
        if *key == app && numbers(known) == numbers(&groups));
    if !regrouped && !groups.is_empty() {
        steps.push(Step::Regroup {
            app,
            nice_points: snapshot.settings.boost.nice_points,
            groups,
        });
    }
    steps
}

/// The step that follows the beginning or the end of an app's closing, if it changes a weight.
pub fn follow_closing(snapshot: &Snapshot) -> Option<Step> {
    snapshot.in_force.weighed.as_ref()?;
    let steps = grant(&Event::Tick, snapshot).into_iter();
    let mut weighs = steps.filter(|step| matches!(step, Step::Weigh { .. }));
    weighs.next()
}

/// Notes for the user on what is boosted and what is not, one sentence each.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    if !snapshot.settings.boost.enabled {
        return vec!["boost is switched off by the configuration ([boost] enabled)".to_owned()];
    }
    let starting = starting(snapshot).map(|starting| {
        format!(
            "boost: {} is being started, and is boosted like the foreground app for now",
            starting.app.name
        )
    });
    let Some(topmost) = &snapshot.topmost else {
        return starting.into_iter().collect();
    };
    if let Some(rule) = topmost.never(Never::Boost) {
        return vec![format!("boost: this app is never boosted: {}", rule.why)];
    }
    let view = &snapshot.boost;
    let knobs = knobs(&snapshot.settings.boost, view, topmost.app.home.as_ref());
    let mut notes: Vec<String> = starting.into_iter().collect();
    let standings = knobs
        .all()
        .into_iter()
        .filter_map(|(name, standing)| match standing {
            Standing::Live => None,
            Standing::Unused(why) => Some(format!("boost: {name} is not used: {why}")),
            Standing::Inert(why) => Some(format!("boost: {name} is inert: {why}")),
        });
    notes.extend(standings);
    if !view.competitors.is_empty() && snapshot.settings.boost.nice_points > 0 {
        notes.push(format!(
            "boost: number of busy programs whose nice values are raised by {COMPETITOR_POINTS} in \
             favour of {}: {}",
            topmost.app.name,
            view.competitors.len()
        ));
    }
    notes.extend(terminal_notes(topmost));
    if let Some(home) = topmost
        .app
        .own_home()
        .filter(|_| knobs.cpu_weight.is_live())
    {
        let shares = share(
            WeightFile::Cpu,
            snapshot.settings.boost.cpu_weight,
            home,
            &view.helpers,
        );
        if let Some(held) = shares.iter().find(|share| share.weight == BESIDE_HELPER) {
            notes.push(format!(
                "boost: {} gets no more than cpu.weight {BESIDE_HELPER}, because a helper beside \
                 it shares a cgroup with other programs",
                held.cgroup
            ));
        }
    }
    notes
}

/// Notes on an app with terminals.
fn terminal_notes(topmost: &Measured) -> Option<String> {
    let terminal = topmost
        .terminal
        .as_ref()
        .filter(|terminal| terminal.has_jobs())?;
    let front = terminal.front().count();
    let weight = match topmost.app.own_home().filter(|_| terminal.job_runs) {
        Some(home) => format!(
            "; {} and its ancestors keep their weights while a job runs",
            home.path
        ),
        None => String::new(),
    };
    Some(format!(
        "boost: {front} of {} processes of this terminal answer keys and are boosted{weight}",
        terminal.parts.len()
    ))
}

/// Why `boost` treats this process of an app with terminals as it does; `None` for a process of
/// another app.
pub fn part_note(snapshot: &Snapshot, process: ProcessId) -> Option<String> {
    let part = snapshot
        .topmost
        .as_ref()?
        .terminal
        .as_ref()?
        .part(process)?;
    let result = match part.is_front() {
        true => "this process is boosted",
        false => "this process is not boosted",
    };
    Some(format!("boost: {result}: {}", part.describe()))
}

#[cfg(test)]
#[path = "boost_tests.rs"]
mod tests;
