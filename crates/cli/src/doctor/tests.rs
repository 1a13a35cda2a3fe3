// SPDX-License-Identifier: GPL-2.0-or-later
//! The doctor on simulated machines.

use super::findings::Verdict;
use super::*;
use limelight_proto::{MechanismId, Request, Response, Status};
use std::fs;

struct Fake {
    root: tempfile::TempDir,
}

impl Fake {
    /// A machine that lacks only the daemon: Linux 6.12, MGLRU, PSI, zram, and pid 7 in
    /// `/user.slice/app.scope`.
    fn sound() -> Self {
        let fake = Fake {
            root: tempfile::tempdir().unwrap(),
        };
        let cgroup = fake.path("cgroup");
        fake.write("proc/sys/kernel/osrelease", "6.12.117-limelight\n");
        fake.write("proc/sys/fs/fanotify/max_user_groups", "128\n");
        fake.write("proc/kpagecgroup", "");
        fake.write("dev/pts/ptmx", "");
        fake.write(
            "proc/1/mountinfo",
            &format!("1 0 0:1 / {} rw - cgroup2 none rw\n", cgroup.display()),
        );
        fake.write("proc/7/cgroup", "0::/user.slice/app.scope\n");
        fake.write("proc/8/cgroup", "0::/\n");
        fake.write(
            "proc/pressure/memory",
            "some avg10=0.50 avg60=0.00 avg300=0.00 total=9\n",
        );
        fake.write(
            "proc/swaps",
            "Filename Type Size Used Priority\n/dev/zram0 partition 131068 0 100\n",
        );
        fake.write("sys/kernel/mm/lru_gen/enabled", "0x0007\n");
        fake.write("sys/class/block/sda/queue/scheduler", "none [bfq]\n");
        for group in ["", "user.slice/", "user.slice/app.scope/"] {
            fake.write(&format!("cgroup/{group}cgroup.procs"), "");
            fake.write(&format!("cgroup/{group}cgroup.controllers"), "cpu memory\n");
            if !group.is_empty() {
                for file in [
                    "memory.high",
                    "memory.swap.max",
                    "memory.reclaim",
                    "cgroup.freeze",
                    "cgroup.kill",
                ] {
                    fake.write(&format!("cgroup/{group}{file}"), "");
                }
                fake.write(&format!("cgroup/{group}memory.min"), "0\n");
                fake.write(&format!("cgroup/{group}cpu.weight"), "100\n");
                fake.write(&format!("cgroup/{group}io.stat"), "");
                fake.write(&format!("cgroup/{group}io.bfq.weight"), "default 100\n");
            }
        }
        fake
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn examine(&self, pid: i32) -> Vec<Finding> {
        self.report(pid).checks
    }

    fn report(&self, pid: i32) -> Report {
        examine(&self.machine(pid))
    }

    fn machine(&self, pid: i32) -> Machine {
        Machine {
            proc: self.path("proc"),
            sys: self.path("sys"),
            device: self.path("limelight"),
            input: self.path("input"),
            root: self.path(""),
            socket: self.path("control.sock"),
            patience: std::time::Duration::from_secs(5),
            pid: Some(pid),
            library: Ok("/usr/lib/limelight/liblimelight-premap.so".into()),
            off: Vec::new(),
        }
    }

    fn finding(&self, check: &str) -> Finding {
        let findings = self.examine(7);
        findings
            .into_iter()
            .find(|finding| finding.check == check)
            .expect(check)
    }
}

#[test]
fn complete_machine_lacks_only_the_daemon() {
    let report = Fake::sound().report(7);
    let all = || report.mechanisms.iter().chain(&report.checks);
    let trouble: Vec<&str> = all()
        .filter(|finding| finding.state.is_trouble())
        .map(|finding| finding.check.as_str())
        .collect();
    assert_eq!(trouble, ["daemon"], "{report:#?}");
    assert!(all().all(|f| f.cure.is_some() == f.state.is_trouble() && !f.part.is_empty()));
    assert_eq!(report.exit_code(false), 3);
}

#[test]
fn each_mechanism_names_its_means() {
    let fake = Fake::sound();
    let mechanism = |name: &str| {
        let mechanisms = fake.report(7).mechanisms;
        let mut mechanisms = mechanisms.into_iter();
        mechanisms.find(|one| one.part == name).expect(name)
    };
    let protect = mechanism("protect");
    assert_eq!(protect.state, Verdict::Ready);
    assert!(protect.detail.starts_with("memory.min"), "{protect:?}");
    assert_eq!(
        mechanism("boost").detail,
        "cpu.weight, slice, io.weight, ioprio"
    );
    assert!(mechanism("swap").detail.contains("/dev/zram0"));
    // On another kernel, a mechanism of the Limelight kernel is only a note.
    assert_eq!(mechanism("prezero").state, Verdict::Note);
    assert_eq!(mechanism("premap").state, Verdict::Note);
    fs::remove_file(fake.path("cgroup/user.slice/app.scope/memory.min")).unwrap();
    let protect = mechanism("protect");
    assert_eq!(protect.state, Verdict::Inert);
    assert!(protect.cure.unwrap().contains("subtree_control"));
    // Nice values replace an inert weight.
    fs::remove_file(fake.path("cgroup/user.slice/cpu.weight")).unwrap();
    let boost = mechanism("boost");
    assert_eq!(boost.state, Verdict::Ready);
    assert!(boost.detail.starts_with("nice"), "{boost:?}");
}

#[test]
fn io_must_be_delegated_to_the_users_manager() {
    let fake = Fake::sound();
    let group = "user.slice/user-1000.slice/user@1000.service/app.slice";
    fake.write("proc/7/cgroup", &format!("0::/{group}\n"));
    for parent in std::path::Path::new(group).ancestors() {
        let parent = parent.display();
        fake.write(&format!("cgroup/{parent}/memory.min"), "0\n");
        fake.write(&format!("cgroup/{parent}/cpu.weight"), "100\n");
    }
    fake.write("cgroup/user.slice/user-1000.slice/io.stat", "");
    let cure = |fake: &Fake| fake.finding("io controller").cure;
    let at_the_manager = cure(&fake).unwrap();
    assert!(
        at_the_manager.contains("IOWeight=100 for user@1000.service"),
        "{at_the_manager}"
    );
    fake.write(
        "cgroup/user.slice/user-1000.slice/user@1000.service/io.stat",
        "",
    );
    let below = cure(&fake).unwrap();
    assert!(below.contains("Delegate=pids memory cpu io"), "{below}");
    let manager = "cgroup/user.slice/user-1000.slice/user@1000.service";
    fake.write(&format!("{manager}/cgroup.procs"), "");
    fake.write(&format!("{manager}/cgroup.controllers"), "cpu io memory\n");
    let handed_on = cure(&fake).unwrap();
    assert!(handed_on.contains("app-.scope.d"), "{handed_on}");
    fake.write(&format!("cgroup/{group}/io.stat"), "");
    assert_eq!(cure(&fake), None);
    assert_eq!(fake.finding("memory controller").state, Verdict::Acts);
}

#[test]
fn default_output_is_one_screen_with_the_findings_that_need_attention() {
    let fake = Fake::sound();
    fake.write(
        "proc/9/stat",
        "9 (gamemoded) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n",
    );
    let report = fake.report(7);
    let text = |all, width, colour| {
        let mut out = Vec::new();
        let paper = crate::format::Paper { width, colour };
        print(&report, all, false, &paper, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let screen = text(false, Some(80), false);
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
    assert!(screen.lines().count() <= 24, "{screen}");
    for part in [
        "Linux 6.12.117-limelight",
        "ready    protect",
        "gamemoded",
        "missing  daemon",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(!screen.contains("page reclaim"));
    assert!(text(true, None, false).contains("page reclaim"));
    assert!(text(false, None, true).contains("\x1b[31mmissing\x1b[0m  daemon"));
}

#[test]
fn missing_squeeze_support_is_reported() {
    let fake = Fake::sound();
    assert_eq!(fake.finding("swap steps").state, Verdict::Acts);
    fs::remove_file(fake.path("cgroup/user.slice/app.scope/memory.reclaim")).unwrap();
    let finding = fake.finding("swap steps");
    assert_eq!(finding.state, Verdict::Inert);
    assert!(finding.detail.contains("cannot be squeezed"), "{finding:?}");
}

#[test]
fn other_killers_are_named_with_their_actions() {
    let fake = Fake::sound();
    let finding = fake.finding("killers");
    assert!(finding.detail.contains("OOM killer"), "{finding:?}");
    fake.write(
        "proc/9/stat",
        "9 (earlyoom) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n",
    );
    fake.write("proc/9/cmdline", "earlyoom\x00-m\x004\x00");
    let finding = fake.finding("killer earlyoom");
    assert_eq!(finding.state, Verdict::Note);
    assert!(
        finding.detail.contains("less than 4 % of memory"),
        "{finding:?}"
    );
    assert!(
        finding.detail.contains("limelightd does not kill"),
        "{finding:?}"
    );
}

#[test]
fn starts_are_not_recorded_without_fanotify() {
    let fake = Fake::sound();
    fs::remove_dir_all(fake.path("proc/sys/fs/fanotify")).unwrap();
    let finding = fake.finding("opened files");
    assert!(finding.detail.contains("starts are not recorded"));
    assert!(finding.cure.unwrap().contains("CONFIG_FANOTIFY"));
}

#[test]
fn window_sources_are_listed_and_optional() {
    let fake = Fake::sound();
    for check in ["input devices", "display frames"] {
        let finding = fake.finding(check);
        assert_eq!(finding.state, Verdict::Note, "{finding:?}");
        assert!(
            finding.detail.contains("has to report windows"),
            "{finding:?}"
        );
    }
    fake.write("input/event0", "");
    fake.write("input/mice", "");
    let finding = fake.finding("input devices");
    assert_eq!(finding.state, Verdict::Acts);
    assert!(finding.detail.starts_with("1 in "), "{finding:?}");
    let tracing = fake.path("tracing");
    let mounts = fs::read_to_string(fake.path("proc/1/mountinfo")).unwrap();
    let mount = format!("2 0 0:2 / {} rw - tracefs none rw\n", tracing.display());
    fake.write("proc/1/mountinfo", &(mounts + &mount));
    fake.write(
        "tracing/events/drm/drm_vblank_event_delivered/enable",
        "0\n",
    );
    let finding = fake.finding("display frames");
    assert_eq!(finding.state, Verdict::Acts, "{finding:?}");
}

#[test]
fn kernel_without_kpagecgroup_is_named() {
    let fake = Fake::sound();
    assert_eq!(fake.finding("shared pages").state, Verdict::Acts);
    fs::remove_file(fake.path("proc/kpagecgroup")).unwrap();
    let finding = fake.finding("shared pages");
    assert!(finding.cure.unwrap().contains("CONFIG_PROC_PAGE_MONITOR"));
}

#[test]
fn page_reclaim_determines_the_memory_knob() {
    let fake = Fake::sound();
    assert!(fake
        .finding("page reclaim")
        .detail
        .contains("memory.min protects"));
    fake.write("sys/kernel/mm/lru_gen/enabled", "0x0000\n");
    assert!(fake
        .finding("page reclaim")
        .detail
        .contains("memory.low protects"));
    fs::remove_dir_all(fake.path("sys/kernel")).unwrap();
    assert!(fake.finding("page reclaim").detail.contains("not built in"));
}

#[test]
fn missing_controller_of_an_ancestor_is_named_with_its_cure() {
    let fake = Fake::sound();
    fs::remove_file(fake.path("cgroup/user.slice/app.scope/memory.min")).unwrap();
    let finding = fake.finding("memory controller");
    assert_eq!(finding.state, Verdict::Inert);
    assert!(
        finding.detail.contains("/user.slice/app.scope"),
        "{finding:?}"
    );
    let cure = finding.cure.unwrap();
    assert!(
        cure.ends_with("cgroup/user.slice/cgroup.subtree_control"),
        "{cure}"
    );
}

#[test]
fn root_cgroup_protects_nothing() {
    let findings = Fake::sound().examine(8);
    let finding = findings
        .iter()
        .find(|f| f.check == "memory controller")
        .unwrap();
    assert_eq!(finding.state, Verdict::Inert);
}

#[test]
fn missing_foreground_app_is_not_a_finding() {
    let fake = Fake::sound();
    // Without a foreground app, the cgroup of this command is examined.
    let report = |cgroup: &str| {
        let file = format!("proc/{}/cgroup", std::process::id());
        fake.write(&file, &format!("0::{cgroup}\n"));
        examine(&Machine {
            pid: None,
            ..fake.machine(7)
        })
    };
    for cgroup in ["/", "/system.slice/ssh.service"] {
        let report = report(cgroup);
        let checks = report.mechanisms.iter().chain(&report.checks);
        let trouble: Vec<_> = checks.filter(|one| one.state.is_trouble()).collect();
        assert_eq!(trouble.len(), 1, "{trouble:#?}");
        assert_eq!(trouble[0].check, "daemon");
        let protect = report.mechanisms.iter().find(|one| one.part == "protect");
        assert!(protect.unwrap().detail.starts_with("memory.min"));
    }
    // In a session, this command has the same controllers as apps.
    fs::remove_file(fake.path("cgroup/user.slice/app.scope/io.stat")).unwrap();
    let checks = report("/user.slice/app.scope").checks;
    let io = checks.iter().find(|one| one.check == "io controller");
    assert_eq!(io.unwrap().state, Verdict::Inert);
}

#[test]
fn dead_process_and_foreign_namespace_are_inert() {
    let fake = Fake::sound();
    let dead = fake.examine(99);
    assert!(dead
        .iter()
        .any(|f| f.check == "memory controller" && f.state == Verdict::Inert));
    fake.write("proc/7/cgroup", "0::/../outside\n");
    assert_eq!(fake.finding("memory controller").state, Verdict::Inert);
}

#[test]
fn missing_kernel_features_are_reported_as_missing() {
    let fake = Fake::sound();
    fs::remove_file(fake.path("proc/pressure/memory")).unwrap();
    assert_eq!(fake.finding("PSI").state, Verdict::Missing);
    fake.write("proc/swaps", "Filename Type Size Used Priority\n");
    assert_eq!(fake.finding("swap").state, Verdict::Note);
    fake.write("cgroup/cgroup.controllers", "cpu\n");
    assert_eq!(fake.finding("memory controller").state, Verdict::Missing);
    for (line, why, cure) in [
        ("memory\t4\t9\t1", "cgroup v1 holds it", "cgroups.json"),
        ("memory\t0\t1\t0", "switched off", "cgroup_disable=memory"),
        ("cpu\t0\t1\t1", "built without it", "CONFIG_MEMCG"),
    ] {
        fake.write("proc/cgroups", &format!("#subsys_name\n{line}\n"));
        let finding = fake.finding("memory controller");
        assert!(finding.detail.contains(why), "{finding:?}");
        assert!(finding.cure.unwrap().contains(cure), "{line}");
    }
    fake.write("proc/1/mountinfo", "1 0 0:1 / /proc rw - proc proc rw\n");
    assert_eq!(fake.finding("cgroup v2").state, Verdict::Missing);
}

#[test]
fn old_kernel_is_inert() {
    let fake = Fake::sound();
    fake.write("proc/sys/kernel/osrelease", "5.15.0-91-generic\n");
    assert_eq!(fake.finding("kernel").state, Verdict::Inert);
}

#[test]
fn regular_file_in_place_of_the_device_is_inert() {
    let fake = Fake::sound();
    fake.write("limelight", "");
    assert_eq!(fake.finding("kernel support").state, Verdict::Inert);
    for mechanism in ["premap", "prezero"] {
        let finding = fake.finding(&format!("{mechanism} kernel"));
        assert!(
            finding.detail.starts_with("unknown whether"),
            "a device that could not be asked is taken for a stock kernel: {finding:?}"
        );
    }
}

#[test]
fn each_knob_of_boost_reports_whether_it_acts() {
    let fake = Fake::sound();
    assert_eq!(fake.finding("boost cpu.weight").state, Verdict::Acts);
    assert_eq!(fake.finding("boost nice").state, Verdict::Note);
    assert_eq!(fake.finding("boost io.weight").state, Verdict::Acts);
    assert_eq!(fake.finding("boost in terminals").state, Verdict::Acts);
    fake.write("sys/class/block/sda/queue/scheduler", "[none] bfq\n");
    let io = fake.finding("boost io.weight");
    assert_eq!(io.state, Verdict::Inert);
    assert!(io.detail.contains("sda: none"), "{io:?}");

    fake.write("sys/kernel/sched_ext/state", "enabled\n");
    fake.write("sys/kernel/sched_ext/root/ops", "lavd\n");
    let weight = fake.finding("boost cpu.weight");
    assert_eq!(weight.state, Verdict::Inert);
    assert!(weight.detail.contains("lavd"), "{weight:?}");
    fake.write("sys/kernel/sched_ext/state", "disabled\n");

    fs::remove_file(fake.path("cgroup/user.slice/cpu.weight")).unwrap();
    let weight = fake.finding("boost cpu.weight");
    assert!(weight.detail.contains("/user.slice"), "{weight:?}");
    assert_eq!(fake.finding("boost nice").state, Verdict::Acts);
    fake.write("proc/sys/kernel/sched_autogroup_enabled", "1\n");
    assert_eq!(fake.finding("boost nice").state, Verdict::Acts);
    assert_eq!(fake.finding("boost autogroup").state, Verdict::Acts);
    // A cgroup above with the cpu controller replaces the autogroup.
    fake.write("cgroup/user.slice/cpu.weight", "100\n");
    fs::remove_file(fake.path("cgroup/user.slice/app.scope/cpu.weight")).unwrap();
    assert_eq!(fake.finding("boost nice").state, Verdict::Acts);
    assert_eq!(fake.finding("boost autogroup").state, Verdict::Note);
}

#[test]
fn realtime_by_group_is_reported_without_a_service_manager() {
    let fake = Fake::sound();
    let named = || {
        let mut all = fake.examine(7).into_iter();
        all.find(|finding| finding.check == "cpu controller handed down")
    };
    assert!(named().is_none());
    fake.write(
        "proc/kallsyms",
        "0000000000000000 T sched_group_set_rt_runtime\n",
    );
    let found = named().unwrap();
    assert_eq!(found.state, Verdict::Inert);
    assert!(found.cure.unwrap().contains("rt_group_sched=0"));
    // Where systemd runs, systemd decides whether the controller is enabled.
    fs::create_dir_all(fake.path("run/systemd/system")).unwrap();
    assert!(named().is_none());
}

/// Checks of what only limelightd knows: its own state, its sources, and the session agents.
const ONLY_WITH_THE_DAEMON: [&str; 11] = [
    "app classes",
    "apps without cgroup",
    "capabilities",
    "knobs",
    "response windows",
    "kernel windows",
    "source session",
    "window source",
    "notifications",
    "sound",
    "video",
];

/// Checks whose result is another one while limelightd runs: it answers, it names the foreground
/// app, and it is the first to kill.
const CHANGED_BY_THE_DAEMON: [&str; 3] = ["daemon", "mechanism foreground", "killers"];

/// Compares the lines of two reports on one machine, and returns those that differ although they
/// are about the same facts. A mechanism that is ready without the daemon acts with it.
fn differences(without: &Report, with: &Report) -> Vec<String> {
    let lines = |report: &Report| -> Vec<Finding> {
        let all = report.mechanisms.iter().chain(&report.checks).cloned();
        all.filter(|one| !CHANGED_BY_THE_DAEMON.contains(&one.check.as_str()))
            .filter(|one| {
                !ONLY_WITH_THE_DAEMON
                    .iter()
                    .any(|name| one.check.starts_with(name))
            })
            .map(|one| match one.state {
                Verdict::Ready => Finding {
                    state: Verdict::Acts,
                    ..one
                },
                _ => one,
            })
            .collect()
    };
    let (without, with) = (lines(without), lines(with));
    let only = |here: &[Finding], there: &[Finding], name: &str| -> Vec<String> {
        let here = here.iter().filter(|one| !there.contains(one));
        here.map(|one| format!("only {name}: {one:?}")).collect()
    };
    let mut found = only(&without, &with, "without the daemon");
    found.extend(only(&with, &without, "with the daemon"));
    found
}

/// The status of a daemon all of whose mechanisms are idle, and whose foreground app, if there is
/// one, has this cgroup and may have it alone.
fn idle_status(front: Option<(&str, bool)>) -> serde_json::Value {
    let mut status = crate::report::tests::status();
    let idle =
        |id: MechanismId| serde_json::json!({ "name": id.name(), "state": "idle", "detail": "" });
    status["mechanisms"] = MechanismId::ALL.map(idle).into();
    match front {
        Some((cgroup, own)) => {
            status["foreground"]["cgroup"] = cgroup.into();
            status["foreground"]["own_cgroup"] = own.into();
        }
        None => status["foreground"] = serde_json::Value::Null,
    }
    status
}

/// A daemon that answers the doctor's two requests.
fn daemon(fake: &Fake, status: serde_json::Value) -> std::thread::JoinHandle<()> {
    use std::io::{BufRead, BufReader, Write};
    let status: Status = serde_json::from_value(status).unwrap();
    let socket = fake.path("control.sock");
    let _ = fs::remove_file(&socket);
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for _ in 0..2 {
            let (stream, _) = listener.accept().unwrap();
            let line = BufReader::new(&stream).lines().next().unwrap().unwrap();
            let answer = match serde_json::from_str(&line).unwrap() {
                Request::Status => Response::Status(Box::new(status.clone())),
                Request::Apps { .. } => Response::Apps {
                    apps: Vec::new(),
                    hidden: None,
                },
                other => panic!("{other:?}"),
            };
            writeln!(&stream, "{}", serde_json::to_string(&answer).unwrap()).unwrap();
        }
    })
}

#[test]
fn same_facts_give_the_same_lines_with_and_without_the_daemon() {
    let remove = |fake: &Fake, path: &str| {
        let path = fake.path(path);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    };
    let frames = |fake: &Fake| {
        let mounts = fs::read_to_string(fake.path("proc/1/mountinfo")).unwrap();
        let tracing = fake.path("tracing");
        let mount = format!("2 0 0:2 / {} rw - tracefs none rw\n", tracing.display());
        fake.write("proc/1/mountinfo", &(mounts + &mount));
        let event = "tracing/events/drm/drm_vblank_event_delivered/enable";
        fake.write(event, "0\n");
    };
    type Change<'a> = (&'a str, &'a dyn Fn(&Fake));
    let machines: [Change<'_>; 12] = [
        ("complete", &|_| ()),
        ("old kernel", &|fake| {
            fake.write("proc/sys/kernel/osrelease", "5.15.0-91-generic\n");
        }),
        ("two-list LRU", &|fake| {
            fake.write("sys/kernel/mm/lru_gen/enabled", "0x0000\n");
        }),
        ("no cgroup v2", &|fake| {
            let mounts = "1 0 0:1 / /proc rw - proc proc rw\n";
            fake.write("proc/1/mountinfo", mounts);
        }),
        ("no memory controller", &|fake| {
            fake.write("cgroup/cgroup.controllers", "cpu\n");
        }),
        ("memory not enabled for the app", &|fake| {
            remove(fake, "cgroup/user.slice/app.scope/memory.min");
        }),
        ("no cpu.weight, no squeezing, no disk scheduler", &|fake| {
            remove(fake, "cgroup/user.slice/cpu.weight");
            remove(fake, "cgroup/user.slice/app.scope/memory.reclaim");
            fake.write("sys/class/block/sda/queue/scheduler", "[none]\n");
        }),
        ("no PSI, no swap", &|fake| {
            remove(fake, "proc/pressure/memory");
            fake.write("proc/swaps", "Filename Type Size Used Priority\n");
        }),
        ("no fanotify, no kpagecgroup, no terminals", &|fake| {
            remove(fake, "proc/sys/fs/fanotify");
            remove(fake, "proc/kpagecgroup");
            remove(fake, "dev/pts");
        }),
        ("realtime by group", &|fake| {
            let symbol = "0000000000000000 T sched_group_set_rt_runtime\n";
            fake.write("proc/kallsyms", symbol);
        }),
        ("frames without input", &frames),
        ("input and frames", &|fake| {
            fake.write("input/event0", "");
            frames(fake);
        }),
    ];
    for (machine, change) in machines {
        for front in [
            None,
            Some(("/user.slice/app.scope", true)),
            // The named process is in another cgroup than this app.
            Some(("/user.slice", false)),
        ] {
            let fake = Fake::sound();
            change(&fake);
            let without = fake.report(7);
            let daemon = daemon(&fake, idle_status(front));
            let with = fake.report(7);
            daemon.join().unwrap();
            assert!(with.daemon_runs && !without.daemon_runs);
            let mut differ = differences(&without, &with);
            // Whether a source reports windows for the foreground app is known to the daemon only.
            if front.is_some() {
                differ.retain(|line| !line.contains("\"mechanism windows\""));
            }
            assert!(differ.is_empty(), "{machine}, {front:?}: {differ:#?}");
        }
    }
}

#[test]
fn missing_frames_are_a_fault_only_while_the_daemon_knows_no_other_source() {
    let fake = Fake::sound();
    fake.write("input/event0", "");
    let windows = |report: &Report| {
        let mut all = report.mechanisms.iter();
        let found = all.find(|one| one.check == "mechanism windows");
        found.map(|one| one.state).unwrap()
    };
    assert_eq!(windows(&fake.report(7)), Verdict::Note);
    let daemon = daemon(&fake, idle_status(None));
    assert_eq!(windows(&fake.report(7)), Verdict::Inert);
    daemon.join().unwrap();
}

#[test]
fn foreground_app_has_the_lines_of_this_command_in_the_same_cgroup() {
    for (cgroup, front) in [
        (
            "/user.slice/app.scope",
            Some(("/user.slice/app.scope", true)),
        ),
        ("/system.slice/ssh.service", None),
    ] {
        let fake = Fake::sound();
        let file = format!("proc/{}/cgroup", std::process::id());
        fake.write(&file, &format!("0::{cgroup}\n"));
        let report = || {
            examine(&Machine {
                pid: None,
                ..fake.machine(7)
            })
        };
        let without = report();
        let daemon = daemon(&fake, idle_status(front));
        let with = report();
        daemon.join().unwrap();
        let mut differ = differences(&without, &with);
        // These lines say whose cgroup it is.
        differ.retain(|line| !line.contains(" controller\""));
        assert!(differ.is_empty(), "{cgroup}: {differ:#?}");
    }
}

#[test]
fn configuration_switches_mechanisms_off_with_and_without_the_daemon() {
    let fake = Fake::sound();
    let report = || {
        examine(&Machine {
            off: vec!["protect", "swap", "windows"],
            ..fake.machine(7)
        })
    };
    let without = report();
    let mut status = idle_status(None);
    for mechanism in status["mechanisms"].as_array_mut().unwrap() {
        if ["protect", "swap"].contains(&mechanism["name"].as_str().unwrap()) {
            mechanism["state"] = "off".into();
            mechanism["detail"] = "memory.min".into();
        }
    }
    status["window"]["state"] = "off".into();
    let daemon = daemon(&fake, status);
    let with = report();
    daemon.join().unwrap();
    assert_eq!(differences(&without, &with), Vec::<String>::new());
    let off = |report: &Report| -> Vec<String> {
        let all = report.mechanisms.iter();
        let off = all.filter(|one| one.state == Verdict::Off);
        off.map(|one| one.detail.clone()).collect()
    };
    let expected = ["protect", "swap", "window"]
        .map(|name| format!("switched off by the configuration ([{name}] enabled)"));
    assert_eq!(off(&without), expected);
}
