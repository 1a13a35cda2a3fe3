// SPDX-License-Identifier: GPL-2.0-or-later
//! The daemon's state in terms of the control protocol, read from an immutable view.

mod explain;
mod mechanisms;
mod swap;
mod window;

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::shortage::Shortage;
use limelight_core::model::Lru;
use limelight_proto::{
    AgentStatus, AppStatus, MechanismId, MechanismStatus, MemoryAction, MemoryStatus, Response,
    SourceStatus, Stall, State, Status, TopmostStatus, PROTOCOL, WAKE_GRAPH,
};

use crate::config::{EvdevSource, OomScoreAdjSource};
use crate::control::agents::Agents;
use crate::control::socket::ControlSource;
use crate::control::visibility::Viewer;
use crate::reconcile::Reconciler;
use crate::sources::{pressure, Sources};
use crate::system::{authorization, now};

pub(crate) use explain::explain;
pub(crate) use window::{latency, took};

/// The daemon's state, for one user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub viewer: Viewer<'a>,
    pub sources: &'a Sources,
    pub control: &'a ControlSource,
    pub agents: &'a Agents,
    pub started: Duration,
}

/// The detail of a mechanism that is switched off.
fn off(name: &str) -> String {
    format!("switched off by the configuration ([{name}] enabled)")
}

/// Status of a mechanism without counters. `short` is a short form of `detail`; empty if `detail`
/// is short itself.
fn mechanism(
    id: MechanismId,
    state: State,
    detail: String,
    short: impl Into<String>,
) -> MechanismStatus {
    MechanismStatus {
        name: id.name().to_owned(),
        state,
        detail,
        counters: BTreeMap::new(),
        short: short.into(),
    }
}

fn source(name: &str, state: State, detail: impl Into<String>) -> SourceStatus {
    SourceStatus {
        name: name.to_owned(),
        state,
        detail: detail.into(),
    }
}

/// Answer to `status`.
pub(crate) fn status(view: View<'_>) -> Status {
    let daemon = view.viewer.reconciler;
    let at = now();
    let stalls = pressure::stalls(&daemon.system);
    let topmost = daemon.model.topmost.front().map(|front| TopmostStatus {
        app: (&front.app).into(),
        source: front.source.clone(),
        for_ms: at.saturating_sub(front.since).as_millis() as u64,
        members: daemon.model.members_of(&daemon.system, &front.app).len() as u32,
        demoted_in_ms: front
            .leaves_at
            .map(|leaves| leaves.saturating_sub(at).as_millis() as u64),
    });
    let mut status = Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL,
        pid: std::process::id() as i32,
        uptime_ms: at.saturating_sub(view.started).as_millis() as u64,
        dry_run: daemon.dry_run,
        paused: daemon.pause_report(),
        topmost,
        previous: daemon.model.topmost.previous().map(AppStatus::from),
        sources: sources(&view),
        agents: agents(&view),
        mechanisms: mechanisms::status(&view),
        window: window::status(&view),
        memory: memory(&view, stalls.memory),
        stalls,
        device: daemon.mechanisms.shared.device.status(),
        changes: view.viewer.changes(),
        hidden: None,
    };
    view.viewer.filter(&mut status);
    status
}

/// Answer to `decision` for this user.
pub(crate) fn decision(viewer: Viewer<'_>, action: Option<MemoryAction>) -> Response {
    let decisions = &viewer.reconciler.decisions;
    let decision = decisions.last(action).cloned().map(|mut decision| {
        decision.weighed = viewer.keep_visible(decision.weighed, |one| one.uid);
        Box::new(decision)
    });
    Response::Decision {
        decision,
        hidden: viewer.hidden(),
    }
}

fn sources(view: &View<'_>) -> Vec<SourceStatus> {
    let Reconciler { config, model, .. } = view.viewer.reconciler;
    let active = |active: bool| if active { State::Active } else { State::Idle };
    let sessions = model.topmost.sessions();
    let heard = if !model.topmost.hears_inferred() {
        "; ignored while a claim of higher priority is in force"
    } else if view.sources.top_app.speaks() {
        "; ignored, because top-app reports the foreground app"
    } else {
        ""
    };
    let oom_state = match (view.sources.oom_score_adj.is_on(), config.oom_score_adj) {
        (true, _) => active(heard.is_empty()),
        (false, OomScoreAdjSource::Off) => State::Off,
        (false, _) => State::Unavailable,
    };
    let top_app_state = match (view.sources.top_app.group(), config.top_app) {
        (Some(_), _) => active(view.sources.top_app.speaks() && model.topmost.hears_inferred()),
        (None, false) => State::Off,
        // The cpuset exists on Android only; on other systems its absence is not a defect.
        (None, true) => State::Idle,
    };
    vec![
        source(
            "explicit",
            active(model.topmost.is_explicit()),
            "limelight focus",
        ),
        source(
            "session",
            active(sessions > 0),
            format!("{sessions} session agents"),
        ),
        source("top-app", top_app_state, view.sources.top_app.detail()),
        source(
            "oom_score_adj",
            oom_state,
            format!("{}{heard}", view.sources.oom_score_adj.detail()),
        ),
        wake_graph(view),
    ]
}

/// The state of the wake graph.
fn wake_graph(view: &View<'_>) -> SourceStatus {
    let Reconciler { config, model, .. } = view.viewer.reconciler;
    let graph = &view.sources.wake_graph;
    let [(_, works, input), _] = view.sources.evdev.details();
    let (state, detail) = if !config.wake_graph {
        let off = "switched off by the configuration ([sources] wake_graph)";
        (State::Off, off.to_owned())
    } else if config.evdev == EvdevSource::Off {
        let off = "input devices are not read: switched off by the configuration ([sources] evdev)";
        (State::Off, off.to_owned())
    } else if let Some(why) = graph.failure() {
        (State::Unavailable, why.to_owned())
    } else if !graph.listens() {
        let idle = "not needed: a source reports the foreground app";
        (State::Idle, idle.to_owned())
    } else if !works {
        (State::Unavailable, format!("no input is received: {input}"))
    } else {
        let state = match model.is_guess() {
            true => State::Active,
            false => State::Idle,
        };
        (state, graph.detail())
    };
    source(WAKE_GRAPH, state, detail)
}

fn agents(view: &View<'_>) -> Vec<AgentStatus> {
    let Reconciler { system, access, .. } = view.viewer.reconciler;
    view.agents.status(|client, peer| {
        let speaker = view.control.speaker(access, client, peer);
        authorization::may_speak(system, access, speaker).is_ok()
    })
}

fn memory(view: &View<'_>, stalled: Option<Stall>) -> MemoryStatus {
    let daemon = view.viewer.reconciler;
    let memory = pressure::memory_now(&daemon.system);
    let guard = daemon.mechanisms.swap.guard.as_ref();
    let shortage = guard.map(|guard| guard.shortage());
    MemoryStatus {
        total: memory.total,
        available: memory.available,
        swap_total: memory.swap_total,
        swap_free: memory.swap_free,
        psi_full_avg10: stalled.and_then(|stall| stall.full),
        lru: match daemon.model.last.lru {
            Lru::MultiGen => "mglru",
            Lru::TwoList => "two-list",
        }
        .to_owned(),
        budget: daemon.model.last.budget(),
        protected_by_others: daemon.model.last.protected_by_others,
        protected: reserved_bytes(view),
        lowered_steps: daemon.model.pressure.steps(),
        locked: daemon.mechanisms.locked_bytes(),
        level: shortage.as_ref().map(Shortage::level),
        thresholds: shortage.as_ref().map(Shortage::thresholds),
    }
}

/// Bytes of the topmost app's reservation; 0 if it is not in effect.
fn reserved_bytes(view: &View<'_>) -> u64 {
    let daemon = view.viewer.reconciler;
    let home = daemon.model.front().and_then(|app| app.own_home());
    let (Some(home), Some(reserved)) = (home, daemon.mechanisms.shared.in_force.reserved) else {
        return 0;
    };
    let knob = daemon.system.cgroup_file(&home.path, reserved.knob.file());
    if daemon.mechanisms.shared.changes.is_applied(&knob) {
        reserved.bytes
    } else {
        0
    }
}
