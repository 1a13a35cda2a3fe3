// SPDX-License-Identifier: GPL-2.0-or-later
//! The package of our kernel, on a machine that runs this kernel. The installed files must be
//! complete, also after an upgrade; Limelight's package must find its kernel support; and removal
//! must leave nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{bail, Context, Result};

use super::before::Before;
use super::person::Person;
use super::{apt, check_daemon, check_gone, doctor, follow, PACKAGE};
use crate::dispatch::Stage;
use crate::plan::PACKAGES;
use crate::process::run as run_program;
use crate::record::Reporter;

/// Modules that are needed to mount this machine's root file system. They must be in the initial
/// file system or built into the kernel.
const ROOT_MODULES: [&str; 2] = ["/virtio_blk.ko", "/ext4.ko"];
/// A module that no program of the guest has loaded.
const MODULE: &str = "zram";
const TOPMOST: &str = "/sys/kernel/mm/limelight";

/// Runs the test.
pub fn run(stage: Stage) -> Result<()> {
    let [ours, _, kernel, next] = stage.machine.packages.as_slice() else {
        bail!("the kernel package's test needs Limelight's two packages and the kernel's two");
    };
    let name = kernel.split_once('_').map(|(name, _)| name.to_owned());
    let name = name.with_context(|| format!("{kernel} has no package name before _"))?;
    let [ours, kernel, next] = [ours, kernel, next].map(|file| format!("{PACKAGES}/{file}"));
    let (mut person, apps) = Person::start(None)?;
    let before = Before::now(apps.iter().map(|app| app.pid).collect())?;

    stage.reporter.progress("installing the kernel")?;
    apt(&["install", &kernel])?;
    let installed = Installed::of_running()?;
    installed.check(&stage.reporter)?;

    stage.reporter.progress("installing Limelight")?;
    apt(&["install", &ours])?;
    let daemon = check_daemon(&stage.reporter, "on the packaged kernel")?;

    stage.reporter.progress("upgrading the kernel")?;
    let [old, made] = [version(&name)?, installed.initial_made()?];
    apt(&["install", &next])?;
    let [new, made_again] = [version(&name)?, installed.initial_made()?];
    stage.reporter.check(
        "an upgrade of the kernel package rebuilds the initial file system",
        new != old && made_again != made,
        format!("{old}, then {new}; made at {made}, then {made_again}"),
    )?;
    installed.check(&stage.reporter)?;
    let after = check_daemon(&stage.reporter, "after the kernel upgrade")?;
    stage.reporter.check(
        "an upgrade of the kernel package does not restart the daemon",
        after == daemon,
        format!("pid {daemon}, then {after}"),
    )?;
    check_support(&stage.reporter)?;
    for app in &apps {
        let moved = follow(&mut person, app)?;
        let topmost = members()?;
        stage.reporter.check(
            "the app that gets the focus is protected, and the kernel's topmost set has members",
            moved.is_some() && topmost > 0,
            format!("{}: {moved:?}, {topmost} members", app.name),
        )?;
    }
    apt(&["purge", PACKAGE])?;
    check_gone(&stage.reporter, &before)?;
    stage.reporter.check(
        "without the daemon, the kernel's topmost set is empty",
        members()? == 0,
        format!("{} members", members()?),
    )?;

    stage.reporter.progress("removing the kernel")?;
    apt(&["remove", &name])?;
    let left = installed.files().into_iter();
    let left: Vec<String> = left.filter(|path| Path::new(path).exists()).collect();
    stage.reporter.check(
        "removal deletes kernel, initial file system and modules",
        left.is_empty(),
        left.join(" "),
    )?;
    apt(&["purge", &name])?;
    before.check_files(&stage.reporter)?;
    person.stop()?;
    stage.reporter.finish()
}

/// The files of the running kernel's release.
struct Installed {
    release: String,
}

impl Installed {
    fn of_running() -> Result<Installed> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(Installed {
            release: release.trim().to_owned(),
        })
    }

    fn initial(&self) -> String {
        format!("/boot/initrd.img-{}", self.release)
    }

    /// Time at which the initial file system was made, in seconds with nanoseconds.
    fn initial_made(&self) -> Result<String> {
        let path = self.initial();
        let about = fs::metadata(&path).with_context(|| format!("cannot stat {path}"))?;
        Ok(format!("{}.{:09}", about.mtime(), about.mtime_nsec()))
    }

    fn files(&self) -> [String; 3] {
        let release = &self.release;
        [
            format!("/boot/vmlinuz-{release}"),
            self.initial(),
            format!("/lib/modules/{release}"),
        ]
    }

    /// Checks that the files exist, that the drivers of the root file system are in the initial
    /// file system or the kernel, and that the running kernel loads a module.
    fn check(&self, reporter: &Reporter) -> Result<()> {
        let files = self.files();
        let missing: Vec<&str> = files
            .iter()
            .filter(|path| !Path::new(path).exists())
            .map(String::as_str)
            .collect();
        reporter.check(
            "kernel, modules and initial file system of the running release exist",
            missing.is_empty(),
            format!("{}; missing: {}", self.release, missing.join(" ")),
        )?;
        let (code, list) = run_program("/usr/bin/lsinitramfs", &[&self.initial()])?;
        let builtin = format!("/lib/modules/{}/modules.builtin", self.release);
        let builtin =
            fs::read_to_string(&builtin).with_context(|| format!("cannot read {builtin}"))?;
        let there = |module: &str| {
            let mut all = list.lines().chain(builtin.lines());
            all.any(|line| line.contains(module))
        };
        let missing: Vec<&str> = ROOT_MODULES
            .into_iter()
            .filter(|module| !there(module))
            .collect();
        reporter.check(
            "the drivers of the root file system are built in or in the initial file system",
            code == 0 && missing.is_empty(),
            format!(
                "{} files; missing: {}",
                list.lines().count(),
                missing.join(" ")
            ),
        )?;
        let (code, text) = run_program("/sbin/modprobe", &[MODULE])?;
        let loaded = Path::new("/sys/module").join(MODULE).exists();
        run_program("/sbin/modprobe", &["--remove", MODULE])?;
        reporter.check(
            "the running kernel loads a module from the package",
            code == 0 && loaded,
            format!("modprobe {MODULE} exited with {code}: {text}"),
        )
    }
}

/// Checks that `limelight doctor` finds our kernel, and that the mechanisms that need it act.
fn check_support(reporter: &Reporter) -> Result<()> {
    let findings = doctor()?;
    for check in ["kernel support", "mechanism protect", "mechanism prezero"] {
        let finding = findings.iter().find(|finding| finding["check"] == check);
        reporter.check(
            format!("limelight doctor reports that {check} acts"),
            finding.is_some_and(|finding| finding["state"] == "acts"),
            finding.map_or_else(|| "no such finding".to_owned(), ToString::to_string),
        )?;
    }
    Ok(())
}

/// Version of an installed package.
fn version(package: &str) -> Result<String> {
    let (code, text) = run_program("/usr/bin/dpkg-query", &["-W", "-f=${Version}", package])?;
    match code {
        0 => Ok(text),
        _ => bail!("dpkg-query exited with {code}: {text}"),
    }
}

/// Number of processes in the kernel's topmost set.
fn members() -> Result<u64> {
    let path = Path::new(TOPMOST).join("members");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.trim()
        .parse()
        .with_context(|| path.display().to_string())
}
