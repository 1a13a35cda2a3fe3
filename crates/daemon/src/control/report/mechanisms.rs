// SPDX-License-Identifier: GPL-2.0-or-later
//! The mechanisms in `status`.

use limelight_core::policy::boost::{self, Standing};
use limelight_proto::{MechanismId, MechanismStatus, Pause, State};
use limelight_sys::controllers::Lack;

use crate::control::report::{mechanism, off, swap, View};
use crate::mechanisms::prezero::FOLDER;
use crate::reconcile::Reconciler;

/// Why premap and prezero are unavailable on a stock kernel.
const ABSENT: &str = "not in this kernel";

/// All mechanisms.
pub(super) fn status(view: &View<'_>) -> Vec<MechanismStatus> {
    let mut all = vec![
        protect(view),
        boost(view),
        premap(view),
        readahead(view),
        prezero(view),
        swap::status(view),
    ];
    if let Some(pause) = view.viewer.reconciler.pause_report() {
        all.iter_mut().for_each(|one| show_pause(one, pause));
    }
    all
}

/// During a pause, no mechanism acts.
fn show_pause(mechanism: &mut MechanismStatus, pause: Pause) {
    if mechanism.state == State::Off {
        return;
    }
    mechanism.state = State::Idle;
    mechanism.detail = match pause.left_ms {
        Some(ms) => format!("paused, {} s left", ms.div_ceil(1000)),
        None => "paused, until limelight resume".to_owned(),
    };
    mechanism.short.clear();
}

/// The state of a mechanism that works only while an app is topmost.
fn while_topmost(daemon: &Reconciler) -> State {
    match daemon.model.front() {
        Some(_) => State::Active,
        None => State::Idle,
    }
}

fn protect(view: &View<'_>) -> MechanismStatus {
    let daemon = view.viewer.reconciler;
    let device = daemon.mechanisms.shared.device.device().is_some();
    let knob = daemon.model.last.lru.knob().file();
    let mut means = Vec::new();
    if device {
        means.push("/dev/limelight".to_owned());
    }
    if daemon.model.last.memory_controller {
        means.push(format!("{knob} of the app's cgroup"));
    }
    if daemon.mechanisms.locked_bytes() > 0 {
        means.push("locks on mapped file pages that are charged to other cgroups".to_owned());
    }
    if daemon.config.settings.protect.oom_points > 0 {
        means.push("a lower oom_score_adj".to_owned());
    }
    let state = if !daemon.config.settings.protect.enabled {
        State::Off
    } else if !device && !daemon.model.last.memory_controller {
        State::Unavailable
    } else {
        while_topmost(daemon)
    };
    let means = means.join(", ");
    let (detail, short) = match state {
        State::Unavailable => {
            let lack = daemon.system.proc.lack_of("memory").unwrap_or(Lack::Hidden);
            let cure = lack.cure();
            let detail = format!("no memory can be reserved: /dev/limelight is missing, and so is cgroup v2's memory controller ({lack}): {cure}");
            (detail, String::new())
        }
        _ => {
            let pressure = view.sources.pressure.detail();
            (format!("by {means}; pressure: {pressure}"), means)
        }
    };
    mechanism(MechanismId::Protect, state, detail, short)
}

/// State of `boost`. Without a topmost app, the working knobs are unknown.
fn boost(view: &View<'_>) -> MechanismStatus {
    let daemon = view.viewer.reconciler;
    let settings = &daemon.config.settings.boost;
    let front = daemon.model.topmost.front();
    let (state, detail, short) = match front {
        _ if !settings.enabled => (State::Off, off("boost"), String::new()),
        None => {
            let helpers = daemon.mechanisms.boost.surroundings.helpers();
            let short = "no app is in the foreground";
            let detail = format!("{short}; {helpers} helpers are known");
            (State::Idle, detail, short.to_owned())
        }
        Some(front) => {
            let home = front.app.home.as_ref();
            let knobs = boost::knobs(settings, &daemon.model.last.boost, home);
            let words = knobs.all().map(|(name, standing)| match standing {
                Standing::Live => format!("{name} live"),
                Standing::Unused(why) => format!("{name} not used: {why}"),
                Standing::Inert(why) => format!("{name} inert: {why}"),
            });
            let all = knobs.all();
            let live = all.iter().filter(|(_, standing)| standing.is_live());
            let live: Vec<&str> = live.map(|(name, _)| *name).collect();
            let (state, short) = match live.is_empty() {
                false => (State::Active, live.join(", ")),
                true => (State::Unavailable, words[0].clone()),
            };
            (state, words.join("; "), short)
        }
    };
    mechanism(MechanismId::Boost, state, detail, short)
}

fn premap(view: &View<'_>) -> MechanismStatus {
    let daemon = view.viewer.reconciler;
    let settings = &daemon.config.settings.premap;
    let mut short = "";
    let (state, detail) = if !settings.enabled {
        (State::Off, off("premap"))
    } else if let Some(pages) = daemon.mechanisms.shared.in_force.device_premap {
        let state = while_topmost(daemon);
        let detail = format!("/dev/limelight, at most {pages} pages per fault");
        (state, detail)
    } else {
        short = ABSENT;
        let detail = format!("{ABSENT}; `limelight run --premap` does it for one program");
        (State::Unavailable, detail)
    };
    mechanism(MechanismId::Premap, state, detail, short)
}

fn prezero(view: &View<'_>) -> MechanismStatus {
    let daemon = view.viewer.reconciler;
    let mut short = "";
    let (state, detail) = if !daemon.config.settings.prezero.enabled {
        (State::Off, off("prezero"))
    } else if let Some(pool) = &daemon.mechanisms.shared.in_force.device_prezero {
        let state = while_topmost(daemon);
        let pooled = daemon.system.sys.read_text(format!("{FOLDER}/pooled"));
        let pooled = pooled.map_or("?".to_owned(), |text| text.trim().to_owned());
        let engine = pool.engine.name();
        let target = pool.target;
        let detail = format!("/dev/limelight, {pooled} of {target} pages, zeroed by {engine}");
        (state, detail)
    } else if daemon.model.last.device_prezero && daemon.model.topmost.front().is_none() {
        let detail = "/dev/limelight, for the next app that enters the foreground";
        (State::Idle, detail.to_owned())
    } else if daemon.model.last.device_prezero {
        let detail = "no pool of zeroed pages is in force: see the changes below";
        (State::Unavailable, detail.to_owned())
    } else {
        short = ABSENT;
        let detail = format!("{ABSENT}; stock kernels zero pages when they are needed");
        (State::Unavailable, detail)
    };
    mechanism(MechanismId::Prezero, state, detail, short)
}

fn readahead(view: &View<'_>) -> MechanismStatus {
    let daemon = view.viewer.reconciler;
    let settings = &daemon.config.settings.readahead;
    let streams = if daemon.mechanisms.shared.in_force.device_readahead.is_some() {
        format!("/dev/limelight, factor {}", settings.factor)
    } else {
        daemon.mechanisms.readahead.streams_detail()
    };
    let state = if !settings.enabled {
        State::Off
    } else if !daemon.mechanisms.readahead.works() {
        State::Unavailable
    } else {
        while_topmost(daemon)
    };
    let starts = daemon.mechanisms.readahead.cold_start_detail();
    let (detail, short) = match state {
        State::Off => (off("readahead"), String::new()),
        State::Unavailable => (starts, String::new()),
        _ => (format!("{streams}; {starts}"), streams),
    };
    MechanismStatus {
        counters: daemon.mechanisms.readahead.counters(),
        ..mechanism(MechanismId::Readahead, state, detail, short)
    }
}
