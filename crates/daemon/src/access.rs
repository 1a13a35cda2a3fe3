// SPDX-License-Identifier: GPL-2.0-or-later
//! Which users the configuration and the machine itself vouch for: the group of `[access]`, and
//! those who have the screen or an input device.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use limelight_sys::files::FileStat;
use limelight_sys::process::Process;
use tracing::{debug, info};

use crate::config::AccessGroup;
use crate::doors::{now, Doors};

/// How long the list of users with a device open is taken for granted: making it looks at every
/// descriptor of every user's process, and anybody may ask for it.
const FRESH: Duration = Duration::from_secs(2);

/// Most descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 4096;

/// Most device nodes of a kind.
const NODES_MAX: usize = 1024;

/// A user who asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speaker {
    /// The user.
    pub uid: u32,
    /// In the group of `[access]`.
    pub member: bool,
}

impl Speaker {
    /// Whether this user may see what a user's apps do.
    pub fn sees(&self, owner: u32) -> bool {
        self.sees_all() || self.uid == owner
    }

    /// Whether this user may see what all users' apps do.
    pub fn sees_all(&self) -> bool {
        self.uid == 0 || self.member
    }
}

/// The group, and who has the devices.
#[derive(Debug, Default)]
pub struct Access {
    /// As it is called in messages; empty without a group.
    name: String,
    gid: Option<u32>,
    holders: RefCell<Option<(Duration, BTreeSet<u32>)>>,
}

impl Access {
    /// Looks the group up.
    pub fn new(groups: &Path, wanted: &AccessGroup) -> Access {
        let (name, gid) = match wanted {
            AccessGroup::Off => (String::new(), None),
            AccessGroup::Id(gid) => (gid.to_string(), Some(*gid)),
            AccessGroup::Name(name) => {
                let gid = group_id(groups, name);
                if gid.is_none() {
                    info!(
                        "there is no group {name} in {}: what other users' apps do is shown to root only; \
                         create it (groupadd --system {name}), or name another one in [access] group",
                        groups.display()
                    );
                }
                (name.clone(), gid)
            }
        };
        Access {
            name,
            gid,
            holders: RefCell::default(),
        }
    }

    /// Its name, or number; `None` without a group.
    pub fn group(&self) -> Option<&str> {
        (!self.name.is_empty()).then_some(self.name.as_str())
    }

    /// Its number, where it exists.
    pub fn gid(&self) -> Option<u32> {
        self.gid
    }

    /// Whether one of these groups is the one.
    pub fn includes(&self, groups: impl IntoIterator<Item = u32>) -> bool {
        let gid = self.gid;
        gid.is_some() && groups.into_iter().any(|group| Some(group) == gid)
    }

    /// A process's user, with the groups that the process has itself.
    pub fn speaker_of(&self, process: &Process, uid: u32) -> Speaker {
        let groups = process.groups().unwrap_or_default();
        Speaker {
            uid,
            member: self.includes(groups),
        }
    }

    /// Whether a process of this user has the screen or an input device open.
    pub fn has_devices(&self, doors: &Doors, uid: u32) -> bool {
        let at = now();
        let mut holders = self.holders.borrow_mut();
        match holders.as_ref() {
            Some((then, users)) if at.saturating_sub(*then) < FRESH => users.contains(&uid),
            _ => {
                let users = holders_of_devices(doors);
                let is_one = users.contains(&uid);
                *holders = Some((at, users));
                is_one
            }
        }
    }
}

/// The number of a group in a file such as `/etc/group`.
fn group_id(path: &Path, name: &str) -> Option<u32> {
    let text = fs::read_to_string(path)
        .inspect_err(|error| debug!("cannot read {}: {error}", path.display()))
        .ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let known = fields.next()?;
        let gid = fields.nth(1)?;
        (known == name).then(|| gid.parse().ok())?
    })
}

/// Users with a process that has a screen (`/dev/dri/card*`) or an input device
/// (`/dev/input/event*`) open. A display server that runs as root counts for the user who started
/// it, which its real uid tells. Render nodes do not count: any app may have one.
fn holders_of_devices(doors: &Doors) -> BTreeSet<u32> {
    let mut users = BTreeSet::new();
    let mut nodes = nodes(&doors.roots.dri, "card");
    nodes.extend(self::nodes(&doors.roots.input, "event"));
    if nodes.is_empty() {
        return users;
    }
    for pid in doors.proc.pids().unwrap_or_default() {
        let Ok(process) = doors.proc.process(pid) else {
            continue;
        };
        let Ok(status) = process.status() else {
            continue;
        };
        let owners = [status.real_uid, status.effective_uid];
        // Root needs no device, and a user who was found need not be found again.
        let settled = |uid: &u32| *uid == 0 || users.contains(uid);
        if !owners.iter().all(settled) && has_one(&process, &nodes) {
            users.extend(owners);
        }
    }
    users
}

/// Device nodes by the beginning of their names. The directory is root's.
fn nodes(directory: &Path, prefix: &str) -> Vec<FileStat> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let named = entries.filter_map(|entry| entry.ok()).filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(prefix))
    });
    let nodes = named.filter_map(|entry| FileStat::at(&entry.path()).ok());
    nodes.take(NODES_MAX).collect()
}

/// Whether a process has one of these devices open. By identity: everybody can make a file that is
/// called like one.
fn has_one(process: &Process, nodes: &[FileStat]) -> bool {
    let numbers = process.descriptors(DESCRIPTORS_MAX).unwrap_or_default();
    let mut files = numbers
        .into_iter()
        .filter_map(|number| process.descriptor(number).ok());
    files.any(|file| nodes.iter().any(|node| node.same_device(&file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_by_its_whole_name() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("group");
        let text = "root:x:0:\nlimelights:x:7:\n# limelight:x:8:\nlimelight:x:990:ada\nbad:x\n";
        fs::write(&path, text).unwrap();
        assert_eq!(group_id(&path, "limelight"), Some(990));
        assert_eq!(group_id(&path, "lime"), None);
        assert_eq!(group_id(&path, "bad"), None);
        assert_eq!(group_id(&temp.path().join("absent"), "limelight"), None);
    }

    #[test]
    fn without_a_group_nobody_is_a_member() {
        let absent = Path::new("/nonexistent");
        for wanted in [AccessGroup::Off, AccessGroup::Name("limelight".into())] {
            let access = Access::new(absent, &wanted);
            assert!(!access.includes([0, 990, u32::MAX]), "{wanted:?}");
        }
        let access = Access::new(absent, &AccessGroup::Id(990));
        assert!(access.includes([5, 990]) && !access.includes([5]));
        assert_eq!(access.group(), Some("990"));
    }
}
