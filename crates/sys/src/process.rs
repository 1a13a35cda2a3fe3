// SPDX-License-Identifier: GPL-2.0-or-later
//! One process, through its open `/proc/PID` directory.
//!
//! The directory is opened once. After the process has ended, each read through the directory fails
//! with [`Error::Gone`], even if the pid was reused.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::thread::CapabilitySet;

use crate::dir::Dir;
use crate::error::{Error, Result};

/// Bytes that are read of a process's arguments or environment. A process can make either as large
/// as it wants (`prctl(PR_SET_MM_MAP)`).
const OWN_MAX_BYTES: u64 = 128 << 10;

/// Number of arguments that are read.
const ARGUMENTS_MAX: usize = 64;

/// An open `/proc/PID`.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    dir: Dir,
}

/// Contents of `/proc/PID/stat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// Process id, in the pid namespace of the procfs mount.
    pub pid: i32,
    /// Name, at most 15 bytes. The process can choose any name.
    pub comm: String,
    /// State letter: `R`, `S`, `D`, `Z`, ...
    pub state: char,
    /// Pid of the parent; 0 for init and for `kthreadd`, the parent of the kernel threads.
    pub ppid: i32,
    /// Process group, identified by the pid of its leader.
    pub group: i32,
    /// Session (`setsid(2)`), identified by the pid of its leader; 0 if there is none.
    pub session: i32,
    /// Device number of its controlling terminal; 0 without one.
    pub tty: i32,
    /// Foreground process group of that terminal; -1 without a terminal.
    pub tty_group: i32,
    /// Number of page faults that needed no I/O.
    pub minor_faults: u64,
    /// Number of page faults that waited for I/O.
    pub major_faults: u64,
    /// Processor time in user and kernel mode, in clock ticks.
    pub cpu_ticks: u64,
    /// Nice value of the main thread.
    pub nice: i32,
    /// Start time in clock ticks after boot. Start time and pid together identify a process.
    pub start_ticks: u64,
}

/// Contents of `/proc/PID/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Pid of the process.
    pub tgid: i32,
    /// Real user id.
    pub real_uid: u32,
    /// Effective user id.
    pub effective_uid: u32,
    /// Effective capabilities in the process's own user namespace, one bit each.
    pub effective_capabilities: u64,
    /// Resident anonymous memory, in bytes; `None` for kernel threads.
    pub rss_anon_bytes: Option<u64>,
    /// Resident pages of files, in bytes; `None` for kernel threads.
    pub rss_file_bytes: Option<u64>,
    /// Swapped-out anonymous memory, in bytes; `None` for kernel threads.
    pub swap_bytes: Option<u64>,
}

impl Process {
    pub(crate) fn new(pid: i32, dir: Dir) -> Self {
        Process { pid, dir }
    }

    /// Another handle of the same process.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Process {
            pid: self.pid,
            dir: self.dir.try_clone()?,
        })
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its `/proc/PID` directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    fn read(&self, file: &str) -> Result<String> {
        self.dir.read_text(file)
    }

    fn malformed(&self, file: &str, what: &str) -> Error {
        Error::malformed(self.dir.path().join(file), what)
    }

    /// Reads `stat`.
    pub fn stat(&self) -> Result<Stat> {
        let text = self.read("stat")?;
        Stat::parse(&text).ok_or_else(|| self.malformed("stat", "not in the format of proc(5)"))
    }

    /// Its group ids: the effective group first, then the supplementary groups.
    pub fn groups(&self) -> Result<Vec<u32>> {
        Ok(parse_groups(&self.read("status")?))
    }

    /// Reads `status`.
    pub fn status(&self) -> Result<Status> {
        let text = self.read("status")?;
        Status::parse(&text).ok_or_else(|| self.malformed("status", "no Tgid or no Uid"))
    }

    /// True if it is in the initial user namespace, or if the kernel has no other user namespaces.
    /// Only capabilities in this namespace apply to processes of any user.
    pub fn is_in_initial_user_namespace(&self) -> Result<bool> {
        match self.read("uid_map") {
            // Only this namespace maps all uids to themselves.
            Ok(text) => Ok(text.split_ascii_whitespace().eq(["0", "0", "4294967295"])),
            Err(error) if error.is_gone() && self.exists() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Its name (`comm`), without the newline.
    pub fn comm(&self) -> Result<String> {
        let text = self.read("comm")?;
        Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
    }

    /// Its first command line arguments; empty for kernel threads and zombies. The process may have
    /// changed them. Waits while the process keeps its memory map locked.
    pub fn cmdline(&self) -> Result<Vec<String>> {
        let text = self.read_own("cmdline")?;
        let text = text.strip_suffix('\0').unwrap_or(&text);
        Ok(match text {
            "" => Vec::new(),
            text => {
                let arguments = text.split('\0').take(ARGUMENTS_MAX);
                arguments.map(str::to_owned).collect()
            }
        })
    }

    /// A variable of the environment with which it was started; `None` if the variable is not set
    /// in the environment's first 128 KiB. The process may have changed it. Waits while the process
    /// keeps its memory map locked.
    pub fn environment(&self, name: &str) -> Result<Option<String>> {
        let text = self.read_own("environ")?;
        let mut variables = text.split('\0').filter_map(|line| line.split_once('='));
        let found = variables.find(|(variable, _)| *variable == name);
        Ok(found.map(|(_, value)| value.to_owned()))
    }

    /// Reads the start of a file whose contents are the process's own memory.
    fn read_own(&self, file: &str) -> Result<String> {
        let start = self.dir.read_start(file, OWN_MAX_BYTES)?;
        Ok(String::from_utf8_lossy(&start).into_owned())
    }

    /// Path of its cgroup in the v2 hierarchy, such as `/user.slice/app.scope`. The path is
    /// relative to the cgroup namespace of the reader. `None` if no v2 hierarchy is mounted.
    pub fn cgroup(&self) -> Result<Option<String>> {
        Ok(parse_cgroup(&self.read("cgroup")?))
    }

    /// Total time in which the main thread ran or waited for a processor (`schedstat`,
    /// kernel/sched/stats.h). Fails without `CONFIG_SCHED_INFO`.
    pub fn cpu_demand(&self) -> Result<Duration> {
        let text = self.read("schedstat")?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(ran)), Some(Ok(waited))) => {
                Ok(Duration::from_nanos(ran.saturating_add(waited)))
            }
            _ => Err(self.malformed("schedstat", "fewer than two numbers")),
        }
    }

    /// Its `oom_score_adj`, -1000 (never killed) to 1000.
    pub fn oom_score_adj(&self) -> Result<i16> {
        let text = self.read("oom_score_adj")?;
        text.trim()
            .parse()
            .map_err(|_| self.malformed("oom_score_adj", "not a number"))
    }

    /// Sets `oom_score_adj`. A lower value requires CAP_SYS_RESOURCE.
    pub fn set_oom_score_adj(&self, value: i16) -> Result<()> {
        self.dir.write("oom_score_adj", &value.to_string())
    }

    /// Uid of the user that logged in. Child processes inherit it, and changing it requires a
    /// privilege. `None` outside a login, and on a kernel without `CONFIG_AUDIT`.
    pub fn login_uid(&self) -> Result<Option<u32>> {
        match self.read("loginuid") {
            Ok(text) => {
                let uid = text.trim().parse();
                let uid = uid.map_err(|_| self.malformed("loginuid", "not a number"))?;
                Ok((uid != u32::MAX).then_some(uid))
            }
            Err(Error::Gone {
                errno: rustix::io::Errno::NOENT,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets `oom_score_adj` to `value`, but not below `floor`, and prevents the process from
    /// choosing a value below `floor` itself.
    ///
    /// The kernel remembers the last value written with CAP_SYS_RESOURCE as the lowest value that
    /// the process may choose. So `floor` is written with the capability, and then `value` without
    /// it. If this thread cannot drop the capability, `value` becomes the lowest value instead of
    /// `floor`.
    pub fn set_oom_score_adj_and_floor(&self, value: i16, floor: i16) -> Result<()> {
        self.set_oom_score_adj(floor)?;
        if value <= floor {
            return Ok(());
        }
        let dropped = CapabilitySet::SYS_RESOURCE;
        let written = crate::capability::without(dropped, || self.set_oom_score_adj(value));
        written.unwrap_or_else(|_| self.set_oom_score_adj(value))
    }

    /// Ids of its threads, ascending. The id of the first thread is the pid.
    pub fn threads(&self) -> Result<Vec<i32>> {
        let names = self.dir.open_dir("task")?.names()?;
        let mut tids: Vec<i32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        tids.sort_unstable();
        Ok(tids)
    }

    /// Pids of the children that its main thread has forked, ascending; [`Error::Gone`] also on a
    /// kernel that does not list children (`CONFIG_PROC_CHILDREN`).
    pub fn main_children(&self) -> Result<Vec<i32>> {
        let text = self.read(&format!("task/{}/children", self.pid))?;
        let mut pids: Vec<i32> = text
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// Start time of one of its threads, in clock ticks after boot; [`Error::Gone`] if the process
    /// has no such thread.
    pub fn thread_start(&self, tid: i32) -> Result<u64> {
        let file = format!("task/{tid}/stat");
        let text = self.read(&file)?;
        let stat = Stat::parse(&text);
        Ok(stat
            .ok_or_else(|| self.malformed(&file, "not in the format of proc(5)"))?
            .start_ticks)
    }

    /// The scheduling group of its session. `None` if the process is in the default group, or if
    /// the kernel does not support such groups.
    pub fn autogroup(&self) -> Result<Option<Autogroup>> {
        match self.read("autogroup") {
            Ok(text) => Ok(Autogroup::parse(&text)),
            Err(Error::Gone {
                errno: rustix::io::Errno::NOENT,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the nice value of the scheduling group of its session, -20 to 19. A lower value
    /// requires CAP_SYS_NICE. Without CAP_SYS_ADMIN, only one write per 100 ms succeeds.
    pub fn set_autogroup_nice(&self, nice: i32) -> Result<()> {
        self.dir.write("autogroup", &nice.to_string())
    }

    /// Uid of the owner of the `/proc/PID` directory. This is the effective uid of the process, or
    /// 0 if the process is not dumpable, for example because it changed its credentials. A check
    /// for a user's own process then fails, which is the safe result.
    pub fn owner_uid(&self) -> Result<u32> {
        Ok(self.dir.inode_and_owner()?.1)
    }

    /// True until the process has exited and its parent has reaped it.
    pub fn exists(&self) -> bool {
        self.dir.contains("stat")
    }
}

/// The scheduling group of a session. Its nice value competes with other groups; the nice values of
/// its threads compete only within the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Autogroup {
    /// Number of the group. It is not reused until reboot.
    pub number: u64,
    /// Nice value of the group, -20 to 19.
    pub nice: i32,
}

impl Autogroup {
    /// Parses text such as `/autogroup-25 nice 0`; `None` for group 0, the default group.
    pub fn parse(text: &str) -> Option<Autogroup> {
        let (number, nice) = text
            .trim()
            .strip_prefix("/autogroup-")?
            .split_once(" nice ")?;
        let number = number.parse().ok().filter(|number| *number != 0)?;
        Some(Autogroup {
            number,
            nice: nice.parse().ok()?,
        })
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Stat {
    /// Parses `stat`. The name may contain any characters, even `") "`, so the parser ends it at
    /// the last closing parenthesis.
    pub fn parse(text: &str) -> Option<Self> {
        let (pid, rest) = text.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Field numbers are those of proc(5). The state is field 3.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Stat {
            pid: pid.trim().parse().ok()?,
            comm: comm.to_owned(),
            state: field(3)?.chars().next()?,
            ppid: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            tty: field(7)?.parse().ok()?,
            tty_group: field(8)?.parse().ok()?,
            minor_faults: field(10)?.parse().ok()?,
            major_faults: field(12)?.parse().ok()?,
            cpu_ticks: {
                let ticks = |number| field(number)?.parse::<u64>().ok();
                ticks(14)?.saturating_add(ticks(15)?)
            },
            nice: field(19)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
        })
    }
}

impl Status {
    /// Parses `status`; `None` if `Tgid` or `Uid` is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = text.lines().find(|line| {
                line.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(':'))
            })?;
            Some(line[name.len() + 1..].trim())
        };
        let bytes = |name| {
            let kib: u64 = value(name)?.split_ascii_whitespace().next()?.parse().ok()?;
            kib.checked_mul(1024)
        };
        let mut uids = value("Uid")?.split_ascii_whitespace();
        Some(Status {
            tgid: value("Tgid")?.parse().ok()?,
            real_uid: uids.next()?.parse().ok()?,
            effective_uid: uids.next()?.parse().ok()?,
            effective_capabilities: value("CapEff")
                .and_then(|hex| u64::from_str_radix(hex, 16).ok())
                .unwrap_or(0),
            rss_anon_bytes: bytes("RssAnon"),
            rss_file_bytes: bytes("RssFile"),
            swap_bytes: bytes("VmSwap"),
        })
    }
}

/// Parses `/proc/PID/status`: the effective group of the line `Gid`, then the groups of `Groups`.
fn parse_groups(text: &str) -> Vec<u32> {
    let numbers = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let words = line.unwrap_or_default().split_ascii_whitespace();
        words
            .filter_map(|word| word.parse().ok())
            .collect::<Vec<u32>>()
    };
    let effective = numbers("Gid:").into_iter().skip(1).take(1);
    effective.chain(numbers("Groups:")).collect()
}

/// The path in the v2 line (`0::PATH`) of `/proc/PID/cgroup`; `None` without such a line.
pub fn parse_cgroup(text: &str) -> Option<String> {
    // Not `lines()`, which removes a trailing carriage return: it may belong to the name of the
    // cgroup. A name cannot contain a newline (`cgroup_mkdir()`).
    let mut lines = text.split_terminator('\n');
    let path = lines.find_map(|line| line.strip_prefix("0::"))?;
    Some(path.strip_suffix(" (deleted)").unwrap_or(path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TAIL: &str = "S 1 7 7 0 -1 4194560 311 0 42 0 5 3 0 0 20 0 1 0 9876 10 20 30";

    #[test]
    fn stat_with_hostile_name_is_parsed() {
        for comm in ["sh", "a b", "x) R 1 (y", ") ", "((", ""] {
            let stat = Stat::parse(&format!("7 ({comm}) {TAIL}\n")).unwrap();
            assert_eq!(
                (stat.pid, stat.ppid, stat.start_ticks),
                (7, 1, 9876),
                "{comm:?}"
            );
            assert_eq!((stat.minor_faults, stat.major_faults), (311, 42));
            assert_eq!(stat.comm, comm);
            assert_eq!(stat.state, 'S');
        }
        assert_eq!(Stat::parse("7 (sh) S 1 7"), None);
    }

    #[test]
    fn status_fields_match_whole_names() {
        let text =
            "Name:\tsh\nNSTgid:\t9\nTgid:\t7\nUid:\t1000\t1001\t1002\t1003\nRssAnon:\t   12 kB\n";
        let status = Status::parse(text).unwrap();
        assert_eq!(
            (status.tgid, status.real_uid, status.effective_uid),
            (7, 1000, 1001)
        );
        assert_eq!(status.rss_anon_bytes, Some(12 << 10));
        assert_eq!(status.swap_bytes, None);
        assert_eq!(Status::parse("Tgid:\t7\n"), None);
    }

    #[test]
    fn groups_are_the_effective_and_the_supplementary_ones() {
        let text = "Name:\tsh\nUid:\t1\t1\t1\t1\nGid:\t10\t11\t12\t13\nGroups:\t4 24 990 \n";
        assert_eq!(parse_groups(text), [11, 4, 24, 990]);
        assert_eq!(parse_groups("Gid:\t10\t11\t12\t13\nGroups:\t \n"), [11]);
        assert_eq!(parse_groups(""), Vec::<u32>::new());
    }

    #[test]
    fn cgroup_v2_line_is_parsed() {
        assert_eq!(
            parse_cgroup("4:memory:/m\n0::/a/b.scope\n").as_deref(),
            Some("/a/b.scope")
        );
        assert_eq!(parse_cgroup("0::/a (deleted)\n").as_deref(), Some("/a"));
        assert_eq!(parse_cgroup("0::/a\r\n").as_deref(), Some("/a\r"));
        assert_eq!(parse_cgroup("4:memory:/m\n"), None);
    }

    proptest! {
        #[test]
        fn parsers_never_panic(text in any::<String>()) {
            Stat::parse(&text);
            Status::parse(&text);
            parse_cgroup(&text);
            parse_groups(&text);
        }

        #[test]
        fn any_process_name_round_trips(comm in "[^\n]{0,15}", pid in 1..i32::MAX) {
            let stat = Stat::parse(&format!("{pid} ({comm}) {TAIL}")).unwrap();
            prop_assert_eq!(stat.pid, pid);
            prop_assert_eq!(stat.comm, comm);
        }
    }
}
