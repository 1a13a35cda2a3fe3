// SPDX-License-Identifier: GPL-2.0-or-later
//! Scan of the apps: which ones run, their owners, classes and uses.
//!
//! A scan costs a few system calls for each process of each app. A scan is made only after an
//! event, during a memory shortage, or for a request. Its results stay fresh for [`LOOK_EVERY`],
//! unless a change makes them stale earlier.

pub mod desktop;
mod sight;
mod untouchable;
mod uses;
pub(crate) mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use limelight_core::model::apps::{AppMemory, Found, Use};
use limelight_core::model::class::{Class, Classes, Identity, Reasoned};
use limelight_core::model::unit::{self, Starter, Unit};
use limelight_core::model::{App, AppKey, ProcessId};
use limelight_sys::cgroup::Cgroup;
use limelight_sys::clock;
use limelight_sys::process::Process;

use crate::reconcile::gate::collect::TAB;
use crate::reconcile::gate::session::{runs_installed, use_of};
use crate::system::System;

use crate::sources::display_servers::ServingProcesses;
use crate::sources::services::charged;

use self::desktop::{Desktop, Entry};
use self::sight::Sighted;
use self::untouchable::{limit_named, Untouchable};
use self::walk::Places;

/// Time after which the last scan is stale. Until then no scan is made, unless a change makes one
/// due.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The environment variable and the cgroup attribute by which an app asks for a class.
const ASKS_VARIABLE: &str = "LIMELIGHT_CLASS";
const ASKS_ATTRIBUTE: &str = "user.limelight.class";

/// Properties of an app that are fixed while its main process runs the same program.
#[derive(Debug)]
struct Details {
    /// The process that stands for the app.
    main: ProcessId,
    /// A change of this name reveals that the process runs another program.
    comm: String,
    uid: u32,
    name: String,
    identity: Identity,
    /// The class that its environment asks for.
    variable: Option<Class>,
    /// Why the app is never touched: it is a system service, or exempt from OOM kills.
    untouchable: Option<String>,
    /// Why the app is not touched, judged only by its unit's name. Any user can choose a unit's
    /// name, so such names exempt only a limited amount of memory.
    named: Option<String>,
}

/// A class set by request while the app runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Override {
    /// The class.
    pub class: Class,
    /// The user that set it.
    pub uid: u32,
}

/// Finds the running apps and describes them.
#[derive(Debug)]
pub struct AppsSource {
    classes: Classes,
    desktop: Desktop,
    /// Apps that have been topmost.
    fronts: BTreeMap<AppKey, App>,
    details: BTreeMap<AppKey, Details>,
    overrides: BTreeMap<AppKey, Override>,
    places: Places,
    servers: ServingProcesses,
    looked_at: Option<Duration>,
}

impl AppsSource {
    /// A source that has not scanned yet.
    pub fn new(system: &System, classes: Classes) -> AppsSource {
        AppsSource {
            classes,
            desktop: Desktop::new(&system.roots.data),
            fronts: BTreeMap::new(),
            details: BTreeMap::new(),
            overrides: BTreeMap::new(),
            places: Places::default(),
            servers: ServingProcesses::default(),
            looked_at: None,
        }
    }

    /// Replaces the rules and categories.
    pub fn set_classes(&mut self, classes: Classes) {
        self.classes = classes;
        self.looked_at = None;
    }

    /// Records that an app is topmost: it stays known as long as it lives, and does not count as a
    /// service.
    pub fn was_topmost(&mut self, app: &App) {
        if self.fronts.insert(app.key, app.clone()).is_none() {
            self.details.remove(&app.key);
            self.looked_at = None;
        }
    }

    /// Sets a class for as long as the app lives, or removes it.
    pub fn set_override(&mut self, key: AppKey, class: Option<Override>) {
        match class {
            Some(class) => _ = self.overrides.insert(key, class),
            None => _ = self.overrides.remove(&key),
        }
        self.looked_at = None;
    }

    /// The class that was set for an app.
    pub fn override_of(&self, key: AppKey) -> Option<Override> {
        self.overrides.get(&key).copied()
    }

    /// The properties of an app that its class depends on; `None` if the last scan did not find the
    /// app.
    pub fn identity(&self, key: AppKey) -> Option<&Identity> {
        Some(&self.details.get(&key)?.identity)
    }

    /// The class of an app without the override.
    pub fn given_class(&self, key: AppKey) -> Option<Reasoned> {
        Some(self.classes.of(self.identity(key)?))
    }

    /// The class of an app that consists only of a new unit so far. `path` is the unit's path below
    /// the cgroup v2 mount point.
    pub fn class_of_unit(&mut self, path: &str) -> Reasoned {
        self.desktop.refresh();
        let unit = path.rsplit('/').next().and_then(unit::parse);
        let entry = unit.as_ref().and_then(|unit| self.desktop.of_unit(unit));
        let identity = identity(&self.desktop, unit.as_ref(), entry, Some(path.to_owned()));
        self.classes.of(&identity)
    }

    /// Cgroups in which new apps may appear, as of the last scan.
    pub fn nests(&self) -> &BTreeSet<String> {
        &self.places.nests
    }

    /// When the last scan becomes stale.
    pub fn due_at(&self) -> Duration {
        self.looked_at.map_or(Duration::ZERO, |at| at + LOOK_EVERY)
    }

    /// Whether the last scan is stale.
    pub fn is_due(&self, now: Duration) -> bool {
        !self.looked_within(LOOK_EVERY, now)
    }

    /// Whether the last scan is more recent than `time`.
    pub fn looked_within(&self, time: Duration, now: Duration) -> bool {
        self.looked_at
            .is_some_and(|then| now.saturating_sub(then) < time)
    }

    /// Makes a scan due at once.
    pub fn forget_look(&mut self) {
        self.looked_at = None;
    }

    /// Scans all apps. `helpers` are the names of programs that serve the topmost app; `announced`
    /// are the processes whose use was reported. After an error the results of the previous scan
    /// remain.
    pub fn look(
        &mut self,
        system: &System,
        helpers: &[String],
        announced: &[(ProcessId, Use)],
        now: Duration,
    ) -> limelight_sys::Result<Vec<Found>> {
        self.looked_at = Some(now);
        let sighted = sight::all(system, self.fronts.values(), &mut self.places)?;
        self.desktop.refresh();
        let alive: BTreeSet<AppKey> = sighted.iter().map(|app| app.key).collect();
        self.fronts.retain(|key, _| alive.contains(key));
        self.details.retain(|key, _| alive.contains(key));
        self.overrides.retain(|key, _| alive.contains(key));
        for app in &sighted {
            self.describe(system, app);
        }
        let mut in_use: Vec<(i32, Use)> = uses::inhibitors(&system.roots.inhibit);
        in_use.extend(uses::sounding(&system.proc));
        let servers = self.servers.refresh(system).clone();
        let untouchable = Untouchable::new(system, helpers, servers);
        let mut by_name = BTreeSet::new();
        let found = sighted.iter().filter_map(|app| {
            let told = announced.iter().filter(|(id, _)| app.has(*id));
            let seen = in_use.iter().filter(|(pid, _)| app.has_pid(*pid));
            let told = told.map(|(_, what)| *what);
            let runs = app.members.iter().filter_map(|member| {
                let what = use_of(&member.comm)?;
                runs_installed(system, member.id, &member.comm).then_some(what)
            });
            let seen = seen.map(|(_, what)| *what);
            let mut uses: Vec<Use> = told.chain(seen).chain(runs).collect();
            uses.sort_unstable();
            uses.dedup();
            let never = !self.fronts.contains_key(&app.key);
            let details = self.details.get(&app.key);
            let uid = details.map(|details| details.uid);
            let locked = || {
                uid.filter(|_| never)
                    .and_then(|uid| untouchable.why_locked(uid))
            };
            let why = untouchable.why(system, app).or_else(locked);
            let named =
                |details: &Details| details.untouchable.is_none() && details.named.is_some();
            if why.is_none() && details.is_some_and(named) {
                by_name.insert(app.key);
            }
            let part_of = whole(system, app, &sighted);
            Some(Found {
                part_of,
                ..self.found(system, app, uses, why)?
            })
        });
        let mut found: Vec<Found> = found.collect();
        limit_named(system, &mut found, &by_name);
        Ok(found)
    }

    /// Examines one app that has just become topmost, and no other app. `None` if it has ended or
    /// has no cgroup of its own. The topmost app is in use and is not touched, so its other uses
    /// and exemptions can wait for the next scan.
    pub fn meet(&mut self, system: &System, app: &App) -> Option<Found> {
        let app = sight::one(system, app).ok()??;
        self.describe(system, &app);
        self.found(system, &app, Vec::new(), None)
    }

    fn found(
        &self,
        system: &System,
        app: &Sighted,
        uses: Vec<Use>,
        untouchable: Option<String>,
    ) -> Option<Found> {
        let details = self.details.get(&app.key)?;
        Some(Found {
            app: App {
                key: app.key,
                name: details.name.clone(),
                process: Some(details.main),
                home: app.home.clone(),
            },
            uid: details.uid,
            started: clock::ticks(details.main.starttime),
            class: self.class(app, &details.identity),
            uses,
            untouchable: untouchable
                .or_else(|| details.untouchable.clone())
                .or_else(|| details.named.clone()),
            part_of: None,
            memory: memory(system, app),
            cpu: clock::ticks(app.members.iter().map(|member| member.cpu_ticks).sum()),
            members: app.members.iter().map(|member| member.id).collect(),
        })
    }

    fn class(&self, app: &Sighted, identity: &Identity) -> Reasoned {
        let given = self.classes.of(identity);
        match self.overrides.get(&app.key) {
            None => given,
            // Rules or the app's own request may have lowered the given class since the override
            // was set.
            Some(set) if set.uid != 0 && set.class >= given.class => given,
            Some(set) => Reasoned {
                class: set.class,
                why: format!(
                    "uid {} set it (limelight class set); otherwise {}: {}",
                    set.uid, given.class, given.why
                ),
            },
        }
    }

    /// Updates what is known of an app, and the class that it asks for.
    fn describe(&mut self, system: &System, app: &Sighted) {
        self.learn(system, app);
        if let Some(details) = self.details.get_mut(&app.key) {
            details.identity.asks = asks(app.group(system).as_ref(), details.variable);
        }
    }

    /// Identifies an app if it is new or runs another program.
    fn learn(&mut self, system: &System, app: &Sighted) {
        let Some(main) = app.main() else {
            return;
        };
        let known = self.details.get(&app.key);
        if known.is_some_and(|known| known.main == main.id && known.comm == main.comm) {
            return;
        }
        let Some(process) = system.same_process(main.id) else {
            return;
        };
        let Ok(status) = process.status() else {
            return;
        };
        let unit = app.unit_name().and_then(unit::parse);
        let executable = executable(&process);
        let entry = self
            .desktop
            .find(unit.as_ref(), executable.as_deref(), &main.comm);
        let shown = entry.filter(|entry| !entry.name.is_empty());
        let name = shown.map(|entry| entry.name.clone());
        let cgroup = app.home.as_ref().map(|home| home.path.clone());
        let identity = Identity {
            package: package(&process, executable.as_deref()),
            executable,
            ..identity(&self.desktop, unit.as_ref(), entry, cgroup)
        };
        let name = name
            .or_else(|| identity.desktop_id.clone())
            .or_else(|| identity.package.clone())
            .unwrap_or_else(|| main.comm.clone());
        let in_menu = entry.is_some_and(|entry| !entry.hidden);
        let was_front = self.fronts.contains_key(&app.key);
        let of_system = !was_front && is_of_system(app);
        let named = unit.as_ref().filter(|_| !was_front && !in_menu);
        let details = Details {
            main: main.id,
            comm: main.comm.clone(),
            uid: status.real_uid,
            name,
            identity,
            variable: variable(&process),
            untouchable: of_system
                .then(|| "it is a system service".to_owned())
                .or_else(|| exempt(&process)),
            named: named.and_then(service),
        };
        self.details.insert(app.key, details);
    }
}

/// The terminal app that has this app in one of its tabs: the tab's main process is a child of the
/// terminal.
fn whole(system: &System, app: &Sighted, all: &[Sighted]) -> Option<AppKey> {
    app.unit_name().filter(|name| name.starts_with(TAB))?;
    let main = app.main()?;
    let parent = system.same_process(main.id)?.stat().ok()?.ppid;
    let whole = all.iter().find(|other| other.has_pid(parent))?;
    (whole.key != app.key).then_some(whole.key)
}

/// Identity of an app, from its unit and its desktop entry.
fn identity(
    desktop: &Desktop,
    unit: Option<&Unit>,
    entry: Option<&Entry>,
    cgroup: Option<String>,
) -> Identity {
    let first_id = unit.and_then(|unit| unit.ids.first()).cloned();
    let desktop_id = entry.map(|entry| entry.id.clone()).or(first_id);
    let mut categories = entry.map_or_else(Vec::new, |entry| entry.categories.clone());
    if let Some(id) = &desktop_id {
        categories.extend(desktop.appstream_categories(id));
    }
    Identity {
        desktop_id,
        cgroup,
        categories,
        ..Identity::default()
    }
}

/// Whether root's service manager started the app: only root makes units in `/system.slice`.
fn is_of_system(app: &Sighted) -> bool {
    let home = app.home.as_ref();
    home.is_some_and(|home| home.path.starts_with("/system.slice/"))
}

/// Why a unit without a menu entry counts as a service of the session (a settings daemon, a key
/// ring), not as an app that a person started. Only the unit's name is considered.
fn service(unit: &Unit) -> Option<String> {
    let by = match unit.starter {
        Starter::Autostart => "it was started with the session",
        Starter::Bus => "it was started by the message bus",
        Starter::Launcher | Starter::Other => return None,
    };
    Some(format!("{by} and is in no menu: a session service"))
}

/// Why a process is exempt: the kernel's OOM killer may not kill it either.
fn exempt(process: &Process) -> Option<String> {
    let exempt = process.oom_score_adj().is_ok_and(|score| score == -1000);
    exempt.then(|| "its oom_score_adj is -1000".to_owned())
}

fn executable(process: &Process) -> Option<String> {
    let (_, path) = process.program().ok()?;
    let path = path.to_string_lossy().into_owned();
    Some(
        path.strip_suffix(" (deleted)")
            .map_or(path.clone(), str::to_owned),
    )
}

/// The package of an Android app. The app runs in a copy of the zygote, which takes the package's
/// name.
fn package(process: &Process, executable: Option<&str>) -> Option<String> {
    let zygote = executable?.rsplit('/').next()?.starts_with("app_process");
    let name = process
        .cmdline()
        .ok()
        .filter(|_| zygote)?
        .into_iter()
        .next()?;
    // Android services run in processes of their own: `PACKAGE:SERVICE`.
    let package = name.split(':').next()?.to_owned();
    (package.contains('.') && !package.contains('/')).then_some(package)
}

/// The class that an app asks for, and how. The attribute of its cgroup, which may change, takes
/// precedence over its environment.
fn asks(group: Option<&Cgroup>, variable: Option<Class>) -> Option<(Class, String)> {
    let attribute = group.and_then(|group| group.attribute(ASKS_ATTRIBUTE));
    let attribute = attribute.and_then(|text| word(&text));
    let attribute = attribute.map(|class| (class, ASKS_ATTRIBUTE));
    let (class, how) = attribute.or(variable.map(|class| (class, ASKS_VARIABLE)))?;
    Some((class, how.to_owned()))
}

/// The class that the process's environment asks for.
fn variable(process: &Process) -> Option<Class> {
    word(&process.environment(ASKS_VARIABLE).ok()??)
}

/// The class that a word names; `None` if it names no class.
fn word(text: &str) -> Option<Class> {
    text.trim().parse().ok()
}

/// Memory of an app: of its own cgroup if it has one, else the sum over its processes. The sum
/// counts shared pages once per process.
fn memory(system: &System, app: &Sighted) -> AppMemory {
    let by_group = app.group(system).as_ref().and_then(charged);
    by_group.unwrap_or_else(|| {
        let mut sum = AppMemory::default();
        for member in &app.members {
            let process = system.same_process(member.id);
            let Some(status) = process.and_then(|process| process.status().ok()) else {
                continue;
            };
            let anonymous = status.rss_anon_bytes.unwrap_or(0);
            sum.anonymous = sum.anonymous.saturating_add(anonymous);
            sum.resident = sum
                .resident
                .saturating_add(anonymous)
                .saturating_add(status.rss_file_bytes.unwrap_or(0));
            sum.swapped = sum.swapped.saturating_add(status.swap_bytes.unwrap_or(0));
        }
        sum
    })
}

#[cfg(test)]
#[path = "apps_tests.rs"]
mod tests;
