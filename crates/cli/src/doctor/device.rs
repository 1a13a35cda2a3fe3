// SPDX-License-Identifier: GPL-2.0-or-later
//! The Limelight kernel's device.

use std::path::Path;

use limelight_proto::{DeviceStatus, Status};
use limelight_sys::device::{Device, DeviceError, Mechanism, ABI_VERSION, ABI_VERSION_OLDEST};

use super::Findings;

/// What is said of a mechanism if the device exists, but could not be asked.
pub const UNKNOWN: &str = "unknown whether this kernel has it: see kernel support";

/// The names of the kernel's mechanisms; `None`: the device exists, but could not be asked.
#[derive(Debug)]
pub struct BuiltIn(pub Option<Vec<String>>);

impl BuiltIn {
    const NOTHING: BuiltIn = BuiltIn(Some(Vec::new()));

    /// Whether the kernel has the mechanism of this name; `None`: unknown.
    pub fn has(&self, mechanism: &str) -> Option<bool> {
        let names = self.0.as_ref()?;
        Some(names.iter().any(|name| name == mechanism))
    }
}

/// Checks whether the device exists and has a supported ABI. If a daemon runs, its status is used,
/// because the daemon holds the device.
pub fn examine(path: &Path, daemon: Option<&Status>, findings: &mut Findings) -> BuiltIn {
    const CHECK: &str = "kernel support";
    const STOCK: &str = "run the Limelight kernel";
    // A note, not a fault: most machines run a stock kernel.
    const ABSENT: &str =
        "on this kernel protect reserves memory only for apps with a cgroup of their \
                          own, and locks shared pages; premap and prezero need the \
                          Limelight kernel";
    match daemon.map(|status| &status.device) {
        Some(DeviceStatus::Open {
            abi_version,
            built_in,
            ..
        }) => {
            findings.acts(CHECK, describe(path, *abi_version, built_in));
            return BuiltIn(Some(built_in.clone()));
        }
        Some(DeviceStatus::Unused { why }) => {
            let detail = format!("{} is not used: {why}", path.display());
            match (path.exists(), daemon.is_some_and(|status| status.dry_run)) {
                (true, true) => findings.note(CHECK, detail),
                (true, false) => findings.inert(CHECK, detail, "see limelightd's log and [kernel]"),
                (false, _) => {
                    findings.note(CHECK, format!("no {}: {ABSENT}", path.display()));
                    return BuiltIn::NOTHING;
                }
            }
            return BuiltIn(None);
        }
        None => {}
    }
    // No daemon answers, so the device is free and may be opened.
    match Device::open(path).and_then(|device| device.info()) {
        Ok(info) if !info.is_supported() => findings.inert(
            CHECK,
            format!(
                "{} has ABI {}, but this limelight supports {ABI_VERSION_OLDEST} to {ABI_VERSION}",
                path.display(),
                info.abi_version
            ),
            "install a kernel and a limelightd of the same release",
        ),
        Ok(info) if !info.has(Mechanism::Protect) => {
            findings.inert(CHECK, format!("{} has no protect", path.display()), STOCK)
        }
        Ok(info) => {
            let has = Mechanism::ALL.iter().filter(|each| info.has(**each));
            let names: Vec<String> = has.map(|each| each.name().to_owned()).collect();
            findings.acts(CHECK, describe(path, info.abi_version, &names));
            return BuiltIn(Some(names));
        }
        Err(DeviceError::Absent { .. }) => {
            findings.note(CHECK, format!("no {}: {ABSENT}", path.display()));
            return BuiltIn::NOTHING;
        }
        Err(error @ DeviceError::Forbidden { .. }) => findings.note(CHECK, error),
        Err(error @ DeviceError::Held { .. }) => findings.inert(
            CHECK,
            error,
            "the process that holds the device does not answer on this socket: see --socket",
        ),
        Err(error) => findings.inert(CHECK, error, STOCK),
    }
    BuiltIn(None)
}

fn describe(path: &Path, abi_version: u32, built_in: &[String]) -> String {
    format!(
        "{}, ABI {abi_version}, has {}",
        path.display(),
        built_in.join(", ")
    )
}
