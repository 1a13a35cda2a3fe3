// SPDX-License-Identifier: GPL-2.0-or-later
//! Page replacement and memory pressure.

use std::path::Path;

use limelight_sys::dir::Dir;
use limelight_sys::lru_gen::Reclaim;
use limelight_sys::proc::Proc;
use limelight_sys::psi::Pressure;

use super::Findings;

/// Reports the active page replacement, and the cgroup knob that it honours. Returns whether that
/// knob is `memory.low`.
pub fn reclaim(sys: &Path, findings: &mut Findings) -> bool {
    const CHECK: &str = "page reclaim";
    let found = Dir::open(sys).and_then(|sys| Reclaim::read(&sys));
    let low = matches!(found, Ok(Reclaim::TwoList { .. }));
    match found {
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
    low
}

/// Checks whether the kernel reports the cgroup that a page is charged to.
pub fn shared_pages(proc: &Proc, findings: &mut Findings) {
    const CHECK: &str = "shared pages";
    if proc.dir().contains("kpagecgroup") {
        findings.acts(
            CHECK,
            "/proc/kpagecgroup: without /dev/limelight, libraries that the foreground app shares \
             with other programs are locked in memory (with CAP_SYS_ADMIN and CAP_IPC_LOCK)",
        );
    } else {
        findings.missing(
            CHECK,
            "there is no /proc/kpagecgroup: without /dev/limelight, libraries that are charged to \
             other cgroups are not protected",
            "run a kernel with CONFIG_PROC_PAGE_MONITOR and CONFIG_MEMCG",
        );
    }
}

/// Checks whether the kernel reports memory pressure.
pub fn pressure(proc: &Proc, findings: &mut Findings) {
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
            "boot with psi=1 (CONFIG_PSI); until then, protection is lowered as soon as memory \
             runs out, without waiting for a stall",
        ),
        Err(error) => findings.inert("PSI", error, "read it as root"),
    }
}
