// SPDX-License-Identifier: GPL-2.0-or-later
//! Lists a Wayland compositor's interfaces, by which the sources recognise it.

use std::os::unix::net::UnixStream;
use std::path::Path;

use wayland_client::backend::WaylandError;
use wayland_client::globals::{registry_queue_init, GlobalListContents};
use wayland_client::protocol::wl_registry::WlRegistry;
use wayland_client::{Connection, Dispatch, QueueHandle};

use super::lines::peer_of;
use super::Gone;

/// A connected compositor, and the interfaces that it offers.
#[derive(Debug)]
pub struct Compositor {
    /// The connection, which ends with the compositor.
    pub connection: Connection,
    /// Its process: `phoc (pid 812)`.
    pub peer: String,
    /// Interfaces of its globals.
    pub interfaces: Vec<String>,
}

impl Compositor {
    /// Connects and lists the globals.
    pub fn connect(socket: &Path) -> Result<Compositor, Gone> {
        let failed = |why: &dyn std::fmt::Display| Gone::new(socket.to_string_lossy(), why);
        let stream = UnixStream::connect(socket).map_err(|error| failed(&error))?;
        let peer = peer_of(&stream);
        let connection = Connection::from_socket(stream).map_err(|error| failed(&error))?;
        let (globals, _queue) =
            registry_queue_init::<Looking>(&connection).map_err(|error| failed(&error))?;
        let interfaces = globals
            .contents()
            .with_list(|list| list.iter().map(|global| global.interface.clone()).collect());
        Ok(Compositor {
            connection,
            peer,
            interfaces,
        })
    }

    /// Checks that the compositor still runs, for callers that send no further requests. Never
    /// waits.
    pub fn check(&self) -> Result<(), WaylandError> {
        while let Some(reading) = self.connection.prepare_read() {
            match reading.read() {
                Ok(count) if count > 0 => {}
                Ok(_) => break,
                Err(WaylandError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    break
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether it offers one of these interfaces.
    pub fn offers(&self, interfaces: &[&str]) -> bool {
        let mut offered = self.interfaces.iter();
        offered.any(|offered| interfaces.contains(&offered.as_str()))
    }
}

/// State of a client that only lists the globals.
struct Looking;

impl Dispatch<WlRegistry, GlobalListContents> for Looking {
    fn event(
        _: &mut Looking,
        _: &WlRegistry,
        _: <WlRegistry as wayland_client::Proxy>::Event,
        _: &GlobalListContents,
        _: &Connection,
        _: &QueueHandle<Looking>,
    ) {
    }
}
