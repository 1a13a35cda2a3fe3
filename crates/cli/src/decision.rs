// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight explain --last`.

use std::io::Write;
use std::time::Duration;

use limelight_proto::{Decision, Weighed};

use crate::exit::Failure;
use crate::format::{self, printable, Table};

/// Prints a decision with all candidates. `hidden`: the reason why other users' apps are omitted.
pub fn print(
    decision: Option<&Decision>,
    hidden: Option<&str>,
    json: bool,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    if json {
        return format::json(&decision, out);
    }
    let Some(decision) = decision else {
        writeln!(
            out,
            "nothing to explain: the daemon has made no such decision since it started"
        )?;
        return Ok(());
    };
    let memory = &decision.memory;
    let mut table = Table::default();
    let chosen = decision.weighed.iter().find(|weighed| weighed.chosen);
    let chosen = chosen.map_or_else(
        || match hidden {
            Some(_) => "an app of another user".to_owned(),
            None => "an app".to_owned(),
        },
        |one| format::app(&one.app),
    );
    table.line("decision", format!("{chosen} {}", decision.action));
    table.line("when", format::ago(decision.at_ms));
    table.line(
        "level",
        format!(
            "{}: apps are swapped below {} available and may be killed below {}",
            decision.level.name(),
            format::bytes(decision.swap_threshold),
            format::bytes(decision.kill_threshold)
        ),
    );
    table.line(
        "memory",
        format!(
            "{} available, {} free, swap {} free of {}, tasks stalled for {} since boot (all at \
             once: {})",
            format::bytes(memory.available),
            format::bytes(memory.free),
            format::bytes(memory.swap_free),
            format::bytes(memory.swap_total),
            format::span(Duration::from_millis(memory.some_ms)),
            format::span(Duration::from_millis(memory.full_ms))
        ),
    );
    table.print(out)?;
    writeln!(out)?;
    for (at, one) in decision.weighed.iter().enumerate() {
        writeln!(out, "{:3}. {}", at + 1, weighed(one, decision.at_ms))?;
    }
    if let Some(why) = hidden {
        writeln!(out, "{}", printable(why))?;
    }
    Ok(())
}

fn weighed(one: &Weighed, at_ms: u64) -> String {
    let mark = if one.chosen { "CHOSEN" } else { "not chosen" };
    let used = format::span(Duration::from_millis(at_ms.saturating_sub(one.used_ms)));
    let uses: Vec<String> = one
        .uses
        .iter()
        .map(|what| format!(", {}", what.clause()))
        .collect();
    let line = format!(
        "{} ({}, {}, used {used} before{}): {mark}, {}",
        format::app(&one.app),
        one.class,
        format::bytes(one.allocated),
        uses.concat(),
        printable(&one.reason)
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_proto::Class;
    use limelight_proto::Level;
    use limelight_proto::{AppStatus, MemoryAction, MemoryThen};

    #[test]
    fn decision_names_all_apps() {
        let app = |name: &str, chosen: bool| Weighed {
            app: AppStatus {
                name: name.to_owned(),
                pid: None,
                cgroup: None,
                own_cgroup: true,
            },
            uid: Some(1000),
            chosen,
            reason: "because".to_owned(),
            class: Class::Disposable,
            used_ms: 1000,
            uses: Vec::new(),
            allocated: 10 << 20,
        };
        let decision = Decision {
            at_ms: 5000,
            action: MemoryAction::Kill,
            level: Level::Kill,
            memory: MemoryThen::default(),
            kill_threshold: 1 << 20,
            swap_threshold: 2 << 20,
            weighed: vec![app("one", false), app("two", true)],
        };
        let mut out = Vec::new();
        print(Some(&decision), None, false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("two killed"), "{text}");
        assert!(
            text.contains("2. two (disposable, 10.0 MiB, used 4 s before): CHOSEN, because"),
            "{text}"
        );
        let foreign = Decision {
            weighed: vec![app("one", false)],
            ..decision
        };
        let mut out = Vec::new();
        print(Some(&foreign), Some("not shown"), false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("an app of another user killed"), "{text}");
        assert!(text.ends_with("not shown\n"), "{text}");
        let mut out = Vec::new();
        print(None, None, false, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().starts_with("nothing"));
    }
}
