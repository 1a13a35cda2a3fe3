// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;

#[test]
fn inner_pages_of_a_run_are_not_queried_if_its_ends_agree() {
    let page = |index| FilePage {
        index,
        frame: index,
    };
    let pages: Vec<FilePage> = (0..NEAR).chain(40..44).map(page).collect();
    let mut asked = 0;
    let (reserved, others) = sorted(&pages, |page| {
        asked += 1;
        page.index < 42
    });
    assert_eq!((reserved.len(), others.len()), (NEAR as usize + 2, 2));
    // The ends of both runs, and then all four pages of the second run.
    assert_eq!(asked, 2 + 2 + 4);
}

#[test]
fn gap_between_two_near_pages_is_wanted_too() {
    let settled = BTreeSet::from([4, 200]);
    let pages = [2, 3, 6, 6 + NEAR, 7 + 2 * NEAR].into_iter();
    let wanted = with_gaps(pages, |page| settled.contains(&page));
    let mut expected = vec![2, 3, 5];
    expected.extend(6..=6 + NEAR);
    expected.push(7 + 2 * NEAR);
    assert_eq!(wanted, expected);
    assert_eq!(with_gaps(std::iter::empty(), |_| false), [0; 0]);
}

#[test]
fn pages_that_the_next_app_maps_stay_locked() {
    let own = Proc::open("/proc").unwrap();
    let own = own.process(std::process::id() as i32).unwrap();
    let member = ProcessId {
        pid: own.pid(),
        starttime: own.stat().unwrap().start_ticks,
    };
    let limit = 20 * page_bytes();
    let order = Order {
        app: AppKey::Tree(member),
        members: vec![member],
        reserved: BTreeSet::new(),
        limit,
    };
    let mut holdings = Holdings::default();
    if holdings.look("/proc", &order).is_err() || holdings.bytes == 0 {
        // Not root, or a kernel that does not report the cgroup of a page.
        return;
    }
    assert_eq!(holdings.bytes, limit);
    holdings.hand_over(limit);
    assert_eq!((holdings.bytes, holdings.files.len()), (0, 0));
    holdings.look("/proc", &order).unwrap();
    assert_eq!((holdings.bytes, holdings.former.len()), (limit, 0));
    assert!(!holdings.fresh, "pages were locked again");
    holdings.hand_over(0);
    assert!(holdings.former.values().all(|file| file.locked.is_empty()));
    let no_members = Order {
        members: Vec::new(),
        ..order
    };
    holdings.look("/proc", &no_members).unwrap();
    assert_eq!((holdings.bytes, holdings.former.len()), (0, 0));
}

#[test]
fn process_without_new_faults_is_not_scanned_again() {
    let mut child = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let process = Proc::open("/proc").unwrap();
    let process = process.process(child.id() as i32).unwrap();
    let stat = || process.stat().unwrap();
    // Until it sleeps, the child starts and faults.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut last = stat().minor_faults;
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = stat().minor_faults;
        if now == last && process.comm().unwrap() == "sleep" {
            break;
        }
        assert!(Instant::now() < deadline, "the child still faults");
        last = now;
    }
    let member = ProcessId {
        pid: process.pid(),
        starttime: stat().start_ticks,
    };
    let order = |limit| Order {
        app: AppKey::Tree(member),
        members: vec![member],
        reserved: BTreeSet::new(),
        limit,
    };
    let mut holdings = Holdings::default();
    let plenty = order(1 << 30);
    if holdings.look("/proc", &plenty).is_ok() && holdings.bytes > 0 {
        let locked = holdings.bytes;
        holdings.files.clear();
        holdings.look("/proc", &plenty).unwrap();
        assert!(holdings.files.is_empty(), "the child was scanned again");
        holdings.faults.clear();
        holdings.bytes = 0;
        holdings.look("/proc", &plenty).unwrap();
        assert_eq!(holdings.bytes, locked);
        // A limit that was reached stays reached.
        holdings.hand_over(0);
        for _ in 0..2 {
            holdings.look("/proc", &order(page_bytes())).unwrap();
            assert!(holdings.full);
            assert_eq!(holdings.bytes, page_bytes());
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn idle_scans_back_off_until_only_the_event_loop_triggers_them() {
    let mut pace = Pace::default();
    let mut pauses = Vec::new();
    while let Some(pause) = pace.pause() {
        pauses.push(pause);
        pace.looked(false);
    }
    assert_eq!(pauses.first(), Some(&SOON));
    assert!(pauses.is_sorted());
    let late = pauses.iter().filter(|pause| **pause == LATE).count();
    assert_eq!(late, LATE_LOOKS as usize);
    pace.looked(true);
    assert_eq!(pace.pause(), Some(LATE / 2));
}

/// Waits until the thread reports a state that `holds` accepts.
fn wait(pinner: &PagePinner, holds: impl Fn(&Locked) -> bool) -> Locked {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let locked = pinner.locked();
        if holds(&locked) {
            return locked;
        }
        assert!(Instant::now() < deadline, "timed out at {locked:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn program_is_locked_within_the_limit_and_unlocked() {
    let own = Proc::open("/proc").unwrap();
    let own = own.process(std::process::id() as i32).unwrap();
    let member = ProcessId {
        pid: own.pid(),
        starttime: own.stat().unwrap().start_ticks,
    };
    let order = |limit| Order {
        app: AppKey::Tree(member),
        members: vec![member],
        reserved: BTreeSet::new(),
        limit,
    };
    let pinner = PagePinner::start(Path::new("/proc")).unwrap();
    let page = page_bytes();
    pinner.ask(Some(order(3 * page)));
    let locked = wait(&pinner, |locked| {
        locked.bytes > 0 || locked.unable.is_some()
    });
    if locked.unable.is_some() {
        // Not root, or a kernel that does not report the cgroup of a page.
        return;
    }
    assert_eq!(locked.bytes, 3 * page);
    assert!(locked.full && locked.files == 1, "{locked:?}");
    pinner.ask(Some(order(20 * page)));
    wait(&pinner, |locked| locked.bytes == 20 * page);
    pinner.ask(Some(order(page)));
    wait(&pinner, |locked| locked.bytes == page);
    pinner.ask(None);
    wait(&pinner, |locked| locked.bytes == 0);
}
