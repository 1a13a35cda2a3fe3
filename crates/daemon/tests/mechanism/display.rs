// SPDX-License-Identifier: GPL-2.0-or-later
//! The reservation for the display server, beside the topmost app's.

use std::fs;
use std::os::unix::fs::symlink;

use limelight_daemon::restore::Entry;

use crate::common::{App, Machine};

const APP: &str = "u/app-a-1.scope";
const SERVER: &str = "u/display.service";
/// A display server in a slice of its own, as in a user's session.
const IN_SLICE: &str = "u/session.slice/display.scope";
/// The display X7.
const SOCKETS: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01   900 /tmp/.X11-unix/X7
";

fn machine() -> (Machine, App, App) {
    machine_with(SERVER)
}

fn machine_with(server: &str) -> (Machine, App, App) {
    let machine = Machine::new();
    for cgroup in ["u", "u/session.slice", APP, server] {
        machine.make_cgroup(cgroup);
    }
    machine.use_memory(APP, 100);
    machine.use_memory(server, 30);
    let app = machine.spawn(APP);
    let server = machine.spawn(server);
    fs::create_dir_all(machine.path("proc/1/net")).unwrap();
    machine.write("proc/1/net/unix", SOCKETS);
    let descriptors = machine.path(&format!("proc/{}/fd", server.pid));
    fs::create_dir_all(&descriptors).unwrap();
    symlink("socket:[900]", descriptors.join("3")).unwrap();
    (machine, app, server)
}

#[test]
fn display_server_is_protected_with_the_app_and_not_after_it() {
    let (machine, app, _server) = machine();
    machine.write(&format!("cgroup/{SERVER}/memory.min"), "4096\n");
    let mut daemon = machine.start();
    assert_eq!(machine.read(&format!("cgroup/{SERVER}/memory.min")), "4096");
    daemon.focus(app.pid);
    daemon.until("the server is protected", |_| {
        machine.mib(&format!("{SERVER}/memory.min")) == 30
    });
    // A parent's reservation is shared by its children.
    let (own, both) = (
        machine.mib(&format!("{APP}/memory.min")),
        machine.mib("u/memory.min"),
    );
    assert!(both >= own + 30, "{both} MiB for {own} and 30 MiB");
    let changes = daemon.explain(app.pid).changes;
    let server = changes.iter().find(|change| change.knob.contains(SERVER));
    assert!(
        server.is_some_and(|change| change.rule.contains("display server")),
        "{changes:?}"
    );
    daemon.focus_none();
    assert_eq!(machine.read(&format!("cgroup/{SERVER}/memory.min")), "4096");
    assert_eq!(machine.read("cgroup/u/memory.min"), "0");
    daemon.focus(app.pid);
    daemon.until("the server is protected again", |_| {
        machine.mib(&format!("{SERVER}/memory.min")) == 30
    });
    daemon.stop();
    assert_eq!(machine.read(&format!("cgroup/{SERVER}/memory.min")), "4096");
    let left = machine.recorded();
    let limits = left
        .iter()
        .any(|entry| matches!(entry, Entry::Limit { .. }));
    assert!(!limits, "{left:?}");
}

/// A slice's unused protection goes to its children (`memory_recursiveprot`), so a slice that keeps
/// an earlier reservation would protect the server in full.
#[test]
fn slice_of_the_server_follows_a_smaller_reservation() {
    let (machine, app, _server) = machine_with(IN_SLICE);
    let mut daemon = machine.start();
    daemon.focus(app.pid);
    let both =
        || [IN_SLICE, "u/session.slice"].map(|path| machine.mib(&format!("{path}/memory.min")));
    daemon.until("the server is protected", |_| both() == [30, 30]);
    // The app takes all of the budget.
    machine.use_memory(APP, 900);
    daemon.until("nothing is left for the server", |_| both() == [0, 0]);
    machine.use_memory(APP, 100);
    daemon.until("the server is protected again", |_| both() == [30, 30]);
    daemon.stop();
    assert_eq!(both(), [0, 0]);
}

#[test]
fn next_daemon_restores_the_servers_value() {
    let (machine, app, _server) = machine();
    let mut daemon = machine.start();
    daemon.focus(app.pid);
    daemon.until("the server is protected", |_| {
        machine.mib(&format!("{SERVER}/memory.min")) == 30
    });
    daemon.crash();
    assert_eq!(machine.mib(&format!("{SERVER}/memory.min")), 30);
    machine.start().stop();
    assert_eq!(machine.read(&format!("cgroup/{SERVER}/memory.min")), "0");
}
