// SPDX-License-Identifier: GPL-2.0-or-later
//! The apps of the machine, for `swap`: when they are looked at, what the last look found, and what
//! people hear of what was done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use limelight_core::control::{Deed, MemoryThen, Notice};
use limelight_core::model::apps::{Known, Service, LEAK_WITHIN};
use limelight_core::model::shortage::{Level, Thresholds};
use limelight_core::model::{App, AppKey};
use limelight_core::policy::swap::culprit::{self, Culprit};
use limelight_core::policy::{swap, Action, Event};
use limelight_core::settings::SwapSettings;
use limelight_sys::watermarks::Watermarks;
use rustix::event::epoll::EventFlags;
use tracing::warn;

use crate::actuators::swap::Said;
use crate::actuators::Context;
use crate::daemon::Daemon;
use crate::doors::{now, Doors};
use crate::guard::Guard;
use crate::history::Note;
use crate::reactor::Token;
use crate::report::app_status;
use crate::sources::oom::{OomKills, Seen};
use crate::sources::pressure;
use crate::sources::storage::StorageSource;
use crate::swapper::{Errand, Swapper};

/// An app that has been in front for so long has answered, unless a response window is open. Until
/// then it has the processor first.
const SETTLED: Duration = Duration::from_millis(750);

/// How often the apps are looked at while memory is short, and while some may have to be killed.
const SHORT: Duration = Duration::from_secs(2);
const VERY_SHORT: Duration = Duration::from_millis(500);

/// What is known of the apps.
#[derive(Debug, Default)]
pub struct Household {
    /// Where their memory goes.
    pub storage: StorageSource,
    oom_kills: OomKills,
    front: Option<App>,
    /// The app in front was settled at the last look.
    settled: bool,
    previous: Option<(AppKey, Duration)>,
    /// The least that each service had within the last minute, and when.
    service_low: BTreeMap<AppKey, (Duration, u64)>,
    next_look: Option<Duration>,
    /// Pages that had gone to swap since boot when the apps were looked at last.
    pub swapped_out: u64,
}

impl Household {
    /// The app that was in front before, and when it left.
    pub fn previous(&self) -> Option<(AppKey, Duration)> {
        self.previous
    }

    /// Notes by how much each service has grown within the last minute.
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

    /// The apps have to be looked at by then.
    pub fn look_by(&mut self, at: Duration) {
        self.next_look = Some(self.next_look.map_or(at, |next| next.min(at)));
    }

    /// When the apps have to be looked at again.
    pub fn next_look(&self) -> Option<Duration> {
        self.next_look
    }
}

/// The thresholds that the administrator wants, or that the machine needs.
pub fn thresholds(doors: &Doors, settings: &SwapSettings, total: u64) -> Thresholds {
    // With fragmented memory the kernel gives up above its watermarks.
    let high = Watermarks::read(&doors.proc).map_or(0, |marks| {
        marks.high_bytes.saturating_add(marks.most_boost_bytes)
    });
    let needed = Thresholds::derive(total, high);
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
    /// Starts the threads that kill and that move memory. Without them `swap` does nothing, and
    /// says so.
    pub(crate) fn start_swap(&mut self) {
        if self.options.dry_run {
            return;
        }
        let swapper = Swapper::start(
            self.doors.cgroups.mount_point(),
            &self.doors.roots.proc,
            self.actuators.gate.clone(),
        );
        match swapper {
            Ok(swapper) => self.actuators.swapper = Some(swapper),
            Err(error) => warn!("no app can be squeezed or brought back: {error}"),
        }
        match Guard::start(&self.doors, self.thresholds(), self.actuators.gate.clone()) {
            Ok(guard) => self.actuators.guard = Some(guard),
            Err(error) => warn!("nobody watches how short memory is, no app is killed: {error}"),
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
        // From then on new apps are seen when they are made.
        self.household.look_by(now());
    }

    /// The configuration was read again.
    pub(crate) fn configure_swap(&mut self) {
        self.app_source.set_classes(self.config.classes.clone());
        self.household.next_look = Some(now());
        if let Some(guard) = &self.actuators.guard {
            guard.set_thresholds(self.thresholds());
        }
    }

    fn thresholds(&self) -> Thresholds {
        // Of what the kernel, a driver or mlock() holds no app ever has anything.
        let memory = pressure::memory_now(&self.doors);
        let total = match memory.reachable {
            0 => memory.total,
            reachable => reachable.min(memory.total),
        };
        thresholds(&self.doors, &self.config.settings.swap, total)
    }

    /// Another app is in front, or none.
    pub(crate) fn note_front(&mut self) {
        let at = now();
        let front = self.topmost.front().map(|front| front.app.clone());
        let before = self.household.front.take();
        let key = |app: &Option<App>| app.as_ref().map(|app| app.key);
        if key(&before) != key(&front) {
            self.household.settled = false;
            if let Some(before) = before {
                self.household.previous = Some((before.key, at));
                let last = self.last.topmost.as_ref();
                let members = last.filter(|last| last.app.key == before.key);
                self.actuators.left_front(Errand::Remember {
                    app: before.key,
                    members: members.map_or(Vec::new(), |last| last.members.clone()),
                });
            }
        }
        // Whether it may go to swap at all must be known before it takes memory.
        let stranger = front
            .as_ref()
            .filter(|app| self.config.settings.swap.enabled && self.apps.get(app.key).is_none());
        let met = stranger.and_then(|app| self.app_source.meet(&self.doors, app));
        let unknown = stranger.is_some() && met.is_none();
        if let Some(found) = met {
            self.apps.meet(found, at);
        }
        if unknown {
            self.app_source.forget_look();
        }
        self.household.next_look = Some(if unknown { at } else { at + SETTLED });
        self.household.front = front;
    }

    /// Looks at the apps if that is due. Returns whether it was.
    pub(crate) fn look_at_apps_if_due(&mut self, at: Duration) -> bool {
        let due = self.household.next_look.is_some_and(|next| next <= at);
        if due {
            self.look_for_swap(at);
        }
        due
    }

    fn look_for_swap(&mut self, at: Duration) {
        if !self.config.settings.swap.enabled {
            self.household.next_look = None;
            return;
        }
        let settled = self.is_settled(at);
        if settled && !std::mem::replace(&mut self.household.settled, settled) {
            if let Some(front) = self.topmost.front() {
                self.actuators.answered(front.app.key);
            }
        }
        // Somebody's request may have had them looked at a moment ago.
        let fresh = !self.app_source.is_due(at);
        // What is seen may ask for another look.
        self.household.next_look = None;
        self.look_at_apps();
        let short = match self.actuators.shortage().level() {
            Level::Plenty => None,
            level if level < Level::Kill => Some(at + SHORT),
            _ => Some(at + VERY_SHORT),
        };
        // Then room is made for the next one.
        let settles = (!settled || fresh).then_some(at + SETTLED);
        let swapping = &self.actuators.in_force.swapping;
        let told = swapping
            .asked
            .is_some_and(|(level, _)| level > Level::Plenty);
        // Frozen apps are thawed, and listeners are told that it is over.
        let over = self.actuators.shortage().since() + swap::CALM;
        let ends = (told || !swapping.frozen.is_empty()) && short.is_none();
        let ends = ends.then_some(over.max(at + SHORT));
        let stopped = swapping.frozen.iter().map(|(_, since)| *since);
        let thaws = stopped.min().map(|since| since + swap::FREEZE_MOST);
        let expected = self.expected.until();
        for by in [short, settles, ends, thaws, expected]
            .into_iter()
            .flatten()
        {
            self.household.look_by(by);
        }
    }

    /// Whether nobody waits for anything, as far as is known.
    pub(crate) fn is_settled(&self, at: Duration) -> bool {
        let front = self.topmost.front();
        let long = front.is_none_or(|front| at.saturating_sub(front.since) >= SETTLED);
        long && !self.windows.is_open()
    }

    /// The guard has something to say, or a squeeze or a return is done.
    pub(crate) fn attend_to_memory(&mut self) {
        self.actuators.take_done();
        for (bytes, took) in self.actuators.take_returns() {
            self.household.storage.read_back(bytes, took);
        }
        self.actuators.take_kills();
        self.actuators.take_refused(now());
        // What it tells from now on is told anew.
        if let Some(guard) = &mut self.actuators.guard {
            guard.renew_alarm(&self.doors);
        }
        for said in &self.actuators.said {
            if let Said::Did {
                app,
                reason,
                gauge: Some((level, gauge)),
                ..
            } = said
            {
                self.decisions
                    .note_kill(&self.last, *app, *level, gauge, reason);
            }
        }
        let at = now();
        if self.actuators.shortage().level() > Level::Plenty {
            if self.household.next_look.is_none() {
                self.look_for_swap(at);
            }
            // What the app in front works with is looked at seldom while nothing happens.
            self.quiet_ticks = 0;
            let soon = at + self.config.settings.protect.interval;
            self.next_tick = self.next_tick.min(soon);
        }
        self.begin_following(at);
        self.refresh_swap(Event::Pressure);
        // The OOM killer may choose next.
        let shielded = self.last.in_force.shielded.is_some();
        if shielded && culprit::find(&self.last) == Some(Culprit::Foreground) {
            self.refresh(Event::Pressure);
        }
    }

    /// Plans for the apps that are not in front, and for nobody else.
    pub(crate) fn refresh_swap(&mut self, event: Event) {
        let at = now();
        let counters = pressure::counters(&self.doors);
        self.last.memory = pressure::memory(&self.doors, &counters);
        self.last.shortage = self.actuators.shortage();
        self.last.storage = self.household.storage.look(&self.doors, &counters, at);
        self.last.apps = self.apps.by_use().into_iter().cloned().collect();
        self.last.previous = self.household.previous();
        self.last.settled = self.is_settled(at);
        let protected = self.protect_processes(at);
        self.find_services(&protected, at);
        self.last.protected = protected;
        let snapshot = std::mem::take(&mut self.last);
        let steps = swap::withdraw(&event, &snapshot).into_iter();
        let steps = steps.chain(swap::receive(&event, &snapshot));
        let steps = steps.chain(swap::grant(&event, &snapshot));
        let actions: Vec<Action> = steps.map(Action::Swap).collect();
        for action in &actions {
            let context = Context {
                doors: &self.doors,
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
        self.tell_guard();
        self.tell_people();
    }

    /// What was planned decides how far reclaim can go.
    pub(crate) fn tell_guard(&self) {
        if let Some(guard) = &self.actuators.guard {
            guard.set_swappable(swap::swappable(&self.last), self.household.swapped_out);
        }
    }

    /// Notes whom the kernel's OOM killer took, given how many it has killed since boot.
    pub(crate) fn note_oom_kills(&mut self, total: u64) {
        let known = self.apps.by_use();
        let kills = &mut self.household.oom_kills;
        let Some(seen) = kills.observe(&self.doors, total, known.iter().copied()) else {
            return;
        };
        let memory = pressure::memory_then(&self.doors);
        let mut note = |known: Option<&Known>, reason: String| {
            self.history.note(Note {
                at: now(),
                deed: Deed::ForeignKill,
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

    /// Passes on what people should hear.
    pub(crate) fn tell_people(&mut self) {
        let snapshot = &self.last;
        let gauge = snapshot.shortage.gauge();
        let memory = MemoryThen::from(&gauge);
        let service = |key: AppKey| {
            let mut all = snapshot.services.iter();
            all.find(|service| service.app.key == key)
        };
        for said in std::mem::take(&mut self.actuators.said) {
            let named = |key: AppKey| snapshot.apps.iter().find(|known| known.key() == key);
            match said {
                Said::Did {
                    at,
                    deed,
                    app,
                    bytes,
                    took,
                    reason,
                    gauge,
                } => {
                    let known = named(app).or_else(|| self.actuators.armed.get(app));
                    let memory = match &gauge {
                        Some((_, gauge)) => MemoryThen::from(gauge),
                        None => memory,
                    };
                    self.history.note(Note {
                        at,
                        deed,
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
                Said::Level { level, next } => {
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
                            deed: Deed::Ask,
                            app: None,
                            // The reason names that app.
                            uid: owner,
                            class: None,
                            bytes: wanted.saturating_sub(gauge.available),
                            took: None,
                            reason,
                            memory,
                        });
                    }
                }
                Said::Grows { app, grown } => {
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
