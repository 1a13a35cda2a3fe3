// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests limelight-agent with real Wayland compositors without a screen: sway, phoc, KWin and
//! mutter. The tests check the agent's messages to a daemon; none depends on timing.

use std::process::{Command, ExitCode};

mod compositor;

use compositor::{
    client, is_installed, plain_copy, wait_for, wait_until_quiet, Place, Running, Said, TestDaemon,
};
use limelight_proto::FocusTarget;

/// A test: name, required programs, function.
type Test = (&'static str, &'static [&'static str], fn());

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["client", app_id] => client::show(app_id),
        ["mutter"] => {
            mutter_in_its_own_tree();
            return ExitCode::SUCCESS;
        }
        ["systemd"] => {
            systemd_in_its_own_tree();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let tests: [Test; 7] = [
        (
            "an_app_gets_a_scope_of_its_own",
            &["sway", "dbus-daemon", "unshare"],
            an_app_gets_a_scope_of_its_own,
        ),
        (
            "sway_reports_the_focus",
            &["sway", "swaymsg"],
            sway_reports_the_focus,
        ),
        (
            "sway_reports_over_wlr_foreign_toplevel",
            &["sway", "swaymsg"],
            sway_reports_over_wlr_foreign_toplevel,
        ),
        (
            "full_screen_window_on_another_output_is_visible",
            &["sway", "swaymsg"],
            full_screen_window_on_another_output_is_visible,
        ),
        (
            "phoc_reports_the_active_window",
            &["phoc"],
            phoc_reports_the_active_window,
        ),
        (
            "kwin_calls_from_a_script",
            &["kwin_wayland", "dbus-daemon"],
            kwin_calls_from_a_script,
        ),
        (
            "mutter_marks_the_cgroup",
            &["mutter", "dbus-daemon", "unshare"],
            mutter_marks_the_cgroup,
        ),
    ];
    for (name, programs, test) in tests {
        if let Some(missing) = programs.iter().find(|program| !is_installed(program)) {
            eprintln!("SKIPPED: {name}, because {missing} is missing; scripts/deps.sh installs it");
            continue;
        }
        println!("test {name} ...");
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn focus(source: &str, pid: i32) -> Said {
    Said::Focus(source.to_owned(), FocusTarget::Pid(pid))
}

fn nothing(source: &str) -> Said {
    Said::Focus(source.to_owned(), FocusTarget::None)
}

fn source(name: &str) -> Said {
    Said::Source(Some(name.to_owned()))
}

fn start_sway(place: &Place) -> Running {
    place.start(&mut sway_command(place), "sway")
}

fn sway_command(place: &Place) -> Command {
    let configuration = place.write("sway.conf", "xwayland disable\n");
    let mut command = place.command("sway");
    command.arg("--config").arg(configuration);
    headless(&mut command);
    command
}

fn headless(command: &mut Command) {
    command
        .env("WLR_BACKENDS", "headless")
        .env("WLR_RENDERER", "pixman")
        .env("WLR_LIBINPUT_NO_DEVICES", "1");
}

fn swaymsg(place: &Place, sway: &Running, words: &str) {
    let socket = place.path(&format!("sway-ipc.{}.{}.sock", place.uid(), sway.pid()));
    let mut command = place.command("swaymsg");
    let output = command.arg("--socket").arg(socket).arg(words).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{words}: {output:?}");
}

fn sway_reports_the_focus() {
    let place = Place::new();
    let daemon = TestDaemon::serve(&place);
    let sway = start_sway(&place);
    let wayland = place.wayland();
    // The agent finds sway without an environment variable that names its socket.
    let agent = place.start_agent(&[]);
    daemon.expect(&source("sway"), &place);
    let first = place.open("one", &wayland);
    daemon.expect(&focus("sway", first.pid()), &place);
    let second = place.open("two", &wayland);
    daemon.expect(&focus("sway", second.pid()), &place);
    swaymsg(&place, &sway, &format!("[pid={}] focus", first.pid()));
    daemon.expect(&focus("sway", first.pid()), &place);
    // Switch to a workspace without windows, and back.
    swaymsg(&place, &sway, "workspace 5");
    daemon.expect(&nothing("sway"), &place);
    swaymsg(&place, &sway, "workspace 1");
    daemon.expect(&focus("sway", first.pid()), &place);
    drop(first);
    daemon.expect(&focus("sway", second.pid()), &place);
    drop(second);
    daemon.expect(&nothing("sway"), &place);
    // sway ends, and another instance starts.
    drop(sway);
    daemon.expect(&Said::Source(None), &place);
    wait_until_quiet(&agent);
    std::fs::remove_file(place.path(&wayland)).unwrap();
    let _sway = start_sway(&place);
    daemon.expect(&source("sway"), &place);
    let third = place.open("three", &place.wayland());
    daemon.expect(&focus("sway", third.pid()), &place);
}

fn sway_reports_over_wlr_foreign_toplevel() {
    let name = "wlr-foreign-toplevel";
    let place = Place::new();
    let daemon = TestDaemon::serve(&place);
    let sway = start_sway(&place);
    let wayland = place.wayland();
    let _agent = place.start_agent(&["--source", name]);
    daemon.expect(&source(name), &place);
    let first = place.open("one", &wayland);
    daemon.expect(&focus(name, first.pid()), &place);
    let second = place.open("two", &wayland);
    daemon.expect(&focus(name, second.pid()), &place);
    // Of two windows with the same app id, each is matched to its own process.
    let third = place.open("two", &wayland);
    daemon.expect(&focus(name, third.pid()), &place);
    for one in [&second, &first, &third] {
        swaymsg(&place, &sway, &format!("[pid={}] focus", one.pid()));
        daemon.expect(&focus(name, one.pid()), &place);
    }
    swaymsg(&place, &sway, "workspace 5");
    daemon.expect(&nothing(name), &place);
}

fn full_screen_window_on_another_output_is_visible() {
    for name in ["sway", "wlr-foreign-toplevel"] {
        let place = Place::new();
        let daemon = TestDaemon::serve(&place);
        let mut command = sway_command(&place);
        command.env("WLR_HEADLESS_OUTPUTS", "2");
        let sway = place.start(&mut command, "sway");
        let wayland = place.wayland();
        let _agent = place.start_agent(&["--source", name]);
        daemon.expect(&source(name), &place);
        let film = place.open("film", &wayland);
        daemon.expect(&focus(name, film.pid()), &place);
        swaymsg(&place, &sway, "fullscreen enable");
        daemon.expect(&Said::Visible(film.pid(), true), &place);
        swaymsg(&place, &sway, "focus output HEADLESS-2");
        let editor = place.open("editor", &wayland);
        daemon.expect(&focus(name, editor.pid()), &place);
        // It stays visible until it is closed; the report for a process that ends is withdrawn.
        let pid = film.pid();
        drop(film);
        daemon.expect(&Said::Visible(pid, false), &place);
    }
}

fn phoc_reports_the_active_window() {
    let name = "wlr-foreign-toplevel";
    let place = Place::new();
    let daemon = TestDaemon::serve(&place);
    let configuration = place.write("phoc.ini", "[core]\nxwayland=false\n");
    let mut command = place.command("phoc");
    command.arg("-C").arg(configuration);
    // Without a keyboard phoc has no seat, and without a seat no window is active. It therefore
    // runs in an X server, with that server's keyboard.
    let (_xvfb, display) = place.start_xvfb();
    command
        .env("DISPLAY", display)
        .env("WLR_BACKENDS", "x11")
        .env("WLR_RENDERER", "pixman");
    let _phoc = place.start(&mut command, "phoc");
    let wayland = place.wayland();
    let _agent = place.start_agent(&[]);
    daemon.expect(&source(name), &place);
    let first = place.open("one", &wayland);
    daemon.expect(&focus(name, first.pid()), &place);
    let second = place.open("two", &wayland);
    daemon.expect(&focus(name, second.pid()), &place);
    drop(second);
    daemon.expect(&focus(name, first.pid()), &place);
    drop(first);
    daemon.expect(&nothing(name), &place);
}

fn kwin_calls_from_a_script() {
    let place = Place::new();
    let daemon = TestDaemon::serve(&place);
    let _bus = place.start_bus();
    let mut command = place.command(plain_copy("kwin_wayland", &place));
    command.args([
        "--virtual",
        "--no-lockscreen",
        "--width=640",
        "--height=480",
    ]);
    let kwin = place.start(&mut command, "kwin");
    let wayland = place.wayland();
    let agent = place.start_agent(&[]);
    daemon.expect(&source("kwin"), &place);
    let first = place.open("one", &wayland);
    daemon.expect(&focus("kwin", first.pid()), &place);
    let second = place.open("two", &wayland);
    daemon.expect(&focus("kwin", second.pid()), &place);
    // An open session bus causes no wakeups.
    wait_until_quiet(&agent);
    let film = place.open("full-screen", &wayland);
    daemon.expect(&Said::Visible(film.pid(), true), &place);
    let pid = film.pid();
    drop(film);
    // KWin may activate the next window before or after it removes the closed one.
    let after = [Said::Visible(pid, false), focus("kwin", second.pid())];
    daemon.expect_all(&after, &place);
    drop(second);
    daemon.expect(&focus("kwin", first.pid()), &place);
    drop(first);
    daemon.expect(&nothing("kwin"), &place);
    drop(kwin);
    daemon.expect(&Said::Source(None), &place);
}

fn mutter_marks_the_cgroup() {
    in_its_own_tree("mutter");
}

fn an_app_gets_a_scope_of_its_own() {
    if !std::path::Path::new(SYSTEMD).exists() {
        eprintln!("SKIPPED: an_app_gets_a_scope_of_its_own, because {SYSTEMD} is missing");
        return;
    }
    in_its_own_tree("systemd");
}

/// Runs a part of this program in its own mount namespace, because mutter and systemd require
/// cgroup v2 at /sys/fs/cgroup.
fn in_its_own_tree(part: &str) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this test must be root to make cgroups");
        return;
    }
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    let status = command.arg("--mount").arg(own).arg(part).status();
    assert!(status.unwrap().success());
}

fn mount_cgroups() {
    if std::path::Path::new("/sys/fs/cgroup/cgroup.procs").exists() {
        return;
    }
    sh("umount /sys/fs/cgroup/unified 2>/dev/null; mount -t cgroup2 none /sys/fs/cgroup");
}

fn sh(command: &str) {
    let status = Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(status.success(), "{command}");
}

/// The program of the user's systemd.
const SYSTEMD: &str = "/lib/systemd/systemd";

/// Runs sway, which makes no scopes for its apps, beside the user's systemd.
fn systemd_in_its_own_tree() {
    mount_cgroups();
    // A user's systemd refuses to run unless this directory exists.
    sh("mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && mkdir /run/systemd/system");
    let place = Place::new();
    let cgroups = Cgroups::make(&place);
    let daemon = TestDaemon::serve(&place);
    let bus = place.start_bus();
    let mut command = place.command(SYSTEMD);
    command.args(["--user", "--unit=basic.target"]);
    command.env("SYSTEMD_LOG_TARGET", "console");
    let systemd = place.start_in(&command, "systemd", &cgroups.manager);
    let desk = format!("{}/desk.service", cgroups.manager);
    let sway = place.start_in(&sway_command(&place), "sway", &desk);
    let wayland = place.wayland();
    wait_for("systemd to be on the bus", || {
        let mut ask = place.command("dbus-send");
        ask.args([
            "--session",
            "--print-reply",
            "--dest=org.freedesktop.DBus",
            "/",
        ]);
        ask.arg("org.freedesktop.DBus.NameHasOwner");
        ask.arg("string:org.freedesktop.systemd1");
        let answer = ask.output().unwrap().stdout;
        String::from_utf8_lossy(&answer).contains("boolean true")
    });
    let mut agent = place.command(place.path("agent"));
    agent.args(["--stay", "--verbose", "--no-notifications", "--socket"]);
    agent.arg(place.path("control.sock"));
    let agent = place.start_in(&agent, "agent", &desk);
    daemon.expect(&source("sway"), &place);
    let window = place.open_in("one", &wayland, &desk);
    // The agent claims the window once it has been moved into a scope.
    daemon.expect(&focus("sway", window.pid()), &place);
    let own = format!("/app.slice/app-limelight-one-{}.scope", window.pid());
    let home = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.strip_prefix("0::")?.to_owned()))
    };
    let cgroup = home(window.pid()).unwrap();
    assert!(cgroup.ends_with(&own), "{cgroup}\n{}", place.logs());
    // The compositor stays in its cgroup, and so does the agent.
    for pid in [sway.pid(), agent.pid()] {
        let cgroup = home(pid).unwrap();
        assert!(cgroup.ends_with("/desk.service"), "{cgroup}");
    }
    wait_until_quiet(&agent);
    drop((window, agent, sway, systemd, bus));
}

/// Cgroups of apps, laid out like those of the user's systemd, as mutter needs them.
struct Cgroups {
    manager: String,
}

impl Cgroups {
    fn make(place: &Place) -> Cgroups {
        let uid = place.uid();
        let slice = format!("/sys/fs/cgroup/user.slice/user-{uid}.slice");
        let cgroups = Cgroups {
            manager: format!("{slice}/user@{uid}.service"),
        };
        let apps = ["one", "two"].map(|app| cgroups.path(app));
        for mut path in apps
            .into_iter()
            .chain([format!("{}/desk.service", cgroups.manager)])
        {
            std::fs::create_dir_all(&path).unwrap();
            while path.starts_with(&cgroups.manager) {
                place.give(path.clone().into());
                path.truncate(path.rfind('/').unwrap());
            }
        }
        // The cgroup is delegated, as systemd would do it.
        for file in ["cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            place.give(format!("{}/{file}", cgroups.manager).into());
        }
        cgroups
    }

    fn path(&self, app: &str) -> String {
        format!("{}/app.slice/app-{app}-1.scope", self.manager)
    }

    /// The expected claim when this app has the focus.
    fn focus(&self, app: &str) -> Said {
        let path = self.path(app).replacen("/sys/fs/cgroup", "", 1);
        Said::Focus("mutter".to_owned(), FocusTarget::Cgroup(path))
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // Kills the processes that the user's systemd started.
        let slice = self.manager.rsplit_once('/').unwrap().0;
        let _ = std::fs::write(format!("{}/cgroup.kill", self.manager), "1");
        wait_for("the cgroups to be empty", || {
            sh(&format!(
                "find {slice} -depth -type d -exec rmdir {{}} + 2>/dev/null || true"
            ));
            !std::path::Path::new(slice).exists()
        });
        sh("rmdir /sys/fs/cgroup/user.slice 2>/dev/null || true");
    }
}

fn mutter_in_its_own_tree() {
    mount_cgroups();
    let place = Place::new();
    let cgroups = Cgroups::make(&place);
    let daemon = TestDaemon::serve(&place);
    let _bus = place.start_bus();
    let mut command = place.command("mutter");
    command.args([
        "--headless",
        "--wayland",
        "--no-x11",
        "--virtual-monitor",
        "640x480",
    ]);
    let _mutter = place.start(&mut command, "mutter");
    let wayland = place.wayland();
    let _agent = place.start_agent(&[]);
    daemon.expect(&source("mutter"), &place);
    // A new window takes the focus. When it closes, the focus returns to the other window.
    let first = place.open_in("one", &wayland, &cgroups.path("one"));
    daemon.expect(&cgroups.focus("one"), &place);
    let second = place.open_in("two", &wayland, &cgroups.path("two"));
    daemon.expect(&cgroups.focus("two"), &place);
    drop(second);
    daemon.expect(&cgroups.focus("one"), &place);
    drop(first);
    daemon.expect(&nothing("mutter"), &place);
    wait_for("the apps to be gone", || {
        let procs = std::fs::read_to_string(format!("{}/cgroup.procs", cgroups.path("one")));
        procs.is_ok_and(|procs| procs.is_empty())
    });
}
