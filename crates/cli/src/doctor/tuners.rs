// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds other software that sets the same knobs. Limelight leaves a value alone that other
//! software has changed, so that two tuners do not fight. But then neither has the effect that its
//! user expects.

use limelight_sys::proc::Proc;

use super::Findings;

/// A known tuner: its process name, its effect, and advice.
struct Tuner {
    name: &'static str,
    does: &'static str,
    advice: &'static str,
}

const HARMLESS: &str = "works well beside Limelight";
const SAME: &str = "raises programs from a list, as boost raises the foreground app; limelightd \
                    leaves its changes alone. Run only one of the two";

const KNOWN: [Tuner; 10] = [
    Tuner {
        name: "gamemoded",
        does: "favours a game that requests it, until the game ends",
        advice: HARMLESS,
    },
    Tuner {
        name: "ananicy",
        does: "sets nice values, I/O classes and oom_score_adj again and again",
        advice: SAME,
    },
    Tuner {
        name: "ananicy-cpp",
        does: "sets nice values, I/O classes and oom_score_adj again and again",
        advice: SAME,
    },
    Tuner {
        name: "system76-scheduler",
        does: "sets nice values and I/O classes, also those of the foreground app",
        advice: SAME,
    },
    Tuner {
        name: "tuned",
        does: "sets sysctls, disks' read-ahead and CPU governors by profile",
        advice: HARMLESS,
    },
    Tuner {
        name: "preload",
        does: "reads frequently started programs ahead",
        advice: "readahead does the same from recorded starts. Run only one of the two",
    },
    Tuner {
        name: "prelockd",
        does: "locks the desktop's programs and libraries in memory permanently",
        advice: "the memory that it locks is not available to the foreground app",
    },
    Tuner {
        name: "memavaild",
        does: "moves apps to swap by its own rules when memory runs short",
        advice: "swap does the same by class. Run only one of the two",
    },
    Tuner {
        name: "cgrulesengd",
        does: "moves processes between cgroups by rules",
        advice: "the memory of a moved app stays charged to its old cgroup",
    },
    Tuner {
        name: "auto-cpufreq",
        does: "sets CPU governors by load",
        advice: HARMLESS,
    },
];

/// Longest process name that the kernel keeps, in bytes.
const COMM_MAX: usize = 15;

/// One finding for each running tuner, or one that says that none runs.
pub fn examine(proc: &Proc, findings: &mut Findings) {
    let tree = proc.tree().unwrap_or_default();
    let mut any = false;
    for stat in tree.iter() {
        let by_name = |tuner: &&Tuner| {
            let kept = tuner.name.get(..COMM_MAX).unwrap_or(tuner.name);
            stat.comm == kept
        };
        let tuner = KNOWN.iter().find(by_name).or_else(|| {
            // Some tuners are Python programs, and have the process name of the interpreter.
            let script = stat.comm.starts_with("python");
            let arguments = script.then(|| proc.process(stat.pid).and_then(|one| one.cmdline()));
            let arguments = arguments?.ok()?;
            let script = arguments.get(1)?.rsplit('/').next()?;
            KNOWN.iter().find(|tuner| tuner.name == script)
        });
        if let Some(Tuner { name, does, advice }) = tuner {
            any = true;
            findings.note(
                &format!("tuner {name}"),
                format!("pid {}: {does}; {advice}", stat.pid),
            );
        }
    }
    if !any {
        findings.note(
            "tuners",
            "no other known program tunes this machine for its apps",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn examined(processes: &[(&str, &str)]) -> Vec<(String, String)> {
        let root = tempfile::tempdir().unwrap();
        for (at, (comm, arguments)) in processes.iter().enumerate() {
            let pid = at + 5;
            let folder = root.path().join(pid.to_string());
            fs::create_dir(&folder).unwrap();
            let stat = format!("{pid} ({comm}) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
            fs::write(folder.join("stat"), stat).unwrap();
            fs::write(folder.join("cmdline"), arguments).unwrap();
        }
        let proc = Proc::open(root.path().to_str().unwrap()).unwrap();
        let mut findings = Findings::default();
        examine(&proc, &mut findings);
        let list = findings.list.into_iter();
        list.map(|one| (one.check, one.detail)).collect()
    }

    #[test]
    fn tuners_are_found_by_name_and_by_script() {
        let found = examined(&[
            ("bash", "bash\0"),
            ("system76-schedu", "/usr/bin/system76-scheduler\0daemon\0"),
            ("python3", "/usr/bin/python3\0/usr/bin/ananicy\0start\0"),
            ("python3", "python3\0/usr/bin/backup\0"),
            ("gamemoded", "gamemoded\0"),
        ]);
        let names: Vec<&str> = found.iter().map(|(check, _)| check.as_str()).collect();
        assert_eq!(
            names,
            [
                "tuner system76-scheduler",
                "tuner ananicy",
                "tuner gamemoded"
            ]
        );
        assert!(found[0].1.starts_with("pid 6: "), "{found:?}");
        assert!(found[0].1.contains("Run only one of the two"), "{found:?}");
    }

    #[test]
    fn absence_of_tuners_is_reported() {
        let found = examined(&[("bash", "bash\0")]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "tuners");
    }
}
