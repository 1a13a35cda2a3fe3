// SPDX-License-Identifier: GPL-2.0-or-later
//! Reload of the configuration.

use limelight_core::policy::Event;
use tracing::{error, info, warn};

use crate::config::{self, Config};
use crate::event_loop::Daemon;
use crate::log;
use crate::mechanisms::readahead::Readahead;
use crate::sources::oom_score_adj::OomScoreAdj;
use crate::sources::top_app::TopApp;
use crate::system::access::Access;
use crate::system::now;

impl Daemon {
    /// Reloads the configuration; an invalid one leaves the current one in force.
    pub fn reload(&mut self) {
        self.service.reloading();
        match config::load(&self.options.config) {
            Ok(fresh) => {
                if fresh.device != self.config.device {
                    warn!("[kernel] device takes effect when limelightd is started anew");
                }
                let readahead = fresh.settings.readahead != self.config.settings.readahead
                    || fresh.cold_start_directory != self.config.cold_start_directory;
                let source = (fresh.oom_score_adj, fresh.scan_interval)
                    != (self.config.oom_score_adj, self.config.scan_interval);
                let top_app = fresh.top_app != self.config.top_app;
                self.config = Config {
                    device: self.config.device,
                    ..fresh
                };
                if !self.options.dry_run {
                    self.history.keep_in(Some(self.config.state_directory()));
                }
                self.access = Access::new(&self.system.roots.groups, &self.config.access_group);
                self.control.set_group(self.access.gid());
                self.topmost.set_gap(self.config.settings.topmost.gap);
                self.windows.configure(self.config.settings.window);
                self.not_adoptable.clear();
                self.not_weighable.clear();
                self.surroundings.forget();
                self.configure_swap();
                if source {
                    self.restart_oom_score_adj();
                }
                if top_app {
                    // Its queue leaves the epoll set when it is closed.
                    self.top_app = TopApp::start(&self.system, self.config.top_app);
                    self.watch_top_app();
                }
                if readahead {
                    self.restart_readahead();
                }
                self.refresh(Event::Settings);
                self.tell_agents();
                info!("configuration reloaded");
            }
            Err(errors) => {
                error!("the configuration in force is kept, the new one is wrong:");
                log::error_lines(&errors.to_string());
            }
        }
        self.service.ready();
    }

    /// Restarts readahead. Recordings of starts in progress are lost; later starts are recorded
    /// again.
    fn restart_readahead(&mut self) {
        self.readahead = Readahead::start(
            &self.system,
            &self.config.settings.readahead,
            &self.config.cold_start_directory,
            self.options.dry_run,
            now(),
        );
        self.watch_readahead();
    }

    fn restart_oom_score_adj(&mut self) {
        if let Some(instance) = self.oom_score_adj.instance() {
            self.reactor.remove(instance);
        }
        self.oom_score_adj.stop(&mut self.actuators.ledger);
        self.oom_score_adj = OomScoreAdj::start(
            &self.system,
            &mut self.actuators.ledger,
            self.config.oom_score_adj,
            self.config.scan_interval,
            now(),
        );
        self.watch_oom_score_adj();
    }
}
