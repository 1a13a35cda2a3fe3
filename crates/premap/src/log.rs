// SPDX-License-Identifier: GPL-2.0-or-later
//! Appends one line to the file named by `LIMELIGHT_PREMAP_LOG` when the program exits.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering::Relaxed;

use crate::populate::{is_inert, BYTES, EXTENSIONS, REFUSED, SHORT};

const NAME: &CStr = c"LIMELIGHT_PREMAP_LOG";

/// A line of text on the stack; text beyond its capacity is dropped.
struct Line {
    text: [u8; 256],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if let Some(place) = self.text.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
        Ok(())
    }
}

extern "C" fn at_end() {
    // SAFETY: the name is a C string, and this library does not change the environment.
    let path = unsafe { libc::getenv(NAME.as_ptr()) };
    if path.is_null() {
        return;
    }
    let mut line = Line {
        text: [0; 256],
        len: 0,
    };
    // SAFETY: getpid has no preconditions.
    let pid = unsafe { libc::getpid() };
    let inert = if is_inert() {
        ", inert: the kernel is older than 5.14"
    } else {
        ""
    };
    // Never fails, because `Line` truncates.
    let _ = writeln!(
        line,
        "limelight-premap: pid {pid}: {} extensions, {} KiB populated, {} refused, {} left alone because memory was short{inert}",
        EXTENSIONS.load(Relaxed),
        BYTES.load(Relaxed) >> 10,
        REFUSED.load(Relaxed),
        SHORT.load(Relaxed),
    );
    // SAFETY: `path` is a C string, and `line` has `len` bytes. Errors are ignored, because a
    // missing log must not disturb a program that exits.
    unsafe {
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
        let file = libc::open(path, flags, 0o644);
        if file >= 0 {
            libc::write(file, line.text.as_ptr().cast(), line.len);
            libc::close(file);
        }
    }
}

/// Makes the dynamic linker call [`at_end`] when the program exits normally.
#[used]
#[link_section = ".fini_array"]
static AT_END: extern "C" fn() = at_end;
