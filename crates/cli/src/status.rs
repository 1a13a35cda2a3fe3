// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight status`.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use limelight_proto::{
    AgentStatus, AppLatency, Change, DeviceStatus, KernelWindows, MemoryStatus, Outcome,
    SourceStatus, State, Status, TopmostStatus, WindowStatus,
};
use serde::Serialize;

use crate::counters;
use crate::exit::Failure;
use crate::format::{self, printable, Table};

/// The daemon's state and the kernel's counters.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report<'a> {
    #[serde(flatten)]
    status: &'a Status,
    /// `limelight_*` of `/proc/vmstat`; empty on a kernel without them.
    counters: BTreeMap<String, u64>,
}

/// Prints the daemon's state.
pub fn print(status: &Status, json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    let report = Report {
        status,
        counters: counters::kernel(),
    };
    match json {
        true => format::json(&report, out),
        false => print_text(&report, out),
    }
}

/// Prints response windows.
pub fn print_window(window: &WindowStatus, json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    if json {
        return format::json(window, out);
    }
    let mut table = Table::default();
    table.line("windows", self::window(window));
    sources("input", &window.sources, &mut table);
    table.print(out)
}

fn print_text(report: &Report, out: &mut Vec<u8>) -> Result<(), Failure> {
    let status = report.status;
    let mut table = Table::default();
    table.line(
        "daemon",
        format!(
            "limelightd {}, pid {}, up {}{}{}",
            printable(&status.version),
            status.pid,
            format::span(Duration::from_millis(status.uptime_ms)),
            if status.dry_run {
                ", dry run: nothing is changed"
            } else {
                ""
            },
            match &status.paused {
                Some(pause) => format!("; {}", format::pause(pause)),
                None => String::new(),
            },
        ),
    );
    table.line(
        "foreground",
        match (&status.topmost, &status.hidden) {
            (Some(front), _) => topmost(front),
            (None, Some(why)) => format!("not shown: {}", printable(why)),
            (None, None) => "none".to_owned(),
        },
    );
    if let Some(previous) = &status.previous {
        table.line("previous", format::app(previous));
    }
    for mechanism in &status.mechanisms {
        let text = format!(
            "{}: {}",
            word(mechanism.state),
            printable(&mechanism.detail)
        );
        table.line(&printable(&mechanism.name), text);
    }
    table.line("windows", window(&status.window));
    table.line("memory", memory(&status.memory));
    table.line("kernel", device(&status.device, &report.counters));
    sources("sources", &status.sources, &mut table);
    for agent in &status.agents {
        table.line("agent", agent_line(agent));
    }
    sources("input", &status.window.sources, &mut table);
    table.print(out)?;
    match status.changes.is_empty() {
        true if status.hidden.is_some() => writeln!(out, "\nno knob is changed for your apps")?,
        true => writeln!(out, "\nno knob is changed")?,
        false => {
            writeln!(out)?;
            changes(&status.changes, out)?;
        }
    }
    Ok(())
}

/// Prints sources, one line each.
fn sources(what: &str, sources: &[SourceStatus], table: &mut Table) {
    let names = sources.iter().map(|source| source.name.chars().count());
    let width = names.max().unwrap_or(0);
    for (at, source) in sources.iter().enumerate() {
        let name = printable(&source.name);
        let text = format!(
            "{name:width$}  {}: {}",
            word(source.state),
            printable(&source.detail)
        );
        table.line(if at == 0 { what } else { "" }, text);
    }
}

fn agent_line(agent: &AgentStatus) -> String {
    let whose = format!("uid {}, pid {}", agent.uid, agent.pid);
    match &agent.source {
        Some(source) => format!(
            "{whose}: {}: {}",
            printable(source),
            printable(&agent.detail)
        ),
        None => format!(
            "{whose}: no source of the focus: {}",
            printable(&agent.detail)
        ),
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Active => "acts",
        State::Idle => "idle",
        State::Off => "off",
        State::Unavailable => "unavailable",
    }
}

fn topmost(topmost: &TopmostStatus) -> String {
    let mut text = format!(
        "{}, for {}, reported by {}, {}",
        format::app(&topmost.app),
        format::span(Duration::from_millis(topmost.for_ms)),
        printable(&topmost.source),
        format::count(topmost.members.into(), "process", "processes"),
    );
    if let Some(ms) = topmost.demoted_in_ms {
        let left = format::span(Duration::from_millis(ms));
        text.push_str(&format!("; nothing has the focus, demoted in {left}"));
    }
    if let Some(cgroup) = &topmost.app.cgroup {
        let shared = if topmost.app.own_cgroup {
            ""
        } else {
            " (shared with other programs)"
        };
        text.push_str(&format!("\n{}{shared}", printable(cgroup)));
    }
    text
}

fn window(window: &WindowStatus) -> String {
    let mut text = match &window.open {
        Some(open) => format!(
            "open for {} for {}, at most {} more, {}",
            printable(&open.app),
            format::micros(open.for_us),
            format::micros(open.ends_in_us),
            format::count(open.inputs.into(), "input", "inputs"),
        ),
        None => format!("{}: {}", word(window.state), printable(&window.detail)),
    };
    let seen = &window.tallies;
    if seen.opened > 0 {
        text.push_str(&format!(
            "\n{} opened, {} answered in time, {} late, {} never answered, {} moved with the focus",
            seen.opened, seen.answered, seen.late, seen.unanswered, seen.moved
        ));
    }
    text.push_str(&format!("\n{}", kernel_windows(&window.kernel)));
    if let Some(seen) = &window.topmost {
        text.push_str(&format!("\n{}", latency(seen)));
    }
    text
}

fn kernel_windows(kernel: &KernelWindows) -> String {
    let mut text = format!(
        "kernel {}: {}",
        word(kernel.state),
        printable(&kernel.detail)
    );
    if kernel.opened > 0 {
        let times = format::count(kernel.opened, "time", "times");
        text.push_str(&format!(", opened {times}, closed {}", kernel.closed));
    }
    if kernel.failed > 0 {
        let times = format::count(kernel.failed, "time", "times");
        text.push_str(&format!("; refused {times}, see limelightd's log"));
    }
    text
}

fn latency(seen: &AppLatency) -> String {
    if seen.answers == 0 {
        return format!("{}: no answers yet", printable(&seen.name));
    }
    format!(
        "{} answers within p50 {}, p95 {}, p99 {} ({})",
        printable(&seen.name),
        format::micros(seen.p50_us),
        format::micros(seen.p95_us),
        format::micros(seen.p99_us),
        format::count(seen.answers, "answer", "answers"),
    )
}

fn memory(memory: &MemoryStatus) -> String {
    let mut text = format!(
        "{} available of {}",
        format::bytes(memory.available),
        format::bytes(memory.total)
    );
    text.push_str(&match memory.swap_total {
        0 => ", no swap".to_owned(),
        total => {
            format!(
                ", swap {} free of {}",
                format::bytes(memory.swap_free),
                format::bytes(total)
            )
        }
    });
    if let Some(level) = memory.level {
        text.push_str(&format!(", {}", level.name()));
    }
    match memory.psi_full_avg10 {
        Some(full) => text.push_str(&format!(", stalled {full:.1} % of the last 10 s")),
        None => text.push_str(", no PSI"),
    }
    text.push_str(&format!(", LRU {}", printable(&memory.lru)));
    text.push_str(&format!(
        "\n{} protected through the app's cgroup, of a budget of {}",
        format::bytes(memory.protected),
        format::bytes(memory.budget)
    ));
    if memory.protected_by_others > 0 {
        let others = format::bytes(memory.protected_by_others);
        text.push_str(&format!(
            "; other software reserves {others}, which the budget excludes"
        ));
    }
    if memory.lowered_steps > 0 {
        let steps = format::count(memory.lowered_steps.into(), "step", "steps");
        text.push_str(&format!(
            "; lowered by {steps}, because no other memory was left"
        ));
    }
    text
}

fn device(device: &DeviceStatus, counters: &BTreeMap<String, u64>) -> String {
    let list = |names: &[String]| match names {
        [] => "nothing".to_owned(),
        names => printable(&names.join(", ")),
    };
    let mut text = match device {
        DeviceStatus::Open {
            abi_version,
            built_in,
            enabled,
            generation,
            members,
        } => format!(
            "/dev/limelight, ABI {abi_version}, has {}, on: {}; foreground set {generation} with {}",
            list(built_in),
            list(enabled),
            format::count((*members).into(), "process", "processes"),
        ),
        DeviceStatus::Unused { why } => format!("/dev/limelight is not used: {}", printable(why)),
    };
    for (name, value) in counters.iter().filter(|(_, value)| **value > 0) {
        text.push_str(&format!("\n{name} {value}"));
    }
    text
}

/// Prints changed knobs, newest last.
pub fn changes(changes: &[Change], out: &mut Vec<u8>) -> Result<(), Failure> {
    for change in changes {
        let knob = &change.knob;
        let (from, to) = (
            format::value(knob, &change.from),
            format::value(knob, &change.to),
        );
        writeln!(out, "{}: {from} -> {to}", printable(knob))?;
        let when = format::ago(change.at_ms);
        let outcome = match &change.outcome {
            Outcome::Applied => format!("applied {when}"),
            Outcome::Planned => format!("planned {when}, not applied: dry run"),
            Outcome::Inert { why } => format!("inert, found {when}: {}", printable(why)),
            Outcome::Failed { why } => format!("failed {when}: {}", printable(why)),
        };
        writeln!(out, "    {outcome}")?;
        writeln!(out, "    because  {}", printable(&change.rule))?;
        writeln!(out, "    undo     {}", printable(&change.undone_by))?;
    }
    Ok(())
}
