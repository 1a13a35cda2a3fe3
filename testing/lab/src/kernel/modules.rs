// SPDX-License-Identifier: GPL-2.0-or-later
//! Determines which module files of a kernel a set of drivers needs. It reads the dependencies from
//! the modules themselves: the package contains no `modules.dep`, which is generated at
//! installation, as root.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::{paths, shell};

/// The modules of one kernel.
pub struct Modules {
    dir: PathBuf,
    files: BTreeMap<String, PathBuf>,
    /// Names and aliases of built-in modules.
    builtin: BTreeSet<String>,
}

/// A module for the guest to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Name with underscores.
    pub name: String,
    /// The uncompressed file.
    pub contents: Vec<u8>,
}

impl Modules {
    /// Indexes the module tree `dir` (`lib/modules/RELEASE`).
    pub fn open(dir: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        for file in paths::files_below(dir)? {
            if let Some(name) = module_name(&file) {
                files.insert(name, dir.join(file));
            }
        }
        let list = paths::read_lossy(&dir.join("modules.builtin"))?;
        let mut builtin: BTreeSet<String> = list
            .lines()
            .filter_map(|line| module_name(Path::new(line)))
            .collect();
        let info = paths::read_lossy(&dir.join("modules.builtin.modinfo"))?;
        builtin.extend(info.split('\0').filter_map(alias));
        Ok(Modules {
            dir: dir.into(),
            files,
            builtin,
        })
    }

    /// All modules to load for `wanted`, each after its dependencies. Built-in modules are omitted;
    /// a missing module is an error.
    pub fn load_order(&self, wanted: &[&str]) -> Result<Vec<Module>> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in wanted {
            self.visit(&name.replace('-', "_"), name, &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        needed_by: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<Module>,
    ) -> Result<()> {
        if !seen.insert(name.to_owned()) || self.builtin.contains(name) {
            return Ok(());
        }
        let Some(file) = self.files.get(name) else {
            bail!(
                "{needed_by} needs the kernel module {name}, which is neither in {} nor built in",
                self.dir.display()
            );
        };
        let contents = uncompressed(file)?;
        let info = module_info(&contents)
            .with_context(|| format!("{}: no .modinfo section", file.display()))?;
        for dependency in dependencies(&info) {
            self.visit(&dependency, name, seen, order)?;
        }
        order.push(Module {
            name: name.into(),
            contents,
        });
        Ok(())
    }
}

/// The module's name: `ext4` for `kernel/fs/ext4/ext4.ko.xz`. Dashes become underscores.
fn module_name(file: &Path) -> Option<String> {
    let (name, suffix) = file.file_name()?.to_str()?.split_once(".ko")?;
    ["", ".xz", ".zst", ".gz"]
        .contains(&suffix)
        .then(|| name.replace('-', "_"))
}

/// The alias in an entry of `modules.builtin.modinfo`: `crypto_crc32c` for
/// `crc32c_generic.alias=crypto-crc32c`.
fn alias(entry: &str) -> Option<String> {
    let (key, name) = entry.split_once('=')?;
    key.ends_with(".alias").then(|| name.replace('-', "_"))
}

fn uncompressed(file: &Path) -> Result<Vec<u8>> {
    let program = match file.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return std::fs::read(file).with_context(|| format!("cannot read {}", file.display())),
    };
    let mut command = Command::new(shell::need(program)?);
    command.arg("-dcq").arg(file);
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!(
            "{}: {}",
            shell::show(&command),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output.stdout)
}

/// The module's hard dependencies, and the soft dependencies to load before it (`pre:`).
fn dependencies(info: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in info {
        if let Some(list) = entry.strip_prefix("depends=") {
            found.extend(
                list.split(',')
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned),
            );
        } else if let Some(soft) = entry.strip_prefix("softdep=") {
            let words = soft
                .split_whitespace()
                .skip_while(|word| *word != "pre:")
                .skip(1);
            found.extend(
                words
                    .take_while(|word| !word.ends_with(':'))
                    .map(str::to_owned),
            );
        }
    }
    found.iter().map(|name| name.replace('-', "_")).collect()
}

/// The `key=value` strings of a module's `.modinfo` section (64-bit little-endian ELF).
fn module_info(elf: &[u8]) -> Option<Vec<String>> {
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        let value = bytes
            .iter()
            .rev()
            .fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, entry_size) = (number(0x28, 8)?, number(0x3a, 2)?);
    let (count, names_index) = (number(0x3c, 2)?, number(0x3e, 2)?);
    let section = |index: usize| -> Option<(usize, &[u8])> {
        let header = table.checked_add(index.checked_mul(entry_size)?)?;
        let (offset, size) = (number(header + 0x18, 8)?, number(header + 0x20, 8)?);
        Some((
            number(header, 4)?,
            elf.get(offset..offset.checked_add(size)?).unwrap_or(&[]),
        ))
    };
    let (_, names) = section(names_index)?;
    let info = (0..count).find_map(|index| {
        let (name, contents) = section(index)?;
        names
            .get(name..)?
            .starts_with(b".modinfo\0")
            .then_some(contents)
    })?;
    let strings = info
        .split(|byte| *byte == 0)
        .filter(|string| !string.is_empty());
    Some(
        strings
            .map(|string| String::from_utf8_lossy(string).into_owned())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal ELF file with a `.modinfo` section.
    fn elf(info: &str) -> Vec<u8> {
        let names = b"\0.shstrtab\0.modinfo\0";
        let info_at = 0x40 + names.len();
        let table = info_at + info.len();
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(0x40, 0);
        file[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
        file[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        file[0x3c..0x3e].copy_from_slice(&3u16.to_le_bytes());
        file[0x3e..0x40].copy_from_slice(&1u16.to_le_bytes());
        file.extend(names);
        file.extend(info.as_bytes());
        for (name, offset, size) in [
            (0u32, 0, 0),
            (1, 0x40, names.len()),
            (11, info_at, info.len()),
        ] {
            let mut header = vec![0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(offset as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            file.extend(header);
        }
        file
    }

    /// A module tree; `builtin` is the contents of `modules.builtin` and `modules.builtin.modinfo`.
    fn tree(modules: &[(&str, &str)], builtin: (&str, &str)) -> (tempfile::TempDir, Modules) {
        let dir = tempfile::tempdir().unwrap();
        let (builtin, info) = builtin;
        std::fs::write(dir.path().join("modules.builtin.modinfo"), info).unwrap();
        std::fs::create_dir(dir.path().join("kernel")).unwrap();
        std::fs::write(dir.path().join("modules.builtin"), builtin).unwrap();
        for (name, info) in modules {
            std::fs::write(dir.path().join("kernel").join(name), elf(info)).unwrap();
        }
        let opened = Modules::open(dir.path()).unwrap();
        (dir, opened)
    }

    fn names(modules: &Modules, wanted: &[&str]) -> Vec<String> {
        modules
            .load_order(wanted)
            .unwrap()
            .into_iter()
            .map(|module| module.name)
            .collect()
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let (_dir, modules) = tree(
            &[
                ("virtio_blk.ko", "license=GPL\0depends=\0"),
                ("ext4.ko", "depends=mbcache,jbd2\0softdep=pre: crc32c\0"),
                ("jbd2.ko", "depends=\0"),
                ("mbcache.ko", "depends=jbd2\0"),
                ("crc32c-generic.ko", "depends=\0"),
                ("crc32c.ko", "depends=crc32c-generic\0"),
            ],
            ("", ""),
        );
        assert_eq!(
            names(&modules, &["virtio-blk", "ext4", "jbd2"]),
            [
                "virtio_blk",
                "jbd2",
                "mbcache",
                "crc32c_generic",
                "crc32c",
                "ext4"
            ]
        );
    }

    #[test]
    fn builtin_modules_are_omitted_and_missing_ones_named() {
        let (_dir, modules) = tree(
            &[("zram.ko", "depends=zsmalloc,lzo\0")],
            ("kernel/mm/zsmalloc.ko\n", ""),
        );
        let error = modules.load_order(&["zram"]).unwrap_err().to_string();
        assert!(
            error.contains("zram needs the kernel module lzo"),
            "{error}"
        );
        assert!(names(&modules, &["zsmalloc"]).is_empty());
    }

    #[test]
    fn aliases_of_builtin_modules_are_builtin_too() {
        let (_dir, modules) = tree(
            &[("ext4.ko", "softdep=pre: crypto-crc32c\0")],
            (
                "kernel/crypto/crc32c_generic.ko\n",
                "crc32c_generic.license=GPL\0crc32c_generic.alias=crypto-crc32c\0",
            ),
        );
        assert_eq!(names(&modules, &["ext4"]), ["ext4"]);
    }

    #[test]
    fn dependency_cycle_terminates() {
        let (_dir, modules) = tree(
            &[("a.ko", "depends=b\0"), ("b.ko", "depends=a\0")],
            ("", ""),
        );
        assert_eq!(names(&modules, &["a"]), ["b", "a"]);
    }

    #[test]
    fn only_pre_soft_dependencies_count() {
        let info = [
            "softdep=post: later".into(),
            "softdep=pre: a-b c post: d".into(),
        ];
        assert_eq!(dependencies(&info), ["a_b", "c"]);
    }

    #[test]
    fn non_module_files_yield_nothing() {
        assert_eq!(
            module_info(b"not an ELF file at all, but long enough for a header"),
            None
        );
        assert_eq!(module_info(&elf("depends=\0")[..100]), None);
        assert_eq!(module_name(Path::new("kernel/x.ko.sig")), None);
        assert_eq!(
            module_name(Path::new("kernel/snd-x.ko.zst")),
            Some("snd_x".into())
        );
    }
}
