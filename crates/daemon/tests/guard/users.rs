// SPDX-License-Identifier: GPL-2.0-or-later
//! One user takes all memory faster than scans see it.

use super::*;

/// Sets the charge of a user's slice, in MiB. Overwrites the file in place, because the guard keeps
/// it open.
fn charge(machine: &Machine, uid: u32, mib: u64) {
    let slice = machine.temp.path().join("cgroup/user.slice");
    let slice = slice.join(format!("user-{uid}.slice"));
    fs::create_dir_all(&slice).unwrap();
    let mut file = fs::OpenOptions::new();
    let file = file.write(true).create(true).truncate(false);
    let file = file.open(slice.join("memory.current")).unwrap();
    let text = format!("{:<20}\n", mib * MIB);
    std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0).unwrap();
}

/// The user who took memory since the last scan pays with an app of their own, although another
/// user's app is first in the order. When that user has no app left, no app is killed.
pub fn healthy_app_of_another_user_is_spared() {
    let machine = Machine::new(None);
    charge(&machine, 1001, 20);
    charge(&machine, 1002, 20);
    let mut all = [machine.spawn(3000), machine.spawn(3000)];
    let apps = [all[0].id, all[1].id].map(|id| app(id, None));
    let ids = all.each_ref().map(|process| [process.id]);
    let mut guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
    let classes = [Class::Disposable, Class::Normal];
    let victims = apps.iter().zip(classes).zip(&ids).zip([1001, 1002]);
    let victims = victims.map(|(((app, class), members), owner)| Victim {
        candidate: Candidate {
            owner,
            ..candidate(app, class, 3000 * 4096)
        },
        app,
        members,
    });
    assert_eq!(guard.arm(&machine.system, victims), 2);
    guard.set_users_taken(&machine.system, &[(1001, 0), (1002, 0)]);
    charge(&machine, 1002, 150);

    COUNTS.store(true, Ordering::SeqCst);
    machine.has(2);
    let report = next_report(&guard);
    COUNTS.store(false, Ordering::SeqCst);
    assert_eq!(COUNTED.load(Ordering::SeqCst), 0, "the guard took memory");
    assert_eq!(report.candidate.app, apps[1].key);
    std::thread::sleep(ARRIVAL + ARRIVAL / 2);
    assert!(guard.reports().is_empty() && all[0].is_alive());

    // A scan has found that the user's growth is over.
    guard.set_users_taken(&machine.system, &[(1001, 0), (1002, 0)]);
    assert_eq!(next_report(&guard).candidate.app, apps[0].key);
}
