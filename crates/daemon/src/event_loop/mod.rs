// SPDX-License-Identifier: GPL-2.0-or-later
//! The daemon: sources, model, policy and actuators around one epoll loop.

pub mod answers;
pub mod lock;
pub mod reactor;
mod registration;
mod reload;
pub(crate) mod self_tuning;
pub(crate) mod service_manager;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use limelight_core::model::apps::Apps;
use limelight_core::model::footprint::Footprint;
use limelight_core::model::pressure::Pressure;
use limelight_core::model::topmost::{Holder, Topmost};
use limelight_core::model::{AppKey, Snapshot};
use limelight_core::policy::Event;
use limelight_sys::controllers::Lack;
use limelight_sys::memory_lock::lock_memory;
use limelight_sys::signal::Signals;
use rustix::event::epoll::EventFlags;
use rustix::process::Signal;
use tracing::{error, info, warn};

use crate::config::{self, Config, Origin};
use crate::control::agents::Agents;
use crate::control::decisions::Decisions;
use crate::control::history::History;
use crate::control::report::swap::OomDaemons;
use crate::control::socket::ControlSource;
use crate::event_loop::lock::Lock;
use crate::event_loop::reactor::{Reactor, Ready, Token};
use crate::event_loop::registration::{NO_OPENS, NO_WAITS};
use crate::event_loop::service_manager::Service;
use crate::exit::Failure;
use crate::mechanisms::boost::competitors::Competitors;
use crate::mechanisms::boost::Surroundings;
use crate::mechanisms::device::DeviceDoor;
use crate::mechanisms::prezero::Zeroing;
use crate::mechanisms::protect::reservation_tracker::ReservationTracker;
use crate::mechanisms::readahead::Readahead;
use crate::mechanisms::swap::pending_units::PendingUnits;
use crate::mechanisms::window::ResponseWindows;
use crate::mechanisms::{Actuators, Context};
use crate::reconcile::app_scan::AppScan;
use crate::reconcile::apps::Announced;
use crate::reconcile::gate::collect::Collector;
use crate::reconcile::launch::Launch;
use crate::reconcile::protected_processes::Switched;
use crate::restore::undo::undo_all;
use crate::restore::watcher::Watcher;
use crate::restore::Ledger;
use crate::sources::apps::AppsSource;
use crate::sources::new_units::NewUnits;
use crate::sources::oom_score_adj::OomScoreAdj;
use crate::sources::pressure::PressureSource;
use crate::sources::sessions::Sessions;
use crate::sources::top_app::TopApp;
use crate::sources::topmost_exit::TopmostExit;
use crate::sources::wake_graph::WakeGraphSource;
use crate::system::access::Access;
use crate::system::{now, Roots, System};

/// Consecutive failed waits after which the daemon exits.
const FAILURES_MAX: u32 = 10;

/// Initial interval between searches for cgroups of ended apps while no app is topmost.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// After this many ticks without effect, the interval grows by the next one of these factors. This
/// backs off when idle, to avoid wakeups. Threads and children that the app creates meanwhile
/// inherit its settings, and a memory shortage wakes the daemon anyway.
const QUIET_TICKS: u32 = 4;
const PATIENCE: [u32; 4] = [1, 4, 32, 256];

/// Start options of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the configuration is read from.
    pub config: Origin,
    /// Plan and explain, apply nothing.
    pub dry_run: bool,
    /// The program that is started with `--watch`; it restores everything if this process is
    /// killed.
    pub watcher: Option<PathBuf>,
    /// Root directories of the system interfaces.
    pub roots: Roots,
}

/// The running daemon.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) options: Options,
    pub(crate) config: Config,
    pub(crate) system: System,
    pub(crate) reactor: Reactor,
    signals: Signals,
    pub(crate) control: ControlSource,
    /// Which users may make claims, by the configuration and the machine.
    pub(crate) access: Access,
    pub(crate) pressure_source: PressureSource,
    pub(crate) oom_score_adj: OomScoreAdj,
    pub(crate) top_app: TopApp,
    pub(crate) wake_graph: WakeGraphSource,
    pub(crate) readahead: Readahead,
    pub(crate) surroundings: Surroundings,
    /// Programs that take a processor from the topmost app.
    pub(crate) competitors: Competitors,
    pub(crate) windows: ResponseWindows,
    pub(crate) zeroing: Zeroing,
    pub(crate) app_scan: AppScan,
    pub(crate) topmost: Topmost,
    pub(crate) pressure: Pressure,
    pub(crate) footprint: Option<(AppKey, Footprint)>,
    pub(crate) actuators: Actuators,
    pub(crate) app_source: AppsSource,
    pub(crate) new_units: NewUnits,
    pub(crate) pending_units: PendingUnits,
    pub(crate) sessions: Sessions,
    pub(crate) agents: Agents,
    /// The apps found by scans.
    pub(crate) apps: Apps,
    /// Processes that were announced as in use.
    pub(crate) announced: Announced,
    /// Actions taken on memory shortages.
    pub(crate) history: History,
    /// Other OOM daemons.
    pub(crate) oom_daemons: OomDaemons,
    /// Recent decisions and their alternatives.
    pub(crate) decisions: Decisions,
    /// Lists the processes that no action may harm.
    pub(crate) protected: Collector,
    /// Apps that could not be moved into a cgroup of their own.
    pub(crate) not_adoptable: BTreeSet<AppKey>,
    /// Apps in cgroups of ours without the controllers that weights need.
    pub(crate) not_weighable: BTreeSet<AppKey>,
    /// A starting program that is expected in the foreground.
    pub(crate) starting: Option<Launch>,
    /// Exit notification for the topmost app.
    pub(crate) topmost_exit: Option<TopmostExit>,
    pub(crate) reservation_tracker: ReservationTracker,
    /// Data read when another app became topmost, for the plan that follows at once.
    pub(crate) switched: Option<Switched>,
    /// As of the last event, for `status` and `explain`.
    pub(crate) last: Snapshot,
    pub(crate) started: Duration,
    pub(crate) next_tick: Duration,
    /// Ticks in a row that led to nothing.
    pub(crate) quiet_ticks: u32,
    pub(crate) service: Service,
    stopping: bool,
    /// Restores everything if this process is killed.
    pub(crate) watcher: Watcher,
    _lock: Lock,
}

/// Restores what a dead daemon left changed and nothing else: `limelightd --restore`.
pub fn restore(roots: Roots) -> Result<(), Failure> {
    let runtime = roots.runtime.clone();
    if !runtime.exists() {
        return Ok(());
    }
    let _lock = lock::take_to_restore(&runtime)?;
    let system = System::open(roots)?;
    let mut ledger = Ledger::open(&runtime, system.boot_id());
    let failed = undo_all(&mut ledger, &system);
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
    /// Starts: reads the configuration, takes the lock, opens the system interfaces, restores what
    /// a dead daemon left changed. Nothing is changed for any app yet.
    pub fn start(options: Options) -> Result<Daemon, Failure> {
        let config = config::load(&options.config)?;
        let lock = lock::take(&options.roots.runtime)?;
        // Blocked before any change: a stop signal during the start takes effect after it.
        let signals = Signals::block(&[Signal::TERM, Signal::INT, Signal::HUP])
            .map_err(|error| Failure::Broken(error.to_string()))?;
        self_tuning::raise_descriptor_limit();
        let mut system = System::open(options.roots.clone())?;
        let now = now();
        let program = options.watcher.clone().filter(|_| !options.dry_run);
        let watcher = Watcher::start(program, options.roots.runtime.clone(), now);
        system.watcher = watcher.pid();
        let mut ledger = Ledger::open(&options.roots.runtime, system.boot_id());
        let left = ledger.entries().len();
        if options.dry_run && left > 0 {
            warn!("{left} changes of a dead limelightd are in force; a dry run leaves them, limelightd --restore puts them back");
        } else {
            undo_all(&mut ledger, &system);
        }

        let device = if options.dry_run {
            DeviceDoor::Unused("a dry run does not open it".to_owned())
        } else {
            DeviceDoor::open(&system.roots.device, config.device)?
        };
        check_power(&system, &device, options.dry_run)?;

        let io = |error: std::io::Error| Failure::Broken(format!("no event loop: {error}"));
        let reactor = Reactor::new().map_err(io)?;
        let control = ControlSource::bind(&options.roots.runtime)?;
        let pressure_source = PressureSource::new(&system);
        let oom_score_adj = OomScoreAdj::start(
            &system,
            &mut ledger,
            config.oom_score_adj,
            config.scan_interval,
            now,
        );
        let top_app = TopApp::start(&system, config.top_app);
        let readahead = Readahead::start(
            &system,
            &config.settings.readahead,
            &config.cold_start_directory,
            options.dry_run,
            now,
        );
        reactor
            .add(&signals, Token::Signal, EventFlags::IN)
            .map_err(io)?;
        reactor
            .add(control.listener(), Token::Listener, EventFlags::IN)
            .map_err(io)?;
        let mut daemon = Daemon {
            access: Access::new(&system.roots.groups, &config.access_group),
            topmost: Topmost::new(config.settings.topmost.gap),
            app_scan: AppScan::default(),
            zeroing: Zeroing::open((!options.dry_run).then(|| config.state_directory())),
            windows: ResponseWindows::new(config.settings.window),
            actuators: Actuators::new(ledger, device),
            app_source: AppsSource::new(&system, config.classes.clone()),
            new_units: NewUnits::new(),
            pending_units: PendingUnits::default(),
            sessions: Sessions::watch(&system),
            agents: Agents::default(),
            apps: Apps::default(),
            announced: Announced::default(),
            oom_daemons: OomDaemons::default(),
            decisions: Decisions::default(),
            history: History::open(
                (!options.dry_run).then(|| config.state_directory()),
                system.boot_id(),
            ),
            options,
            config,
            system,
            reactor,
            signals,
            control,
            pressure_source,
            oom_score_adj,
            top_app,
            wake_graph: WakeGraphSource::default(),
            readahead,
            surroundings: Surroundings::default(),
            competitors: Competitors::default(),
            pressure: Pressure::default(),
            footprint: None,
            protected: Collector::default(),
            not_adoptable: BTreeSet::new(),
            not_weighable: BTreeSet::new(),
            starting: None,
            topmost_exit: None,
            reservation_tracker: ReservationTracker::default(),
            switched: None,
            last: Snapshot::default(),
            started: now,
            next_tick: now,
            quiet_ticks: 0,
            service: Service::new(now),
            stopping: false,
            watcher,
            _lock: lock,
        };
        daemon.control.set_group(daemon.access.gid());
        daemon.start_swap();
        daemon.watch_sources();
        daemon.look_at_sessions();
        // The daemon is needed most when memory is shortest, and must not wait for the disk then.
        if let Err(error) = lock_memory() {
            warn!("{error}: under pressure the daemon itself may be swapped out");
        }
        // Before the first answer: the reported state of the machine must not change with the first
        // claim.
        daemon.refresh(Event::Tick);
        Ok(daemon)
    }

    /// Runs until SIGTERM or SIGINT, and restores everything.
    pub fn run(mut self) -> Result<(), Failure> {
        self.enter_service();
        let mut failures = 0u32;
        while !self.stopping {
            match self.turn(None) {
                Ok(()) => failures = 0,
                Err(error) => {
                    // Not known to happen. A single failure may be chance; repeated ones would be a
                    // busy loop.
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

    /// Reports readiness to the service manager.
    fn enter_service(&mut self) {
        if !self.options.dry_run {
            self_tuning::shield(&self.system);
        }
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

    /// One turn of the loop: waits for an event or a deadline, at most for `patience`, and handles
    /// it.
    pub fn turn(&mut self, patience: Option<Duration>) -> std::io::Result<()> {
        let timeout = self.timeout().into_iter().chain(patience).min();
        let waited = self.reactor.wait(timeout);
        for ready in waited.as_deref().unwrap_or_default() {
            self.dispatch(*ready);
        }
        self.serve_clients();
        self.pass_time();
        self.tell_deeds();
        waited.map(|_| ())
    }

    /// Time until the next deadline.
    fn timeout(&self) -> Option<Duration> {
        let tick = self.wants_ticks().then_some(self.next_tick);
        let gap = self.topmost.front().and_then(|front| front.leaves_at);
        let deadlines = [
            tick,
            gap,
            self.oom_score_adj.next_scan(),
            self.control.next_deadline(),
            self.control.next_line(now()),
            self.service.next_deadline(),
            self.readahead.next_deadline(),
            self.windows.next_deadline(),
            self.wake_graph.next_deadline(),
            self.app_scan.next_look(),
            self.reservation_tracker.next_look(),
            self.actuators.next_attempt(),
            self.watcher.next_deadline(),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_sub(now()))
    }

    /// Factor by which the next tick may be later than configured. Each tick takes milliseconds
    /// from the topmost app itself. While the app does not change and a PSI trigger reports
    /// shortages, there is nothing to see.
    fn patience(&self) -> u32 {
        let told = self.pressure_source.trigger().is_some() && self.pressure.steps() == 0;
        let stage = (self.quiet_ticks / QUIET_TICKS) as usize;
        let factor = PATIENCE.get(stage).or(PATIENCE.last()).filter(|_| told);
        factor.copied().unwrap_or(1)
    }

    fn wants_ticks(&self) -> bool {
        self.topmost.front().is_some()
            || self.starting.is_some()
            || !self.actuators.in_force.adopted.is_empty()
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
                let fronts = self.oom_score_adj.take_traced(&self.system, &lowered);
                self.infer_by_score(fronts);
                // A process that moves to another group also gets another score.
                self.look_at_top_app();
            }
            Token::TopApp => self.look_at_top_app(),
            Token::Front => self.front_told(),
            Token::Mounts => self.readahead.notice_mounts(now()),
            Token::Execs => {
                let launched = self.readahead.take_execs(&self.system, now());
                self.launched(&launched);
            }
            Token::Opens => self.readahead.notice_opens(now()),
            Token::Readers => self.readahead.take_answers(),
            Token::Waits => self.readahead.notice_waits(now()),
            Token::Guard | Token::Swapper => self.attend_to_memory(),
            Token::Units => self.units_made(),
            Token::Sessions => self.look_at_sessions(),
            Token::Watcher => self.reap_watcher(),
            Token::Input | Token::Plugged | Token::Frames => self.window_source(ready.token),
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
        for line in self.control.take_lines(now()) {
            let response = self.request(&line);
            self.control.answer(line.client, &response, now());
        }
        for client in self.control.tidy(&self.reactor, now()) {
            self.windows.release(client);
            self.announced.release(client);
            self.agents.release(client);
            let shift = self.topmost.release(Holder(client), now());
            self.after(shift);
        }
    }

    /// Handles all deadlines up to now.
    fn pass_time(&mut self) {
        let at = now();
        self.windows.pass_time(at);
        self.tell_kernel(at);
        self.guess_if_due(at);
        self.tend_window_sources();
        let shift = self.topmost.tick(at);
        self.after(shift);
        let lowered: Vec<_> = self.actuators.lowered_scores().collect();
        let heard = self.topmost.hears_inferred();
        let source = &mut self.oom_score_adj;
        let fronts = source.take_scanned(&self.system, &lowered, heard, at);
        self.infer_by_score(fronts);
        self.retry_oom_score_adj(at);
        if self.look_at_apps_if_due(at) {
            self.refresh_swap(Event::Tick);
        }
        self.follow_use(at);
        self.follow_if_due(at);
        if self.wants_ticks() && self.next_tick <= at {
            self.check_front();
            self.look_at_top_app();
            self.refresh(Event::Tick);
            self.actuators.look_for_locks();
            let context = Context {
                system: &self.system,
                now: at,
                front: None,
                apps: &[],
            };
            self.actuators.remove_empty_scopes(context);
            let interval = match self.topmost.front() {
                _ if self.starting.is_some() => self.config.settings.protect.interval,
                Some(_) => self.config.settings.protect.interval * self.patience(),
                None => HOUSEKEEPING * self.patience(),
            };
            // Each tick renews the lease of the topmost set.
            let lease = self.actuators.lease.call_within();
            self.next_tick = now() + lease.map_or(interval, |lease| interval.min(lease));
        }
        if self.readahead.take_opens(&self.system, at) {
            self.wait_again(self.readahead.opens(), Token::Opens, NO_OPENS);
        }
        if self.readahead.pass_time(&self.system, at) {
            self.wait_again(self.readahead.waits(), Token::Waits, NO_WAITS);
        }
        self.actuators.put_back_owed(&self.system, at);
        self.restart_watcher(at);
        self.service.pass_time(at);
    }

    /// Restores everything and ends the daemon.
    pub fn stop(mut self) {
        self.service.stopping();
        self.refresh(Event::Stop);
        self.oom_score_adj.stop(&mut self.actuators.ledger);
        self.windows.stop(&mut self.actuators.ledger);
        self.wake_graph.stop(&mut self.actuators.ledger);
        self.zeroing.write(now());
        let failed = if self.options.dry_run {
            0
        } else {
            undo_all(&mut self.actuators.ledger, &self.system)
        };
        if failed > 0 {
            error!("{failed} things could not be put back; the restore record keeps them");
        }
        self.actuators.ledger.close();
        self.control.close();
        self.watcher.dismiss();
        info!("stopped");
    }
}

/// Fails if no change would be permitted, and warns about mechanisms that cannot work.
fn check_power(system: &System, device: &DeviceDoor, dry_run: bool) -> Result<(), Failure> {
    if dry_run || device.device().is_some() {
        return Ok(());
    }
    let why = match device {
        DeviceDoor::Open(_) => return Ok(()),
        DeviceDoor::Unused(why) => why,
    };
    if !system.has_memory_controller() {
        let lack = system.proc.lack_of("memory").unwrap_or(Lack::Hidden);
        warn!(
            "{} has no memory controller, {lack}: no memory is reserved for the app in front, and no \
             other app is squeezed; {}; and the device is not used: {why}",
            system.cgroups.mount_point().display(),
            lack.cure()
        );
    }
    let root = system.cgroup_file("/", "cgroup.subtree_control");
    let writable = rustix::fs::access(root.as_str(), rustix::fs::Access::WRITE_OK);
    if let Err(errno) = writable {
        return Err(Failure::Permission {
            what: format!("{root} is not writable: {errno}"),
            cure: "run limelightd as root (systemctl start limelightd), or try --dry-run",
        });
    }
    Ok(())
}
