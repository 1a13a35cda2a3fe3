// SPDX-License-Identifier: GPL-2.0-or-later
//! `dma`: runs the kernel's KUnit tests on SiFive's FU540, which QEMU emulates. Linux has a driver
//! for the FU540's DMA controller. The machine runs only the kernel: its tests fill prezero's pool
//! through the controller and verify every page.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::tests::Tally;
use crate::kernel;
use crate::ktap;
use crate::paths::{self, Paths};
use crate::progress::Progress;
use crate::run;
use crate::scenario::Kernel;
use crate::shell;

const QEMU: &str = "qemu-system-riscv64";
/// Timeout for the machine to boot and run its tests.
const LIMIT: Duration = Duration::from_secs(600);
/// Polling interval.
const POLL: Duration = Duration::from_millis(200);
/// QEMU's device tree lists the CPU's extensions only in the old form. Linux parses that form only
/// with `riscv_isa_fallback`.
const PARAMETERS: &str = "console=ttySIF0 earlycon=sifive,0x10010000 riscv_isa_fallback \
                          ignore_loglevel panic=-1 kunit.enable=1 kunit.filter_glob=limelight* \
                          kunit_shutdown=reboot";
/// The suite that needs the DMA controller. Here, a skipped test of it counts as failed.
const SUITE: &str = "limelight-prezero-machine";

/// Runs the tests; the last line is `N passed, N failed`.
pub fn run(paths: &Paths) -> Result<bool> {
    if shell::find(QEMU).is_none() {
        bail!("{QEMU} is missing: install Debian's qemu-system-misc and opensbi");
    }
    let kernel = kernel::get(paths, Kernel::Fu540)?;
    let dir = paths.runs().join(format!("{}-dma", run::begin(paths)?));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let progress = Progress::new("dma");
    progress.update("booting the kernel with its own tests");
    let died = boot(&kernel.image(), &dir).err();
    let log = dir.join("console.log");
    let cases = ktap::parse(&paths::read_lossy(&log)?);
    progress.finish(format!("{} tests", cases.len()));

    let mut tally = Tally::default();
    let why = died.as_ref().map(|error| error.to_string());
    tally.add(
        "fu540: the kernel's tests run and the machine ends".into(),
        died.is_none() && !cases.is_empty(),
        why.as_deref()
            .unwrap_or("no test results on the console: is CONFIG_KUNIT set?"),
    );
    let shown = paths.short(&log);
    for case in &cases {
        let needed = case.name.contains(SUITE);
        let passed = match case.outcome {
            ktap::Outcome::Passed => true,
            ktap::Outcome::Skipped => !needed,
            ktap::Outcome::Failed => false,
        };
        tally.add(
            format!("fu540 {}", case.name),
            passed,
            &format!("see {shown}"),
        );
    }
    let through = cases.iter().any(|case| case.name.contains(SUITE));
    tally.add(
        "fu540: pages are zeroed by the DMA controller".into(),
        through,
        "no such test ran",
    );
    tally.print();
    if tally.is_clean() {
        paths::remove_tree(&dir)?;
    }
    Ok(tally.is_clean())
}

/// Boots the machine and waits for its end. Leaves the console's output in `dir`.
fn boot(image: &Path, dir: &Path) -> Result<()> {
    let complaints = dir.join("qemu.log");
    let errors = File::create(&complaints)
        .with_context(|| format!("cannot create {}", complaints.display()))?;
    let console = File::create(dir.join("console.log")).context("cannot create console.log")?;
    let mut command = Command::new(QEMU);
    command
        .args(["-M", "sifive_u", "-smp", "2", "-m", "1G"])
        .args([
            "-nographic",
            "-no-reboot",
            "-net",
            "none",
            "-append",
            PARAMETERS,
        ])
        .arg("-kernel")
        .arg(image)
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors);
    let shown = shell::show(&command);
    let mut child = command
        .spawn()
        .map_err(|error| shell::not_started(error, &command, &shown))?;
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().context("waiting for QEMU failed")? {
            let said = paths::read_lossy(&complaints)?;
            match status.success() {
                true => return Ok(()),
                false => bail!("{shown}: {status}\n{}", said.trim()),
            }
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the machine has not finished after {} s", LIMIT.as_secs());
        }
        std::thread::sleep(POLL);
    }
}
