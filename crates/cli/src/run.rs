// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight run`: starts a program with what Limelight can do for it from inside.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use limelight_sys::advice::knows_populate_write;

use crate::exit::Failure;
use crate::library;

const PRELOAD: &str = "LD_PRELOAD";

/// Replaces this process by `program` with the premap library in it. Returns only when it fails.
pub fn premap(program: &[OsString]) -> Result<(), Failure> {
    let Some((name, arguments)) = program.split_first() else {
        return Err(Failure::Other("no program to run".to_owned()));
    };
    let library = library::find().map_err(|places| Failure::NotFound {
        message: format!("the premap library is not at {}", library::list(&places)),
        cure: format!(
            "install it there (make install), or name it in {}",
            library::VARIABLE
        ),
    })?;
    if !knows_populate_write() {
        warn("this kernel is older than 5.14 and cannot populate memory on demand: the program runs as ever");
    }
    if find_program(name).is_some_and(|path| is_static(&path).unwrap_or(false)) {
        let name = name.to_string_lossy();
        warn(&format!(
            "{name} is linked statically and loads no library: it runs as ever"
        ));
    }
    let error = Command::new(name)
        .args(arguments)
        .env(PRELOAD, preload(&library, env::var_os(PRELOAD)))
        .exec();
    let name = name.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Err(Failure::NotFound {
            message: format!("there is no program {name}"),
            cure: "give its path, or look at $PATH".to_owned(),
        }),
        _ => Err(Failure::Other(format!("cannot run {name}: {error}"))),
    }
}

fn warn(message: &str) {
    eprintln!("limelight: {message}");
}

/// What is preloaded already comes after ours: whoever replaces malloc as a whole goes on doing so
/// for the calls that we pass on.
fn preload(library: &Path, before: Option<OsString>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        all.push(":");
        all.push(before);
    }
    all
}

/// Where the program that `exec` would run is.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    let directories = env::var_os("PATH")?;
    env::split_paths(&directories)
        .map(|directory| directory.join(path))
        .find(|place| place.is_file())
}

/// Whether it is a 64-bit ELF file that names no dynamic linker.
fn is_static(path: &Path) -> io::Result<bool> {
    const INTERPRETER: [u8; 4] = 3u32.to_le_bytes();
    let mut file = File::open(path)?;
    let mut header = [0; 64];
    file.read_exact(&mut header)?;
    let little_64 = [0x7f, b'E', b'L', b'F', 2, 1];
    if !header.starts_with(&little_64) {
        return Ok(false);
    }
    let [.., a, b, c, d, e, f, g, h] = header[..40] else {
        return Ok(false);
    };
    let table = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let size = u64::from(u16::from_le_bytes([header[54], header[55]]));
    let count = u64::from(u16::from_le_bytes([header[56], header[57]]));
    for entry in 0..count {
        let mut kind = [0; 4];
        file.seek(SeekFrom::Start(table.saturating_add(entry * size)))?;
        file.read_exact(&mut kind)?;
        if kind == INTERPRETER {
            return Ok(false);
        }
    }
    Ok(count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_stays() {
        let ours = Path::new("/l.so");
        assert_eq!(preload(ours, None), "/l.so");
        assert_eq!(preload(ours, Some("".into())), "/l.so");
        assert_eq!(preload(ours, Some("/x.so".into())), "/l.so:/x.so");
    }

    #[test]
    fn a_dynamic_program_is_not_static() {
        // A test is linked dynamically, and a text is no program at all.
        assert!(!is_static(&env::current_exe().unwrap()).unwrap());
        assert!(!is_static(Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/run.rs"
        )))
        .unwrap());
        assert!(is_static(Path::new("/proc/self/nonexistent")).is_err());
    }

    #[test]
    fn a_program_without_interpreter_is_static() {
        let mut image = vec![0u8; 64 + 56];
        image[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        image[32] = 64;
        image[54] = 56;
        image[56] = 1;
        image[64] = 1;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &image).unwrap();
        assert!(is_static(file.path()).unwrap());
        image[64] = 3;
        std::fs::write(file.path(), &image).unwrap();
        assert!(!is_static(file.path()).unwrap());
    }

    #[test]
    fn programs_are_found_as_exec_finds_them() {
        assert!(find_program(OsStr::new("sh")).is_some());
        assert!(find_program(OsStr::new("/no/such/program")).is_none());
        assert!(find_program(OsStr::new("no-such-program-anywhere")).is_none());
    }
}
