// SPDX-License-Identifier: GPL-2.0-or-later
//! KWin (Plasma): a script of the agent runs inside KWin, and calls the agent over the session bus
//! whenever another window becomes active or full-screen.
//!
//! A zbus thread waits for messages on the bus and wakes the agent's thread through a socket pair.
//! Only messages from KWin itself are accepted.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use limelight_compositor::kwin::{full_screen, seen};
use zbus::blocking::{connection, fdo::DBusProxy, Connection};
use zbus::message::Header;
use zbus::names::BusName;

use super::environment::Environment;
use super::pick::NotHere;
use super::wayland::Compositor;
use super::{FocusBy, Gone, Seen, Source};

const SCRIPT: &str = include_str!("kwin.js");
const SCRIPT_NAME: &str = "limelight-agent";
const PATH: &str = "/org/limelight/Agent";
const INTERFACE: &str = "org.limelight.Agent1";

const KWIN: &str = "org.kde.KWin";
const SCRIPTING: &str = "/Scripting";
const SCRIPTING_INTERFACE: &str = "org.kde.kwin.Scripting";
const SCRIPT_INTERFACE: &str = "org.kde.kwin.Script";

/// Interfaces by which KWin is recognised.
const OWN_INTERFACES: [&str; 4] = [
    "org_kde_plasma_shell",
    "org_kde_plasma_window_management",
    "kde_output_device_v2",
    "kde_output_order_v1",
];

/// KWin answers within milliseconds, but may take longer while it starts.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// A connection to KWin, with the agent's script loaded into it.
pub struct KWin {
    bus: Connection,
    told: Arc<Mutex<Told>>,
    woken: UnixStream,
    /// Only used to notice the end of the compositor.
    compositor: Compositor,
}

/// What the script has reported last.
struct Told {
    seen: Seen,
    full_screen: BTreeSet<i32>,
}

/// The object that the script calls.
struct Receiver {
    /// KWin's name on the bus: calls by other peers are ignored.
    kwin: String,
    told: Arc<Mutex<Told>>,
    wake: UnixStream,
}

#[zbus::interface(name = "org.limelight.Agent1")]
impl Receiver {
    /// Receives the active window and its process, which are empty if there is none, and the
    /// processes of the full-screen windows.
    fn changed(&self, window: &str, pid: &str, full: &str, #[zbus(header)] header: Header<'_>) {
        if header
            .sender()
            .is_none_or(|sender| sender.as_str() != self.kwin)
        {
            return;
        }
        if let Ok(mut told) = self.told.lock() {
            *told = Told {
                seen: seen(window, pid),
                full_screen: full_screen(full),
            };
        }
        // If the socket is full, a wakeup is already pending.
        let _ = (&self.wake).write(&[1]);
    }
}

/// Recognises KWin by its interfaces, and loads the script into it.
pub fn connect(environment: &Environment) -> Result<Box<dyn Source>, NotHere> {
    let socket = environment.wayland.as_deref();
    let socket = socket.ok_or_else(|| NotHere::because("there is no Wayland compositor"))?;
    let compositor = Compositor::connect(socket)?;
    if !compositor.offers(&OWN_INTERFACES) && !environment.is_desktop("KDE") {
        let why = format!("{} is not KWin", compositor.peer);
        return Err(NotHere::because(why));
    }
    let runtime = environment.runtime.as_deref();
    let runtime = runtime.ok_or_else(|| NotHere::because("$XDG_RUNTIME_DIR is not set"))?;
    let bus = |error: zbus::Error| Gone::new("KWin over the session bus", error);
    let (woken, wake) = UnixStream::pair()?;
    for end in [&woken, &wake] {
        end.set_nonblocking(true)?;
    }
    let connection = connection::Builder::session()
        .and_then(|builder| builder.method_timeout(ANSWER_PATIENCE).build())
        .map_err(bus)?;
    let name = BusName::try_from(KWIN)?;
    let kwin = DBusProxy::new(&connection)
        .and_then(|proxy| Ok(proxy.get_name_owner(name)?))
        .map_err(bus)?;
    let told = Arc::new(Mutex::new(Told {
        seen: Seen::nothing(FocusBy::Compositor),
        full_screen: BTreeSet::new(),
    }));
    let receiver = Receiver {
        kwin: kwin.to_string(),
        told: Arc::clone(&told),
        wake,
    };
    connection.object_server().at(PATH, receiver).map_err(bus)?;
    let own = connection.unique_name().map(ToString::to_string);
    let script = SCRIPT
        .replace("@RECEIVER@", &own.unwrap_or_default())
        .replace("@PATH@", PATH)
        .replace("@INTERFACE@", INTERFACE);
    // KWin reads the script from a file. Once the script runs, the file is no longer needed.
    let file = runtime.join(format!("limelight-agent-{}.js", std::process::id()));
    std::fs::write(&file, script).map_err(|error| Gone::new(file.to_string_lossy(), error))?;
    let loaded = load(&connection, &file.to_string_lossy());
    let _ = std::fs::remove_file(&file);
    loaded.map_err(bus)?;
    Ok(Box::new(KWin {
        bus: connection,
        told,
        woken,
        compositor,
    }))
}

/// Loads and runs the script, replacing one left by an earlier agent.
fn load(bus: &Connection, file: &str) -> zbus::Result<()> {
    let scripting = Some(SCRIPTING_INTERFACE);
    unload(bus)?;
    let number: i32 = bus
        .call_method(
            Some(KWIN),
            SCRIPTING,
            scripting,
            "loadScript",
            &(file, SCRIPT_NAME),
        )?
        .body()
        .deserialize()?;
    // KWin 6 has the script object below /Scripting, KWin 5 at the top.
    let run = |path: String| {
        bus.call_method(Some(KWIN), path, Some(SCRIPT_INTERFACE), "run", &())
            .map(drop)
    };
    run(format!("/Scripting/Script{number}")).or_else(|_| run(format!("/{number}")))
}

fn unload(bus: &Connection) -> zbus::Result<()> {
    let interface = Some(SCRIPTING_INTERFACE);
    bus.call_method(
        Some(KWIN),
        SCRIPTING,
        interface,
        "unloadScript",
        &(SCRIPT_NAME,),
    )
    .map(drop)
}

impl Drop for KWin {
    fn drop(&mut self) {
        // If KWin is gone, so is the script.
        let _ = unload(&self.bus);
    }
}

impl Source for KWin {
    fn name(&self) -> &'static str {
        "kwin"
    }

    fn detail(&self) -> String {
        format!(
            "a script in {} reports the focus over the session bus",
            self.compositor.peer
        )
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.woken.as_fd(), self.compositor.connection.as_fd()]
    }

    fn observe(&mut self) -> Result<Seen, Gone> {
        let alive = self.compositor.check();
        alive.map_err(|error| Gone::new("KWin", error))?;
        let mut buffer = [0u8; 256];
        while (&self.woken).read(&mut buffer).is_ok_and(|count| count > 0) {}
        let told = self.told.lock();
        told.map(|told| told.seen.clone())
            .map_err(|_| Gone::new("KWin", "its thread failed"))
    }

    /// Full-screen windows only: of other windows, it is unknown whether they are covered.
    fn visible(&mut self) -> Result<BTreeSet<i32>, Gone> {
        let told = self.told.lock();
        told.map(|told| told.full_screen.clone())
            .map_err(|_| Gone::new("KWin", "its thread failed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_has_all_its_placeholders() {
        for name in ["@RECEIVER@", "@PATH@", "@INTERFACE@"] {
            assert_eq!(SCRIPT.matches(name).count(), 1, "{name}");
        }
    }
}
