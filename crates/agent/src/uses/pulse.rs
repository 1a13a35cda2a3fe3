// SPDX-License-Identifier: GPL-2.0-or-later
//! A connection to a sound server that speaks PulseAudio's native protocol: PulseAudio itself, or
//! pipewire-pulse. It never blocks, plays nothing, and cannot start a server.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use pulseaudio::protocol::{
    self, AuthParams, AuthReply, ClientInfo, Command, CommandReply, CommandTag, Prop, Props,
    ProtocolError, SinkInputInfo, SourceOutputInfo, SubscriptionMask, TagStructReader,
    DESCRIPTOR_SIZE,
};
use rustix::io::Errno;
use rustix::net::{self, SendFlags};

use crate::daemon_client::connect;

/// Version of the protocol to announce: the lowest one that reports whether a stream is paused is
/// 19, and from 21 on streams have fields that are not needed here.
const VERSION: u16 = 20;

/// The server answers within milliseconds. If it takes this long, it hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// Maximum length of a message, in bytes.
const MESSAGE_MAX_BYTES: usize = 4 << 20;

/// Length of a cookie, in bytes. PulseAudio refuses any other.
const COOKIE_BYTES: usize = 256;

/// Name of this client in the server's lists.
const NAME: &std::ffi::CStr = c"limelight-agent";

/// Error of the sound server or of the connection to it.
#[derive(Debug, thiserror::Error)]
pub enum PulseError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] Errno),
    /// The server closed the connection.
    #[error("the sound server closed the connection")]
    Closed,
    /// The server did not answer, or does not read.
    #[error("the sound server does not answer")]
    Silent,
    /// A message is longer than [`MESSAGE_MAX_BYTES`].
    #[error("the sound server sent a message of {0} bytes")]
    TooLong(usize),
    /// A message cannot be parsed, or is an error of the server.
    #[error("the sound server: {0}")]
    Protocol(#[from] ProtocolError),
}

/// Kind of a request without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Login,
    Name,
    Subscription,
    Players,
    Recorders,
    Clients,
}

/// The lists of streams and clients, as far as they have arrived.
#[derive(Debug, Default)]
struct Lists {
    /// For each stream that is not paused: its process, and the index of its client.
    streams: Vec<(Option<i32>, Option<u32>)>,
    /// The process of each client.
    clients: BTreeMap<u32, i32>,
}

/// A connection to a sound server.
pub struct Server {
    fd: OwnedFd,
    incoming: Vec<u8>,
    sequence: u32,
    /// Requests without an answer, by their number. pipewire-pulse answers in another order.
    asked: BTreeMap<u32, Asked>,
    answer_by: Option<Duration>,
    lists: Lists,
    is_listing: bool,
    /// Whether a stream has changed since the last request for the lists.
    pub changed: bool,
    /// The processes with streams that play or record; `None` before the first complete lists.
    pub pids: Option<BTreeSet<i32>>,
}

impl Server {
    /// Connects to a socket, logs in, and subscribes to changes of the streams. The answers arrive
    /// later. `cookie`: empty if there is none; servers let their own user log in without it.
    pub fn connect(socket: &Path, mut cookie: Vec<u8>, now: Duration) -> Result<Self, PulseError> {
        cookie.resize(COOKIE_BYTES, 0);
        let mut server = Server {
            fd: connect(socket)?,
            incoming: Vec::new(),
            sequence: 0,
            asked: BTreeMap::new(),
            answer_by: None,
            lists: Lists::default(),
            is_listing: false,
            changed: true,
            pids: None,
        };
        let login = AuthParams {
            version: VERSION,
            supports_shm: false,
            supports_memfd: false,
            cookie,
        };
        server.ask(&Command::Auth(login), Asked::Login, now)?;
        let mut props = Props::new();
        props.set(Prop::ApplicationName, NAME);
        server.ask(&Command::SetClientName(props), Asked::Name, now)?;
        let mask = SubscriptionMask::SINK_INPUT | SubscriptionMask::SOURCE_OUTPUT;
        server.ask(&Command::Subscribe(mask), Asked::Subscription, now)?;
        Ok(server)
    }

    /// Descriptor that becomes readable when the server sends something.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// When the server must have answered.
    pub fn deadline(&self) -> Option<Duration> {
        self.answer_by
    }

    /// Whether all requests have been answered.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// Requests the lists of streams and clients. Called only if all requests have been answered.
    pub fn list(&mut self, now: Duration) -> Result<(), PulseError> {
        self.changed = false;
        self.lists = Lists::default();
        self.is_listing = true;
        self.ask(&Command::GetSinkInputInfoList, Asked::Players, now)?;
        self.ask(&Command::GetSourceOutputInfoList, Asked::Recorders, now)?;
        self.ask(&Command::GetClientInfoList, Asked::Clients, now)
    }

    fn ask(&mut self, command: &Command, asked: Asked, now: Duration) -> Result<(), PulseError> {
        let mut message = Vec::new();
        protocol::encode_command_message(&mut message, self.sequence, command, VERSION)?;
        // A few hundred bytes: if the socket's buffer has no room for them, the server hangs.
        match net::send(&self.fd, &message, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == message.len() => {}
            Ok(_) | Err(Errno::AGAIN) => return Err(PulseError::Silent),
            Err(errno) => return Err(errno.into()),
        }
        self.asked.insert(self.sequence, asked);
        self.sequence = self.sequence.wrapping_add(1);
        self.answer_by = Some(now + ANSWER_PATIENCE);
        Ok(())
    }

    /// Reads and handles all messages that have arrived. Never waits.
    pub fn turn(&mut self, now: Duration) -> Result<(), PulseError> {
        let mut buffer = [0u8; 16 * 1024];
        loop {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) => return Err(PulseError::Closed),
                Ok(count) => self.incoming.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.take_messages()?;
        }
        match self.answer_by.is_some_and(|by| by <= now) {
            true => Err(PulseError::Silent),
            false => Ok(()),
        }
    }

    fn take_messages(&mut self) -> Result<(), PulseError> {
        while let Some(length) = self.incoming.get(..4).and_then(|head| head.try_into().ok()) {
            let length = u32::from_be_bytes(length) as usize;
            if length > MESSAGE_MAX_BYTES {
                return Err(PulseError::TooLong(length));
            }
            if self.incoming.len() < DESCRIPTOR_SIZE + length {
                break;
            }
            let message: Vec<u8> = self.incoming.drain(..DESCRIPTOR_SIZE + length).collect();
            // Other channels carry samples.
            if message[4..8] == [0xff; 4] {
                self.take(&message)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &[u8]) -> Result<(), PulseError> {
        let mut payload = &message[DESCRIPTOR_SIZE..];
        let mut head = TagStructReader::new(&mut payload, VERSION);
        let (tag, sequence) = (head.read_u32()?, head.read_u32()?);
        if tag == CommandTag::SubscribeEvent as u32 {
            self.changed = true;
            return Ok(());
        }
        if ![CommandTag::Reply as u32, CommandTag::Error as u32].contains(&tag) {
            return Ok(());
        }
        let Some(asked) = self.asked.remove(&sequence) else {
            return Ok(());
        };
        match asked {
            Asked::Login => drop(reply::<AuthReply>(message)?),
            Asked::Players => {
                for stream in reply::<Vec<SinkInputInfo>>(message)? {
                    self.note(stream.corked, &stream.props, stream.client_index);
                }
            }
            Asked::Recorders => {
                for stream in reply::<Vec<SourceOutputInfo>>(message)? {
                    self.note(stream.corked, &stream.props, stream.client_index);
                }
            }
            Asked::Clients => {
                let clients = reply::<Vec<ClientInfo>>(message)?;
                let process = |client: &ClientInfo| Some((client.index, pid_of(&client.props)?));
                self.lists.clients = clients.iter().filter_map(process).collect();
            }
            Asked::Name | Asked::Subscription => {
                protocol::read_ack_message(&mut &message[..])?;
            }
        }
        if self.asked.is_empty() {
            self.answer_by = None;
            if std::mem::take(&mut self.is_listing) {
                self.pids = Some(std::mem::take(&mut self.lists).pids());
            }
        }
        Ok(())
    }

    fn note(&mut self, paused: bool, props: &Props, client: Option<u32>) {
        if !paused {
            self.lists.streams.push((pid_of(props), client));
        }
    }
}

impl Lists {
    /// The processes of the streams. PipeWire has the process of its own clients in the list of
    /// clients only.
    fn pids(self) -> BTreeSet<i32> {
        let of_client = |client: Option<u32>| self.clients.get(&client?).copied();
        let streams = self.streams.iter();
        streams
            .filter_map(|(pid, client)| pid.or_else(|| of_client(*client)))
            .collect()
    }
}

fn reply<T: CommandReply>(message: &[u8]) -> Result<T, ProtocolError> {
    protocol::read_reply_message(&mut &message[..], VERSION).map(|(_, reply)| reply)
}

/// The process that these properties name.
fn pid_of(props: &Props) -> Option<i32> {
    let value = props.get(Prop::ApplicationProcessId)?;
    let text = std::str::from_utf8(value).ok()?;
    let pid = text.trim_end_matches('\0').parse().ok();
    pid.filter(|pid| *pid > 0)
}

#[cfg(test)]
#[path = "pulse_tests.rs"]
mod tests;
