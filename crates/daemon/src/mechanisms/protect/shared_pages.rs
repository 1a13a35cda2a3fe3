// SPDX-License-Identifier: GPL-2.0-or-later
//! Locks on mapped pages that are charged to other cgroups. The locks are not in the restore
//! record, because they belong to this process and end with it.

use std::collections::BTreeSet;

use limelight_core::model::snapshot::Locking;
use limelight_core::model::App;
use limelight_proto::{Change, Outcome};
use limelight_sys::cgroup::Cgroup;

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::protect::page_pinner::{Locked, Order, PagePinner};
use crate::mechanisms::shared::{Context, Shared};
use crate::system::identify::open_home;

/// Name of the knob as shown to the user. The locks have no file in the kernel's interface.
const KNOB: &str = "mlock of mapped files";

const RULE: &str =
    "protect: the reservation does not cover mapped file pages that are charged to other cgroups";

/// Inode numbers of a cgroup and of all cgroups below it.
fn inodes(cgroup: &Cgroup, found: &mut BTreeSet<u64>) {
    found.insert(cgroup.id().0);
    let children = cgroup.children().into_iter().flatten();
    for child in children.filter_map(Result::ok) {
        inodes(&child, found);
    }
}

fn change(limit: u64, locked: &Locked, context: Context<'_>) -> Change {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let full = match locked.full {
        true => ", which is too little for all pages",
        false => "",
    };
    let to = format!(
        "{} MiB of {} files, at most {} MiB{full}",
        mib(locked.bytes),
        locked.files,
        mib(limit)
    );
    let outcome = match &locked.unable {
        Some(why) => Outcome::Inert { why: why.clone() },
        None => Outcome::Applied,
    };
    context.change(KNOB.to_owned(), ("0 MiB", to), RULE, outcome)
}

/// Locks shared pages of the topmost app.
#[derive(Debug, Default)]
pub struct SharedPages {
    /// The page pinner, which is started for the first app that needs it.
    pinner: Option<PagePinner>,
}

impl SharedPages {
    pub(super) fn lock(&mut self, shared: &mut Shared, locking: &Locking, context: Context<'_>) {
        if shared.is_dry_run() {
            let mut change = change(locking.limit, &Locked::default(), context);
            change.outcome = Outcome::Planned;
            shared
                .changes
                .note(Reach::App(locking.app), Kind::Locks, change);
            return;
        }
        let mut reserved = BTreeSet::new();
        let home = context.front.filter(|app| app.own_home().is_some());
        if let Some(cgroup) = home.and_then(|app: &App| open_home(context.system, app)) {
            inodes(&cgroup, &mut reserved);
        }
        if self.pinner.is_none() {
            match PagePinner::start(&context.system.roots.proc) {
                Ok(locker) => self.pinner = Some(locker),
                Err(error) => {
                    let unable = Locked {
                        unable: Some(format!("cannot start its thread: {error}")),
                        ..Locked::default()
                    };
                    let change = change(locking.limit, &unable, context);
                    shared
                        .changes
                        .note(Reach::App(locking.app), Kind::Locks, change);
                }
            }
        }
        let replaced = |former: &Locking| former.app != locking.app;
        if shared.in_force.locked.as_ref().is_some_and(replaced) {
            shared.changes.drop_knob(KNOB);
        }
        if let Some(locker) = &self.pinner {
            locker.ask(Some(Order {
                app: locking.app,
                members: locking.members.clone(),
                reserved,
                limit: locking.limit,
            }));
        }
        shared.in_force.locked = Some(locking.clone());
    }

    /// Makes the page pinner rescan the topmost app, which may have mapped more pages. Called after
    /// the event loop has rescanned the app itself.
    pub fn look(&self, shared: &Shared) {
        if let (Some(locker), Some(_)) = (&self.pinner, &shared.in_force.locked) {
            locker.look();
        }
    }

    pub(super) fn unlock(&mut self, shared: &mut Shared) {
        if let Some(locker) = &self.pinner {
            locker.ask(None);
        }
        shared.in_force.locked = None;
        shared.changes.drop_knob(KNOB);
    }

    /// Bytes that are locked for the topmost app, as of the page pinner's last scan.
    pub fn locked_bytes(&self, shared: &Shared) -> u64 {
        let locker = self
            .pinner
            .as_ref()
            .filter(|_| shared.in_force.locked.is_some());
        locker.map_or(0, |locker| locker.locked().bytes)
    }

    /// Reports what the page pinner has locked, or why it cannot lock pages. Reports nothing before
    /// its first result, or while no page needs a lock.
    pub fn report(&mut self, shared: &mut Shared, context: Context<'_>) {
        let (Some(locker), Some(locking)) = (&self.pinner, &shared.in_force.locked) else {
            return;
        };
        let locked = locker.locked();
        if locked != Locked::default() {
            let change = change(locking.limit, &locked, context);
            shared
                .changes
                .note(Reach::App(locking.app), Kind::Locks, change);
        }
    }
}
