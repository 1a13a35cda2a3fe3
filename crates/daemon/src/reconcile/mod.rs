// SPDX-License-Identifier: GPL-2.0-or-later
//! Turns an input into actions: updates the model, measures the machine, asks the policy, and
//! executes the plan.

pub mod announced;
pub mod app_scan;
mod claims;
pub mod decisions;
pub mod gate;
pub mod history;
mod launch;
mod loading;
mod measure;
mod notices;
pub mod outbox;
pub mod pausing;
mod protected_processes;
mod scope;
mod ticks;

use std::time::Duration;

use limelight_core::model::ageing::Ageing;
use limelight_core::model::apps::Apps;
use limelight_core::model::pressure::Pressure;
use limelight_core::model::topmost::{Holder, Rank, Shift, Topmost};
use limelight_core::model::{App, AppKey, ProcessId, Snapshot};
use limelight_core::policy::Event;
use tracing::{info, warn};

use crate::config::{Config, EvdevSource};
use crate::mechanisms::boost::Boost;
use crate::mechanisms::premap::Premap;
use crate::mechanisms::prezero::Prezero;
use crate::mechanisms::protect::adopt::remove_empty_scopes;
use crate::mechanisms::protect::reservation_tracker::ReservationTracker;
use crate::mechanisms::protect::Protect;
use crate::mechanisms::readahead::Readahead;
use crate::mechanisms::swap::Swap;
use crate::mechanisms::window::Window;
use crate::mechanisms::{Context, Mechanisms, Shared};
use crate::sources::terminal::TerminalSource;
use crate::sources::topmost_exit::TopmostExit;
use crate::sources::Input;
use crate::system::access::Access;
use crate::system::{identify, now, System};

use app_scan::AppScan;
use claims::no_app;
use decisions::Decisions;
use history::History;
use launch::Launch;
use measure::Others;
use outbox::Outbox;
use pausing::Pausing;
use protected_processes::ProtectedProcesses;
use scope::Scope;
use ticks::{Tabs, Ticks, HOUSEKEEPING};

/// What the daemon knows about the machine.
#[derive(Debug)]
pub struct Model {
    /// The topmost app, and the claims.
    pub topmost: Topmost,
    /// The apps found by scans.
    pub apps: Apps,
    /// Memory pressure that protection causes.
    pub pressure: Pressure,
    /// Ageing of protection while the topmost app is not used.
    pub ageing: Ageing,
    /// A starting program that is expected in the foreground.
    pub starting: Option<Launch>,
    /// The topmost app's processes as of the last successful read.
    members: Option<(AppKey, Vec<ProcessId>)>,
    /// Whether the last read of the topmost app's processes failed.
    members_unknown: bool,
    /// The snapshot as of the last event, also for `status` and `explain`.
    pub last: Snapshot,
}

impl Model {
    /// The topmost app.
    pub fn front(&self) -> Option<&App> {
        self.topmost.front().map(|front| &front.app)
    }

    /// The user of an app; `None` if unknown.
    pub fn owner_of(&self, system: &System, app: &App) -> Option<u32> {
        if let Some(known) = self.apps.get(app.key) {
            return Some(known.found.uid);
        }
        let pid = match app.process {
            Some(process) => process.pid,
            None => *identify::open_home(system, app)?
                .procs_below()
                .ok()?
                .first()?,
        };
        let (_, process) = system.process(pid).ok()?;
        process.owner_uid().ok()
    }

    /// Whether the topmost app is a guess.
    pub fn is_guess(&self) -> bool {
        let front = self.topmost.front();
        front.is_some_and(|front| front.rank == Rank::Guessed)
    }

    /// The topmost app's processes now. If they cannot be read, those that were read last: an app
    /// whose processes are unknown stays protected.
    fn topmost_members(&mut self, system: &System) -> Vec<ProcessId> {
        let Some(app) = self.topmost.front().map(|front| &front.app) else {
            return Vec::new();
        };
        let read = identify::members(system, app);
        match (&read, self.members_unknown) {
            (Err(error), false) => warn!(
                "cannot read the processes of {}: {error}; the former ones stay protected",
                app.name
            ),
            (Ok(_), true) => info!("the processes of {} can be read again", app.name),
            _ => {}
        }
        self.members_unknown = read.is_err();
        match read {
            Ok(members) => {
                self.members = Some((app.key, members.clone()));
                members
            }
            Err(_) => self.former_members(app),
        }
    }

    /// The app's processes now, or those that were read last if they cannot be read.
    pub fn members_of(&self, system: &System, app: &App) -> Vec<ProcessId> {
        identify::members(system, app).unwrap_or_else(|_| self.former_members(app))
    }

    /// The app's processes as of the last successful read, or else its known process.
    fn former_members(&self, app: &App) -> Vec<ProcessId> {
        match &self.members {
            Some((key, members)) if *key == app.key => members.clone(),
            _ => app.process.into_iter().collect(),
        }
    }
}

/// Model, mechanisms and history: everything between an input and its actions.
#[derive(Debug)]
pub struct Reconciler {
    /// The configuration in force.
    pub config: Config,
    /// Dry run: plan and explain, but change nothing.
    pub dry_run: bool,
    /// The opened system interfaces.
    pub system: System,
    /// The users that the configuration or the machine permits to make claims.
    pub access: Access,
    /// The daemon's knowledge about the machine.
    pub model: Model,
    /// The scans for apps.
    pub scan: AppScan,
    /// The mechanisms, which carry out actions.
    pub mechanisms: Mechanisms,
    /// Actions taken on memory shortages.
    pub history: History,
    /// The last decisions about memory, with their inputs.
    pub decisions: Decisions,
    /// Work for the event loop after an input.
    pub outbox: Outbox,
    /// The pause in force.
    pause: Option<Pausing>,
    /// The foreground app of the last notice, and its owner.
    told_front: Option<(AppKey, u32)>,
    protected: ProtectedProcesses,
    others: Others,
    terminal: TerminalSource,
    ticks: Ticks,
}

impl Reconciler {
    /// Creates a reconciler with nothing in force.
    pub fn new(
        config: Config,
        dry_run: bool,
        system: System,
        shared: Shared,
        now: Duration,
    ) -> Reconciler {
        let state = (!dry_run).then(|| config.state_directory());
        let readahead = Readahead::start(
            &system,
            &config.settings.readahead,
            &config.cold_start_directory,
            dry_run,
            now,
        );
        Reconciler {
            access: Access::new(&system.roots.groups, &config.access_group),
            model: Model {
                topmost: Topmost::new(config.settings.topmost.gap),
                apps: Apps::default(),
                pressure: Pressure::default(),
                ageing: Ageing::default(),
                starting: None,
                members: None,
                members_unknown: false,
                last: Snapshot::default(),
            },
            scan: AppScan::new(&system, &config, state),
            mechanisms: Mechanisms {
                protect: Protect::default(),
                boost: Boost::default(),
                premap: Premap,
                readahead,
                prezero: Prezero::open(state),
                swap: Swap::default(),
                window: Window::new(config.settings.window, &shared.device),
                shared,
            },
            history: History::open(state, system.boot_id()),
            decisions: Decisions::default(),
            outbox: Outbox::default(),
            pause: None,
            told_front: None,
            protected: ProtectedProcesses::default(),
            others: Others::default(),
            terminal: TerminalSource::default(),
            ticks: Ticks::starting_at(now),
            config,
            dry_run,
            system,
        }
    }

    /// Acts on the report of a source or a client.
    pub fn take(&mut self, input: Input) {
        match input {
            Input::Inferred {
                id,
                source,
                by_owner,
            } => self.infer(id, source, by_owner),
            Input::InferredNone { source } if self.model.topmost.hears_inferred() => {
                let claim = no_app(source);
                let shift = self.model.topmost.claim_inferred(claim, now());
                self.after(shift);
            }
            Input::InferredNone { .. } => {}
            Input::Guessed(front) => self.guess(front),
            Input::Claimed { claim, holder } => {
                let at = now();
                let shift = match holder {
                    Some(holder) => self.model.topmost.claim_session(holder, claim, at),
                    None => self.model.topmost.claim_explicit(claim, at),
                };
                self.after(shift);
            }
            Input::Disconnected(client) => {
                self.mechanisms.window.release(client);
                self.scan.announced.release(client);
                self.release_user_rules(client);
                let shift = self.model.topmost.release(Holder(client), now());
                self.after(shift);
            }
            Input::ActiveUsers(active) => {
                let shift = self.model.topmost.set_active_users(active, now());
                self.after(shift);
            }
            Input::Launched(pids) => self.launched(&pids),
            Input::Exit => self.check_front(),
            Input::Pressure => {
                if self.model.topmost.front().is_some() {
                    self.reconcile(Scope::All(Event::Pressure));
                }
            }
            Input::Memory => self.attend_to_memory(),
            Input::Units => self.units_made(),
            Input::Strokes(times) => self.input(&times),
            Input::Frames(times) => {
                let at = now();
                for shown in times {
                    self.mechanisms.window.model.frame(None, shown.min(at));
                }
                self.reconcile(Scope::Window(at));
            }
        }
    }

    /// Acts on a change of the topmost app.
    fn after(&mut self, shift: Shift) {
        if shift == Shift::Unchanged {
            return;
        }
        self.note_topmost(now());
        // The new topmost app is protected before any plan is made, because the guard may be about
        // to act.
        self.note_front();
        self.protect_new_topmost(now());
        match self.model.topmost.front() {
            Some(front) => info!("foreground: {} (by {})", front.app.name, front.source),
            None => info!("foreground: none"),
        }
        let front = self.model.front();
        let owner = front.and_then(|app| self.model.owner_of(&self.system, app));
        self.mechanisms.window.topmost(front, owner);
        self.tell_foreground(owner);
        self.model.ageing.restart();
        self.reconcile(Scope::Window(now()));
        let exit = self.model.front();
        self.outbox.exit = Some(exit.and_then(|app| TopmostExit::of(app, &self.system)));
        self.reconcile(Scope::All(Event::Topmost));
        self.mechanisms.protect.tracker = ReservationTracker::default();
        self.begin_following(now());
        self.ticks.next = now() + self.config.settings.protect.interval;
    }

    fn begin_following(&mut self, at: Duration) {
        let level = self.mechanisms.swap.shortage().level();
        self.mechanisms.protect.tracker.begin(level, at);
    }

    /// The topmost app waits for a file.
    pub fn follow_reads(&mut self, at: Duration) {
        if self.mechanisms.shared.in_force.reserved.is_some() {
            let contested = self.is_contested();
            self.mechanisms.protect.tracker.follow_reads(contested, at);
        }
    }

    /// Takes the times at which a key or a button was pressed.
    fn input(&mut self, times: &[Duration]) {
        let at = now();
        // A client that reports windows has already reported this input.
        let told = self.mechanisms.window.is_reported() && self.config.evdev != EvdevSource::On;
        for happened in times.iter().filter(|_| !told) {
            let happened = (*happened).min(at);
            let window = &mut self.mechanisms.window;
            match self.model.topmost.front() {
                Some(front) => _ = window.model.input(&front.app, happened, at),
                None => window.model.input_elsewhere(),
            }
            window.told_by("evdev", at);
        }
        self.reconcile(Scope::Window(at));
    }

    /// Passes changes of the response window to the kernel.
    pub fn pass_on_window(&mut self, at: Duration) {
        self.reconcile(Scope::Window(at));
    }

    /// Ends response windows that are due, and passes changes of the window to the kernel.
    pub fn pass_windows(&mut self, at: Duration) {
        self.mechanisms.window.model.pass_time(at);
        self.reconcile(Scope::Window(at));
    }

    /// Demotes the topmost app if the gap after the end of its claim is over.
    pub fn pass_gap(&mut self, at: Duration) {
        let shift = self.model.topmost.tick(at);
        self.after(shift);
    }

    /// Scans for apps, and follows the growth of the topmost app, if that is due.
    pub fn pass_time(&mut self, at: Duration) {
        if self.look_at_apps_if_due(at) {
            self.reconcile(Scope::Swap(Event::Tick));
        }
        if self.mechanisms.window.is_open() {
            let level = self.mechanisms.swap.shortage().level();
            self.mechanisms.protect.tracker.follow_use(level, at);
        }
        if self.mechanisms.protect.tracker.take(at) {
            self.reconcile(Scope::Reservation);
        }
        self.system.processes.tidy(at);
    }

    /// Whether a tick is due.
    pub fn is_tick_due(&self, at: Duration) -> bool {
        self.wants_ticks() && self.ticks.next <= at
    }

    /// Plans because time has passed. `triggered`: a PSI trigger reports shortages.
    pub fn tick(&mut self, at: Duration, triggered: bool) {
        self.reconcile(Scope::All(Event::Tick));
        let Mechanisms {
            shared, protect, ..
        } = &mut self.mechanisms;
        protect.shared_pages.look(shared);
        let context = Context {
            system: &self.system,
            now: at,
            front: None,
            apps: &[],
        };
        remove_empty_scopes(shared, context);
        let told = triggered && self.model.pressure.steps() == 0;
        let level = self.mechanisms.swap.shortage().level();
        let patience = self.ticks.patience(told, self.tabs(), level);
        let interval = match self.model.topmost.front() {
            _ if self.model.starting.is_some() => self.config.settings.protect.interval,
            Some(_) => self.config.settings.protect.interval * patience,
            None => HOUSEKEEPING * patience,
        };
        // Each tick renews the lease of the topmost set.
        let lease = self.mechanisms.shared.lease.call_within();
        self.ticks.next = now() + lease.map_or(interval, |lease| interval.min(lease));
    }

    /// The topmost app's tabs. Input counts as heard if a source has reported some since the app
    /// came to the foreground, and input opens response windows ([`Reconciler::note_use`]).
    fn tabs(&self) -> Tabs {
        let topmost = self.model.last.topmost.as_ref();
        if topmost.is_none_or(|topmost| topmost.terminal.is_none()) {
            return Tabs::None;
        }
        let since = self.model.topmost.front().map(|front| front.since);
        let told = self.mechanisms.window.last_told().map(|(_, at)| *at);
        let heard = since.zip(told).is_some_and(|(since, told)| told >= since);
        match heard && self.config.settings.window.enabled {
            true => Tabs::Heard,
            false => Tabs::Unheard,
        }
    }

    fn wants_ticks(&self) -> bool {
        self.model.topmost.front().is_some()
            || self.model.starting.is_some()
            || !self.mechanisms.shared.in_force.adopted.is_empty()
    }

    /// The time of the next deadline.
    pub fn next_deadline(&self) -> Option<Duration> {
        let gap = self.model.topmost.front();
        let deadlines = [
            self.wants_ticks().then_some(self.ticks.next),
            gap.and_then(|front| front.leaves_at),
            self.scan.next_look(),
            self.mechanisms.readahead.next_deadline(),
            self.mechanisms.window.model.next_deadline(),
            self.mechanisms.protect.tracker.next_look(),
            self.mechanisms.shared.attempts.next_attempt(),
            self.pause_ends(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Plans again after a change that is not an input: the daemon's start or stop, or a new
    /// configuration.
    pub fn refresh(&mut self, event: Event) {
        self.reconcile(Scope::All(event));
    }

    /// Replaces the configuration; [`Reconciler::refresh`] puts it in force.
    pub fn configure(&mut self, config: Config) {
        self.config = config;
        if !self.dry_run {
            let state = Some(self.config.state_directory());
            self.history.keep_in(state);
            self.scan.source.keep_in(state);
        }
        self.access = Access::new(&self.system.roots.groups, &self.config.access_group);
        let gap = self.config.settings.topmost.gap;
        self.model.topmost.set_gap(gap);
        let windows = self.config.settings.window;
        self.mechanisms.window.model.configure(windows);
        self.mechanisms.protect.forget();
        self.mechanisms.boost.forget();
        self.configure_swap();
    }

    /// Restarts readahead. Recordings of starts in progress are lost; later starts are recorded
    /// again.
    pub fn restart_readahead(&mut self) {
        self.mechanisms.readahead = Readahead::start(
            &self.system,
            &self.config.settings.readahead,
            &self.config.cold_start_directory,
            self.dry_run,
            now(),
        );
        self.hold_threads();
    }

    /// Whether the daemon's own sources of input and frames are needed, for each of three purposes:
    /// guesses of the foreground app, response windows in general, an open response window.
    pub fn wanted_sources(&self) -> (bool, bool, bool) {
        let Config {
            evdev, wake_graph, ..
        } = self.config;
        let window = &self.mechanisms.window;
        let guesses = wake_graph && evdev != EvdevSource::Off;
        let windows = match evdev {
            EvdevSource::On => true,
            EvdevSource::Off => false,
            EvdevSource::Auto => self.model.topmost.front().is_some() && !window.is_reported(),
        };
        (
            guesses && self.model.topmost.hears_guesses(),
            windows && self.config.settings.window.enabled,
            window.is_open(),
        )
    }

    /// Notes that the topmost app is used. If protection has aged, the next tick restores it at
    /// once.
    fn note_use(&mut self, at: Duration) {
        if !self.mechanisms.window.is_open() {
            return;
        }
        let interval = self.config.settings.protect.interval;
        self.ticks.follow_use(at, interval, self.tabs());
        if self.model.ageing.window() {
            self.ticks.next = at;
        }
    }

    /// Whether the topmost app has settled: it is not known to be in the middle of a response.
    fn is_settled(&self, at: Duration) -> bool {
        let front = self.model.topmost.front();
        let long = front.is_none_or(|front| at.saturating_sub(front.since) >= app_scan::SETTLED);
        let loads = front.is_some_and(|front| self.scan.is_loading(front.app.key, at));
        long && !loads && !self.mechanisms.window.is_open()
    }
}
