// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::system::Roots;
use limelight_core::model::{AppKey, Home, ProcessId};
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command};

const USER: u32 = 12_345;
const STRANGER: u32 = 12_346;

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sleeper {
    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

/// A system with a `/proc` that the test wrote for real processes. `None` if the test does not run
/// as root, which alone can give files to other users; the skip is printed.
fn fixture() -> Option<(tempfile::TempDir, System)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: giving files to other users requires root");
        return None;
    }
    let temp = tempfile::tempdir().unwrap();
    for directory in ["proc", "sys", "cgroup", "sessions"] {
        fs::create_dir(temp.path().join(directory)).unwrap();
    }
    let roots = Roots {
        sessions: temp.path().join("sessions"),
        ..Roots::below(temp.path())
    };
    let system = System::open(roots).unwrap();
    Some((temp, system))
}

fn process(root: &Path, owner: u32, real: u32, effective: u32) -> Sleeper {
    let child = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = child.pid();
    let directory = root.join(format!("proc/{pid}"));
    fs::create_dir(&directory).unwrap();
    let stat = format!("{pid} (x) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 700 0 0\n");
    fs::write(directory.join("stat"), stat).unwrap();
    let status = format!("Tgid:\t{pid}\nUid:\t{real}\t{effective}\t{effective}\t{effective}\n");
    fs::write(directory.join("status"), status).unwrap();
    chown(&directory, Some(owner), None).unwrap();
    child
}

fn session(root: &Path, name: &str, uid: u32, active: bool) {
    let text = format!(
        "# private\nUID={uid}\nUSER=x\nACTIVE={}\nSTATE=online\nSEAT=seat0\nCLASS=user\n",
        u8::from(active)
    );
    fs::write(root.join("sessions").join(name), text).unwrap();
}

#[test]
fn process_is_claimed_by_its_owner_or_by_root() {
    let Some((temp, system)) = fixture() else {
        return;
    };
    let own = process(temp.path(), USER, USER, USER);
    assert_eq!(owns_process(&system, USER, own.pid()), Ok(()));
    assert_eq!(owns_process(&system, 0, own.pid()), Ok(()));
    let refusal = owns_process(&system, STRANGER, own.pid()).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::NotAllowed);
    assert!(refusal.message.contains(&own.pid().to_string()));
}

#[test]
fn set_user_id_program_does_not_belong_to_its_starter() {
    let Some((temp, system)) = fixture() else {
        return;
    };
    for (owner, real, effective) in [
        (0, USER, 0),
        (0, USER, USER),
        (USER, 0, USER),
        (USER, USER, 0),
    ] {
        let program = process(temp.path(), owner, real, effective);
        let refusal = owns_process(&system, USER, program.pid()).unwrap_err();
        assert_eq!(
            refusal.code,
            ErrorCode::NotAllowed,
            "owner {owner}, real uid {real}, effective uid {effective}"
        );
    }
}

#[test]
fn ended_process_is_not_found() {
    let Some((temp, system)) = fixture() else {
        return;
    };
    let mut own = process(temp.path(), USER, USER, USER);
    own.0.kill().unwrap();
    own.0.wait().unwrap();
    let refusal = owns_process(&system, USER, own.pid()).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::NotFound);
}

fn speaker(uid: u32) -> Speaker {
    Speaker { uid, member: false }
}

#[test]
fn only_the_active_session_may_claim_where_logind_reports_it() {
    let Some((temp, system)) = fixture() else {
        return;
    };
    let access = Access::default();
    let allowed = |speaker| may_speak(&system, &access, speaker).is_ok();
    let member = |uid| Speaker { uid, member: true };
    assert!(!allowed(speaker(USER)), "no logind, no display, no group");
    assert!(allowed(member(USER)) && allowed(speaker(0)));
    session(temp.path(), "1", USER, true);
    session(temp.path(), "2", STRANGER, false);
    assert!(allowed(speaker(USER)));
    let refused = may_speak(&system, &access, member(STRANGER)).unwrap_err();
    assert_eq!(
        refused.code,
        ErrorCode::NotAllowed,
        "a group is not a session"
    );
    assert!(allowed(speaker(0)));
    session(temp.path(), "1", USER, false);
    assert!(!allowed(speaker(USER)), "another session is on the screen");
}

#[test]
fn root_program_counts_as_started_by_a_person_only_in_a_root_session() {
    let Some((temp, system)) = fixture() else {
        return;
    };
    let access = Access::default();
    let allowed = |uid| may_start_apps(&system, &access, speaker(uid)).is_ok();
    assert!(allowed(0) && !allowed(USER), "no logind");
    session(temp.path(), "2", USER, true);
    assert!(!allowed(0), "a service or a cron job");
    assert!(allowed(USER) && !allowed(STRANGER));
    assert!(may_be_claimed(&system, 0).is_ok());
    session(temp.path(), "3", 0, true);
    assert!(allowed(0));
}

#[test]
fn cgroup_with_another_users_process_is_not_used_for_a_claim() {
    let Some((temp, system)) = fixture() else {
        return;
    };
    let own = process(temp.path(), USER, USER, USER);
    let other = process(temp.path(), STRANGER, STRANGER, STRANGER);
    let group = temp.path().join("cgroup/app-x-1.scope");
    fs::create_dir(&group).unwrap();
    let procs = |pids: &[i32]| {
        let text: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        fs::write(group.join("cgroup.procs"), text).unwrap();
    };
    let id = ProcessId {
        pid: own.pid(),
        starttime: 700,
    };
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&group).unwrap());
    let app = App {
        key: AppKey::Cgroup { inode },
        name: "x".into(),
        process: Some(id),
        home: Some(Home {
            path: "/app-x-1.scope".into(),
            inode,
            own: true,
            adopted: false,
        }),
    };
    procs(&[own.pid()]);
    assert_eq!(confine(&system, USER, app.clone()), app);
    procs(&[own.pid(), other.pid()]);
    let confined = confine(&system, USER, app.clone());
    assert_eq!(confined.key, AppKey::Tree(id));
    assert_eq!(confined.own_home(), None);
    assert_eq!(confine(&system, 0, app.clone()), app, "root may");
}
