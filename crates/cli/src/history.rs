// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight history`.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limelight_proto::{HistoryEntry, Pause};

use crate::exit::Failure;
use crate::format::{self, printable};

/// Prints past actions, oldest first, and the pause in force. `hidden`: the reason why other users'
/// entries are omitted.
pub fn print(
    entries: &[HistoryEntry],
    paused: Option<&Pause>,
    hidden: Option<&str>,
    json: bool,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    if json {
        return format::json(&entries, out);
    }
    if entries.is_empty() {
        match hidden {
            Some(why) => writeln!(out, "no action on your apps yet; {}", printable(why))?,
            None => writeln!(out, "no action yet: memory has not been short")?,
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    for entry in entries {
        let then = Duration::from_millis(entry.unix_ms);
        let ago = format::span(now.clone().unwrap_or_default().saturating_sub(then));
        writeln!(out, "{ago} ago: {}", action(entry))?;
        writeln!(out, "    because  {}", printable(&entry.reason))?;
        writeln!(out, "    memory   {}", memory(entry))?;
    }
    if let Some(pause) = paused {
        writeln!(out, "now: {}", format::pause(pause))?;
    }
    Ok(())
}

/// One line about an action: the app, the action, its class, size and duration.
pub fn action(entry: &HistoryEntry) -> String {
    let mut text = match &entry.app {
        Some(app) => format!("{} {}", format::app(app), entry.action),
        None => entry.action.to_string(),
    };
    if let Some(class) = entry.class {
        text.push_str(&format!(", {class}"));
    }
    if entry.bytes > 0 {
        text.push_str(&format!(", {}", format::bytes(entry.bytes)));
    }
    if let Some(us) = entry.took_us {
        text.push_str(&format!(" in {}", format::micros(us)));
    }
    if entry.times > 1 {
        let seconds = entry.for_ms.div_ceil(1000);
        text.push_str(&format!(" ({} times in {seconds} s)", entry.times));
    }
    text
}

fn memory(entry: &HistoryEntry) -> String {
    let memory = &entry.memory;
    let swap = match memory.swap_total {
        0 => "no swap".to_owned(),
        total => format!(
            "swap {} free of {}",
            format::bytes(memory.swap_free),
            format::bytes(total)
        ),
    };
    format!(
        "{} available, {} free, {swap}",
        format::bytes(memory.available),
        format::bytes(memory.free)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_proto::Class;
    use limelight_proto::{AppStatus, MemoryAction, MemoryThen};

    #[test]
    fn entry_takes_three_lines_for_any_app_name() {
        let entry = || HistoryEntry {
            unix_ms: 0,
            at_ms: 0,
            boot: String::new(),
            action: MemoryAction::Kill,
            app: Some(AppStatus {
                name: "ne\nws".to_owned(),
                pid: Some(7),
                cgroup: None,
                own_cgroup: false,
            }),
            uid: None,
            class: Some(Class::Disposable),
            bytes: 34 << 20,
            took_us: Some(12_400),
            times: 1,
            for_ms: 0,
            reason: "because".to_owned(),
            memory: MemoryThen::default(),
        };
        let mut out = Vec::new();
        print(&[entry()], None, None, false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.contains("ne\\nws (pid 7) killed, disposable, 34.0 MiB in 12.4 ms"),
            "{text}"
        );
        assert!(text.contains("no swap"));
        let pause = Pause {
            for_ms: 1000,
            left_ms: Some(290_000),
        };
        let mut out = Vec::new();
        print(&[], Some(&pause), None, false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("now: paused, 4 min 50 s left\n"), "{text}");
        let repeated = HistoryEntry {
            times: 40,
            for_ms: 59_100,
            ..entry()
        };
        assert!(action(&repeated).ends_with("(40 times in 60 s)"));
    }
}
