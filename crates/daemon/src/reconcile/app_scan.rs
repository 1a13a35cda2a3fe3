// SPDX-License-Identifier: GPL-2.0-or-later
//! Scans of the apps: when they are due, and what the last one found.

use std::path::Path;
use std::time::Duration;

use limelight_core::model::apps::Known;
use limelight_core::model::never::Rules;
use limelight_core::model::shortage::{derive_thresholds, Level, Thresholds};
use limelight_core::model::{App, AppKey};
use limelight_core::policy::swap::culprit::{self, Culprit};
use limelight_core::policy::{swap, Event};
use limelight_core::settings::SwapSettings;
use limelight_proto::MemoryAction;
use limelight_sys::watermarks::Watermarks;
use tracing::{debug, warn};

use crate::config::Config;
use crate::mechanisms::swap::swapper::Errand;
use crate::mechanisms::swap::MemoryNotice;
use crate::reconcile::announced::Announced;
use crate::reconcile::history::Note;
use crate::reconcile::loading::Loading;
use crate::reconcile::scope::Scope;
use crate::reconcile::{Model, Reconciler};
use crate::sources::apps::{Affected, AppsSource, LOOK_EVERY};
use crate::sources::new_units::NewUnits;
use crate::sources::oom::{OomKills, Seen};
use crate::sources::pressure;
use crate::sources::services::{self, ServiceGrowth};
use crate::sources::storage::StorageSource;
use crate::system::{identify, now, System};

/// An app that has been in the foreground this long counts as having responded, unless a response
/// window is open. Until then, the daemon postpones its work on the other apps.
pub(super) const SETTLED: Duration = Duration::from_millis(750);

/// Scan intervals while memory is short, and while apps may have to be killed.
const SHORT: Duration = Duration::from_secs(2);
const VERY_SHORT: Duration = Duration::from_millis(500);

/// While the user waits for the topmost app, a scan that is due is retried after this time, and
/// postponed by this time at most.
const RETRY: Duration = Duration::from_millis(250);
const POSTPONED_MOST: Duration = Duration::from_secs(1);

/// Shortest time between two scans for requests that name an app missing from the last scan. The
/// limit is needed because any user may send such requests.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Delay between the creation of a unit and the scan for it. A new unit gets its first process a
/// moment later.
const UNIT_FILLS: Duration = Duration::from_millis(50);

/// State of the app scans.
#[derive(Debug)]
pub struct AppScan {
    /// Finds apps.
    pub source: AppsSource,
    /// Reports new app units.
    pub new_units: NewUnits,
    /// Processes that were announced as in use.
    pub announced: Announced,
    /// The swap storage.
    pub storage: StorageSource,
    /// Growth of services: cgroups that are not apps.
    pub services: ServiceGrowth,
    oom_kills: OomKills,
    /// The topmost app at its last change.
    front: Option<App>,
    /// Whether the topmost app was settled at the last scan.
    settled: bool,
    loading: Loading,
    previous: Option<(AppKey, Duration)>,
    /// When the next scan is due.
    next_look: Option<Duration>,
    /// Since when the scan has been postponed.
    postponed: Option<Duration>,
    /// Whether the topmost app is missing from the last scan, so that the next one is urgent.
    unknown: bool,
    /// Pages swapped out since boot, as of the last scan.
    swapped_out: u64,
}

impl AppScan {
    /// Creates the state before the first scan. `state`: the directory of saved classes; `None`:
    /// none is read or saved.
    pub fn new(system: &System, config: &Config, state: Option<&Path>) -> AppScan {
        let mut source = AppsSource::new(system, config.classes.clone());
        source.set_rules(config.never.clone());
        source.keep_in(state);
        AppScan {
            source,
            new_units: NewUnits::new(),
            announced: Announced::default(),
            storage: StorageSource::default(),
            services: ServiceGrowth::default(),
            oom_kills: OomKills::default(),
            front: None,
            settled: false,
            loading: Loading::default(),
            previous: None,
            next_look: None,
            postponed: None,
            unknown: false,
            swapped_out: 0,
        }
    }

    /// The app that was topmost before, and when it left the foreground.
    pub fn previous(&self) -> Option<(AppKey, Duration)> {
        self.previous
    }

    /// Whether the topmost app still reads its memory from the disk.
    pub fn is_loading(&self, app: AppKey, at: Duration) -> bool {
        self.loading.is_loading(app, at)
    }

    /// Requests a scan at this time or earlier.
    pub fn look_by(&mut self, at: Duration) {
        self.next_look = Some(self.next_look.map_or(at, |next| next.min(at)));
    }

    /// When the next scan is due.
    pub fn next_look(&self) -> Option<Duration> {
        self.next_look
    }
}

/// The configured thresholds. A threshold that is not configured is derived from the machine.
pub fn thresholds(system: &System, settings: &SwapSettings, total: u64) -> Thresholds {
    // With fragmented memory the kernel raises its watermarks for a while, so the thresholds
    // include the largest such boost.
    let high = Watermarks::read(&system.proc).map_or(0, |marks| marks.most_high_bytes());
    let needed = derive_thresholds(total, high);
    let percent = |percent: u8, otherwise: u64| match percent {
        0 => otherwise,
        percent => total / 100 * u64::from(percent),
    };
    let kill = percent(settings.kill_percent, needed.kill);
    Thresholds {
        kill,
        swap: percent(settings.swap_percent, needed.swap).max(kill),
        ..needed
    }
}

impl Reconciler {
    /// Starts the threads of `swap`.
    pub fn start_swap(&mut self) {
        if self.dry_run {
            return;
        }
        let thresholds = self.thresholds();
        let gate = &self.mechanisms.shared.gate;
        self.mechanisms.swap.start(&self.system, gate, thresholds);
        self.set_grace();
        // The first scan also starts the watch for new app units.
        self.scan.look_by(now());
    }

    /// Applies a reloaded configuration.
    pub(super) fn configure_swap(&mut self) {
        self.scan.source.set_classes(self.config.classes.clone());
        self.scan.source.set_rules(self.config.never.clone());
        self.scan.next_look = Some(now());
        if let Some(guard) = &self.mechanisms.swap.guard {
            guard.set_thresholds(self.thresholds());
        }
        self.set_grace();
    }

    /// Puts the exceptions in force that a user's connection has sent.
    pub(crate) fn set_user_rules(&mut self, client: u64, uid: u32, rules: Rules) {
        let affected = self.scan.source.set_user_rules(client, uid, rules);
        self.apply_rules(affected);
    }

    /// Drops the exceptions that a closed connection has sent.
    pub(super) fn release_user_rules(&mut self, client: u64) {
        let affected = self.scan.source.release_rules(client);
        self.apply_rules(affected);
    }

    /// Acts on changed exceptions: for the foreground app at once, for other apps at the next scan.
    /// Any user may send exceptions as often as the rate limit allows, so exceptions that concern no
    /// app cause no plan.
    fn apply_rules(&mut self, affected: Affected) {
        let front = self.model.topmost.front();
        let is_new = front.is_some_and(|front| !self.scan.source.knows(front.app.key));
        let to_come = is_new || self.model.starting.is_some();
        match affected {
            Affected::KnownApps => {}
            Affected::AppsToCome if to_come => {}
            Affected::AppsToCome | Affected::Nothing => return,
        }
        self.scan.next_look = Some(now());
        self.reconcile(Scope::All(Event::Settings));
    }

    fn set_grace(&self) {
        if let Some(guard) = &self.mechanisms.swap.guard {
            guard.set_grace(self.config.settings.swap.grace);
        }
    }

    fn thresholds(&self) -> Thresholds {
        let total = pressure::memory_now(&self.system).usable();
        thresholds(&self.system, &self.config.settings.swap, total)
    }

    /// Handles a change of the topmost app.
    pub(super) fn note_front(&mut self) {
        let at = now();
        let front = self.model.topmost.front().map(|front| front.app.clone());
        let before = self.scan.front.take();
        let key = |app: &Option<App>| app.as_ref().map(|app| app.key);
        if key(&before) != key(&front) {
            self.scan.settled = false;
            if let Some(before) = before {
                self.scan.previous = Some((before.key, at));
                let swap = &mut self.mechanisms.swap;
                swap.left_front(&mut self.mechanisms.shared, before.key);
            }
        }
        // Whether the app may be swapped out at all must be known before it takes memory.
        let stranger = front.as_ref().filter(|app| {
            self.config.settings.swap.enabled && self.model.apps.get(app.key).is_none()
        });
        let met = stranger.and_then(|app| self.scan.source.meet(&self.system, app));
        let unknown = stranger.is_some() && met.is_none();
        if let Some(found) = met {
            self.model.apps.meet(found, at);
        }
        if unknown {
            self.scan.source.forget_look();
        }
        self.scan.unknown = unknown;
        self.sample_loading(at);
        self.scan.next_look = Some(if unknown { at } else { at + SETTLED });
        self.scan.front = front;
    }

    /// Scans the apps if a scan is due. Returns whether one was due.
    pub(super) fn look_at_apps_if_due(&mut self, at: Duration) -> bool {
        let due = self.scan.next_look.is_some_and(|next| next <= at);
        if due {
            self.sample_loading(at);
        }
        let due = due && !self.postpones_look(at);
        if due {
            self.look_for_swap(at);
        }
        due
    }

    fn sample_loading(&mut self, at: Duration) {
        if let Some(front) = self.model.topmost.front() {
            let faults = identify::major_faults(&self.system, &front.app);
            self.scan.loading.sample(front.app.key, at, faults);
        }
    }

    /// Postpones the scan that is due if the user waits for the topmost app, because a scan reads
    /// files of all apps. Not while an app may have to be killed or thawed.
    fn postpones_look(&mut self, at: Duration) -> bool {
        let swapping = &self.mechanisms.shared.in_force.swapping;
        let urgent = self.scan.unknown
            || !swapping.frozen.is_empty()
            || self.mechanisms.swap.shortage().level() >= Level::Kill;
        let since = *self.scan.postponed.get_or_insert(at);
        let late = at.saturating_sub(since) >= POSTPONED_MOST;
        if urgent || late || self.is_settled(at) {
            self.scan.postponed = None;
            return false;
        }
        self.scan.next_look = Some(at + RETRY);
        true
    }

    fn look_for_swap(&mut self, at: Duration) {
        if !self.config.settings.swap.enabled {
            self.scan.next_look = None;
            return;
        }
        let settled = self.is_settled(at);
        if settled && !std::mem::replace(&mut self.scan.settled, settled) {
            if let Some(front) = self.model.topmost.front() {
                let app = front.app.key;
                self.mechanisms.swap.ask(Errand::Learn { app });
            }
        }
        // If a request caused a scan a moment ago, the scan below is skipped, and another one
        // follows.
        let fresh = !self.scan.source.is_due(at);
        self.scan.unknown = false;
        // Cleared before the scan, because the scan may request another one.
        self.scan.next_look = None;
        self.look_at_apps();
        let short = match self.mechanisms.swap.shortage().level() {
            Level::Plenty => None,
            level if level < Level::Kill => Some(at + SHORT),
            _ => Some(at + VERY_SHORT),
        };
        // After the topmost app settles, memory is freed for the next app.
        let settles = (!settled || fresh).then_some(at + SETTLED);
        let swapping = &self.mechanisms.shared.in_force.swapping;
        let told = swapping
            .asked
            .is_some_and(|(level, _)| level > Level::Plenty);
        // When the shortage ends, frozen apps must thaw and clients get a notice.
        let over = self.mechanisms.swap.shortage().since() + swap::CALM;
        let in_force = !swapping.frozen.is_empty() || !swapping.throttled.is_empty();
        let ends = (told || in_force) && short.is_none();
        let ends = ends.then_some(over.max(at + SHORT));
        let expected = self.mechanisms.swap.pending_units.until();
        for by in [short, settles, ends, expected].into_iter().flatten() {
            self.scan.look_by(by);
        }
        self.schedule_thaw(at);
    }

    /// Schedules a plan for the time at which the app that has been frozen longest must thaw.
    /// Called after each plan and each scan, because either may leave an app frozen.
    pub(super) fn schedule_thaw(&mut self, at: Duration) {
        let frozen = &self.mechanisms.shared.in_force.swapping.frozen;
        let first = frozen.iter().map(|(_, since)| *since).min();
        if let Some(since) = first {
            let due = since + swap::FREEZE_MOST;
            // If the thaw fails it is tried again, but not in a busy loop.
            self.scan.look_by(due.max(at + VERY_SHORT));
        }
    }

    /// Handles reports of the guard and of the swapper.
    pub(super) fn attend_to_memory(&mut self) {
        if self.closing() != self.model.last.closing {
            self.reconcile(Scope::Closing);
        }
        self.mechanisms.swap.take_done(&mut self.mechanisms.shared);
        for (bytes, took) in self.mechanisms.swap.take_returns() {
            self.scan.storage.read_back(bytes, took);
        }
        self.mechanisms.swap.take_kills();
        self.mechanisms
            .swap
            .take_spared(&mut self.mechanisms.shared, now());
        // If the online CPUs have changed, the guard needs another alarm.
        if let Some(guard) = &mut self.mechanisms.swap.guard {
            guard.renew_alarm(&self.system);
        }
        for notice in &self.mechanisms.swap.notices {
            if let MemoryNotice::Did {
                app,
                reason,
                gauge: Some((level, gauge)),
                ..
            } = notice
            {
                self.decisions
                    .note_kill(&self.model.last, *app, *level, gauge, reason);
            }
        }
        let at = now();
        let level = self.mechanisms.swap.shortage().level();
        if level > Level::Plenty && self.scan.next_look.is_none() {
            self.look_for_swap(at);
        }
        let interval = self.config.settings.protect.interval;
        self.ticks.follow_shortage(level, at, interval);
        self.begin_following(at);
        self.reconcile(Scope::Swap(Event::Pressure));
        // If the foreground app takes the memory, a full plan updates its shield, because the
        // kernel's OOM killer may act next.
        let shielded = self.model.last.in_force.shielded.is_some();
        if shielded && culprit::find(&self.model.last) == Some(Culprit::Foreground) {
            self.reconcile(Scope::All(Event::Pressure));
        }
    }

    /// Passes the guard the amount of memory that reclaim may swap out under the current plan.
    pub(super) fn tell_guard(&self) {
        if let Some(guard) = &self.mechanisms.swap.guard {
            guard.set_swappable(swap::swappable(&self.model.last), self.scan.swapped_out);
        }
    }

    /// Adds the victims of the kernel's OOM killer to the history, given its number of kills since
    /// boot.
    pub(super) fn note_oom_kills(&mut self, total: u64) {
        let known = self.model.apps.by_use();
        let kills = &mut self.scan.oom_kills;
        let Some(seen) = kills.observe(&self.system, total, known.iter().copied()) else {
            return;
        };
        let memory = pressure::memory_then(&self.system);
        let mut note = |known: Option<&Known>, reason: String| {
            self.history.note(Note {
                at: now(),
                action: MemoryAction::ForeignKill,
                app: known.map(|known| &known.found.app),
                uid: known.map(|known| known.found.uid),
                class: known.map(|known| known.found.class.class),
                bytes: known.map_or(0, |known| known.found.memory.allocated()),
                took: None,
                reason,
                memory,
            });
        };
        for (key, count) in &seen.apps {
            let named = known.iter().find(|known| known.key() == *key);
            note(named.copied(), Seen::reason(*count));
        }
        if seen.apps.is_empty() {
            note(None, seen.without_app());
        }
    }

    /// Scans the apps unless the last scan is fresh, and drops apps that are gone.
    pub fn look_at_apps(&mut self) {
        let at = now();
        if !self.scan.source.is_due(at) {
            return;
        }
        // Attribute the kills before ended apps are dropped.
        let counters = pressure::counters(&self.system);
        self.note_oom_kills(pressure::oom_kills(&counters));
        // A unit created a moment ago may still be empty, so scan again soon.
        let made = self.scan.new_units.take();
        if made.any {
            self.scan.look_by(at + LOOK_EVERY);
        }
        self.reconcile(Scope::Units(&made.units));
        let helpers = &self.config.settings.boost.helpers;
        let announced = self.scan.announced.look(&self.system, &self.access);
        let found = match self.scan.source.look(&self.system, helpers, &announced, at) {
            Ok(found) => found,
            // A failed scan does not mean that the apps are gone.
            Err(error) => {
                warn!("the scan for apps failed: {error}; the previous scan stays valid");
                return;
            }
        };
        self.scan.swapped_out = counters.get("pswpout").unwrap_or(0);
        self.scan
            .new_units
            .follow(&self.system, self.scan.source.nests());
        self.outbox.await_units = true;
        let gone = self.model.apps.observe(found, at);
        self.model
            .apps
            .users
            .observe(services::users(&self.system), at);
        if let Some(guard) = &mut self.mechanisms.swap.guard {
            guard.set_users_taken(&self.system, &self.model.apps.users.taken());
        }
        for known in &gone {
            debug!("{} is gone", known.found.app.name);
        }
        if !gone.is_empty() {
            let gone = gone.iter().map(Known::key).collect();
            self.mechanisms
                .swap
                .forget_apps(&mut self.mechanisms.shared, &self.system, gone);
        }
        self.look_at_pending_units(at);
    }

    /// Handles events in the cgroups that contain app units.
    pub(super) fn units_made(&mut self) {
        let made = self.scan.new_units.take();
        if made.any {
            let due = self.scan.source.due_at();
            self.scan.look_by(due.max(now() + UNIT_FILLS));
        }
        self.reconcile(Scope::Units(&made.units));
        if !made.any || self.mechanisms.swap.pending_units.has_room() {
            self.outbox.await_units = true;
        }
    }

    /// Marks the topmost app, and the one before it, as used now.
    pub(super) fn note_topmost(&mut self, at: Duration) {
        if let Some(app) = self.model.topmost.previous() {
            self.model.apps.was_topmost(app.key, at);
        }
        // The topmost app comes last, so that it counts as used most recently.
        if let Some(front) = self.model.topmost.front() {
            self.scan.source.was_topmost(&front.app);
            self.model.apps.was_topmost(front.app.key, at);
        }
    }

    /// The app to which a process belongs. Scans again if the last scan lacks the process and is
    /// older than `LOOK_AGAIN`.
    pub fn known_app_of(&mut self, pid: i32) -> Option<AppKey> {
        let find = |model: &Model| {
            let all = model.apps.by_use();
            let has = |known: &&&Known| known.found.members.iter().any(|member| member.pid == pid);
            all.iter().find(has).map(|known| known.key())
        };
        self.look_at_apps();
        if let Some(key) = find(&self.model) {
            return Some(key);
        }
        if !self.scan.source.looked_within(LOOK_AGAIN, now()) {
            self.scan.source.forget_look();
            self.look_at_apps();
        }
        find(&self.model)
    }
}
