// SPDX-License-Identifier: GPL-2.0-or-later
//! The guard on a machine of plain files with real processes: which processes it kills and when,
//! and that it allocates nothing. This is one test, because the allocations of the whole program
//! are counted.

#[path = "guard/grace.rs"]
mod grace;
#[path = "guard/users.rs"]
mod users;

use std::alloc::{GlobalAlloc, Layout, System as SystemAllocator};
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use limelight_core::model::class::Class;
use limelight_core::model::shortage::{Level, Thresholds};
use limelight_core::model::{App, AppKey, Home, ProcessId};
use limelight_core::policy::swap::order::Candidate;
use limelight_daemon::mechanisms::swap::guard::{Guard, Report, Victim};
use limelight_daemon::reconcile::gate::Gate;
use limelight_daemon::system::{Roots, System};
use limelight_sys::cgroup::{Cgroup, CgroupPath, Hierarchy};
use limelight_sys::proc::Proc;

/// While set, allocations of threads other than the test's own are counted.
static COUNTS: AtomicBool = AtomicBool::new(false);
static COUNTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn count() {
    if COUNTS.load(Ordering::Relaxed) && !OWN.with(Cell::get) {
        COUNTED.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: all calls are passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { SystemAllocator.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { SystemAllocator.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { SystemAllocator.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { SystemAllocator.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest time between two kills when no memory is left.
const BREATH: Duration = Duration::from_millis(40);
/// Longest wait for freed memory to become available.
const ARRIVAL: Duration = Duration::from_secs(1);

/// A machine of 256 MiB.
struct Machine {
    temp: tempfile::TempDir,
    system: System,
}

/// A running process, killed on drop.
struct Process {
    child: Child,
    id: ProcessId,
}

impl Process {
    fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine {
    /// `cgroup` is the mount point of a cgroup hierarchy. With `None`, plain files stand for one.
    fn new(cgroup: Option<PathBuf>) -> Machine {
        Machine::with(Roots {
            cgroup,
            ..Roots::default()
        })
    }

    /// Uses the cgroup mount and the tracefs of `roots`, and with a tracefs also its sysfs. All
    /// other paths are plain files.
    fn with(roots: Roots) -> Machine {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        for directory in ["proc/pressure", "sys", "cgroup", "run"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("proc/vmstat"), "oom_kill 0\n").unwrap();
        fs::write(root.join("cgroup/cgroup.procs"), "").unwrap();
        let system = System::open(Roots {
            proc: root.join("proc"),
            sys: match &roots.tracefs {
                Some(_) => roots.sys,
                None => root.join("sys"),
            },
            cgroup: Some(roots.cgroup.unwrap_or_else(|| root.join("cgroup"))),
            runtime: root.join("run"),
            ..roots
        })
        .unwrap();
        let machine = Machine { temp, system };
        machine.has(200);
        machine
    }

    /// Sets the available memory, in MiB. There is no swap.
    fn has(&self, available: u64) {
        self.has_with_swap(available, 0);
    }

    /// Sets the available memory and the free swap, in MiB.
    fn has_with_swap(&self, available: u64, swap: u64) {
        let (available, swap) = (available << 10, swap << 10);
        let text = format!(
            "MemTotal: 262144 kB\nMemFree: 4096 kB\nMemAvailable: {available} kB\n\
             SwapTotal: {swap} kB\nSwapFree: {swap} kB\n"
        );
        // Overwrites the file in place: truncating it would leave it empty for a moment, and the
        // guard ignores a gauge that it cannot read.
        let new = self.temp.path().join("proc/meminfo.new");
        let path = self.temp.path().join("proc/meminfo");
        match path.exists() {
            true => {
                use std::os::unix::fs::FileExt;
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                let padded = format!("{text:<200}\n");
                file.write_all_at(padded.as_bytes(), 0).unwrap();
            }
            false => {
                fs::write(&new, format!("{text:<200}\n")).unwrap();
                fs::rename(&new, &path).unwrap();
            }
        }
    }

    /// Starts a process with this much anonymous memory, in pages.
    fn spawn(&self, pages: u64) -> Process {
        self.run(Command::new("sleep").arg("600"), pages)
    }

    /// Starts this command as a process with this much anonymous memory, in pages.
    fn run(&self, command: &mut Command, pages: u64) -> Process {
        let child = command.spawn().unwrap();
        let id = ProcessId {
            pid: child.id() as i32,
            starttime: u64::from(child.id()) * 100,
        };
        let directory = self.temp.path().join(format!("proc/{}", id.pid));
        fs::create_dir_all(&directory).unwrap();
        let stat = format!(
            "{0} (app) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {1} 0 0\n",
            id.pid, id.starttime
        );
        fs::write(directory.join("stat"), stat).unwrap();
        let statm = format!("9999 {} 10 1 0 1 0\n", pages + 10);
        fs::write(directory.join("statm"), statm).unwrap();
        Process { child, id }
    }
}

fn app(id: ProcessId, home: Option<Home>) -> App {
    App {
        key: match &home {
            Some(home) => AppKey::Cgroup { inode: home.inode },
            None => AppKey::Tree(id),
        },
        name: format!("app{}", id.pid),
        process: Some(id),
        home,
    }
}

fn candidate(app: &App, class: Class, held: u64) -> Candidate {
    Candidate {
        app: app.key,
        owner: 1000,
        class,
        leaks: false,
        in_use: false,
        avoid: false,
        dear: false,
        waits: false,
        starts_until: Duration::ZERO,
        held,
        least: held,
        least_at: Duration::ZERO,
    }
}

fn thresholds() -> Thresholds {
    Thresholds {
        total: 256 * MIB,
        kill: 8 * MIB,
        swap: 24 * MIB,
    }
}

/// Waits for the next kill by polling, because this must not wake the guard's thread. On a busy
/// machine, several reports may have arrived by then.
fn next_reports(guard: &Guard) -> Vec<Report> {
    let mut reports = Vec::new();
    wait_for("no app was killed", || {
        reports = guard.reports();
        !reports.is_empty()
    });
    reports
}

/// Like [`next_reports`], for tests in which only one app may be killed.
fn next_report(guard: &Guard) -> Report {
    match next_reports(guard)[..] {
        [report] => report,
        ref more => panic!("{more:?}"),
    }
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn guard_kills_in_order_and_allocates_nothing() {
    OWN.with(|own| own.set(true));
    apps_without_a_cgroup_are_killed_in_order();
    memory_of_an_app_that_died_is_awaited();
    freed_memory_in_per_cpu_lists_spares_the_next_app();
    victim_that_exits_late_does_not_delay_the_next_kill();
    all_processes_of_a_real_cgroup_are_killed();
    app_whose_child_cgroups_changed_is_killed();
    app_with_a_threaded_child_cgroup_is_killed();
    busy_process_triggers_the_check();
    app_that_grew_is_killed_although_targets_are_rearmed();
    users::healthy_app_of_another_user_is_spared();
    grace::victim_that_exits_when_asked_is_not_killed();
    grace::victim_that_does_not_exit_is_killed_after_the_grace();
    grace::process_that_is_found_during_the_grace_is_asked_too();
    grace::exhausted_memory_ends_the_grace();
    grace::victim_is_spared_if_memory_is_no_longer_short();
    grace::victim_that_comes_to_the_foreground_is_spared();
    grace::victim_is_spared_if_the_daemon_is_paused();
    grace::paused_guard_kills_no_app();
}

/// Kills two apps without a cgroup in order. A third one, which is not armed, survives.
fn apps_without_a_cgroup_are_killed_in_order() {
    let machine = Machine::new(None);
    let mut all = [machine.spawn(100), machine.spawn(200), machine.spawn(300)];
    let apps = [all[0].id, all[1].id, all[2].id].map(|id| app(id, None));
    let mut guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
    let classes = [Class::Disposable, Class::Normal];
    let ids = all.each_ref().map(|process| [process.id]);
    // There are two classes, so the third app is left out.
    let victims = apps.iter().zip(classes).zip(&ids);
    let victims = victims.map(|((app, class), members)| Victim {
        candidate: candidate(app, class, MIB),
        app,
        members,
    });
    assert_eq!(guard.arm(&machine.system, victims), 2);

    COUNTS.store(true, Ordering::SeqCst);
    machine.has(4);
    let mut reports = next_reports(&guard);
    // Enough memory has become free.
    machine.has(100);
    wait_for("plenty again", || guard.shortage().level() == Level::Plenty);
    COUNTS.store(false, Ordering::SeqCst);
    assert_eq!(COUNTED.load(Ordering::SeqCst), 0, "the guard took memory");

    // If this thread ran late, it reported free memory too late to spare the next app.
    reports.extend(guard.reports());
    assert_eq!(all[1].is_alive(), reports.len() == 1, "{reports:?}");
    assert!(!all[0].is_alive() && all[2].is_alive());
    machine.has(4);
    if reports.len() == 1 {
        reports.extend(next_reports(&guard));
    }
    let [first, second] = reports[..] else {
        panic!("{reports:?}");
    };
    assert_eq!(first.candidate.app, apps[0].key);
    let how = first.how.unwrap();
    assert!(first.freed.is_some() && first.asked.is_none() && !how.by_group);
    assert_eq!((how.processes, first.held), (1, 100 * 4096));
    assert!(first.before <= first.crossed && first.crossed <= first.killed);
    assert!(first.killed <= first.freed.unwrap());
    assert_eq!(first.gauge.available, 4 * MIB);
    assert_eq!(second.candidate.app, apps[1].key);
    let apart = second.crossed.saturating_sub(first.freed.unwrap());
    assert!(apart >= BREATH, "one spike kills one app: {apart:?}");
    assert!(!all[1].is_alive());
    // No further kill, although memory is still short: no armed app is left.
    std::thread::sleep(Duration::from_millis(100));
    assert!(guard.reports().is_empty() && all[2].is_alive());
    assert_eq!(guard.shortage().level(), Level::Exhausted);
}

/// If an app dies by itself during a shortage, the next app is spared until the dead app's memory
/// is free.
fn memory_of_an_app_that_died_is_awaited() {
    let machine = Machine::new(None);
    let mut all = [machine.spawn(100), machine.spawn(100)];
    let apps = [all[0].id, all[1].id].map(|id| app(id, None));
    let ids = all.each_ref().map(|process| [process.id]);
    let mut guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
    let victims = apps.iter().zip(&ids).map(|(app, members)| Victim {
        candidate: candidate(app, Class::Disposable, MIB),
        app,
        members,
    });
    guard.arm(&machine.system, victims);
    machine.has(20);
    wait_for("short", || guard.shortage().level() == Level::Swap);
    // Read the clock before the kill: the guard may notice the death before this thread continues.
    let still_alive = limelight_daemon::system::now();
    all[0].child.kill().unwrap();
    all[0].child.wait().unwrap();
    machine.has(4);
    let report = next_report(&guard);
    assert_eq!(report.candidate.app, apps[1].key);
    let settled = report.crossed.saturating_sub(still_alive);
    // Without swap the wait may be as short as the interval between two checks.
    assert!(settled >= BREATH, "{settled:?}");
    assert!(!all[1].is_alive());
    // The app that contains the daemon itself is never armed.
    let own = ProcessId {
        pid: std::process::id() as i32,
        starttime: 1,
    };
    let own_app = app(own, None);
    let victim = Victim {
        candidate: candidate(&own_app, Class::Disposable, 0),
        app: &own_app,
        members: &[own],
    };
    assert_eq!(guard.arm(&machine.system, [victim]), 0);
}

/// A victim's memory may be in the kernel's per-CPU page lists, which no field of `meminfo` counts.
/// The next app is then spared until the kernel has had time to empty the lists.
fn freed_memory_in_per_cpu_lists_spares_the_next_app() {
    let machine = Machine::new(None);
    let lists = machine.temp.path().join("proc/zoneinfo");
    let pages_in_lists = |pages: u64| {
        let zone = "Node 0, zone Normal\n min 100\n low 200\n high 300\n cpu: 0\n count:";
        fs::write(&lists, format!("{zone} {pages:8}\n high: 9999\n")).unwrap();
    };
    pages_in_lists(3000);
    let mut all = [machine.spawn(2000), machine.spawn(2000)];
    let apps = [all[0].id, all[1].id].map(|id| app(id, None));
    let ids = all.each_ref().map(|process| [process.id]);
    let mut guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
    let victims = apps.iter().zip(&ids).map(|(app, members)| Victim {
        candidate: candidate(app, Class::Disposable, 2000 * 4096),
        app,
        members,
    });
    assert_eq!(guard.arm(&machine.system, victims), 2);
    COUNTS.store(true, Ordering::SeqCst);
    machine.has(4);
    let mut reports = next_reports(&guard);
    wait_for("the second app is killed", || {
        reports.extend(guard.reports());
        reports.len() == 2
    });
    COUNTS.store(false, Ordering::SeqCst);
    assert_eq!(COUNTED.load(Ordering::SeqCst), 0, "the guard took memory");
    // 4 MiB available and 12 MiB in the lists are more than the 10 MiB that end the shortage.
    let apart = reports[1].killed.saturating_sub(reports[0].killed);
    assert!(apart >= ARRIVAL, "{apart:?}");
    assert!(!all[0].is_alive() && !all[1].is_alive());
}

/// A victim that gets no processor time exits late. If its memory has come back and is used up again,
/// the guard does not wait for the exit. It does not choose the victim again, although it is armed.
fn victim_that_exits_late_does_not_delay_the_next_kill() {
    let machine = Machine::new(None);
    let group = machine.temp.path().join("cgroup/late");
    fs::create_dir(&group).unwrap();
    // Plain files: nothing is killed, and the cgroup stays populated.
    for (file, text) in [
        ("cgroup.procs", ""),
        ("cgroup.events", "populated 1\n"),
        ("cgroup.kill", ""),
        ("memory.current", "500000\n"),
        ("memory.swap.current", "0\n"),
    ] {
        fs::write(group.join(file), text).unwrap();
    }
    let mut all = [machine.spawn(100), machine.spawn(100)];
    let home = Home {
        path: "/late".to_owned(),
        inode: std::os::unix::fs::MetadataExt::ino(&fs::metadata(&group).unwrap()),
        own: true,
        adopted: false,
    };
    let apps = [app(all[0].id, Some(home)), app(all[1].id, None)];
    let ids = all.each_ref().map(|process| [process.id]);
    let victims: Vec<Victim> = apps
        .iter()
        .zip([Class::Disposable, Class::Normal])
        .zip(&ids)
        .map(|((app, class), members)| Victim {
            candidate: candidate(app, class, MIB),
            app,
            members,
        })
        .collect();
    let mut guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
    assert_eq!(guard.arm(&machine.system, [victims[0]]), 1);
    COUNTS.store(true, Ordering::SeqCst);
    machine.has(4);
    wait_for("no app was killed", || {
        fs::read_to_string(group.join("cgroup.kill")).unwrap() == "1"
    });
    // The memory comes back, and memory is still exhausted.
    machine.has(6);
    let first = next_report(&guard);
    COUNTS.store(false, Ordering::SeqCst);
    assert_eq!(COUNTED.load(Ordering::SeqCst), 0, "the guard took memory");
    assert_eq!(first.candidate.app, apps[0].key);
    assert!(first.freed.is_some(), "waited for the exit: {first:?}");
    assert_eq!(guard.arm(&machine.system, victims), 2);
    let second = next_report(&guard);
    assert_eq!(second.candidate.app, apps[1].key, "{second:?}");
    assert!(!all[1].is_alive());
}

/// The guard reads current memory use before it selects a victim, even while the event loop keeps
/// arming the targets again.
fn app_that_grew_is_killed_although_targets_are_rearmed() {
    for _ in 0..60 {
        let machine = Machine::new(None);
        let mut all = [machine.spawn(100), machine.spawn(5000)];
        let apps = [all[0].id, all[1].id].map(|id| app(id, None));
        let ids = all.each_ref().map(|process| [process.id]);
        let mut guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
        let classes = [Class::Disposable, Class::Normal];
        let armed = apps.iter().zip(classes).zip(&ids);
        let armed = armed.map(|((app, class), members)| Victim {
            candidate: candidate(app, class, MIB),
            app,
            members,
        });
        let armed: Vec<Victim> = armed.collect();
        machine.has(4);
        let mut reports = Vec::new();
        wait_for("no app was killed", || {
            for _ in 0..200 {
                guard.arm(&machine.system, armed.iter().copied());
            }
            reports = guard.reports();
            !reports.is_empty()
        });
        machine.has(100);
        assert_eq!(reports[0].candidate.app, apps[1].key, "{reports:?}");
        assert!(reports[0].burst.is_some() && !all[1].is_alive());
    }
}

/// A cgroup in the running kernel, at the root of the hierarchy.
struct RealCgroup {
    hierarchy: Hierarchy,
    root: Cgroup,
    group: Cgroup,
    name: String,
}

impl RealCgroup {
    /// Creates the cgroup; `None` without root privileges or without cgroup v2.
    fn new(test: &str) -> Option<RealCgroup> {
        let proc = Proc::open("/proc").unwrap();
        let hierarchy = Hierarchy::find(&proc).ok()?;
        let root = hierarchy.open(&CgroupPath::root()).unwrap();
        let name = format!("app-limelight-test-{test}-{}.scope", std::process::id());
        let group = root.create_child(&name).ok()?;
        Some(RealCgroup {
            hierarchy,
            root,
            group,
            name,
        })
    }

    /// A machine with this hierarchy.
    fn machine(&self) -> Machine {
        Machine::new(Some(self.hierarchy.mount_point().to_owned()))
    }

    /// The app in this cgroup.
    fn app(&self, id: ProcessId) -> App {
        let home = Home {
            path: format!("/{}", self.name),
            inode: self.group.id().0,
            own: true,
            adopted: false,
        };
        app(id, Some(home))
    }
}

/// Kills all processes of a real cgroup, including one that was not known. A process in another
/// cgroup survives.
fn all_processes_of_a_real_cgroup_are_killed() {
    let Some(real) = RealCgroup::new("all") else {
        return;
    };
    let machine = real.machine();
    let mut all = [machine.spawn(100), machine.spawn(100)];
    let mut neighbour = machine.spawn(100);
    for process in &all {
        real.group.attach(process.id.pid).unwrap();
    }
    let app = real.app(all[0].id);
    let mut guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
    let victim = Victim {
        candidate: candidate(&app, Class::Normal, MIB),
        app: &app,
        members: &[all[0].id],
    };
    assert_eq!(guard.arm(&machine.system, [victim]), 1);

    COUNTS.store(true, Ordering::SeqCst);
    machine.has(4);
    let report = next_report(&guard);
    COUNTS.store(false, Ordering::SeqCst);
    assert_eq!(COUNTED.load(Ordering::SeqCst), 0, "the guard took memory");
    let by_group = report.how.is_some_and(|how| how.by_group);
    assert!(by_group && report.freed.is_some(), "{report:?}");
    wait_for("the other member ends", || !all[1].is_alive());
    assert!(!all[0].is_alive() && neighbour.is_alive());
    let removed = || real.root.remove_child(&real.name).is_ok();
    wait_for("removed", removed);
    // An ended app is not armed again.
    assert_eq!(guard.arm(&machine.system, [victim]), 0);
}

/// An app of one process in a cgroup of the running kernel, and a guard.
struct Single {
    real: RealCgroup,
    machine: Machine,
    process: Process,
    app: App,
    guard: Guard,
}

impl Single {
    /// `None` as for [`RealCgroup::new`].
    fn new(test: &str) -> Option<Single> {
        let real = RealCgroup::new(test)?;
        let machine = real.machine();
        let process = machine.spawn(100);
        real.group.attach(process.id.pid).unwrap();
        let app = real.app(process.id);
        let guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
        Some(Single {
            real,
            machine,
            process,
            app,
            guard,
        })
    }

    fn arm(&mut self) {
        let victim = Victim {
            candidate: candidate(&self.app, Class::Normal, MIB),
            app: &self.app,
            members: &[self.process.id],
        };
        assert_eq!(self.guard.arm(&self.machine.system, [victim]), 1);
    }

    /// Lets memory run short: the guard kills the app by its cgroup, which has this child.
    fn expect_kill(mut self, child: &str) {
        self.machine.has(4);
        let report = next_report(&self.guard);
        assert!(report.how.is_some_and(|how| how.by_group), "{report:?}");
        wait_for("the app ends", || !self.process.is_alive());
        self.real.group.remove_child(child).unwrap();
        self.real.root.remove_child(&self.real.name).unwrap();
    }
}

/// An app that creates or replaces a child cgroup after it was armed can still be killed, once it
/// was armed again.
fn app_whose_child_cgroups_changed_is_killed() {
    let Some(mut app) = Single::new("parts") else {
        return;
    };
    app.arm();
    app.real.group.create_child("first").unwrap();
    app.arm();
    // The number of child cgroups stays the same.
    app.real.group.remove_child("first").unwrap();
    let second = app.real.group.create_child("second").unwrap();
    second.attach(app.process.id.pid).unwrap();
    app.arm();
    app.expect_kill("second");
}

/// A threaded cgroup lists no processes. The cgroup above it lists them.
fn app_with_a_threaded_child_cgroup_is_killed() {
    let Some(mut app) = Single::new("threaded") else {
        return;
    };
    app.real.group.create_child("threads").unwrap();
    let group = app.real.hierarchy.mount_point().join(&app.real.name);
    fs::write(group.join("threads/cgroup.type"), "threaded").unwrap();
    app.arm();
    app.expect_kill("threads");
}

/// While most memory is free, the guard has no polling timer. A busy process triggers the check
/// instead, and that check allocates nothing either. Skipped without privileges and a tracefs,
/// where the guard uses the timer.
fn busy_process_triggers_the_check() {
    let machine = Machine::with(Roots {
        tracefs: Some("/sys/kernel/tracing".into()),
        ..Roots::default()
    });
    let mut one = machine.spawn(100);
    let app = app(one.id, None);
    let mut guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
    if !guard.detail().contains("any task that runs") {
        return eprintln!("SKIPPED: {}", guard.detail());
    }
    let victim = Victim {
        candidate: candidate(&app, Class::Disposable, MIB),
        app: &app,
        members: &[one.id],
    };
    assert_eq!(guard.arm(&machine.system, [victim]), 1);
    COUNTS.store(true, Ordering::SeqCst);
    machine.has(4);
    let deadline = Instant::now() + PATIENCE;
    let report = loop {
        // This loop is the busy process.
        if let Some(report) = guard.reports().first() {
            break *report;
        }
        assert!(Instant::now() < deadline, "no app was killed");
    };
    COUNTS.store(false, Ordering::SeqCst);
    assert_eq!(COUNTED.load(Ordering::SeqCst), 0, "the guard took memory");
    assert_eq!(report.candidate.app, app.key);
    assert!(!one.is_alive());
}
