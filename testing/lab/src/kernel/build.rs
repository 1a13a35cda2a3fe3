// SPDX-License-Identifier: GPL-2.0-or-later
//! Builds kernels from source.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{bail, Context, Result};

use super::source::Source;
use super::{config, patch};
use crate::cache::{Inputs, Shelf};
use crate::paths::{self, Paths};
use crate::progress::Progress;
use crate::scenario::Kernel;
use crate::shell;

/// Estimated number of object files in a first build, for the progress line. Later builds use the
/// count of the previous build.
const ESTIMATED_OBJECTS: usize = 1600;
/// Number of lines of `make`'s error output that the error of a failed build shows.
const ERROR_LINES: usize = 40;

/// The architecture that a kernel is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Architecture {
    X86,
    Riscv,
}

impl Architecture {
    fn of(kernel: Kernel) -> Architecture {
        match kernel {
            Kernel::Fu540 => Architecture::Riscv,
            _ => Architecture::X86,
        }
    }

    /// The `make` target, and the path of the image.
    fn image(self) -> (&'static str, &'static str) {
        match self {
            Architecture::X86 => ("bzImage", "arch/x86/boot/bzImage"),
            Architecture::Riscv => ("Image", "arch/riscv/boot/Image"),
        }
    }

    fn compiler(self) -> &'static str {
        match self {
            Architecture::X86 => "gcc",
            Architecture::Riscv => "riscv64-linux-gnu-gcc",
        }
    }

    /// Arguments for every `make`.
    fn words(self) -> Vec<String> {
        let mut words = match self {
            Architecture::X86 => vec!["ARCH=x86".to_owned()],
            Architecture::Riscv => vec![
                "ARCH=riscv".to_owned(),
                "CROSS_COMPILE=riscv64-linux-gnu-".to_owned(),
            ],
        };
        if shell::find("ccache").is_some() {
            words.push(format!("CC=ccache {}", self.compiler()));
            words.push("HOSTCC=ccache gcc".to_owned());
        }
        words
    }
}

/// Builds the kernel, or takes it from the cache. The cache entry contains the image, `.config` and
/// `System.map`.
pub fn get(paths: &Paths, kernel: Kernel) -> Result<PathBuf> {
    let recipe = Recipe::new(paths, kernel)?;
    let key = recipe.key()?;
    let shelf = Shelf::new(&paths.cache, "kernels")?;
    shelf.get(&recipe.name, &key, |dir| recipe.build(dir))
}

/// All inputs of a kernel build.
struct Recipe {
    /// The kernel's name in the cache.
    name: String,
    architecture: Architecture,
    source: Source,
    /// Trees of files that are added to the source.
    files: Vec<PathBuf>,
    patches: Vec<PathBuf>,
    fragments: Vec<PathBuf>,
    /// File with the number of object files of the last build.
    objects_file: PathBuf,
}

impl Recipe {
    fn new(paths: &Paths, kernel: Kernel) -> Result<Self> {
        let dir = paths.kernel();
        let names: &[&str] = match kernel {
            Kernel::Limelight => &["base.config", "limelight.config"],
            Kernel::Debug => &["base.config", "limelight.config", "debug.config"],
            Kernel::Unpatched => &["base.config"],
            Kernel::Fu540 => &["fu540.config"],
            Kernel::Debian | Kernel::Arm64 | Kernel::Arm64Oldest | Kernel::Packaged => {
                bail!("a packaged kernel is not built")
            }
        };
        let linux = paths.linux.of(kernel);
        let (files, patches) = match kernel {
            Kernel::Unpatched => Default::default(),
            _ => (
                vec![dir.join("files"), dir.join("compat").join(linux.series())],
                patch::series(&dir.join("patches").join(linux.series()))?,
            ),
        };
        let config = |name: &str| dir.join("configs").join(name);
        let version_config = config(&format!("{}.config", linux.series()));
        let name = paths.linux.name_of(kernel);
        Ok(Recipe {
            architecture: Architecture::of(kernel),
            source: Source::choose(paths, linux)?,
            files,
            patches,
            fragments: names
                .iter()
                .map(|name| config(name))
                .chain(version_config.is_file().then_some(version_config.clone()))
                .collect(),
            objects_file: paths.cache.join(format!("kernels/.{name}.objects")),
            name,
        })
    }

    fn key(&self) -> Result<String> {
        let mut inputs = Inputs::new();
        self.source.add_to(&mut inputs)?;
        for files in &self.files {
            inputs.tree("files", files)?;
        }
        for file in self.patches.iter().chain(&self.fragments) {
            inputs.file(
                &file.file_name().unwrap_or_default().to_string_lossy(),
                file,
            )?;
        }
        let compiler = Command::new(self.architecture.compiler())
            .arg("--version")
            .output();
        let compiler = compiler.with_context(|| {
            format!(
                "{} is missing: install gcc, or Debian's gcc-riscv64-linux-gnu for the RISC-V \
                 kernel",
                self.architecture.compiler()
            )
        })?;
        let compiler = String::from_utf8_lossy(&compiler.stdout).into_owned();
        inputs.text("compiler", compiler.lines().next().unwrap_or_default());
        Ok(inputs.key())
    }

    /// Builds the kernel in `dir`, and leaves only the image, `.config` and `System.map` there.
    fn build(&self, dir: &Path) -> Result<()> {
        let progress = Progress::new(format!("kernel {}", self.name));
        let tree = dir.join("tree");
        fs::create_dir(&tree).with_context(|| format!("cannot create {}", tree.display()))?;
        progress.during("unpacking the source", || self.source.unpack(&tree))?;
        for files in &self.files {
            patch::lay_over(files, &tree)?;
        }
        self.patches
            .iter()
            .try_for_each(|file| patch::apply(file, &tree))?;
        progress.during("configuring", || self.configure(&tree))?;
        let objects = self.compile(&tree, &progress)?;
        for (from, to) in [
            (self.architecture.image().1, self.architecture.image().0),
            (".config", ".config"),
            ("System.map", "System.map"),
        ] {
            paths::copy_file(&tree.join(from), &dir.join(to))?;
        }
        paths::write(&self.objects_file, objects.to_string())?;
        paths::remove_tree(&tree)?;
        progress.finish(format!("built ({objects} objects)"));
        Ok(())
    }

    fn configure(&self, tree: &Path) -> Result<()> {
        shell::run(self.make(tree).arg("tinyconfig"))?;
        let mut merge = Command::new(tree.join("scripts/kconfig/merge_config.sh"));
        shell::run(
            merge
                .args(["-m", ".config"])
                .args(&self.fragments)
                .current_dir(tree),
        )?;
        shell::run(self.make(tree).arg("olddefconfig"))?;
        config::verify(&tree.join(".config"), &self.fragments)
    }

    /// Compiles the kernel and returns the number of object files.
    fn compile(&self, tree: &Path, progress: &Progress) -> Result<usize> {
        let jobs = std::thread::available_parallelism().map_or(2, usize::from);
        let log = tree.join("build.log");
        let errors =
            fs::File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = self.make(tree);
        command
            .args([&format!("-j{jobs}"), self.architecture.image().0])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors);
        let shown = shell::show(&command);
        let mut child = command
            .spawn()
            .map_err(|e| shell::not_started(e, &command, &shown))?;
        let estimate = fs::read_to_string(&self.objects_file)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(ESTIMATED_OBJECTS);
        let mut objects = 0;
        for line in BufReader::new(child.stdout.take().expect("stdout is piped")).lines() {
            let line = line.context("make's output cannot be read")?;
            if ["  CC ", "  AS "].iter().any(|step| line.starts_with(step)) {
                objects += 1;
                progress.update(status(objects, estimate));
            }
        }
        let status = child.wait().context("waiting for make failed")?;
        if !status.success() {
            let said = paths::read_lossy(&log)?;
            bail!("{shown}: {status}\n{}", shell::tail(&said, ERROR_LINES));
        }
        Ok(objects)
    }

    /// `make` with settings that make object files independent of build time, host and path, so
    /// that ccache can share them between trees.
    fn make(&self, tree: &Path) -> Command {
        let mut command = Command::new("make");
        command
            .current_dir(tree)
            .env("LC_ALL", "C")
            .env("CCACHE_NOHASHDIR", "1")
            .args([
                "KBUILD_BUILD_TIMESTAMP=1970-01-01",
                "KBUILD_BUILD_USER=limelight",
                "KBUILD_BUILD_HOST=lab",
            ])
            .args(self.architecture.words());
        command
    }
}

fn status(objects: usize, estimate: usize) -> String {
    if objects <= estimate {
        format!("{objects} of about {estimate} objects")
    } else {
        format!("{objects} objects")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_is_omitted_once_it_is_exceeded() {
        assert_eq!(status(10, 20), "10 of about 20 objects");
        assert_eq!(status(21, 20), "21 objects");
    }
}
