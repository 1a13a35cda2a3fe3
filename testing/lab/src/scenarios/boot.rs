// SPDX-License-Identifier: GPL-2.0-or-later
//! Scenarios that only boot: Debian's kernel and ours, and many boots with the daemon.

use super::terms::*;

/// Debian's kernel and ours boot, run a program, and report back: the lab's own end-to-end test.
pub const BOOT: Spec = Spec {
    name: "boot",
    about: "Debian's kernel and ours boot, mount their disks, run a program and power off",
    variants: &[
        (&[Lru::TwoList], &[SwapKind::Disk], &["plain"]),
        (&[Lru::Mglru], &[SwapKind::Zram], &["plain"]),
    ],
    arms: &[STOCK, STOCK_OURS],
    machine: |_| MachineSize {
        data_mib: 64,
        swap_mib: 64,
        ..MachineSize::default()
    },
    tasks: |_, _| {
        let argv = ["/bin/busybox", "true"].map(String::from).to_vec();
        vec![Task::new("command", Work::Command { argv })]
    },
    time_limit_s: 60,
    must_hold: |aggregates| {
        Seen::each_variant(aggregates, "command", |seen| {
            let verdict = |arm| {
                let exit = seen.median(arm, "exit_code");
                Verdict::new(
                    format!("{} {arm}: a program runs to its end", seen.variant),
                    exit == Some(0.0),
                    format!("exit code {exit:?}"),
                )
            };
            let arms = aggregates.arms(seen.variant);
            arms.into_iter().map(verdict).collect::<Vec<_>>()
        })
    },
    ..Spec::TEST
};

/// Number of daemon starts per boot.
const TIMES: u32 = 2;

/// Each repetition is a boot, in which limelightd starts and stops. Many boots expose rare
/// failures. A failed boot fails the run; the verdict covers the boots that reported.
pub const STARTS: Spec = Spec {
    name: "starts",
    about: "a machine boots, limelightd starts and stops twice; each repetition is a boot of its \
            own",
    tasks: |_, _| vec![Task::new("daemon", Work::DaemonStarts { times: TIMES })],
    time_limit_s: 60,
    must_hold: |aggregates| {
        Seen::each_arm(aggregates, "daemon", |seen, arm| {
            let boots = seen.samples(arm, "starts");
            Some(Verdict::new(
                format!("{}: on {arm} the daemon starts in every boot", seen.variant),
                !boots.is_empty() && boots.iter().all(|starts| *starts == f64::from(TIMES)),
                format!("{} boots", boots.len()),
            ))
        })
    },
    repetitions_per_boot: 1,
    ..Spec::NAMED
};
