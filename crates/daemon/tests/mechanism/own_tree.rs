// SPDX-License-Identifier: GPL-2.0-or-later
//! Which controllers the daemon enables for an app without its own cgroup: those that the app's
//! weights need if the daemon owns the cgroup tree, none if a service manager owns it.

use limelight_daemon::restore::Entry;

use crate::common::{App, Machine, Running};

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
fn controllers_and_the_apps_own_cgroup_are_undone_by_a_pause() {
    let (machine, app) = machine("auto");
    let mut daemon = machine.start_with(|options| options.roots.systemd = machine.path("none"));
    daemon.focus(app.pid);
    let home = |daemon: &mut Running| daemon.status().topmost.unwrap().app.cgroup.unwrap();
    assert!(home(&mut daemon).starts_with("/limelight.slice/app-"));
    // As the kernel reports it.
    machine.write(CONTROL, "cpu memory\n");
    daemon.ask(r#"{"op":"pause"}"#);
    let written = machine.read(CONTROL);
    assert!(written.starts_with("-"), "{written}");
    machine.write(CONTROL, "memory\n");
    assert_eq!(home(&mut daemon), "/session");
    let recorded = machine.recorded();
    let controller = |entry: &Entry| matches!(entry, Entry::Controller { .. });
    assert!(!recorded.iter().any(controller), "{recorded:?}");
    daemon.ask(r#"{"op":"resume"}"#);
    assert_eq!(machine.read(CONTROL), "+cpu");
    assert!(home(&mut daemon).starts_with("/limelight.slice/app-"));
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

#[test]
fn app_returns_to_its_cgroup_without_the_limits_of_its_earlier_stay() {
    let (machine, app) = machine("auto");
    machine.write(
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/sda2 partition 524284 0 -2\n",
    );
    let (pid, start) = (app.pid, machine.start_of(&app));
    let scope = format!("limelight.slice/app-{pid}-{start}.scope");
    let limit = format!("cgroup/{scope}/memory.swap.max");
    machine.write(&limit, "max\n");
    machine.configure("");
    let mut daemon = machine.start_with(|options| options.roots.systemd = machine.path("none"));
    let place = |cgroup: &str| {
        machine.write(&format!("proc/{pid}/cgroup"), &format!("0::/{cgroup}\n"));
        machine.write(
            &format!("cgroup/{cgroup}/cgroup.procs"),
            &format!("{pid}\n"),
        );
    };
    let class = |daemon: &mut Running, class: &str| {
        daemon.ask(&format!(
            r#"{{"op":"class","pid":{pid},"class":"{class}"}}"#
        ));
    };
    daemon.focus(pid);
    place(&scope);
    class(&mut daemon, "disposable");
    daemon.until("the swap limit", |_| machine.read(&limit) == "0");
    // Another program moves the app out of the cgroup.
    machine.write(&format!("cgroup/{scope}/cgroup.procs"), "");
    place("session");
    class(&mut daemon, "keep");
    daemon.focus(pid);
    place(&scope);
    daemon.until("no swap limit", |_| machine.read(&limit) == "max");
    daemon.stop();
}
