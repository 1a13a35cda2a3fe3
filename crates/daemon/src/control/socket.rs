// SPDX-License-Identifier: GPL-2.0-or-later
//! The control socket: turns bytes into lines and sends answers. Other modules interpret the lines.
//!
//! Any user may connect, so nothing here waits for a client. Reads and writes never block. Line
//! length, pending answers, idle time and the number of clients are bounded, and clients take turns
//! after each request. When all slots are taken, a new client replaces a client of the user with
//! the most connections. Parts of lines and new connections have rate limits, as requests do.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_core::rate::Rate;
use limelight_proto::{ErrorCode, Notice, Response, SOCKET_NAME};
use limelight_sys::peercred::{peer, peer_groups, PeerCred};
use rustix::event::epoll::EventFlags;
use tracing::{debug, warn};

use crate::control::client::{encode, Client};
use crate::control::rate_limit::Limiter;
use crate::event_loop::reactor::{Reactor, Ready, Token};
use crate::exit::Failure;
use crate::reconcile::outbox::Message;
use crate::system::access::{Access, Speaker};
use crate::system::identify::Refusal;

/// Maximum number of clients at once.
pub const CLIENTS_MAX: usize = 64;

/// Maximum number of clients of one user other than root, so that no user can lock out the others.
const CLIENTS_PER_USER: usize = 16;

/// Idle limit: a client without a claim, an announcement or a `listen` is disconnected after this
/// time.
const IDLE: Duration = Duration::from_secs(60);

/// A client that does not read its answers for this long is disconnected.
const STUCK: Duration = Duration::from_secs(10);

/// Limit of a client's pending answers, in bytes. At this limit, the client's further requests
/// wait.
const WAITING_MAX: usize = 256 * 1024;

/// Connections that are accepted at once, and per second. One costs about as much as a request.
const ACCEPT_BURST: u64 = 256;
const ACCEPT_PER_SECOND: u64 = 1000;

/// Pause after too many connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A request line from a client.
#[derive(Debug)]
pub struct RequestLine {
    /// The client.
    pub client: u64,
    /// Credentials of the peer.
    pub peer: PeerCred,
    /// The line without its newline.
    pub text: Vec<u8>,
}

/// The socket and its clients.
#[derive(Debug)]
pub struct ControlSource {
    listener: UnixListener,
    path: PathBuf,
    clients: BTreeMap<u64, Client>,
    /// Id of the next client.
    next: u64,
    /// A spare descriptor. It is closed when no other is available, so that a new client can
    /// receive an error.
    spare: Option<UnixListener>,
    /// Clients that were displaced since the last [`ControlSource::tidy`].
    displaced: Vec<u64>,
    /// The group whose members receive all notices.
    group: Option<u32>,
    limiter: Limiter,
    accepts: Rate,
    /// When connections are accepted again.
    paused_until: Option<Duration>,
}

impl ControlSource {
    /// Creates the socket in the runtime directory, accessible to all users. The caller holds the
    /// lock, so an existing socket belongs to a dead daemon.
    pub fn bind(runtime: &Path) -> Result<ControlSource, Failure> {
        let path = runtime.join(SOCKET_NAME);
        let failed = |error: std::io::Error| Failure::Runtime {
            path: runtime.to_owned(),
            why: format!("cannot create {SOCKET_NAME}: {error}"),
        };
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let everybody = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&path, everybody).map_err(failed)?;
        Ok(ControlSource {
            spare: listener.try_clone().ok(),
            listener,
            path,
            clients: BTreeMap::new(),
            next: 0,
            displaced: Vec::new(),
            group: None,
            limiter: Limiter::default(),
            accepts: Rate::new(ACCEPT_PER_SECOND, ACCEPT_BURST, Duration::ZERO),
            paused_until: None,
        })
    }

    /// Sets the group whose members receive notices about all users' apps.
    pub fn set_group(&mut self, group: Option<u32>) {
        self.group = group;
    }

    /// The listening socket to wait for.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Removes the socket.
    pub fn close(self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            debug!("cannot remove {}: {error}", self.path.display());
        }
    }

    /// Accepts waiting clients.
    pub fn accept(&mut self, reactor: &Reactor, now: Duration) {
        if self.paused_until.is_some() {
            return;
        }
        // Bounded, so that a flood of connections cannot occupy the loop.
        for _ in 0..CLIENTS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.admit(stream, reactor, now);
                    if self.accepts.take(1, now) == 0 {
                        return self.pause(reactor, now);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    debug!("accept failed for a client: {error}");
                    self.turn_away();
                }
            }
        }
    }

    /// Accepts nothing for a moment. Waiting clients keep their order, so others are only delayed.
    fn pause(&mut self, reactor: &Reactor, now: Duration) {
        match reactor.modify(&self.listener, Token::Listener, EventFlags::empty()) {
            Ok(()) => self.paused_until = Some(now + ACCEPT_PAUSE),
            Err(error) => warn!("epoll_ctl failed for the control socket: {error}"),
        }
    }

    /// Ends a pause that is over.
    fn resume(&mut self, reactor: &Reactor, now: Duration) {
        if self.paused_until.is_none_or(|until| until > now) {
            return;
        }
        self.paused_until = Some(now + ACCEPT_PAUSE);
        match reactor.modify(&self.listener, Token::Listener, EventFlags::IN) {
            Ok(()) => self.paused_until = None,
            Err(error) => warn!("epoll_ctl failed for the control socket: {error}"),
        }
    }

    /// Accepts a client although no descriptor is left, and sends it an error. If the connection
    /// stayed pending, it would wake the loop again and again.
    fn turn_away(&mut self) {
        self.spare = None;
        if let Ok((mut stream, _)) = self.listener.accept() {
            let answer = encode(&Response::Error {
                code: ErrorCode::Busy,
                message: "limelightd has no file descriptor left".to_owned(),
                cure: "try again later; if this persists, raise LimitNOFILE= of limelightd"
                    .to_owned(),
                retry_ms: None,
            });
            // Best effort.
            let _ = stream.write(&answer);
        }
        self.spare = self.listener.try_clone().ok();
    }

    fn admit(&mut self, mut stream: UnixStream, reactor: &Reactor, now: Duration) {
        let peer = match stream.set_nonblocking(true).map(|()| peer(&stream)) {
            Ok(Ok(peer)) => peer,
            Ok(Err(error)) => return debug!("rejected a client: {error}"),
            Err(error) => return debug!("rejected a client: {error}"),
        };
        let of_user = self.connections_of(peer.uid);
        let crowded = peer.uid != 0 && of_user >= CLIENTS_PER_USER;
        if crowded || !self.make_room(reactor) {
            let answer = encode(&Response::Error {
                code: ErrorCode::Busy,
                message: format!(
                    "limelightd serves {} clients, {of_user} of them of uid {}",
                    self.clients.len(),
                    peer.uid
                ),
                cure: "close other connections, or try again later".to_owned(),
                retry_ms: None,
            });
            // Best effort.
            let _ = stream.write(&answer);
            return;
        }
        let id = self.next;
        self.next += 1;
        if let Err(error) = reactor.add(&stream, Token::Client(id), EventFlags::IN) {
            return warn!("epoll_ctl failed for a new client, which is disconnected: {error}");
        }
        let mut groups = peer_groups(&stream).unwrap_or_else(|error| {
            debug!("cannot read the groups of pid {}: {error}", peer.pid);
            Vec::new()
        });
        groups.push(peer.gid);
        let client = Client {
            stream,
            peer,
            groups,
            unread: Vec::new(),
            line_end: None,
            unsent: Vec::new(),
            last_line: now,
            holds_claim: false,
            announces: false,
            permitted: false,
            listens: false,
            hears_foreground: false,
            closing: false,
            armed: Some(EventFlags::IN),
        };
        self.clients.insert(id, client);
    }

    /// Makes a slot for another client; `false` if none can be freed. If necessary it disconnects a
    /// client. A limit per user is not enough, because one person may have thousands of uids
    /// (`/etc/subuid`). Root's clients stay. Clients that hold something stay too, if their user had
    /// permission to report the foreground app.
    fn make_room(&mut self, reactor: &Reactor) -> bool {
        if self.clients.len() < CLIENTS_MAX {
            return true;
        }
        let mut of_user: BTreeMap<u32, usize> = BTreeMap::new();
        for client in self.clients.values() {
            *of_user.entry(client.peer.uid).or_default() += 1;
        }
        let displaceable = self
            .clients
            .iter()
            .filter(|(_, client)| client.peer.uid != 0 && !(client.holds() && client.permitted));
        // Among one user's clients, the oldest one that holds nothing is chosen.
        let chosen = displaceable
            .max_by_key(|(&id, client)| {
                let most = of_user.get(&client.peer.uid);
                (most, !client.holds(), std::cmp::Reverse(id))
            })
            .map(|(&id, _)| id);
        let Some((id, client)) = chosen.and_then(|id| self.clients.remove_entry(&id)) else {
            return false;
        };
        reactor.remove(&client.stream);
        debug!(
            "disconnected a client of uid {} to make room for another client",
            client.peer.uid
        );
        self.displaced.push(id);
        true
    }

    /// Transfers bytes between a client and its buffers.
    pub fn transfer(&mut self, id: u64, ready: Ready, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if ready
            .flags
            .intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
        {
            let part = client.receive(now);
            if part {
                self.limiter.was_work(client.peer.uid, 1, now);
            }
        }
        client.send(now);
    }

    /// The rate limits of all users.
    pub fn limiter(&mut self) -> &mut Limiter {
        &mut self.limiter
    }

    /// Takes the next request of each client. Further requests wait for the next turn, or until the
    /// user has tokens again.
    pub fn take_lines(&mut self, now: Duration) -> Vec<RequestLine> {
        let mut lines = Vec::new();
        for (&id, client) in &mut self.clients {
            let uid = client.peer.uid;
            if client.unsent.len() >= WAITING_MAX || self.limiter.may_read(uid, now).is_err() {
                continue;
            }
            if let Some(line) = client.take_line() {
                self.limiter.was_read(uid, line.len(), now);
                lines.push(RequestLine {
                    client: id,
                    peer: client.peer,
                    text: line,
                });
            }
        }
        lines
    }

    /// When the next buffered request may be handled; `None`: none is buffered. No descriptor
    /// signals such a request. A time of `now` or earlier means at once.
    pub fn next_line(&self, now: Duration) -> Option<Duration> {
        let waiting = self
            .clients
            .values()
            .filter(|client| client.unsent.len() < WAITING_MAX && client.line_end.is_some());
        let due = waiting.map(|client| self.limiter.may_read(client.peer.uid, now));
        due.map(|due| due.err().unwrap_or(now)).min()
    }

    /// Sends an answer to a client.
    pub fn answer(&mut self, id: u64, response: &Response, now: Duration) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.unsent.extend_from_slice(&encode(response));
            client.send(now);
        }
    }

    /// Groups of the process that connected.
    pub fn groups_of(&self, id: u64) -> impl Iterator<Item = u32> + '_ {
        let client = self.clients.get(&id).into_iter();
        client.flat_map(|client| client.groups.iter().copied())
    }

    /// The user of a connection, and whether the user is in the group of `[access]`.
    pub fn speaker(&self, access: &Access, id: u64, peer: PeerCred) -> Speaker {
        Speaker {
            uid: peer.uid,
            member: access.includes(self.groups_of(id)),
        }
    }

    /// Records that this client holds a claim or is an agent, so that it may stay idle.
    pub fn set_holding(&mut self, id: u64) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.holds_claim = true;
        }
    }

    /// Whether this client holds something, and its user is not known to have permission.
    pub fn needs_permission(&self, id: u64) -> bool {
        let client = self.clients.get(&id);
        client.is_some_and(|client| client.holds() && !client.permitted)
    }

    /// Records that this client's user may report the foreground app.
    pub fn set_permitted(&mut self, id: u64) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.permitted = true;
        }
    }

    /// Records whether this client's connection carries announcements.
    pub fn set_announcing(&mut self, id: u64, announces: bool) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.announces = announces;
        }
    }

    /// Records that this client wants notices; `foreground`: also when the foreground app changes.
    pub fn set_listening(&mut self, id: u64, foreground: bool) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.listens = true;
            client.hears_foreground = foreground;
        }
    }

    /// Turns a connection of root into a user's. Its limits are the user's, too.
    ///
    /// # Errors
    ///
    /// The connection holds something for root, or the user has too many connections.
    pub fn set_user(&mut self, id: u64, uid: u32, groups: Vec<u32>) -> Result<(), Refusal> {
        let connections = self.connections_of(uid);
        if uid != 0 && connections >= CLIENTS_PER_USER {
            return Err(Refusal::new(
                ErrorCode::Busy,
                format!("uid {uid} has {connections} connections"),
                "close other connections, or try again later",
            ));
        }
        if let Some(client) = self.clients.get_mut(&id) {
            if client.stays() {
                return Err(Refusal::new(
                    ErrorCode::BadRequest,
                    "this connection holds a claim or a report, or listens",
                    "send become first",
                ));
            }
            let gid = groups.first().copied().unwrap_or(u32::MAX);
            client.peer = PeerCred {
                uid,
                gid,
                ..client.peer
            };
            client.groups = groups;
        }
        Ok(())
    }

    fn connections_of(&self, uid: u32) -> usize {
        let clients = self.clients.values();
        clients.filter(|client| client.peer.uid == uid).count()
    }

    /// Sends a message to listening clients. Root, the group and the app's owner receive `notice`;
    /// all other users receive `others`, if there is one. Without an owner, all users receive
    /// `notice`. A client with too many pending answers misses the message.
    pub fn tell(&mut self, message: &Message, now: Duration) {
        let foreground = matches!(message.notice, Notice::Foreground { .. });
        let listeners = self.clients.values_mut();
        let listeners = listeners.filter(|client| match foreground {
            true => client.hears_foreground,
            false => client.listens,
        });
        for client in listeners.filter(|client| client.unsent.len() < WAITING_MAX) {
            let uid = client.peer.uid;
            let member = self
                .group
                .is_some_and(|group| client.groups.contains(&group));
            let own = uid == 0 || member || message.owner.is_none_or(|owner| owner == uid);
            let told = if own {
                Some(&message.notice)
            } else {
                message.others.as_ref()
            };
            let Some(told) = told else {
                continue;
            };
            client
                .unsent
                .extend_from_slice(&encode(&Response::Notice(told.clone())));
            client.last_line = now;
            client.send(now);
        }
    }

    /// Disconnects clients that have closed, are idle or do not read their answers, and updates the
    /// epoll events of the remaining clients. Returns the ids of the disconnected clients.
    pub fn tidy(&mut self, reactor: &Reactor, now: Duration) -> Vec<u64> {
        self.resume(reactor, now);
        let mut gone = std::mem::take(&mut self.displaced);
        for (&id, client) in &mut self.clients {
            let silent = now.saturating_sub(client.last_line);
            let over = client.closing && client.unsent.is_empty() && client.line_end.is_none();
            let idle = !client.stays() && client.unsent.is_empty() && silent >= IDLE;
            let stuck = !client.unsent.is_empty() && silent >= STUCK;
            if over || idle || stuck {
                reactor.remove(&client.stream);
                gone.push(id);
                continue;
            }
            let mut wanted = EventFlags::empty();
            // Input is not read while `LINE_MAX` bytes of the client's requests are buffered, or the
            // user has no tokens.
            let may_read = || self.limiter.may_read(client.peer.uid, now).is_ok();
            if client.has_room() && may_read() {
                wanted |= EventFlags::IN;
            }
            if !client.unsent.is_empty() {
                wanted |= EventFlags::OUT;
            }
            if let Err(error) = client.arm(reactor, id, wanted) {
                warn!("epoll_ctl failed for a client, which is disconnected: {error}");
                gone.push(id);
            }
        }
        for id in &gone {
            self.clients.remove(id);
        }
        gone
    }

    /// When the next client may time out or be read from again.
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let ends = self.clients.values().filter_map(|client| {
            match (client.unsent.is_empty(), client.stays()) {
                (false, _) => Some(client.last_line + STUCK),
                (true, false) => Some(client.last_line + IDLE),
                (true, true) => None,
            }
        });
        let unarmed = self
            .clients
            .values()
            .filter(|client| client.has_room() && !client.hears(EventFlags::IN));
        let reads = unarmed.map(|client| {
            let may_read = self.limiter.may_read(client.peer.uid, now);
            may_read.err().unwrap_or(now)
        });
        ends.chain(reads).chain(self.paused_until).min()
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
