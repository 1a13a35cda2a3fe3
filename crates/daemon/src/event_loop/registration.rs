// SPDX-License-Identifier: GPL-2.0-or-later
//! Adds the sources to the loop. A source that cannot be added is disabled or polled; the daemon
//! still runs.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use tracing::warn;

use crate::event_loop::reactor::Token;
use crate::event_loop::Daemon;
use crate::system::now;

/// Warnings when a queue cannot be added.
pub(crate) const NO_OPENS: &str = "what is opened cannot be waited for, starts are not recorded";
pub(crate) const NO_WAITS: &str = "the app's waits cannot be waited for, neighbours are not read";

impl Daemon {
    /// Adds the sources to the loop. A failure is logged and does not stop the daemon.
    pub(crate) fn watch_sources(&mut self) {
        if let Some(trigger) = self.pressure_source.trigger() {
            let added = self.reactor.add(trigger, Token::Pressure, EventFlags::PRI);
            if let Err(error) = added {
                warn!("the PSI trigger cannot be waited for, pressure is polled: {error}");
                self.pressure_source.drop_trigger();
            }
        }
        self.watch_oom_score_adj();
        self.watch_top_app();
        self.watch_readahead();
        let once = EventFlags::IN | EventFlags::ONESHOT;
        let units = self.new_units.queue();
        if let Some(Err(error)) = units.map(|queue| self.reactor.add(queue, Token::Units, once)) {
            warn!("new apps are found by the next scan only: {error}");
        }
        let sessions = self.sessions.queue();
        let sessions =
            sessions.map(|queue| self.reactor.add(queue, Token::Sessions, EventFlags::IN));
        if let Some(Err(error)) = sessions {
            warn!("a switch to another session is seen with its next claim only: {error}");
        }
        self.wait_for_watcher();
    }

    /// Pid of the watcher process, which may be killed as well.
    pub fn watcher_pid(&self) -> Option<i32> {
        self.watcher.pid()
    }

    fn wait_for_watcher(&mut self) {
        self.system.watcher = self.watcher.pid();
        let pidfd = self.watcher.pidfd();
        let added = pidfd.map(|pidfd| self.reactor.add(pidfd, Token::Watcher, EventFlags::IN));
        if let Some(Err(error)) = added {
            warn!("epoll_ctl failed for the watcher process: {error}; it is not restarted when it ends");
        }
    }

    pub(crate) fn reap_watcher(&mut self) {
        if let Some(pidfd) = self.watcher.pidfd() {
            self.reactor.remove(pidfd);
        }
        self.watcher.reap(now());
        self.wait_for_watcher();
    }

    pub(crate) fn restart_watcher(&mut self, at: Duration) {
        if self.watcher.restart_if_due(at) {
            self.wait_for_watcher();
        }
    }

    pub(crate) fn watch_readahead(&mut self) {
        let execs = self.readahead.execs();
        let execs = execs.map(|queue| self.reactor.add(queue, Token::Execs, EventFlags::IN));
        let once = EventFlags::IN | EventFlags::ONESHOT;
        let opens = self.readahead.opens();
        let opens = opens.map(|queue| self.reactor.add(queue, Token::Opens, once));
        let answers = self.readahead.answers();
        let answers = answers.map(|all| self.reactor.add(all, Token::Readers, EventFlags::IN));
        for added in execs.into_iter().chain(opens).chain(answers) {
            if let Err(error) = added {
                warn!("{NO_OPENS}: {error}");
            }
        }
        let mounts = self.readahead.mounts();
        let mounts = mounts.map(|mounts| self.reactor.add(mounts, Token::Mounts, EventFlags::PRI));
        if let Some(Err(error)) = mounts {
            warn!("what is mounted from now on is not watched: {error}");
        }
        let waits = self.readahead.waits();
        let waits = waits.map(|queue| self.reactor.add(queue, Token::Waits, once));
        if let Some(Err(error)) = waits {
            warn!("{NO_WAITS}: {error}");
        }
    }

    /// Re-arms a one-shot queue.
    pub(crate) fn wait_again(&self, queue: Option<impl AsFd>, token: Token, lost: &str) {
        let once = EventFlags::IN | EventFlags::ONESHOT;
        if let Some(Err(error)) = queue.map(|queue| self.reactor.modify(queue, token, once)) {
            warn!("{lost}: {error}");
        }
    }

    pub(crate) fn watch_oom_score_adj(&mut self) {
        if let Some(instance) = self.oom_score_adj.instance() {
            if let Err(error) = self.reactor.add(instance, Token::Trace, EventFlags::IN) {
                warn!("the oom_score_adj tracepoint cannot be waited for and is given up: {error}");
                self.oom_score_adj.stop(&mut self.actuators.ledger);
            }
        }
    }

    /// Tries the tracepoint again, because scanning every process repeatedly costs more.
    pub(crate) fn retry_oom_score_adj(&mut self, at: Duration) {
        let ledger = &mut self.actuators.ledger;
        if self.oom_score_adj.retry(&self.system, ledger, at) {
            let lowered: Vec<_> = self.actuators.lowered_scores().collect();
            self.oom_score_adj.resync(&self.system, &lowered);
            self.watch_oom_score_adj();
        }
    }

    pub(crate) fn watch_top_app(&mut self) {
        let group = self.top_app.group();
        let added = group.map(|group| self.reactor.add(group, Token::TopApp, EventFlags::IN));
        if let Some(Err(error)) = added {
            warn!("the cpuset of the app in front cannot be waited for: {error}");
        }
        self.look_at_top_app();
    }
}
