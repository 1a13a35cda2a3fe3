// SPDX-License-Identifier: GPL-2.0-or-later
//! Input and frames of an X server: when the user starts to wait, and when the response is shown.
//!
//! *Input* is a raw event of the server (XInput 2) for a key, a button or a finger, independent of
//! focus and grabs. The key code is used only to ignore modifiers, which request nothing by
//! themselves; it is neither stored nor reported. Motion does not count as input: a moving pointer
//! would keep a response window open all the time.
//!
//! *Frames* are drawn in the active window, or in a menu or tooltip of its program (DAMAGE), or
//! presented there by its program (Present). The server reports only the first damage after a
//! request. While no response is pending, damage is requested once per [`REARM`], so that a window
//! that is drawn continuously costs little.
//!
//! This uses a separate connection. The focus source's connection sometimes waits for answers, and
//! events received meanwhile would get late timestamps.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use limelight_sys::clock;
use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::{ConnectionError, ReplyError, ReplyOrIdError};
use x11rb::protocol::damage::{self, ConnectionExt as _, Damage, ReportLevel};
use x11rb::protocol::present::{self, ConnectionExt as _, EventMask as PresentMask};
use x11rb::protocol::xinput::{self, ConnectionExt as _, XIEventMask};
use x11rb::protocol::xproto::{
    ChangeWindowAttributesAux, ConnectionExt as _, EventMask, Timestamp, Window,
};
use x11rb::protocol::Event;
use x11rb::rust_connection::RustConnection;

use super::answer::{Answer, News};
use super::pick::NotHere;
use super::Told;

/// Minimum time between requests for damage while no response is pending. Drawing between input and
/// the next request is missed. That is harmless if this time is short, since a client that draws
/// this often soon draws again.
const REARM: Duration = Duration::from_millis(8);

/// Maximum number of watched menus and tooltips of one program; the oldest ones are dropped.
const POPUPS_MAX: usize = 8;

/// A server time that is older than this, in milliseconds, comes from another machine's clock.
const AGE_MAX_MS: u32 = 10_000;

/// A window watched for damage.
#[derive(Debug, Clone, Copy)]
struct Watched {
    window: Window,
    damage: Damage,
    /// Sequence number of the request that started the watch. The server answers that request with
    /// damage of the whole window, although nothing was drawn.
    began: u16,
    /// Whether the server will report the next damage.
    armed: bool,
}

/// The active window, and other windows of its program.
#[derive(Debug)]
struct Target {
    window: Window,
    pid: i32,
    /// Id of its Present events.
    present: Option<u32>,
    /// Watched windows, the active one first.
    watched: Vec<Watched>,
}

/// Observes an X server's input and frames.
pub struct Responses {
    conn: RustConnection,
    root: Window,
    /// Bits of a resource id that the client chooses; the other bits identify the client.
    own_bits: u32,
    /// Key codes of the modifiers.
    modifiers: Vec<u8>,
    has_present: bool,
    target: Option<Target>,
    answer: Answer,
    armed_at: Duration,
    rearm_at: Option<Duration>,
}

impl Responses {
    /// Connects, and requests input events. The error names what the server lacks.
    pub fn connect(display: &str) -> Result<Self, NotHere> {
        let (conn, screen) = RustConnection::connect(Some(display))?;
        let setup = conn.setup();
        let own_bits = setup.resource_id_mask;
        let root = setup.roots.get(screen).map(|screen| screen.root);
        let root = root.ok_or_else(|| NotHere::because(format!("it has no screen {screen}")))?;
        for (name, what) in [
            (xinput::X11_EXTENSION_NAME, "XInput"),
            (damage::X11_EXTENSION_NAME, "DAMAGE"),
        ] {
            if conn.extension_information(name)?.is_none() {
                return Err(NotHere::because(format!("it has no {what}")));
            }
        }
        let begin = || -> Result<_, ReplyError> {
            conn.damage_query_version(1, 1)?.reply()?;
            let version = conn.xinput_xi_query_version(2, 2)?.reply()?;
            let present = conn.extension_information(present::X11_EXTENSION_NAME)?;
            if present.is_some() {
                conn.present_query_version(1, 0)?.reply()?;
            }
            Ok((version, present.is_some()))
        };
        let (version, has_present) = begin()?;
        let version = (version.major_version, version.minor_version);
        // From 2.1 on, grabs do not affect raw events. In older versions, the grab of a menu would
        // hide all input.
        if version < (2, 1) {
            let (major, minor) = version;
            return Err(NotHere::because(format!(
                "its XInput is {major}.{minor}, not 2.1"
            )));
        }
        let mut responses = Responses {
            conn,
            root,
            own_bits,
            modifiers: Vec::new(),
            has_present,
            target: None,
            answer: Answer::default(),
            armed_at: Duration::ZERO,
            rearm_at: None,
        };
        responses.begin(version)?;
        Ok(responses)
    }

    fn begin(&mut self, version: (u16, u16)) -> Result<(), ReplyError> {
        let mut mask = XIEventMask::RAW_KEY_PRESS
            | XIEventMask::RAW_BUTTON_PRESS
            | XIEventMask::RAW_BUTTON_RELEASE;
        if version >= (2, 2) {
            mask |= XIEventMask::RAW_TOUCH_BEGIN | XIEventMask::RAW_TOUCH_END;
        }
        let all = xinput::EventMask {
            deviceid: xinput::Device::ALL_MASTER.into(),
            mask: vec![mask],
        };
        self.conn
            .xinput_xi_select_events(self.root, &[all])?
            .check()?;
        // Menus and tooltips are children of the root window.
        let popups = ChangeWindowAttributesAux::new().event_mask(EventMask::SUBSTRUCTURE_NOTIFY);
        self.conn
            .change_window_attributes(self.root, &popups)?
            .check()?;
        self.read_modifiers()
    }

    fn read_modifiers(&mut self) -> Result<(), ReplyError> {
        let mapping = self.conn.get_modifier_mapping()?.reply()?;
        self.modifiers = mapping
            .keycodes
            .into_iter()
            .filter(|&key| key != 0)
            .collect();
        Ok(())
    }

    /// Descriptor that becomes readable when events are waiting.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.conn.stream().as_fd()
    }

    /// When [`Responses::turn`] has work next, on `CLOCK_MONOTONIC`.
    pub fn deadline(&self) -> Option<Duration> {
        self.answer
            .deadline()
            .into_iter()
            .chain(self.rearm_at)
            .min()
    }

    /// Switches to the window that has the focus now, of the process `pid`.
    pub fn follow(&mut self, active: Option<(Window, i32)>) -> Result<(), ConnectionError> {
        if self
            .target
            .as_ref()
            .map(|target| (target.window, target.pid))
            == active
        {
            return Ok(());
        }
        if let Some(target) = self.target.take() {
            for watched in target.watched {
                self.conn.damage_destroy(watched.damage)?;
            }
            if let Some(id) = target.present {
                let none = PresentMask::NO_EVENT;
                self.conn.present_select_input(id, target.window, none)?;
            }
        }
        self.rearm_at = None;
        if let Some((window, pid)) = active {
            // Fails only if this connection has used up its resource ids.
            if let (Ok(watched), Ok(present)) = (self.watch(window), self.presents(window)) {
                self.target = Some(Target {
                    window,
                    pid,
                    present,
                    watched: vec![watched],
                });
            }
        }
        self.conn.flush()
    }

    fn watch(&self, window: Window) -> Result<Watched, ReplyOrIdError> {
        let damage = self.conn.generate_id()?;
        let begin = self
            .conn
            .damage_create(damage, window, ReportLevel::NON_EMPTY)?;
        // Events contain the lower half of the sequence number.
        let began = begin.sequence_number() as u16;
        drop(begin);
        self.conn
            .damage_subtract(damage, x11rb::NONE, x11rb::NONE)?;
        Ok(Watched {
            window,
            damage,
            began,
            armed: true,
        })
    }

    fn presents(&self, window: Window) -> Result<Option<u32>, ReplyOrIdError> {
        if !self.has_present {
            return Ok(None);
        }
        let id = self.conn.generate_id()?;
        self.conn
            .present_select_input(id, window, PresentMask::COMPLETE_NOTIFY)?;
        Ok(Some(id))
    }

    /// Takes all events, and returns those to report to the daemon.
    pub fn turn(&mut self) -> Result<Vec<Told>, ConnectionError> {
        let mut news = Vec::new();
        while let Some(event) = self.conn.poll_for_event()? {
            let at = clock::monotonic();
            news.extend(self.answer.pass_time(at));
            self.take(event, at, &mut news)?;
        }
        let at = clock::monotonic();
        news.extend(self.answer.pass_time(at));
        if self.rearm_at.is_some_and(|due| due <= at) {
            self.arm(at)?;
        }
        self.conn.flush()?;
        let Some(target) = &self.target else {
            return Ok(Vec::new());
        };
        Ok(news.into_iter().map(|news| (target.pid, news)).collect())
    }

    fn take(
        &mut self,
        event: Event,
        at: Duration,
        news: &mut Vec<News>,
    ) -> Result<(), ConnectionError> {
        match event {
            Event::XinputRawKeyPress(key) if self.is_modifier(key.detail) => {}
            Event::XinputRawKeyPress(event) => {
                self.input(event.time, at, news)?;
            }
            Event::XinputRawButtonPress(event) | Event::XinputRawButtonRelease(event) => {
                self.input(event.time, at, news)?;
            }
            Event::XinputRawTouchBegin(event) | Event::XinputRawTouchEnd(event) => {
                self.input(event.time, at, news)?;
            }
            Event::DamageNotify(event) => self.damaged(&event, at)?,
            Event::PresentCompleteNotify(event)
                if event.kind == present::CompleteKind::PIXMAP
                    && event.mode != present::CompleteMode::SKIP =>
            {
                news.extend(self.answer.shown(presented(event.ust, at)));
            }
            Event::MapNotify(event) if event.override_redirect && self.is_popup(event.window) => {
                self.answer.drawn(at, at);
                self.watch_popup(event.window)?;
            }
            Event::UnmapNotify(event) => self.forget(event.window)?,
            Event::MappingNotify(_) => {
                if let Err(ReplyError::ConnectionError(error)) = self.read_modifiers() {
                    return Err(error);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_modifier(&self, detail: u32) -> bool {
        self.modifiers.iter().any(|&key| u32::from(key) == detail)
    }

    fn input(
        &mut self,
        time: Timestamp,
        at: Duration,
        news: &mut Vec<News>,
    ) -> Result<(), ConnectionError> {
        if self.target.is_none() {
            return Ok(());
        }
        news.extend(self.answer.input(server_time(time, at)));
        self.arm(at)
    }

    fn damaged(
        &mut self,
        event: &damage::NotifyEvent,
        at: Duration,
    ) -> Result<(), ConnectionError> {
        let target = self.target.as_mut();
        let watched = target.and_then(|target| {
            let mut all = target.watched.iter_mut();
            let whose = |watched: &&mut Watched| watched.damage == event.damage;
            all.find(|watched| whose(watched) && watched.began != event.sequence)
        });
        // Drawing in a window that had the focus before is ignored.
        let Some(watched) = watched else {
            return Ok(());
        };
        watched.armed = false;
        // The server's time is used, because the event arrives late on a busy machine.
        let drawn = server_time(event.timestamp, at);
        self.answer.drawn(drawn, at);
        let due = self.armed_at + REARM;
        if self.answer.is_wanted() || due <= at {
            return self.arm(at);
        }
        self.rearm_at = Some(due);
        Ok(())
    }

    /// Requests a report of the next damage in all watched windows.
    fn arm(&mut self, at: Duration) -> Result<(), ConnectionError> {
        self.armed_at = at;
        self.rearm_at = None;
        let watched = self
            .target
            .iter_mut()
            .flat_map(|target| &mut target.watched);
        for watched in watched.filter(|watched| !watched.armed) {
            self.conn
                .damage_subtract(watched.damage, x11rb::NONE, x11rb::NONE)?;
            watched.armed = true;
        }
        Ok(())
    }

    /// Whether a window belongs to the program that has the focus, and is not watched yet.
    fn is_popup(&self, window: Window) -> bool {
        self.target.as_ref().is_some_and(|target| {
            (window ^ target.window) & !self.own_bits == 0
                && target.watched.iter().all(|known| known.window != window)
        })
    }

    fn watch_popup(&mut self, window: Window) -> Result<(), ConnectionError> {
        let Ok(popup) = self.watch(window) else {
            return Ok(());
        };
        if let Some(target) = &mut self.target {
            target.watched.push(popup);
            if target.watched.len() > 1 + POPUPS_MAX {
                let oldest = target.watched.remove(1);
                self.conn.damage_destroy(oldest.damage)?;
            }
        }
        Ok(())
    }

    /// Stops watching a closed menu. The active window stays watched: it may be shown again.
    fn forget(&mut self, window: Window) -> Result<(), ConnectionError> {
        let Some(target) = &mut self.target else {
            return Ok(());
        };
        let found = target
            .watched
            .iter()
            .position(|known| known.window == window);
        if let Some(at) = found.filter(|&at| at > 0) {
            let gone = target.watched.remove(at);
            // Fails if the window was destroyed too. That error is ignored.
            self.conn.damage_destroy(gone.damage)?;
        }
        Ok(())
    }
}

/// Converts a server time to `CLOCK_MONOTONIC`. The server counts milliseconds of that clock in 32
/// bits. The event is taken to have happened in the middle of its millisecond. If the server runs
/// on another machine, with another clock, returns the current time.
fn server_time(time: Timestamp, now: Duration) -> Duration {
    let now_ms = now.as_millis() as u32;
    let age = now_ms.wrapping_sub(time);
    if age > AGE_MAX_MS {
        return now;
    }
    let begin = Duration::from_millis(now.as_millis() as u64 - u64::from(age));
    (begin + Duration::from_micros(500)).min(now)
}

/// Time at which a frame was shown, from the server's microseconds on `CLOCK_MONOTONIC`.
fn presented(ust: u64, now: Duration) -> Duration {
    let shown = Duration::from_micros(ust);
    match now.checked_sub(shown) {
        Some(age) if age.as_millis() <= u128::from(AGE_MAX_MS) => shown,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_time_is_converted_across_a_wrap() {
        let now = Duration::from_micros(5_000_700_250);
        let ms = |ms: u64| ms as u32;
        assert_eq!(
            server_time(ms(5_000_690), now),
            Duration::from_micros(5_000_690_500)
        );
        assert_eq!(server_time(ms(5_000_700), now), now, "never later than now");
        assert_eq!(
            server_time(ms(4_000_000), now),
            now,
            "another machine's clock"
        );
        assert_eq!(server_time(ms(5_001_000), now), now, "ahead of ours");
        let wrapped = Duration::from_millis((1 << 32) + 5);
        let before = server_time(u32::MAX - 4, wrapped);
        assert_eq!(before, wrapped - Duration::from_micros(9_500));
    }

    #[test]
    fn impossible_presentation_time_becomes_now() {
        let now = Duration::from_secs(100);
        assert_eq!(presented(99_990_000, now), Duration::from_millis(99_990));
        assert_eq!(presented(0, now), now);
        assert_eq!(presented(200_000_000, now), now);
    }

    #[test]
    fn missing_display_is_an_error() {
        assert!(Responses::connect(":4000").is_err());
    }
}
