// SPDX-License-Identifier: GPL-2.0-or-later
//! `org.freedesktop.LowMemoryMonitor`, which many apps already listen to (GLib's `GMemoryMonitor`).
//!
//! Its name is taken only if no other program owns it and none can be started for it.

use std::path::Path;

use limelight_proto::{Level, Notice};
use zbus::blocking::fdo::DBusProxy;
use zbus::blocking::Connection;
use zbus::fdo::{RequestNameFlags, RequestNameReply};
use zbus::names::WellKnownName;
use zbus::object_server::SignalEmitter;

use crate::follow::{self, Follower, Heard};

/// The name and the interface.
pub const MONITOR: &str = "org.freedesktop.LowMemoryMonitor";
/// The object's path.
pub const MONITOR_PATH: &str = "/org/freedesktop/LowMemoryMonitor";

/// The object.
#[derive(Debug)]
pub struct Monitor;

#[zbus::interface(name = "org.freedesktop.LowMemoryMonitor")]
impl Monitor {
    /// Apps should free memory. `level`: 50 (low), 100 (medium) or 255 (critical).
    #[zbus(signal)]
    async fn low_memory_warning(emitter: &SignalEmitter<'_>, level: u8) -> zbus::Result<()>;
}

/// The level of a warning; `None`: memory is not short.
fn warning(level: Level) -> Option<u8> {
    match level {
        Level::Plenty => None,
        Level::Swap | Level::Low => Some(50),
        Level::Crowded => Some(100),
        Level::Kill | Level::Exhausted => Some(255),
    }
}

/// Takes the name and sends warnings from now on; `None` if another program does so.
pub fn start(
    bus: &Connection,
    calls: &DBusProxy<'_>,
    socket: &Path,
) -> zbus::Result<Option<Follower>> {
    let startable = calls.list_activatable_names()?;
    if startable.iter().any(|name| name.as_str() == MONITOR) {
        tracing::info!("another program offers {MONITOR}, so no warnings are sent");
        return Ok(None);
    }
    let flags = RequestNameFlags::AllowReplacement | RequestNameFlags::DoNotQueue;
    let name = WellKnownName::from_static_str(MONITOR)?;
    match calls.request_name(name, flags) {
        Ok(RequestNameReply::PrimaryOwner | RequestNameReply::AlreadyOwner) => {}
        Ok(_) => {
            tracing::info!("another program owns {MONITOR}, so no warnings are sent");
            return Ok(None);
        }
        Err(error) => {
            tracing::warn!("no warnings are sent: the bus refuses {MONITOR}: {error}");
            return Ok(None);
        }
    }
    let bus = bus.clone();
    let follower = follow::start(socket.to_owned(), None, false, move |heard| {
        let Heard::Notice(Notice::Memory { level, .. }) = heard else {
            return;
        };
        let Some(level) = warning(level) else { return };
        let none = None::<&str>;
        let sent = bus.emit_signal(none, MONITOR_PATH, MONITOR, "LowMemoryWarning", &level);
        if let Err(error) = sent {
            tracing::debug!("no warning was sent: {error}");
        }
    });
    match follower {
        Ok(follower) => Ok(Some(follower)),
        Err(error) => Err(zbus::Error::InputOutput(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_become_more_urgent_with_the_level() {
        let all = [
            Level::Plenty,
            Level::Swap,
            Level::Low,
            Level::Crowded,
            Level::Kill,
            Level::Exhausted,
        ];
        let warnings = all.map(warning);
        let expected = [None, Some(50), Some(50), Some(100), Some(255), Some(255)];
        assert_eq!(warnings, expected);
    }
}
