// SPDX-License-Identifier: GPL-2.0-or-later
//! An app that is its own compositor: it reads a keyboard and shows frames on a display, both
//! through kernel interfaces alone. Its frame times are exact: the kernel timestamps each page
//! flip.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Read, Write};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use rustix::event::{poll, PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use crate::keyboard::{ioc, EV_KEY};
use crate::memory::now_ns;

/// DRM device of the machine's display.
pub const DISPLAY: &str = "/dev/dri/card0";

/// The app's parameters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The keyboard's device node.
    pub keyboard: PathBuf,
    /// Code of the key for which the app shows a frame.
    pub answers: u16,
    /// Delay before the answer, in milliseconds.
    pub think_ms: u64,
}

/// The app's report of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Time of the key press, in microseconds of `CLOCK_MONOTONIC`; `None` without a key press.
    pub pressed_us: Option<u64>,
    /// Time at which the frame was on the display, on the same clock, as timestamped by the kernel.
    pub shown_us: u64,
    /// Time at which the app learned that the frame was shown, on the same clock.
    pub heard_us: u64,
}

const EVIOCSCLOCKID: libc::Ioctl = ioc(1, b'E', 0xa0, size_of::<libc::c_int>());
const EVENT_BYTES: usize = size_of::<libc::input_event>();

/// Runs the app, which reports each frame on standard output. It shows the first frame before any
/// input. A line `flip` on standard input shows a frame without a key press, and `think MS` changes
/// the delay.
pub fn run(spec: &Spec) -> Result<()> {
    let mut keyboard = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&spec.keyboard)
        .with_context(|| format!("cannot open {}", spec.keyboard.display()))?;
    let mut clock: libc::c_int = libc::CLOCK_MONOTONIC;
    call(&keyboard, EVIOCSCLOCKID, &mut clock, "the keyboard's clock")?;
    let mut display = Display::open()?;
    say(None, display.flip()?)?;
    let stdin = std::io::stdin();
    let mut think = Duration::from_millis(spec.think_ms);
    let mut event = [0u8; EVENT_BYTES];
    // The last press is kept: tests search memory for its byte pattern.
    let mut kept = event;
    loop {
        let ready = {
            let mut fds = [
                PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(keyboard.as_fd(), PollFlags::IN),
            ];
            poll(&mut fds, None).context("cannot wait for the keyboard")?;
            fds.map(|fd| !fd.revents().is_empty())
        };
        std::hint::black_box(&mut kept);
        if ready[0] {
            let mut line = String::new();
            if stdin.lock().read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim().strip_prefix("think ") {
                Some(ms) => think = Duration::from_millis(ms.parse()?),
                None => say(None, display.flip()?)?,
            }
        }
        while ready[1] && matches!(keyboard.read(&mut event), Ok(EVENT_BYTES)) {
            let pressed = Key::read(&event);
            if pressed.is_press_of(spec.answers) {
                kept = event;
                sleep(think);
                say(Some(pressed.us), display.flip()?)?;
            }
        }
    }
}

fn say(pressed_us: Option<u64>, shown_us: u64) -> Result<()> {
    let shown = Shown {
        pressed_us,
        shown_us,
        heard_us: now_ns() / 1000,
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&shown)?)?;
    Ok(out.flush()?)
}

/// One `struct input_event`.
struct Key {
    us: u64,
    kind: u16,
    code: u16,
    value: i32,
}

impl Key {
    fn read(event: &[u8; EVENT_BYTES]) -> Key {
        let long = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&event[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        Key {
            us: long(0) * 1_000_000 + long(8),
            kind: u16::from_ne_bytes([event[16], event[17]]),
            code: u16::from_ne_bytes([event[18], event[19]]),
            value: i32::from_ne_bytes([event[20], event[21], event[22], event[23]]),
        }
    }

    fn is_press_of(&self, code: u16) -> bool {
        self.kind == EV_KEY && self.code == code && self.value == 1
    }
}

/// The bytes in memory of a key press's event: its microseconds, type, code and value.
pub fn in_memory(pressed_us: u64, code: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(pressed_us % 1_000_000).to_ne_bytes());
    bytes[8..10].copy_from_slice(&EV_KEY.to_ne_bytes());
    bytes[10..12].copy_from_slice(&code.to_ne_bytes());
    bytes[12..].copy_from_slice(&1i32.to_ne_bytes());
    bytes
}

/// The display, driven through KMS (`include/uapi/drm/drm_mode.h`).
struct Display {
    card: File,
    crtc: u32,
    buffers: [u32; 2],
    shown: usize,
}

/// `struct drm_mode_card_res`.
#[repr(C)]
#[derive(Default)]
struct Resources {
    fbs: u64,
    crtcs: u64,
    connectors: u64,
    encoders: u64,
    count_fbs: u32,
    count_crtcs: u32,
    count_connectors: u32,
    count_encoders: u32,
    sizes: [u32; 4],
}

/// `struct drm_mode_modeinfo`; only its display size is read.
#[repr(C)]
#[derive(Clone, Copy)]
struct Mode {
    clock: u32,
    hdisplay: u16,
    horizontal: [u16; 4],
    vdisplay: u16,
    vertical: [u16; 4],
    rates: [u32; 3],
    name: [u8; 32],
}

const NO_MODE: Mode = Mode {
    clock: 0,
    hdisplay: 0,
    horizontal: [0; 4],
    vdisplay: 0,
    vertical: [0; 4],
    rates: [0; 3],
    name: [0; 32],
};

/// `struct drm_mode_get_connector`.
#[repr(C)]
#[derive(Default)]
struct Connector {
    encoders: u64,
    modes: u64,
    props: u64,
    prop_values: u64,
    count_modes: u32,
    count_props: u32,
    count_encoders: u32,
    encoder_id: u32,
    connector_id: u32,
    rest: [u32; 7],
}

/// `struct drm_mode_create_dumb`.
#[repr(C)]
#[derive(Default)]
struct Dumb {
    height: u32,
    width: u32,
    bpp: u32,
    flags: u32,
    handle: u32,
    pitch: u32,
    size: u64,
}

/// `struct drm_mode_fb_cmd`.
#[repr(C)]
#[derive(Default)]
struct FrameBuffer {
    id: u32,
    width: u32,
    height: u32,
    pitch: u32,
    bpp: u32,
    depth: u32,
    handle: u32,
}

/// `struct drm_mode_crtc`.
#[repr(C)]
struct Crtc {
    connectors: u64,
    count_connectors: u32,
    crtc_id: u32,
    fb_id: u32,
    x: u32,
    y: u32,
    gamma_size: u32,
    mode_valid: u32,
    mode: Mode,
}

/// `struct drm_mode_crtc_page_flip`.
#[repr(C)]
struct PageFlip {
    crtc_id: u32,
    fb_id: u32,
    flags: u32,
    reserved: u32,
    user_data: u64,
}

/// Requests an event when the frame is shown.
const FLIP_EVENT: u32 = 1;
/// `DRM_EVENT_FLIP_COMPLETE`, in a `struct drm_event_vblank`.
const FLIP_COMPLETE: u32 = 2;
const VBLANK_BYTES: usize = 32;

const _: () = assert!(size_of::<Resources>() == 64);
const _: () = assert!(size_of::<Mode>() == 68);
const _: () = assert!(size_of::<Connector>() == 80);
const _: () = assert!(size_of::<Crtc>() == 104);

const BOTH: u32 = 3;
const GET_RESOURCES: libc::Ioctl = ioc(BOTH, b'd', 0xa0, size_of::<Resources>());
const SET_CRTC: libc::Ioctl = ioc(BOTH, b'd', 0xa2, size_of::<Crtc>());
const GET_CONNECTOR: libc::Ioctl = ioc(BOTH, b'd', 0xa7, size_of::<Connector>());
const ADD_FB: libc::Ioctl = ioc(BOTH, b'd', 0xae, size_of::<FrameBuffer>());
const PAGE_FLIP: libc::Ioctl = ioc(BOTH, b'd', 0xb0, size_of::<PageFlip>());
const CREATE_DUMB: libc::Ioctl = ioc(BOTH, b'd', 0xb2, size_of::<Dumb>());

impl Display {
    /// Opens the display in its first mode, with a black frame.
    fn open() -> Result<Display> {
        let card = OpenOptions::new().read(true).write(true).open(DISPLAY);
        let card = card.with_context(|| format!("cannot open {DISPLAY}: is vkms missing?"))?;
        let (mut crtcs, mut connectors) = ([0u32; 8], [0u32; 8]);
        let mut resources = Resources {
            crtcs: crtcs.as_mut_ptr() as u64,
            connectors: connectors.as_mut_ptr() as u64,
            count_crtcs: 8,
            count_connectors: 8,
            ..Resources::default()
        };
        call(&card, GET_RESOURCES, &mut resources, "the resources")?;
        if resources.count_crtcs == 0 || resources.count_connectors == 0 {
            bail!("{DISPLAY} has no display");
        }
        let mut modes = [NO_MODE; 64];
        let mut connector = Connector {
            connector_id: connectors[0],
            ..Connector::default()
        };
        // The first call makes the kernel probe the connector; the second one reads the modes.
        call(&card, GET_CONNECTOR, &mut connector, "the connector")?;
        let count_modes = connector.count_modes.min(64);
        let mut connector = Connector {
            connector_id: connectors[0],
            modes: modes.as_mut_ptr() as u64,
            count_modes,
            ..Connector::default()
        };
        call(&card, GET_CONNECTOR, &mut connector, "the modes")?;
        let mode = modes[0];
        if mode.hdisplay == 0 {
            bail!("{DISPLAY} has no mode");
        }
        let buffer = || -> Result<u32> {
            let mut dumb = Dumb {
                width: mode.hdisplay.into(),
                height: mode.vdisplay.into(),
                bpp: 32,
                ..Dumb::default()
            };
            call(&card, CREATE_DUMB, &mut dumb, "a buffer")?;
            let mut frame = FrameBuffer {
                width: dumb.width,
                height: dumb.height,
                pitch: dumb.pitch,
                bpp: 32,
                depth: 24,
                handle: dumb.handle,
                ..FrameBuffer::default()
            };
            call(&card, ADD_FB, &mut frame, "a frame buffer")?;
            Ok(frame.id)
        };
        let buffers = [buffer()?, buffer()?];
        let mut crtc = Crtc {
            connectors: connectors.as_ptr() as u64,
            count_connectors: 1,
            crtc_id: crtcs[0],
            fb_id: buffers[0],
            x: 0,
            y: 0,
            gamma_size: 0,
            mode_valid: 1,
            mode,
        };
        call(&card, SET_CRTC, &mut crtc, "the mode")?;
        Ok(Display {
            card,
            crtc: crtcs[0],
            buffers,
            shown: 0,
        })
    }

    /// Shows the next frame, and waits until it is on the display. Returns the time at which the
    /// kernel showed it, in microseconds of `CLOCK_MONOTONIC`.
    fn flip(&mut self) -> Result<u64> {
        self.shown ^= 1;
        let mut flip = PageFlip {
            crtc_id: self.crtc,
            fb_id: self.buffers[self.shown],
            flags: FLIP_EVENT,
            reserved: 0,
            user_data: 0,
        };
        call(&self.card, PAGE_FLIP, &mut flip, "a frame")?;
        let mut event = [0u8; VBLANK_BYTES];
        self.card
            .read_exact(&mut event)
            .context("cannot read the display's page flip event")?;
        let word = |at: usize| {
            let bytes = [event[at], event[at + 1], event[at + 2], event[at + 3]];
            u32::from_ne_bytes(bytes)
        };
        if word(0) != FLIP_COMPLETE {
            bail!("the display sent event {} instead of a page flip", word(0));
        }
        Ok(u64::from(word(16)) * 1_000_000 + u64::from(word(20)))
    }
}

fn call<T>(file: &File, request: libc::Ioctl, argument: &mut T, what: &str) -> Result<()> {
    loop {
        // SAFETY: the request encodes the size of T. Addresses inside `argument` point to arrays
        // that have the lengths that `argument` states and that the callers keep alive.
        if unsafe { libc::ioctl(file.as_raw_fd(), request, argument as *mut T) } != -1 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).with_context(|| format!("the ioctl for {what} failed"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_parsed_from_its_bytes_in_memory() {
        let mut event = [0u8; EVENT_BYTES];
        event[..8].copy_from_slice(&3u64.to_ne_bytes());
        event[8..].copy_from_slice(&in_memory(3_000_123, 57));
        let key = Key::read(&event);
        assert_eq!(key.us, 3_000_123);
        assert!(key.is_press_of(57) && !key.is_press_of(56));
    }
}
