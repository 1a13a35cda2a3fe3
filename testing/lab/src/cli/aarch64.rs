// SPDX-License-Identifier: GPL-2.0-or-later
//! `aarch64`: tests the programs built for phones on an emulated 64-bit ARM machine.

use anyhow::{bail, Result};

use super::tests::Tally;
use super::How;
use crate::paths::Paths;
use crate::qemu::QEMU_AARCH64;
use crate::run::Runner;
use crate::scenario::{Kind, Mode};
use crate::scenarios::aarch64::AARCH64;
use crate::shell;

/// Runs the tests; the last line is `N passed, N failed`.
pub fn run(paths: &Paths, how: &How) -> Result<bool> {
    if shell::find(QEMU_AARCH64).is_none() {
        bail!("{QEMU_AARCH64} is missing: install Debian's qemu-system-arm");
    }
    let options = how.options(Kind::Test, Mode::Fast);
    let mut runner = Runner::new(paths, options.accelerator)?;
    let mut tally = Tally::default();
    tally.run(&mut runner, &[&AARCH64], &options)?;
    tally.print();
    Ok(tally.is_clean())
}
