// SPDX-License-Identifier: GPL-2.0-or-later
//! Debian's earlyoom, for guests without a Debian root file system.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{bail, Context, Result};
use limelight_apps::rotation::rival::EARLYOOM;

use super::debian;
use crate::cache::{Inputs, Shelf};
use crate::paths::Paths;
use crate::shell;

const PACKAGE: &str = "earlyoom";

/// The program and the shared libraries that it needs, with their paths in the guest. The program
/// comes from the package, the libraries from this host.
pub fn earlyoom(paths: &Paths) -> Result<Vec<(String, PathBuf)>> {
    let apt = debian::apt(paths)?;
    let version = apt.candidate(PACKAGE)?;
    let key = Inputs::new().text("version", version).key();
    let entry = Shelf::new(&paths.cache, "programs")?.get(PACKAGE, &key, |dir| {
        apt.fetch(PACKAGE, &dir.join("unpacked"))?;
        let program = dir.join("unpacked/usr/bin").join(PACKAGE);
        let to = dir.join(PACKAGE);
        fs::rename(&program, &to)
            .with_context(|| format!("{PACKAGE}'s package has no {}", program.display()))
    })?;
    let program = entry.join(PACKAGE);
    let list = shell::output(Command::new("ldd").arg(&program))?;
    let mut files = vec![(EARLYOOM[1..].to_owned(), program)];
    files.extend(libraries(&list)?);
    Ok(files)
}

/// The files in the output of ldd, with their paths in the guest. The loader must be at its path;
/// it searches all other libraries in `/lib`.
fn libraries(list: &str) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, "=>", "not", ..] => bail!("the library {name} is not installed"),
            [name, "=>", path, ..] => files.push((format!("lib/{name}"), path.into())),
            [loader, _] if loader.starts_with('/') => {
                files.push((loader[1..].to_owned(), loader.into()));
            }
            _ => {}
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_stays_and_libraries_go_to_lib() {
        let list = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f5d)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f5e)\n";
        let files = libraries(list).unwrap();
        assert_eq!(
            files,
            [
                (
                    "lib/libc.so.6".to_owned(),
                    "/lib/x86_64-linux-gnu/libc.so.6".into()
                ),
                (
                    "lib64/ld-linux-x86-64.so.2".to_owned(),
                    "/lib64/ld-linux-x86-64.so.2".into()
                ),
            ]
        );
        assert!(libraries("\tlibx.so => not found\n").is_err());
    }
}
