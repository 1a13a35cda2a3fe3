// SPDX-License-Identifier: GPL-2.0-or-later
//! A connection to PipeWire, in its native protocol. It lists the video streams: shared or recorded
//! screens, and cameras. It never blocks, reads no frame, and changes nothing on the server.
//!
//! The registry lists the server's objects. A stream's node and its client are bound, because only
//! they have the stream's state and the process that the client names.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use limelight_proto::VIDEO;
use rustix::io::Errno;
use rustix::net::{self, SendFlags};

use super::pod::{Builder, Values};
use super::video::VideoPlaces;
use super::watch::Connection;
use crate::daemon_client::connect;

/// Version of the protocol, and of the interfaces that are bound.
const VERSION: u32 = 3;

/// The server answers within milliseconds. If it takes this long, it hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// Maximum length of a message, in bytes.
const MESSAGE_MAX_BYTES: usize = 4 << 20;

/// Maximum number of objects of one kind that are followed.
const OBJECTS_MAX: usize = 1024;

/// Bytes before each message: the object, the opcode and the size, a number, and the number of
/// descriptors.
const HEAD: usize = 16;

/// Objects that every connection has, and the first one that it may create.
const CORE: u32 = 0;
const CLIENT: u32 = 1;
const REGISTRY: u32 = 2;

/// Methods.
const CORE_HELLO: u8 = 1;
const CORE_SYNC: u8 = 2;
const CORE_PONG: u8 = 3;
const CORE_GET_REGISTRY: u8 = 5;
const CLIENT_UPDATE_PROPERTIES: u8 = 2;
const REGISTRY_BIND: u8 = 1;

/// Events.
const CORE_DONE: u8 = 1;
const CORE_PING: u8 = 2;
const CORE_ERROR: u8 = 3;
const CORE_REMOVE_ID: u8 = 4;
const REGISTRY_GLOBAL: u8 = 0;
const REGISTRY_GLOBAL_REMOVE: u8 = 1;
/// Of a client, and of a node.
const INFO: u8 = 0;

/// Interfaces.
const INTERFACE_NODE: &str = "PipeWire:Interface:Node";
const INTERFACE_CLIENT: &str = "PipeWire:Interface:Client";

/// Classes of the nodes of apps that record or provide video. A camera or the compositor has the
/// class `Video/Source`.
const STREAMS: [&str; 2] = ["Stream/Input/Video", "Stream/Output/Video"];

/// State of a node whose frames are processed.
const RUNNING: u32 = 3;

/// Error of the server or of the connection to it.
#[derive(Debug, thiserror::Error)]
pub enum PipewireError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] Errno),
    /// The server closed the connection.
    #[error("PipeWire closed the connection")]
    Closed,
    /// The server did not answer, or does not read.
    #[error("PipeWire does not answer")]
    Silent,
    /// A message is longer than [`MESSAGE_MAX_BYTES`].
    #[error("PipeWire sent a message of {0} bytes")]
    TooLong(usize),
    /// A message cannot be parsed.
    #[error("PipeWire sent a malformed message")]
    Malformed,
    /// The server refused the connection or the list of its objects.
    #[error("PipeWire: {0}")]
    Refused(String),
}

/// What a bound object is, with its number in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Node(u32),
    Client(u32),
}

/// A video stream.
#[derive(Debug)]
struct Stream {
    /// Number of its client in the registry.
    client: u32,
    runs: bool,
}

/// A client of the server.
#[derive(Debug, Default)]
struct Client {
    /// The process that it names. Behind the desktop portal, the socket belongs to the portal, so
    /// only the client itself can name its process.
    named: Option<i32>,
    /// The process that opened the socket.
    opener: Option<i32>,
    is_bound: bool,
}

/// A connection to PipeWire.
pub struct Pipewire {
    fd: OwnedFd,
    incoming: Vec<u8>,
    sequence: u32,
    /// Objects of this connection; the server removes them, too.
    bound: BTreeMap<u32, Bound>,
    /// Numbers of removed objects. The server expects them to be used again.
    free: Vec<u32>,
    streams: BTreeMap<u32, Stream>,
    clients: BTreeMap<u32, Client>,
    /// When the server must have listed its objects.
    answer_by: Option<Duration>,
    changed: bool,
}

impl Connection for Pipewire {
    type Places = VideoPlaces;
    type Error = PipewireError;

    const NAME: &'static str = VIDEO;
    const SERVER: &'static str = "PipeWire";
    const UNKNOWN: &'static str = "apps that share or record the screen";

    fn connect(socket: &Path, now: Duration) -> Result<Pipewire, PipewireError> {
        let mut pipewire = Pipewire {
            fd: connect(socket)?,
            incoming: Vec::new(),
            sequence: 0,
            bound: BTreeMap::new(),
            free: Vec::new(),
            streams: BTreeMap::new(),
            clients: BTreeMap::new(),
            answer_by: Some(now + ANSWER_PATIENCE),
            changed: false,
        };
        let hello = Builder::default().int(VERSION);
        pipewire.send(CORE, CORE_HELLO, hello)?;
        let name = Builder::default().properties(&[("application.name", "limelight-agent")]);
        pipewire.send(CLIENT, CLIENT_UPDATE_PROPERTIES, name)?;
        let registry = Builder::default().int(VERSION).int(REGISTRY);
        pipewire.send(CORE, CORE_GET_REGISTRY, registry)?;
        pipewire.send(CORE, CORE_SYNC, Builder::default().int(CORE).int(0))?;
        Ok(pipewire)
    }

    fn turn(&mut self, now: Duration) -> Result<Option<BTreeSet<i32>>, PipewireError> {
        let mut buffer = [0u8; 16 * 1024];
        loop {
            // Descriptors that come with a message are closed by the kernel: they belong to nodes
            // that process frames.
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) => return Err(PipewireError::Closed),
                Ok(count) => self.incoming.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.take_messages()?;
        }
        if self.answer_by.is_some_and(|by| by <= now) {
            return Err(PipewireError::Silent);
        }
        let listed = self.answer_by.is_none();
        let changed = listed && std::mem::take(&mut self.changed);
        Ok(changed.then(|| self.pids()))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn deadline(&self) -> Option<Duration> {
        self.answer_by
    }
}

impl Pipewire {
    /// The processes of the streams that run.
    fn pids(&self) -> BTreeSet<i32> {
        let running = self.streams.values().filter(|stream| stream.runs);
        let clients = running.filter_map(|stream| self.clients.get(&stream.client));
        clients
            .filter_map(|client| client.named.or(client.opener))
            .collect()
    }

    fn send(&mut self, object: u32, opcode: u8, body: Builder) -> Result<(), PipewireError> {
        let body = body.message();
        let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let words = [object, u32::from(opcode) << 24 | size, self.sequence, 0];
        let mut message: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        message.extend(body);
        self.sequence = self.sequence.wrapping_add(1);
        // A few hundred bytes: if the socket's buffer has no room for them, the server hangs.
        match net::send(&self.fd, &message, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == message.len() => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(PipewireError::Silent),
            Err(errno) => Err(errno.into()),
        }
    }

    fn take_messages(&mut self) -> Result<(), PipewireError> {
        while let Some(head) = self.incoming.get(..HEAD) {
            let word = |at: usize| {
                let bytes = head[at..].first_chunk();
                bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
            };
            let (object, what) = (word(0), word(4));
            let opcode = what.to_be_bytes()[0];
            let size = (what & 0xff_ffff) as usize;
            if size > MESSAGE_MAX_BYTES {
                return Err(PipewireError::TooLong(size));
            }
            if self.incoming.len() < HEAD + size {
                break;
            }
            let message: Vec<u8> = self.incoming.drain(..HEAD + size).skip(HEAD).collect();
            self.take(object, opcode, &message)?;
        }
        Ok(())
    }

    fn take(&mut self, object: u32, opcode: u8, message: &[u8]) -> Result<(), PipewireError> {
        let malformed = PipewireError::Malformed;
        let mut values = Values::of_message(message).ok_or(malformed)?;
        let done = match (object, opcode) {
            (CORE, CORE_ERROR) => return refusal(values),
            (CORE, CORE_PING) => return self.pong(values),
            (REGISTRY, REGISTRY_GLOBAL) => return self.add(values),
            (CORE, CORE_DONE) => {
                self.answer_by = None;
                self.changed = true;
                Some(())
            }
            (CORE, CORE_REMOVE_ID) => values.number().map(|id| {
                if self.bound.remove(&id).is_some() {
                    self.free.push(id);
                }
            }),
            (REGISTRY, REGISTRY_GLOBAL_REMOVE) => values.number().map(|global| {
                self.clients.remove(&global);
                self.changed |= self.streams.remove(&global).is_some();
            }),
            (object, INFO) => match self.bound.get(&object) {
                Some(Bound::Node(global)) => self.learn_state(*global, values),
                Some(Bound::Client(global)) => self.learn_process(*global, values),
                None => Some(()),
            },
            _ => Some(()),
        };
        done.ok_or(PipewireError::Malformed)
    }

    /// Answers the server's check that this client is alive.
    fn pong(&mut self, mut values: Values<'_>) -> Result<(), PipewireError> {
        let both = values.number().zip(values.number());
        let (id, sequence) = both.ok_or(PipewireError::Malformed)?;
        self.send(CORE, CORE_PONG, Builder::default().int(id).int(sequence))
    }

    /// Follows a new object of the server, if it is a client or a video stream.
    fn add(&mut self, mut values: Values<'_>) -> Result<(), PipewireError> {
        let mut read = || {
            let global = values.number()?;
            let _permissions = values.number()?;
            let interface = values.text()?;
            let version = values.number()?;
            Some((global, interface, version, values.properties()?))
        };
        let (global, interface, version, properties) = read().ok_or(PipewireError::Malformed)?;
        let properties: BTreeMap<&str, &str> = properties.collect();
        let class = properties.get("media.class");
        if interface == INTERFACE_CLIENT && self.clients.len() < OBJECTS_MAX {
            let client = Client {
                opener: pid(properties.get("pipewire.sec.pid").copied()),
                ..Client::default()
            };
            self.clients.insert(global, client);
        } else if interface == INTERFACE_NODE
            && class.is_some_and(|class| STREAMS.contains(class))
            && self.streams.len() < OBJECTS_MAX
        {
            let client = properties.get("client.id").and_then(|id| id.parse().ok());
            let Some(client) = client else {
                return Ok(());
            };
            self.streams.insert(
                global,
                Stream {
                    client,
                    runs: false,
                },
            );
            self.bind(Bound::Node(global), interface, version)?;
            self.bind_client(client)?;
        }
        Ok(())
    }

    fn bind_client(&mut self, global: u32) -> Result<(), PipewireError> {
        match self.clients.get_mut(&global) {
            Some(client) if !client.is_bound => {
                client.is_bound = true;
                self.bind(Bound::Client(global), INTERFACE_CLIENT, VERSION)
            }
            _ => Ok(()),
        }
    }

    /// Asks the server to report changes of an object.
    fn bind(&mut self, what: Bound, interface: &str, version: u32) -> Result<(), PipewireError> {
        let (Bound::Node(global) | Bound::Client(global)) = what;
        let next = self.bound.len() + self.free.len() + REGISTRY as usize + 1;
        let next = u32::try_from(next).unwrap_or(u32::MAX);
        let id = self.free.pop().unwrap_or(next);
        self.bound.insert(id, what);
        let body = Builder::default()
            .int(global)
            .text(interface)
            .int(version.min(VERSION))
            .int(id);
        self.send(REGISTRY, REGISTRY_BIND, body)
    }

    /// Reads a node's state.
    fn learn_state(&mut self, global: u32, mut values: Values<'_>) -> Option<()> {
        // Before the state are the node's number, the most inputs and outputs, what has changed,
        // and the numbers of inputs and outputs.
        let state = values.nth(6)?;
        let runs = state == super::pod::Value::Id(RUNNING);
        if let Some(stream) = self.streams.get_mut(&global) {
            self.changed |= stream.runs != runs;
            stream.runs = runs;
        }
        Some(())
    }

    /// Reads the process that a client names.
    fn learn_process(&mut self, global: u32, mut values: Values<'_>) -> Option<()> {
        // Before the properties are the client's number and what has changed.
        let _ = (values.next()?, values.next()?);
        let properties: BTreeMap<&str, &str> = values.properties()?.collect();
        let named = pid(properties.get("application.process.id").copied());
        if let (Some(client), Some(_)) = (self.clients.get_mut(&global), named) {
            self.changed |= client.named != named;
            client.named = named;
        }
        Some(())
    }
}

/// The server's error, if it is about the connection itself. An object may be gone before it is
/// bound.
fn refusal(mut values: Values<'_>) -> Result<(), PipewireError> {
    let mut read = || {
        let object = values.number()?;
        let _sequence = values.number()?;
        let _error = values.number()?;
        Some((object, values.text()?))
    };
    match read() {
        Some((object, why)) if object <= REGISTRY => Err(PipewireError::Refused(why.to_owned())),
        Some(_) => Ok(()),
        None => Err(PipewireError::Malformed),
    }
}

/// A process id in a property.
fn pid(text: Option<&str>) -> Option<i32> {
    let pid = text?.parse().ok();
    pid.filter(|pid| *pid > 0)
}

#[cfg(test)]
#[path = "pipewire_tests.rs"]
mod tests;
