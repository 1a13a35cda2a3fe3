// SPDX-License-Identifier: GPL-2.0-or-later
//! Scan of the apps: which ones run, their owners, classes and uses.
//!
//! A scan costs a few system calls for each process of each app. A scan is made only after an
//! event, during a memory shortage, or for a request. Its results stay fresh for [`LOOK_EVERY`],
//! unless a change makes them stale earlier.

pub mod desktop;
mod exceptions;
mod properties;
pub mod saved;
mod sight;
mod untouchable;
mod uses;
pub(crate) mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use limelight_core::model::apps::{AppMemory, Found, Use};
use limelight_core::model::class::{Class, Classes, Identity, Reasoned};
use limelight_core::model::never::{Exceptions, Rules};
use limelight_core::model::unit;
use limelight_core::model::{App, AppKey, ProcessId};
use limelight_sys::clock;

use crate::reconcile::gate::collect::TAB;
use crate::reconcile::gate::session::{runs_installed, use_of};
use crate::system::System;

use crate::sources::display_servers::ServingProcesses;
use crate::sources::services::charged;

use self::desktop::Desktop;
use self::exceptions::AllRules;
use self::properties::{
    asks, executable, exempt, identity, is_of_system, oom_preference, package, service, variable,
    OomPreference,
};
use self::saved::{NotSaved, Saved};
use self::sight::{Member, Sighted};
use self::untouchable::{limit_named, Untouchable};
use self::walk::Places;

/// Time after which the last scan is stale. Until then no scan is made, unless a change makes one
/// due.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    /// What Limelight never does for or to it.
    exceptions: Exceptions,
    /// What its unit asks of systemd-oomd, as of the last scan.
    oom_preference: OomPreference,
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
    rules: AllRules,
    desktop: Desktop,
    /// Apps that have been topmost.
    fronts: BTreeMap<AppKey, App>,
    details: BTreeMap<AppKey, Details>,
    overrides: BTreeMap<AppKey, Override>,
    saved: Saved,
    places: Places,
    servers: ServingProcesses,
    looked_at: Option<Duration>,
}

/// Which apps a change of a user's exceptions concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affected {
    /// None: the exceptions are the same as before.
    Nothing,
    /// Apps that no scan has found yet, at most.
    AppsToCome,
    /// Apps that the last scan found.
    KnownApps,
}

impl AppsSource {
    /// A source that has not scanned yet.
    pub fn new(system: &System, classes: Classes) -> AppsSource {
        AppsSource {
            classes,
            rules: AllRules::default(),
            desktop: Desktop::new(&system.roots.data),
            fronts: BTreeMap::new(),
            details: BTreeMap::new(),
            overrides: BTreeMap::new(),
            saved: Saved::default(),
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

    /// Replaces the administrator's exceptions.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules.set_system(rules);
        self.renew_exceptions();
    }

    /// Replaces the exceptions that a user's connection has sent.
    pub fn set_user_rules(&mut self, client: u64, uid: u32, rules: Rules) -> Affected {
        match self.rules.set_user(client, uid, rules) {
            true => self.renew_exceptions(),
            false => Affected::Nothing,
        }
    }

    /// Drops the exceptions that a closed connection has sent.
    pub fn release_rules(&mut self, client: u64) -> Affected {
        match self.rules.release(client) {
            true => self.renew_exceptions(),
            false => Affected::Nothing,
        }
    }

    fn renew_exceptions(&mut self) -> Affected {
        let mut affected = Affected::AppsToCome;
        for details in self.details.values_mut() {
            let exceptions = self.rules.of(&details.identity, details.uid);
            if exceptions != details.exceptions {
                details.exceptions = exceptions;
                self.looked_at = None;
                affected = Affected::KnownApps;
            }
        }
        affected
    }

    /// Whether a scan has found this app.
    pub fn knows(&self, key: AppKey) -> bool {
        self.details.contains_key(&key)
    }

    /// The exceptions of an app that is in the foreground or starts; `members`: its processes. No
    /// scan need have found the app.
    pub fn exceptions_of(
        &mut self,
        system: &System,
        app: &App,
        members: &[ProcessId],
    ) -> Exceptions {
        if self.rules.is_empty() {
            return Exceptions::default();
        }
        if let Some(details) = self.details.get(&app.key) {
            return details.exceptions.clone();
        }
        self.desktop.refresh();
        let details = sight::by_main(system, app, members).and_then(|app| self.learn(system, &app));
        details.map_or_else(Exceptions::default, |details| details.exceptions)
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

    /// Reads the saved classes in this directory, and keeps them there; `None`: saves none.
    pub fn keep_in(&mut self, directory: Option<&Path>) {
        self.saved = Saved::open(directory);
        self.looked_at = None;
    }

    /// Saves a user's class for an app and for its later starts, or withdraws it.
    ///
    /// # Errors
    ///
    /// Nothing is saved.
    pub fn save_class(
        &mut self,
        key: AppKey,
        uid: u32,
        class: Option<Class>,
    ) -> Result<(), NotSaved> {
        let details = self.details.get(&key).ok_or(NotSaved::Nameless)?;
        self.saved.set(uid, &details.identity, class)?;
        self.looked_at = None;
        Ok(())
    }

    /// The user whose saved class applies to an app, if there is one.
    pub fn saved_by(&self, key: AppKey) -> Option<u32> {
        let details = self.details.get(&key)?;
        let (_, uid) = self.saved.of(&details.identity, details.uid)?;
        Some(uid)
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

    /// The class of an app without the override and without a saved class.
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
        let given = self.classes.of(&identity);
        // The unit's owner is not known yet, and its program neither.
        match self.saved.of(&identity, 0) {
            Some(saved) => with_saved(given, Some(saved)),
            None => given,
        }
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
            class: self.class(app, details),
            uses,
            untouchable: untouchable
                .or_else(|| details.untouchable.clone())
                .or_else(|| details.named.clone()),
            exceptions: details
                .exceptions
                .clone()
                .or(details.oom_preference.omit.clone()),
            avoid: details.oom_preference.avoid.clone(),
            part_of: None,
            memory: memory(system, app),
            cpu: clock::ticks(app.members.iter().map(|member| member.cpu_ticks).sum()),
            members: app.members.iter().map(|member| member.id).collect(),
        })
    }

    fn class(&self, app: &Sighted, details: &Details) -> Reasoned {
        let given = self.classes.of(&details.identity);
        let saved = self.saved.of(&details.identity, details.uid);
        match self.overrides.get(&app.key) {
            None => with_saved(given, saved),
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

    /// Updates what is known of an app, the class that it asks for, and what its unit asks of
    /// systemd-oomd.
    fn describe(&mut self, system: &System, app: &Sighted) {
        let known = self.details.get(&app.key);
        let same = |main: &Member| {
            known.is_some_and(|known| known.main == main.id && known.comm == main.comm)
        };
        if !app.main().is_some_and(same) {
            if let Some(details) = self.learn(system, app) {
                self.details.insert(app.key, details);
            }
        }
        if let Some(details) = self.details.get_mut(&app.key) {
            let group = app.shared_group(system);
            let own = group.as_ref().filter(|_| app.has_group);
            details.identity.asks = asks(own, details.variable);
            details.oom_preference = oom_preference(group.as_ref(), details.uid);
        }
    }

    /// Identifies an app that is new or runs another program; `None` if it has ended.
    fn learn(&self, system: &System, app: &Sighted) -> Option<Details> {
        let main = app.main()?;
        let process = system.same_process(main.id)?;
        let status = process.status().ok()?;
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
        Some(Details {
            main: main.id,
            comm: main.comm.clone(),
            uid: status.real_uid,
            name,
            exceptions: self.rules.of(&identity, status.real_uid),
            oom_preference: OomPreference::default(),
            identity,
            variable: variable(&process),
            untouchable: of_system
                .then(|| "it is a system service".to_owned())
                .or_else(|| exempt(&process)),
            named: named.and_then(service),
        })
    }
}

/// The class of an app for which a user has saved one. Root's replaces the given class; the app's
/// owner can only lower it.
fn with_saved(given: Reasoned, saved: Option<(Class, u32)>) -> Reasoned {
    match saved {
        Some((class, uid)) if uid == 0 || class < given.class => Reasoned {
            class,
            why: format!(
                "uid {uid} saved it (limelight class set --save); otherwise {}: {}",
                given.class, given.why
            ),
        },
        _ => given,
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
