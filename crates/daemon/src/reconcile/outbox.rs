// SPDX-License-Identifier: GPL-2.0-or-later
//! What the event loop must do after an input.

use limelight_proto::Notice;

use crate::sources::topmost_exit::TopmostExit;

/// A notice to clients.
#[derive(Debug)]
pub struct Message {
    /// The user of the app that the notice names; `None`: the notice is for all users.
    pub owner: Option<u32>,
    /// The notice.
    pub notice: Notice,
    /// The notice for users who may not know of that app.
    pub others: Option<Notice>,
}

/// What the event loop must do after an input.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Notices to send.
    pub messages: Vec<Message>,
    /// The new exit notification for the topmost app; the inner `None`: there is none. The outer
    /// `None`: the present notification stays.
    pub exit: Option<Option<TopmostExit>>,
    /// Wait for new units again.
    pub await_units: bool,
    /// The daemon has written an `oom_score_adj`. The source must not report that write as another
    /// program's.
    pub wrote_scores: bool,
}
