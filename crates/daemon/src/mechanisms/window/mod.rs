// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows: the model that the sources feed, and the reports to the kernel.

pub mod device;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use limelight_core::model::window::Windows;
use limelight_core::model::{App, AppKey};
use limelight_core::policy::window::Step;
use limelight_core::settings::WindowSettings;

use crate::mechanisms::device::DeviceDoor;
use crate::mechanisms::shared::{Context, Effect, Mechanism, Shared};

use device::Told;

/// How long a user's permission to report on the topmost app is cached. The check takes longer than
/// all other work for one window.
const PASS: Duration = Duration::from_secs(2);

/// A cached permission to report on the topmost app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pass {
    uid: u32,
    app: AppKey,
    until: Duration,
}

/// The response windows, and the clients that report them.
#[derive(Debug)]
pub struct Window {
    /// The windows of the topmost app.
    pub model: Windows,
    /// The reports to the kernel.
    pub told: Told,
    pass: Option<Pass>,
    /// Number of reports over each open connection.
    reporters: BTreeMap<u64, u64>,
    /// The last source that reported, and when.
    last_told: Option<(String, Duration)>,
    /// User of the app that was topmost last. The outer `None`: no app has been topmost yet; the
    /// inner `None`: the user is unknown.
    owner: Option<Option<u32>>,
    /// Users of the apps that have been topmost. Two are kept at most: enough to know that there is
    /// more than one.
    owners: BTreeSet<Option<u32>>,
}

impl Window {
    /// Starts with no window open.
    pub fn new(settings: WindowSettings, device: &DeviceDoor) -> Window {
        Window {
            model: Windows::new(settings),
            told: Told::new(device),
            pass: None,
            reporters: BTreeMap::new(),
            last_told: None,
            owner: None,
            owners: BTreeSet::new(),
        }
    }

    /// Notes that another app, or none, is topmost. The app belongs to `owner`; `None`: its user is
    /// unknown.
    pub fn topmost(&mut self, front: Option<&App>, owner: Option<u32>) {
        if front.is_some() && self.owner != Some(owner) {
            // The time of input to one user's app must not be shown to another user.
            self.last_told = None;
            self.owner = Some(owner);
            if self.owners.len() < 2 {
                self.owners.insert(owner);
            }
        }
        self.model.topmost(front, owner);
    }

    /// Handles a closed connection to a reporting client.
    pub fn release(&mut self, client: u64) {
        self.reporters.remove(&client);
    }

    /// Whether all apps that have been topmost belong to one user.
    pub fn is_of_one_user(&self) -> bool {
        self.owners.len() < 2
    }

    /// Whether a client reports windows regularly: an open connection has carried more than one
    /// report.
    pub fn is_reported(&self) -> bool {
        self.reporters.values().any(|&times| times > 1)
    }

    /// How many open connections have reported windows.
    pub fn reporters(&self) -> usize {
        self.reporters.len()
    }

    /// The last source that reported, and when.
    pub fn last_told(&self) -> Option<&(String, Duration)> {
        self.last_told.as_ref()
    }

    /// Remembers which source reported a window, and when.
    pub fn told_by(&mut self, source: &str, at: Duration) {
        match &mut self.last_told {
            Some((by, when)) if by == source => *when = at,
            last => *last = Some((source.to_owned(), at)),
        }
    }

    /// Counts a report over a connection.
    pub fn reported_over(&mut self, client: u64) {
        *self.reporters.entry(client).or_default() += 1;
    }

    /// Whether a user was permitted to report on this app within the last 2 s.
    pub fn has_pass(&self, uid: u32, app: AppKey, at: Duration) -> bool {
        let granted = |pass: Pass| pass.uid == uid && pass.app == app && at < pass.until;
        self.pass.is_some_and(granted)
    }

    /// Caches a permission to report on this app.
    pub fn grant_pass(&mut self, uid: u32, app: AppKey, at: Duration) {
        self.pass = Some(Pass {
            uid,
            app,
            until: at + PASS,
        });
    }

    /// Whether a response window of the topmost app is open.
    pub fn is_open(&self) -> bool {
        self.model.open().is_some()
    }
}

impl Mechanism for Window {
    type Step = Step;

    fn apply(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) -> Effect {
        self.told.tell(*step, shared, context);
        Effect::None
    }
}
