// SPDX-License-Identifier: GPL-2.0-or-later
//! Errors in what compositors send.

/// A message from a compositor that is not valid.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// Hyprland's answer about the active window.
    #[error("invalid answer to j/activewindow: {0}")]
    ActiveWindow(serde_json::Error),
    /// A line of niri's event stream.
    #[error("invalid line: {0}")]
    Line(serde_json::Error),
    /// niri does not send its events.
    #[error("niri refused the event stream: {0}")]
    Refused(serde_json::Value),
    /// The tree of i3 or sway.
    #[error("invalid tree: {0}")]
    Tree(serde_json::Error),
    /// The header of a message is not i3's.
    #[error("the data is not in i3's protocol")]
    NotI3,
    /// A part of a message: a window in niri's event stream, or the version of i3 or sway.
    #[error(transparent)]
    Part(#[from] serde_json::Error),
}
