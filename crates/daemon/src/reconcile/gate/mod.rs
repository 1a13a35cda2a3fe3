// SPDX-License-Identifier: GPL-2.0-or-later
//! The safety gate: keeps actions away from protected processes.
//!
//! The policy plans for apps, and knows their processes only as of the last scan. Meanwhile
//! processes fork and move between cgroups. So right before an action freezes, limits, squeezes or
//! kills an app, the gate compares the processes that the action would reach with the protected
//! ones. [`Gate::group`] does this for an action on a cgroup, [`Gate::process`] for an action on
//! one process. The comparison starts from the protected processes: `/proc/PID/cgroup` of each is
//! open and names its current cgroup. Children are born in their parent's cgroup, so they are
//! covered before any scan finds them.
//!
//! The event loop decides which processes are protected ([`collect`]); the squeezing thread and the
//! guard's thread use the gate too. The guard uses it when no memory is left. The kernel allocates
//! memory to read `/proc/PID/cgroup` (`proc_cgroup_show()`). So the guard starts from the target
//! instead: it reads the target's `cgroup.procs`, which is already open ([`Gate::listed`],
//! [`Gate::any_of`]).

pub mod collect;
pub mod dependents;
pub mod session;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use limelight_core::model::protected::{contains, Why};
use limelight_core::model::{AppKey, Guarded, Harm, ProcessId, Protected};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::persistent_file::PersistentFile;
use rustix::io::Errno;

use crate::reconcile::gate::collect::Wanted;
use crate::system::System;

/// Maximum number of protected processes; each takes one descriptor. Further processes of the
/// topmost app are covered if they share a cgroup with a listed process.
const GUARDED_MAX: usize = 512;

/// Places in that list that the topmost app's processes leave to others.
const OTHERS_MAX: usize = GUARDED_MAX / 2;

/// Maximum number of bytes read from `/proc/PID/cgroup`. A path has at most 4095 bytes, and each
/// cgroup v1 hierarchy has a line.
const TEXT_MAX: usize = 8192;

/// Maximum number of bytes read from a `cgroup.procs`: about four thousand processes.
pub const PROCS_MAX: usize = 32 << 10;

/// The file that lists a cgroup's processes.
pub const PROCS: &str = "cgroup.procs";

/// A protected process that rules out an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocked {
    /// The process.
    pub process: ProcessId,
    /// Why the process is protected.
    pub why: Why,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it holds pid {}, {}", self.process.pid, self.why)
    }
}

/// The gate. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    watched: Vec<Arc<Watched>>,
    /// Own cgroups of protected apps: a process that was moved into one since the last update of
    /// this list is part of the app.
    homes: Vec<Home>,
    /// Actions refused so far, and the last one.
    refusals: u64,
    last: Option<(Harm, Blocked)>,
}

/// The own cgroup of a protected app.
#[derive(Debug)]
struct Home {
    path: String,
    why: Why,
    /// Its `cgroup.procs`.
    procs: Option<PersistentFile>,
}

/// A protected process, with its `cgroup` file.
#[derive(Debug)]
struct Watched {
    guarded: Guarded,
    cgroup: Place,
}

/// The `cgroup` file of a protected process.
#[derive(Debug, Clone)]
enum Place {
    Open(Arc<PersistentFile>),
    /// There is no such file, or it cannot be read. The process then has no known cgroup.
    Missing,
    /// No descriptor was left to open the file. The process may be in any cgroup.
    Unknown,
}

impl Watched {
    /// Whether `rule` refuses an action on the cgroup `path`, given the current cgroup of the
    /// process. A process that has ended never causes a refusal. If the file cannot be read, the
    /// last known cgroup counts. An unknown cgroup may be `path`.
    fn refuses(&self, path: &str, rule: impl Fn(&str) -> bool) -> bool {
        let last = match self.guarded.cgroup.as_str() {
            "" => path,
            last => last,
        };
        let mut buffer = [0; TEXT_MAX];
        match &self.cgroup {
            Place::Open(file) => match file.read(&mut buffer) {
                Ok(text) => path_in(text).is_some_and(rule),
                Err(Errno::SRCH) => false,
                Err(_) => rule(last),
            },
            Place::Missing => rule(&self.guarded.cgroup),
            Place::Unknown => rule(last),
        }
    }

    /// Whether it need not be opened again if it is protected for this reason.
    fn is_for(&self, app: Option<AppKey>, why: Why) -> bool {
        let unknown = matches!(self.cgroup, Place::Unknown);
        (self.guarded.app, self.guarded.why) == (app, why) && !unknown
    }
}

/// The path in the cgroup v2 hierarchy from the text of `/proc/PID/cgroup`.
fn path_in(text: &[u8]) -> Option<&str> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let path = lines.find_map(|line| line.strip_prefix(b"0::"))?;
    let path = match std::str::from_utf8(path) {
        Ok(path) => path,
        // The kernel accepts any bytes as a name, but Limelight never acts on a cgroup whose path
        // is not UTF-8. So the nearest ancestor whose path is UTF-8 stands for it.
        Err(error) => {
            let valid = path.get(..error.valid_up_to())?;
            let (parent, _) = std::str::from_utf8(valid).ok()?.rsplit_once('/')?;
            if parent.is_empty() {
                "/"
            } else {
                parent
            }
        }
    };
    Some(path.strip_suffix(" (deleted)").unwrap_or(path))
}

/// The pids in the text of a `cgroup.procs`.
pub fn pids_in(text: &[u8]) -> impl Iterator<Item = i32> + '_ {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let digit = |number: i32, byte: &u8| {
            let digit = byte.is_ascii_digit().then(|| i32::from(byte - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        };
        match line.is_empty() {
            true => None,
            false => line.iter().try_fold(0, digit),
        }
    })
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the protected processes by `wanted`, with the most important ones first, and the
    /// protected cgroups by `homes`. Returns the processes with their current cgroups.
    pub fn update(
        &self,
        system: &System,
        wanted: impl IntoIterator<Item = Wanted>,
        homes: Vec<(String, Why)>,
    ) -> Protected {
        let before = self.state().watched.clone();
        let mut watched: Vec<Arc<Watched>> = Vec::new();
        for (process, app, why) in within_limit(wanted.into_iter().collect()) {
            let known = |one: &&Arc<Watched>| one.guarded.process == process;
            if watched.len() == GUARDED_MAX || watched.iter().any(|one| known(&one)) {
                continue;
            }
            let last = before.iter().find(known);
            watched.extend(match last.filter(|one| one.is_for(app, why)) {
                Some(one) => Some(Arc::clone(one)),
                None => {
                    let wanted = (process, app, why);
                    watch(system, wanted, last.map(Arc::as_ref)).map(Arc::new)
                }
            });
        }
        let mut buffer = [0; TEXT_MAX];
        let now = watched.iter().map(|one| {
            let text = match &one.cgroup {
                Place::Open(file) => file.read(&mut buffer).ok(),
                Place::Missing | Place::Unknown => None,
            };
            let path = match text {
                Some(text) => path_in(text).unwrap_or_default().to_owned(),
                None => one.guarded.cgroup.clone(),
            };
            Guarded {
                cgroup: path,
                ..one.guarded.clone()
            }
        });
        let protected = Protected(now.collect());
        let homes = homes.into_iter().map(|(path, why)| {
            let group = CgroupPath::parse(&path).and_then(|path| system.cgroups.open(&path).ok());
            let procs = group.and_then(|group| PersistentFile::open(group.dir(), PROCS).ok());
            // The kernel allocates a file's buffer at the first read, so the first read happens
            // here.
            let _ = procs.as_ref().map(|procs| procs.read(&mut buffer));
            Home { path, why, procs }
        });
        let homes: Vec<Home> = homes.collect();
        let old = {
            let mut state = self.state();
            let old = std::mem::replace(&mut state.watched, watched);
            (old, std::mem::replace(&mut state.homes, homes))
        };
        // Descriptors are closed here, not in the guard's thread.
        drop((old, before));
        protected
    }

    /// The protected process, if any, that rules out `harm` to the cgroup `path` of `app`. Reads
    /// the current cgroup of each protected process. The kernel allocates memory for that, so the
    /// guard's thread must not call this.
    pub fn group(&self, path: &str, harm: Harm, app: AppKey) -> Option<Blocked> {
        // The lock is not held while files are read: the guard may need it, and must not wait for
        // memory.
        let watched = self.state().watched.clone();
        let found = watched.iter().find(|one| {
            let here = |cgroup: &str| one.guarded.refuses_group_from(cgroup, path, harm, app);
            one.refuses(path, here)
        });
        let blocked = found.map(|one| blocked(one));
        note(&mut self.state(), harm, blocked)
    }

    /// The protected process, if any, that rules out harm to `process`. `place` is the open
    /// `/proc/PID/cgroup` of `process`; it shows whether `process` was moved into a protected app's
    /// cgroup.
    pub fn process(
        &self,
        process: ProcessId,
        place: Option<&PersistentFile>,
        harm: Harm,
    ) -> Option<Blocked> {
        let mut buffer = [0; TEXT_MAX];
        let text = place.and_then(|file| file.read(&mut buffer).ok());
        let path = text.and_then(path_in);
        let mut state = self.state();
        let mut all = state.watched.iter();
        let found = all.find(|one| one.guarded.refuses_process(process, harm));
        let named = found.map(|one| blocked(one));
        let mut homes = state.homes.iter();
        let inside = path.and_then(|path| homes.find(|home| contains(&home.path, path)));
        let moved = inside.map(|home| Blocked {
            process,
            why: home.why,
        });
        note(&mut state, harm, named.or(moved))
    }

    /// The protected process, if any, that rules out killing the processes in the text of a
    /// `cgroup.procs`. For the guard: neither this program nor the kernel allocates memory.
    pub fn listed(&self, procs: &[u8]) -> Option<Blocked> {
        let mut state = self.state();
        let blocked = pids_in(procs).find_map(|pid| {
            let mut all = state.watched.iter();
            let found = all
                .find(|one| one.guarded.process.pid == pid && one.guarded.why.refuses(Harm::Kill));
            found.map(|one| blocked(one))
        });
        note(&mut state, Harm::Kill, blocked)
    }

    /// The process, if any, that rules out killing these processes: one of them is protected, or
    /// was moved into a protected app's own cgroup. For the guard, like [`Gate::listed`].
    pub fn any_of(&self, processes: &[ProcessId]) -> Option<Blocked> {
        let mut state = self.state();
        let named = state.watched.iter().find(|one| {
            let refuses = |id: &ProcessId| one.guarded.refuses_process(*id, Harm::Kill);
            processes.iter().any(refuses)
        });
        let named = named.map(|one| blocked(one));
        let mut buffer = [0; PROCS_MAX];
        let moved = state.homes.iter().find_map(|home| {
            let text = home.procs.as_ref()?.read(&mut buffer).ok()?;
            let inside = |pid: i32| processes.iter().find(|id| id.pid == pid);
            let process = pids_in(text).find_map(inside)?;
            Some(Blocked {
                process: *process,
                why: home.why,
            })
        });
        note(&mut state, Harm::Kill, named.or(moved))
    }

    /// The processes of the topmost app.
    pub fn topmost(&self) -> Vec<ProcessId> {
        let state = self.state();
        let all = state.watched.iter().map(|one| &one.guarded);
        let topmost = all.filter(|one| one.why == Why::Topmost);
        topmost.map(|one| one.process).collect()
    }

    /// How many actions were refused since the daemon started, and the last of them.
    pub fn refusals(&self) -> (u64, Option<(Harm, Blocked)>) {
        let state = self.state();
        (state.refusals, state.last)
    }

    /// How many processes are protected.
    pub fn len(&self) -> usize {
        self.state().watched.len()
    }

    /// Whether no process is protected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Drops processes of the topmost app so that up to [`OTHERS_MAX`] others fit into the list: a user
/// decides how many processes the app has.
fn within_limit(mut wanted: Vec<Wanted>) -> Vec<Wanted> {
    let of_topmost = |(_, _, why): &Wanted| *why == Why::Topmost;
    let others = wanted.iter().filter(|one| !of_topmost(one)).count();
    let mut room = GUARDED_MAX - others.min(OTHERS_MAX);
    wanted.retain(|one| {
        let stays = !of_topmost(one) || room > 0;
        room = room.saturating_sub(usize::from(of_topmost(one)));
        stays
    });
    wanted
}

fn blocked(one: &Watched) -> Blocked {
    Blocked {
        process: one.guarded.process,
        why: one.guarded.why,
    }
}

fn note(state: &mut State, harm: Harm, blocked: Option<Blocked>) -> Option<Blocked> {
    if let Some(blocked) = blocked {
        state.refusals = state.refusals.saturating_add(1);
        state.last = Some((harm, blocked));
    }
    blocked
}

/// Opens a process's `cgroup` file; `None` if the process has ended. Without a free descriptor that
/// is unknown. The process then counts as running, where it was according to `last`, its last entry.
fn watch(system: &System, (process, app, why): Wanted, last: Option<&Watched>) -> Option<Watched> {
    let file = system.living(process).and_then(|found| {
        let file = found.map(|process| PersistentFile::open(process.dir(), "cgroup"));
        file.transpose()
    });
    let (path, cgroup) = match file {
        Ok(None) => return None,
        Ok(Some(file)) => {
            let mut buffer = [0; TEXT_MAX];
            // The kernel allocates a file's buffer at the first read, so the first read happens
            // here.
            let text = file.read(&mut buffer).ok();
            let path = text.and_then(path_in).unwrap_or_default();
            (path.to_owned(), Place::Open(Arc::new(file)))
        }
        Err(error) if error.is_exhausted() => match last {
            Some(last) => (last.guarded.cgroup.clone(), last.cgroup.clone()),
            None => (String::new(), Place::Unknown),
        },
        Err(_) => (String::new(), Place::Missing),
    };
    Some(Watched {
        guarded: Guarded {
            process,
            cgroup: path,
            app,
            why,
        },
        cgroup,
    })
}

#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
