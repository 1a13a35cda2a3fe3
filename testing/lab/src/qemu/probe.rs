// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks whether KVM works on this host. `/dev/kvm` may open although every guest dies, so the
//! probe boots a guest. The result is cached per boot of the host, kernel and QEMU version.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use limelight_apps::plan::Plan;

use super::command::{self, Accelerator, Machine};
use super::guest;
use crate::cache::Inputs;
use crate::image::initramfs;
use crate::kernel::Bootable;
use crate::paths::{self, Paths};

/// Timeout for the probe's guest; a working KVM needs two seconds.
const LIMIT: Duration = Duration::from_secs(20);

/// The accelerator for guests of `kernel`: KVM if a guest boots in it, else TCG.
pub fn accelerator(paths: &Paths, kernel: &Bootable) -> Result<Accelerator> {
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return Ok(Accelerator::Tcg);
    }
    let boot = paths::read_lossy(Path::new("/proc/sys/kernel/random/boot_id"))?;
    let key = Inputs::new()
        .text("boot", boot)
        .text("kernel", &kernel.hash)
        .text("qemu", command::version()?)
        .key();
    let dir = paths.cache.join("probes");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let answer = dir.join(format!("kvm-{key}"));
    let works = match fs::read_to_string(&answer) {
        Ok(text) => text.trim() == Accelerator::Kvm.name(),
        Err(_) => {
            eprintln!(
                "kvm: trying to boot kernel {} in it (at most {LIMIT:?})",
                kernel.kernel
            );
            let outcome = boots(paths, kernel);
            match &outcome {
                Ok(()) => eprintln!("kvm: works"),
                Err(error) => {
                    let why = error.to_string();
                    let why = why.lines().next().unwrap_or_default();
                    eprintln!("kvm: does not work here ({why}); guests are emulated");
                }
            }
            let chosen = if outcome.is_ok() {
                Accelerator::Kvm
            } else {
                Accelerator::Tcg
            };
            paths::write(&answer, chosen.name())?;
            outcome.is_ok()
        }
    };
    Ok(if works {
        Accelerator::Kvm
    } else {
        Accelerator::Tcg
    })
}

fn boots(paths: &Paths, kernel: &Bootable) -> Result<()> {
    let dir = paths
        .runs()
        .join(format!("kvm-probe-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let archive = dir.join("initramfs");
    let programs = initramfs::Programs::of(paths, kernel)?;
    initramfs::write(&programs, &Plan::default(), &[], &[], &archive)?;
    let machine = Machine {
        vcpus: 1,
        ..Machine::bare(kernel, archive, Accelerator::Kvm)
    };
    let booted = guest::run(&machine, &dir, LIMIT).map(drop);
    paths::remove_tree(&dir)?;
    booted
}
