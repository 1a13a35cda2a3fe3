// SPDX-License-Identifier: GPL-2.0-or-later
//! The interface `org.limelight.Limelight1`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use limelight_proto::{AppReport, AppStatus, Class, ErrorCode, Pause, Request, Response, Status};
use zbus::fdo;
use zbus::message::{Flags, Header};
use zbus::object_server::SignalEmitter;
use zbus::zvariant::Value;
use zbus::Connection;

use crate::caller::{Caller, Calls};
use crate::daemon::{Client, Failure};
use crate::polkit::{self, Action};
use crate::subscribers::{stop_watching, Subscribers};

/// The name on the bus.
pub const NAME: &str = "org.limelight.Limelight1";
/// The interface.
pub const INTERFACE: &str = "org.limelight.Limelight1";
/// The object's path.
pub const PATH: &str = "/org/limelight/Limelight1";

/// An app or its properties: `a{sv}`.
pub type Properties = HashMap<&'static str, Value<'static>>;

/// The properties that identify an app; empty without an app.
pub fn app(app: Option<&AppStatus>) -> Properties {
    let Some(app) = app else {
        return Properties::new();
    };
    let mut all = Properties::from([("Name", Value::from(app.name.clone()))]);
    all.extend(app.pid.map(|pid| ("Pid", Value::from(pid))));
    let cgroup = app.cgroup.clone();
    all.extend(cgroup.map(|path| ("Cgroup", Value::from(path))));
    all
}

fn report(one: &AppReport) -> Properties {
    let mut all = app(Some(&one.app));
    all.insert("Class", Value::from(one.class.name()));
    all.insert("ClassReason", Value::from(one.why.clone()));
    all.insert("Uid", Value::from(one.uid));
    all.insert("ResidentBytes", Value::from(one.resident));
    all.insert("SwappedBytes", Value::from(one.swapped));
    all.insert("Frozen", Value::from(one.frozen));
    let id = one.desktop_id.clone();
    all.extend(id.map(|id| ("DesktopId", Value::from(id))));
    all
}

/// Whether there is a pause, and how many seconds of it are left; 0: it has no end.
pub fn pause(pause: Option<&Pause>) -> (bool, u32) {
    let left = pause.and_then(|pause| pause.left_ms);
    let seconds = left.map_or(0, |ms| ms.div_ceil(1000).max(1));
    (pause.is_some(), u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// The object.
#[derive(Debug)]
pub struct Service {
    socket: PathBuf,
    subscribers: Arc<Subscribers>,
    calls: Calls,
}

impl Service {
    /// A service for the daemon at this socket.
    pub fn new(socket: PathBuf, subscribers: Arc<Subscribers>) -> Service {
        Service {
            socket,
            subscribers,
            calls: Calls::default(),
        }
    }

    /// Asks the daemon with the caller's rights (`None`: root's).
    async fn pass_on(&self, caller: Option<Caller>, request: Request) -> Result<Response, Failure> {
        let socket = self.socket.clone();
        let ask = move || Client::connect(&socket, caller.as_ref())?.ask(&request);
        blocking::unblock(ask).await
    }

    /// Asks the daemon with the caller's rights.
    async fn ask(
        &self,
        header: &Header<'_>,
        bus: &Connection,
        request: Request,
    ) -> fdo::Result<Response> {
        let caller = Caller::of(header, bus).await?;
        let _call = self.calls.begin(caller.uid)?;
        Ok(self.pass_on(Some(caller), request).await?)
    }

    async fn status(&self, header: &Header<'_>, bus: &Connection) -> fdo::Result<Box<Status>> {
        match self.ask(header, bus, Request::Status).await? {
            Response::Status(status) => Ok(status),
            _ => Err(unexpected()),
        }
    }

    /// Asks the daemon with the caller's rights; if it refuses, and polkit allows the action, with
    /// root's rights.
    async fn change(
        &self,
        header: &Header<'_>,
        bus: &Connection,
        action: Action,
        request: Request,
    ) -> fdo::Result<String> {
        let caller = Caller::of(header, bus).await?;
        let _call = self.calls.begin(caller.uid)?;
        let mut answer = self.pass_on(Some(caller.clone()), request.clone()).await;
        let refused = matches!(
            answer,
            Err(Failure::Refused {
                code: ErrorCode::NotAllowed,
                ..
            })
        );
        let flags = header.primary().flags();
        let may_ask = flags.contains(Flags::AllowInteractiveAuth);
        if refused && polkit::allows(bus, &caller, action, may_ask).await {
            answer = self.pass_on(None, request).await;
        }
        match answer? {
            Response::Ok { message } => Ok(message),
            _ => Err(unexpected()),
        }
    }
}

fn unexpected() -> fdo::Error {
    fdo::Error::Failed("limelightd's answer does not match: is it of another version?".to_owned())
}

#[zbus::interface(name = "org.limelight.Limelight1")]
impl Service {
    /// The foreground app: Name, Pid, Cgroup, Source. Empty if there is none, or if the caller may
    /// not see it.
    async fn get_foreground(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] bus: &Connection,
    ) -> fdo::Result<Properties> {
        let status = self.status(&header, bus).await?;
        let front = status.topmost;
        let mut all = app(front.as_ref().map(|front| &front.app));
        all.extend(front.map(|front| ("Source", Value::from(front.source))));
        Ok(all)
    }

    /// Whether limelightd is paused, and for how many more seconds; 0: until Resume.
    async fn get_pause(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] bus: &Connection,
    ) -> fdo::Result<(bool, u32)> {
        let status = self.status(&header, bus).await?;
        Ok(pause(status.paused.as_ref()))
    }

    /// Undoes all changes, and makes none for this many seconds; 0: until Resume. Returns what was
    /// done, for display.
    async fn pause(
        &self,
        seconds: u32,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] bus: &Connection,
    ) -> fdo::Result<String> {
        let for_ms = (seconds > 0).then(|| u64::from(seconds) * 1000);
        let request = Request::Pause { for_ms };
        self.change(&header, bus, Action::Pause, request).await
    }

    /// Ends a pause. Returns what was done, for display.
    async fn resume(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] bus: &Connection,
    ) -> fdo::Result<String> {
        self.change(&header, bus, Action::Pause, Request::Resume)
            .await
    }

    /// The apps that the caller may see, last used first.
    async fn list_apps(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] bus: &Connection,
    ) -> fdo::Result<Vec<Properties>> {
        match self.ask(&header, bus, Request::Apps { pid: None }).await? {
            Response::Apps { apps, .. } => Ok(apps.iter().map(report).collect()),
            _ => Err(unexpected()),
        }
    }

    /// The class of the app with this process: keep, normal or disposable; and the reason for it.
    async fn get_class(
        &self,
        pid: i32,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] bus: &Connection,
    ) -> fdo::Result<(String, String)> {
        let request = Request::Apps { pid: Some(pid) };
        match self.ask(&header, bus, request).await? {
            Response::Apps { apps, .. } => match apps.into_iter().next() {
                Some(app) => Ok((app.class.name().to_owned(), app.why)),
                None => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }

    /// Sets the class of the app with this process until it ends: keep, normal, disposable, or auto
    /// for its default. Returns what was done, for display.
    async fn set_class(
        &self,
        pid: i32,
        class: &str,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] bus: &Connection,
    ) -> fdo::Result<String> {
        let class = match class {
            "auto" => None,
            class => Some(class.parse::<Class>().map_err(fdo::Error::InvalidArgs)?),
        };
        let request = Request::Class {
            pid,
            class,
            save: false,
        };
        self.change(&header, bus, Action::SetClass, request).await
    }

    /// Sends this interface's signals to the caller until it calls Unsubscribe or leaves the bus,
    /// the present state first.
    async fn subscribe(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] bus: &Connection,
    ) -> fdo::Result<()> {
        let caller = Caller::of(&header, bus).await?;
        let _call = self.calls.begin(caller.uid)?;
        let (bus, subscribers) = (bus.clone().into(), Arc::clone(&self.subscribers));
        blocking::unblock(move || subscribers.add(caller, &bus)).await
    }

    /// Sends no more signals to the caller.
    async fn unsubscribe(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] bus: &Connection,
    ) -> fdo::Result<()> {
        let name = header.sender().map(ToString::to_string).unwrap_or_default();
        if self.subscribers.remove(&name) {
            let bus = bus.clone().into();
            blocking::unblock(move || stop_watching(&bus, &name)).await;
        }
        Ok(())
    }

    /// Version of this program.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// Another app is in the foreground. Empty: none, or one that the receiver may not see.
    #[zbus(signal)]
    async fn foreground_changed(
        emitter: &SignalEmitter<'_>,
        app: HashMap<&str, Value<'_>>,
    ) -> zbus::Result<()>;

    /// limelightd closed an app because memory was short.
    #[zbus(signal)]
    async fn app_closed(
        emitter: &SignalEmitter<'_>,
        app: HashMap<&str, Value<'_>>,
        reason: &str,
    ) -> zbus::Result<()>;

    /// limelightd was paused or resumed. `seconds`: how long the pause lasts; 0: until Resume.
    #[zbus(signal)]
    async fn pause_changed(
        emitter: &SignalEmitter<'_>,
        paused: bool,
        seconds: u32,
    ) -> zbus::Result<()>;
}
