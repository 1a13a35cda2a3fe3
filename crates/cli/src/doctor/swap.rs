// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks what can happen to apps when memory is short: the swap devices, the possible actions, the
//! known apps, and other software that kills.

use std::path::Path;

use limelight_daemon::mechanisms::swap::oom_daemons;
use limelight_proto::Class;
use limelight_proto::{AppReport, Request, Response, State, Status};
use limelight_sys::cgroup::{Cgroup, CgroupPath, Hierarchy};
use limelight_sys::dir::Dir;
use limelight_sys::meminfo::SwapArea;
use limelight_sys::proc::Proc;
use limelight_sys::swap::{Spin, SwapMedium, Zram, Zswap};

use super::cgroups::AppCgroup;
use super::{Findings, Machine};
use crate::client::Client;
use crate::format::{self, printable};

/// Reports the swap areas for anonymous memory.
pub fn areas(proc: &Proc, sys: &Path, findings: &mut Findings) {
    let areas = match proc.swaps() {
        Ok(areas) => areas,
        Err(error) => return findings.inert("swap", error, "read it as root"),
    };
    if areas.is_empty() {
        return findings.note(
            "swap",
            "none: only file pages can be evicted, and apps can only be killed",
        );
    }
    let sys = Dir::open(sys);
    let described: Vec<String> = areas
        .iter()
        .map(|area| describe(area, sys.as_ref().ok()))
        .collect();
    let zswap = sys
        .as_ref()
        .ok()
        .and_then(|sys| Zswap::read(sys, proc).ok());
    let zswap = zswap
        .filter(|zswap| zswap.enabled)
        .map_or_else(String::new, |zswap| {
            format!(
                "; with a zswap cache of up to {} % of memory",
                zswap.most_percent
            )
        });
    findings.acts("swap", format!("{}{zswap}", described.join(", ")));
}

fn describe(area: &SwapArea, sys: Option<&Dir>) -> String {
    let medium = sys.and_then(|sys| area.medium(sys).ok());
    let kind = match medium {
        Some(SwapMedium::Zram(zram)) => compressed(&zram),
        Some(SwapMedium::Disk(spin)) => format!("{}, {} of it used", disk(spin), used(area)),
        Some(SwapMedium::File(spin)) => {
            format!("a file on {}, {} of it used", disk(spin), used(area))
        }
        None if area.is_zram() => "compressed memory".to_owned(),
        None => format!("{}, {} of it used", area.kind, used(area)),
    };
    format!(
        "{} ({}, {kind})",
        printable(&area.path),
        format::bytes(area.size_bytes)
    )
}

fn used(area: &SwapArea) -> String {
    format::bytes(area.used_bytes)
}

fn disk(spin: Spin) -> &'static str {
    match spin {
        Spin::Solid => "flash, with a daily write budget ([swap] write_budget_mib)",
        Spin::Rotational => "a rotating disk",
        Spin::Unknown => "a disk of unknown kind, treated as flash",
    }
}

/// Describes a zram device by the memory that it uses, not by its nominal size.
fn compressed(zram: &Zram) -> String {
    let stored = zram.stored_bytes.saturating_sub(zram.written_back_bytes);
    let held = match zram.taken_bytes {
        0 => "compressed memory, empty".to_owned(),
        taken => format!(
            "compressed memory, {} stored in {}",
            format::bytes(stored),
            format::bytes(taken)
        ),
    };
    match zram.backed {
        true => format!(
            "{held}, {} written back to its disk",
            format::bytes(zram.written_back_bytes)
        ),
        false => format!("{held}, without a disk to write back to"),
    }
}

/// Reports the possible actions on an app with a cgroup of its own.
pub fn steps(proc: &Proc, app: &AppCgroup, findings: &mut Findings) {
    const CHECK: &str = "swap steps";
    // The app's cgroup may be the root, which has none of these files.
    let group = || -> Option<Cgroup> {
        let hierarchy = Hierarchy::find(proc).ok()?;
        let path: &CgroupPath = &app.as_ref().ok()?.1;
        hierarchy.open(path).ok().filter(|_| !path.is_root())
    };
    let Some(group) = group() else {
        return findings.note(
            CHECK,
            "no cgroup of an app to check: name an app with --pid",
        );
    };
    let files = [
        (
            "memory.swap.max",
            "apps cannot be kept out of swap (CONFIG_SWAP, swapaccount=1)",
        ),
        ("memory.high", "leaking apps cannot be throttled"),
        ("memory.reclaim", "apps cannot be squeezed (Linux 5.19)"),
        ("cgroup.freeze", "apps cannot be frozen (Linux 5.2)"),
        (
            "cgroup.kill",
            "apps are killed process by process (Linux 5.14)",
        ),
    ];
    let lacks: Vec<String> = files
        .iter()
        .filter(|(file, _)| !group.dir().contains(file))
        .map(|(file, lost)| format!("no {file}: {lost}"))
        .collect();
    match lacks.is_empty() {
        true => findings.acts(
            CHECK,
            "an app can be kept out of swap, throttled, squeezed, frozen and killed as a whole",
        ),
        false => findings.inert(
            CHECK,
            lacks.join("; "),
            "run a kernel that has these files, with the memory controller enabled for the app",
        ),
    }
}

/// Reports the known apps by class, and the apps without a cgroup of their own.
pub fn apps(machine: &Machine, findings: &mut Findings) {
    const CHECK: &str = "app classes";
    let client = Client::connect(&machine.socket, machine.patience);
    let answer = client.and_then(|mut client| client.ask(&Request::Apps { pid: None }));
    let apps = match answer {
        Ok(Response::Apps { apps, .. }) => apps,
        // Another check reports that there is no daemon.
        Ok(_) | Err(_) => return,
    };
    let of = |class: Class| apps.iter().filter(|app| app.class == class).count();
    let untouchable = apps.iter().filter(|app| app.untouchable.is_some()).count();
    findings.note(
        CHECK,
        format!(
            "{} apps: {} keep, {} normal, {} disposable; {untouchable} of them are never touched. \
             limelight class list shows them; limelight class why APP explains a class",
            apps.len(),
            of(Class::Keep),
            of(Class::Normal),
            of(Class::Disposable),
        ),
    );
    without_cgroup(&apps, findings);
}

fn without_cgroup(apps: &[AppReport], findings: &mut Findings) {
    /// Maximum number of apps listed by name; further ones are counted.
    const NAMED: usize = 5;
    let without: Vec<String> = apps
        .iter()
        .filter(|app| !app.app.own_cgroup)
        .map(|app| format::app(&app.app))
        .collect();
    if without.is_empty() {
        return;
    }
    let more = match without.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<&str> = without.iter().take(NAMED).map(String::as_str).collect();
    findings.inert(
        "apps without cgroup",
        format!(
            "{}{more}: no cgroup of their own. They can be squeezed and killed process by process, \
             but not kept out of swap or frozen, and no memory is reserved for them",
            named.join(", ")
        ),
        "start apps in units of their own: systemd-run --user --scope PROGRAM, uwsm app, or a \
         desktop that starts apps in units",
    );
}

/// Reports other software that kills, and which one acts first.
pub fn killers(proc: &Proc, root: &Path, daemon: Option<&Status>, findings: &mut Findings) {
    let found = oom_daemons::find(proc, root);
    let ours = daemon
        .and_then(|status| status.mechanisms.iter().find(|one| one.name == "swap"))
        .is_some_and(|swap| matches!(swap.state, State::Active | State::Idle));
    for killer in &found {
        let (kind, then) = match (killer.kills, ours) {
            (false, _) if killer.name == "uresourced" => ("tuner", ""),
            (false, _) => ("notifier", ""),
            (true, true) => (
                "killer",
                "; limelightd acts earlier and kills by class; it does not kill for memory that \
                 another kill is about to free",
            ),
            (true, false) => (
                "killer",
                "; limelightd does not kill, but this program does",
            ),
        };
        findings.note(
            &format!("{kind} {}", killer.name),
            format!("{killer}{then}"),
        );
    }
    if !found.iter().any(|killer| killer.kills) {
        let detail = match ours {
            true => "only limelightd, and the kernel's OOM killer after it",
            false => "only the kernel's OOM killer",
        };
        findings.note("killers", detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::findings::Verdict;
    use limelight_proto::AppStatus;

    fn report(name: &str, own_cgroup: bool) -> AppReport {
        AppReport {
            app: AppStatus {
                name: name.to_owned(),
                pid: Some(7),
                cgroup: None,
                own_cgroup,
            },
            uid: 1000,
            processes: 1,
            ..AppReport::default()
        }
    }

    /// uresourced and psi-notify run; limelightd does not.
    #[test]
    fn program_that_kills_nothing_is_not_called_a_killer() {
        let temp = tempfile::tempdir().unwrap();
        for (pid, comm) in [(8, "uresourced"), (9, "psi-notify")] {
            let directory = temp.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            let stat = format!("{pid} ({comm}) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
            std::fs::write(directory.join("stat"), stat).unwrap();
        }
        let proc = Proc::open(temp.path().join("proc").to_str().unwrap()).unwrap();
        let mut findings = Findings::default();
        killers(&proc, temp.path(), None, &mut findings);
        let checks: Vec<&str> = findings.list.iter().map(|one| one.check.as_str()).collect();
        assert_eq!(
            checks,
            ["tuner uresourced", "notifier psi-notify", "killers"]
        );
        for finding in &findings.list[..2] {
            assert!(
                !finding.detail.contains("this program does"),
                "{}",
                finding.detail
            );
        }
    }

    #[test]
    fn apps_without_a_cgroup_are_named_with_the_consequences() {
        let mut findings = Findings::default();
        without_cgroup(&[report("own", true)], &mut findings);
        assert!(findings.list.is_empty());
        let many: Vec<AppReport> = (0..7).map(|at| report(&format!("a{at}"), false)).collect();
        without_cgroup(&many, &mut findings);
        let finding = &findings.list[0];
        assert_eq!(finding.state, Verdict::Inert);
        assert!(
            finding.detail.starts_with("a0 (pid 7), "),
            "{}",
            finding.detail
        );
        assert!(finding.detail.contains("and 2 more"), "{}", finding.detail);
    }
}
