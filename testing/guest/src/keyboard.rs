// SPDX-License-Identifier: GPL-2.0-or-later
//! A virtual keyboard of the lab, created through uinput.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

const UINPUT: &str = "/dev/uinput";
const NAME: &str = "limelight-lab keyboard";
/// Timeout for the device's node to appear.
const LIMIT: Duration = Duration::from_secs(10);

const EV_SYN: u16 = 0;
/// Type of the events of keys and buttons.
pub const EV_KEY: u16 = 1;

/// The kernel's `_IOC()` of `asm-generic/ioctl.h`.
pub(crate) const fn ioc(direction: u32, letter: u8, number: u32, size: usize) -> libc::Ioctl {
    (direction << 30 | (size as u32) << 16 | (letter as u32) << 8 | number) as libc::Ioctl
}

const UI_DEV_CREATE: libc::Ioctl = ioc(0, b'U', 1, 0);
const UI_DEV_SETUP: libc::Ioctl = ioc(1, b'U', 3, size_of::<Setup>());
const UI_SET_EVBIT: libc::Ioctl = ioc(1, b'U', 100, size_of::<libc::c_int>());
const UI_SET_KEYBIT: libc::Ioctl = ioc(1, b'U', 101, size_of::<libc::c_int>());

/// `struct uinput_setup`: bus, vendor, product and version; name; effects.
#[repr(C)]
struct Setup {
    id: [u16; 4],
    name: [u8; 80],
    effects: u32,
}

const _: () = assert!(size_of::<Setup>() == 92);

/// A virtual keyboard, unplugged on drop.
pub struct Keyboard {
    device: File,
    /// The keyboard's node in `/dev/input`.
    pub node: PathBuf,
}

impl Keyboard {
    /// Plugs in a keyboard with these keys.
    pub fn plug_in(keys: &[u16]) -> Result<Self> {
        let device = OpenOptions::new().write(true).open(UINPUT);
        let device = device.with_context(|| format!("cannot open {UINPUT}"))?;
        let mut setup = Setup {
            // BUS_VIRTUAL
            id: [6, 0, 0, 1],
            name: [0; 80],
            effects: 0,
        };
        setup.name[..NAME.len()].copy_from_slice(NAME.as_bytes());
        let call = |request, argument: libc::c_ulong| {
            // SAFETY: integers are passed by value; the one pointer, to `setup`, has the size
            // encoded in its request and outlives the call.
            match unsafe { libc::ioctl(device.as_raw_fd(), request, argument) } {
                -1 => Err(std::io::Error::last_os_error()).context("uinput refuses the keyboard"),
                _ => Ok(()),
            }
        };
        call(UI_SET_EVBIT, EV_KEY.into())?;
        for &key in keys {
            call(UI_SET_KEYBIT, key.into())?;
        }
        call(UI_DEV_SETUP, &raw const setup as libc::c_ulong)?;
        call(UI_DEV_CREATE, 0)?;
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(node) = find()? {
                return Ok(Keyboard { device, node });
            }
            if Instant::now() > deadline {
                bail!("no node for {NAME:?} in /dev/input after {LIMIT:?}");
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Presses and releases a key.
    pub fn tap(&mut self, key: u16) -> Result<()> {
        self.hold(key, Duration::ZERO)
    }

    /// Presses a key, and releases it after `time`.
    pub fn hold(&mut self, key: u16, time: Duration) -> Result<()> {
        self.set(key, 1)?;
        sleep(time);
        self.set(key, 0)
    }

    fn set(&mut self, key: u16, value: i32) -> Result<()> {
        self.write(EV_KEY, key, value)?;
        self.write(EV_SYN, 0, 0)
    }

    fn write(&mut self, kind: u16, code: u16, value: i32) -> Result<()> {
        // The kernel sets its own timestamp.
        let mut event = vec![0u8; size_of::<libc::timeval>()];
        event.extend(kind.to_ne_bytes());
        event.extend(code.to_ne_bytes());
        event.extend(value.to_ne_bytes());
        self.device
            .write_all(&event)
            .context("cannot press a key through uinput")
    }
}

/// The device node of the lab's keyboard; `None` while it does not exist.
fn find() -> Result<Option<PathBuf>> {
    const CLASS: &str = "/sys/class/input";
    for entry in fs::read_dir(CLASS).with_context(|| format!("cannot list {CLASS}"))? {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("device/name")).unwrap_or_default();
        let node = PathBuf::from("/dev/input").join(entry.file_name());
        if name.trim() == NAME && node.exists() {
            return Ok(Some(node));
        }
    }
    Ok(None)
}
