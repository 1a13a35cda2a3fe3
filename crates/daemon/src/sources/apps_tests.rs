// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::config::never::of_user;
use crate::system::Roots;
use limelight_core::model::class::Rule;
use limelight_core::model::never::Never;
use limelight_core::model::Home;
use limelight_sys::cgroup::CgroupPath;
use std::fs;
use std::os::unix::fs::symlink;

const USER: &str = "/user.slice/user-1000.slice/user@1000.service/app.slice";

/// A system with a fake procfs and cgroup hierarchy.
struct Fixture {
    temp: tempfile::TempDir,
    system: System,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::at(tempfile::tempdir().unwrap())
    }

    /// On tmpfs where possible, because the caller makes thousands of directories.
    fn in_memory() -> Fixture {
        let memory = std::path::Path::new("/dev/shm");
        let temp = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        Fixture::at(temp.unwrap())
    }

    fn at(temp: tempfile::TempDir) -> Fixture {
        for directory in ["proc", "sys", "cgroup", "sessions"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        let roots = Roots {
            sessions: temp.path().join("sessions"),
            inhibit: temp.path().join("inhibit"),
            data: vec![temp.path().join("data")],
            ..Roots::below(temp.path())
        };
        let fixture = Fixture {
            system: System::open(roots).unwrap(),
            temp,
        };
        fixture.group("", &[]);
        fixture
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.temp.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn process(&self, pid: i32, ppid: i32, comm: &str, uid: u32) {
        let proc = format!("proc/{pid}");
        // Start times ascend with the process ids.
        let stat =
            format!("{pid} ({comm}) S {ppid} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {pid}00 0 0\n");
        self.write(&format!("{proc}/stat"), &stat);
        let uids = format!("{uid}\t{uid}\t{uid}\t{uid}");
        let status =
            format!("Tgid:\t{pid}\nUid:\t{uids}\nRssAnon:\t40 kB\nRssFile:\t8 kB\nVmSwap:\t4 kB\n");
        self.write(&format!("{proc}/status"), &status);
        self.write(&format!("{proc}/cmdline"), &format!("{comm}\0"));
        self.write(&format!("{proc}/environ"), "HOME=/x\0");
        self.write(&format!("{proc}/oom_score_adj"), "0\n");
        let exe = self.temp.path().join(format!("{proc}/exe"));
        if !exe.is_symlink() {
            symlink("/bin/sh", exe).unwrap();
        }
    }

    fn group(&self, path: &str, pids: &[i32]) {
        let procs: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        self.write(&format!("cgroup{path}/cgroup.procs"), &procs);
    }

    /// A unit with its own memory counters and these processes.
    fn unit(&self, path: &str, pids: &[i32]) {
        self.group(path, pids);
        self.write(&format!("cgroup{path}/memory.current"), "8192\n");
        self.write(&format!("cgroup{path}/memory.swap.current"), "4096\n");
        self.write(
            &format!("cgroup{path}/memory.stat"),
            "anon 5000\nshmem 96\n",
        );
        for pid in pids {
            self.process(*pid, 1, &format!("p{pid}"), 1000);
        }
    }

    fn source(&self, classes: Classes) -> AppsSource {
        AppsSource::new(&self.system, classes)
    }

    fn look(&self, source: &mut AppsSource) -> Vec<Found> {
        let helpers = ["Xorg".to_owned()];
        let found = source.look(&self.system, &helpers, &[], Duration::from_secs(1));
        found.unwrap()
    }

    fn look_anew(&self) -> Vec<Found> {
        self.look(&mut self.source(Classes::default()))
    }

    /// The app of a unit, as a foreground source names it.
    fn app_of(&self, path: &str) -> App {
        let group = self.system.cgroups.open(&CgroupPath::parse(path).unwrap());
        let inode = group.unwrap().id().0;
        App {
            key: AppKey::Cgroup { inode },
            name: "front".to_owned(),
            process: None,
            home: Some(Home {
                path: path.to_owned(),
                inode,
                own: true,
                adopted: false,
            }),
        }
    }

    fn front(&self, pid: i32) -> App {
        App {
            key: AppKey::Tree(id(pid)),
            name: "front".to_owned(),
            process: Some(id(pid)),
            home: Some(Home {
                path: "/user.slice/session-2.scope".to_owned(),
                inode: 1,
                own: false,
                adopted: false,
            }),
        }
    }
}

fn id(pid: i32) -> ProcessId {
    ProcessId {
        pid,
        starttime: pid as u64 * 100,
    }
}

fn names(found: &[Found]) -> Vec<&str> {
    let mut names: Vec<&str> = found.iter().map(|found| found.app.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn pids(found: &Found) -> Vec<i32> {
    found.members.iter().map(|member| member.pid).collect()
}

fn why(found: &[Found], name: &str) -> Option<String> {
    let found = found.iter().find(|found| found.app.name == name);
    found
        .unwrap_or_else(|| panic!("{name} is missing"))
        .untouchable
        .clone()
}

#[test]
fn topmost_app_examined_alone_equals_the_scanned_one() {
    let fixture = Fixture::new();
    let unit = format!("{USER}/app-x-news-1.scope");
    fixture.unit(&unit, &[20, 21]);
    fixture.unit(&format!("{USER}/app-x-mail-2.scope"), &[30]);
    fixture.write("proc/20/environ", "LIMELIGHT_CLASS=disposable\0");
    let mut source = fixture.source(Classes::default());
    let met = source
        .meet(&fixture.system, &fixture.app_of(&unit))
        .unwrap();
    assert_eq!(met.class.class, Class::Disposable);
    assert!(
        source.is_due(Duration::from_secs(1)),
        "meet() counts as a scan"
    );
    let found = fixture.look(&mut source);
    assert_eq!(found.len(), 2);
    assert!(found.contains(&met), "{found:?}");
    assert_eq!(source.meet(&fixture.system, &fixture.front(20)), None);
}

#[test]
fn app_units_of_all_users_are_found_anywhere() {
    let fixture = Fixture::new();
    fixture.unit(
        &format!("{USER}/app-gnome-org.x.Notes-7.scope"),
        &[101, 102],
    );
    fixture.unit("/app.slice/app-news-1.scope", &[110]);
    fixture.unit("/limelight.slice/app-120-12000.scope", &[120]);
    fixture.unit("/app.slice/app-empty-1.scope", &[]);
    fixture.unit("/app.slice/other.scope", &[130]);
    fixture.unit("/system.slice/run-u1.service", &[140]);
    let found = fixture.look_anew();
    assert_eq!(names(&found), ["news", "org.x.Notes", "p120"]);
    let notes = found
        .iter()
        .find(|found| found.app.name == "org.x.Notes")
        .unwrap();
    assert_eq!((notes.uid, pids(notes)), (1000, vec![101, 102]));
    assert_eq!(notes.app.process, Some(id(101)));
    let memory = AppMemory {
        resident: 8192,
        anonymous: 5096,
        swapped: 4096,
    };
    assert_eq!(notes.memory, memory);
    assert_eq!(notes.started, Duration::from_secs(101));
    // An app that the daemon moved is identified by the process that was moved.
    let adopted = found.iter().find(|found| found.app.name == "p120").unwrap();
    assert_eq!(adopted.app.key, AppKey::Tree(id(120)));
    assert!(adopted.app.own_home().is_some());
}

#[test]
fn app_that_was_topmost_stays_known_until_it_ends() {
    let fixture = Fixture::new();
    for (pid, ppid, comm) in [
        (201, 1, "term"),
        (202, 201, "sh"),
        (203, 202, "edit"),
        (204, 203, "lsp"),
    ] {
        fixture.process(pid, ppid, comm, 1000);
    }
    // A child with its own unit.
    fixture.unit("/app.slice/app-player-1.scope", &[205]);
    fixture.process(205, 202, "player", 1000);
    let mut source = fixture.source(Classes::default());
    assert_eq!(names(&fixture.look(&mut source)), ["player"]);
    source.was_topmost(&fixture.front(201));
    source.was_topmost(&fixture.front(203));
    let found = fixture.look(&mut source);
    assert_eq!(names(&found), ["edit", "player", "term"]);
    let members = |name| pids(found.iter().find(|found| found.app.name == name).unwrap());
    assert_eq!(members("term"), [201, 202]);
    assert_eq!(members("edit"), [203, 204]);
    let edit = found.iter().find(|found| found.app.name == "edit").unwrap();
    assert_eq!(edit.memory.anonymous, 80 << 10);
    assert_eq!(edit.memory.swapped, 8 << 10);
    // A reused process id is not the app.
    fixture.write(
        "proc/203/stat",
        "203 (x) S 202 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 7 0 0\n",
    );
    assert_eq!(names(&fixture.look(&mut source)), ["player", "term"]);
}

/// Any user may send exceptions, and a plan costs as much as a change of the foreground.
#[test]
fn rules_of_a_user_concern_only_that_users_apps() {
    let fixture = Fixture::new();
    fixture.process(20, 1, "diary", 1000);
    fixture.unit("/app.slice/app-diary-1.scope", &[20]);
    let mut source = fixture.source(Classes::default());
    assert_eq!(names(&fixture.look(&mut source)), ["diary"]);
    let rules = |text: &str| of_user(Path::new("/f"), text).unwrap().0;
    let all = "[never]\nclose = [\"*\"]\n";
    let mut set = |uid: u32, text| source.set_user_rules(uid.into(), uid, rules(text));
    assert_eq!(set(1001, all), Affected::AppsToCome);
    assert_eq!(set(1001, all), Affected::Nothing);
    assert_eq!(set(1000, all), Affected::KnownApps);
    assert_eq!(set(1000, "[never]\nclose = [\"x\"]\n"), Affected::KnownApps);
    assert_eq!(source.release_rules(1001), Affected::AppsToCome);
    assert_eq!(source.release_rules(1001), Affected::Nothing);
}

#[test]
fn classes_come_from_entries_rules_and_requests() {
    let fixture = Fixture::new();
    fixture.write(
        "data/applications/org.x.Notes.desktop",
        "[Desktop Entry]\nName=Notes\nExec=notes\nCategories=Office;\n",
    );
    fixture.unit("/app.slice/app-org.x.Notes-7.scope", &[301]);
    fixture.unit("/app.slice/app-game-1.scope", &[302]);
    fixture.write("proc/302/environ", "A=b\0LIMELIGHT_CLASS=disposable\0");
    let table = vec![("Office".to_owned(), Class::Keep)];
    let mut source = fixture.source(Classes::new(Vec::new(), table.clone()));
    let class = |found: &[Found], pid: i32| {
        let of = found.iter().find(|found| pids(found) == [pid]).unwrap();
        of.class.class
    };
    let found = fixture.look(&mut source);
    assert_eq!(names(&found), ["Notes", "game"]);
    assert_eq!(
        (class(&found, 301), class(&found, 302)),
        (Class::Keep, Class::Disposable)
    );

    let rule = Rule::new("*/app-game-*", Class::Keep, "limelight.toml:3");
    source.set_classes(Classes::new(vec![rule], table));
    let found = fixture.look(&mut source);
    assert_eq!(class(&found, 302), Class::Keep);

    // The owner may lower the class, and the lowest one counts.
    let key = found
        .iter()
        .find(|found| pids(found) == [301])
        .unwrap()
        .app
        .key;
    let set = |source: &mut AppsSource, class, uid| {
        source.set_override(key, Some(Override { class, uid }));
        fixture.look(source)
    };
    assert_eq!(
        class(&set(&mut source, Class::Normal, 1000), 301),
        Class::Normal
    );
    source.set_classes(Classes::default());
    assert_eq!(
        class(&set(&mut source, Class::Keep, 1000), 301),
        Class::Normal
    );
    assert_eq!(class(&set(&mut source, Class::Keep, 0), 301), Class::Keep);
    source.set_override(key, None);
    assert_eq!(class(&fixture.look(&mut source), 301), Class::Normal);
    assert_eq!(source.given_class(key).unwrap().class, Class::Normal);
}

/// Sets an extended attribute of a cgroup. `false` if the file system does not support it.
fn set_attribute(fixture: &Fixture, path: &str, name: &str, value: &str) -> bool {
    let directory = fixture.temp.path().join(format!("cgroup{path}"));
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(directory, name, value.as_bytes(), flags).is_ok()
}

#[test]
fn preference_for_systemd_oomd_spares_an_app_or_puts_it_last() {
    let fixture = Fixture::new();
    let [omit, avoid, off, both, foreign] = ["omit", "avoid", "off", "both", "foreign"]
        .map(|name| format!("/app.slice/app-{name}-1.scope"));
    for (pid, path) in (301..).zip([&omit, &avoid, &off, &both, &foreign]) {
        fixture.unit(path, &[pid]);
    }
    let (omits, avoids) = ("user.oomd_omit", "user.oomd_avoid");
    if !rustix::process::geteuid().is_root() || !set_attribute(&fixture, &omit, omits, "1") {
        return;
    }
    for (path, name, value) in [
        (&avoid, avoids, "True"),
        (&off, omits, "0"),
        (&both, omits, "yes"),
        (&both, avoids, "1"),
        (&foreign, omits, "1"),
    ] {
        assert!(set_attribute(&fixture, path, name, value));
    }
    let give = |path: &str, uid| {
        let directory = fixture.temp.path().join(format!("cgroup{path}"));
        std::os::unix::fs::chown(directory, Some(uid), None).unwrap();
    };
    // The app's own user and another user; the other cgroups belong to root.
    give(&avoid, 1000);
    give(&foreign, 1001);
    let mut source = fixture.source(Classes::default());
    // For each app: whether its owner excepts it from being closed, and whether its owner wishes
    // it to be closed last.
    let wishes = |source: &mut AppsSource| -> Vec<(Option<bool>, Option<bool>)> {
        let mut found = fixture.look(source);
        found.sort_by_key(pids);
        let all = found.iter().map(|found| {
            let never = found.exceptions.of(Never::Close);
            let avoid = found.avoid.as_ref();
            (never.map(|one| one.by_owner), avoid.map(|one| one.by_owner))
        });
        all.collect()
    };
    let none = (None, None);
    let expected = [
        (Some(false), None),
        (None, Some(true)),
        none,
        (Some(false), None),
        none,
    ];
    assert_eq!(wishes(&mut source), expected);
    // The attributes are read again by each scan.
    assert!(set_attribute(&fixture, &off, omits, "1"));
    give(&omit, 1000);
    let found = wishes(&mut source);
    assert_eq!(
        (found[0], found[2]),
        ((Some(true), None), (Some(false), None))
    );
}

#[test]
fn preference_of_a_shared_cgroup_holds_for_its_apps() {
    let fixture = Fixture::new();
    let path = "/user.slice/session-2.scope";
    fixture.group(path, &[40]);
    fixture.process(40, 1, "editor", 1000);
    fixture.write("proc/40/cgroup", &format!("0::{path}\n"));
    let mut front = fixture.front(40);
    let inode = fixture.app_of(path).home.unwrap().inode;
    front.home.as_mut().unwrap().inode = inode;
    let mut source = fixture.source(Classes::default());
    source.was_topmost(&front);
    let rule = |found: &[Found]| found[0].exceptions.of(Never::Close).cloned();
    assert_eq!(rule(&fixture.look(&mut source)), None);
    if set_attribute(&fixture, path, "user.oomd_omit", "1") {
        let rule = rule(&fixture.look(&mut source)).unwrap();
        assert!(rule.why.contains("ManagedOOMPreference=omit"), "{rule:?}");
    }
}

#[test]
fn program_that_replaced_itself_is_examined_again() {
    let fixture = Fixture::new();
    fixture.unit("/run-u1.scope", &[310]);
    let mut source = fixture.source(Classes::default());
    assert_eq!(names(&fixture.look(&mut source)), ["p310"]);
    fixture.process(310, 1, "game", 1000);
    assert_eq!(names(&fixture.look(&mut source)), ["game"]);
}

#[test]
fn android_app_is_identified_by_its_package() {
    let fixture = Fixture::new();
    fixture.unit("/app.slice/run-u1.scope", &[320]);
    fs::remove_file(fixture.temp.path().join("proc/320/exe")).unwrap();
    let zygote = fixture.temp.path().join("app_process64");
    fs::write(&zygote, "").unwrap();
    symlink(&zygote, fixture.temp.path().join("proc/320/exe")).unwrap();
    fixture.write("proc/320/cmdline", "com.example.news:sync\0");
    let mut source = fixture.source(Classes::default());
    let found = fixture.look(&mut source);
    assert_eq!(names(&found), ["com.example.news"]);
    let identity = source.identity(found[0].app.key).unwrap();
    assert_eq!(identity.package.as_deref(), Some("com.example.news"));
    assert_eq!(identity.executable.as_deref(), zygote.to_str());
}

#[test]
fn processes_that_others_depend_on_are_exempt() {
    let fixture = Fixture::new();
    for (pid, name) in [
        (401, "plain"),
        (402, "leader"),
        (403, "shown"),
        (404, "own"),
        (407, "faked"),
        (410, "script"),
    ] {
        fixture.unit(&format!("/app.slice/app-{name}-1.scope"), &[pid]);
    }
    fixture.write("sessions/2", "UID=1000\nLEADER=402\n");
    fixture.write("sessions/2.ref", "");
    fixture.process(403, 1, "Xorg", 1000);
    let server = fixture.temp.path().join("Xorg");
    fs::write(&server, "").unwrap();
    fs::remove_file(fixture.temp.path().join("proc/403/exe")).unwrap();
    symlink(&server, fixture.temp.path().join("proc/403/exe")).unwrap();
    // A script of that name runs its interpreter, which belongs to root.
    fixture.process(410, 1, "Xorg", 1000);
    // A process name is not enough.
    fixture.process(407, 1, "Xorg", 1000);
    let program = fixture.temp.path().join("proc/407/exe");
    fs::remove_file(&program).unwrap();
    let theirs = fixture.temp.path().join("theirs");
    fs::write(&theirs, "").unwrap();
    let chowned = std::os::unix::fs::chown(&theirs, Some(1000), None).is_ok();
    symlink(&theirs, &program).unwrap();
    fixture.write("proc/404/oom_score_adj", "-1000\n");

    let mut source = fixture.source(Classes::default());
    let mut shell = fixture.front(409);
    fixture.process(409, 1, "bash", 1000);
    fixture.write("proc/409/cmdline", "-bash\0");
    shell.name = "bash".to_owned();
    source.was_topmost(&shell);
    let found = fixture.look(&mut source);
    assert_eq!(why(&found, "plain"), None);
    assert_eq!(why(&found, "script"), None);
    if chowned {
        assert_eq!(why(&found, "faked"), None);
    }
    for (name, word) in [
        ("leader", "session's leader"),
        ("shown", "other apps need"),
        ("own", "-1000"),
        ("bash", "login shell"),
    ] {
        let why = why(&found, name).unwrap_or_default();
        assert!(why.contains(word), "{name}: {why}");
    }
}

#[test]
fn display_server_is_exempt_whatever_its_name() {
    let fixture = Fixture::new();
    fixture.write("proc/1/net/unix", DISPLAYS);
    let serves = |pid: i32, program: &str| {
        fixture.process(pid, 1, "Xvnc", 1000);
        let proc = fixture.temp.path().join(format!("proc/{pid}"));
        let program = fixture.temp.path().join(program);
        fs::write(&program, "").unwrap();
        fs::remove_file(proc.join("exe")).unwrap();
        symlink(&program, proc.join("exe")).unwrap();
        fs::write(proc.join("comm"), "Xvnc\n").unwrap();
        fs::create_dir(proc.join("fd")).unwrap();
        symlink("socket:[900]", proc.join("fd/3")).unwrap();
    };
    for (pid, name) in [(411, "served"), (412, "faked"), (413, "plain")] {
        fixture.unit(&format!("/app.slice/app-{name}-1.scope"), &[pid]);
    }
    serves(411, "Xvnc");
    // A program with another name than its process.
    serves(412, "theirs");
    let found = fixture.look_anew();
    let why_served = why(&found, "served").unwrap_or_default();
    assert!(why_served.contains("other apps need"), "{why_served}");
    assert_eq!(why(&found, "faked"), None);
    assert_eq!(why(&found, "plain"), None);
}

/// A display that no listed program serves.
const DISPLAYS: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01   900 /tmp/.X11-unix/X7
";

fn app_with(found: &[Found], pid: i32) -> Option<&Found> {
    found.iter().find(|app| pids(app).contains(&pid))
}

#[test]
fn app_inside_another_app_is_separate_and_neither_is_exempt() {
    let fixture = Fixture::new();
    let outer = format!("{USER}/app-outer-1.scope");
    let inner = format!("{outer}/part/app-inner-1.scope");
    fixture.unit(&outer, &[406]);
    fixture.group(&format!("{outer}/part"), &[407]);
    fixture.process(407, 406, "helper", 1000);
    fixture.unit(&inner, &[408]);
    let found = fixture.look_anew();
    assert_eq!(found.len(), 2);
    let outer = app_with(&found, 406).unwrap();
    assert_eq!((pids(outer), &outer.untouchable), (vec![406, 407], &None));
    // Its cgroup's knobs would also act on the inner app.
    assert!(outer.app.own_home().is_none());
    assert_eq!(outer.memory.anonymous, 80 << 10);
    let inner = app_with(&found, 408).unwrap();
    assert_eq!((pids(inner), &inner.untouchable), (vec![408], &None));
    assert!(inner.app.own_home().is_some());
}

#[test]
fn empty_app_cgroup_inside_an_app_changes_nothing() {
    let fixture = Fixture::new();
    let outer = format!("{USER}/app-outer-1.scope");
    fixture.unit(&outer, &[406]);
    let before = fixture.look_anew();
    fixture.unit(&format!("{outer}/app-inner-1.scope"), &[]);
    assert_eq!(fixture.look_anew(), before);
    assert!(before[0].app.own_home().is_some());
}

#[test]
fn unpopulated_cgroups_are_not_descended_into() {
    let fixture = Fixture::new();
    let slice = "/user.slice/user-1000.slice/user@1000.service/other.slice";
    fixture.unit(&format!("{slice}/app-x-1.scope"), &[450]);
    fixture.write(&format!("cgroup{slice}/cgroup.events"), "populated 1\n");
    assert_eq!(fixture.look_anew().len(), 1);
    fixture.write(&format!("cgroup{slice}/cgroup.events"), "populated 0\n");
    assert_eq!(fixture.look_anew(), []);
    // A cgroup for apps is known before the first app appears.
    fixture.write(&format!("cgroup{USER}/cgroup.events"), "populated 0\n");
    let mut source = fixture.source(Classes::default());
    fixture.look(&mut source);
    assert!(source.nests().contains(USER), "{:?}", source.nests());
}

#[test]
fn flood_of_cgroups_hides_only_apps_of_the_user_who_made_it() {
    let fixture = Fixture::in_memory();
    fixture.unit(&format!("{USER}/app-new-1.scope"), &[460]);
    fixture.unit("/app.slice/app-news-1.scope", &[461]);
    for slice in 0..9 {
        let slice = format!("cgroup/user.slice/user-1001.slice/s{slice}");
        for number in 0..1000 {
            let group = fixture.temp.path().join(format!("{slice}/g{number}"));
            fs::create_dir_all(group).unwrap();
        }
    }
    let found = fixture.look_anew();
    assert_eq!(names(&found), ["new", "news"]);
}

#[test]
fn app_with_very_many_cgroups_inside_keeps_its_own_processes() {
    let fixture = Fixture::in_memory();
    let unit = format!("{USER}/app-many-1.scope");
    fixture.unit(&unit, &[470]);
    for number in 0..10_000 {
        let group = fixture.temp.path().join(format!("cgroup{unit}/g{number}"));
        fs::create_dir_all(group).unwrap();
    }
    let found = fixture.look_anew();
    assert_eq!(pids(&found[0]), [470]);
}

#[test]
fn services_of_a_session_are_exempt_up_to_a_sixteenth_of_memory_for_each_user() {
    let fixture = Fixture::new();
    fixture.write("proc/meminfo", "MemTotal: 1048576 kB\nMemFree: 1000 kB\n");
    let unit = |uid: u32, name: &str, pid: i32, mib: u64| {
        let path = format!("/user.slice/user-{uid}.slice/user@{uid}.service/app.slice/{name}");
        fixture.unit(&path, &[pid]);
        fixture.process(pid, 1, &format!("p{pid}"), uid);
        fixture.write(&format!("cgroup{path}/memory.swap.current"), "0\n");
        let stat = format!("anon {}\nshmem 0\n", mib << 20);
        fixture.write(&format!("cgroup{path}/memory.stat"), &stat);
    };
    // The limit is 64 MiB per user.
    unit(1000, "app-settings@autostart.service", 481, 20);
    unit(1000, "dbus-:1.2-org.x.Keys@0.service", 482, 40);
    unit(1001, "app-hog@autostart.service", 483, 300);
    unit(1001, "dbus-:1.2-org.x.Hog@0.service", 484, 50);
    unit(1001, "dbus-:1.3-org.x.Small@0.service", 485, 10);
    fixture.unit("/system.slice/dbus-org.x.Daemon.service", &[486]);
    let found = fixture.look_anew();
    let spared = |pid| app_with(&found, pid).unwrap().untouchable.is_some();
    assert_eq!([481, 482, 484, 485].map(spared), [true; 4]);
    assert!(!spared(483));
    let why = &app_with(&found, 483).unwrap().class.why;
    assert!(why.contains("1/16 of memory"), "{why}");
}

#[test]
fn tab_is_part_of_its_terminal_and_is_spared_where_root_or_a_multiplexer_runs() {
    let fixture = Fixture::new();
    let tab = |number: u32| format!("{USER}/vte-spawn-{number}.scope");
    fixture.unit(&format!("{USER}/app-org.gnome.Terminal.service"), &[500]);
    for (number, pid, comm) in [(1, 501, "bash"), (2, 502, "bash"), (3, 503, "tmux: server")] {
        fixture.unit(&tab(number), &[pid]);
        fixture.process(pid, 500, comm, 1000);
    }
    // The installed program, owned by root.
    let installed = fixture.temp.path().join("tmux");
    fs::write(&installed, "").unwrap();
    let program = fixture.temp.path().join("proc/503/exe");
    fs::remove_file(&program).unwrap();
    symlink(&installed, &program).unwrap();
    fixture.group(&tab(2), &[502, 512]);
    fixture.process(512, 502, "sudo", 0);
    let owner = |pid: i32, uid| {
        let directory = fixture.temp.path().join(format!("proc/{pid}"));
        std::os::unix::fs::chown(directory, Some(uid), None).is_ok()
    };
    let chowned = [501, 502, 503].into_iter().all(|pid| owner(pid, 1000)) && owner(512, 0);
    let found = fixture.look_anew();
    let of = |pid: i32| found.iter().find(|one| pids(one).contains(&pid)).unwrap();
    let terminal = of(500).app.key;
    for pid in [501, 502, 503] {
        assert_eq!(of(pid).part_of, Some(terminal), "pid {pid}");
    }
    assert_eq!(of(500).part_of, None);
    assert_eq!(of(501).untouchable, None);
    let why = of(503).untouchable.clone().unwrap_or_default();
    assert!(why.contains("other shells"), "{why}");
    if chowned {
        let why = of(502).untouchable.clone().unwrap_or_default();
        assert!(why.contains("root"), "{why}");
    }
}

#[test]
fn apps_never_topmost_are_exempt_while_the_screen_is_locked() {
    let fixture = Fixture::new();
    fixture.unit("/app.slice/app-blank-1.scope", &[601]);
    fixture.unit("/app.slice/app-viewer-1.scope", &[602]);
    let mut source = fixture.source(Classes::default());
    source.was_topmost(&fixture.app_of("/app.slice/app-viewer-1.scope"));
    fixture.write("sessions/2", "UID=1000\nLEADER=9\nLOCKED_HINT=0\n");
    let found = fixture.look(&mut source);
    assert_eq!(why(&found, "blank"), None);
    fixture.write("sessions/2", "UID=1000\nLEADER=9\nLOCKED_HINT=1\n");
    let found = fixture.look(&mut source);
    assert!(why(&found, "blank").unwrap().contains("locked"));
    assert_eq!(
        why(&found, "viewer"),
        None,
        "exempt although it was topmost"
    );
}

#[test]
fn unit_started_by_the_session_is_an_app_only_with_a_menu_entry() {
    let fixture = Fixture::new();
    let entry = |id: &str, more: &str| {
        let text = format!("[Desktop Entry]\nName={id}\nExec={id}\n{more}\n");
        fixture.write(&format!("data/applications/{id}.desktop"), &text);
    };
    entry("chat", "");
    entry("keyring", "NoDisplay=true");
    fixture.unit("/app.slice/app-chat@autostart.service", &[501]);
    fixture.unit("/app.slice/app-keyring@autostart.service", &[502]);
    fixture.unit("/app.slice/dbus-:1.2-org.x.Settings@0.service", &[503]);
    let mut source = fixture.source(Classes::default());
    let found = fixture.look(&mut source);
    assert_eq!(why(&found, "chat"), None);
    assert!(why(&found, "keyring")
        .unwrap()
        .contains("started with the session"));
    assert!(why(&found, "org.x.Settings")
        .unwrap()
        .contains("message bus"));
    // An app that was topmost is not a service.
    let settings = found.iter().find(|found| pids(found) == [503]).unwrap();
    source.was_topmost(&settings.app);
    let found = fixture.look(&mut source);
    assert_eq!(why(&found, "org.x.Settings"), None);
}

#[test]
fn use_by_any_process_counts_for_its_app() {
    let fixture = Fixture::new();
    fixture.unit("/app.slice/app-player-1.scope", &[601, 602, 603]);
    fixture.unit("/app.slice/app-idle-1.scope", &[604]);
    fixture.write("inhibit/1", "WHAT=sleep\nMODE=block\nPID=602\n");
    fixture.write(
        "proc/asound/card0/pcm0p/sub0/status",
        "state: RUNNING\nowner_pid   : 603\n",
    );
    let announced = [
        (id(601), Use::Unsaved),
        // The process id was reused.
        (
            ProcessId {
                pid: 604,
                starttime: 1,
            },
            Use::Visible,
        ),
    ];
    let mut source = fixture.source(Classes::default());
    let found = source.look(&fixture.system, &[], &announced, Duration::ZERO);
    let found = found.unwrap();
    let uses = |name: &str| {
        &found
            .iter()
            .find(|found| found.app.name == name)
            .unwrap()
            .uses
    };
    assert_eq!(*uses("player"), [Use::Audio, Use::Inhibitor, Use::Unsaved]);
    assert_eq!(*uses("idle"), []);
}

#[test]
fn second_scan_waits_until_it_is_due() {
    let fixture = Fixture::new();
    let mut source = fixture.source(Classes::default());
    let at = Duration::from_secs(1);
    assert!(source.is_due(at));
    fixture.look(&mut source);
    assert!(!source.is_due(at + LOOK_EVERY / 2));
    assert!(source.is_due(at + LOOK_EVERY));
    source.set_classes(Classes::default());
    assert!(source.is_due(at));
}

/// Lets a process run the program `name` in a directory of the fixture, which belongs to root.
fn run_installed(fixture: &Fixture, pid: i32, comm: &str, name: &str) {
    fixture.process(pid, 1, comm, 1000);
    fixture.write(name, "");
    let program = fixture.temp.path().join(name);
    let exe = fixture.temp.path().join(format!("proc/{pid}/exe"));
    fs::remove_file(&exe).unwrap();
    symlink(&program, exe).unwrap();
}

/// Desktops start an input method like an app that the user chose to start with the session.
#[test]
fn input_method_is_exempt_although_it_has_a_menu_entry() {
    let fixture = Fixture::new();
    let entry = "[Desktop Entry]\nName=Fcitx 5\nExec=fcitx5\n";
    fixture.write("data/applications/org.fcitx.Fcitx5.desktop", entry);
    let unit = format!("{USER}/app-org.fcitx.Fcitx5@autostart.service");
    fixture.unit(&unit, &[710]);
    assert_eq!(why(&fixture.look_anew(), "Fcitx 5"), None);
    run_installed(&fixture, 710, "fcitx5", "fcitx5");
    let why = why(&fixture.look_anew(), "Fcitx 5").unwrap_or_default();
    assert!(why.contains("which other apps need"), "{why}");
}

/// Lets a process run a Python script of the fixture, which belongs to root.
fn run_script(
    fixture: &Fixture,
    pid: i32,
    parent: i32,
    comm: &str,
    script: &str,
) -> std::path::PathBuf {
    run_installed(fixture, pid, comm, "python3.13");
    fixture.process(pid, parent, comm, 1000);
    fixture.write(script, "");
    let script = fixture.temp.path().join(script);
    let arguments = format!("python3\0-s\0{}\0--flag\0", script.display());
    fixture.write(&format!("proc/{pid}/cmdline"), &arguments);
    script
}

#[test]
fn on_screen_keyboard_that_is_a_python_script_is_exempt() {
    let fixture = Fixture::new();
    let all = ["keyboard", "code", "renamed", "theirs", "locker"];
    for (pid, name) in (740..).zip(all) {
        fixture.unit(&format!("/app.slice/app-{name}-1.scope"), &[pid]);
    }
    run_script(&fixture, 740, 1, "onboard", "bin/onboard");
    run_script(&fixture, 741, 1, "onboard", "bin/onboard");
    fixture.write("proc/741/cmdline", "python3\0-Ic\0pass\0");
    run_script(&fixture, 742, 1, "onboard", "bin/other");
    let theirs = run_script(&fixture, 743, 1, "onboard", "home/onboard");
    let chowned = std::os::unix::fs::chown(theirs, Some(1000), None).is_ok();
    // Only input methods count.
    run_script(&fixture, 744, 1, "swaylock", "bin/swaylock");
    let found = fixture.look_anew();
    let reason = why(&found, "keyboard").unwrap_or_default();
    assert!(reason.contains("which other apps need"), "{reason}");
    for name in ["code", "renamed", "locker"] {
        assert_eq!(why(&found, name), None, "{name}");
    }
    if chowned {
        assert_eq!(why(&found, "theirs"), None);
    }
}

#[test]
fn ibus_engine_that_is_a_python_script_is_exempt() {
    let fixture = Fixture::new();
    run_installed(&fixture, 750, "ibus-daemon", "ibus-daemon");
    fixture.process(751, 1, "ibus-daemon", 1000);
    let (engine, other) = ("share/ibus-anthy/engine/main.py", "share/app/main.py");
    for (pid, name, parent, script) in [
        (752, "engine", 750, engine),
        (753, "unrelated", 1, engine),
        // A program of the user with ibus's name.
        (754, "theirs", 751, engine),
        (755, "other", 750, other),
    ] {
        fixture.unit(&format!("/app.slice/app-{name}-1.scope"), &[pid]);
        run_script(&fixture, pid, parent, "python3", script);
    }
    let found = fixture.look_anew();
    let reason = why(&found, "engine").unwrap_or_default();
    assert!(reason.contains("which other apps need"), "{reason}");
    for name in ["unrelated", "theirs", "other"] {
        assert_eq!(why(&found, name), None, "{name}");
    }
}

/// `pipewire-pulse` is a link to `pipewire`. Its process has the name of the link.
#[test]
fn program_started_through_a_link_of_root_is_exempt() {
    let fixture = Fixture::new();
    for (pid, name) in [
        (720, "linked"),
        (721, "unlinked"),
        (722, "theirs"),
        (723, "elsewhere"),
    ] {
        fixture.unit(&format!("/app.slice/app-{name}-1.scope"), &[pid]);
        run_installed(&fixture, pid, "pipewire-pulse", &format!("{name}/pipewire"));
    }
    let link = |directory: &str, to: &str| {
        let link = fixture.temp.path().join(directory).join("pipewire-pulse");
        symlink(to, &link).unwrap();
        link
    };
    link("linked", "pipewire");
    let theirs = link("theirs", "pipewire");
    let chowned = std::os::unix::fs::lchown(theirs, Some(1000), None).is_ok();
    link("elsewhere", "../linked/pipewire");
    // An upgrade has replaced the program that runs.
    fixture.unit("/app.slice/app-upgraded-1.scope", &[724]);
    let deleted = "upgraded/pipewire (deleted)";
    run_installed(&fixture, 724, "pipewire-pulse", deleted);
    fixture.write("upgraded/pipewire", "");
    link("upgraded", "pipewire");
    let mut source = fixture.source(Classes::default());
    let helpers = ["pipewire-pulse".to_owned()];
    let found = source.look(&fixture.system, &helpers, &[], Duration::from_secs(1));
    let found = found.unwrap();
    for name in ["linked", "upgraded"] {
        let why = why(&found, name).unwrap_or_default();
        assert!(why.contains("which other apps need"), "{name}: {why}");
    }
    assert_eq!(why(&found, "unlinked"), None);
    assert_eq!(why(&found, "elsewhere"), None);
    if chowned {
        assert_eq!(why(&found, "theirs"), None);
    }
}

/// The program of a script is its interpreter, and a user's script can take any name.
#[test]
fn package_manager_that_is_a_script_counts_if_root_runs_it() {
    let fixture = Fixture::new();
    fixture.unit("/app.slice/app-root-1.scope", &[730]);
    fixture.unit("/app.slice/app-user-1.scope", &[731]);
    fixture.process(730, 1, "dnf", 0);
    fixture.process(731, 1, "dnf", 1000);
    let found = fixture.look_anew();
    let uses = |pid| app_with(&found, pid).unwrap().uses.clone();
    assert_eq!(uses(730), [Use::Packages]);
    assert_eq!(uses(731), []);
    // The user has started a program of root through a link of that name.
    let uids = "Tgid:\t731\nUid:\t1000\t0\t0\t0\n";
    fixture.write("proc/731/status", uids);
    assert_eq!(app_with(&fixture.look_anew(), 731).unwrap().uses, []);
}
