// SPDX-License-Identifier: GPL-2.0-or-later
//! Builds the selftest of the kernel series. It is one C file, so it needs neither a configured
//! kernel nor the other selftests: only `kselftest.h` of the kernel's source, and our uapi header.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::source::Source;
use crate::cache::{Inputs, Shelf};
use crate::paths::Paths;
use crate::shell;

/// The kernel's selftests, relative to its source.
const SELFTESTS: &str = "tools/testing/selftests";
/// The flags of the selftests' lib.mk, and static linking, because a guest has no shared libraries.
const FLAGS: [&str; 5] = ["-static", "-O2", "-Wall", "-Werror", "-D_GNU_SOURCE="];

/// The static program, from the cache if nothing has changed.
pub fn get(paths: &Paths) -> Result<PathBuf> {
    let tests = paths.kernel().join("series/files").join(SELFTESTS);
    let uapi = paths.kernel().join("files/include/uapi");
    let source = Source::choose(paths, paths.linux)?;
    let mut inputs = Inputs::new();
    inputs.text("flags", FLAGS.join(" "));
    inputs.tree("tests", &tests)?.tree("uapi", &uapi)?;
    source.add_to(&mut inputs)?;
    let entry = Shelf::new(&paths.cache, "programs")?.get("kselftest", &inputs.key(), |dir| {
        build(&source, &tests, &uapi, dir)
    })?;
    Ok(entry.join("limelight"))
}

fn build(source: &Source, tests: &Path, uapi: &Path, dir: &Path) -> Result<()> {
    // The test includes "../kselftest.h", so it is compiled in a tree like the kernel's.
    let tree = dir.join("tree").join(SELFTESTS);
    let at = tree.join("mm");
    fs::create_dir_all(&at).with_context(|| format!("cannot create {}", at.display()))?;
    source.unpack_file(&format!("{SELFTESTS}/kselftest.h"), &dir.join("tree"))?;
    let test = at.join("limelight.c");
    let from = tests.join("mm/limelight.c");
    fs::copy(&from, &test).with_context(|| format!("cannot copy {}", from.display()))?;
    shell::run(
        Command::new(shell::need("gcc")?)
            .args(FLAGS)
            .arg("-I")
            .arg(uapi)
            .arg("-o")
            .arg(dir.join("limelight"))
            .arg(test),
    )
}
