// SPDX-License-Identifier: GPL-2.0-or-later
//! Files that stay open for repeated reads and writes. The reads and writes do not allocate, so
//! callers can use them when no memory is left.
//!
//! Errors are bare error numbers, because an error with a path needs memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use memchr::memchr;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::Result;

/// Buffer size for files that contain only a few numbers, such as `statm`.
const SHORT: usize = 256;

/// An open kernel file. Each read starts at the beginning, and each write replaces the whole value.
#[derive(Debug)]
pub struct PersistentFile {
    fd: OwnedFd,
}

impl PersistentFile {
    /// Opens a file below a directory for reading.
    pub fn open(dir: &Dir, relative: impl AsRef<Path>) -> Result<PersistentFile> {
        let fd = dir.open_at(relative, OFlags::RDONLY, "read")?;
        Ok(PersistentFile { fd })
    }

    /// Opens a file below a directory for writing.
    pub fn open_to_write(dir: &Dir, relative: impl AsRef<Path>) -> Result<PersistentFile> {
        let fd = dir.open_at(relative, OFlags::WRONLY, "write")?;
        Ok(PersistentFile { fd })
    }

    /// Reads the current contents of the file, up to the size of the buffer. Returns the filled
    /// part of the buffer.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::pread(&self.fd, &mut buffer[filled..], filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(&buffer[..filled])
    }

    /// Writes a value with one system call.
    pub fn write(&self, value: &[u8]) -> Result<(), Errno> {
        match rustix::io::pwrite(&self.fd, value, 0)? {
            written if written == value.len() => Ok(()),
            _ => Err(Errno::IO),
        }
    }

    /// Reads the first `N` numbers of a short file, separated by blanks. [`Errno::PROTO`] if there
    /// are fewer than `N` or one is malformed.
    pub fn numbers<const N: usize>(&self) -> Result<[u64; N], Errno> {
        let mut buffer = [0; SHORT];
        let read = rustix::io::pread(&self.fd, &mut buffer, 0)?;
        let mut words = buffer[..read]
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let mut numbers = [0; N];
        for number in &mut numbers {
            let word = words.next().ok_or(Errno::PROTO)?;
            *number = parse_number(word).ok_or(Errno::PROTO)?;
        }
        Ok(numbers)
    }
}

/// Allows callers to poll the file for events.
impl AsFd for PersistentFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Parses a number that consists of decimal digits only; `None` for anything else.
pub(crate) fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// The part of a line `NAME NUMBER` after the name. It is parsed on demand, because callers need
/// few of the lines, and the memory guard reads them up to a hundred times a second.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a>(&'a [u8]);

impl Value<'_> {
    /// The number; `None` if there is none. Anything after it, such as a unit, is ignored.
    pub fn number(self) -> Option<u64> {
        let (number, _) = first_word(self.0);
        parse_number(number)
    }
}

/// Iterates over the complete lines `NAME NUMBER` of a text. A colon after the name is optional, as
/// in [`Keyed`](crate::keyed::Keyed).
pub fn keyed_lines(text: &[u8]) -> impl Iterator<Item = (&[u8], Value<'_>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = memchr(b'\n', rest)?;
        let (name, value) = first_word(&rest[..end]);
        rest = &rest[end + 1..];
        Some((name.strip_suffix(b":").unwrap_or(name), Value(value)))
    })
}

/// The first word, which is empty in a blank text, and everything after it.
fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace);
    text.split_at(end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::Keyed;
    use proptest::prelude::*;

    #[test]
    fn each_read_returns_the_current_contents() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("f");
        std::fs::write(&path, "12 34 x\n").unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let file = PersistentFile::open(&dir, "f").unwrap();
        assert_eq!(file.numbers::<2>(), Ok([12, 34]));
        assert_eq!(file.numbers::<3>(), Err(Errno::PROTO));
        let mut buffer = [0; 4];
        assert_eq!(file.read(&mut buffer), Ok(&b"12 3"[..]));
        std::fs::write(&path, "5").unwrap();
        assert_eq!(file.numbers::<1>(), Ok([5]));
        assert_eq!(file.read(&mut buffer), Ok(&b"5"[..]));
        let writer = PersistentFile::open_to_write(&dir, "f").unwrap();
        writer.write(b"6").unwrap();
        writer.write(b"7").unwrap();
        assert_eq!(file.numbers::<1>(), Ok([7]));
        assert!(PersistentFile::open(&dir, "none").unwrap_err().is_gone());
    }

    #[test]
    fn file_larger_than_a_page_is_read_completely() {
        let proc = Dir::open("/proc").unwrap();
        let file = PersistentFile::open(&proc, "vmstat").unwrap();
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..3 {
            let text = file.read(&mut buffer).unwrap();
            let names = keyed_lines(text).map(|(name, _)| name);
            let names: Vec<_> = names
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
            let all = std::fs::read_to_string("/proc/vmstat").unwrap();
            assert_eq!(names.len(), all.lines().count());
        }
    }

    #[test]
    fn incomplete_line_is_left_out() {
        let all = keyed_lines(b" a 1\nb: 2 kB\nc\n\nd 34");
        let all: Vec<_> = all.map(|(name, value)| (name, value.number())).collect();
        let expected = [("a", Some(1)), ("b", Some(2)), ("c", None), ("", None)];
        assert_eq!(all, expected.map(|(name, value)| (name.as_bytes(), value)));
        assert_eq!(keyed_lines(b"").count(), 0);
    }

    proptest! {
        #[test]
        fn both_parsers_find_the_same_values(text in "([a-z]{1,4}:? {1,2}[0-9a]{1,21}( kB)?\n){0,6}") {
            let keyed = Keyed::parse(&text);
            let mut last = std::collections::BTreeMap::new();
            for (name, value) in keyed_lines(text.as_bytes()) {
                if let Some(number) = value.number() {
                    last.insert(std::str::from_utf8(name).unwrap(), number);
                }
            }
            let expected: Vec<_> = keyed.with_prefix("").collect();
            prop_assert_eq!(last.into_iter().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn never_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
            keyed_lines(&text).filter_map(|(_, value)| value.number()).count();
            parse_number(&text);
        }
    }
}
