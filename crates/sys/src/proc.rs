// SPDX-License-Identifier: GPL-2.0-or-later
//! `/proc`: the processes and the machine's memory.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::keyed::Keyed;
use crate::meminfo::{parse_swaps, MemInfo, SwapArea};
use crate::mountinfo::{self, Mount};
use crate::process::{Process, Stat};
use crate::tree::ProcessTree;

/// Path of our own mountinfo. Uses the pid, because `self` is a symbolic link, which `Dir` does not
/// follow.
fn own_mounts() -> String {
    format!("{}/mountinfo", std::process::id())
}

/// An open procfs.
#[derive(Debug)]
pub struct Proc {
    dir: Dir,
}

impl Proc {
    /// Opens a procfs, usually at `/proc`.
    pub fn open(path: &str) -> Result<Self> {
        Ok(Proc {
            dir: Dir::open(path)?,
        })
    }

    /// The directory of the procfs.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Opens one process; [`crate::error::Error::Gone`] if there is no process with that pid.
    pub fn process(&self, pid: i32) -> Result<Process> {
        Ok(Process::new(pid, self.dir.open_dir(pid.to_string())?))
    }

    /// Pids of all processes, ascending.
    pub fn pids(&self) -> Result<Vec<i32>> {
        let names = self.dir.names()?;
        let mut pids: Vec<i32> = names.iter().filter_map(|name| parse_pid(name)).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// All processes with their parents. Processes that exit during the scan are left out.
    pub fn tree(&self) -> Result<ProcessTree> {
        let mut stats = Vec::new();
        for pid in self.pids()? {
            stats.extend(self.stat(pid)?);
        }
        Ok(ProcessTree::new(stats))
    }

    /// The processes whose pid and name (`comm`) fulfil `wanted`, by ascending pid. Faster than
    /// [`Proc::tree`] if few do, because a name costs the kernel less than a `stat`.
    pub fn named(&self, wanted: impl Fn(i32, &str) -> bool) -> Result<Vec<Stat>> {
        let mut found = Vec::new();
        for pid in self.pids()? {
            let name = match self.dir.read_text(format!("{pid}/comm")) {
                Ok(name) => name,
                Err(error) if error.is_gone() => continue,
                Err(error) => return Err(error),
            };
            if !wanted(pid, name.strip_suffix('\n').unwrap_or(&name)) {
                continue;
            }
            // The process may have changed its name meanwhile.
            let stat = self.stat(pid)?;
            found.extend(stat.filter(|stat| wanted(pid, &stat.comm)));
        }
        Ok(found)
    }

    /// These processes and all their descendants. `None` if the kernel does not list children
    /// (`CONFIG_PROC_CHILDREN`), or if a process or thread exits meanwhile: the kernel skips a child
    /// if another child of its parent exits while the list is read. Also `None` if the processes
    /// have more than 256 threads: the kernel lists children per thread, so [`Proc::tree`] is then
    /// faster.
    pub fn tree_below(&self, roots: &[i32]) -> Option<ProcessTree> {
        let mut open = roots.to_vec();
        let mut seen = BTreeSet::new();
        let mut stats = Vec::new();
        let mut threads = 0;
        while let Some(pid) = open.pop() {
            if !seen.insert(pid) {
                continue;
            }
            match self.stat(pid).ok()? {
                Some(stat) => stats.push(stat),
                // The children of an ended process have another parent now.
                None if roots.contains(&pid) => continue,
                None => return None,
            }
            let tasks = self.dir.open_dir(format!("{pid}/task"));
            let tids = tasks.and_then(|tasks| tasks.names()).unwrap_or_default();
            threads += tids.len();
            let listed = tids.iter().try_for_each(|tid| {
                let children = format!("{pid}/task/{tid}/children");
                let text = self.dir.read_text(children).ok()?;
                open.extend(text.split_whitespace().filter_map(parse_pid));
                Some(())
            });
            let whole = listed.is_some() && !tids.is_empty() && threads <= THREADS_MAX;
            // Threads may have ended during the scan, so children may be missing. The caller must
            // scan all processes instead.
            if !whole {
                return None;
            }
        }
        Some(ProcessTree::new(stats))
    }

    /// The `stat` of one process; `None` if the process has ended. Opens only this file and no
    /// directory, because there may be thousands of processes.
    pub fn stat(&self, pid: i32) -> Result<Option<Stat>> {
        match self.dir.read_text(format!("{pid}/stat")) {
            Ok(text) => Ok(Stat::parse(&text)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Id of the most recently created process or thread, in the caller's pid namespace.
    pub fn last_pid(&self) -> Result<i32> {
        Ok(self.population()?.1)
    }

    /// The number of processes and threads, and [`Proc::last_pid`]. As long as both are the same,
    /// none has been created, and none has exited and been waited for.
    pub fn population(&self) -> Result<(u64, i32)> {
        let text = self.dir.read_text("loadavg")?;
        let mut words = text.split_ascii_whitespace().skip(3);
        let total = words.next().and_then(|word| word.split_once('/'));
        let total = total.and_then(|(_, total)| total.parse().ok());
        let last = words.next().and_then(|pid| pid.parse().ok());
        total
            .zip(last)
            .ok_or_else(|| Error::malformed(self.dir.path().join("loadavg"), "no last pid"))
    }

    /// Number of processes and threads created since boot.
    pub fn forks(&self) -> Result<u64> {
        let text = self.dir.read_text("stat")?;
        let mut lines = text.lines();
        let forks = lines.find_map(|line| line.strip_prefix("processes "));
        forks
            .and_then(|forks| forks.trim().parse().ok())
            .ok_or_else(|| Error::malformed(self.dir.path().join("stat"), "no processes"))
    }

    /// Upper limit of process ids. When the kernel reaches it, it continues with low numbers.
    pub fn pid_max(&self) -> Result<u64> {
        let file = "sys/kernel/pid_max";
        let text = self.dir.read_text(file)?;
        let found = text.trim().parse();
        found.map_err(|_| Error::malformed(self.dir.path().join(file), "not a number"))
    }

    /// Amounts of memory of the machine.
    pub fn meminfo(&self) -> Result<MemInfo> {
        Ok(MemInfo::parse(&self.dir.read_text("meminfo")?))
    }

    /// Swap areas of the machine; empty if the kernel lacks swap.
    pub fn swaps(&self) -> Result<Vec<SwapArea>> {
        match self.dir.read_text("swaps") {
            Ok(text) => Ok(parse_swaps(&text)),
            Err(error) if error.is_gone() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Counters of the memory management. A Limelight kernel adds counters named `limelight_*`.
    pub fn vmstat(&self) -> Result<Keyed> {
        Ok(Keyed::parse(self.dir.read_text("vmstat")?))
    }

    /// All mounts in the caller's mount namespace.
    pub fn mounts(&self) -> Result<Vec<Mount>> {
        let own = self.dir.read_text(own_mounts());
        // The fallback is for tests: their fake tree has no process with our pid.
        let text = own.or_else(|error| self.dir.read_text("1/mountinfo").map_err(|_| error))?;
        Ok(mountinfo::parse(&text))
    }

    /// Opens a file that signals each change of the mounts of [`Proc::mounts`] (`EPOLLPRI`).
    pub fn mount_changes(&self) -> Result<OwnedFd> {
        let open = |path: String| self.dir.open_at(path, OFlags::RDONLY, "watch");
        let own = open(own_mounts());
        own.or_else(|error| open("1/mountinfo".to_owned()).map_err(|_| error))
    }

    /// Release of the running kernel, such as `6.12.117`.
    pub fn kernel_release(&self) -> Result<String> {
        Ok(self
            .dir
            .read_text("sys/kernel/osrelease")?
            .trim()
            .to_owned())
    }
}

/// Maximum number of threads whose children [`Proc::tree_below`] reads.
const THREADS_MAX: usize = 256;

fn parse_pid(name: &str) -> Option<i32> {
    let pid: i32 = name.parse().ok()?;
    (pid > 0 && name.bytes().all(|b| b.is_ascii_digit())).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn fake() -> (tempfile::TempDir, Proc) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let stat = |pid: i32, ppid: i32| {
            format!("{pid} (a) b) S {ppid} 0 0 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {pid}00 0 0\n")
        };
        for (pid, ppid) in [(1, 0), (40, 1), (41, 40), (42, 41), (50, 1)] {
            let dir = root.join(pid.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("stat"), stat(pid, ppid)).unwrap();
            fs::write(dir.join("comm"), "a) b\n").unwrap();
            fs::write(dir.join("cgroup"), "0::/app\n").unwrap();
            fs::write(dir.join("oom_score_adj"), "0\n").unwrap();
        }
        // A directory without files stands for a process that exits during the scan.
        fs::create_dir(root.join("60")).unwrap();
        fs::create_dir(root.join("acpi")).unwrap();
        fs::write(
            root.join("1/mountinfo"),
            "1 0 0:1 / /cg rw - cgroup2 none rw\n",
        )
        .unwrap();
        fs::write(root.join("meminfo"), "MemTotal: 10 kB\n").unwrap();
        fs::write(root.join("vmstat"), "limelight_protect_kept 5\npgfault 9\n").unwrap();
        let proc = Proc::open(root.to_str().unwrap()).unwrap();
        (temp, proc)
    }

    #[test]
    fn children_are_found_without_reading_all_processes() {
        let (temp, proc) = fake();
        assert!(proc.tree_below(&[40]).is_none(), "no children are listed");
        for (pid, children) in [(40, "41 "), (41, "42 "), (42, ""), (50, "")] {
            let task = temp.path().join(format!("{pid}/task/{pid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("children"), children).unwrap();
        }
        let tree = proc.tree_below(&[40, 60, 70]).unwrap();
        assert_eq!(tree.descendants(40), [41, 42]);
        assert_eq!(tree.get(41).map(|stat| stat.start_ticks), Some(4100));
        assert_eq!(tree.get(1), None);
        let children = temp.path().join("42/task/42/children");
        fs::write(&children, "43 ").unwrap();
        assert!(
            proc.tree_below(&[40]).is_none(),
            "a listed child has exited"
        );
        fs::write(&children, "").unwrap();
        for tid in 0..THREADS_MAX {
            let task = temp.path().join(format!("42/task/{}", 1000 + tid));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("children"), "").unwrap();
        }
        assert!(proc.tree_below(&[40]).is_none());
    }

    #[test]
    fn processes_are_found_by_name_without_reading_the_others() {
        let (temp, proc) = fake();
        fs::write(temp.path().join("41/comm"), "server\n").unwrap();
        let stat = "41 (server) S 40 0 0 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 4100 0 0\n";
        fs::write(temp.path().join("41/stat"), stat).unwrap();
        // A process that has changed its name between the two reads does not count.
        fs::write(temp.path().join("42/comm"), "server\n").unwrap();
        let opened = crate::inotify::Inotify::new().unwrap();
        let kinds = rustix::fs::inotify::WatchFlags::OPEN;
        opened.watch(&temp.path().join("50/stat"), kinds).unwrap();
        let found = |wanted: &dyn Fn(i32, &str) -> bool| -> Vec<i32> {
            let found = proc.named(wanted).unwrap();
            found.iter().map(|stat| stat.pid).collect()
        };
        assert_eq!(found(&|_, name| name == "server"), [41]);
        assert_eq!(found(&|pid, name| pid == 1 || name == "server"), [1, 41]);
        assert_eq!(opened.events().unwrap(), []);
        assert_eq!(found(&|pid, _| pid == 50), [50]);
        assert_eq!(opened.events().unwrap().len(), 1);
    }

    #[test]
    fn fake_tree_is_read() {
        let (_temp, proc) = fake();
        assert_eq!(proc.pids().unwrap(), [1, 40, 41, 42, 50, 60]);
        let tree = proc.tree().unwrap();
        assert_eq!(tree.descendants(40), [41, 42]);
        assert_eq!(proc.meminfo().unwrap().total_bytes, Some(10 << 10));
        assert_eq!(
            proc.vmstat().unwrap().get("limelight_protect_kept"),
            Some(5)
        );
        assert_eq!(proc.swaps().unwrap(), []);
        assert_eq!(proc.mounts().unwrap()[0].kind, "cgroup2");
    }

    #[test]
    fn process_attributes_are_read() {
        let (_temp, proc) = fake();
        let process = proc.process(41).unwrap();
        assert_eq!(process.comm().unwrap(), "a) b");
        assert_eq!(process.stat().unwrap().start_ticks, 4100);
        assert_eq!(process.cgroup().unwrap().as_deref(), Some("/app"));
        process.set_oom_score_adj(-200).unwrap();
        assert_eq!(process.oom_score_adj().unwrap(), -200);
        assert!(proc.process(99).unwrap_err().is_gone());
    }

    #[test]
    fn cpu_demand_is_running_and_waiting_time() {
        let (temp, proc) = fake();
        let process = proc.process(41).unwrap();
        let write = |text: &str| std::fs::write(temp.path().join("41/schedstat"), text).unwrap();
        write("1000000 2500000 7\n");
        assert_eq!(process.cpu_demand().unwrap().as_micros(), 3500);
        write("1000000\n");
        assert!(process.cpu_demand().is_err());
    }

    #[test]
    fn files_of_the_running_kernel_are_parsed() {
        let proc = Proc::open("/proc").unwrap();
        let own = proc.process(std::process::id() as i32).unwrap();
        let (stat, status) = (own.stat().unwrap(), own.status().unwrap());
        assert_eq!(stat.pid, status.tgid);
        assert_eq!(own.owner_uid().unwrap(), status.effective_uid);
        assert!(own.exists());
        assert!(!own.cmdline().unwrap().is_empty());
        let path = std::env::var("PATH").ok();
        assert_eq!(own.environment("PATH").unwrap(), path);
        assert_eq!(own.environment("PAT").unwrap(), None);
        assert!(own.threads().unwrap().contains(&stat.pid));
        assert_eq!(own.thread_start(stat.pid).unwrap(), stat.start_ticks);
        assert!(own.thread_start(1).unwrap_err().is_gone());
        assert!(own.autogroup().is_ok());
        assert!(proc.tree().unwrap().parent(stat.pid).is_some());
        assert!(proc.meminfo().unwrap().available_bytes.is_some());
        assert!(!proc.mounts().unwrap().is_empty());
        assert!(!proc.kernel_release().unwrap().is_empty());
        assert!(own.login_uid().is_ok());
        let before = (proc.last_pid().unwrap(), proc.forks().unwrap());
        std::thread::spawn(|| ()).join().unwrap();
        assert!(proc.forks().unwrap() > before.1);
        assert!(u64::try_from(before.0).unwrap() <= proc.pid_max().unwrap());
    }

    #[test]
    fn ended_process_is_gone_although_its_directory_is_open() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let proc = Proc::open("/proc").unwrap();
        let process = proc.process(child.id() as i32).unwrap();
        assert!(process.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.stat().unwrap_err().is_gone());
        assert!(!process.exists());
    }
}
