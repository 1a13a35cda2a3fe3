// SPDX-License-Identifier: GPL-2.0-or-later
//! Summary: whether each mechanism acts on this machine, and by which means.

use limelight_proto::{MechanismId, State, Status};

use super::daemon::RESUME;
use super::device::{BuiltIn, UNKNOWN};
use super::findings::{Finding, Findings, Verdict};
use crate::format;

/// Results of the checks.
pub struct Found<'a> {
    /// The findings.
    pub checks: &'a [Finding],
    /// The mechanisms that the kernel's device offers.
    pub built_in: &'a BuiltIn,
    /// Whether `memory.low` protects, which it does under the two-list LRU only.
    pub low_protects: bool,
    /// Names of the mechanisms that the configuration switches off. A running daemon reports this
    /// itself, because it may read another configuration.
    pub off: &'a [&'static str],
}

impl Found<'_> {
    fn get(&self, check: &str) -> Option<&Finding> {
        self.checks.iter().find(|finding| finding.check == check)
    }

    fn acts(&self, check: &str) -> bool {
        self.get(check)
            .is_some_and(|finding| finding.state == Verdict::Acts)
    }

    /// Whether the kernel's device is known to offer a mechanism.
    fn device(&self, mechanism: MechanismId) -> bool {
        self.built_in.has(mechanism.name()) == Some(true)
    }

    /// Detail and cure of the first of these checks that failed.
    fn obstacle(&self, checks: &[&str]) -> (String, Option<String>) {
        let trouble = checks
            .iter()
            .filter_map(|check| self.get(check))
            .find(|finding| finding.state.is_trouble());
        match trouble {
            Some(finding) => (finding.detail.clone(), finding.cure.clone()),
            None => ("no knob or interface that it could use".to_owned(), None),
        }
    }
}

/// Whether a mechanism can act on this machine, regardless of whether the daemon runs.
enum Machine {
    /// It can act by these means.
    Can(Vec<String>),
    /// It cannot act, which is not a fault: it requires the Limelight kernel, or a program has to
    /// request it.
    Optional(String),
    /// It cannot act, but could after a change: the reason, and the cure.
    Cannot(String, Option<String>),
}

impl Machine {
    /// `Can` with these means. If there are none, `Cannot` with the first of `checks` that failed.
    fn through(means: Vec<String>, found: &Found, checks: &[&str]) -> Machine {
        match means.is_empty() {
            false => Machine::Can(means),
            true => {
                let (why, cure) = found.obstacle(checks);
                Machine::Cannot(why, cure)
            }
        }
    }
}

const DEVICE: &str = "/dev/limelight";

fn protect(found: &Found) -> Machine {
    let mut means = Vec::new();
    let device = found.device(MechanismId::Protect);
    if device {
        means.push(DEVICE.to_owned());
    }
    let there = found.get("memory controller");
    if there.is_some_and(|finding| !finding.state.is_trouble()) {
        let (knob, lru) = match found.low_protects {
            true => ("memory.low", "two-list LRU"),
            false => ("memory.min", "MGLRU"),
        };
        means.push(format!("{knob} of the app's cgroup ({lru})"));
        if !device && found.acts("shared pages") {
            means.push("locks on shared libraries".to_owned());
        }
    }
    Machine::through(means, found, &["cgroup v2", "memory controller"])
}

fn boost(found: &Found) -> Machine {
    let knobs = [
        "cpu.weight",
        "nice",
        "autogroup",
        "slice",
        "io.weight",
        "ioprio",
    ];
    let live = |knob: &&str| found.acts(&format!("boost {knob}"));
    let means = knobs.into_iter().filter(live).map(str::to_owned).collect();
    Machine::through(means, found, &["cgroup v2", "boost cpu.weight"])
}

fn readahead(found: &Found) -> Machine {
    let mut means = vec![match found.device(MechanismId::Readahead) {
        true => DEVICE.to_owned(),
        false => "streams are read ahead by limelightd".to_owned(),
    }];
    if found.acts("opened files") {
        means.push("starts recorded by fanotify".to_owned());
    }
    Machine::Can(means)
}

fn premap(found: &Found) -> Machine {
    match (
        found.device(MechanismId::Premap),
        found.acts("premap library"),
    ) {
        (true, _) => Machine::Can(vec![DEVICE.to_owned()]),
        (false, true) => {
            Machine::Optional("by limelight run --premap, or by the Limelight kernel".to_owned())
        }
        (false, false) => {
            let (why, cure) = found.obstacle(&["premap library"]);
            Machine::Cannot(why, cure)
        }
    }
}

fn prezero(found: &Found) -> Machine {
    match found.built_in.has(MechanismId::Prezero.name()) {
        Some(true) => {}
        Some(false) => return Machine::Optional("needs the Limelight kernel".to_owned()),
        None => return Machine::Optional(UNKNOWN.to_owned()),
    }
    let engines: Vec<&str> = found
        .checks
        .iter()
        .filter(|finding| finding.state == Verdict::Acts)
        .filter_map(|finding| finding.check.strip_prefix("prezero engine "))
        .collect();
    let means = match engines.is_empty() {
        true => Vec::new(),
        false => vec![format!("{DEVICE}, engines {}", engines.join(", "))],
    };
    let means = match found.acts("prezero kernel") {
        true => means,
        false => Vec::new(),
    };
    Machine::through(means, found, &["prezero kernel"])
}

fn swap(found: &Found) -> Machine {
    let mut means = Vec::new();
    if found.acts("swap steps") {
        means.push("apps squeezed, frozen and killed by class".to_owned());
    } else if found.get("swap steps").is_some() {
        means.push("apps killed by class".to_owned());
    }
    match found.get("swap") {
        Some(finding) if finding.state == Verdict::Acts => {
            means.push(format!("swap on {}", finding.detail));
        }
        _ => means.push("no swap".to_owned()),
    }
    Machine::Can(means)
}

fn windows(found: &Found, daemon: Option<&Status>) -> Machine {
    const CURE: &str = "run limelight-agent in the session, or let a compositor report windows";
    const KERNEL: &str = "/dev/input and the display's frames, while an app is in the foreground";
    const ELSEWHERE: &str = "a session agent or a compositor has to report windows";
    let pressed = found.acts("input devices");
    let listens = pressed && found.acts("display frames");
    let Some(status) = daemon else {
        return match listens {
            true => Machine::Can(vec![KERNEL.to_owned()]),
            false => Machine::Optional(ELSEWHERE.to_owned()),
        };
    };
    if let Some(why) = &status.hidden {
        return Machine::Optional(format!("not shown: {why}"));
    }
    let window = &status.window;
    let mut means: Vec<String> = window
        .sources
        .iter()
        .filter(|source| source.state == State::Active)
        .map(|source| source.name.clone())
        .collect();
    if means.is_empty() && window.tallies.opened > 0 {
        means.push("control socket".to_owned());
    }
    if means.is_empty() && status.topmost.is_none() && listens {
        means.push(KERNEL.to_owned());
    }
    match (means.is_empty(), pressed) {
        (false, _) => Machine::Can(means),
        (true, true) => Machine::Cannot(
            "no source reports input and frames".to_owned(),
            Some(CURE.to_owned()),
        ),
        // Without an input device, input can only come from a remote session.
        (true, false) => Machine::Optional(ELSEWHERE.to_owned()),
    }
}

/// One finding for each mechanism, and one for the source of the foreground app.
pub fn judge(found: &Found, daemon: Option<&Status>) -> Vec<Finding> {
    let mut findings = Findings::default();
    let judge_one = |id: MechanismId| match id {
        MechanismId::Protect => protect(found),
        MechanismId::Boost => boost(found),
        MechanismId::Readahead => readahead(found),
        MechanismId::Premap => premap(found),
        MechanismId::Prezero => prezero(found),
        MechanismId::Swap => swap(found),
    };
    let all = MechanismId::ALL.map(|id| (id.name(), judge_one(id)));
    for (name, machine) in all.into_iter().chain([("windows", windows(found, daemon))]) {
        let reported = match daemon {
            Some(status) => reported(status, name),
            None => found.off.contains(&name).then_some((State::Off, "")),
        };
        let (state, detail, cure) = match reported {
            Some((State::Off, _)) => (Verdict::Off, switched_off(name), None),
            reported => verdict(machine, daemon, reported),
        };
        findings
            .part(name)
            .add(&format!("mechanism {name}"), state, detail, cure.as_deref());
    }
    topmost(daemon, findings.part("foreground"));
    findings.list
}

/// The daemon's report on a mechanism.
fn reported<'a>(status: &'a Status, name: &str) -> Option<(State, &'a str)> {
    if name == "windows" {
        return Some((status.window.state, &status.window.detail));
    }
    let mechanism = status.mechanisms.iter().find(|one| one.name == name)?;
    Some((mechanism.state, &mechanism.detail))
}

fn switched_off(name: &str) -> String {
    let section = match name {
        "windows" => "window",
        name => name,
    };
    format!("switched off by the configuration ([{section}] enabled)")
}

fn verdict(
    machine: Machine,
    daemon: Option<&Status>,
    reported: Option<(State, &str)>,
) -> (Verdict, String, Option<String>) {
    let dry = daemon.is_some_and(|status| status.dry_run);
    let paused = daemon.and_then(|status| status.paused.as_ref());
    match (machine, reported) {
        (Machine::Optional(why), _) => (Verdict::Note, why, None),
        (Machine::Cannot(why, cure), _) => (
            Verdict::Inert,
            why,
            Some(cure.unwrap_or_else(|| "see limelight doctor --all".to_owned())),
        ),
        (Machine::Can(means), _) if dry => (
            Verdict::Inert,
            format!("only planned, by {}", means.join(", ")),
            Some("start limelightd without --dry-run".to_owned()),
        ),
        (Machine::Can(_), _) if paused.is_some() => (
            Verdict::Inert,
            paused.map(format::pause).unwrap_or_default(),
            Some(RESUME.to_owned()),
        ),
        (Machine::Can(_), Some((State::Unavailable, detail))) => (
            Verdict::Inert,
            detail.to_owned(),
            Some("see limelightd's log, and limelight doctor --all".to_owned()),
        ),
        (Machine::Can(means), Some(_)) => (Verdict::Acts, means.join(", "), None),
        (Machine::Can(means), None) => (Verdict::Ready, means.join(", "), None),
    }
}

/// Whether a source reports the foreground app.
fn topmost(daemon: Option<&Status>, findings: &mut Findings) {
    const CHECK: &str = "mechanism foreground";
    const AGENT: &str =
        "run limelight-agent in the session: systemctl --user enable --now limelight-agent";
    let Some(status) = daemon else {
        return findings.note(CHECK, "unknown, because limelightd does not answer");
    };
    if let Some(why) = &status.hidden {
        return findings.note(CHECK, format!("not shown: {why}"));
    }
    let active = |name: &str| {
        let mut sources = status.sources.iter();
        sources.any(|source| source.name == name && source.state == State::Active)
    };
    let others: Vec<&str> = status
        .sources
        .iter()
        .filter(|source| source.state == State::Active && source.name != "explicit")
        .map(|source| source.name.as_str())
        .collect();
    let named = match &status.topmost {
        Some(topmost) => format!(
            "{}, reported by {}",
            format::app(&topmost.app),
            topmost.source
        ),
        None => "no app is in the foreground now".to_owned(),
    };
    if active("session") {
        let mut agents = status.agents.iter();
        let source = agents.find_map(|agent| agent.source.as_deref());
        let by = source.map_or(String::new(), |source| format!(" ({source})"));
        findings.acts(CHECK, format!("{named}; the source is a session agent{by}"));
    } else if active("explicit") {
        findings.acts(
            CHECK,
            format!("{named}, until it is withdrawn (limelight focus --none)"),
        );
    } else if !others.is_empty() {
        let others = others.join(", ");
        findings.note(
            CHECK,
            format!("{named}; no session agent, only {others}. On a desktop, {AGENT}"),
        );
    } else {
        findings.inert(CHECK, "no source reports the foreground app", AGENT);
    }
}
