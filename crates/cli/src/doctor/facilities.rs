// SPDX-License-Identifier: GPL-2.0-or-later
//! Facilities of the session agents: notifications, and the detection of sound and video.

use limelight_proto::{SourceStatus, State, Status, NOTIFICATIONS, SOUND, VIDEO};

use super::findings::Verdict;
use super::Findings;

/// A facility, what follows if it does not work, and how to get it.
struct Facility {
    name: &'static str,
    loss: &'static str,
    cure: &'static str,
}

const FACILITIES: [Facility; 3] = [
    Facility {
        name: NOTIFICATIONS,
        loss: "apps are closed without a message",
        cure: "start a notification server in the session: most desktops have one; else install \
               mako, dunst or another one",
    },
    Facility {
        name: SOUND,
        loss: "an app that plays may be closed first",
        cure: "install pipewire-pulse or pulseaudio, and start it in the session",
    },
    Facility {
        name: VIDEO,
        loss: "an app that shares or records the screen may be closed first",
        cure: "restart PipeWire in the session",
    },
];

const AGENT: &str =
    "run limelight-agent in the session: systemctl --user enable --now limelight-agent";

/// Reports each facility: by the agent in whose session it works best, because agents of logins
/// without a display have none.
pub fn examine(status: &Status, findings: &mut Findings) {
    for facility in &FACILITIES {
        let all = status.agents.iter().flat_map(|agent| &agent.facilities);
        let own = all.filter(|one| one.name == facility.name);
        report(
            facility,
            own.min_by_key(|one| rank(one.state)),
            status,
            findings,
        );
    }
}

fn rank(state: State) -> u8 {
    match state {
        State::Active => 0,
        State::Idle => 1,
        State::Unavailable => 2,
        State::Off => 3,
    }
}

fn report(
    Facility { name, loss, cure }: &Facility,
    found: Option<&SourceStatus>,
    status: &Status,
    findings: &mut Findings,
) {
    let Some(SourceStatus { state, detail, .. }) = found else {
        return match (&status.hidden, status.agents.is_empty()) {
            (Some(why), true) => findings.note(name, format!("not shown: {why}")),
            (None, true) => findings.inert(name, format!("no session agent runs: {loss}"), AGENT),
            (_, false) => findings.note(name, "the session agent does not report it"),
        };
    };
    match state {
        State::Active => findings.acts(name, detail),
        State::Idle => findings.note(name, detail),
        State::Off => findings.add(name, Verdict::Off, format!("{detail}: {loss}"), None),
        State::Unavailable => findings.inert(name, format!("{detail}: {loss}"), cure),
    }
}
