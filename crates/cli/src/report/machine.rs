// SPDX-License-Identifier: GPL-2.0-or-later
//! Facts about the machine, and the private names that it knows.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::scrub::Scrubber;

/// Longest wait for a helper program.
const PROGRAM_MAX: Duration = Duration::from_secs(10);
/// Number of lines of the daemon's log.
const LOG_LINES: usize = 200;
/// Log file of the OpenRC service.
const LOG_FILE: &str = "/var/log/limelightd.log";
/// User ids of people.
const PEOPLE: std::ops::Range<u32> = 1000..60_000;
/// Parameters of the kernel's command line that matter to Limelight. Others may be private.
const PARAMETERS: [&str; 12] = [
    "psi",
    "cgroup_disable",
    "cgroup_enable",
    "cgroup_no_v1",
    "swapaccount",
    "systemd.unified_cgroup_hierarchy",
    "transparent_hugepage",
    "init_on_alloc",
    "init_on_free",
    "zswap.enabled",
    "lru_gen",
    "mem",
];
/// Single values below the root directory.
const VALUES: [(&str, &str); 11] = [
    ("kernel", "proc/sys/kernel/osrelease"),
    ("kernel build", "proc/sys/kernel/version"),
    ("swappiness", "proc/sys/vm/swappiness"),
    ("overcommit", "proc/sys/vm/overcommit_memory"),
    ("multi-generational LRU", "sys/kernel/mm/lru_gen/enabled"),
    ("huge pages", "sys/kernel/mm/transparent_hugepage/enabled"),
    ("zswap", "sys/module/zswap/parameters/enabled"),
    ("cgroup controllers", "sys/fs/cgroup/cgroup.controllers"),
    (
        "enabled for children of the root",
        "sys/fs/cgroup/cgroup.subtree_control",
    ),
    (
        "enabled for children of user.slice",
        "sys/fs/cgroup/user.slice/cgroup.subtree_control",
    ),
    ("memory pressure", "proc/pressure/memory"),
];

fn read(root: &Path, path: &str) -> Option<String> {
    let text = fs::read(root.join(path)).ok()?;
    Some(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Adds the names of users and of this host, and the homes of users, to the scrubber.
pub fn private_names(root: &Path, environment: &[(String, String)], scrubber: &mut Scrubber) {
    const USER: &str = "<user>";
    for line in read(root, "etc/passwd").unwrap_or_default().lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, _, full, home, ..] = fields[..] else {
            continue;
        };
        if uid.parse().is_ok_and(|uid| PEOPLE.contains(&uid)) {
            scrubber.name(name, USER);
            scrubber.name(full.split(',').next().unwrap_or_default(), USER);
            scrubber.home(home);
        }
    }
    for home in fs::read_dir(root.join("home"))
        .into_iter()
        .flatten()
        .flatten()
    {
        scrubber.name(&home.file_name().to_string_lossy(), USER);
    }
    for (variable, value) in environment {
        match variable.as_str() {
            "USER" | "LOGNAME" | "SUDO_USER" if value != "root" => scrubber.name(value, USER),
            "HOME" => scrubber.home(value),
            _ => {}
        }
    }
    let host = read(root, "proc/sys/kernel/hostname");
    if let Some(host) = host.filter(|host| host != "localhost") {
        scrubber.name(&host, "<host>");
    }
}

/// Facts about distribution, kernel, memory, swap, cgroups and session, as lines `name: value`.
pub fn facts(root: &Path, environment: &[(String, String)]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name}: {value}"));
    let release = read(root, "etc/os-release").unwrap_or_default();
    for key in ["ID", "VERSION_ID", "VERSION_CODENAME"] {
        let value = release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        if let Some(value) = value {
            line(key, value.trim_matches('"').to_owned());
        }
    }
    line("architecture", std::env::consts::ARCH.to_owned());
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    line("processors", processors.to_string());
    for (name, path) in VALUES {
        let value = read(root, path).unwrap_or_else(|| "not readable".to_owned());
        line(name, value.replace('\n', "; "));
    }
    let parameters = read(root, "proc/cmdline").unwrap_or_default();
    let known = |one: &&str| PARAMETERS.contains(&one.split('=').next().unwrap_or_default());
    let parameters: Vec<&str> = parameters.split_whitespace().filter(known).collect();
    line("kernel parameters", parameters.join(" "));
    let memory = read(root, "proc/meminfo").unwrap_or_default();
    for key in ["MemTotal", "MemAvailable", "SwapTotal", "SwapFree"] {
        let value = memory
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line(key, value.unwrap_or("?").trim().to_owned());
    }
    for swap in read(root, "proc/swaps").unwrap_or_default().lines().skip(1) {
        let fields: Vec<&str> = swap.split_whitespace().collect();
        line("swap", fields.join(", "));
    }
    for mount in read(root, "proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
    {
        // ID PARENT DEVICE ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS
        let Some((left, right)) = mount.split_once(" - ") else {
            continue;
        };
        let right: Vec<&str> = right.split(' ').collect();
        if let [kind @ ("cgroup" | "cgroup2"), _, options] = right[..] {
            let point = left.split(' ').nth(4).unwrap_or("?");
            line(kind, format!("{point} {options}"));
        }
    }
    for variable in ["XDG_SESSION_TYPE", "XDG_CURRENT_DESKTOP"] {
        let value = environment.iter().find(|(name, _)| name == variable);
        line(
            variable,
            value.map_or("not set", |(_, value)| value).to_owned(),
        );
    }
    lines
}

/// Output of a program, or why there is none.
pub fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let run = || -> std::io::Result<Option<String>> {
        let mut file = tempfile::tempfile()?;
        let mut child = Command::new(program)
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(Stdio::null())
            .spawn()?;
        let end = Instant::now() + PROGRAM_MAX;
        while child.try_wait()?.is_none() {
            if Instant::now() > end {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut text)?;
        Ok(Some(String::from_utf8_lossy(&text).trim().to_owned()))
    };
    match run() {
        Ok(Some(text)) if text.is_empty() => Err(format!("{program} prints nothing")),
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(format!("{program} does not end")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// State of the units of daemon and agent.
pub fn units() -> Vec<String> {
    const SHOWN: &str = "-pId,ActiveState,SubState,Result,ExecMainStatus,NRestarts,UnitFileState";
    let units: [&[&str]; 2] = [
        &["show", "limelightd.service", SHOWN],
        &["--user", "show", "limelight-agent.service", SHOWN],
    ];
    let shown = units.map(|unit| match output("systemctl", unit) {
        Ok(text) => text.replace('\n', " "),
        Err(why) => format!("state of a unit unknown: {why}"),
    });
    shown.into()
}

/// The last lines of the daemon's log: from the journal, else from the log file.
pub fn log() -> Result<String, String> {
    let lines = LOG_LINES.to_string();
    let journal = [
        "-u",
        "limelightd",
        "-n",
        &lines,
        "-o",
        "short-iso",
        "--no-pager",
        "--no-hostname",
        "-q",
    ];
    output("journalctl", &journal).or_else(|no_journal| {
        let text = fs::read(LOG_FILE).map_err(|error| {
            format!(
                "not available ({no_journal}; {LOG_FILE}: {error}); root and the group \
                 systemd-journal may read the journal"
            )
        })?;
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        Ok(all[all.len().saturating_sub(LOG_LINES)..].join("\n"))
    })
}
