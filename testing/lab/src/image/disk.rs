// SPDX-License-Identifier: GPL-2.0-or-later
//! Disk images. They are sparse, and each kind is made only once per size. Guests do not change
//! them: QEMU writes to a temporary snapshot.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{Inputs, Shelf};
use crate::paths::Paths;
use crate::shell;

/// An empty ext4 file system of `mib` MiB.
pub fn data(paths: &Paths, mib: u32) -> Result<PathBuf> {
    let key = Inputs::new()
        .text("ext4", format!("{mib} {}", EXT4_OPTIONS.join(" ")))
        .key();
    let entry = Shelf::new(&paths.cache, "images")?.get("data", &key, |dir| {
        let image = dir.join("disk");
        sparse(&image, mib)?;
        format_ext4(Command::new(shell::need("mkfs.ext4")?), &image, None)
    })?;
    Ok(entry.join("disk"))
}

/// An empty disk of `mib` MiB, for swap.
pub fn blank(paths: &Paths, mib: u32) -> Result<PathBuf> {
    let key = Inputs::new().text("blank", mib.to_string()).key();
    let entry = Shelf::new(&paths.cache, "images")?
        .get("blank", &key, |dir| sparse(&dir.join("disk"), mib))?;
    Ok(entry.join("disk"))
}

/// mkfs initializes all metadata, because otherwise a kernel thread of the guest would do it during
/// a measurement. UUID and hash seed are fixed, so that equal inputs give equal images.
const EXT4_OPTIONS: [&str; 6] = [
    "-q",
    "-F",
    "-Elazy_itable_init=0,lazy_journal_init=0,hash_seed=6c696d65-6c69-4768-8174-000000000000",
    "-U6c696d65-6c69-4768-8174-000000000001",
    "-m0",
    "-O^metadata_csum,^64bit",
];

/// Formats `image` as ext4 and fills it with the files of the directory `contents`, if given.
/// `mkfs` runs mkfs.ext4, possibly in a user namespace.
pub fn format_ext4(mut mkfs: Command, image: &Path, contents: Option<&Path>) -> Result<()> {
    mkfs.env("E2FSPROGS_FAKE_TIME", "1").args(EXT4_OPTIONS);
    if let Some(contents) = contents {
        mkfs.arg("-d").arg(contents);
    }
    shell::run(mkfs.arg(image))
}

/// Creates a sparse file of `mib` MiB.
pub fn sparse(path: &Path, mib: u32) -> Result<()> {
    File::create(path)
        .and_then(|file| file.set_len(u64::from(mib) << 20))
        .with_context(|| format!("cannot create {} ({mib} MiB)", path.display()))
}

/// Disk usage of `dir` in MiB, rounded up.
pub fn usage_mib(dir: &Path) -> Result<u32> {
    let text = shell::output(Command::new("du").args(["-sm", "--"]).arg(dir))?;
    let size = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    size.with_context(|| format!("du printed {text:?} for {}", dir.display()))
}

/// Checks that a disk image exists, because QEMU's message about a missing image names only the
/// option.
pub fn check(path: &Path) -> Result<()> {
    fs::metadata(path)
        .map(drop)
        .with_context(|| format!("disk image {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::paths::tests::temporary;

    #[test]
    fn data_disk_is_sparse_ext4_and_made_once() {
        if shell::find("mkfs.ext4").is_none() {
            return;
        }
        let (_dir, paths) = temporary();
        let image = data(&paths, 64).unwrap();
        let bytes = fs::read(&image).unwrap();
        assert_eq!(bytes.len(), 64 << 20);
        assert_eq!(
            bytes[1024 + 56..1024 + 58],
            [0x53, 0xef],
            "the image has no ext4 magic number"
        );
        assert!(
            fs::metadata(&image).unwrap().blocks() * 512 < 20 << 20,
            "the image is not sparse"
        );
        assert_eq!(image, data(&paths, 64).unwrap());
        assert_ne!(image, data(&paths, 65).unwrap());
    }

    #[test]
    fn image_made_in_a_user_namespace_is_the_same() {
        let Some(mkfs) = shell::find("mkfs.ext4") else {
            return;
        };
        let (dir, _) = temporary();
        let files = dir.path().join("files");
        fs::create_dir(&files).unwrap();
        let mut file = File::create(files.join("file")).unwrap();
        file.write_all(b"text").unwrap();
        // The image contains the file's access time. The first mkfs would change it by reading the
        // file, unless it is later than the file's last change.
        let later = SystemTime::now() + Duration::from_secs(3600);
        file.set_times(FileTimes::new().set_accessed(later))
            .unwrap();
        let mut namespace = Command::new("unshare");
        namespace.args(["--map-root-user", "--"]);
        let works = Command::new("unshare")
            .args(["--map-root-user", "true"])
            .status();
        if !works.is_ok_and(|status| status.success()) {
            return eprintln!("SKIPPED: no user namespace can be created");
        }
        namespace.arg(&mkfs);
        let image = |name: &str, mkfs: Command| {
            let image = dir.path().join(name);
            sparse(&image, 16).unwrap();
            format_ext4(mkfs, &image, Some(&files)).unwrap();
            fs::read(image).unwrap()
        };
        let (direct, within) = (image("a", Command::new(&mkfs)), image("b", namespace));
        assert!(direct == within);
    }

    #[test]
    fn blank_disk_takes_no_space() {
        let (_dir, paths) = temporary();
        let meta = fs::metadata(blank(&paths, 100).unwrap()).unwrap();
        assert_eq!((meta.len(), meta.blocks()), (100 << 20, 0));
    }
}
