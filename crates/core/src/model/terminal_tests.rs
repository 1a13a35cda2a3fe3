// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use proptest::prelude::*;

const APP: AppKey = AppKey::Cgroup { inode: 5 };

fn id(pid: i32) -> ProcessId {
    ProcessId {
        pid,
        starttime: pid as u64,
    }
}

/// A process outside all tabs.
fn plain(pid: i32, parent: i32) -> Member {
    Member {
        process: id(pid),
        parent,
        group: 10,
        session: 10,
        tty: None,
        tty_group: -1,
        cpu_ticks: 0,
        nice: 0,
        runnable: false,
    }
}

/// A process of the tab `tty`, whose foreground group is `tty_group`.
fn tab(
    pid: i32,
    parent: i32,
    (group, session): (i32, i32),
    (tty, tty_group): (u32, i32),
) -> Member {
    Member {
        group,
        session,
        tty: Some(tty),
        tty_group,
        ..plain(pid, parent)
    }
}

/// A terminal emulator (10) with a shell (20) that runs make (30), whose compiler is 32, and
/// another tab with a shell (40) and a build in the background (50).
fn building() -> Vec<Member> {
    vec![
        plain(10, 1),
        plain(11, 10),
        tab(20, 10, (20, 20), (0, 30)),
        tab(30, 20, (30, 20), (0, 30)),
        tab(31, 30, (30, 20), (0, 30)),
        tab(32, 31, (30, 20), (0, 30)),
        tab(40, 10, (40, 40), (1, 40)),
        tab(50, 40, (50, 40), (1, 40)),
        tab(51, 50, (50, 40), (1, 40)),
    ]
}

fn parts(members: &[Member], focused: i32, read: &[(u32, i64)]) -> Vec<(i32, Part)> {
    let read = read.iter().copied().collect();
    let parts = split(members, Some(id(focused)), &read).unwrap_or_default();
    parts.into_iter().map(|(id, part)| (id.pid, part)).collect()
}

#[test]
fn compilers_and_other_tabs_are_not_in_front() {
    use Part::*;
    let expected = [
        (10, Window),
        (11, Window),
        (20, Shell),
        (30, Command),
        (31, Job),
        (32, Job),
        (40, OtherTab),
        (50, OtherTab),
        (51, OtherTab),
    ];
    assert_eq!(parts(&building(), 10, &[(0, 1600), (1, 800)]), expected);
    // The user has typed into the other tab since.
    let moved = parts(&building(), 10, &[(0, 1600), (1, 1700)]);
    let part = |pid| moved.iter().find(|(one, _)| *one == pid).unwrap().1;
    assert_eq!(
        (part(20), part(30), part(32)),
        (OtherTab, OtherTab, OtherTab)
    );
    assert_eq!((part(40), part(50), part(51)), (Shell, Job, Job));
}

#[test]
fn tabs_read_within_the_same_grain_or_without_a_time_are_all_in_front() {
    for read in [&[(0, 1601), (1, 1607)][..], &[(0, 1600)], &[]] {
        let parts = parts(&building(), 10, read);
        assert!(parts.contains(&(20, Part::Shell)), "{read:?}");
        assert!(parts.contains(&(40, Part::Shell)), "{read:?}");
    }
}

#[test]
fn every_process_of_a_pipeline_is_in_front_even_without_its_leader() {
    // `find | sort | fzf`, in which find (30) has ended.
    let members = [
        plain(10, 1),
        tab(20, 10, (20, 20), (0, 30)),
        tab(31, 20, (30, 20), (0, 30)),
        tab(32, 20, (30, 20), (0, 30)),
    ];
    let parts = parts(&members, 10, &[]);
    assert!(parts.contains(&(31, Part::Command)) && parts.contains(&(32, Part::Command)));
}

#[test]
fn command_of_a_nested_shell_is_in_front() {
    let members = [
        plain(10, 1),
        tab(20, 10, (20, 20), (0, 40)),
        tab(30, 20, (30, 20), (0, 40)),
        tab(40, 30, (40, 20), (0, 40)),
        tab(41, 40, (40, 20), (0, 40)),
    ];
    let parts = parts(&members, 10, &[]);
    assert!(parts.contains(&(40, Part::Command)));
    assert!(parts.contains(&(30, Part::Job)) && parts.contains(&(41, Part::Job)));
}

#[test]
fn app_without_a_tab_of_its_own_is_not_divided() {
    // The leader of the session is the shell of a terminal that is another app.
    let started = [
        tab(30, 20, (30, 20), (0, 30)),
        tab(31, 30, (30, 20), (0, 30)),
    ];
    assert_eq!(parts(&started, 30, &[]), []);
    assert_eq!(parts(&[plain(10, 1), plain(11, 10)], 10, &[]), []);
}

#[test]
fn program_with_a_window_that_was_started_in_a_tab_is_in_front() {
    let mut members = building();
    // `viewer &` in the first tab, with a child.
    members.push(tab(60, 20, (60, 20), (0, 30)));
    members.push(tab(61, 60, (60, 20), (0, 30)));
    let focused = parts(&members, 60, &[]);
    assert!(focused.contains(&(60, Part::Window)) && focused.contains(&(61, Part::Window)));
    assert!(focused.contains(&(10, Part::Window)) && focused.contains(&(32, Part::Job)));
    let unfocused = parts(&members, 10, &[]);
    assert!(unfocused.contains(&(60, Part::Job)) && unfocused.contains(&(61, Part::Job)));
}

#[test]
fn daemon_that_left_its_tab_is_a_job() {
    let mut members = building();
    let session = |member: Member, session| Member { session, ..member };
    members.push(session(plain(70, 1), 70));
    members.push(session(plain(71, 30), 71));
    let parts = parts(&members, 10, &[]);
    assert!(parts.contains(&(70, Part::Job)) && parts.contains(&(71, Part::Job)));
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn observe(terminals: &mut Terminals, members: &[Member], ms: u64) -> Terminal {
    let seen = terminals.observe(APP, members, Some(id(10)), &BTreeMap::new(), at(ms));
    seen.unwrap()
}

#[test]
fn command_that_computes_leaves_the_front_until_it_rests() {
    let mut terminals = Terminals::default();
    let mut members = building();
    let mut step = |ticks, ms| {
        members[3].cpu_ticks = ticks;
        observe(&mut terminals, &members, ms).part(id(30))
    };
    assert_eq!(step(0, 0), Some(Part::Command));
    // 19 of 400 ms, then 30 of 60 ticks.
    assert_eq!(step(19, 400), Some(Part::Command));
    assert_eq!(step(40, 600), Some(Part::Command), "too early to measure");
    assert_eq!(step(49, 1000), Some(Part::Busy));
    assert_eq!(step(49, 10_900), Some(Part::Busy));
    assert_eq!(step(49, 11_000), Some(Part::Command));
}

#[test]
fn window_never_counts_as_busy() {
    let mut terminals = Terminals::default();
    let mut members = building();
    for ms in [0, 500, 1000] {
        members[0].cpu_ticks = ms;
        assert_eq!(
            observe(&mut terminals, &members, ms).part(id(10)),
            Some(Part::Window)
        );
    }
}

#[test]
fn runnable_job_counts_for_a_while() {
    let mut terminals = Terminals::default();
    let mut members = building();
    members[3].runnable = true;
    assert!(
        !observe(&mut terminals, &members, 0).job_runs,
        "make itself"
    );
    members[5].runnable = true;
    assert!(observe(&mut terminals, &members, 500).job_runs);
    members[5].runnable = false;
    assert!(observe(&mut terminals, &members, 5499).job_runs);
    assert!(!observe(&mut terminals, &members, 5500).job_runs);
}

#[test]
fn job_with_a_negative_nice_value_is_listed() {
    let mut members = building();
    for member in &mut members {
        member.nice = -20;
    }
    let terminal = observe(&mut Terminals::default(), &members[..6], 0);
    assert_eq!(terminal.lowered, [id(31), id(32)]);
}

#[test]
fn another_app_starts_anew() {
    let mut terminals = Terminals::default();
    let mut members = building();
    members[5].runnable = true;
    assert!(observe(&mut terminals, &members, 0).job_runs);
    members[5].runnable = false;
    let other = AppKey::Cgroup { inode: 6 };
    let seen = terminals.observe(other, &members, None, &BTreeMap::new(), at(1));
    assert!(!seen.unwrap().job_runs);
}

prop_compose! {
    fn any_member()(
        (pid, parent, group, session) in (1..20i32, 0..20i32, 0..20i32, 0..20i32),
        tty in prop::option::of(0..3u32),
        tty_group in -1..20i32,
        runnable: bool,
    ) -> Member {
        Member { group, session, tty, tty_group, runnable, ..plain(pid, parent) }
    }
}

proptest! {
    /// Whatever the relations: each process has one part, one tab is in front, and a process is in
    /// front of a tab only as its leader or in the terminal's foreground group.
    #[test]
    fn any_relations_give_each_process_one_part(
        members in prop::collection::vec(any_member(), 0..20),
        focused in prop::option::of(1..20i32),
        read in prop::collection::btree_map(0..3u32, 0..100i64, 0..3),
    ) {
        let by_pid: BTreeMap<i32, Member> = members.iter().map(|one| (one.process.pid, *one)).collect();
        let members: Vec<Member> = by_pid.values().copied().collect();
        if let Some(parts) = split(&members, focused.map(id), &read) {
            prop_assert_eq!(parts.len(), members.len());
            for (process, part) in &parts {
                let one = by_pid[&process.pid];
                match part {
                    Part::Shell => prop_assert_eq!(one.session, one.process.pid),
                    Part::Command => prop_assert_eq!(one.group, one.tty_group),
                    _ => {}
                }
            }
            let windowed = focused.is_some_and(|pid| by_pid.contains_key(&pid));
            let front = parts.iter().any(|(_, part)| part.is_front());
            prop_assert!(front || windowed, "{:?}", parts);
        }
    }
}
