// SPDX-License-Identifier: GPL-2.0-or-later
//! One user makes thousands of cgroups: scans need few descriptors and still find the other users'
//! apps and services. This is a separate test program, because the descriptor limit applies to the
//! whole process.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use limelight_core::model::class::Classes;
use limelight_daemon::sources::apps::AppsSource;
use limelight_daemon::sources::services;
use limelight_daemon::system::{Roots, System};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Descriptor limit during the scans: far below the number of cgroups.
const DESCRIPTORS: u64 = 128;

const MIB: u64 = 1 << 20;
const FLOOD: &str = "user.slice/user-1001.slice/user@1001.service/app.slice";
const APP: &str = "user.slice/user-1000.slice/user@1000.service/app.slice/app-new-1.scope";

fn group(root: &Path, path: &str, pids: &str, mib: u64) {
    let directory = root.join("cgroup").join(path);
    fs::create_dir_all(&directory).unwrap();
    let bytes = mib * MIB;
    fs::write(directory.join("cgroup.procs"), pids).unwrap();
    fs::write(directory.join("memory.current"), format!("{bytes}\n")).unwrap();
    fs::write(directory.join("memory.stat"), format!("anon {bytes}\n")).unwrap();
}

fn process(root: &Path, pid: i32, uid: u32) {
    let directory = root.join(format!("proc/{pid}"));
    fs::create_dir_all(&directory).unwrap();
    let stat = format!("{pid} (app) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {pid}00 0 0\n");
    fs::write(directory.join("stat"), stat).unwrap();
    let status = format!("Tgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
    fs::write(directory.join("status"), status).unwrap();
    fs::write(directory.join("cmdline"), "app\0").unwrap();
    symlink("/bin/sh", directory.join("exe")).unwrap();
}

#[test]
fn ten_thousand_cgroups_of_one_user_do_not_hide_other_users() {
    let memory = Path::new("/dev/shm");
    let temp = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let temp = temp.unwrap();
    let root = temp.path();
    for directory in ["proc", "sys", "cgroup"] {
        fs::create_dir(root.join(directory)).unwrap();
    }
    process(root, 20, 1001);
    process(root, 30, 1000);
    // Half of the cgroups are inside the user's app, whose processes may be in any of them.
    for parent in ["app-flood-1.scope", ""] {
        let parent = root.join("cgroup").join(FLOOD).join(parent);
        for number in 0..5000 {
            fs::create_dir_all(parent.join(format!("g{number}"))).unwrap();
        }
    }
    group(root, &format!("{FLOOD}/app-flood-1.scope"), "20\n", 1);
    for slice in ["user-1000.slice", "user-1001.slice"] {
        group(root, &format!("user.slice/{slice}"), "", 100);
    }
    group(root, "user.slice", "", 200);
    group(root, APP, "30\n", 10);
    let build = "user.slice/user-1000.slice/build.service";
    group(root, build, "", 50);

    let roots = Roots {
        proc: root.join("proc"),
        sys: root.join("sys"),
        cgroup: Some(root.join("cgroup")),
        data: Vec::new(),
        ..Roots::default()
    };
    let system = System::open(roots).unwrap();
    let before = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(DESCRIPTORS),
        ..before
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let mut source = AppsSource::new(&system, Classes::default());
    let found = source.look(&system, &[], &[], Duration::from_secs(1));
    let occupied = [format!("/{APP}"), format!("/{FLOOD}/app-flood-1.scope")];
    let occupied: Vec<&str> = occupied.iter().map(String::as_str).collect();
    let services = services::find(&system, &occupied, 256 * MIB);
    setrlimit(Resource::Nofile, before).unwrap();

    let found = found.unwrap();
    let has = |pid| {
        found
            .iter()
            .any(|app| app.members.iter().any(|id| id.pid == pid))
    };
    assert!(has(30), "{found:?}");
    let names: Vec<&str> = services.iter().map(|one| one.app.name.as_str()).collect();
    assert_eq!(names, ["build.service"]);
}
