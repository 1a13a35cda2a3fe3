// SPDX-License-Identifier: GPL-2.0-or-later
//! The daemon: one epoll loop that passes inputs from the sources to the reconciler.

pub mod answers;
pub mod reactor;
mod registration;
mod reload;
mod service_manager;
mod start;

use std::path::PathBuf;
use std::time::Duration;

use limelight_core::policy::Event;
use limelight_proto::Notice;
use limelight_sys::heap;
use limelight_sys::signal::Signals;
use rustix::event::epoll::EventFlags;
use rustix::process::Signal;
use tracing::{error, info};

use crate::config::Origin;
use crate::control::agents::{self, Agents};
use crate::control::requests::Desk;
use crate::control::socket::ControlSource;
use crate::event_loop::reactor::{Reactor, Ready, Token};
use crate::event_loop::registration::{rearm, NO_OPENS, NO_UNITS, NO_WAITS};
use crate::event_loop::service_manager::Service;
use crate::exit::Failure;
use crate::reconcile::outbox::Message;
use crate::reconcile::Reconciler;
use crate::restore::undo::undo_all;
use crate::restore::watcher::Watcher;
use crate::sources::oom_score_adj::OomScoreAdj;
use crate::sources::top_app::TopApp;
use crate::sources::{Input, Sources};
use crate::system::lock::Lock;
use crate::system::self_tuning::shield;
use crate::system::{now, Roots};

/// Consecutive failed waits after which the daemon exits.
const FAILURES_MAX: u32 = 10;

/// Shortest time between two returns of free heap memory to the kernel. All of the daemon's memory
/// is locked, so what its heaps keep is lost for the apps.
const TRIM_EVERY: Duration = Duration::from_secs(60);

/// Start options of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the configuration is read from.
    pub config: Origin,
    /// Dry run: plan and explain, but change nothing.
    pub dry_run: bool,
    /// The program that is started with `--watch` and restores everything if this process is
    /// killed; `None`: no such program.
    pub watcher: Option<PathBuf>,
    /// Root directories of the system interfaces.
    pub roots: Roots,
}

/// The running daemon.
#[derive(Debug)]
pub struct Daemon {
    options: Options,
    reactor: Reactor,
    signals: Signals,
    control: ControlSource,
    agents: Agents,
    sources: Sources,
    reconciler: Reconciler,
    started: Duration,
    service: Service,
    stopping: bool,
    /// Restores everything if this process is killed.
    watcher: Watcher,
    /// When free heap memory was last returned, since boot.
    trimmed: Duration,
    _lock: Lock,
}

impl Daemon {
    /// Starts: reads the configuration, takes the lock, opens the system interfaces, restores what
    /// a dead daemon left changed, and makes a first plan.
    pub fn start(options: Options) -> Result<Daemon, Failure> {
        let mut daemon = start::open(options)?;
        registration::all(&daemon.reactor, &mut daemon.sources, &mut daemon.reconciler);
        daemon.wait_for_watcher();
        daemon.look_at_top_app();
        daemon.look_at_sessions();
        start::stay_in_memory();
        // The machine is measured before the first answer, so that the first claim does not change
        // the machine's reported state.
        daemon.refresh(Event::Tick);
        Ok(daemon)
    }

    /// Runs until SIGTERM or SIGINT, then restores everything.
    pub fn run(mut self) -> Result<(), Failure> {
        self.enter_service();
        let mut failures = 0u32;
        while !self.stopping {
            match self.turn(None) {
                Ok(()) => failures = 0,
                Err(error) => {
                    // No cause is known. After a single failure the loop goes on. Repeated failures
                    // end the loop, because it would spin.
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

    /// Shields the daemon from the OOM killer (not in a dry run), and reports readiness to the
    /// service manager.
    fn enter_service(&mut self) {
        if !self.options.dry_run {
            shield(&self.reconciler.system);
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
    /// all that is due.
    pub fn turn(&mut self, patience: Option<Duration>) -> std::io::Result<()> {
        let timeout = self.timeout().into_iter().chain(patience).min();
        let waited = self.reactor.wait(timeout);
        for ready in waited.as_deref().unwrap_or_default() {
            self.dispatch(*ready);
        }
        self.serve_clients();
        self.pass_time();
        self.publish_history();
        waited.map(|_| ())
    }

    /// Sends the actions recorded since the last call to listening clients.
    fn publish_history(&mut self) {
        for entry in self.reconciler.history.take_fresh() {
            let message = Message {
                owner: entry.uid,
                notice: Notice::Done(entry),
                others: None,
            };
            self.control.tell(&message, now());
        }
    }

    /// Time until the next deadline.
    fn timeout(&self) -> Option<Duration> {
        let deadlines = [
            self.reconciler.next_deadline(),
            self.sources.oom_score_adj.next_scan(),
            self.sources.wake_graph.next_deadline(),
            self.control.next_deadline(now()),
            self.control.next_line(now()),
            self.service.next_deadline(),
            self.watcher.next_deadline(),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_sub(now()))
    }

    fn dispatch(&mut self, ready: Ready) {
        match ready.token {
            Token::Signal => self.take_signals(),
            Token::Listener => self.control.accept(&self.reactor, now()),
            Token::Client(id) => self.control.transfer(id, ready, now()),
            Token::Pressure => {
                if ready.flags.contains(EventFlags::ERR) {
                    if let Some(trigger) = self.sources.pressure.drop_trigger() {
                        self.reactor.remove(&trigger);
                    }
                }
                self.take(Input::Pressure);
            }
            Token::Trace => {
                let ledger = &mut self.reconciler.mechanisms.shared.ledger;
                let system = &self.reconciler.system;
                let inputs = self.sources.traced_scores(system, ledger, now());
                self.take_all(inputs);
                // Android changes a process's score when it moves the process to another cpuset.
                self.look_at_top_app();
            }
            Token::TopApp => self.look_at_top_app(),
            Token::Front => {
                let exit = self.sources.topmost_exit.as_ref();
                if exit.is_some_and(|exit| !exit.settle()) {
                    self.forget_exit();
                }
                self.take(Input::Exit);
            }
            Token::Guard | Token::Swapper => self.take(Input::Memory),
            Token::Units => self.take(Input::Units),
            Token::Sessions => self.look_at_sessions(),
            Token::Watcher => self.reap_watcher(),
            Token::Plugged => {
                let system = &self.reconciler.system;
                self.sources.evdev.open_devices(system, &self.reactor);
            }
            Token::Input => {
                let ledger = &mut self.reconciler.mechanisms.shared.ledger;
                let input = self.sources.strokes(&self.reconciler.system, ledger, now());
                self.take(input);
            }
            Token::Frames => {
                let open = self.reconciler.mechanisms.window.model.open();
                let input = self.sources.frames(open.map(|open| open.since), now());
                self.take(input);
            }
            Token::Mounts | Token::Execs | Token::Opens | Token::Readers | Token::Waits => {
                self.readahead_source(ready.token)
            }
        }
    }

    /// Passes an input to the reconciler, and acts on the reconciler's outbox.
    fn take(&mut self, input: Input) {
        self.reconciler.take(input);
        self.deliver();
    }

    fn take_all(&mut self, inputs: impl IntoIterator<Item = Input>) {
        inputs.into_iter().for_each(|input| self.take(input));
    }

    fn refresh(&mut self, event: Event) {
        self.reconciler.refresh(event);
        self.deliver();
    }

    /// Carries out and empties the reconciler's outbox.
    fn deliver(&mut self) {
        let outbox = std::mem::take(&mut self.reconciler.outbox);
        for message in outbox.messages {
            self.control.tell(&message, now());
        }
        if let Some(exit) = outbox.exit {
            self.forget_exit();
            let added = exit.filter(|exit| {
                let added = self.reactor.add(exit, Token::Front, exit.flags());
                added.is_ok()
            });
            self.sources.topmost_exit = added;
        }
        if outbox.await_units {
            rearm(
                &self.reactor,
                self.reconciler.scan.new_units.queue(),
                Token::Units,
                NO_UNITS,
            );
        }
        // The daemon's own writes would otherwise count as another writer's.
        let source = &mut self.sources.oom_score_adj;
        if outbox.wrote_scores && source.sees_own_writes() {
            source.resync(
                &self.reconciler.system,
                &self.reconciler.mechanisms.shared.ledger.lowered_scores(),
            );
        }
    }

    fn forget_exit(&mut self) {
        if let Some(exit) = self.sources.topmost_exit.take() {
            self.reactor.remove(&exit);
        }
    }

    fn take_signals(&mut self) {
        while let Some(number) = self.signals.take() {
            if number == Signal::HUP.as_raw() {
                self.reload();
            } else {
                info!("stopping on signal {number}");
                self.stopping = true;
            }
        }
    }

    fn serve_clients(&mut self) {
        for line in self.control.take_lines(now()) {
            let response = Desk {
                control: &mut self.control,
                agents: &mut self.agents,
                sources: &mut self.sources,
                reconciler: &mut self.reconciler,
                started: self.started,
            }
            .answer(&line);
            self.deliver();
            self.control.answer(line.client, &response, now());
        }
        for client in self.control.tidy(&self.reactor, now()) {
            self.agents.release(client);
            self.take(Input::Disconnected(client));
        }
    }

    /// Checks the cpuset of the foreground app for a change.
    fn look_at_top_app(&mut self) {
        let input = self.sources.top_app(&self.reconciler.system);
        self.take_all(input);
    }

    /// Reads which users have an active session.
    fn look_at_sessions(&mut self) {
        let sessions = &mut self.sources.sessions;
        agents::look_at_sessions(sessions, &self.control, &mut self.reconciler);
        self.deliver();
    }

    /// Handles an event of one of the queues of `readahead`.
    fn readahead_source(&mut self, token: Token) {
        let at = now();
        let readahead = &mut self.reconciler.mechanisms.readahead;
        match token {
            Token::Mounts => readahead.notice_mounts(at),
            Token::Opens => readahead.notice_opens(at),
            Token::Waits => {
                readahead.notice_waits(at);
                self.reconciler.follow_reads(at);
            }
            Token::Readers => readahead.take_answers(),
            _ => {
                let launched = readahead.take_execs(&self.reconciler.system, at);
                self.take(Input::Launched(launched));
            }
        }
    }

    /// Handles all deadlines up to now.
    fn pass_time(&mut self) {
        let at = now();
        self.reconciler.pass_pause(at);
        self.reconciler.pass_windows(at);
        self.tend_sources(at);
        self.reconciler.pass_gap(at);
        self.deliver();
        self.scan_scores(at);
        self.reconciler.pass_time(at);
        self.deliver();
        if self.reconciler.is_tick_due(at) {
            self.take(Input::Exit);
            self.look_at_top_app();
            let triggered = self.sources.pressure.trigger().is_some();
            self.reconciler.tick(at, triggered);
            self.deliver();
        }
        let readahead = &mut self.reconciler.mechanisms.readahead;
        if readahead.take_opens(&self.reconciler.system, at) {
            rearm(&self.reactor, readahead.opens(), Token::Opens, NO_OPENS);
        }
        if readahead.pass_time(&self.reconciler.system, at) {
            rearm(&self.reactor, readahead.waits(), Token::Waits, NO_WAITS);
        }
        let shared = &mut self.reconciler.mechanisms.shared;
        shared
            .attempts
            .put_back_owed(&mut shared.ledger, &self.reconciler.system, at);
        if self.watcher.restart_if_due(at) {
            self.wait_for_watcher();
        }
        self.service.pass_time(at);
        if at.saturating_sub(self.trimmed) >= TRIM_EVERY {
            self.trimmed = at;
            heap::trim();
        }
    }

    /// Evaluates the wakeups after input, if that is due, and opens and closes the daemon's own
    /// sources of input and frames as needed.
    fn tend_sources(&mut self, at: Duration) {
        let ledger = &mut self.reconciler.mechanisms.shared.ledger;
        let helpers = &self.reconciler.config.settings.boost.helpers;
        let guess = self
            .sources
            .guess(&self.reconciler.system, ledger, helpers, at);
        self.take_all(guess);
        let wanted = self.reconciler.wanted_sources();
        let ledger = &mut self.reconciler.mechanisms.shared.ledger;
        self.sources
            .tend(wanted, &self.reconciler.system, ledger, &self.reactor);
    }

    /// Scans all scores if they are not traced. Also retries the tracepoint, because a trace costs
    /// less than repeated scans of every process.
    fn scan_scores(&mut self, at: Duration) {
        let heard = self.reconciler.model.topmost.hears_inferred();
        let ledger = &self.reconciler.mechanisms.shared.ledger;
        let inputs = self
            .sources
            .scanned_scores(&self.reconciler.system, ledger, heard, at);
        self.take_all(inputs);
        let ledger = &mut self.reconciler.mechanisms.shared.ledger;
        let source = &mut self.sources.oom_score_adj;
        if source.retry(&self.reconciler.system, ledger, at) {
            source.resync(&self.reconciler.system, &ledger.lowered_scores());
            registration::oom_score_adj(&self.reactor, source, ledger);
        }
    }

    /// Pid of the watcher process; `None` while none runs.
    pub fn watcher_pid(&self) -> Option<i32> {
        self.watcher.pid()
    }

    fn wait_for_watcher(&mut self) {
        self.reconciler.system.watcher = self.watcher.pid();
        registration::watcher(&self.reactor, self.watcher.pidfd());
    }

    fn reap_watcher(&mut self) {
        if let Some(pidfd) = self.watcher.pidfd() {
            self.reactor.remove(pidfd);
        }
        self.watcher.reap(now());
        self.wait_for_watcher();
    }

    /// Reloads the configuration. If it is invalid, the current one stays in force.
    pub fn reload(&mut self) {
        self.service.reloading();
        if let Some((config, restarts)) =
            reload::read(&self.options.config, &self.reconciler.config)
        {
            self.reconciler.configure(config);
            self.control.set_group(self.reconciler.access.gid());
            if restarts.oom_score_adj {
                self.restart_oom_score_adj();
            }
            if restarts.top_app {
                // Closing the old source's queue removes it from the epoll set.
                self.sources.top_app =
                    TopApp::start(&self.reconciler.system, self.reconciler.config.top_app);
                registration::top_app(&self.reactor, &self.sources.top_app);
                self.look_at_top_app();
            }
            if restarts.readahead {
                self.reconciler.restart_readahead();
                let readahead = &self.reconciler.mechanisms.readahead;
                registration::readahead(&self.reactor, readahead);
            }
            self.refresh(Event::Settings);
            self.agents
                .tell_all(&mut self.control, &self.reconciler.config);
            info!("configuration reloaded");
        }
        self.service.ready();
    }

    fn restart_oom_score_adj(&mut self) {
        let ledger = &mut self.reconciler.mechanisms.shared.ledger;
        let source = &mut self.sources.oom_score_adj;
        if let Some(instance) = source.instance() {
            self.reactor.remove(instance);
        }
        source.stop(ledger);
        let (wanted, interval) = (
            self.reconciler.config.oom_score_adj,
            self.reconciler.config.scan_interval,
        );
        *source = OomScoreAdj::start(&self.reconciler.system, ledger, wanted, interval, now());
        registration::oom_score_adj(&self.reactor, source, ledger);
    }

    /// Restores everything and ends the daemon.
    pub fn stop(mut self) {
        self.service.stopping();
        self.refresh(Event::Stop);
        let Reconciler {
            system,
            mut mechanisms,
            ..
        } = self.reconciler;
        let mut ledger = mechanisms.shared.ledger;
        self.sources.stop(&mut ledger);
        mechanisms.prezero.write(now());
        let failed = if self.options.dry_run {
            0
        } else {
            undo_all(&mut ledger, &system)
        };
        if failed > 0 {
            error!("{failed} changes could not be put back; they stay in the restore record");
        }
        ledger.close();
        self.control.close();
        self.watcher.dismiss();
        info!("stopped");
    }
}
