// SPDX-License-Identifier: GPL-2.0-or-later
//! Input devices and display frames, for sessions without any other source.
//!
//! *Input* is the time of a press on a device in `/dev/input`; the key or button itself does not
//! leave [`limelight_sys::evdev`]. *Frames* are frames of the display as a whole, from the
//! tracepoint `drm:drm_vblank_event_delivered`: any program may have drawn them.
//!
//! Devices are open and the tracepoint is on only while they are wanted, each independently.

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::frames::Flips;
use limelight_sys::dir::Dir;
use limelight_sys::evdev::{InputDevice, Stroke};
use limelight_sys::inotify::Inotify;
use limelight_sys::tracefs::{Line, Taken};
use rustix::event::epoll::EventFlags;
use rustix::fs::inotify::WatchFlags;
use tracing::{debug, info, warn};

use crate::event_loop::reactor::{Reactor, Token};
use crate::restore::Ledger;
use crate::sources::traced::{Event, Traced};
use crate::system::unusable::Unusable;
use crate::system::System;

/// Maximum number of devices that are opened.
const DEVICES_MAX: usize = 64;

const SYSTEM: &str = "drm";
const EVENT: &str = "drm_vblank_event_delivered";
const INSTANCE: &str = "limelight-frames";

/// Size of each processor's trace buffer. It holds the frames of more than one second, and is first
/// read when a response window opens.
const BUFFER_KIB: u32 = 8;

/// Bytes of text that are read at once.
const FRAMES_MAX_BYTES: usize = 256 << 10;

/// The display's frames, as traced by the kernel.
#[derive(Debug)]
struct Frames {
    traced: Traced,
    flips: Flips,
    /// Whether the loop waits for frames: only while a window is open.
    awaited: bool,
}

/// Source of input times and display frames.
#[derive(Debug, Default)]
pub struct Evdev {
    devices: BTreeMap<String, InputDevice>,
    /// Reports newly plugged devices.
    plugged: Option<Inotify>,
    frames: Option<Frames>,
    on: bool,
    frames_on: bool,
    input_detail: String,
    frames_detail: String,
}

impl Evdev {
    /// State of devices and state of frames: whether they are wanted, whether they work, and how
    /// they work or why not.
    pub fn details(&self) -> [(bool, bool, &str); 2] {
        let input = !self.devices.is_empty();
        [
            (self.on, input, &self.input_detail),
            (self.frames_on, self.frames.is_some(), &self.frames_detail),
        ]
    }

    /// Starts or stops monitoring devices and frames.
    pub fn tend(
        &mut self,
        input: bool,
        frames: bool,
        system: &System,
        ledger: &mut Ledger,
        reactor: &Reactor,
    ) {
        match (input, self.on) {
            (true, false) => self.start_input(system, reactor),
            (false, true) => self.stop_input(),
            _ => {}
        }
        match (frames, self.frames_on) {
            (true, false) => self.start_frames(system, ledger),
            (false, true) => self.stop_frames(ledger),
            _ => {}
        }
    }

    /// Stops monitoring and closes everything.
    pub fn stop(&mut self, ledger: &mut Ledger) {
        self.stop_input();
        self.stop_frames(ledger);
    }

    fn stop_input(&mut self) {
        self.on = false;
        // Closed descriptors leave the epoll set automatically.
        self.plugged = None;
        self.devices.clear();
        self.input_detail.clear();
    }

    fn stop_frames(&mut self, ledger: &mut Ledger) {
        self.frames_on = false;
        if let Some(frames) = self.frames.take() {
            frames.traced.stop(ledger);
        }
        self.frames_detail.clear();
    }

    fn start_input(&mut self, system: &System, reactor: &Reactor) {
        self.on = true;
        self.plugged = Inotify::new()
            .and_then(|queue| {
                // A node is created first and gets its permissions afterwards.
                let kinds = WatchFlags::CREATE | WatchFlags::ATTRIB;
                queue.watch(&system.roots.input, kinds)?;
                Ok(queue)
            })
            .ok();
        if let Some(queue) = &self.plugged {
            if let Err(error) = reactor.add(queue, Token::Plugged, EventFlags::IN) {
                warn!("epoll_ctl failed for new input devices, which are not detected: {error}");
            }
        }
        self.open_devices(system, reactor);
    }

    fn start_frames(&mut self, system: &System, ledger: &mut Ledger) {
        self.frames_on = true;
        match frames(system, ledger) {
            Ok(frames) => {
                self.frames_detail = format!("tracepoint {SYSTEM}:{EVENT}");
                self.frames = Some(frames);
            }
            Err(why) => {
                info!("cannot trace the display's frames: {why}");
                self.frames_detail = why.to_string();
            }
        }
    }

    /// Opens the devices that are not open yet.
    pub fn open_devices(&mut self, system: &System, reactor: &Reactor) {
        if let Some(queue) = &self.plugged {
            if let Err(error) = queue.events() {
                debug!("{error}");
            }
        }
        let directory = &system.roots.input;
        let (dir, names) = match Dir::open(directory).and_then(|dir| {
            let names = dir.names()?;
            Ok((dir, names))
        }) {
            Ok(found) => found,
            Err(error) => {
                self.input_detail = error.to_string();
                return;
            }
        };
        let mut refused = None;
        for name in names.iter().filter(|name| name.starts_with("event")) {
            if self.devices.contains_key(name) || self.devices.len() >= DEVICES_MAX {
                continue;
            }
            let opened = InputDevice::open(&dir, name).map(|device| {
                device.filter(|device| {
                    let added = reactor.add(device, Token::Input, EventFlags::IN);
                    added
                        .inspect_err(|error| {
                            warn!("epoll_ctl failed for input device {name}, which is not read: {error}");
                        })
                        .is_ok()
                })
            });
            match opened {
                Ok(Some(device)) => drop(self.devices.insert(name.clone(), device)),
                Ok(None) => {}
                Err(error) => refused = Some(error),
            }
        }
        self.input_detail = match (self.devices.len(), refused) {
            (0, Some(error)) => error.to_string(),
            (0, None) => format!("{} has no device with keys", directory.display()),
            (count, _) => format!(
                "{count} devices in {}; key codes are never kept",
                directory.display()
            ),
        };
    }

    /// Times of key and button events since the last call, oldest first.
    pub fn take_input(&mut self) -> Vec<Stroke> {
        let mut strokes = Vec::new();
        self.devices.retain(|name, device| match device.take() {
            Ok(taken) => {
                strokes.extend(taken);
                true
            }
            Err(error) => {
                debug!("cannot read input device {name}, which is closed: {error}");
                false
            }
        });
        strokes.sort_unstable();
        strokes
    }

    /// Starts or stops waiting for frames.
    pub fn await_frames(&mut self, wanted: bool, reactor: &Reactor) {
        let Some(frames) = self
            .frames
            .as_mut()
            .filter(|frames| frames.awaited != wanted)
        else {
            return;
        };
        frames.awaited = wanted;
        if !wanted {
            return reactor.remove(&frames.traced.instance);
        }
        if let Err(error) = reactor.add(&frames.traced.instance, Token::Frames, EventFlags::IN) {
            warn!("epoll_ctl failed for the display's frames: {error}");
        }
    }

    /// Times of the frames that may respond to the input at `since`, oldest first. All times are on
    /// `CLOCK_MONOTONIC`.
    pub fn take_frames(&mut self, since: Option<Duration>) -> Vec<Duration> {
        let Some(frames) = &mut self.frames else {
            return Vec::new();
        };
        let taken = frames.traced.instance.lines(FRAMES_MAX_BYTES);
        let taken = taken.unwrap_or_else(|error| {
            debug!("{error}");
            Taken::default()
        });
        let times = taken
            .lines
            .iter()
            .filter_map(|line| match Line::parse(line) {
                Some(Line::Event(event)) if event.name == EVENT => {
                    Duration::try_from_secs_f64(event.seconds).ok()
                }
                _ => None,
            });
        // The frames come from one buffer per processor, so they are not in order of time.
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        times.retain(|&at| frames.flips.shown(at, since.filter(|&since| since <= at)));
        times
    }
}

fn frames(system: &System, ledger: &mut Ledger) -> Result<Frames, Unusable> {
    let event = Event {
        system: SYSTEM,
        name: EVENT,
        lack: ": no display driver is loaded",
    };
    let traced = Traced::start(system, ledger, INSTANCE, event, |instance| {
        instance.set_clock("mono")?;
        instance.set_buffer_kib(BUFFER_KIB)
    })?;
    Ok(Frames {
        traced,
        flips: Flips::default(),
        awaited: false,
    })
}
