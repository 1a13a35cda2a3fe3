// SPDX-License-Identifier: GPL-2.0-or-later
//! Processes that a session cannot do without: by what they run, not by what they call themselves.

use std::collections::BTreeSet;
use std::path::Path;

use limelight_core::model::ProcessId;
use limelight_sys::dir::Dir;
use limelight_sys::keyed::Keyed;

use crate::doors::Doors;

/// Limelight's own programs, and those on which a login stands.
pub const LOGIN: [&str; 10] = [
    "limelightd",
    "limelight-agent",
    "systemd",
    "(sd-pam)",
    "sshd",
    "login",
    "gdm-session-wor",
    "gdm-x-session",
    "sddm-helper",
    "lightdm",
];

/// A process's own name (`comm`) has at most so many bytes.
const COMM_MAX: usize = 15;

/// Whether a process with this name (`comm`) really runs the installed program of that name: any
/// program can take any name, and a script of any name runs its interpreter.
pub fn runs_installed(doors: &Doors, id: ProcessId, comm: &str) -> bool {
    let Some(process) = doors.same_process(id) else {
        return false;
    };
    match process.program() {
        Ok((program, path)) => program.owner == 0 && is_program_of(&path, comm),
        // Not even root may read it: no ordinary program. A user's own process cannot claim that.
        Err(_) => process.owner_uid().is_ok_and(|uid| uid == 0),
    }
}

/// Whether the executable at `path` is the one that `comm` names.
fn is_program_of(path: &Path, comm: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    // systemd's helper for PAM takes a name of its own.
    let comm = if comm == "(sd-pam)" { "systemd" } else { comm };
    match comm.len() < COMM_MAX {
        true => name == comm,
        false => name.starts_with(comm),
    }
}

/// Leaders of all sessions that logind keeps.
pub fn leaders(doors: &Doors) -> BTreeSet<i32> {
    let Ok(sessions) = Dir::open(&doors.roots.sessions) else {
        return BTreeSet::new();
    };
    let names = sessions.names().unwrap_or_default();
    let files = names.iter().filter(|name| !name.ends_with(".ref"));
    files
        .filter_map(|name| {
            let text = sessions.read_text(name).ok()?;
            let leader = Keyed::parse(&text.replace('=', " ")).get("LEADER")?;
            i32::try_from(leader).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_recognised_by_its_executable() {
        for (path, comm, is) in [
            ("/usr/lib/xorg/Xorg", "Xorg", true),
            ("/usr/bin/dash", "Xorg", false),
            ("/home/u/Xorg", "Xorg", true),
            ("/usr/libexec/gdm-session-worker", "gdm-session-wor", true),
            ("/usr/libexec/gdm", "gdm-session-wor", false),
            ("/usr/lib/systemd/systemd", "(sd-pam)", true),
            ("/usr/bin/sway (deleted)", "sway", true),
            ("/usr/bin/swayidle", "sway", false),
        ] {
            assert_eq!(is_program_of(Path::new(path), comm), is, "{path} {comm}");
        }
    }
}
