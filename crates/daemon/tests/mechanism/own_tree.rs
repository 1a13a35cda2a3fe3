// SPDX-License-Identifier: GPL-2.0-or-later
//! Which controllers the daemon enables for an app without its own cgroup: those that the app's
//! weights need if the daemon owns the cgroup tree, none if a service manager owns it.

use crate::common::{App, Machine};

const CONTROL: &str = "cgroup/cgroup.subtree_control";

/// A machine on which all apps share the session's cgroup. The app's future cgroup already exists
/// with its files: in a tree of plain files, the daemon would create an empty directory.
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
    let (pid, start) = (app.pid, machine.start_of(&app));
    machine.make_cgroup(&format!("limelight.slice/app-{pid}-{start}.scope"));
    (machine, app)
}

#[test]
fn cpu_controller_is_enabled_and_recorded_in_our_own_tree() {
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
fn cpu_controller_is_not_enabled_with_realtime_group_scheduling() {
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
fn cpu_controller_is_not_enabled_in_systemds_tree() {
    let (machine, app) = machine("always");
    let mut daemon = machine.start();
    daemon.focus(app.pid);
    assert_eq!(machine.read(CONTROL), "memory");
    daemon.stop();
}
