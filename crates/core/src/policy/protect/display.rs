// SPDX-License-Identifier: GPL-2.0-or-later
//! The display server's part of the protection.
//!
//! The display server draws the topmost app's answer, so its memory is part of the answer. It is
//! never topmost itself, so reclaim finds its pages first. If the app's pages are reserved, the
//! display server's would pay for it. So the server's own cgroup gets a reservation beside the
//! app's, from the same budget: as large as the memory that the server holds, at most a quarter of
//! the budget, and at most the part that the app leaves. It ends with the app's reservation.

use super::reservation::round;
use super::Step;
use crate::model::pressure::STEPS;
use crate::model::protected::contains;
use crate::model::snapshot::{Reserved, ReservedDisplay, Snapshot};

/// Reciprocal of the largest share of the budget that the display server gets.
const SHARE: u64 = 4;

/// Reciprocal of the relative difference that is not worth a write.
const SLACK: u64 = 8;

/// The reservation for the display server beside the app's, if it differs from the one in force.
pub(super) fn reserve(snapshot: &Snapshot, reserved: &Reserved) -> Option<Step> {
    let topmost = snapshot.topmost.as_ref()?;
    let home = topmost.app.own_home()?;
    let display = snapshot.display.as_ref()?;
    // The app's reservation covers a server inside the app's cgroup.
    let (server, app) = (&display.home.path, &home.path);
    if contains(app, server) || contains(server, app) {
        return None;
    }
    let in_force = &snapshot.in_force;
    let budget = snapshot.budget();
    let held = display.usage.held();
    let most = (budget / SHARE).min(budget.saturating_sub(reserved.bytes));
    let left = u64::from(STEPS - snapshot.lowered_steps.min(STEPS));
    let bytes = round(held.min(most) / u64::from(STEPS) * left);
    let same = |current: &ReservedDisplay| {
        current.app == topmost.app.key && current.inode == display.home.inode
    };
    let current = in_force.reserved_display.filter(same);
    let current = current.map_or(0, |current| current.bytes);
    if bytes.abs_diff(current) <= current / SLACK {
        return None;
    }
    Some(Step::ReserveDisplay {
        reserve: ReservedDisplay {
            app: topmost.app.key,
            inode: display.home.inode,
            bytes,
        },
        home: display.home.clone(),
        knob: snapshot.lru.knob(),
        rule: format!(
            "protect: the display server holds {} MiB, and draws the foreground app's answer; at \
             most {} MiB",
            held >> 20,
            most >> 20
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::app::{App, AppKey, Home};
    use crate::model::footprint::{Footprint, Usage};
    use crate::model::never::Exceptions;
    use crate::model::pressure::Memory;
    use crate::model::snapshot::{DisplayServer, Knob, Measured};

    const MIB: u64 = 1 << 20;

    fn home(path: &str, inode: u64) -> Home {
        Home {
            path: path.to_owned(),
            inode,
            own: true,
            adopted: false,
        }
    }

    fn usage(mib: u64) -> Usage {
        Usage {
            current: mib * MIB,
            ..Usage::default()
        }
    }

    /// A budget of 600 MiB, an app of 100 MiB, and a display server of `mib`.
    fn machine(mib: u64) -> Snapshot {
        let mut machine = Snapshot {
            memory: Memory {
                total: 1000 * MIB,
                ..Memory::default()
            },
            memory_controller: true,
            topmost: Some(Measured {
                app: App {
                    key: AppKey::Cgroup { inode: 1 },
                    name: "app".to_owned(),
                    process: None,
                    home: Some(home("/user.slice/app.scope", 1)),
                },
                members: Vec::new(),
                footprint: Some(Footprint::new(usage(100))),
                terminal: None,
                exceptions: Exceptions::default(),
            }),
            display: Some(DisplayServer {
                home: home("/system.slice/display.service", 2),
                usage: usage(mib),
            }),
            ..Snapshot::default()
        };
        machine.settings.protect.budget_percent = 60;
        machine
    }

    fn reserved(machine: &Snapshot) -> Option<u64> {
        beside(machine, 100)
    }

    /// The server's reservation in MiB, beside one of `mib` for the app.
    fn beside(machine: &Snapshot, mib: u64) -> Option<u64> {
        let reserved = Reserved {
            app: AppKey::Cgroup { inode: 1 },
            knob: Knob::Low,
            bytes: mib * MIB,
            carried: mib * MIB,
        };
        match reserve(machine, &reserved) {
            Some(Step::ReserveDisplay { reserve, .. }) => Some(reserve.bytes / MIB),
            _ => None,
        }
    }

    #[test]
    fn server_gets_what_it_holds_up_to_a_quarter_of_the_budget() {
        assert_eq!(reserved(&machine(40)), Some(40));
        assert_eq!(reserved(&machine(400)), Some(150));
    }

    #[test]
    fn app_comes_first() {
        let machine = machine(200);
        assert_eq!(beside(&machine, 520), Some(80));
        assert_eq!(beside(&machine, 600), None);
    }

    #[test]
    fn small_change_is_not_written_and_a_new_app_needs_a_new_reservation() {
        let mut machine = machine(104);
        let one = |app, inode| ReservedDisplay {
            app: AppKey::Cgroup { inode: app },
            inode,
            bytes: 100 * MIB,
        };
        machine.in_force.reserved_display = Some(one(1, 2));
        assert_eq!(reserved(&machine), None);
        machine.in_force.reserved_display = Some(one(1, 3));
        assert_eq!(reserved(&machine), Some(104), "another server");
        machine.in_force.reserved_display = Some(one(7, 2));
        assert_eq!(reserved(&machine), Some(104), "another app");
    }

    #[test]
    fn server_in_the_apps_cgroup_gets_nothing_extra() {
        for path in [
            "/user.slice",
            "/user.slice/app.scope",
            "/user.slice/app.scope/x",
        ] {
            let mut machine = machine(40);
            machine.display.as_mut().unwrap().home.path = path.to_owned();
            assert_eq!(reserved(&machine), None, "{path}");
        }
        let mut machine = machine(40);
        machine.display.as_mut().unwrap().home.path = "/user.slice/app.scope2".to_owned();
        assert_eq!(reserved(&machine), Some(40));
    }
}
