// SPDX-License-Identifier: GPL-2.0-or-later
//! Limelight on complete Debian systems: its package on a fresh system with systemd, the package of
//! our kernel, and a system with OpenRC.

use limelight_apps::scenario::{Desktop, Package};

use super::terms::*;

const TASK: &str = "life";
/// Longest time from a focus change until protection and boost have moved, in microseconds.
const FOCUS_US: f64 = 100_000.0;
/// Dependencies of the package that Debian's minimal system does not include.
pub const BASE: [&str; 4] = ["systemd", "dbus", "libpam-systemd", "passwd"];
/// The apps in a user's session, and a font for them.
const APPS: [&str; 4] = ["foot", "galculator", "mousepad", "fonts-dejavu-core"];

/// A machine with systemd, and with Limelight's package and its successor to install.
fn machine(memory_mib: u32, packages: &[&'static str]) -> MachineSize {
    MachineSize {
        memory_mib,
        rootfs_packages: [&BASE[..], packages].concat(),
        init: Init::Systemd,
        packaged: true,
        ..MachineSize::default()
    }
}

/// The Debian release of a variant: bookworm has systemd 252, trixie has 257.
fn suite(variant: &Variant) -> &'static str {
    match variant.load.as_str() {
        "debian-13" => "trixie",
        _ => "bookworm",
    }
}

fn tasks(desktop: Option<Desktop>) -> Vec<Task> {
    vec![Task::new(TASK, Work::Package(Package { desktop }))]
}

/// The package without a desktop: root names the foreground app. It runs once, because a complete
/// Debian takes minutes to boot on an emulated CPU and repetitions add nothing to pass-or-fail
/// checks.
pub const PLAIN: Spec = Spec {
    name: "package",
    about: "the Debian package installed, used, upgraded, removed and purged",
    variants: &[(
        &[Lru::Mglru],
        &[SwapKind::None],
        &["debian-12", "debian-13"],
    )],
    arms: &[ON_DEBIAN],
    machine: |variant| MachineSize {
        suite: suite(variant),
        ..machine(512, &[])
    },
    tasks: |_, _| tasks(None),
    time_limit_s: 600,
    metrics: &[&[
        Metric::lower("focus_protect_us", "protection moved"),
        Metric::lower("focus_protect_p95_us", "protection, 19 of 20 times"),
        Metric::lower("focus_protect_max_us", "protection, at the latest"),
        Metric::lower("focus_boost_us", "boost moved"),
        Metric::lower("focus_boost_p95_us", "boost, 19 of 20 times"),
        Metric::lower("focus_boost_max_us", "boost, at the latest"),
        Metric::lower("daemon_own_kib", "daemon's memory"),
        Metric::lower("agent_own_kib", "agent's memory"),
        Metric::lower("daemon_switches_per_s", "daemon's wake-ups a second"),
        Metric::lower("agent_switches_per_s", "agent's wake-ups a second"),
    ]],
    repetitions: 1,
    ..Spec::BENCHMARK
};

/// The package beside a user's session: sway without a display, and three apps. In exact mode,
/// because in fast mode focus latency depends on the host.
pub const DESKTOP: Spec = Spec {
    name: "package-desktop",
    about: "the same beside a user's session with sway and three apps",
    // User units are started through the session bus, which dbus-user-session provides.
    machine: |variant| MachineSize {
        suite: suite(variant),
        ..machine(1024, &[&["dbus-user-session", "sway"], &APPS[..]].concat())
    },
    tasks: |_, _| tasks(Some(Desktop::Sway)),
    must_hold: follows_the_focus,
    mode: Mode::Exact,
    ..PLAIN
};

/// The package beside a user's session with GNOME Shell, which starts the apps as from its overview.
/// In fast mode, because GNOME Shell takes many instructions; so focus latency is not judged.
pub const GNOME: Spec = Spec {
    name: "package-gnome",
    about: "the same beside a user's session with GNOME Shell and three apps",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["debian-13"])],
    machine: |variant| MachineSize {
        suite: suite(variant),
        ..machine(
            2048,
            &[&["dbus-user-session", "gnome-shell"], &APPS[..]].concat(),
        )
    },
    kind: Kind::Named,
    tasks: |_, _| tasks(Some(Desktop::Gnome)),
    time_limit_s: 1800,
    ..PLAIN
};

/// Verdicts that protection and boost follow the focus in time.
fn follows_the_focus(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_variant(aggregates, TASK, |seen| {
        [
            ("focus_protect_max_us", "protection"),
            ("focus_boost_max_us", "boost"),
        ]
        .map(|(name, what)| {
            let most = seen.median(ON_DEBIAN, name).unwrap_or(f64::INFINITY);
            Verdict::new(
                format!("{what} follows the focus within 100 ms"),
                most < FOCUS_US,
                format!("{:.1} ms at the latest", most / 1000.0),
            )
        })
    })
}

/// The kernel package of `make kernel-deb`. The machine boots the package's kernel with its
/// modules. The guest installs and removes the package, together with Limelight's own package.
pub const KERNEL: Spec = Spec {
    name: "package-kernel",
    about: "the Debian package of our kernel booted, installed, used and removed",
    arms: &[ArmOn::new(Arm::Limelight, Kernel::Packaged)],
    // The kernel package's installation needs Debian's tools for creating an initramfs.
    machine: |_| machine(768, &["initramfs-tools", "zstd"]),
    tasks: |_, _| vec![Task::new(TASK, Work::KernelPackage)],
    time_limit_s: 600,
    ..Spec::NAMED
};

/// A Debian without systemd: sysvinit, OpenRC and elogind, with the daemon as an OpenRC service and
/// the agent in a session's autostart.
pub const OPENRC: Spec = Spec {
    name: "openrc",
    about: "a user's session with sway and three apps where OpenRC runs the daemon",
    arms: &[ON_DEBIAN],
    machine: |_| {
        let base = [
            "sysvinit-core",
            "openrc",
            "dbus",
            "libpam-elogind",
            "dex",
            "sway",
        ];
        MachineSize {
            memory_mib: 1024,
            rootfs_packages: [&base[..], &APPS[..]].concat(),
            init: Init::Openrc,
            ..MachineSize::default()
        }
    },
    tasks: |_, _| vec![Task::new(TASK, Work::Openrc)],
    time_limit_s: 600,
    repetitions: 1,
    ..Spec::BENCHMARK
};
