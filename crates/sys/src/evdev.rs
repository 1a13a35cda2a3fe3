// SPDX-License-Identifier: GPL-2.0-or-later
//! Input devices: the times of key and button events, never the keys.
//!
//! An event mask limits the kernel's reports to keys and buttons. It excludes modifier keys, which
//! request nothing by themselves. Of each event, only the time and the value (release, press or
//! repeat) are used. Before [`InputDevice::take`] returns, it overwrites the buffer and thus the
//! key codes. No returned or stored value depends on a key code.

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{Error, Result};

/// Size of the kernel's `struct input_event` on 64-bit machines: seconds, microseconds, type, code,
/// value.
const EVENT_BYTES: usize = 24;
const _: () = assert!(size_of::<libc::input_event>() == EVENT_BYTES);

/// Events per read.
const EVENTS: usize = 64;

const EV_SYN: u32 = 0;
const EV_KEY: u32 = 1;
const KEY_CNT: usize = 0x300;
/// Size of the kernel's `unsigned long`, the unit of an event mask, in bytes
/// (drivers/input/evdev.c: bits_from_user()).
const WORD: usize = 8;
const BTN_LEFT: usize = 0x110;
const BTN_TOUCH: usize = 0x14a;
/// Codes for tools that are near a tablet or touchpad (pen, finger). Proximity is not a touch. The
/// range includes [`BUTTONS_AMONG_TOOLS`].
const BTN_TOOLS: std::ops::Range<usize> = 0x140..0x150;
/// The codes in that range that a user presses: `BTN_STYLUS3`, [`BTN_TOUCH`], `BTN_STYLUS`,
/// `BTN_STYLUS2`.
const BUTTONS_AMONG_TOOLS: [usize; 4] = [0x149, BTN_TOUCH, 0x14b, 0x14c];

/// Modifier keys: Ctrl, Shift, Alt, Meta, Fn, Caps Lock, Num Lock and Scroll Lock.
const MODIFIERS: [usize; 12] = [29, 42, 54, 56, 58, 69, 70, 97, 100, 125, 126, 0x1d0];

/// Computes an ioctl number of evdev as `_IOC()` in `asm-generic/ioctl.h` does.
const fn ioc(direction: u32, number: u32, size: usize) -> libc::c_ulong {
    (direction << 30 | (size as u32) << 16 | 0x45 << 8 | number) as libc::c_ulong
}

const EVIOCSMASK: libc::c_ulong = ioc(1, 0x93, size_of::<Mask>());
const EVIOCSCLOCKID: libc::c_ulong = ioc(1, 0xa0, size_of::<libc::c_int>());
const EVIOCGBIT_KEY: libc::c_ulong = ioc(2, 0x20 + EV_KEY, KEY_CNT / 8);

/// `struct input_mask`.
#[repr(C)]
struct Mask {
    kind: u32,
    bytes: u32,
    codes: u64,
}

/// A press, repeat or release of a key or button.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stroke {
    /// Time of the event, on `CLOCK_MONOTONIC`.
    pub at: Duration,
    /// Whether the user expects a response: true for a press and for each repeat. On a device with
    /// buttons, also true for a release.
    pub asks: bool,
    /// Whether display servers forward the event: true for a press and a release. Display servers
    /// ignore repeats and generate their own.
    pub handed_on: bool,
}

/// An open input device with keys or buttons. Readable (`EPOLLIN`) after an event.
#[derive(Debug)]
pub struct InputDevice {
    fd: OwnedFd,
    name: String,
    /// Whether the device has buttons. If so, a release counts as a request too, because programs
    /// act when a button is released.
    has_buttons: bool,
}

impl InputDevice {
    /// Opens the device `name` in `dir`. `None` if it has neither keys nor buttons, such as a lid
    /// switch or a sensor.
    pub fn open(dir: &Dir, name: &str) -> Result<Option<InputDevice>> {
        let fd = dir.open_at(name, OFlags::RDONLY | OFlags::NONBLOCK, "open")?;
        let failed = |action, errno| Error::new(action, dir.path().join(name), errno);
        let mut keys = [0u8; KEY_CNT / 8];
        // SAFETY: the request number contains the size of the buffer, and the buffer is valid.
        ioctl(&fd, EVIOCGBIT_KEY, unsafe { as_pointer(&mut keys) })
            .map_err(|errno| failed("query the keys of", errno))?;
        let has = |code: usize| keys[code / 8] >> (code % 8) & 1 == 1;
        if keys.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let has_buttons = has(BTN_LEFT) || has(BTN_TOUCH);
        let mut clock: libc::c_int = libc::CLOCK_MONOTONIC;
        // SAFETY: as above.
        ioctl(&fd, EVIOCSCLOCKID, unsafe { as_pointer(&mut clock) })
            .map_err(|errno| failed("set the clock of", errno))?;
        for (kind, mut codes) in [
            (EV_SYN, wanted_types().to_vec()),
            (EV_KEY, wanted_keys().to_vec()),
        ] {
            let mut mask = Mask {
                kind,
                bytes: codes.len() as u32,
                codes: codes.as_mut_ptr() as u64,
            };
            // SAFETY: as above; `codes` outlives the call.
            ioctl(&fd, EVIOCSMASK, unsafe { as_pointer(&mut mask) })
                .map_err(|errno| failed("set the event mask of", errno))?;
        }
        Ok(Some(InputDevice {
            fd,
            name: name.to_owned(),
            has_buttons,
        }))
    }

    /// File name of the device in its directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the events since the last call. [`Error::Gone`] if the device was unplugged.
    pub fn take(&self) -> Result<Vec<Stroke>> {
        let mut buffer = [0u8; EVENTS * EVENT_BYTES];
        let mut taken = Vec::new();
        let end = loop {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) | Err(Errno::AGAIN) => break Ok(()),
                Ok(count) => taken.extend(strokes(&buffer[..count], self.has_buttons)),
                Err(Errno::INTR) => {}
                Err(errno) => break Err(Error::new("read", self.name.as_str(), errno)),
            }
        };
        for byte in &mut buffer {
            // SAFETY: `byte` is valid. The write is volatile so that the compiler keeps it.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        end.map(|()| taken)
    }
}

impl AsFd for InputDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The value of a repeat event (Documentation/input/event-codes.rst).
const REPEATED: i32 = 2;

fn strokes(events: &[u8], has_buttons: bool) -> impl Iterator<Item = Stroke> + '_ {
    events.chunks_exact(EVENT_BYTES).filter_map(move |event| {
        let (seconds, rest) = event.split_first_chunk::<8>()?;
        let (micros, rest) = rest.split_first_chunk::<8>()?;
        let (kind, rest) = rest.split_first_chunk::<2>()?;
        // The skipped bytes are the key code.
        let value = i32::from_ne_bytes(rest.get(2..6)?.try_into().ok()?);
        let key = u32::from(u16::from_ne_bytes(*kind)) == EV_KEY;
        let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).ok()?;
        let micros = u64::try_from(i64::from_ne_bytes(*micros)).ok()?;
        let at = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))?;
        key.then_some(Stroke {
            at,
            asks: value != 0 || has_buttons,
            handed_on: value != REPEATED,
        })
    })
}

/// Mask of event types: only keys and buttons. The kernel accepts only whole words.
fn wanted_types() -> [u8; WORD] {
    let mut bits = [0; WORD];
    bits[0] = 1 << EV_KEY;
    bits
}

/// Mask of key codes: all except modifiers and tools in proximity.
fn wanted_keys() -> [u8; KEY_CNT / 8] {
    let mut bits = [0xff; KEY_CNT / 8];
    let tools = BTN_TOOLS.filter(|code| !BUTTONS_AMONG_TOOLS.contains(code));
    for code in MODIFIERS.into_iter().chain(tools) {
        bits[code / 8] &= !(1 << (code % 8));
    }
    bits
}

/// Converts a reference to the pointer that [`ioctl`] takes.
///
/// # Safety
/// The ioctl request must access no more than a `T` at this address.
unsafe fn as_pointer<T>(value: &mut T) -> *mut libc::c_void {
    std::ptr::from_mut(value).cast()
}

fn ioctl(
    fd: &OwnedFd,
    request: libc::c_ulong,
    argument: *mut libc::c_void,
) -> std::result::Result<(), Errno> {
    // SAFETY: the argument has the size encoded in the request: callers of as_pointer() ensure it.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(us: i64, kind: u16, code: u16, value: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((us / 1_000_000).to_ne_bytes());
        bytes.extend((us % 1_000_000).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
        bytes
    }

    fn times(events: &[Vec<u8>], has_buttons: bool, counts: impl Fn(&Stroke) -> bool) -> Vec<u128> {
        let bytes = events.concat();
        strokes(&bytes, has_buttons)
            .filter(counts)
            .map(|stroke| stroke.at.as_micros())
            .collect()
    }

    #[test]
    fn releases_ask_only_on_devices_with_buttons_and_repeats_are_not_forwarded() {
        let events = [
            event(3_000_010, 1, 30, 1),
            event(3_000_010, 0, 0, 0),
            event(3_500_000, 1, 30, 2),
            event(3_600_000, 1, 30, 0),
            event(3_700_000, 2, 0, 5),
        ];
        let asks = |stroke: &Stroke| stroke.asks;
        assert_eq!(times(&events, false, asks), [3_000_010, 3_500_000]);
        assert_eq!(
            times(&events, true, asks),
            [3_000_010, 3_500_000, 3_600_000]
        );
        let handed_on = |stroke: &Stroke| stroke.handed_on;
        assert_eq!(times(&events, false, handed_on), [3_000_010, 3_600_000]);
    }

    #[test]
    fn only_modifiers_and_hovering_tools_are_masked() {
        let keys = wanted_keys();
        let wanted = |code: usize| keys[code / 8] >> (code % 8) & 1 == 1;
        for code in [29, 42, 125, 0x1d0, 0x140, 0x145, 0x147, 0x148, 0x14d, 0x14f] {
            assert!(!wanted(code), "{code}");
        }
        let of_a_stylus = [0x149, 0x14b, 0x14c];
        for code in [30, 28, 57, BTN_LEFT, BTN_TOUCH, 0x150, 0x2ff]
            .into_iter()
            .chain(of_a_stylus)
        {
            assert!(wanted(code), "{code}");
        }
        assert_eq!((0..KEY_CNT).filter(|&code| !wanted(code)).count(), 12 + 12);
        assert_eq!(wanted_types(), [2, 0, 0, 0, 0, 0, 0, 0]);
        for bytes in [keys.len(), wanted_types().len()] {
            assert_eq!(bytes % WORD, 0, "the kernel accepts only whole words");
        }
    }

    proptest! {
        /// Two events that differ only in the key code give the same result.
        #[test]
        fn key_code_makes_no_difference(
            us in 0..i64::MAX / 2, code in any::<u16>(), other in any::<u16>(),
            value in 0..3i32, buttons in any::<bool>(),
        ) {
            let [one, two] = [code, other].map(|code| event(us, 1, code, value));
            prop_assert!(strokes(&one, buttons).eq(strokes(&two, buttons)));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), buttons in any::<bool>(),
        ) {
            prop_assert!(strokes(&bytes, buttons).count() <= bytes.len() / EVENT_BYTES);
        }
    }
}
