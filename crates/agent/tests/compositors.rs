// SPDX-License-Identifier: GPL-2.0-or-later
//! limelight-agent against real Wayland compositors without a screen: sway, phoc, KWin and mutter.
//! What it tells a daemon is what counts; nothing here depends on how long anything takes.

use std::process::{Command, ExitCode};

mod compositor;

use compositor::{
    client, is_installed, plain_copy, wait_for, wait_until_quiet, Daemon, Place, Running, Said,
};
use limelight_core::control::FocusTarget;

/// Its name, the programs that it needs, and it.
type Test = (&'static str, &'static [&'static str], fn());

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["client", app_id] => client::show(app_id),
        ["mutter"] => {
            mutter_in_its_own_tree();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let tests: [Test; 5] = [
        (
            "sway_tells_the_focus",
            &["sway", "swaymsg"],
            sway_tells_the_focus,
        ),
        (
            "sway_may_be_asked_as_any_wlroots_compositor",
            &["sway", "swaymsg"],
            sway_may_be_asked_as_any_wlroots_compositor,
        ),
        (
            "phoc_tells_which_window_is_active",
            &["phoc"],
            phoc_tells_which_window_is_active,
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
    let configuration = place.write("sway.conf", "xwayland disable\n");
    let mut command = place.command("sway");
    command.arg("--config").arg(configuration);
    headless(&mut command);
    place.start(&mut command, "sway")
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

fn sway_tells_the_focus() {
    let place = Place::new();
    let daemon = Daemon::serve(&place);
    let sway = start_sway(&place);
    let wayland = place.wayland();
    // It is found without a variable that would name it.
    let agent = place.start_agent(&[]);
    daemon.expect(&source("sway"), &place);
    let first = place.open("one", &wayland);
    daemon.expect(&focus("sway", first.pid()), &place);
    let second = place.open("two", &wayland);
    daemon.expect(&focus("sway", second.pid()), &place);
    swaymsg(&place, &sway, &format!("[pid={}] focus", first.pid()));
    daemon.expect(&focus("sway", first.pid()), &place);
    // A workspace without windows, and back.
    swaymsg(&place, &sway, "workspace 5");
    daemon.expect(&nothing("sway"), &place);
    swaymsg(&place, &sway, "workspace 1");
    daemon.expect(&focus("sway", first.pid()), &place);
    drop(first);
    daemon.expect(&focus("sway", second.pid()), &place);
    drop(second);
    daemon.expect(&nothing("sway"), &place);
    // It ends, and another one comes.
    drop(sway);
    daemon.expect(&Said::Source(None), &place);
    wait_until_quiet(&agent);
    std::fs::remove_file(place.path(&wayland)).unwrap();
    let _sway = start_sway(&place);
    daemon.expect(&source("sway"), &place);
    let third = place.open("three", &place.wayland());
    daemon.expect(&focus("sway", third.pid()), &place);
}

fn sway_may_be_asked_as_any_wlroots_compositor() {
    let name = "wlr-foreign-toplevel";
    let place = Place::new();
    let daemon = Daemon::serve(&place);
    let sway = start_sway(&place);
    let wayland = place.wayland();
    let _agent = place.start_agent(&["--source", name]);
    daemon.expect(&source(name), &place);
    let first = place.open("one", &wayland);
    daemon.expect(&focus(name, first.pid()), &place);
    let second = place.open("two", &wayland);
    daemon.expect(&focus(name, second.pid()), &place);
    // Of two with one name each has its own window.
    let third = place.open("two", &wayland);
    daemon.expect(&focus(name, third.pid()), &place);
    for one in [&second, &first, &third] {
        swaymsg(&place, &sway, &format!("[pid={}] focus", one.pid()));
        daemon.expect(&focus(name, one.pid()), &place);
    }
    swaymsg(&place, &sway, "workspace 5");
    daemon.expect(&nothing(name), &place);
}

fn phoc_tells_which_window_is_active() {
    let name = "wlr-foreign-toplevel";
    let place = Place::new();
    let daemon = Daemon::serve(&place);
    let configuration = place.write("phoc.ini", "[core]\nxwayland=false\n");
    let mut command = place.command("phoc");
    command.arg("-C").arg(configuration);
    // Without a keyboard it has no seat, and without a seat no window is active: those of an X server
    // will do.
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
    let daemon = Daemon::serve(&place);
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
    // The session bus has been spoken to, and stays open.
    wait_until_quiet(&agent);
    drop(second);
    daemon.expect(&focus("kwin", first.pid()), &place);
    drop(first);
    daemon.expect(&nothing("kwin"), &place);
    drop(kwin);
    daemon.expect(&Said::Source(None), &place);
}

/// mutter writes below /sys/fs/cgroup, so that has to be the hierarchy; here that may take a mount of
/// our own, which nobody else sees.
fn mutter_marks_the_cgroup() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: mutter_marks_the_cgroup, because making cgroups takes root");
        return;
    }
    let own = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .arg("--mount")
        .arg(own)
        .arg("mutter")
        .status();
    assert!(status.unwrap().success());
}

/// Apps of the user's systemd, as far as mutter looks.
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
        for app in ["one", "two"] {
            let mut path = cgroups.path(app);
            std::fs::create_dir_all(&path).unwrap();
            while path.starts_with(&cgroups.manager) {
                place.give(path.clone().into());
                path.truncate(path.rfind('/').unwrap());
            }
        }
        cgroups
    }

    fn path(&self, app: &str) -> String {
        format!("{}/app.slice/app-{app}-1.scope", self.manager)
    }

    /// What is claimed when this app has the focus.
    fn focus(&self, app: &str) -> Said {
        let path = self.path(app).replacen("/sys/fs/cgroup", "", 1);
        Said::Focus("mutter".to_owned(), FocusTarget::Cgroup(path))
    }

    fn put(&self, app: &str, process: &Running) {
        let procs = format!("{}/cgroup.procs", self.path(app));
        std::fs::write(procs, process.pid().to_string()).unwrap();
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for app in ["one", "two"] {
            let mut path = self.path(app);
            while path.len() > "/sys/fs/cgroup".len() && std::fs::remove_dir(&path).is_ok() {
                path.truncate(path.rfind('/').unwrap());
            }
        }
    }
}

fn mutter_in_its_own_tree() {
    if !std::path::Path::new("/sys/fs/cgroup/cgroup.procs").exists() {
        let run = |command: &str| Command::new("sh").args(["-c", command]).status().unwrap();
        run("umount /sys/fs/cgroup/unified 2>/dev/null");
        let mounted = run("mount -t cgroup2 none /sys/fs/cgroup");
        assert!(mounted.success(), "cgroup v2 cannot be mounted");
    }
    let place = Place::new();
    let cgroups = Cgroups::make(&place);
    let daemon = Daemon::serve(&place);
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
    // A window that opens does not take the focus from another one unless its user asked for it; one
    // that closes gives it back.
    let first = place.open_paused("one", &wayland);
    cgroups.put("one", &first);
    place.resume(&first);
    daemon.expect(&cgroups.focus("one"), &place);
    let second = place.open_paused("two", &wayland);
    cgroups.put("two", &second);
    place.resume(&second);
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
