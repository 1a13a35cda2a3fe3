// SPDX-License-Identifier: GPL-2.0-or-later
//! Detects the CPU and I/O schedulers of this machine. They determine which weights and priorities
//! have an effect.

use std::fs::File;
use std::io::{BufRead, BufReader};

use rustix::fs::OFlags;

use crate::cgroup::{CgroupPath, Hierarchy};
use crate::dir::Dir;
use crate::proc::Proc;

/// A disk and its I/O scheduling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Name, such as `vda`.
    pub name: String,
    /// Its I/O scheduler: `bfq`, `mq-deadline`, `kyber`, `none`.
    pub scheduler: String,
    /// Whether iocost distributes the time of the disk by `io.weight`.
    pub cost: bool,
}

/// Name of the active sched_ext scheduler; `None` if the kernel's own scheduler is active. Reads
/// `kernel/sched_ext` below a sysfs root.
pub fn sched_ext(sys: &Dir) -> Option<String> {
    let state = sys.read_text("kernel/sched_ext/state").ok()?;
    if state.trim() != "enabled" {
        return None;
    }
    let name = sys.read_text("kernel/sched_ext/root/ops");
    Some(match name {
        Ok(name) if !name.trim().is_empty() => name.trim().to_owned(),
        _ => "(unnamed)".to_owned(),
    })
}

/// Whether each session is a scheduling group (`kernel.sched_autogroup_enabled`).
pub fn autogroup(proc: &Proc) -> bool {
    let text = proc.dir().read_text("sys/kernel/sched_autogroup_enabled");
    text.is_ok_and(|text| text.trim() == "1")
}

/// Whether the kernel grants real-time CPU time per group (`CONFIG_RT_GROUP_SCHED`). No file of
/// cgroup v2 reports it, so the kernel symbols are searched for the kernel function that changes a
/// group's share. Since Linux 6.15 the feature can be disabled at boot (`rt_group_sched=`), which
/// is not checked.
pub fn realtime_groups(proc: &Proc) -> bool {
    let Ok(symbols) = proc.dir().open_at("kallsyms", OFlags::RDONLY, "read") else {
        return false;
    };
    // There are several hundred thousand symbols, so reading line by line saves memory.
    let mut symbols = BufReader::new(File::from(symbols));
    let mut line = Vec::new();
    while symbols
        .read_until(b'\n', &mut line)
        .is_ok_and(|length| length > 0)
    {
        if line
            .trim_ascii_end()
            .ends_with(b" sched_group_set_rt_runtime")
        {
            return true;
        }
        line.clear();
    }
    false
}

/// All real disks. Their schedulers come from a sysfs root, the use of iocost from the root of the
/// cgroup hierarchy. Leaves out devices that keep their data in memory or pass requests to other
/// devices, because their scheduler has no effect.
pub fn disks(sys: &Dir, hierarchy: &Hierarchy) -> Vec<Disk> {
    let costed = hierarchy
        .open(&CgroupPath::root())
        .and_then(|root| root.dir().read_text("io.cost.qos"))
        .map(|text| parse_cost(&text))
        .unwrap_or_default();
    let names = sys.open_dir("class/block").and_then(|dir| dir.names());
    let Ok(mut names) = names else {
        return Vec::new();
    };
    names.sort();
    let passed_over = ["loop", "ram", "zram", "dm-", "md"];
    let real = |name: &&String| !passed_over.iter().any(|prefix| name.starts_with(prefix));
    let read = |name: &String| {
        // `class/block/NAME` is a symbolic link, which `Dir::open_dir()` would not follow.
        let link = sys.path().join("class/block").join(name);
        let disk = Dir::open(link).ok()?;
        let schedulers = disk.read_text("queue/scheduler").ok()?;
        let device = disk.read_text("dev").unwrap_or_default();
        Some(Disk {
            name: name.clone(),
            scheduler: chosen(&schedulers).to_owned(),
            cost: costed.iter().any(|known| known == device.trim()),
        })
    };
    names.iter().filter(real).filter_map(read).collect()
}

/// The word in brackets in text such as `none [mq-deadline] bfq`.
fn chosen(text: &str) -> &str {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text.trim(), |(word, _)| word)
}

/// Devices with `enable=1` in `io.cost.qos`, as `MAJOR:MINOR`.
pub fn parse_cost(text: &str) -> Vec<String> {
    let enabled = |line: &&str| line.split_ascii_whitespace().any(|word| word == "enable=1");
    text.lines()
        .filter(enabled)
        .filter_map(|line| Some(line.split_ascii_whitespace().next()?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn sched_ext_scheduler_is_reported_only_while_enabled() {
        let temp = tempfile::tempdir().unwrap();
        let sys = Dir::open(temp.path()).unwrap();
        assert_eq!(sched_ext(&sys), None);
        write(temp.path(), "kernel/sched_ext/state", "disabled\n");
        assert_eq!(sched_ext(&sys), None);
        write(temp.path(), "kernel/sched_ext/state", "enabled\n");
        write(temp.path(), "kernel/sched_ext/root/ops", "lavd_1.0.5\n");
        assert_eq!(sched_ext(&sys).as_deref(), Some("lavd_1.0.5"));
    }

    #[test]
    fn realtime_groups_are_detected_by_a_kernel_function() {
        let temp = tempfile::tempdir().unwrap();
        let proc = Proc::open(temp.path().to_str().unwrap()).unwrap();
        assert!(!realtime_groups(&proc));
        let others =
            "0000000000000000 T schedule\n0000000000000000 T __pfx_sched_group_set_rt_runtime\n";
        write(temp.path(), "kallsyms", others);
        assert!(!realtime_groups(&proc));
        let all = format!("{others}0000000000000000 T sched_group_set_rt_runtime\n");
        write(temp.path(), "kallsyms", &all);
        assert!(realtime_groups(&proc));
    }

    #[test]
    fn disks_report_their_scheduler() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        for (name, schedulers, device) in [
            ("vda", "[none] mq-deadline bfq\n", "254:0\n"),
            ("sda", "none mq-deadline [bfq]\n", "8:0\n"),
            ("zram0", "[none]\n", "253:0\n"),
        ] {
            let disk = format!("sys/class/block/{name}");
            write(root, &format!("{disk}/queue/scheduler"), schedulers);
            write(root, &format!("{disk}/dev"), device);
        }
        write(root, "sys/class/block/vda1/dev", "254:1\n");
        let qos = "254:0 enable=1 ctrl=auto rpct=0.00\n8:0 enable=0 ctrl=auto\n";
        write(root, "cgroup/io.cost.qos", qos);
        let sys = Dir::open(root.join("sys")).unwrap();
        let hierarchy = Hierarchy::at(root.join("cgroup")).unwrap();
        let disk = |name: &str, scheduler: &str, cost| Disk {
            name: name.into(),
            scheduler: scheduler.into(),
            cost,
        };
        let expected = [disk("sda", "bfq", false), disk("vda", "none", true)];
        assert_eq!(disks(&sys, &hierarchy), expected);
    }
}
