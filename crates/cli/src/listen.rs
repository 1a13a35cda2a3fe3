// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight listen`.

use std::io::Write;

use limelight_proto::{Notice, Request, Response};

use crate::client::Client;
use crate::exit::Failure;
use crate::format::{self, printable};
use crate::history;

/// Prints the daemon's notices until the daemon exits or the output is closed.
pub fn run(
    mut client: Client,
    foreground: bool,
    json: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    match client.ask(&Request::Listen { foreground })? {
        Response::Ok { .. } => {}
        other => return Err(Failure::unexpected(&other)),
    }
    client.wait_without_end()?;
    loop {
        let notice = match client.next()? {
            Response::Notice(notice) => notice,
            other => return Err(Failure::unexpected(&other)),
        };
        let line = match json {
            true => serde_json::to_string(&notice)?,
            false => text(&notice),
        };
        // A closed output is not a failure.
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
    }
}

fn text(notice: &Notice) -> String {
    let line = match notice {
        Notice::Memory {
            level,
            memory,
            next,
        } => {
            let next = next
                .as_ref()
                .map(|next| format!("; next: {}", format::app(next)));
            format!(
                "memory: {}, {} available{}",
                level.name(),
                format::bytes(memory.available),
                next.unwrap_or_default()
            )
        }
        Notice::Growing { app, grown } => format!(
            "growing: {} is in the foreground and grew by {}: save your work, or close the app",
            format::app(app),
            format::bytes(*grown)
        ),
        Notice::Done(entry) => {
            format!("{}: {}", history::action(entry), printable(&entry.reason))
        }
        Notice::Foreground { app } => {
            let name = app.as_ref().map_or("none".to_owned(), format::app);
            format!("foreground: {name}")
        }
    };
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_proto::Level;
    use limelight_proto::{AppStatus, MemoryThen};

    #[test]
    fn notice_is_one_line() {
        let notice = Notice::Memory {
            level: Level::Kill,
            memory: MemoryThen {
                available: 12 << 20,
                ..MemoryThen::default()
            },
            next: Some(AppStatus {
                name: "ne\nws".to_owned(),
                pid: Some(7),
                cgroup: None,
                own_cgroup: false,
            }),
        };
        assert_eq!(
            text(&notice),
            "memory: kill, 12.0 MiB available; next: ne\\nws (pid 7)"
        );
    }
}
