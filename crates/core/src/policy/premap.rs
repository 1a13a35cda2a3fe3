// SPDX-License-Identifier: GPL-2.0-or-later
//! `premap`: maps the topmost app's fresh heap ahead of its faults.
//!
//! This module uses the mechanism of the Limelight kernel. The kernel decides how many pages to
//! map, because it sees each fault and whether the pages mapped ahead were used. The policy only
//! switches the kernel's mechanism on or off and sets the largest window. The mechanism stays on
//! while no app is topmost, which costs nothing. On other kernels a program can load the premap
//! library instead (`crates/premap`), which needs no daemon.

use super::plan::Event;
use crate::model::snapshot::Snapshot;

/// One step of `premap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Switch the kernel's `premap` on with this window, or off.
    Switch {
        /// Maximum number of pages that one fault maps; `None`: off.
        window_pages: Option<u16>,
    },
}

fn wanted(event: &Event, snapshot: &Snapshot) -> Option<u16> {
    let settings = &snapshot.settings.premap;
    let on = *event != Event::Stop && settings.enabled && snapshot.device_premap;
    on.then_some(settings.window_pages)
}

/// Steps that undo settings which no longer apply; they run before the steps of [`grant`].
pub fn withdraw(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let on = snapshot.in_force.device_premap.is_some() && snapshot.device;
    if on && wanted(event, snapshot).is_none() {
        return vec![Step::Switch { window_pages: None }];
    }
    Vec::new()
}

/// Steps that put settings in force; they run after the steps of [`withdraw`].
pub fn grant(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    match wanted(event, snapshot) {
        Some(pages) if snapshot.in_force.device_premap != Some(pages) => vec![Step::Switch {
            window_pages: Some(pages),
        }],
        _ => Vec::new(),
    }
}

/// Notes for the user, one sentence each.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    if !snapshot.settings.premap.enabled {
        return vec!["premap is switched off by the configuration ([premap] enabled)".to_owned()];
    }
    if !snapshot.device_premap {
        return vec![
            "premap needs a kernel whose /dev/limelight offers it; on other kernels start the app \
             with `limelight run --premap`"
                .to_owned(),
        ];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(device: bool, enabled: bool, in_force: Option<u16>) -> Snapshot {
        let mut snapshot = Snapshot {
            device,
            device_premap: device,
            ..Snapshot::default()
        };
        snapshot.settings.premap.enabled = enabled;
        snapshot.in_force.device_premap = in_force;
        snapshot
    }

    fn switch(window_pages: Option<u16>) -> Vec<Step> {
        vec![Step::Switch { window_pages }]
    }

    #[test]
    fn premap_is_switched_on_once() {
        let before = snapshot(true, true, None);
        assert_eq!(grant(&Event::Tick, &before), switch(Some(64)));
        let after = snapshot(true, true, Some(64));
        assert!(grant(&Event::Tick, &after).is_empty());
        assert!(withdraw(&Event::Tick, &after).is_empty());
    }

    #[test]
    fn another_window_is_set_without_switching_off() {
        let changed = snapshot(true, true, Some(16));
        assert!(withdraw(&Event::Settings, &changed).is_empty());
        assert_eq!(grant(&Event::Settings, &changed), switch(Some(64)));
    }

    #[test]
    fn premap_is_switched_off_at_a_stop_and_by_the_setting() {
        let on = snapshot(true, true, Some(64));
        assert_eq!(withdraw(&Event::Stop, &on), switch(None));
        assert!(grant(&Event::Stop, &on).is_empty());
        let off = snapshot(true, false, Some(64));
        assert_eq!(withdraw(&Event::Settings, &off), switch(None));
        assert!(grant(&Event::Settings, &off).is_empty());
    }

    #[test]
    fn kernel_without_premap_gets_no_step() {
        let stock = snapshot(false, true, None);
        assert!(grant(&Event::Topmost, &stock).is_empty());
        assert!(notes(&stock)[0].contains("limelight run --premap"));
    }
}
