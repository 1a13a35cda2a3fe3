// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks which engines can zero pages in advance on this machine.

use std::path::Path;

use limelight_proto::MechanismId;
use limelight_sys::dir::Dir;
use limelight_sys::proc::Proc;

use super::device::{BuiltIn, UNKNOWN};
use super::Findings;

const FOLDER: &str = "kernel/mm/limelight/prezero";
const CHECK: &str = "prezero kernel";

/// One finding for the mechanism, and one for each engine.
pub fn examine(proc: &Path, sys: &Path, built_in: &BuiltIn, findings: &mut Findings) {
    let ours = built_in.has(MechanismId::Prezero.name());
    let on_free = zeroed_when_freed(proc);
    match (ours, on_free) {
        (Some(true), true) => findings.inert(
            CHECK,
            "the kernel already zeroes every page when it is freed (init_on_free=1), which costs \
             time for each freed page",
            "boot without init_on_free=1",
        ),
        (Some(true), false) => findings.acts(
            CHECK,
            "the foreground app gets pages that were zeroed between its response windows",
        ),
        (Some(false), true) => findings.note(
            CHECK,
            "not in this kernel, which zeroes pages when they are freed (init_on_free=1): that \
             moves the cost to every program that frees memory",
        ),
        (Some(false), false) => findings.note(
            CHECK,
            "not in this kernel: pages are zeroed while the app waits for them",
        ),
        (None, _) => findings.note(CHECK, UNKNOWN),
    }
    if ours == Some(true) {
        let folder = Dir::open(sys.join(FOLDER));
        let text = folder.and_then(|folder| folder.read_text("engines"));
        engines(&text.unwrap_or_default(), findings);
    }
}

/// Adds a finding for each line: `NAME`, or `NAME: REASON` for an engine that cannot be used.
fn engines(text: &str, findings: &mut Findings) {
    for line in text.lines() {
        match line.split_once(": ") {
            Some((name, lacks)) => findings.note(&format!("prezero engine {name}"), lacks),
            None => findings.acts(&format!("prezero engine {line}"), "can zero pages"),
        }
    }
}

/// Whether the kernel was started with `init_on_free`; its build-time default is not visible.
fn zeroed_when_freed(proc: &Path) -> bool {
    let proc = Proc::open(&proc.to_string_lossy());
    let text = proc.and_then(|proc| proc.dir().read_text("cmdline"));
    text.is_ok_and(|text| {
        let last = text
            .split_ascii_whitespace()
            .filter_map(|word| word.strip_prefix("init_on_free="))
            .next_back();
        last.is_some_and(|value| matches!(value, "1" | "y" | "Y" | "on"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::findings::Verdict;

    fn examined(cmdline: &str, built_in: &[&str], engines: &str) -> Findings {
        let temp = tempfile::tempdir().unwrap();
        let (proc, sys) = (temp.path().join("proc"), temp.path().join("sys"));
        std::fs::create_dir_all(sys.join(FOLDER)).unwrap();
        std::fs::create_dir(&proc).unwrap();
        std::fs::write(proc.join("cmdline"), cmdline).unwrap();
        std::fs::write(sys.join(FOLDER).join("engines"), engines).unwrap();
        let names = built_in.iter().map(|&name| name.to_owned()).collect();
        let mut findings = Findings::default();
        examine(&proc, &sys, &BuiltIn(Some(names)), &mut findings);
        findings
    }

    #[test]
    fn each_engine_has_a_finding() {
        let findings = examined(
            "quiet",
            &["protect", "prezero"],
            "cpu\nblock\ndma: no channel\n",
        );
        let checks: Vec<_> = findings
            .list
            .iter()
            .map(|finding| &*finding.check)
            .collect();
        assert_eq!(
            checks,
            [
                "prezero kernel",
                "prezero engine cpu",
                "prezero engine block",
                "prezero engine dma"
            ]
        );
        assert!(findings.list[3].detail.contains("no channel"));
    }

    #[test]
    fn init_on_free_makes_the_pool_inert() {
        let findings = examined("init_on_free=0 init_on_free=1", &["prezero"], "");
        assert_eq!(findings.list[0].state, Verdict::Inert);
        let findings = examined("init_on_free=1 init_on_free=0", &["prezero"], "");
        assert_eq!(findings.list[0].state, Verdict::Acts);
    }

    #[test]
    fn stock_kernel_needs_no_attention() {
        for cmdline in ["", "init_on_free=1"] {
            let findings = examined(cmdline, &["protect"], "cpu\n");
            assert_eq!(findings.list.len(), 1);
            assert!(!findings.list[0].state.is_trouble());
        }
    }
}
