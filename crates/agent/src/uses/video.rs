// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds processes that share or record the screen or a camera, by querying PipeWire, through which
//! desktops pass screens.

use std::path::PathBuf;

use limelight_proto::State;

use super::pipewire::Pipewire;
use super::watch::{Missing, Places, Watch};

/// Name of PipeWire's socket, if the environment names no other.
pub const SOCKET: &str = "pipewire-0";

/// Watches the session's PipeWire.
pub type Video = Watch<Pipewire>;

/// Where PipeWire's socket may be, from the environment.
#[derive(Debug, Default)]
pub struct VideoPlaces {
    /// `$PIPEWIRE_REMOTE`: the socket's name or path.
    pub remote: Option<String>,
    /// `$PIPEWIRE_RUNTIME_DIR`, else the session's runtime directory.
    pub runtime: Option<PathBuf>,
}

impl VideoPlaces {
    /// Reads the environment of this process.
    pub fn of_process() -> VideoPlaces {
        let remote = std::env::var("PIPEWIRE_REMOTE").ok();
        let runtime = ["PIPEWIRE_RUNTIME_DIR", "XDG_RUNTIME_DIR"]
            .into_iter()
            .find_map(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
        VideoPlaces {
            remote: remote.filter(|remote| !remote.is_empty()),
            runtime: runtime.map(PathBuf::from),
        }
    }
}

impl Places for VideoPlaces {
    fn socket(&self) -> Result<PathBuf, Missing> {
        let name = self.remote.as_deref().unwrap_or(SOCKET);
        // An absolute path replaces the directory.
        let socket = match &self.runtime {
            Some(runtime) => runtime.join(name),
            None => PathBuf::from(name),
        };
        match socket.is_absolute() && socket.exists() {
            true => Ok(socket),
            false => Err(Missing {
                state: State::Idle,
                why: format!("PipeWire does not run ({})", socket.display()),
            }),
        }
    }

    fn directories(&self) -> Vec<PathBuf> {
        self.runtime.iter().cloned().collect()
    }
}
