// SPDX-License-Identifier: GPL-2.0-or-later
//! The texts and counters of `readahead` for `status` and `explain`.

use std::collections::BTreeMap;

use limelight_core::model::ProcessId;

use crate::mechanisms::readahead::{Eyes, Readahead, Totals};
use crate::system::System;

impl Readahead {
    /// A sentence that says whether the files that a process's program reads while it starts have
    /// been recorded; `None` if starts are not recorded.
    pub fn note(&self, system: &System, id: ProcessId) -> Option<String> {
        if !self.settings.cold_start || !matches!(self.eyes, Eyes::Open(_)) {
            return None;
        }
        let process = system.same_process(id)?;
        let (_, program) = process.program().ok()?;
        let user = process.owner_uid().ok()?;
        let path = program.display();
        Some(if self.coldstart.knows(&program, user) {
            format!(
                "there is a record of the files that {path} reads while it starts; they will be \
                 read ahead when it starts next"
            )
        } else {
            format!(
                "there is no record of the files that {path} reads while it starts: a record is \
                 made if the program comes to the foreground within a minute after it starts"
            )
        })
    }

    /// How starts are recorded and replayed, or why they are not, as text.
    pub fn cold_start_detail(&self) -> String {
        match &self.eyes {
            _ if !self.settings.cold_start => {
                "cold start: switched off by the configuration ([readahead] cold_start)".to_owned()
            }
            Eyes::Shut(why) => format!("cold start: not recorded: {why}"),
            Eyes::Open(opens) if opens.is_blind() => {
                "cold start: not recorded: no mounted file system is on a disk".to_owned()
            }
            Eyes::Open(opens) => format!(
                "cold start: {}; {} recently started programs watched, {} records in {}; since \
                 [readahead] took effect, files of {} starts read ahead ({} MiB) and {} starts \
                 recorded",
                opens.detail(),
                self.coldstart.young(),
                self.coldstart.records(),
                self.coldstart.directory().display(),
                self.totals.replays,
                self.totals.replayed_bytes >> 20,
                self.totals.recordings,
            ),
        }
    }

    /// Totals since the daemon started, by name.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let Totals {
            replays,
            recordings,
            replayed_bytes,
        } = self.totals;
        let all = [
            ("starts_replayed", replays),
            ("starts_replayed_bytes", replayed_bytes),
            ("starts_recorded", recordings),
        ];
        all.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// How sequential reads (streams) and waits for pages read at random are detected, as text.
    pub fn streams_detail(&self) -> String {
        let waits = match &self.waits {
            Ok(waits) => format!(
                "{} threads watched for waits on file reads",
                waits.watched()
            ),
            Err(why) => format!("waits not detected ({why})"),
        };
        format!(
            "{} streams followed ({} idle); {waits}; {} MiB read ahead since [readahead] took effect",
            self.streams.followed(),
            self.streams.resting(),
            self.streams.bytes() >> 20
        )
    }
}
