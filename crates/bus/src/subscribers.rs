// SPDX-License-Identifier: GPL-2.0-or-later
//! Signals to subscribers. A signal is sent to one connection at a time, with what its user may
//! see: a broadcast would tell every user of the machine when another user changes apps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use limelight_proto::{AppStatus, MemoryAction, Notice, Pause, Request};
use zbus::blocking::fdo::DBusProxy;
use zbus::blocking::Connection;
use zbus::fdo;
use zbus::names::BusName;
use zbus::MatchRule;

use crate::caller::Caller;
use crate::daemon::Client;
use crate::follow::{self, Follower, Heard};
use crate::service::{self, app, INTERFACE, PATH};

/// Maximum number of subscribers: of one user other than root, and of all users. Each has a
/// connection to limelightd, which limits connections too.
const PER_USER: usize = 4;
const SUBSCRIBERS_MAX: usize = 24;

/// All subscribers, by their connection to the bus.
#[derive(Debug)]
pub struct Subscribers {
    socket: PathBuf,
    all: Mutex<BTreeMap<String, Subscriber>>,
}

#[derive(Debug)]
struct Subscriber {
    uid: u32,
    _follower: Follower,
}

impl Subscribers {
    /// Starts without subscribers.
    pub fn new(socket: PathBuf) -> Subscribers {
        Subscribers {
            socket,
            all: Mutex::default(),
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Subscriber>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends signals to the caller from now on.
    pub fn add(&self, caller: Caller, bus: &Connection) -> fdo::Result<()> {
        // Fails at once if limelightd refuses the caller or does not run.
        Client::connect(&self.socket, Some(&caller))?.ask(&Request::Status)?;
        let name = caller.name.to_string();
        let mut all = self.all();
        if all.contains_key(&name) {
            return Ok(());
        }
        let uid = caller.uid;
        let own = all.values().filter(|one| one.uid == uid).count();
        if all.len() >= SUBSCRIBERS_MAX || uid != 0 && own >= PER_USER {
            let message = format!("uid {uid} has {own} of {} subscribers", all.len());
            return Err(fdo::Error::LimitsExceeded(message));
        }
        let rule = departure(&name)?;
        DBusProxy::new(bus)?.add_match_rule(rule)?;
        let mut sender = Sender {
            bus: bus.clone(),
            to: name.clone(),
            front: None,
            paused: None,
        };
        let follower = follow::start(self.socket.clone(), Some(caller), true, move |heard| {
            sender.hear(heard);
        });
        let follower = follower.map_err(|error| fdo::Error::Failed(error.to_string()))?;
        let subscriber = Subscriber {
            uid,
            _follower: follower,
        };
        all.insert(name.clone(), subscriber);
        drop(all);
        // The caller may have left the bus before the bus knew that its departure matters.
        let name = BusName::try_from(name).map_err(zbus::Error::from)?;
        let stays = DBusProxy::new(bus)?.name_has_owner(name.clone())?;
        if !stays && self.remove(&name) {
            stop_watching(bus, &name);
        }
        Ok(())
    }

    /// Sends no more signals to this connection. Returns whether it was a subscriber.
    pub fn remove(&self, name: &str) -> bool {
        self.all().remove(name).is_some()
    }
}

/// The signal that a connection has left the bus.
fn departure(name: &str) -> zbus::Result<MatchRule<'static>> {
    let rule = MatchRule::builder()
        .sender("org.freedesktop.DBus")?
        .interface("org.freedesktop.DBus")?
        .member("NameOwnerChanged")?
        .arg(0, name)?
        .build();
    Ok(rule.to_owned())
}

/// No longer waits for this connection to leave the bus.
pub fn stop_watching(bus: &Connection, name: &str) {
    let removed = departure(name).and_then(|rule| {
        DBusProxy::new(bus)?
            .remove_match_rule(rule)
            .map_err(zbus::Error::from)
    });
    if let Err(error) = removed {
        tracing::debug!("{error}");
    }
}

/// Turns reports into signals to one connection.
struct Sender {
    bus: Connection,
    to: String,
    /// The foreground app of the last signal.
    front: Option<Option<AppStatus>>,
    /// The pause of the last signal.
    paused: Option<(bool, u32)>,
}

impl Sender {
    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::State { front, paused } => {
                self.foreground(front);
                self.pause(paused);
            }
            Heard::Notice(Notice::Foreground { app: front }) => self.foreground(front),
            Heard::Notice(Notice::Done(entry)) if entry.action == MemoryAction::Kill => {
                self.send("AppClosed", &(app(entry.app.as_ref()), entry.reason));
            }
            Heard::Notice(_) => {}
        }
    }

    fn foreground(&mut self, front: Option<AppStatus>) {
        let properties = app(front.as_ref());
        if self.front.replace(front.clone()) != Some(front) {
            self.send("ForegroundChanged", &properties);
        }
    }

    fn pause(&mut self, pause: Option<Pause>) {
        let pause = service::pause(pause.as_ref());
        if self.paused.replace(pause) != Some(pause) {
            self.send("PauseChanged", &pause);
        }
    }

    fn send<B>(&self, signal: &str, body: &B)
    where
        B: zbus::export::serde::Serialize + zbus::zvariant::DynamicType,
    {
        let to = Some(self.to.as_str());
        if let Err(error) = self.bus.emit_signal(to, PATH, INTERFACE, signal, body) {
            tracing::debug!("{signal} was not sent: {error}");
        }
    }
}
