// SPDX-License-Identifier: GPL-2.0-or-later
//! Sets the nice value, slice and I/O priority of each thread.
//!
//! A thread inherits all three from its creator. So a thread that is created while the app is
//! topmost is boosted at once; the next plan only adds it to the restore record. A recorded thread
//! is never changed again: a renice in the meantime takes precedence.
//!
//! The children of a shell or a command in a terminal get nothing: the kernel resets their nice
//! value to 0 and their slice to its own. So a shell or command that has other values than these is
//! left alone. A process whose role changes gets its original values back first.
//!
//! The nice values of an app's process are not lowered if its main thread has a value below 0 that
//! the restore record does not explain. Either a privileged program set that value, or the thread
//! inherited it from Limelight unnoticed.

use std::rc::Rc;

use limelight_core::model::boost::{Role, Threads, Tuning};
use limelight_core::model::{AppKey, ProcessId};
use limelight_proto::{Change, Outcome};
use limelight_sys::process::Process;
use limelight_sys::sched::IoPriority;
use limelight_sys::tree::ProcessTree;

use crate::mechanisms::boost::role_changes::{disinherit, put_role_changes_back};
use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::shared::{failed, Context, Shared};
use crate::restore::undo::threads::heirs::{Family, Inheritance};
use crate::restore::undo::threads::{asking, give, is_same, own_slice_ns, wanted};
use crate::restore::undo::{lineage, Undone};
use crate::restore::{Asking, Entry, Lineage, Moment, Place, Tuned};
use crate::system::System;

/// The values to give to a thread that would have the values `found` without Limelight.
fn tuned(tuning: Tuning, role: Role, found: Asking) -> Asking {
    // The kernel resets to these values only.
    let is_default = (found.nice, found.slice_ns) == (0, 0) && !found.resets_on_fork;
    if role == Role::Tab && !is_default {
        return found;
    }
    let slice_ns = u64::from(tuning.slice_us(role)) * 1000;
    let io_priority = match tuning.io_level {
        // A child of a tab's shell would inherit it.
        Some(level)
            if !matches!(
                role,
                Role::Competitor | Role::Tab | Role::Job | Role::Worker
            ) && IoPriority(found.io_priority).is_ordinary() =>
        {
            IoPriority::best_effort(level).0
        }
        _ => found.io_priority,
    };
    Asking {
        nice: tuning.nice(role, found.nice),
        // A thread that has set its own slice keeps it.
        slice_ns: match found.slice_ns {
            0 => slice_ns,
            slice => slice,
        },
        io_priority,
        resets_on_fork: found.resets_on_fork || role == Role::Tab,
    }
}

/// The values that a thread would have if it had inherited nothing from Limelight.
fn without_us(family: &Family, found: Asking) -> Asking {
    let Some(giver) = family.giver(found) else {
        return found;
    };
    let tuned = Tuned {
        tid: 0,
        starttime: 0,
        original: giver.original,
        ours: giver.ours,
    };
    wanted(&tuned, found).0
}

/// The tuning for a process's threads: without lower nice values for an app's process whose main
/// thread has an unexplained value below 0. `originals`: the TID of each thread, and its values
/// without Limelight.
fn tuning_for(
    tuning: Tuning,
    listed: &Threads,
    mut originals: impl Iterator<Item = (i32, Asking)>,
) -> Tuning {
    let main = originals.find(|(tid, _)| *tid == listed.process.pid);
    // Helpers are exempt: they are identified by name, and their configuration may set a negative
    // nice value.
    let of_app = matches!(listed.role, Role::App | Role::Window);
    match of_app && main.is_some_and(|(_, main)| main.nice < 0) {
        true => Tuning {
            nice_points: 0,
            among_points: 0,
            ..tuning
        },
        false => tuning,
    }
}

/// Scheduling values as text.
fn words(asking: Asking) -> String {
    let slice = match asking.slice_ns {
        0 => "the kernel's slice".to_owned(),
        ns => format!("slice {} us", ns / 1000),
    };
    let io = match asking.io_priority {
        0 => String::new(),
        packed => format!(", I/O {}", IoPriority(packed)),
    };
    let fork = match asking.resets_on_fork {
        true => ", not inherited",
        false => "",
    };
    format!("nice {}, {slice}{io}{fork}", asking.nice)
}

fn change(
    context: Context<'_>,
    id: ProcessId,
    role: Role,
    threads: &[Tuned],
    outcome: Outcome,
) -> Change {
    let first = threads.iter().find(|tuned| tuned.tid == id.pid);
    let shown = first.or(threads.first());
    let word = |asking: fn(&Tuned) -> Asking| shown.map_or(String::new(), |t| words(asking(t)));
    let proc = context.system.roots.proc.display();
    let knob = format!("{proc}/{}/task scheduling", id.pid);
    let from = word(|tuned| tuned.original);
    let to = format!("{} ({} threads)", word(|tuned| tuned.ours), threads.len());
    let rule = match role {
        Role::Competitor => {
            "boost: this program competes with the foreground app for processor time, and no weight \
             separates the two"
        }
        Role::Worker => {
            "boost: this worker of the kernel passes keys and their echo through terminals"
        }
        Role::Window | Role::Tab => {
            "boost: the processes of a terminal that answer keys run first; what they start has \
             ordinary priority"
        }
        _ => "boost: threads of the foreground app and of its helpers run first",
    };
    context.change(knob, (from, to), rule, outcome)
}

/// A process with threads that are not recorded yet.
struct Fresh {
    id: ProcessId,
    role: Role,
    process: Rc<Process>,
    /// Threads that were recorded before and still run.
    known: Vec<Tuned>,
    new: Vec<Tuned>,
}

impl Fresh {
    /// Adds to `new` those threads of `found` whose values the tuning changes.
    fn add(&mut self, found: &[Found], (tuning, listed): (Tuning, &Threads), family: &Family) {
        let originals: Vec<Asking> = found
            .iter()
            .map(|thread| without_us(family, thread.asking))
            .collect();
        let all = found.iter().zip(&originals);
        let main = all
            .clone()
            .map(|(thread, original)| (thread.tid, *original));
        let known = self.known.iter();
        let main = main.chain(known.map(|tuned| (tuned.tid, tuned.original)));
        let tuning = tuning_for(tuning, listed, main);
        for (thread, original) in all {
            let ours = tuned(tuning, listed.role, *original);
            // A tab's shell that keeps its own values must not pass on what it has inherited.
            let inherits = listed.role == Role::Tab && thread.asking != ours;
            if ours != *original || inherits {
                self.new.push(Tuned {
                    tid: thread.tid,
                    starttime: thread.starttime,
                    original: *original,
                    ours,
                });
            }
        }
    }
}

/// A thread that is not recorded, and its present values.
struct Found {
    tid: i32,
    starttime: u64,
    asking: Asking,
}

/// The threads of a process that are not recorded.
fn unknown_threads(process: &Process, listed: &Threads, known: &[Tuned], slice: u64) -> Vec<Found> {
    let tids = listed.tids.iter();
    tids.filter(|tid| !known.iter().any(|tuned| tuned.tid == **tid))
        .filter_map(|&tid| {
            let starttime = process.thread_start(tid).ok()?;
            let (_, asking) = asking(tid, slice).ok()??;
            Some(Found {
                tid,
                starttime,
                asking,
            })
        })
        .collect()
}

/// Determines the values that threads would have without Limelight.
struct Origins<'a> {
    inheritance: Inheritance<'a>,
    /// The time and the process tree before any value is changed. They are read at the first new
    /// thread, because most plans find no new thread.
    start: Option<(Moment, ProcessTree)>,
}

impl Origins<'_> {
    fn of(
        &mut self,
        system: &System,
        (id, process): (ProcessId, &Process),
    ) -> limelight_sys::Result<(Lineage, Family)> {
        let start = match self.start.take() {
            Some(start) => start,
            None => (lineage::moment(system), self.inheritance.tree(system)?),
        };
        let (since, tree) = self.start.insert(start);
        let family = self.inheritance.family(tree, (id, process))?;
        Ok((lineage::of(process, *since)?, family))
    }
}

pub(super) fn tune(
    shared: &mut Shared,
    app: AppKey,
    tuning: Tuning,
    threads: &[Threads],
    context: Context<'_>,
) {
    let system = context.system;
    put_role_changes_back(shared, threads, context);
    let slice = own_slice_ns();
    let home = context.front.and_then(|app| app.own_home());
    let home = home.map(Place::from);
    let recorded: Vec<Entry> = recorded_threads(shared);
    let mut origins = Origins {
        inheritance: Inheritance::new(&recorded, &[]),
        start: None,
    };
    let mut given = Vec::new();
    let mut all = Vec::new();
    if !shared.is_dry_run() {
        disinherit(threads, &origins.inheritance, context);
    }
    for listed in threads.iter().filter(|listed| listed.role != Role::Job) {
        let entry = recorded
            .iter()
            .find(|entry| entry.process() == Some(listed.process));
        let known = match entry {
            Some(entry @ Entry::Threads { threads, .. }) => {
                shared.ledger.keep(entry);
                threads.as_slice()
            }
            _ => &[],
        };
        let seen = |tid: &i32| known.iter().any(|tuned| tuned.tid == *tid);
        if known.len() == listed.tids.len() && listed.tids.iter().all(seen) {
            continue;
        }
        let Some(process) = system.same_process(listed.process) else {
            continue;
        };
        let known: Vec<Tuned> = known
            .iter()
            .filter(|tuned| is_same(&process, tuned))
            .copied()
            .collect();
        let found = unknown_threads(&process, listed, &known, slice);
        if found.is_empty() {
            continue;
        }
        let (lineage, family) = match origins.of(system, (listed.process, &process)) {
            Ok(origin) => origin,
            // Inherited and chosen values cannot be distinguished now; the next plan may succeed.
            Err(error) => {
                tracing::debug!("threads are not boosted: {error}");
                continue;
            }
        };
        let mut fresh = Fresh {
            id: listed.process,
            role: listed.role,
            process,
            known,
            new: Vec::new(),
        };
        fresh.add(&found, (tuning, listed), &family);
        // Kernel threads have no children that could inherit the values, and those of a tab's shell
        // do not.
        if !matches!(listed.role, Role::Reclaim | Role::Worker | Role::Tab) {
            given.extend(fresh.new.iter().map(|thread| Entry::AskingGiven {
                lineage,
                original: thread.original,
                ours: thread.ours,
            }));
        }
        all.push(fresh);
    }
    write_threads(shared, all, given, home, context);
    forget_ended(shared, threads, context);
    shared.in_force.tuned = Some((app, tuning, threads.to_vec()));
}

fn recorded_threads(shared: &Shared) -> Vec<Entry> {
    let entries = shared.recorded().iter();
    entries.filter(|entry| entry.is_asking()).cloned().collect()
}

/// Records all new threads, then sets the recorded values on each of them.
fn write_threads(
    shared: &mut Shared,
    all: Vec<Fresh>,
    given: Vec<Entry>,
    home: Option<Place>,
    context: Context<'_>,
) {
    let entry = |fresh: &Fresh, new: &[Tuned]| {
        let mut threads = fresh.known.clone();
        threads.extend(new);
        threads.sort_unstable_by_key(|tuned| tuned.tid);
        Entry::Threads {
            pid: fresh.id.pid,
            starttime: fresh.id.starttime,
            home: home.clone(),
            threads,
        }
    };
    let entries: Vec<Entry> = all
        .iter()
        .filter(|fresh| !fresh.new.is_empty())
        .map(|fresh| entry(fresh, &fresh.new))
        .collect();
    let entries = shared.with_lineages(entries, given);
    let recorded = shared.intend(entries);
    let slice = own_slice_ns();
    for fresh in all.iter().filter(|fresh| !fresh.new.is_empty()) {
        let mut outcome = match &recorded {
            Ok(()) => shared.done(),
            Err(error) => failed(error),
        };
        let mut given = Vec::new();
        for thread in &fresh.new {
            if recorded.is_err() {
                break;
            }
            // Check again: the TID may have been reused since the threads were listed.
            if !is_same(&fresh.process, thread) {
                continue;
            }
            if shared.is_dry_run() {
                given.push(*thread);
                continue;
            }
            let done = match asking(thread.tid, slice) {
                Ok(Some((cpu, found))) => give(thread.tid, &cpu, found, thread.ours),
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => given.push(*thread),
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    outcome = failed(error);
                    given.push(*thread);
                }
            }
        }
        let shown: Vec<Tuned> = match entry(fresh, &given) {
            Entry::Threads { threads, .. } => threads,
            _ => Vec::new(),
        };
        if !shown.is_empty() {
            let change = change(context, fresh.id, fresh.role, &shown, outcome);
            shared
                .changes
                .note(Reach::Process(fresh.id), Kind::Threads, change);
        }
    }
}

/// Drops ended processes from the restore record, and processes that are no longer listed from the
/// reported changes.
fn forget_ended(shared: &mut Shared, threads: &[Threads], context: Context<'_>) {
    let listed = |id: ProcessId| threads.iter().any(|threads| threads.process == id);
    let gone: Vec<Entry> = recorded_threads(shared)
        .into_iter()
        .filter(|entry| {
            entry
                .process()
                .is_some_and(|id| !listed(id) && context.system.has_ended(id))
        })
        .collect();
    shared.ledger.forget_all(&gone);
    shared.changes.drop_where(|reach, kind| {
        kind == Kind::Threads && matches!(reach, Reach::Process(id) if !listed(id))
    });
}

pub(super) fn untune(shared: &mut Shared, context: Context<'_>) {
    for (entry, undone) in shared.undo(context.system, Entry::is_asking) {
        match undone {
            Undone::Failed { why } if entry.lineage().is_some() => {
                tracing::info!("not put back yet: {entry}; {why}");
            }
            Undone::Failed { why } => tracing::error!("cannot put back {entry}: {why}"),
            Undone::Theirs { found } => {
                tracing::info!(
                    "not put back: {entry}; another program has since set it to {found}"
                );
            }
            Undone::Restored | Undone::Gone => {}
        }
    }
    shared.in_force.tuned = None;
    shared.changes.drop_where(|_, kind| kind == Kind::Threads);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Tuning = Tuning {
        competitor_points: 7,
        nice_points: 20,
        among_points: 20,
        reclaim_points: 5,
        slice_us: 300,
        io_level: Some(0),
    };

    #[test]
    fn thread_keeps_its_own_slice_and_idle_io_priority() {
        let plain = Asking {
            nice: 0,
            ..Asking::default()
        };
        let given = tuned(ALL, Role::App, plain);
        assert_eq!((given.nice, given.slice_ns), (-20, 300_000));
        assert_eq!(IoPriority(given.io_priority), IoPriority::best_effort(0));
        let kernel = tuned(ALL, Role::Reclaim, plain);
        assert_eq!((kernel.nice, kernel.slice_ns), (-5, 100_000));
        let idle = 3 << 13;
        let chosen = Asking {
            nice: 10,
            slice_ns: 5_000_000,
            io_priority: idle,
            ..Asking::default()
        };
        let given = tuned(ALL, Role::App, chosen);
        assert_eq!(
            (given.nice, given.slice_ns, given.io_priority),
            (-10, 5_000_000, idle)
        );
        assert_eq!(tuned(Tuning::default(), Role::App, chosen), chosen);
    }

    #[test]
    fn tab_passes_nothing_on_and_keeps_values_that_a_reset_would_lose() {
        let plain = Asking::default();
        let given = tuned(ALL, Role::Tab, plain);
        assert_eq!((given.nice, given.slice_ns), (-20, 300_000));
        assert!(given.resets_on_fork && given.io_priority == 0);
        for chosen in [
            Asking { nice: 5, ..plain },
            Asking {
                slice_ns: 900_000,
                ..plain
            },
            Asking {
                resets_on_fork: true,
                ..plain
            },
        ] {
            assert_eq!(tuned(ALL, Role::Tab, chosen), chosen);
        }
        let window = tuned(ALL, Role::Window, plain);
        assert!(window.nice == -20 && !window.resets_on_fork);
    }
}
