// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether the test can show something on this machine, and is harmless there.

use std::path::Path;

use limelight_sys::cgroup::{CgroupPath, Hierarchy};
use limelight_sys::controllers::Lack;
use limelight_sys::meminfo::MemInfo;
use limelight_sys::proc::Proc;

use super::{failed, LIMIT, LOAD, PHOTOS};
use crate::exit::Failure;
use crate::format::bytes;

/// Share of memory that must be available, in percent. Below a fifth, limelightd counts reads back
/// into memory, which the test causes, as a sign of shortage.
const AVAILABLE_PERCENT: u64 = 25;

/// Checks memory controller, memory and disk.
pub fn check(proc: &Proc, directory: &Path) -> Result<(), Failure> {
    controller(proc)?;
    memory(&proc.meminfo().map_err(failed)?)?;
    let stat = rustix::fs::statvfs(directory).map_err(|errno| Failure::Curable {
        message: format!("cannot use the directory {}: {errno}", directory.display()),
        cure: "name another one: limelight selftest --directory DIR".to_owned(),
    })?;
    disk(directory, stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn controller(proc: &Proc) -> Result<(), Failure> {
    let hierarchy = Hierarchy::find(proc).map_err(|error| Failure::Curable {
        message: format!("the test needs cgroup v2: {error}"),
        cure: "mount it (mount -t cgroup2 none /sys/fs/cgroup), or boot with \
               systemd.unified_cgroup_hierarchy=1"
            .to_owned(),
    })?;
    let root = hierarchy.open(&CgroupPath::root()).map_err(failed)?;
    let controllers = root.controllers().map_err(failed)?;
    if controllers.iter().any(|name| name == "memory") {
        return Ok(());
    }
    let lack = proc.lack_of("memory").unwrap_or(Lack::Hidden);
    let mount_point = hierarchy.mount_point().display();
    Err(Failure::Curable {
        message: format!("cgroup v2 at {mount_point} has no memory controller: {lack}"),
        cure: lack.cure().to_owned(),
    })
}

fn memory(memory: &MemInfo) -> Result<(), Failure> {
    let total = memory.total_bytes.unwrap_or(0);
    let available = memory.available_bytes.unwrap_or(0);
    let needed = (2 * LIMIT).max(total / 100 * AVAILABLE_PERCENT);
    if available >= needed {
        return Ok(());
    }
    Err(Failure::Curable {
        message: format!(
            "only {} of memory are available, and the test needs {} in order to harm no app",
            bytes(available),
            bytes(needed)
        ),
        cure: "close some apps".to_owned(),
    })
}

fn disk(directory: &Path, free: u64) -> Result<(), Failure> {
    let needed = 2 * (PHOTOS + LOAD);
    if free >= needed {
        return Ok(());
    }
    Err(Failure::Curable {
        message: format!(
            "only {} are free in {}, and the test needs {}",
            bytes(free),
            directory.display(),
            bytes(needed)
        ),
        cure: "name a directory on another disk: limelight selftest --directory DIR".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MIB: u64 = 1 << 20;

    fn refusal(result: Result<(), Failure>) -> String {
        result.unwrap_err().to_string()
    }

    /// A machine whose root cgroup has these controllers.
    fn machine(controllers: &str) -> (tempfile::TempDir, Proc) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().display().to_string();
        fs::create_dir(temp.path().join("1")).unwrap();
        let mount = format!("30 1 0:26 / {root} rw - cgroup2 cgroup2 rw\n");
        fs::write(temp.path().join("1/mountinfo"), mount).unwrap();
        let v1 = "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t9\t1\n";
        fs::write(temp.path().join("cgroups"), v1).unwrap();
        fs::write(temp.path().join("cgroup.controllers"), controllers).unwrap();
        let proc = Proc::open(&root).unwrap();
        (temp, proc)
    }

    #[test]
    fn machine_without_memory_controller_is_refused_with_a_reason() {
        let (_temp, proc) = machine("cpu memory io\n");
        controller(&proc).unwrap();
        let (temp, proc) = machine("cpu io\n");
        let reason = refusal(controller(&proc));
        assert!(
            reason.contains("no memory controller: cgroup v1 holds it"),
            "{reason}"
        );
        assert!(reason.contains("cgroup_no_v1=memory"), "{reason}");
        fs::write(temp.path().join("1/mountinfo"), "").unwrap();
        assert!(refusal(controller(&proc)).contains("needs cgroup v2"));
    }

    #[test]
    fn memory_that_other_apps_need_is_left_alone() {
        let memory = |total, available| {
            super::memory(&MemInfo {
                total_bytes: Some(total * MIB),
                available_bytes: Some(available * MIB),
                ..MemInfo::default()
            })
        };
        memory(512, 130).unwrap();
        assert!(refusal(memory(512, 120)).contains("needs 128 MiB"));
        memory(8000, 2001).unwrap();
        assert!(refusal(memory(8000, 1900)).contains("close some apps"));
        assert!(super::memory(&MemInfo::default()).is_err());
    }

    #[test]
    fn full_or_missing_directory_is_named() {
        disk(Path::new("/d"), 300 * MIB).unwrap();
        let reason = refusal(disk(Path::new("/d"), 150 * MIB));
        assert!(
            reason.contains("150 MiB are free in /d") && reason.contains("192 MiB"),
            "{reason}"
        );
    }
}
