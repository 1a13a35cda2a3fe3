// SPDX-License-Identifier: GPL-2.0-or-later
//! The daemon's state in terms of the control protocol.

pub(crate) mod swap;

use std::collections::BTreeMap;

use limelight_core::model::shortage::Shortage;
use limelight_core::model::{App, Lru, ProcessId};
use limelight_core::policy::boost::Standing;
use limelight_core::policy::{boost, premap, prezero, protect, readahead};
use limelight_proto::{
    AppStatus, DeviceStatus, Explain, MechanismStatus, MemoryStatus, Role, SourceStatus, Stall,
    State, Status, TopmostStatus, PROTOCOL,
};
use limelight_sys::controllers::Lack;

use crate::event_loop::Daemon;
use crate::mechanisms::prezero::FOLDER;
use crate::sources::pressure;
use crate::system::access::Speaker;
use crate::system::identify::{self, no_process, Refusal};
use crate::system::now;

/// Converts an app to its form in the protocol.
pub(crate) fn app_status(app: &App) -> AppStatus {
    AppStatus {
        name: app.name.clone(),
        pid: app.process.map(|process| process.pid),
        cgroup: app.home.as_ref().map(|home| home.path.clone()),
        own_cgroup: app.own_home().is_some(),
    }
}

fn source(name: &str, state: State, detail: impl Into<String>) -> SourceStatus {
    SourceStatus {
        name: name.to_owned(),
        state,
        detail: detail.into(),
    }
}

impl Daemon {
    /// Builds the answer to `status`.
    pub(crate) fn status(&self) -> Status {
        let at = now();
        let stalls = pressure::stalls(&self.system);
        let topmost = self.topmost.front().map(|front| TopmostStatus {
            app: app_status(&front.app),
            source: front.source.clone(),
            for_ms: at.saturating_sub(front.since).as_millis() as u64,
            members: identify::members(&self.system, &front.app).len() as u32,
            demoted_in_ms: front
                .leaves_at
                .map(|leaves| leaves.saturating_sub(at).as_millis() as u64),
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            pid: std::process::id() as i32,
            uptime_ms: at.saturating_sub(self.started).as_millis() as u64,
            dry_run: self.options.dry_run,
            topmost,
            previous: self.topmost.previous().map(app_status),
            sources: self.sources(),
            agents: self.agents_status(),
            mechanisms: vec![
                self.protect_status(),
                self.boost_status(),
                self.premap_status(),
                self.readahead_status(),
                self.prezero_status(),
                self.swap_status(),
            ],
            window: self.window_status(),
            memory: self.memory_status(stalls.memory),
            stalls,
            device: self.actuators.device.status(),
            changes: self.actuators.changes.all_where(|_| true),
            hidden: None,
        }
    }

    fn sources(&self) -> Vec<SourceStatus> {
        let active = |active: bool| if active { State::Active } else { State::Idle };
        let sessions = self.topmost.sessions();
        let heard = if !self.topmost.hears_inferred() {
            "; not heard while a higher claim is in force"
        } else if self.top_app.speaks() {
            "; not heard, top-app tells"
        } else {
            ""
        };
        let oom_state = match (self.oom_score_adj.is_on(), self.config.oom_score_adj) {
            (true, _) => active(heard.is_empty()),
            (false, crate::config::OomScoreAdjSource::Off) => State::Off,
            (false, _) => State::Unavailable,
        };
        let top_app_state = match (self.top_app.group(), self.config.top_app) {
            (Some(_), _) => active(self.top_app.speaks() && self.topmost.hears_inferred()),
            (None, false) => State::Off,
            // The cpuset exists on Android only; elsewhere its absence is no defect.
            (None, true) => State::Idle,
        };
        vec![
            source(
                "explicit",
                active(self.topmost.is_explicit()),
                "limelight focus",
            ),
            source(
                "session",
                active(sessions > 0),
                format!("{sessions} session agents"),
            ),
            source("top-app", top_app_state, self.top_app.detail()),
            source(
                "oom_score_adj",
                oom_state,
                format!("{}{heard}", self.oom_score_adj.detail()),
            ),
            self.wake_graph_status(),
        ]
    }

    fn protect_status(&self) -> MechanismStatus {
        let device = self.actuators.device.device().is_some();
        let knob = self.last.lru.knob().file();
        let mut means = Vec::new();
        if device {
            means.push("/dev/limelight".to_owned());
        }
        if self.last.memory_controller {
            means.push(format!("{knob} of the app's cgroup"));
        }
        if self.actuators.locked_bytes() > 0 {
            means.push("locks on mapped file pages that are charged to other cgroups".to_owned());
        }
        if self.config.settings.protect.oom_points > 0 {
            means.push("a lower oom_score_adj".to_owned());
        }
        let state = if !self.config.settings.protect.enabled {
            State::Off
        } else if !device && !self.last.memory_controller {
            State::Unavailable
        } else if self.topmost.front().is_some() {
            State::Active
        } else {
            State::Idle
        };
        let detail = match state {
            State::Unavailable => {
                let lack = self.system.proc.lack_of("memory").unwrap_or(Lack::Hidden);
                format!(
                    "nothing can be reserved: no /dev/limelight, and no memory controller in cgroup v2, {lack}: {}",
                    lack.cure()
                )
            }
            _ => format!(
                "by {}; pressure: {}",
                means.join(", "),
                self.pressure_source.detail()
            ),
        };
        MechanismStatus {
            name: "protect".to_owned(),
            state,
            detail,
            counters: BTreeMap::new(),
        }
    }

    /// State of `boost`. While no app is topmost, it is unknown what would work for an app with a
    /// cgroup of its own, but known what works for none.
    fn boost_status(&self) -> MechanismStatus {
        let settings = &self.config.settings.boost;
        let front = self.topmost.front();
        let (state, detail) = match front {
            _ if !settings.enabled => {
                let detail = "switched off by the configuration ([boost] enabled)";
                (State::Off, detail.to_owned())
            }
            None => {
                let helpers = self.surroundings.helpers();
                let detail = format!("nothing is topmost; {helpers} helpers are known");
                (State::Idle, detail)
            }
            Some(front) => {
                let home = front.app.home.as_ref();
                let knobs = boost::knobs(settings, &self.last.boost, home);
                let words = knobs.all().map(|(name, standing)| match standing {
                    Standing::Live => format!("{name} live"),
                    Standing::Unused(why) => format!("{name} not used: {why}"),
                    Standing::Inert(why) => format!("{name} inert: {why}"),
                });
                let any = knobs.all().iter().any(|(_, standing)| standing.is_live());
                let state = match any {
                    true => State::Active,
                    false => State::Unavailable,
                };
                (state, words.join("; "))
            }
        };
        MechanismStatus {
            name: "boost".to_owned(),
            state,
            detail,
            counters: BTreeMap::new(),
        }
    }

    fn premap_status(&self) -> MechanismStatus {
        let settings = &self.config.settings.premap;
        let (state, detail) = if !settings.enabled {
            let detail = "switched off by the configuration ([premap] enabled)";
            (State::Off, detail.to_owned())
        } else if let Some(pages) = self.actuators.in_force.device_premap {
            let state = match self.topmost.front() {
                Some(_) => State::Active,
                None => State::Idle,
            };
            let detail = format!("/dev/limelight, at most {pages} pages with one fault");
            (state, detail)
        } else {
            let detail = "not in this kernel; `limelight run --premap` does it for one program";
            (State::Unavailable, detail.to_owned())
        };
        MechanismStatus {
            name: "premap".to_owned(),
            state,
            detail,
            counters: BTreeMap::new(),
        }
    }

    fn prezero_status(&self) -> MechanismStatus {
        let (state, detail) = if !self.config.settings.prezero.enabled {
            let detail = "switched off by the configuration ([prezero] enabled)";
            (State::Off, detail.to_owned())
        } else if let Some(pool) = &self.actuators.in_force.device_prezero {
            let state = match self.topmost.front() {
                Some(_) => State::Active,
                None => State::Idle,
            };
            let pooled = self.system.sys.read_text(format!("{FOLDER}/pooled"));
            let pooled = pooled.map_or("?".to_owned(), |text| text.trim().to_owned());
            let engine = pool.engine.name();
            let target = pool.target;
            let detail = format!("/dev/limelight, {pooled} of {target} pages, zeroed by {engine}");
            (state, detail)
        } else if self.last.device_prezero && self.topmost.front().is_none() {
            let detail = "/dev/limelight, for the next app that comes to the front";
            (State::Idle, detail.to_owned())
        } else if self.last.device_prezero {
            let detail = "the kernel does not do it: see the changes below";
            (State::Unavailable, detail.to_owned())
        } else {
            let detail = "not in this kernel; stock kernels zero pages when they are needed";
            (State::Unavailable, detail.to_owned())
        };
        MechanismStatus {
            name: "prezero".to_owned(),
            state,
            detail,
            counters: BTreeMap::new(),
        }
    }

    fn readahead_status(&self) -> MechanismStatus {
        let settings = &self.config.settings.readahead;
        let streams = if self.actuators.in_force.device_readahead.is_some() {
            format!("/dev/limelight, factor {}", settings.factor)
        } else {
            self.readahead.streams_detail()
        };
        let state = if !settings.enabled {
            State::Off
        } else if !self.readahead.works() {
            State::Unavailable
        } else if self.topmost.front().is_some() {
            State::Active
        } else {
            State::Idle
        };
        let detail = match state {
            State::Off => "switched off by the configuration ([readahead] enabled)".to_owned(),
            State::Unavailable => self.readahead.cold_start_detail(),
            _ => format!("{streams}; {}", self.readahead.cold_start_detail()),
        };
        MechanismStatus {
            name: "readahead".to_owned(),
            state,
            detail,
            counters: self.readahead.counters(),
        }
    }

    fn memory_status(&self, stalled: Option<Stall>) -> MemoryStatus {
        let memory = pressure::memory_now(&self.system);
        let guard = self.actuators.guard.as_ref();
        let shortage = guard.map(|guard| guard.shortage());
        MemoryStatus {
            total: memory.total,
            available: memory.available,
            swap_total: memory.swap_total,
            swap_free: memory.swap_free,
            psi_full_avg10: stalled.and_then(|stall| stall.full),
            lru: match self.last.lru {
                Lru::MultiGen => "mglru",
                Lru::TwoList => "two-list",
            }
            .to_owned(),
            budget: self.last.budget(),
            protected_by_others: self.last.protected_by_others,
            protected: self.reserved_bytes(),
            lowered_steps: self.pressure.steps(),
            locked: self.actuators.locked_bytes(),
            level: shortage.as_ref().map(Shortage::level),
            thresholds: shortage.as_ref().map(Shortage::thresholds),
        }
    }

    /// Bytes that are reserved and in effect.
    fn reserved_bytes(&self) -> u64 {
        let home = self.topmost.front().and_then(|front| front.app.own_home());
        let (Some(home), Some(reserved)) = (home, self.actuators.in_force.reserved) else {
            return 0;
        };
        let knob = self.system.cgroup_file(&home.path, reserved.knob.file());
        if self.actuators.changes.is_applied(&knob) {
            reserved.bytes
        } else {
            0
        }
    }

    /// Answer to `explain` for this user.
    pub(crate) fn explain(&self, speaker: Speaker, pid: i32) -> Result<Explain, Refusal> {
        self.may_ask_of(speaker, pid)?;
        let gone = |error: limelight_sys::Error| no_process(pid, error);
        let (id, process) = self.system.process(pid).map_err(gone)?;
        let name = process.comm().map_err(gone)?;
        let belongs = |app: &App| {
            identify::members(&self.system, app)
                .binary_search(&id)
                .is_ok()
        };
        let front = self.topmost.front().filter(|front| belongs(&front.app));
        let previous = self.topmost.previous().filter(|app| belongs(app));
        // It is the previous app only until another user switches apps, so it could reveal such a
        // switch.
        let previous = previous.filter(|_| self.sees_front(speaker));
        let (role, app) = match (front, previous) {
            (Some(front), _) => (Role::Topmost, Some(front.app.clone())),
            (None, Some(app)) => (Role::Previous, Some(app.clone())),
            (None, None) => (
                Role::Background,
                identify::app_of_pid(&self.system, pid).ok(),
            ),
        };
        // A process of one user may belong to another user's app (sudo).
        if app.as_ref().is_some_and(|app| !self.sees_app(speaker, app)) {
            return Err(self.not_shown(pid));
        }
        let changes = app.as_ref().map_or_else(Vec::new, |app| {
            self.actuators
                .changes
                .reaching(app.key, id, role == Role::Topmost)
        });
        Ok(Explain {
            pid,
            name,
            role,
            app: app.as_ref().map(app_status),
            source: front.map(|front| front.source.clone()),
            notes: self.notes(speaker, role, id, app.as_ref()),
            changes,
        })
    }

    fn notes(&self, speaker: Speaker, role: Role, id: ProcessId, app: Option<&App>) -> Vec<String> {
        let mut notes = match role {
            Role::Topmost => {
                let mut notes: Vec<String> = self.guess_note().into_iter().collect();
                notes.extend(protect::notes(&self.last));
                notes.extend(boost::notes(&self.last));
                notes.extend(premap::notes(&self.last));
                notes.extend(readahead::notes(&self.last));
                notes.extend(prezero::notes(&self.last));
                notes.extend(self.readahead.note(&self.system, id));
                notes.extend(self.window_note());
                notes
            }
            Role::Previous => {
                vec!["this app was topmost before; nothing is done for it now".to_owned()]
            }
            Role::Background => vec![match self.topmost.front() {
                Some(front) if self.sees_app(speaker, &front.app) => {
                    format!(
                        "nothing is done for this process: {} is topmost",
                        front.app.name
                    )
                }
                None if speaker.sees_all() => {
                    "nothing is done for this process: no app is topmost".to_owned()
                }
                // Another user's app may be topmost.
                _ => "nothing is done for this process: it is not topmost".to_owned(),
            }],
        };
        notes.extend(app.and_then(|app| self.refusal_note(speaker, app.key)));
        if self.options.dry_run {
            notes.push("this is a dry run: nothing was changed".to_owned());
        }
        if let (Role::Topmost, DeviceStatus::Unused { why }) =
            (role, self.actuators.device.status())
        {
            notes.push(format!("/dev/limelight is not used: {why}"));
        }
        let known = self.system.same_process(id).is_some();
        if !known {
            notes.push("the process has ended meanwhile".to_owned());
        }
        notes
    }
}
