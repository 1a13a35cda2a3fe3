// SPDX-License-Identifier: GPL-2.0-or-later
//! Scans of the apps for `swap`: when they are due, what the last one found, and notices about the
//! actions on apps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use limelight_core::model::apps::{Known, Service, LEAK_WITHIN};
use limelight_core::model::shortage::{derive_thresholds, Level, Thresholds};
use limelight_core::model::{App, AppKey};
use limelight_core::policy::swap::culprit::{self, Culprit};
use limelight_core::policy::{swap, Action, Event};
use limelight_core::settings::SwapSettings;
use limelight_proto::{MemoryAction, MemoryThen, Notice};
use limelight_sys::watermarks::Watermarks;
use rustix::event::epoll::EventFlags;
use tracing::warn;

use crate::control::history::Note;
use crate::control::report::app_status;
use crate::event_loop::reactor::Token;
use crate::event_loop::Daemon;
use crate::mechanisms::swap::guard::Guard;
use crate::mechanisms::swap::swapper::{Errand, Swapper};
use crate::mechanisms::swap::MemoryNotice;
use crate::mechanisms::Context;
use crate::sources::oom::{OomKills, Seen};
use crate::sources::pressure;
use crate::sources::storage::StorageSource;
use crate::system::{now, System};

/// An app that has been in the foreground this long counts as having responded, unless a response
/// window is open. Until then it has the processor first.
const SETTLED: Duration = Duration::from_millis(750);

/// Scan intervals while memory is short, and while apps may have to be killed.
const SHORT: Duration = Duration::from_secs(2);
const VERY_SHORT: Duration = Duration::from_millis(500);

/// State of the app scans.
#[derive(Debug, Default)]
pub struct AppScan {
    /// The swap storage.
    pub storage: StorageSource,
    oom_kills: OomKills,
    front: Option<App>,
    /// The topmost app was settled at the last scan.
    settled: bool,
    previous: Option<(AppKey, Duration)>,
    /// By service, its lowest memory within the last minute, and when that was.
    service_low: BTreeMap<AppKey, (Duration, u64)>,
    next_look: Option<Duration>,
    /// Pages swapped out since boot, as of the last scan.
    pub swapped_out: u64,
}

impl AppScan {
    /// The app that was topmost before, and when it left the foreground.
    pub fn previous(&self) -> Option<(AppKey, Duration)> {
        self.previous
    }

    /// Records how much each service has grown within the last minute.
    pub fn follow_services(&mut self, mut found: Vec<Service>, at: Duration) -> Vec<Service> {
        let keys: BTreeSet<AppKey> = found.iter().map(|service| service.app.key).collect();
        self.service_low.retain(|key, _| keys.contains(key));
        for service in &mut found {
            let now = service.memory.allocated();
            let low = self.service_low.entry(service.app.key).or_insert((at, now));
            if now <= low.1 || at.saturating_sub(low.0) > LEAK_WITHIN {
                *low = (at, now);
            }
            service.grown = now - low.1;
        }
        found
    }

    /// Requests a scan by that time at the latest.
    pub fn look_by(&mut self, at: Duration) {
        self.next_look = Some(self.next_look.map_or(at, |next| next.min(at)));
    }

    /// When the next scan is due.
    pub fn next_look(&self) -> Option<Duration> {
        self.next_look
    }
}

/// The thresholds that the administrator configured, or else those that the machine needs.
pub fn thresholds(system: &System, settings: &SwapSettings, total: u64) -> Thresholds {
    // With fragmented memory the kernel gives up while free memory is still above its watermarks.
    let high = Watermarks::read(&system.proc).map_or(0, |marks| {
        marks.high_bytes.saturating_add(marks.most_boost_bytes)
    });
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

impl Daemon {
    /// Starts the threads that kill and that move memory. Without them `swap` does nothing and logs
    /// that.
    pub(crate) fn start_swap(&mut self) {
        if self.options.dry_run {
            return;
        }
        let swapper = Swapper::start(
            self.system.cgroups.mount_point(),
            &self.system.roots.proc,
            self.actuators.gate.clone(),
        );
        match swapper {
            Ok(swapper) => self.actuators.swapper = Some(swapper),
            Err(error) => warn!("no app can be squeezed or brought back: {error}"),
        }
        match Guard::start(&self.system, self.thresholds(), self.actuators.gate.clone()) {
            Ok(guard) => self.actuators.guard = Some(guard),
            Err(error) => warn!("the guard cannot start, no app is killed: {error}"),
        }
        let guard = self.actuators.guard.as_ref();
        let guard = guard.map(|guard| self.reactor.add(guard, Token::Guard, EventFlags::IN));
        let swapper = self.actuators.swapper.as_ref();
        let swapper = swapper.map(|swapper| {
            self.reactor
                .add(swapper.answers(), Token::Swapper, EventFlags::IN)
        });
        for added in guard.into_iter().chain(swapper) {
            if let Err(error) = added {
                warn!("swap's threads cannot be waited for: {error}");
            }
        }
        // The first scan also starts the watch for new app units.
        self.app_scan.look_by(now());
    }

    /// Applies a reloaded configuration.
    pub(crate) fn configure_swap(&mut self) {
        self.app_source.set_classes(self.config.classes.clone());
        self.app_scan.next_look = Some(now());
        if let Some(guard) = &self.actuators.guard {
            guard.set_thresholds(self.thresholds());
        }
    }

    fn thresholds(&self) -> Thresholds {
        // Memory held by the kernel, a driver or mlock() is never available to an app.
        let memory = pressure::memory_now(&self.system);
        let total = match memory.reachable {
            0 => memory.total,
            reachable => reachable.min(memory.total),
        };
        thresholds(&self.system, &self.config.settings.swap, total)
    }

    /// Handles a change of the topmost app.
    pub(crate) fn note_front(&mut self) {
        let at = now();
        let front = self.topmost.front().map(|front| front.app.clone());
        let before = self.app_scan.front.take();
        let key = |app: &Option<App>| app.as_ref().map(|app| app.key);
        if key(&before) != key(&front) {
            self.app_scan.settled = false;
            if let Some(before) = before {
                self.app_scan.previous = Some((before.key, at));
                let last = self.last.topmost.as_ref();
                let members = last.filter(|last| last.app.key == before.key);
                self.actuators.left_front(Errand::Remember {
                    app: before.key,
                    members: members.map_or(Vec::new(), |last| last.members.clone()),
                });
            }
        }
        // Whether the app may be swapped out at all must be known before it takes memory.
        let stranger = front
            .as_ref()
            .filter(|app| self.config.settings.swap.enabled && self.apps.get(app.key).is_none());
        let met = stranger.and_then(|app| self.app_source.meet(&self.system, app));
        let unknown = stranger.is_some() && met.is_none();
        if let Some(found) = met {
            self.apps.meet(found, at);
        }
        if unknown {
            self.app_source.forget_look();
        }
        self.app_scan.next_look = Some(if unknown { at } else { at + SETTLED });
        self.app_scan.front = front;
    }

    /// Scans the apps if that is due. Returns whether it was.
    pub(crate) fn look_at_apps_if_due(&mut self, at: Duration) -> bool {
        let due = self.app_scan.next_look.is_some_and(|next| next <= at);
        if due {
            self.look_for_swap(at);
        }
        due
    }

    fn look_for_swap(&mut self, at: Duration) {
        if !self.config.settings.swap.enabled {
            self.app_scan.next_look = None;
            return;
        }
        let settled = self.is_settled(at);
        if settled && !std::mem::replace(&mut self.app_scan.settled, settled) {
            if let Some(front) = self.topmost.front() {
                self.actuators.answered(front.app.key);
            }
        }
        // A request may have caused a scan a moment ago.
        let fresh = !self.app_source.is_due(at);
        // The scan may request another one.
        self.app_scan.next_look = None;
        self.look_at_apps();
        let short = match self.actuators.shortage().level() {
            Level::Plenty => None,
            level if level < Level::Kill => Some(at + SHORT),
            _ => Some(at + VERY_SHORT),
        };
        // After it settles, room is made for the next app.
        let settles = (!settled || fresh).then_some(at + SETTLED);
        let swapping = &self.actuators.in_force.swapping;
        let told = swapping
            .asked
            .is_some_and(|(level, _)| level > Level::Plenty);
        // When the shortage ends, frozen apps must thaw and clients get a notice.
        let over = self.actuators.shortage().since() + swap::CALM;
        let ends = (told || !swapping.frozen.is_empty()) && short.is_none();
        let ends = ends.then_some(over.max(at + SHORT));
        let expected = self.pending_units.until();
        for by in [short, settles, ends, expected].into_iter().flatten() {
            self.app_scan.look_by(by);
        }
        self.schedule_thaw(at);
    }

    /// Plans again when the app that has been frozen longest must thaw. Called after each plan and
    /// each scan, because either may leave an app frozen.
    pub(crate) fn schedule_thaw(&mut self, at: Duration) {
        let frozen = &self.actuators.in_force.swapping.frozen;
        let first = frozen.iter().map(|(_, since)| *since).min();
        if let Some(since) = first {
            let due = since + swap::FREEZE_MOST;
            // If the thaw fails it is tried again, but not in a busy loop.
            self.app_scan.look_by(due.max(at + VERY_SHORT));
        }
    }

    /// Whether no app is known to be in the middle of a response.
    pub(crate) fn is_settled(&self, at: Duration) -> bool {
        let front = self.topmost.front();
        let long = front.is_none_or(|front| at.saturating_sub(front.since) >= SETTLED);
        long && !self.windows.is_open()
    }

    /// Handles reports of the guard and of the swapper.
    pub(crate) fn attend_to_memory(&mut self) {
        self.actuators.take_done();
        for (bytes, took) in self.actuators.take_returns() {
            self.app_scan.storage.read_back(bytes, took);
        }
        self.actuators.take_kills();
        self.actuators.take_refused(now());
        // Re-arm the guard's alarm for later reports.
        if let Some(guard) = &mut self.actuators.guard {
            guard.renew_alarm(&self.system);
        }
        for notice in &self.actuators.notices {
            if let MemoryNotice::Did {
                app,
                reason,
                gauge: Some((level, gauge)),
                ..
            } = notice
            {
                self.decisions
                    .note_kill(&self.last, *app, *level, gauge, reason);
            }
        }
        let at = now();
        if self.actuators.shortage().level() > Level::Plenty {
            if self.app_scan.next_look.is_none() {
                self.look_for_swap(at);
            }
            // Ticks become rare while nothing happens; the topmost app must be measured soon now.
            self.quiet_ticks = 0;
            let soon = at + self.config.settings.protect.interval;
            self.next_tick = self.next_tick.min(soon);
        }
        self.begin_following(at);
        self.refresh_swap(Event::Pressure);
        // The OOM killer may act next.
        let shielded = self.last.in_force.shielded.is_some();
        if shielded && culprit::find(&self.last) == Some(Culprit::Foreground) {
            self.refresh(Event::Pressure);
        }
    }

    /// Plans only for the apps that are not topmost.
    pub(crate) fn refresh_swap(&mut self, event: Event) {
        let at = now();
        let counters = pressure::counters(&self.system);
        self.last.memory = pressure::memory(&self.system, &counters);
        self.last.at = at;
        self.last.shortage = self.actuators.shortage();
        self.last.storage = self.app_scan.storage.look(&self.system, &counters, at);
        self.last.apps = self.apps.by_use().into_iter().cloned().collect();
        self.last.users_taken = self.apps.users.taken();
        self.last.previous = self.app_scan.previous();
        self.last.settled = self.is_settled(at);
        let members = self.topmost_members();
        let protected = self.protect_processes(&members, at);
        self.find_services(&protected, at);
        self.last.protected = protected;
        let snapshot = std::mem::take(&mut self.last);
        let steps = swap::withdraw(&event, &snapshot).into_iter();
        let steps = steps.chain(swap::receive(&event, &snapshot));
        let steps = steps.chain(swap::grant(&event, &snapshot));
        let actions: Vec<Action> = steps.map(Action::Swap).collect();
        for action in &actions {
            let context = Context {
                system: &self.system,
                now: at,
                front: snapshot.topmost.as_ref().map(|topmost| &topmost.app),
                apps: &snapshot.apps,
            };
            match self.options.dry_run {
                true => self.actuators.plan_only(action, context),
                false => _ = self.actuators.apply(action, context),
            }
        }
        self.last = snapshot;
        self.last.in_force = self.actuators.in_force.clone();
        self.schedule_thaw(at);
        self.tell_guard();
        self.tell_people();
    }

    /// Passes the guard what the plan allows reclaim to swap out.
    pub(crate) fn tell_guard(&self) {
        if let Some(guard) = &self.actuators.guard {
            guard.set_swappable(swap::swappable(&self.last), self.app_scan.swapped_out);
        }
    }

    /// Records the victims of the kernel's OOM killer, given its number of kills since boot.
    pub(crate) fn note_oom_kills(&mut self, total: u64) {
        let known = self.apps.by_use();
        let kills = &mut self.app_scan.oom_kills;
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

    /// Publishes the pending notices: history, clients, log.
    pub(crate) fn tell_people(&mut self) {
        let snapshot = &self.last;
        let gauge = snapshot.shortage.gauge();
        let memory = MemoryThen::from(&gauge);
        let service = |key: AppKey| {
            let mut all = snapshot.services.iter();
            all.find(|service| service.app.key == key)
        };
        for notice in std::mem::take(&mut self.actuators.notices) {
            let named = |key: AppKey| snapshot.apps.iter().find(|known| known.key() == key);
            match notice {
                MemoryNotice::Did {
                    at,
                    action,
                    app,
                    bytes,
                    took,
                    reason,
                    gauge,
                } => {
                    let known = named(app).or_else(|| self.actuators.kill_targets.get(app));
                    let memory = match &gauge {
                        Some((_, gauge)) => MemoryThen::from(gauge),
                        None => memory,
                    };
                    self.history.note(Note {
                        at,
                        action,
                        app: known
                            .map(|known| &known.found.app)
                            .or_else(|| service(app).map(|service| &service.app)),
                        uid: known.map(|known| known.found.uid),
                        class: known.map(|known| known.found.class.class),
                        bytes,
                        took,
                        reason,
                        memory,
                    });
                }
                MemoryNotice::Level { level, next } => {
                    let next = next.and_then(named);
                    let notice = |next: Option<&Known>| Notice::Memory {
                        level,
                        memory,
                        next: next.map(|next| app_status(&next.found.app)),
                    };
                    let owner = next.map(|next| next.found.uid);
                    self.control
                        .tell(owner, &notice(next), Some(&notice(None)), now());
                    let reason = match next {
                        Some(next) => format!(
                            "memory is short ({}); {} is closed next if it stays so",
                            level.name(),
                            next.found.app.name
                        ),
                        None => format!("memory is short ({})", level.name()),
                    };
                    if level > Level::Plenty {
                        let wanted = snapshot.shortage.thresholds().swap;
                        self.history.note(Note {
                            at: gauge.at,
                            action: MemoryAction::Ask,
                            app: None,
                            // The reason names that app, so its owner is recorded.
                            uid: owner,
                            class: None,
                            bytes: wanted.saturating_sub(gauge.available),
                            took: None,
                            reason,
                            memory,
                        });
                    }
                }
                MemoryNotice::Grows { app, grown } => {
                    if let Some(known) = named(app) {
                        let app = app_status(&known.found.app);
                        let notice = Notice::Growing { app, grown };
                        self.control
                            .tell(Some(known.found.uid), &notice, None, now());
                        let name = &known.found.app.name;
                        warn!(
                            "{name} is topmost and grew by {} MiB lately while memory is short: save your work, or close it",
                            grown >> 20
                        );
                    }
                }
            }
        }
    }
}
