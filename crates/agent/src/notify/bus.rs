// SPDX-License-Identifier: GPL-2.0-or-later
//! The desktop's notification server, over the session bus (`org.freedesktop.Notifications`).
//!
//! A thread makes the calls, because a server may hang: the agent's own thread only passes texts to
//! a bounded queue, and takes events from another one. A second thread waits for signals. Neither
//! thread wakes up while nothing happens.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use limelight_proto::{SourceStatus, State, NOTIFICATIONS};
use zbus::blocking::{connection, fdo::DBusProxy, Connection, MessageIterator};
use zbus::message::{Message, Type};
use zbus::names::BusName;
use zbus::zvariant::Value;
use zbus::MatchRule;

const SERVER: &str = "org.freedesktop.Notifications";
const PATH: &str = "/org/freedesktop/Notifications";
const BUS: &str = "org.freedesktop.DBus";

/// A server answers within milliseconds, but the bus may have to start it first.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of texts and signals that wait for the thread. More are dropped.
const JOBS_MAX: usize = 16;

/// Maximum number of notifications whose actions are remembered.
const OPEN_MAX: usize = 32;

/// Maximum number of events that wait for the agent. More are dropped.
const EVENTS_MAX: usize = 32;

/// A notification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    pub title: String,
    /// Text without markup.
    pub body: String,
    pub urgent: bool,
    /// Buttons: the name of the action, and the label.
    pub actions: Vec<(&'static str, &'static str)>,
}

/// A button that the user pressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pressed {
    /// Number of the notification, from [`Bus::show`].
    pub number: u64,
    /// Name of the action.
    pub action: String,
}

/// The thread, as the agent sees it.
#[derive(Debug)]
pub struct Bus {
    jobs: SyncSender<Job>,
    shared: Arc<Mutex<Shared>>,
    woken: UnixStream,
    next: u64,
    /// Number of texts that were dropped because the server did not take them in time.
    pub dropped: u64,
}

#[derive(Debug)]
struct Shared {
    state: State,
    detail: String,
    pressed: VecDeque<Pressed>,
}

#[derive(Debug)]
enum Job {
    Show(u64, Text),
    /// Connect if there is no connection, and find out whether there is a server.
    Probe,
    Signal(Message),
    /// The bus closed the connection.
    Lost,
}

impl Bus {
    /// Starts the thread. `address`: the bus; `None`: the session's bus.
    pub fn start(address: Option<String>) -> std::io::Result<Bus> {
        let (woken, wake) = UnixStream::pair()?;
        for end in [&woken, &wake] {
            end.set_nonblocking(true)?;
        }
        let shared = Arc::new(Mutex::new(Shared {
            state: State::Idle,
            detail: "not connected to the session bus yet".to_owned(),
            pressed: VecDeque::new(),
        }));
        let (jobs, queue) = sync_channel(JOBS_MAX);
        let worker = Worker {
            address,
            jobs: jobs.clone(),
            shared: Arc::clone(&shared),
            wake,
            bus: None,
            server: None,
            open: BTreeMap::new(),
        };
        std::thread::Builder::new()
            .name("notifications".to_owned())
            .spawn(move || worker.run(&queue))?;
        Ok(Bus {
            jobs,
            shared,
            woken,
            next: 0,
            dropped: 0,
        })
    }

    /// Queues a notification. Returns its number; `None` if it was dropped because too many wait.
    pub fn show(&mut self, text: Text) -> Option<u64> {
        self.next += 1;
        match self.jobs.try_send(Job::Show(self.next, text)) {
            Ok(()) => Some(self.next),
            Err(_) => {
                self.dropped += 1;
                None
            }
        }
    }

    /// Finds out whether there is a server. The status changes later.
    pub fn probe(&self) {
        // If the queue is full, one of its texts finds that out.
        let _ = self.jobs.try_send(Job::Probe);
    }

    /// Descriptor that becomes readable when a button was pressed or the status has changed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// Takes the buttons pressed since the last call.
    pub fn pressed(&self) -> Vec<Pressed> {
        let mut buffer = [0u8; 64];
        while (&self.woken).read(&mut buffer).is_ok_and(|count| count > 0) {}
        let shared = self.shared.lock();
        shared.map_or(Vec::new(), |mut shared| shared.pressed.drain(..).collect())
    }

    /// Whether notifications are shown, and by which server.
    pub fn status(&self) -> SourceStatus {
        let (state, detail) = match self.shared.lock() {
            Ok(shared) => (shared.state, shared.detail.clone()),
            Err(_) => (State::Unavailable, "their thread failed".to_owned()),
        };
        SourceStatus {
            name: NOTIFICATIONS.to_owned(),
            state,
            detail,
        }
    }
}

/// The running server.
#[derive(Debug, Default)]
struct Server {
    /// Its name on the bus: signals from other peers are ignored.
    owner: String,
    capabilities: Vec<String>,
}

impl Server {
    fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|one| one == capability)
    }
}

/// State of the thread.
struct Worker {
    address: Option<String>,
    /// Passed to the thread that waits for signals.
    jobs: SyncSender<Job>,
    shared: Arc<Mutex<Shared>>,
    wake: UnixStream,
    bus: Option<Connection>,
    server: Option<Server>,
    /// Notifications by the server's id.
    open: BTreeMap<u32, u64>,
}

impl Worker {
    fn run(mut self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            match job {
                Job::Show(number, text) => {
                    if let Err(error) = self.show(number, &text) {
                        tracing::warn!("cannot show \"{}\": {error}", text.title);
                        self.fail(&error);
                    }
                }
                Job::Probe => self.probe(),
                Job::Signal(signal) => self.take(&signal),
                Job::Lost => {
                    self.bus = None;
                    self.forget_server();
                    self.set(State::Unavailable, "the session bus closed the connection");
                }
            }
        }
    }

    fn set(&mut self, state: State, detail: impl std::fmt::Display) {
        let detail = detail.to_string();
        if let Ok(mut shared) = self.shared.lock() {
            // A server may start after the agent, so this alone is no reason to warn.
            if shared.detail != detail {
                tracing::info!("notifications: {detail}");
            }
            (shared.state, shared.detail) = (state, detail);
        }
        self.wake();
    }

    fn wake(&self) {
        // If the socket is full, a wakeup is already pending.
        let _ = (&self.wake).write(&[1]);
    }

    fn fail(&mut self, error: &zbus::Error) {
        self.forget_server();
        match self.bus {
            Some(_) => self.set(State::Unavailable, format!("{SERVER}: {error}")),
            None => self.set(State::Unavailable, format!("the session bus: {error}")),
        }
    }

    fn forget_server(&mut self) {
        self.server = None;
        self.open.clear();
    }

    fn connect(&mut self) -> zbus::Result<Connection> {
        if let Some(bus) = &self.bus {
            return Ok(bus.clone());
        }
        let builder = match &self.address {
            Some(address) => connection::Builder::address(address.as_str())?,
            None => connection::Builder::session()?,
        };
        let bus = builder.method_timeout(ANSWER_PATIENCE).build()?;
        let messages = MessageIterator::from(&bus);
        let rules = [
            MatchRule::builder()
                .msg_type(Type::Signal)
                .sender(SERVER)?
                .interface(SERVER)?,
            MatchRule::builder()
                .msg_type(Type::Signal)
                .sender(BUS)?
                .member("NameOwnerChanged")?
                .arg(0, SERVER)?,
        ];
        let proxy = DBusProxy::new(&bus)?;
        for rule in rules {
            proxy.add_match_rule(rule.build())?;
        }
        let jobs = self.jobs.clone();
        let forward = move || {
            for message in messages.map_while(Result::ok) {
                if message.message_type() == Type::Signal {
                    let _ = jobs.try_send(Job::Signal(message));
                }
            }
            let _ = jobs.send(Job::Lost);
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(forward)
            .map_err(|error| zbus::Error::InputOutput(error.into()))?;
        self.bus = Some(bus.clone());
        Ok(bus)
    }

    /// Finds out whether there is a server, without starting one.
    fn probe(&mut self) {
        match self.find_server() {
            Ok(()) => {}
            Err(error) => self.fail(&error),
        }
    }

    fn find_server(&mut self) -> zbus::Result<()> {
        let bus = self.connect()?;
        let proxy = DBusProxy::new(&bus)?;
        if proxy.name_has_owner(BusName::try_from(SERVER)?)? {
            return self.ask_server(&bus).map(drop);
        }
        self.forget_server();
        let startable = proxy.list_activatable_names()?;
        match startable.iter().any(|name| name.as_str() == SERVER) {
            true => self.set(State::Idle, "the bus starts their server when it is needed"),
            false => self.set(
                State::Unavailable,
                format!("no program serves {SERVER} on the session bus"),
            ),
        }
        Ok(())
    }

    /// The running server. Starts one if the bus can.
    fn ask_server(&mut self, bus: &Connection) -> zbus::Result<&Server> {
        let call = |member| bus.call_method(Some(SERVER), PATH, Some(SERVER), member, &());
        let capabilities = call("GetCapabilities")?;
        let information = call("GetServerInformation")?;
        let (name, _, version, _): (String, String, String, String) =
            information.body().deserialize()?;
        let owner = information.header().sender().map(ToString::to_string);
        self.set(State::Active, format!("shown by {name} {version}"));
        Ok(self.server.insert(Server {
            owner: owner.unwrap_or_default(),
            capabilities: capabilities.body().deserialize()?,
        }))
    }

    fn show(&mut self, number: u64, text: &Text) -> zbus::Result<()> {
        let bus = self.connect()?;
        if self.server.is_none() {
            self.ask_server(&bus)?;
        }
        let Some(server) = &self.server else {
            return Ok(());
        };
        let body = match server.can("body-markup") {
            true => without_markup(&text.body),
            false => text.body.clone(),
        };
        let buttons = text.actions.iter().filter(|_| server.can("actions"));
        let actions: Vec<&str> = buttons.flat_map(|(name, label)| [*name, *label]).collect();
        let urgency: u8 = if text.urgent { 2 } else { 1 };
        let hints = HashMap::from([("urgency", Value::from(urgency))]);
        let icon = "dialog-warning";
        let arguments = (
            "Limelight",
            0u32,
            icon,
            &text.title,
            body,
            actions,
            hints,
            -1i32,
        );
        let answer = bus.call_method(Some(SERVER), PATH, Some(SERVER), "Notify", &arguments)?;
        let id: u32 = answer.body().deserialize()?;
        if !text.actions.is_empty() {
            while self.open.len() >= OPEN_MAX {
                self.open.pop_first();
            }
            self.open.insert(id, number);
        }
        Ok(())
    }

    fn take(&mut self, signal: &Message) {
        let header = signal.header();
        let sender = header.sender().map(|sender| sender.as_str());
        let member = header.member().map(|member| member.as_str());
        match (sender, member) {
            (Some(BUS), Some("NameOwnerChanged")) => {
                let changed = signal.body().deserialize::<(String, String, String)>();
                let known = self.server.as_ref().map(|server| server.owner.as_str());
                // The signal about a server that the bus started for a notification arrives after
                // the notification was shown.
                if changed.is_ok_and(|(_, _, new)| new.is_empty() || known != Some(&*new)) {
                    self.forget_server();
                    self.probe();
                }
            }
            (Some(sender), Some(member)) => {
                let server = self.server.as_ref();
                if server.is_some_and(|server| server.owner == sender) {
                    self.take_from_server(member, signal);
                }
            }
            _ => {}
        }
    }

    fn take_from_server(&mut self, member: &str, signal: &Message) {
        match member {
            "ActionInvoked" => {
                let body = signal.body();
                let Ok((id, action)) = body.deserialize::<(u32, String)>() else {
                    return;
                };
                let Some(&number) = self.open.get(&id) else {
                    return;
                };
                if let Ok(mut shared) = self.shared.lock() {
                    if shared.pressed.len() < EVENTS_MAX {
                        shared.pressed.push_back(Pressed { number, action });
                    }
                }
                self.wake();
            }
            "NotificationClosed" => {
                if let Ok((id, _)) = signal.body().deserialize::<(u32, u32)>() {
                    self.open.remove(&id);
                }
            }
            _ => {}
        }
    }
}

/// Text for a server that interprets markup.
fn without_markup(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            c => plain.push(c),
        }
    }
    plain
}
