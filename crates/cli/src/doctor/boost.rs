// SPDX-License-Identifier: GPL-2.0-or-later
//! Reports which knobs of `boost` act on this machine, by the policy's own rules.

use limelight_core::model::boost::{Disk, Schedulers, View};
use limelight_core::model::Home;
use limelight_core::policy::boost::{knobs, Standing};
use limelight_core::settings::BoostSettings;
use limelight_proto::Status;
use limelight_sys::cgroup::{CgroupPath, Hierarchy, WeightKnob};
use limelight_sys::dir::Dir;
use limelight_sys::proc::Proc;
use limelight_sys::sched::Cpu;
use limelight_sys::schedulers;

use super::cgroups::{AppCgroup, NO_APP};
use super::{Findings, Machine};

/// One finding for each knob.
pub fn examine(
    proc: &Proc,
    machine: &Machine,
    app: &AppCgroup,
    daemon: Option<&Status>,
    findings: &mut Findings,
) {
    // If one of these is missing, another check reports it.
    let (Ok(hierarchy), Ok(sys)) = (Hierarchy::find(proc), Dir::open(&machine.sys)) else {
        return;
    };
    let disks: Vec<Disk> = schedulers::disks(&sys, &hierarchy)
        .into_iter()
        .map(|disk| Disk {
            name: disk.name,
            scheduler: disk.scheduler,
            cost: disk.cost,
        })
        .collect();
    let io = match disks.iter().any(|disk| disk.cost) {
        true => WeightKnob::Io,
        false => WeightKnob::Bfq,
    };
    schedulers_line(&sys, proc, &disks, findings);
    // Where systemd runs, systemd decides which controllers are enabled.
    let owns_tree = !machine.root.join("run/systemd/system").exists();
    let realtime_groups = owns_tree && schedulers::realtime_groups(proc);
    if realtime_groups {
        findings.inert(
            "cpu controller handed down",
            "the kernel grants realtime by group (CONFIG_RT_GROUP_SCHED): with the cpu controller, \
             no program in a cgroup, such as a sound server, could become realtime. limelightd \
             does not enable it, and threads get nice values",
            "build the kernel without CONFIG_RT_GROUP_SCHED; or boot Linux 6.15 or later with \
             rt_group_sched=0, and enable it: echo +cpu > /sys/fs/cgroup/cgroup.subtree_control",
        );
    }
    // While no app is in the foreground, assume one with a cgroup of its own.
    let no_app = app.as_ref().is_ok_and(|(owner, _)| owner == NO_APP);
    let path = app.as_ref().ok().map(|(_, path)| path);
    let path = path.filter(|_| !no_app);
    let without = |knob: WeightKnob| {
        let found = path.and_then(|path| hierarchy.first_without(path, knob.file()));
        found.map(|path| path.as_str().to_owned())
    };
    let view = View {
        without_cpu: without(WeightKnob::Cpu),
        without_io: without(io),
        schedulers: Schedulers {
            sched_ext: schedulers::sched_ext(&sys),
            slices: Cpu::of(0).is_ok_and(|own| own.slice_ns() > 0),
            disks,
            realtime_groups,
        },
        autogrouped: schedulers::autogroup(proc)
            && !path.is_some_and(|path| hierarchy.groups_for_cpu(path)),
        ..View::default()
    };
    // The daemon knows this of the foreground app, which need not be the app that is examined.
    let front = daemon.and_then(|status| status.topmost.as_ref());
    let shared = front.is_some_and(|front| {
        let cgroup = front.app.cgroup.as_deref().and_then(CgroupPath::parse);
        !front.app.own_cgroup && cgroup.as_ref() == path
    });
    let home = |path: &str, own| Home {
        path: path.to_owned(),
        inode: 0,
        own,
        adopted: false,
    };
    let home = match (path, no_app) {
        (Some(path), _) => Some(home(path.as_str(), !path.is_root() && !shared)),
        (None, true) => Some(home("", true)),
        (None, false) => None,
    };
    let knobs = knobs(&BoostSettings::default(), &view, home.as_ref());
    for (name, standing) in knobs.all() {
        let check = format!("boost {name}");
        match standing {
            Standing::Live if no_app => {
                findings.acts(&check, "live for an app with a cgroup of its own");
            }
            Standing::Live => findings.acts(&check, "live"),
            Standing::Unused(why) => findings.note(&check, format!("not needed: {why}")),
            Standing::Inert(why) => findings.inert(&check, why, cure(name)),
        }
    }
    terminals(machine, findings);
}

/// Reports whether the tab in front of a terminal can be determined.
fn terminals(machine: &Machine, findings: &mut Findings) {
    match Dir::open(machine.root.join("dev/pts")) {
        Ok(_) => findings.acts(
            "boost in terminals",
            "the window, the shell and the command in front are boosted; builds, background jobs \
             and hidden tabs are not",
        ),
        Err(_) => findings.inert(
            "boost in terminals",
            "/dev/pts cannot be read, so every tab of a terminal counts as the tab in front; \
             builds and background jobs are still not boosted",
            "mount it: mount -t devpts devpts /dev/pts",
        ),
    }
}

/// Reports the CPU and I/O schedulers, which determine the effect of weights.
fn schedulers_line(sys: &Dir, proc: &Proc, disks: &[Disk], findings: &mut Findings) {
    let groups = match schedulers::autogroup(proc) {
        true => "each session is a group of its own (autogroup) where no cpu controller is enabled",
        false => "no autogroup",
    };
    match schedulers::sched_ext(sys) {
        Some(name) => findings.note(
            "cpu scheduler",
            format!("sched_ext: {name}, which may ignore weights and slices; {groups}"),
        ),
        None => findings.note(
            "cpu scheduler",
            format!("the kernel's own, no sched_ext; {groups}"),
        ),
    }
    let each: Vec<String> = disks
        .iter()
        .map(|disk| {
            let cost = if disk.cost { " with iocost" } else { "" };
            format!("{}: {}{cost}", disk.name, disk.scheduler)
        })
        .collect();
    match each.is_empty() {
        true => findings.note("io schedulers", "no disk has one"),
        false => findings.note("io schedulers", each.join(", ")),
    }
}

fn cure(knob: &str) -> &'static str {
    match knob {
        "cpu.weight" => {
            "start apps in cgroups of their own (systemd-run --user --scope APP) with the cpu \
             controller (CPUWeight= or Delegate=yes for the slice above); until then threads get \
             nice values"
        }
        "nice" | "autogroup" => "start apps in cgroups of their own",
        "slice" => "run Linux 6.12 or newer; the boost also works without slices",
        _ => {
            "harmless with fast disks. With slow ones: echo bfq > /sys/block/DISK/queue/scheduler, \
             and IOWeight= or Delegate=yes for the slice above the app"
        }
    }
}
