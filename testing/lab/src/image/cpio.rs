// SPDX-License-Identifier: GPL-2.0-or-later
//! Writes cpio archives in the "newc" format, which the kernel expects of an initramfs.

use std::io::{self, Write};

const TRAILER: &str = "TRAILER!!!";
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// Writes an archive with reproducible bytes: owner 0, time 0, sequential inodes.
pub struct Writer<W> {
    out: W,
    written: u64,
    inodes: u32,
}

impl<W: Write> Writer<W> {
    /// Creates an archive that is written to `out`.
    pub fn new(out: W) -> Self {
        Writer {
            out,
            written: 0,
            inodes: 0,
        }
    }

    /// Adds a directory; its parents must have been added before.
    pub fn directory(&mut self, path: &str, permissions: u32) -> io::Result<()> {
        self.entry(path, DIRECTORY | permissions, (0, 0), &[])
    }

    /// Adds a regular file.
    pub fn file(&mut self, path: &str, permissions: u32, contents: &[u8]) -> io::Result<()> {
        self.entry(path, REGULAR | permissions, (0, 0), contents)
    }

    /// Adds a symbolic link to `target`.
    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, SYMLINK | 0o777, (0, 0), target.as_bytes())
    }

    /// Adds a character device.
    pub fn character_device(
        &mut self,
        path: &str,
        permissions: u32,
        (major, minor): (u32, u32),
    ) -> io::Result<()> {
        self.entry(path, CHARACTER_DEVICE | permissions, (major, minor), &[])
    }

    /// Ends the archive and returns `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.header(TRAILER, 0, 0, (0, 0), 0)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{path}: 4 GiB or larger"),
            )
        })?;
        self.inodes += 1;
        self.header(
            path.trim_start_matches('/'),
            self.inodes,
            mode,
            device,
            size,
        )?;
        self.put(data)?;
        self.pad()
    }

    fn header(
        &mut self,
        name: &str,
        inode: u32,
        mode: u32,
        (major, minor): (u32, u32),
        size: u32,
    ) -> io::Result<()> {
        let links = if mode & 0o170_000 == DIRECTORY { 2 } else { 1 };
        let name_size = name.len() as u32 + 1;
        let (owner, time, check) = (0, 0, 0);
        let fields = [
            inode, mode, owner, owner, links, time, size, 0, 0, major, minor, name_size, check,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08X}"));
        }
        self.put(header.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Pads to a multiple of 4 bytes, the alignment of headers and contents.
    fn pad(&mut self) -> io::Result<()> {
        let missing = (4 - self.written % 4) % 4;
        self.put(&[0; 3][..missing as usize])
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn sample() -> Vec<u8> {
        let mut archive = Writer::new(Vec::new());
        archive.directory("bin", 0o755).unwrap();
        archive.file("/bin/hello", 0o755, b"hello").unwrap();
        archive.symlink("init", "bin/hello").unwrap();
        archive.character_device("console", 0o600, (5, 1)).unwrap();
        archive.finish().unwrap()
    }

    #[test]
    fn file_has_the_documented_bytes() {
        let mut archive = Writer::new(Vec::new());
        archive.file("a", 0o644, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        let expected = concat!(
            "07070100000001000081A40000000000000000000000010000000000000005",
            "0000000000000000000000000000000000000002",
            "00000000a\0hello\0\0\0",
            "07070100000000000000000000000000000000000000010000000000000000",
            "000000000000000000000000000000000000000B",
            "00000000TRAILER!!!\0\0\0\0",
        );
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn same_input_gives_the_same_bytes() {
        assert_eq!(sample(), sample());
    }

    #[test]
    fn cpio_lists_the_archive() {
        if crate::shell::find("cpio").is_none() {
            return;
        }
        let mut cpio = Command::new("cpio")
            .args(["-t", "--verbose", "--numeric-uid-gid"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        cpio.stdin.take().unwrap().write_all(&sample()).unwrap();
        let output = cpio.wait_with_output().unwrap();
        let listing = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{listing}");
        let lines: Vec<&str> = listing.lines().collect();
        assert_eq!(lines.len(), 4, "{listing}");
        assert!(lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with(" bin"));
        assert!(lines[1].starts_with("-rwxr-xr-x") && lines[1].ends_with(" bin/hello"));
        assert!(lines[2].starts_with("lrwxrwxrwx") && lines[2].ends_with(" init -> bin/hello"));
        assert!(lines[3].starts_with("crw-------") && lines[3].contains("5,   1"));
    }
}
