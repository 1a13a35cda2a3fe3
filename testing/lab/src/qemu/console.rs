// SPDX-License-Identifier: GPL-2.0-or-later
//! Detects kernel defects on the console.

use limelight_apps::kernel_log::HARMLESS;

/// Texts of kernel defect reports. An OOM kill is not one.
const TROUBLE: [&str; 14] = [
    "Kernel panic",
    "Oops:",
    "BUG: ",
    "WARNING: ",
    "kernel BUG at",
    "general protection fault",
    "unable to handle",
    "Unable to handle",
    "INFO: task ",
    "rcu: INFO: ",
    "DEADLOCK",
    "suspicious RCU usage",
    "blocked for more than",
    "Attempted to kill init",
];

/// The first line of `console` that reports a kernel defect. Lines that contain an `expected` text
/// are skipped.
pub fn trouble<'a>(console: &'a str, expected: &[&str]) -> Option<&'a str> {
    console.lines().map(str::trim).find(|line| {
        let holds = |texts: &[&str]| texts.iter().any(|text| line.contains(text));
        holds(&TROUBLE) && !holds(&HARMLESS) && !holds(expected)
    })
}

/// Whether the kernel died of a breakpoint that was no longer in its memory, a defect of QEMU.
///
/// To patch its own code, Linux puts a breakpoint in place of an instruction's first byte until the
/// other bytes are written. QEMU's multi-threaded TCG occasionally executes its translation of the
/// breakpoint after Linux has replaced the breakpoint. Linux no longer expects it then and dies.
/// This happens with any kernel at any jump label, and never under KVM. The oops shows the bytes
/// around the instruction and marks the byte after the breakpoint. If the breakpoint is still in
/// memory, the byte before the marked one is `cc`.
pub fn stale_translation(console: &str) -> bool {
    let mut lines = console.lines().map(str::trim);
    if !lines.any(|line| line.contains("Oops: int3")) {
        return false;
    }
    let Some(code) = lines.find_map(|line| line.split_once("Code: ").map(|(_, code)| code)) else {
        return false;
    };
    let mut before = None;
    for byte in code.split_whitespace() {
        if byte.starts_with('<') {
            return before.is_some_and(|byte| byte != "cc");
        }
        before = Some(byte);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_breakpoint_is_an_emulator_fault_and_present_one_is_not() {
        let console = |code: &str| {
            format!("[ 1.0] Oops: int3: 0000 [#1] SMP\n[ 1.0] RIP: x\n[ 1.0] Code: {code}\n")
        };
        assert!(stale_translation(&console("41 54 53 66 <90> e8 8c")));
        assert!(!stale_translation(&console("41 54 53 cc <90> e8 8c")));
        assert!(!stale_translation(&console("41 54 53 66")));
        assert!(!stale_translation(
            "Oops: 0002 [#1]\nCode: 41 54 53 66 <90> e8 8c"
        ));
    }

    #[test]
    fn kernel_defects_are_found() {
        for line in [
            "[    1.2] Kernel panic - not syncing: Fatal exception",
            "[    1.2] Oops: 0000 [#1] PREEMPT SMP NOPTI",
            "[    1.2] BUG: KASAN: use-after-free in x+0x1/0x2",
            "[    1.2] WARNING: CPU: 0 PID: 1 at mm/vmscan.c:1 x+0x1/0x2",
            "[    1.2] WARNING: possible circular locking dependency detected",
            "[    1.2] INFO: task kswapd0:33 blocked for more than 122 seconds.",
        ] {
            let console = format!("Linux version 6.12\r\n{line}\r\nmore\r\n");
            assert_eq!(trouble(&console, &[]), Some(line));
        }
    }

    #[test]
    fn ordinary_messages_and_oom_kills_are_not_defects() {
        let console = "[ 0.1] x86/fpu: Supporting XSAVE\n[ 9.0] Out of memory: Killed process 7\n";
        assert_eq!(trouble(console, &[]), None);
    }

    #[test]
    fn expected_texts_are_ignored() {
        let console = "WARNING: the expected one\nWARNING: another\n";
        assert_eq!(
            trouble(console, &["expected one"]),
            Some("WARNING: another")
        );
    }
}
