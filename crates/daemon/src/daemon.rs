// SPDX-License-Identifier: GPL-2.0-or-later
//! The daemon: sources, model, policy and actuators around one epoll loop.

use std::collections::BTreeSet;
use std::time::Duration;

use limelight_core::model::footprint::Footprint;
use limelight_core::model::pressure::Pressure;
use limelight_core::model::snapshot::Measured;
use limelight_core::model::topmost::{Claim, Holder, Shift, Topmost};
use limelight_core::model::{AppKey, ProcessId, Snapshot};
use limelight_core::policy::protect::Step;
use limelight_core::policy::{plan, Action, Event};
use limelight_sys::pidfd::Pidfd;
use limelight_sys::signal::Signals;
use rustix::event::epoll::EventFlags;
use rustix::process::Signal;
use tracing::{debug, error, info, warn};

use crate::actuators::cgroup_memory::protected_by_others;
use crate::actuators::device::DeviceDoor;
use crate::actuators::{Actuators, Context, Effect};
use crate::config::{self, Adopt, Config, Origin};
use crate::doors::{now, Doors, Roots};
use crate::exit::Failure;
use crate::identify;
use crate::lock::{self, Lock};
use crate::notify::Service;
use crate::reactor::{Reactor, Ready, Token};
use crate::restore::Ledger;
use crate::sources::control::ControlSource;
use crate::sources::oom_score_adj::OomScoreAdj;
use crate::sources::pressure::{self, PressureSource};
use crate::trust;
use crate::undo::undo_all;

/// Rounds of planning after one event: an app that was moved into a cgroup of its own gets its
/// reservation in the next round.
const ROUNDS: usize = 3;

/// Failed waits in a row after which the daemon gives up.
const FAILURES_MAX: u32 = 10;

/// How often cgroups of ended apps are looked for while nothing is topmost.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// The daemon's own `oom_score_adj`.
const OWN_SCORE: i16 = -900;

/// How the daemon is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the configuration comes from.
    pub config: Origin,
    /// Plan and explain, apply nothing.
    pub dry_run: bool,
    /// Where to look.
    pub roots: Roots,
}

/// The running daemon.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) options: Options,
    pub(crate) config: Config,
    pub(crate) doors: Doors,
    pub(crate) reactor: Reactor,
    signals: Signals,
    pub(crate) control: ControlSource,
    pub(crate) pressure_source: PressureSource,
    pub(crate) oom_score_adj: OomScoreAdj,
    pub(crate) topmost: Topmost,
    pub(crate) pressure: Pressure,
    footprint: Option<(AppKey, Footprint)>,
    pub(crate) actuators: Actuators,
    /// Apps that could not be moved into a cgroup of their own.
    not_adoptable: BTreeSet<AppKey>,
    /// The process whose end is the end of the app in front.
    front_process: Option<(ProcessId, Pidfd)>,
    /// As of the last event, for `status` and `explain`.
    pub(crate) last: Snapshot,
    pub(crate) started: Duration,
    next_tick: Duration,
    service: Service,
    stopping: bool,
    _lock: Lock,
}

/// Puts everything back that a dead daemon left, and nothing else: `limelightd --restore`.
pub fn restore(roots: Roots) -> Result<(), Failure> {
    let runtime = roots.runtime.clone();
    if !runtime.exists() {
        return Ok(());
    }
    let _lock = lock::take(&runtime)?;
    let doors = Doors::open(roots)?;
    let mut ledger = Ledger::open(&runtime, doors.boot_id());
    let failed = undo_all(&mut ledger, &doors);
    ledger.close();
    match failed {
        0 => Ok(()),
        count => Err(Failure::Broken(format!(
            "{count} things could not be put back; they stay listed in {}",
            runtime.join(crate::restore::FILE_NAME).display()
        ))),
    }
}

impl Daemon {
    /// Starts: reads the configuration, takes the lock, opens all doors, puts back what a dead
    /// predecessor left. Nothing is changed for any app yet.
    pub fn start(options: Options) -> Result<Daemon, Failure> {
        let config = config::load(&options.config)?;
        let lock = lock::take(&options.roots.runtime)?;
        // Blocked before anything is changed: a stop in the middle of the start is a stop after it.
        let signals = Signals::block(&[Signal::TERM, Signal::INT, Signal::HUP])
            .map_err(|error| Failure::Broken(error.to_string()))?;
        let doors = Doors::open(options.roots.clone())?;
        let now = now();
        let mut ledger = Ledger::open(&options.roots.runtime, doors.boot_id());
        let left = ledger.entries().len();
        if options.dry_run && left > 0 {
            warn!("{left} changes of a dead limelightd are in force; a dry run leaves them, limelightd --restore puts them back");
        } else {
            undo_all(&mut ledger, &doors);
        }

        let device = if options.dry_run {
            DeviceDoor::Unused("a dry run does not open it".to_owned())
        } else {
            DeviceDoor::open(&doors.roots.device, config.device)?
        };
        check_power(&doors, &device, options.dry_run)?;

        let io = |error: std::io::Error| Failure::Broken(format!("no event loop: {error}"));
        let reactor = Reactor::new().map_err(io)?;
        let control = ControlSource::bind(&options.roots.runtime)?;
        let pressure_source = PressureSource::new(&doors);
        let oom_score_adj = OomScoreAdj::start(
            &doors,
            &mut ledger,
            config.oom_score_adj,
            config.scan_interval,
            now,
        );
        reactor
            .add(&signals, Token::Signal, EventFlags::IN)
            .map_err(io)?;
        reactor
            .add(control.listener(), Token::Listener, EventFlags::IN)
            .map_err(io)?;
        let daemon = Daemon {
            topmost: Topmost::new(config.settings.topmost.gap),
            actuators: Actuators::new(ledger, device),
            options,
            config,
            doors,
            reactor,
            signals,
            control,
            pressure_source,
            oom_score_adj,
            pressure: Pressure::default(),
            footprint: None,
            not_adoptable: BTreeSet::new(),
            front_process: None,
            last: Snapshot::default(),
            started: now,
            next_tick: now,
            service: Service::new(now),
            stopping: false,
            _lock: lock,
        };
        daemon.watch_sources().map_err(io)?;
        Ok(daemon)
    }

    fn watch_sources(&self) -> std::io::Result<()> {
        if let Some(trigger) = self.pressure_source.trigger() {
            self.reactor
                .add(trigger, Token::Pressure, EventFlags::PRI)?;
        }
        if let Some(instance) = self.oom_score_adj.instance() {
            self.reactor.add(instance, Token::Trace, EventFlags::IN)?;
        }
        Ok(())
    }

    /// Runs until SIGTERM or SIGINT, and puts everything back.
    pub fn run(mut self) -> Result<(), Failure> {
        self.enter_service();
        let mut failures = 0u32;
        while !self.stopping {
            match self.turn(None) {
                Ok(()) => failures = 0,
                Err(error) => {
                    // Not known to happen. Once may be chance; again and again would be a busy loop.
                    failures += 1;
                    error!("waiting for events failed: {error}");
                    if failures >= FAILURES_MAX {
                        self.stop();
                        return Err(Failure::Broken(format!("the event loop failed: {error}")));
                    }
                }
            }
        }
        self.stop();
        Ok(())
    }

    /// Says that it is ready, after a first look at the machine.
    fn enter_service(&mut self) {
        if !self.options.dry_run {
            self.shield_self();
        }
        self.refresh(Event::Tick);
        self.service.ready();
        info!(
            "ready: {} in {}",
            if self.options.dry_run {
                "dry run"
            } else {
                "limelightd"
            },
            self.options.roots.runtime.display()
        );
    }

    /// One turn of the loop: waits until something happens or is due, at most for `patience`, and
    /// does it.
    pub fn turn(&mut self, patience: Option<Duration>) -> std::io::Result<()> {
        let timeout = self.timeout().into_iter().chain(patience).min();
        let waited = self.reactor.wait(timeout);
        for ready in waited.as_deref().unwrap_or_default() {
            self.dispatch(*ready);
        }
        self.serve_clients();
        self.pass_time();
        waited.map(|_| ())
    }

    /// Without the daemon nobody would put anything back, so the OOM killer takes it late. Dies
    /// with it, so it is not recorded.
    fn shield_self(&self) {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let shielded = self
            .doors
            .process(own)
            .and_then(|(_, process)| process.set_oom_score_adj(OWN_SCORE));
        if let Err(error) = shielded {
            debug!("limelightd's own oom_score_adj stays: {error}");
        }
    }

    /// How long nothing is due.
    fn timeout(&self) -> Option<Duration> {
        if self.control.has_words() {
            return Some(Duration::ZERO);
        }
        let tick = self.wants_ticks().then_some(self.next_tick);
        let gap = self.topmost.front().and_then(|front| front.leaves_at);
        let deadlines = [
            tick,
            gap,
            self.oom_score_adj.next_scan(),
            self.control.next_deadline(),
            self.service.next_deadline(),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        // Rounded up: a millisecond early would only be another turn.
        Some(next.saturating_sub(now()) + Duration::from_millis(1))
    }

    fn wants_ticks(&self) -> bool {
        self.topmost.front().is_some() || !self.actuators.in_force.adopted.is_empty()
    }

    fn dispatch(&mut self, ready: Ready) {
        match ready.token {
            Token::Signal => self.take_signals(),
            Token::Listener => self.control.accept(&self.reactor, now()),
            Token::Client(id) => self.control.transfer(id, ready, now()),
            Token::Pressure => {
                if ready.flags.contains(EventFlags::ERR) {
                    if let Some(trigger) = self.pressure_source.drop_trigger() {
                        self.reactor.remove(&trigger);
                    }
                }
                if self.topmost.front().is_some() {
                    self.refresh(Event::Pressure);
                }
            }
            Token::Trace => {
                let lowered: Vec<_> = self.actuators.lowered_scores().collect();
                let fronts = self.oom_score_adj.take_traced(&self.doors, &lowered);
                self.infer(fronts);
            }
            Token::Front => self.check_front(),
        }
    }

    fn take_signals(&mut self) {
        while let Some(number) = self.signals.take() {
            if number == Signal::HUP.as_raw() {
                self.reload();
            } else {
                info!("stopped by signal {number}");
                self.stopping = true;
            }
        }
    }

    fn serve_clients(&mut self) {
        for word in self.control.take_words() {
            let response = self.request(&word);
            self.control.answer(word.client, &response, now());
        }
        for client in self.control.tidy(&self.reactor, now()) {
            let shift = self.topmost.release(Holder(client), now());
            self.after(shift);
        }
    }

    /// Everything that is due by now.
    fn pass_time(&mut self) {
        let at = now();
        let shift = self.topmost.tick(at);
        self.after(shift);
        let lowered: Vec<_> = self.actuators.lowered_scores().collect();
        let fronts = self.oom_score_adj.take_scanned(&self.doors, &lowered, at);
        self.infer(fronts);
        if self.wants_ticks() && self.next_tick <= at {
            self.check_front();
            self.refresh(Event::Tick);
            let context = Context {
                doors: &self.doors,
                now: at,
                front: None,
            };
            self.actuators.remove_empty_scopes(context);
            let interval = match self.topmost.front() {
                Some(_) => self.config.settings.protect.interval,
                None => HOUSEKEEPING,
            };
            self.next_tick = now() + interval;
        }
        self.service.pass_time(at);
    }

    /// Processes whose `oom_score_adj` became 0, oldest first.
    fn infer(&mut self, fronts: Vec<ProcessId>) {
        for id in fronts {
            if !self.topmost.hears_inferred() {
                debug!("pid {} became 0, but a higher claim is in force", id.pid);
                continue;
            }
            // The kernel let the writer write, so this is the owner's claim.
            let Some(uid) = self.doors.same_process(id).and_then(|p| p.owner_uid().ok()) else {
                continue;
            };
            let others = self.topmost.held_by_other_user(uid);
            let app = trust::may_speak(&self.doors, uid, others)
                .and_then(|()| identify::app_of_pid(&self.doors, id.pid));
            match app {
                Ok(app) => {
                    let app = trust::confine(&self.doors, uid, app);
                    let claim = Claim {
                        app: Some(app),
                        source: "oom_score_adj".to_owned(),
                        uid,
                    };
                    let shift = self.topmost.claim_inferred(claim, now());
                    self.after(shift);
                }
                Err(refusal) => debug!("oom_score_adj of {} became 0: {}", id.pid, refusal.message),
            }
        }
    }

    /// Demotes the app in front if it has ended, and forgets the one before it likewise.
    fn check_front(&mut self) {
        let front = self.topmost.front().map(|front| front.app.clone());
        let previous = self.topmost.previous().cloned();
        for app in front.into_iter().chain(previous) {
            if !identify::is_alive(&self.doors, &app) {
                debug!("{} has ended", app.name);
                let shift = self.topmost.vanished(app.key, now());
                self.after(shift);
            }
        }
    }

    /// Acts on what a claim came to.
    pub(crate) fn after(&mut self, shift: Shift) {
        if shift == Shift::Unchanged {
            return;
        }
        match self.topmost.front() {
            Some(front) => info!("topmost: {} (by {})", front.app.name, front.source),
            None => info!("topmost: none"),
        }
        self.watch_front();
        self.refresh(Event::Topmost);
        self.next_tick = now() + self.config.settings.protect.interval;
    }

    fn watch_front(&mut self) {
        if let Some((_, pidfd)) = self.front_process.take() {
            self.reactor.remove(&pidfd);
        }
        let Some(AppKey::Tree(root)) = self.topmost.front().map(|front| front.app.key) else {
            return;
        };
        // Without a pidfd the next tick notices the end.
        if let Ok(pidfd) = Pidfd::open(root.pid) {
            if self
                .reactor
                .add(&pidfd, Token::Front, EventFlags::IN)
                .is_ok()
            {
                self.front_process = Some((root, pidfd));
            }
        }
    }

    /// Measures, plans, and carries the plan out.
    pub(crate) fn refresh(&mut self, event: Event) {
        for _ in 0..ROUNDS {
            let snapshot = self.snapshot();
            let actions = plan(&event, &snapshot);
            let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.clone());
            self.last = snapshot;
            if self.options.dry_run && front.is_none() {
                self.actuators.changes.drop_where(|_, _| true);
            }
            let mut again = false;
            for action in &actions {
                let context = Context {
                    doors: &self.doors,
                    now: now(),
                    front: front.as_ref(),
                };
                if self.options.dry_run {
                    self.actuators.plan_only(action, context);
                    continue;
                }
                match self.actuators.apply(action, context) {
                    Effect::None => {}
                    Effect::Measurable => again = true,
                    Effect::Moved(app) => {
                        self.topmost.update_app(&app);
                        again = true;
                    }
                    Effect::NotAdopted => {
                        self.not_adoptable.extend(front.as_ref().map(|app| app.key));
                    }
                }
            }
            self.tell_own_writes(&actions);
            self.last.in_force = self.actuators.in_force.clone();
            if !again {
                return;
            }
        }
    }

    /// A scan would take our own writes for somebody else's.
    fn tell_own_writes(&mut self, actions: &[Action]) {
        let wrote = actions.iter().any(|action| {
            matches!(
                action,
                Action::Protect(Step::Shield { .. } | Step::Unshield { .. })
            )
        });
        if wrote && self.oom_score_adj.sees_own_writes() {
            let lowered: Vec<_> = self.actuators.lowered_scores().collect();
            self.oom_score_adj.resync(&self.doors, &lowered);
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let memory = pressure::memory(&self.doors);
        let lru = pressure::lru(&self.doors);
        let topmost = self
            .topmost
            .front()
            .map(|front| front.app.clone())
            .map(|app| {
                let members = identify::members(&self.doors, &app);
                let usage = identify::usage(&self.doors, &app);
                match (&mut self.footprint, usage) {
                    (Some((key, footprint)), Some(usage)) if *key == app.key => {
                        footprint.observe(usage);
                    }
                    (slot, usage) => *slot = usage.map(|usage| (app.key, Footprint::new(usage))),
                }
                let footprint = self.footprint.as_ref().map(|(_, footprint)| *footprint);
                Measured {
                    app,
                    members,
                    footprint,
                }
            });
        let cache = topmost.as_ref().and_then(|topmost| {
            let usage = topmost.footprint?.usage;
            Some(identify::protected_cache(&self.doors, &topmost.app, &usage))
        });
        let reading = pressure::reading(&self.doors, now(), memory, cache.unwrap_or(0));
        self.pressure.observe(reading);
        let not_adoptable = topmost
            .as_ref()
            .is_some_and(|topmost| self.not_adoptable.contains(&topmost.app.key));
        let device = self.actuators.device.device().is_some();
        Snapshot {
            settings: self.config.settings.clone(),
            memory,
            lru,
            memory_controller: self.doors.has_memory_controller(),
            device,
            may_adopt: self.may_adopt() && !not_adoptable,
            topmost,
            lowered_steps: self.pressure.steps(),
            protected_by_others: protected_by_others(
                &self.doors,
                &self.actuators.ledger,
                lru.knob(),
            ),
            in_force: self.actuators.in_force.clone(),
        }
    }

    fn may_adopt(&self) -> bool {
        match self.config.adopt {
            Adopt::Never => false,
            Adopt::Always => true,
            Adopt::Auto => {
                self.actuators.device.device().is_none() && !self.doors.roots.systemd.exists()
            }
        }
    }

    /// Reads the configuration again; a wrong one leaves the one in force.
    pub fn reload(&mut self) {
        self.service.reloading();
        match config::load(&self.options.config) {
            Ok(fresh) => {
                if fresh.device != self.config.device {
                    warn!("[kernel] device takes effect when limelightd is started anew");
                }
                let source = (fresh.oom_score_adj, fresh.scan_interval)
                    != (self.config.oom_score_adj, self.config.scan_interval);
                self.config = Config {
                    device: self.config.device,
                    ..fresh
                };
                self.topmost.set_gap(self.config.settings.topmost.gap);
                self.not_adoptable.clear();
                if source {
                    self.restart_oom_score_adj();
                }
                self.refresh(Event::Settings);
                info!("configuration reloaded");
            }
            Err(errors) => {
                error!("the configuration in force is kept, the new one is wrong:\n{errors}")
            }
        }
        self.service.ready();
    }

    fn restart_oom_score_adj(&mut self) {
        if let Some(instance) = self.oom_score_adj.instance() {
            self.reactor.remove(instance);
        }
        self.oom_score_adj.stop_now(&mut self.actuators.ledger);
        self.oom_score_adj = OomScoreAdj::start(
            &self.doors,
            &mut self.actuators.ledger,
            self.config.oom_score_adj,
            self.config.scan_interval,
            now(),
        );
        if let Some(instance) = self.oom_score_adj.instance() {
            if let Err(error) = self.reactor.add(instance, Token::Trace, EventFlags::IN) {
                error!("the oom_score_adj tracepoint cannot be waited for: {error}");
            }
        }
    }

    /// Puts everything back.
    pub fn stop(mut self) {
        self.service.stopping();
        self.refresh(Event::Stop);
        self.oom_score_adj.stop_now(&mut self.actuators.ledger);
        let failed = if self.options.dry_run {
            0
        } else {
            undo_all(&mut self.actuators.ledger, &self.doors)
        };
        if failed > 0 {
            error!("{failed} things could not be put back; the restore record keeps them");
        }
        self.actuators.ledger.close();
        self.control.close();
        info!("stopped");
    }
}

/// Refuses to start where nothing could ever act.
fn check_power(doors: &Doors, device: &DeviceDoor, dry_run: bool) -> Result<(), Failure> {
    if dry_run || device.device().is_some() {
        return Ok(());
    }
    let why = match device {
        DeviceDoor::Open(_) => return Ok(()),
        DeviceDoor::Unused(why) => why,
    };
    if !doors.has_memory_controller() {
        return Err(Failure::Powerless(format!(
            "{}: has no memory controller (cgroup_disable=memory, or cgroup v1 holds it: boot with cgroup_no_v1=all), and the device is not used: {why}",
            doors.cgroups.mount_point().display()
        )));
    }
    let root = doors.cgroup_file("/", "cgroup.subtree_control");
    let writable = rustix::fs::access(root.as_str(), rustix::fs::Access::WRITE_OK);
    if let Err(errno) = writable {
        return Err(Failure::Permission {
            what: format!("{root} is not writable: {errno}"),
            cure: "run limelightd as root (systemctl start limelightd), or try --dry-run",
        });
    }
    Ok(())
}
