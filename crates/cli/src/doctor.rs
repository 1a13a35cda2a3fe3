// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight doctor`: what of this machine Limelight can use, what is inert and why, what is
//! missing and what to do about it. Reads only; works without the daemon.

use std::path::{Path, PathBuf};

use limelight_core::control::{
    DeviceStatus, MechanismStatus, Request, Response, SourceStatus, State, Status, PROTOCOL,
};
use limelight_sys::cgroup::{Cgroup, CgroupPath, Hierarchy};
use limelight_sys::device::{Device, DeviceError, Mechanism, ABI_VERSION, DEVICE_PATH};
use limelight_sys::dir::Dir;
use limelight_sys::lru_gen::Reclaim;
use limelight_sys::meminfo::SwapArea;
use limelight_sys::proc::Proc;
use limelight_sys::psi::Pressure;
use serde::Serialize;

use crate::client::Client;
use crate::exit::Failure;
use crate::format::{self, printable, Table};

/// Oldest kernel on which everything was tried.
const OLDEST_KERNEL: (u32, u32) = (6, 1);

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// What it is good for.
    pub state: Verdict,
    /// How it is here, or why it is inert.
    pub detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

/// What a thing is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It works.
    Acts,
    /// Neither good nor bad, but worth knowing.
    Note,
    /// It is there and has no effect.
    Inert,
    /// It is not there.
    Missing,
}

impl Verdict {
    /// Whether the machine could do better.
    pub fn is_trouble(self) -> bool {
        matches!(self, Verdict::Inert | Verdict::Missing)
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Acts => "acts",
            Verdict::Note => "note",
            Verdict::Inert => "inert",
            Verdict::Missing => "missing",
        }
    }
}

/// Where to look.
#[derive(Debug)]
pub struct Machine {
    proc: PathBuf,
    sys: PathBuf,
    device: PathBuf,
    socket: PathBuf,
    pid: Option<i32>,
}

impl Machine {
    /// The running one. With a `pid`, its cgroups are examined instead of the topmost app's.
    pub fn running(socket: &Path, pid: Option<i32>) -> Self {
        Machine {
            proc: "/proc".into(),
            sys: "/sys".into(),
            device: DEVICE_PATH.into(),
            socket: socket.to_owned(),
            pid,
        }
    }
}

/// Looks at everything.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = Findings::default();
    let daemon = ask_daemon(&machine.socket);
    match Proc::open(&machine.proc.to_string_lossy()) {
        Ok(proc) => {
            kernel(&proc, &mut findings);
            let app = app_cgroup(machine, &proc, daemon.as_deref().ok());
            cgroups(&proc, app, &mut findings);
            reclaim(&machine.sys, &mut findings);
            pressure(&proc, &mut findings);
            swap(&proc, &machine.sys, &mut findings);
        }
        Err(error) => findings.missing("procfs", error, "mount it: mount -t proc proc /proc"),
    }
    device(&machine.device, daemon.as_deref().ok(), &mut findings);
    match daemon {
        Ok(status) => running(&status, &mut findings),
        Err(failure) => {
            let (detail, cure) = match failure.to_string().split_once("\n  ") {
                Some((detail, cure)) => (detail.to_owned(), cure.to_owned()),
                None => (failure.to_string(), "see its log".to_owned()),
            };
            findings.missing("daemon", detail, &cure);
        }
    }
    findings.0
}

/// Prints what was found.
pub fn print(findings: &[Finding], json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    if json {
        return format::json(&findings, out);
    }
    let width = findings
        .iter()
        .map(|finding| finding.check.chars().count())
        .max()
        .unwrap_or(0);
    let mut table = Table::default();
    for Finding {
        check,
        state,
        detail,
        cure,
    } in findings
    {
        let cure = cure
            .as_ref()
            .map(|cure| format!("\n-> {cure}"))
            .unwrap_or_default();
        table.line(
            &format!("{:7}  {:width$}", state.word(), printable(check)),
            printable(&format!("{detail}{cure}")),
        );
    }
    table.print(out)
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, check: &str, state: Verdict, detail: impl ToString, cure: Option<&str>) {
        self.0.push(Finding {
            check: check.to_owned(),
            state,
            detail: detail.to_string(),
            cure: cure.map(str::to_owned),
        });
    }

    fn acts(&mut self, check: &str, detail: impl ToString) {
        self.add(check, Verdict::Acts, detail, None);
    }

    fn note(&mut self, check: &str, detail: impl ToString) {
        self.add(check, Verdict::Note, detail, None);
    }

    fn inert(&mut self, check: &str, detail: impl ToString, cure: &str) {
        self.add(check, Verdict::Inert, detail, Some(cure));
    }

    fn missing(&mut self, check: &str, detail: impl ToString, cure: &str) {
        self.add(check, Verdict::Missing, detail, Some(cure));
    }
}

fn ask_daemon(socket: &Path) -> Result<Box<Status>, Failure> {
    match Client::connect(socket)?.ask(&Request::Status)? {
        Response::Status(status) => Ok(status),
        other => Err(Failure::unexpected(&other)),
    }
}

fn kernel(proc: &Proc, findings: &mut Findings) {
    let release = match proc.kernel_release() {
        Ok(release) => release,
        Err(error) => return findings.missing("kernel", error, "mount procfs with its sysctls"),
    };
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= OLDEST_KERNEL => {
            findings.acts("kernel", format!("Linux {release}"))
        }
        _ => findings.inert(
            "kernel",
            format!("Linux {release} is older than what Limelight was tried on"),
            "run Linux 6.1 or newer",
        ),
    }
}

/// The cgroup above which the chain is examined, and whose it is.
type AppCgroup = Result<(String, CgroupPath), String>;

fn app_cgroup(machine: &Machine, proc: &Proc, daemon: Option<&Status>) -> AppCgroup {
    let topmost = daemon.and_then(|status| status.topmost.as_ref());
    if let (None, Some(topmost)) = (machine.pid, topmost) {
        if let Some(path) = topmost.app.cgroup.as_deref().and_then(CgroupPath::parse) {
            return Ok((
                format!("of {}, which is in front", format::app(&topmost.app)),
                path,
            ));
        }
    }
    let (pid, whose) = match machine.pid {
        Some(pid) => (pid, format!("of pid {pid}")),
        None => (std::process::id() as i32, "of this command".to_owned()),
    };
    let cgroup = proc.process(pid).and_then(|process| process.cgroup());
    let cgroup = cgroup.map_err(|error| error.to_string())?;
    let path = cgroup.as_deref().and_then(CgroupPath::parse);
    path.map(|path| (whose, path)).ok_or_else(|| {
        format!("pid {pid} has no cgroup v2 that can be seen from here (a container's view?)")
    })
}

fn cgroups(proc: &Proc, app: AppCgroup, findings: &mut Findings) {
    let hierarchy = match Hierarchy::find(proc) {
        Ok(hierarchy) => hierarchy,
        Err(error) => {
            return findings.missing(
                "cgroup v2",
                error,
                "mount it (mount -t cgroup2 none /sys/fs/cgroup), or boot with \
                 systemd.unified_cgroup_hierarchy=1",
            )
        }
    };
    findings.acts(
        "cgroup v2",
        format!("at {}", hierarchy.mount_point().display()),
    );
    let root = hierarchy.open(&CgroupPath::root());
    match root.and_then(|root| root.controllers()) {
        Ok(controllers) if controllers.iter().any(|name| name == "memory") => {}
        Ok(_) => {
            return findings.missing(
                "memory controller",
                format!(
                    "not among the controllers of {}",
                    hierarchy.mount_point().display()
                ),
                "take it from cgroup v1 (boot with systemd.unified_cgroup_hierarchy=1), or remove \
                 cgroup_disable=memory from the kernel's command line",
            )
        }
        Err(error) => {
            return findings.missing("memory controller", error, "read it as root");
        }
    }
    match app {
        Ok((whose, path)) => chain(&hierarchy, &whose, &path, findings),
        Err(why) => findings.inert("memory controller", why, "name a process: --pid PID"),
    }
}

/// A limit is worth what every ancestor grants, so the controller must be there all the way down.
fn chain(hierarchy: &Hierarchy, whose: &str, path: &CgroupPath, findings: &mut Findings) {
    const CHECK: &str = "memory controller";
    if path.is_root() {
        return findings.inert(
            CHECK,
            format!("the cgroup {whose} is the root, which has no limits"),
            "start apps in cgroups of their own (systemd-run --user --scope APP), or use the \
             Limelight kernel, which needs none",
        );
    }
    let chain = match hierarchy.open_chain(path) {
        Ok(chain) => chain,
        Err(error) => return findings.inert(CHECK, error, "name a living process: --pid PID"),
    };
    let without = |group: &&Cgroup| !group.dir().contains("memory.min");
    match chain.iter().find(without) {
        None => findings.acts(CHECK, format!("all the way down to {path}, {whose}")),
        Some(group) => {
            let above = group.path().parent().unwrap_or(CgroupPath::root());
            let control = hierarchy
                .mount_point()
                .join(above.as_str().trim_start_matches('/'));
            findings.inert(
                CHECK,
                format!(
                    "not enabled for {}, above or at the cgroup {whose}",
                    group.path()
                ),
                &format!(
                    "let systemd do it (MemoryAccounting=yes), or: echo +memory > \
                     {}/cgroup.subtree_control",
                    control.display().to_string().trim_end_matches('/')
                ),
            )
        }
    }
}

fn reclaim(sys: &Path, findings: &mut Findings) {
    const CHECK: &str = "page reclaim";
    match Dir::open(sys).and_then(|sys| Reclaim::read(&sys)) {
        Ok(Reclaim::MultiGen { features }) => findings.acts(
            CHECK,
            format!(
                "multi-generational LRU ({features:#06x}): memory.min protects; memory.low is \
                 inert and not used"
            ),
        ),
        Ok(Reclaim::TwoList { lru_gen_built }) => {
            let why = if lru_gen_built {
                "MGLRU is switched off"
            } else {
                "MGLRU is not built in"
            };
            findings.acts(CHECK, format!("two-list LRU ({why}): memory.low protects"));
        }
        Err(error) => findings.missing(CHECK, error, "mount sysfs: mount -t sysfs sysfs /sys"),
    }
}

fn pressure(proc: &Proc, findings: &mut Findings) {
    match Pressure::read(proc.dir(), "pressure/memory") {
        Ok(pressure) => findings.acts(
            "PSI",
            format!(
                "some {:.1} %, full {:.1} % of the last 10 s",
                pressure.some.avg10,
                pressure.full.unwrap_or_default().avg10
            ),
        ),
        Err(error) if error.is_unsupported() || error.is_gone() => findings.missing(
            "PSI",
            error,
            "boot with psi=1 (CONFIG_PSI); until then protection is lowered by watermarks alone",
        ),
        Err(error) => findings.inert("PSI", error, "read it as root"),
    }
}

fn swap(proc: &Proc, sys: &Path, findings: &mut Findings) {
    let areas = match proc.swaps() {
        Ok(areas) => areas,
        Err(error) => return findings.inert("swap", error, "read it as root"),
    };
    let zswap = Dir::open(sys)
        .and_then(|sys| sys.read_text("module/zswap/parameters/enabled"))
        .is_ok_and(|text| text.trim() == "Y");
    if areas.is_empty() {
        return findings.note(
            "swap",
            "none: only files can be evicted, and an app that grows without end is left to the \
             OOM killer",
        );
    }
    let zswap = if zswap { ", in front of it zswap" } else { "" };
    let areas: Vec<String> = areas.iter().map(describe_area).collect();
    findings.acts("swap", format!("{}{zswap}", areas.join(", ")));
}

fn describe_area(area: &SwapArea) -> String {
    let kind = if area.is_zram() {
        "compressed memory"
    } else {
        &area.kind
    };
    format!("{} ({kind}, {})", area.path, format::bytes(area.size_bytes))
}

fn device(path: &Path, daemon: Option<&Status>, findings: &mut Findings) {
    const CHECK: &str = "kernel support";
    const STOCK: &str =
        "run the Limelight kernel; on a stock one protect reaches only apps with a \
                         cgroup of their own, and no page that another program brought in";
    match daemon.map(|status| &status.device) {
        Some(DeviceStatus::Open {
            abi_version,
            built_in,
            ..
        }) => {
            return findings.acts(
                CHECK,
                format!(
                    "{}, ABI {abi_version}, has {}",
                    path.display(),
                    built_in.join(", ")
                ),
            )
        }
        Some(DeviceStatus::Unused { why }) => {
            let detail = format!("{} is not used: {why}", path.display());
            match (path.exists(), daemon.is_some_and(|status| status.dry_run)) {
                (true, true) => findings.note(CHECK, detail),
                (true, false) => findings.inert(CHECK, detail, "see limelightd's log and [kernel]"),
                (false, _) => {
                    findings.missing(CHECK, format!("{} is not there", path.display()), STOCK)
                }
            }
            return;
        }
        None => {}
    }
    // No daemon answers, so the device is free, and looking at it takes it from nobody.
    match Device::open(path).and_then(|device| device.info()) {
        Ok(info) if info.abi_version != ABI_VERSION => findings.inert(
            CHECK,
            format!(
                "{} speaks ABI {}, we {ABI_VERSION}",
                path.display(),
                info.abi_version
            ),
            "install a kernel and a limelightd of the same release",
        ),
        Ok(info) if !info.has(Mechanism::Protect) => {
            findings.inert(CHECK, format!("{} has no protect", path.display()), STOCK)
        }
        Ok(info) => findings.acts(
            CHECK,
            format!("{}, ABI {}, has protect", path.display(), info.abi_version),
        ),
        Err(error @ DeviceError::Absent { .. }) => findings.missing(CHECK, error, STOCK),
        Err(error @ DeviceError::Forbidden { .. }) => findings.note(CHECK, error),
        Err(error @ DeviceError::Held { .. }) => findings.inert(
            CHECK,
            error,
            "its holder does not answer here: see --socket",
        ),
        Err(error) => findings.inert(CHECK, error, STOCK),
    }
}

fn running(status: &Status, findings: &mut Findings) {
    let detail = format!("limelightd {}, pid {}", status.version, status.pid);
    match (status.protocol == PROTOCOL, status.dry_run) {
        (false, _) => findings.inert(
            "daemon",
            format!(
                "{detail}, speaks protocol {}, we {PROTOCOL}",
                status.protocol
            ),
            "restart it after the upgrade: systemctl restart limelightd",
        ),
        (true, true) => findings.inert(
            "daemon",
            format!("{detail}, only plans: it was started with --dry-run"),
            "start it without",
        ),
        (true, false) => findings.acts("daemon", detail),
    }
    for MechanismStatus {
        name,
        state,
        detail,
    } in &status.mechanisms
    {
        let check = format!("mechanism {name}");
        report(
            &check,
            *state,
            detail,
            "see the lines above for what this machine lacks",
            findings,
        );
    }
    for SourceStatus {
        name,
        state,
        detail,
    } in &status.sources
    {
        let check = format!("source {name}");
        report(
            &check,
            *state,
            detail,
            "harmless as long as another source speaks",
            findings,
        );
    }
}

fn report(check: &str, state: State, detail: &str, cure: &str, findings: &mut Findings) {
    match state {
        State::Active | State::Idle => findings.acts(check, detail),
        State::Off => findings.note(check, format!("switched off: {detail}")),
        State::Unavailable => findings.inert(check, detail, cure),
    }
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;
