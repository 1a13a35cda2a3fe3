// SPDX-License-Identifier: GPL-2.0-or-later
//! The daemon: sources, model, policy and actuators around one epoll loop.

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

use crate::access::Access;
use crate::actuators::device::DeviceDoor;
use crate::actuators::{Actuators, Context};
use crate::agents::Agents;
use crate::apps::Announced;
use crate::boost::Surroundings;
use crate::competitors::Competitors;
use crate::config::{self, Config, Origin};
use crate::decisions::Decisions;
use crate::doors::{now, Doors, Roots};
use crate::exit::Failure;
use crate::expected::Expected;
use crate::following::Following;
use crate::front_end::FrontEnd;
use crate::gate::collect::Collector;
use crate::history::History;
use crate::household::Household;
use crate::lock::{self, Lock};
use crate::notify::Service;
use crate::own;
use crate::prezero::Zeroing;
use crate::reactor::{Reactor, Ready, Token};
use crate::readahead::Readahead;
use crate::restore::Ledger;
use crate::sources::apps::AppsSource;
use crate::sources::control::ControlSource;
use crate::sources::new_units::NewUnits;
use crate::sources::oom_score_adj::OomScoreAdj;
use crate::sources::pressure::PressureSource;
use crate::sources::sessions::Sessions;
use crate::sources::top_app::TopApp;
use crate::sources::wake_graph::WakeGraphSource;
use crate::starting::Starting;
use crate::swap_report::Rivals;
use crate::undo::undo_all;
use crate::watched::{NO_OPENS, NO_WAITS};
use crate::watcher::Watcher;
use crate::windows::ResponseWindows;

/// Failed waits in a row after which the daemon gives up.
const FAILURES_MAX: u32 = 10;

/// How often cgroups of ended apps are looked for while nothing is topmost, at first.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// After so many looks at the app that led to nothing the next ones come less often, by the next one of
/// these factors. Whoever lets his machine rest must not have it woken; threads and children that the
/// app gets meanwhile have what it has itself, and a shortage of memory is told.
const QUIET_TICKS: u32 = 4;
const PATIENCE: [u32; 4] = [1, 4, 32, 256];

/// How the daemon is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the configuration comes from.
    pub config: Origin,
    /// Plan and explain, apply nothing.
    pub dry_run: bool,
    /// The program that is started with `--watch`, to restore everything if this process is killed.
    pub watcher: Option<PathBuf>,
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
    /// Whom the configuration and the machine vouch for.
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
    pub(crate) household: Household,
    pub(crate) topmost: Topmost,
    pub(crate) pressure: Pressure,
    pub(crate) footprint: Option<(AppKey, Footprint)>,
    pub(crate) actuators: Actuators,
    pub(crate) app_source: AppsSource,
    pub(crate) new_units: NewUnits,
    pub(crate) expected: Expected,
    pub(crate) sessions: Sessions,
    pub(crate) agents: Agents,
    /// The apps that were found.
    pub(crate) apps: Apps,
    /// Processes that were said to be in use.
    pub(crate) announced: Announced,
    /// What was done about shortages of memory.
    pub(crate) history: History,
    /// Who else kills.
    pub(crate) rivals: Rivals,
    /// Why, and why not something else.
    pub(crate) decisions: Decisions,
    /// Lists the processes that no action may harm.
    pub(crate) protected: Collector,
    /// Apps that could not be moved into a cgroup of their own.
    pub(crate) not_adoptable: BTreeSet<AppKey>,
    /// Apps in cgroups of ours that could not be given the controllers that weights need.
    pub(crate) not_weighable: BTreeSet<AppKey>,
    /// A program that is being started and expected in front.
    pub(crate) starting: Option<Starting>,
    /// Tells when the app in front has ended.
    pub(crate) front_end: Option<FrontEnd>,
    pub(crate) following: Following,
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

/// Puts everything back that a dead daemon left, and nothing else: `limelightd --restore`.
pub fn restore(roots: Roots) -> Result<(), Failure> {
    let runtime = roots.runtime.clone();
    if !runtime.exists() {
        return Ok(());
    }
    let _lock = lock::take_to_restore(&runtime)?;
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
        own::raise_descriptor_limit();
        let mut doors = Doors::open(options.roots.clone())?;
        let now = now();
        let program = options.watcher.clone().filter(|_| !options.dry_run);
        let watcher = Watcher::start(program, options.roots.runtime.clone(), now);
        doors.watcher = watcher.pid();
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
        let top_app = TopApp::start(&doors, config.top_app);
        let readahead = Readahead::start(
            &doors,
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
            access: Access::new(&doors.roots.groups, &config.access_group),
            topmost: Topmost::new(config.settings.topmost.gap),
            household: Household::default(),
            zeroing: Zeroing::open((!options.dry_run).then(|| config.state_directory())),
            windows: ResponseWindows::new(config.settings.window),
            actuators: Actuators::new(ledger, device),
            app_source: AppsSource::new(&doors, config.classes.clone()),
            new_units: NewUnits::new(),
            expected: Expected::default(),
            sessions: Sessions::watch(&doors),
            agents: Agents::default(),
            apps: Apps::default(),
            announced: Announced::default(),
            rivals: Rivals::default(),
            decisions: Decisions::default(),
            history: History::open(
                (!options.dry_run).then(|| config.state_directory()),
                doors.boot_id(),
            ),
            options,
            config,
            doors,
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
            front_end: None,
            following: Following::default(),
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
        // It is needed most when memory is shortest, and must not wait for the disk then.
        if let Err(error) = lock_memory() {
            warn!("{error}: under pressure the daemon itself may be swapped out");
        }
        Ok(daemon)
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
            own::shield(&self.doors);
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
        self.tell_deeds();
        waited.map(|_| ())
    }

    /// How long nothing is due.
    fn timeout(&self) -> Option<Duration> {
        let tick = self.wants_ticks().then_some(self.next_tick);
        let gap = self.topmost.front().and_then(|front| front.leaves_at);
        let deadlines = [
            tick,
            gap,
            self.oom_score_adj.next_scan(),
            self.control.next_deadline(),
            self.control.next_word(now()),
            self.service.next_deadline(),
            self.readahead.next_deadline(),
            self.windows.next_deadline(),
            self.wake_graph.next_deadline(),
            self.household.next_look(),
            self.following.next_look(),
            self.actuators.next_attempt(),
            self.watcher.next_deadline(),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_sub(now()))
    }

    /// How many times longer than configured the next look may wait. Each look takes milliseconds
    /// from the very app that is looked at. While the app stays as it is and the kernel tells when
    /// memory runs short, there is nothing to see.
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
                let fronts = self.oom_score_adj.take_traced(&self.doors, &lowered);
                self.infer_by_score(fronts);
                // Who is moved from one group to another gets another value too.
                self.look_at_top_app();
            }
            Token::TopApp => self.look_at_top_app(),
            Token::Front => self.front_told(),
            Token::Mounts => self.readahead.notice_mounts(now()),
            Token::Execs => {
                let launched = self.readahead.take_execs(&self.doors, now());
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
        for word in self.control.take_words(now()) {
            let response = self.request(&word);
            self.control.answer(word.client, &response, now());
        }
        for client in self.control.tidy(&self.reactor, now()) {
            self.windows.release(client);
            self.announced.release(client);
            self.agents.release(client);
            let shift = self.topmost.release(Holder(client), now());
            self.after(shift);
        }
    }

    /// Everything that is due by now.
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
        let fronts = source.take_scanned(&self.doors, &lowered, heard, at);
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
                doors: &self.doors,
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
            self.next_tick = now() + interval;
        }
        if self.readahead.take_opens(&self.doors, at) {
            self.wait_again(self.readahead.opens(), Token::Opens, NO_OPENS);
        }
        if self.readahead.pass_time(&self.doors, at) {
            self.wait_again(self.readahead.waits(), Token::Waits, NO_WAITS);
        }
        self.actuators.put_back_owed(&self.doors, at);
        self.restart_watcher(at);
        self.service.pass_time(at);
    }

    /// Puts everything back.
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
            undo_all(&mut self.actuators.ledger, &self.doors)
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

/// Refuses to start where nothing may be changed, and says what cannot act.
fn check_power(doors: &Doors, device: &DeviceDoor, dry_run: bool) -> Result<(), Failure> {
    if dry_run || device.device().is_some() {
        return Ok(());
    }
    let why = match device {
        DeviceDoor::Open(_) => return Ok(()),
        DeviceDoor::Unused(why) => why,
    };
    if !doors.has_memory_controller() {
        let lack = doors.proc.lack_of("memory").unwrap_or(Lack::Hidden);
        warn!(
            "{} has no memory controller, {lack}: no memory is reserved for the app in front, and no \
             other app is squeezed; {}; and the device is not used: {why}",
            doors.cgroups.mount_point().display(),
            lack.cure()
        );
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
