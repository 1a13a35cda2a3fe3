// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows in `status`, `explain` and `latency`.

use std::time::Duration;

use limelight_core::model::window::AppAnswers;
use limelight_proto::{
    AppLatency, ErrorCode, LatencyReport, OpenWindow, Response, SourceStatus, State, WindowStatus,
};

use crate::config::EvdevSource;
use crate::control::report::View;
use crate::control::visibility::Viewer;
use crate::system::identify::Refusal;
use crate::system::now;

/// The answer to `latency` for this user.
pub(crate) fn latency(viewer: Viewer<'_>, app: Option<&str>) -> Result<Response, Refusal> {
    let all = viewer.reconciler.mechanisms.window.model.apps();
    let apps: Vec<AppLatency> = viewer
        .keep_visible(all, |answers| answers.owner)
        .into_iter()
        .filter(|answers| app.is_none_or(|name| answers.name == name))
        .map(app_latency)
        .collect();
    match app {
        Some(name) if apps.is_empty() => Err(Refusal::new(
            ErrorCode::NotFound,
            format!("no app named {name:?} had a response window"),
            "limelight latency lists the apps that had one",
        )),
        _ => Ok(Response::Latency(LatencyReport {
            apps,
            hidden: viewer.hidden(),
        })),
    }
}

/// State of the response windows, for `status`.
pub(super) fn status(view: &View<'_>) -> WindowStatus {
    let daemon = view.viewer.reconciler;
    let window = &daemon.mechanisms.window;
    let at = now();
    let model = &window.model;
    let open = model.open().map(|window| OpenWindow {
        app: window.name.clone(),
        for_us: micros(at.saturating_sub(window.since)),
        ends_in_us: micros(window.ends.saturating_sub(at)),
        inputs: window.inputs,
    });
    let topmost = daemon.model.front().and_then(|front| {
        let mut apps = model.apps().into_iter();
        let owner = daemon.model.owner_of(&daemon.system, front);
        apps.find(|answers| answers.name == front.name && answers.owner == owner)
    });
    let (state, detail) = if !daemon.config.settings.window.enabled {
        let detail = "switched off by the configuration ([window] enabled)";
        (State::Off, detail.to_owned())
    } else {
        let detail = match window.last_told() {
            Some((by, when)) => format!(
                "last report by {by}, {} ms ago",
                at.saturating_sub(*when).as_millis()
            ),
            None => "no source has reported input or frames yet".to_owned(),
        };
        let state = match open {
            Some(_) => State::Active,
            None => State::Idle,
        };
        (state, detail)
    };
    WindowStatus {
        state,
        detail,
        kernel: window
            .told
            .status(&daemon.mechanisms.shared.device, open.is_some()),
        open,
        sources: sources(view),
        tallies: model.tallies(),
        topmost: topmost.map(app_latency),
    }
}

fn sources(view: &View<'_>) -> Vec<SourceStatus> {
    let daemon = view.viewer.reconciler;
    let window = &daemon.mechanisms.window;
    let reporters = window.reporters();
    let mut sources = vec![SourceStatus {
        name: "control socket".to_owned(),
        state: match reporters {
            0 => State::Idle,
            _ => State::Active,
        },
        detail: format!("{reporters} session agents or compositors report input and frames"),
    }];
    let [input, frames] = view.sources.evdev.details();
    for (name, (on, works, how)) in [("evdev", input), ("display frames", frames)] {
        let (state, detail) = match (daemon.config.evdev, on, works) {
            (EvdevSource::Off, ..) => {
                let why = "switched off by the configuration ([sources] evdev)";
                (State::Off, why)
            }
            (_, false, _) if window.is_reported() => {
                (State::Idle, "not needed: another source reports")
            }
            (_, false, _) => (State::Idle, "not needed: no app is in the foreground"),
            (_, true, true) => (State::Active, how),
            (_, true, false) => (State::Unavailable, how),
        };
        sources.push(SourceStatus {
            name: name.to_owned(),
            state,
            detail: detail.to_owned(),
        });
    }
    sources
}

/// The note about response windows in `explain` of the topmost app.
pub(super) fn note(view: &View<'_>) -> Option<String> {
    let status = status(view);
    let name = &view.viewer.reconciler.model.front()?.name;
    Some(match (status.state, status.topmost) {
        (State::Off, _) => status.detail,
        (_, None) => "no response window of this app has been answered yet, so its response time \
                      is unknown"
            .to_owned(),
        (_, Some(seen)) => format!(
            "{name} answered {} times: half within {}, 99 of 100 within {}; its windows stay open \
             for at most {} ms",
            seen.answers,
            took(Duration::from_micros(seen.p50_us)),
            took(Duration::from_micros(seen.p99_us)),
            seen.deadline_ms
        ),
    })
}

pub(crate) fn took(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn app_latency(answers: AppAnswers) -> AppLatency {
    AppLatency {
        name: answers.name,
        answers: answers.answers,
        late: answers.late,
        unanswered: answers.unanswered,
        p50_us: micros(answers.took.p50),
        p95_us: micros(answers.took.p95),
        p99_us: micros(answers.took.p99),
        max_us: micros(answers.took.max),
        deadline_ms: micros(answers.deadline) / 1000,
        recent_us: answers.recent.into_iter().map(micros).collect(),
    }
}
