// SPDX-License-Identifier: GPL-2.0-or-later
//! Which controllers are handed down for an app that has no cgroup of its own: in a tree of ours what its weights need,
//! in a service manager's nothing that was not before.

use crate::common::{App, Machine};

const CONTROL: &str = "cgroup/cgroup.subtree_control";

/// A machine on which all apps share the session's cgroup, with the cgroup that one of them will get: a directory
/// that is made in a tree of plain files has no files in it.
fn machine(adopt: &str) -> (Machine, App) {
    let machine = Machine::new();
    let state = machine.path("state/coldstart");
    machine.write(
        "limelight.toml",
        &format!(
            "[protect]\nadopt = \"{adopt}\"\n[readahead]\ndirectory = \"{}\"\n",
            state.display()
        ),
    );
    machine.make_cgroup("session");
    let app = machine.spawn("session");
    let _other = machine.spawn("session");
    machine.make_cgroup("limelight.slice");
    machine.make_cgroup(&format!("limelight.slice/app-{0}-{0}00.scope", app.pid));
    (machine, app)
}

#[test]
fn in_a_tree_of_ours_the_cpu_controller_is_handed_down_and_recorded() {
    let (machine, app) = machine("auto");
    let mut daemon = machine.start_with(|options| options.roots.systemd = machine.path("none"));
    daemon.focus(app.pid);
    let written = [
        machine.read(CONTROL),
        machine.read("cgroup/limelight.slice/cgroup.subtree_control"),
    ];
    assert_eq!(written, ["+cpu", "+cpu"]);
    let recorded: Vec<String> = machine.recorded().iter().map(ToString::to_string).collect();
    for entry in [
        "/cgroup.subtree_control without cpu",
        "/limelight.slice/cgroup.subtree_control without cpu",
    ] {
        assert!(recorded.iter().any(|known| known == entry), "{recorded:?}");
    }
    daemon.stop();
}

#[test]
fn where_realtime_is_granted_by_group_it_is_not() {
    let (machine, app) = machine("auto");
    machine.write(
        "proc/kallsyms",
        "0000000000000000 T sched_group_set_rt_runtime\n",
    );
    let mut daemon = machine.start_with(|options| options.roots.systemd = machine.path("none"));
    daemon.focus(app.pid);
    assert_eq!(machine.read(CONTROL), "memory");
    let notes = daemon.explain(app.pid).notes;
    let told = |note: &String| note.contains("CONFIG_RT_GROUP_SCHED");
    assert!(notes.iter().any(told), "{notes:?}");
    daemon.stop();
}

#[test]
fn in_systemd_s_tree_it_is_not() {
    let (machine, app) = machine("always");
    let mut daemon = machine.start();
    daemon.focus(app.pid);
    assert_eq!(machine.read(CONTROL), "memory");
    daemon.stop();
}
