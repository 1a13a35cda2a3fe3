// SPDX-License-Identifier: GPL-2.0-or-later
//! The control socket: bytes in, lines out, and back. What a line means is decided elsewhere.
//!
//! Anybody may connect, so nothing here waits for a client: reads and writes never block, a line,
//! the answers that wait to be taken, the time without a word and the number of clients are
//! bounded, and after each request the other clients have their turn. When all places are taken, one
//! of the user who takes the most of them is given to whoever comes.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_core::control::{ErrorCode, Notice, Response, LINE_MAX, SOCKET_NAME};
use limelight_sys::peercred::{peer, peer_groups, PeerCred};
use rustix::event::epoll::EventFlags;
use tracing::{debug, warn};

use crate::exit::Failure;
use crate::limit::Limiter;
use crate::reactor::{Reactor, Ready, Token};

/// Most clients at once.
pub const CLIENTS_MAX: usize = 64;

/// Most of them for one user other than root, so that no user can shut everybody else out.
const CLIENTS_PER_USER: usize = 16;

/// A client that holds no claim, does not listen and says nothing for this long is let go.
const IDLE: Duration = Duration::from_secs(60);

/// A client that does not take its answers for this long is let go.
const STUCK: Duration = Duration::from_secs(10);

/// Answers that may wait for a client, in bytes; beyond that nothing is read from it.
const WAITING_MAX: usize = 256 * 1024;

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    peer: PeerCred,
    /// All groups of the process that connected.
    groups: Vec<u32>,
    unread: Vec<u8>,
    unsent: Vec<u8>,
    last_word: Duration,
    holds_claim: bool,
    /// It says what is in use.
    announces: bool,
    /// It is told what a shortage of memory leads to.
    listens: bool,
    /// Nothing more is read; closed when everything is sent.
    closing: bool,
    armed: EventFlags,
}

/// A line from a client.
#[derive(Debug)]
pub struct Word {
    /// The client.
    pub client: u64,
    /// Who is at the other end.
    pub peer: PeerCred,
    /// Without its newline.
    pub line: Vec<u8>,
}

/// The socket and its clients.
#[derive(Debug)]
pub struct ControlSource {
    listener: UnixListener,
    path: PathBuf,
    clients: BTreeMap<u64, Client>,
    next: u64,
    /// A descriptor to give up when there is no other one, so that who comes can be told.
    spare: Option<UnixListener>,
    /// Those whose places others were given since the last tidying.
    displaced: Vec<u64>,
    /// The group that is told everything.
    group: Option<u32>,
    limiter: Limiter,
}

impl ControlSource {
    /// Makes the socket in the runtime directory, open to everybody. The caller holds the lock, so
    /// a socket that is there already is a dead predecessor's.
    pub fn bind(runtime: &Path) -> Result<ControlSource, Failure> {
        let path = runtime.join(SOCKET_NAME);
        let failed = |error: std::io::Error| Failure::Runtime {
            path: runtime.to_owned(),
            why: format!("{SOCKET_NAME} cannot be made: {error}"),
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
        })
    }

    /// Sets the group whose members are told of all users' apps.
    pub fn set_group(&mut self, group: Option<u32>) {
        self.group = group;
    }

    /// To wait for.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Removes the socket.
    pub fn close(self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            debug!("cannot remove {}: {error}", self.path.display());
        }
    }

    /// Lets clients in.
    pub fn accept(&mut self, reactor: &Reactor, now: Duration) {
        // Bounded, so that a flood of connections does not keep the loop here.
        for _ in 0..CLIENTS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(stream, reactor, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    debug!("a client cannot connect: {error}");
                    self.turn_away();
                }
            }
        }
    }

    /// Takes who comes although there is no descriptor left, and tells him so: left waiting, he would
    /// wake the loop again and again.
    fn turn_away(&mut self) {
        self.spare = None;
        if let Ok((mut stream, _)) = self.listener.accept() {
            let answer = encode(&Response::Error {
                code: ErrorCode::Busy,
                message: "limelightd has no descriptor left".to_owned(),
                cure: "try again later; if it lasts, raise LimitNOFILE= of limelightd".to_owned(),
                retry_ms: None,
            });
            // Whether the client takes it is the client's affair.
            let _ = stream.write(&answer);
        }
        self.spare = self.listener.try_clone().ok();
    }

    fn admit(&mut self, mut stream: UnixStream, reactor: &Reactor, now: Duration) {
        let peer = match stream.set_nonblocking(true).map(|()| peer(&stream)) {
            Ok(Ok(peer)) => peer,
            Ok(Err(error)) => return debug!("a client is turned away: {error}"),
            Err(error) => return debug!("a client is turned away: {error}"),
        };
        let of_user = self
            .clients
            .values()
            .filter(|client| client.peer.uid == peer.uid)
            .count();
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
            // Whether the client takes it is the client's affair.
            let _ = stream.write(&answer);
            return;
        }
        let id = self.next;
        self.next += 1;
        if let Err(error) = reactor.add(&stream, Token::Client(id), EventFlags::IN) {
            return warn!("a client cannot be served: {error}");
        }
        let mut groups = peer_groups(&stream).unwrap_or_else(|error| {
            debug!("the groups of pid {} are not known: {error}", peer.pid);
            Vec::new()
        });
        groups.push(peer.gid);
        let client = Client {
            stream,
            peer,
            groups,
            unread: Vec::new(),
            unsent: Vec::new(),
            last_word: now,
            holds_claim: false,
            announces: false,
            listens: false,
            closing: false,
            armed: EventFlags::IN,
        };
        self.clients.insert(id, client);
    }

    /// Whether there is a place for one more, if need be that of a client who has nothing at stake:
    /// one user may come under thousands of numbers (`/etc/subuid`). Who holds a claim or announces
    /// something was allowed to, and stays.
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
            .filter(|(_, client)| client.peer.uid != 0 && !client.holds_claim && !client.announces);
        // Of those of one user the one that came first.
        let chosen = displaceable
            .max_by_key(|(&id, client)| (of_user.get(&client.peer.uid), std::cmp::Reverse(id)))
            .map(|(&id, _)| id);
        let Some((id, client)) = chosen.and_then(|id| self.clients.remove_entry(&id)) else {
            return false;
        };
        reactor.remove(&client.stream);
        debug!(
            "a client of uid {} gives way to another user",
            client.peer.uid
        );
        self.displaced.push(id);
        true
    }

    /// Moves bytes between a client and its buffers.
    pub fn transfer(&mut self, id: u64, ready: Ready, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if ready
            .flags
            .intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
        {
            client.receive(now);
        }
        client.send(now);
    }

    /// What users have asked for lately.
    pub fn limiter(&mut self) -> &mut Limiter {
        &mut self.limiter
    }

    /// The next request of each client; the rest waits for the next turn, or until its user may send
    /// more.
    pub fn take_words(&mut self, now: Duration) -> Vec<Word> {
        let mut words = Vec::new();
        for (&id, client) in &mut self.clients {
            let uid = client.peer.uid;
            if client.unsent.len() >= WAITING_MAX || self.limiter.may_read(uid, now).is_err() {
                continue;
            }
            if let Some(line) = client.take_line() {
                self.limiter.was_read(uid, line.len(), now);
                words.push(Word {
                    client: id,
                    peer: client.peer,
                    line,
                });
            }
        }
        words
    }

    /// Until when a request waits although no descriptor will say so; `now` or earlier: it does not.
    pub fn next_word(&self, now: Duration) -> Option<Duration> {
        let waiting = self
            .clients
            .values()
            .filter(|client| client.unsent.len() < WAITING_MAX && client.unread.contains(&b'\n'));
        let due = waiting.map(|client| self.limiter.may_read(client.peer.uid, now));
        due.map(|due| due.err().unwrap_or(now)).min()
    }

    /// Answers a client.
    pub fn answer(&mut self, id: u64, response: &Response, now: Duration) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.unsent.extend_from_slice(&encode(response));
            client.send(now);
        }
    }

    /// Groups of the process that connected.
    pub fn groups_of(&self, id: u64) -> impl Iterator<Item = u32> + '_ {
        let client = self.clients.get(&id);
        client
            .into_iter()
            .flat_map(|client| client.groups.iter().copied())
    }

    /// Notes that this client's connection carries a claim.
    pub fn set_holding(&mut self, id: u64) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.holds_claim = true;
        }
    }

    /// Notes whether this client's connection carries announcements.
    pub fn set_announcing(&mut self, id: u64, announces: bool) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.announces = announces;
        }
    }

    /// Notes that this client wants to be told.
    pub fn set_listening(&mut self, id: u64) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.listens = true;
        }
    }

    /// Tells those who listen: `notice` to root, the group and the `owner` of the app that it names, or to
    /// everybody where that is `None`, and `others` to the rest. Whoever does not take what it was
    /// told misses what comes next.
    pub fn tell(
        &mut self,
        owner: Option<u32>,
        notice: &Notice,
        others: Option<&Notice>,
        now: Duration,
    ) {
        let listeners = self.clients.values_mut().filter(|client| client.listens);
        for client in listeners.filter(|client| client.unsent.len() < WAITING_MAX) {
            let uid = client.peer.uid;
            let member = self
                .group
                .is_some_and(|group| client.groups.contains(&group));
            let own = uid == 0 || member || owner.is_none_or(|owner| owner == uid);
            let told = if own { Some(notice) } else { others };
            let Some(told) = told else {
                continue;
            };
            client
                .unsent
                .extend_from_slice(&encode(&Response::Notice(told.clone())));
            client.last_word = now;
            client.send(now);
        }
    }

    /// Lets go of clients that ended, are idle, or do not listen, and waits for the right things
    /// from the others. Returns the ids of those that are gone.
    pub fn tidy(&mut self, reactor: &Reactor, now: Duration) -> Vec<u64> {
        let mut gone = std::mem::take(&mut self.displaced);
        for (&id, client) in &mut self.clients {
            let silent = now.saturating_sub(client.last_word);
            let over =
                client.closing && client.unsent.is_empty() && !client.unread.contains(&b'\n');
            let idle = !client.stays() && client.unsent.is_empty() && silent >= IDLE;
            let stuck = !client.unsent.is_empty() && silent >= STUCK;
            if over || idle || stuck {
                reactor.remove(&client.stream);
                gone.push(id);
                continue;
            }
            let mut wanted = EventFlags::empty();
            // A client with requests in store is not asked for more.
            if !client.closing && client.unread.len() < LINE_MAX {
                wanted |= EventFlags::IN;
            }
            if !client.unsent.is_empty() {
                wanted |= EventFlags::OUT;
            }
            if wanted != client.armed {
                match reactor.modify(&client.stream, Token::Client(id), wanted) {
                    Ok(()) => client.armed = wanted,
                    Err(error) => {
                        warn!("a client is let go: {error}");
                        gone.push(id);
                    }
                }
            }
        }
        for id in &gone {
            self.clients.remove(id);
        }
        gone
    }

    /// When a client may have to be let go.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.clients
            .values()
            .filter_map(|client| match (client.unsent.is_empty(), client.stays()) {
                (false, _) => Some(client.last_word + STUCK),
                (true, false) => Some(client.last_word + IDLE),
                (true, true) => None,
            })
            .min()
    }
}

impl Client {
    /// Whether its connection means something although nothing is said.
    fn stays(&self) -> bool {
        self.holds_claim || self.announces || self.listens
    }

    fn receive(&mut self, now: Duration) {
        if self.closing {
            return;
        }
        let mut buffer = [0u8; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.closing = true,
            Ok(count) => {
                self.unread
                    .extend_from_slice(buffer.get(..count).unwrap_or_default());
                self.last_word = now;
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.hang_up(),
        }
    }

    fn send(&mut self, now: Duration) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return self.hang_up(),
                Ok(count) => {
                    self.unsent.drain(..count);
                    self.last_word = now;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.hang_up(),
            }
        }
    }

    /// The next line without its newline; a line that is too long ends the connection.
    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.unread.iter().position(|&byte| byte == b'\n');
        if end.unwrap_or(self.unread.len()) >= LINE_MAX {
            self.refuse_long_line();
            return None;
        }
        let mut line: Vec<u8> = self.unread.drain(..=end?).collect();
        line.pop();
        Some(line)
    }

    fn refuse_long_line(&mut self) {
        self.unread.clear();
        self.closing = true;
        self.unsent.extend_from_slice(&encode(&Response::Error {
            code: ErrorCode::BadRequest,
            message: format!("a request line is longer than {LINE_MAX} bytes"),
            cure: "send one JSON object a line".to_owned(),
            retry_ms: None,
        }));
    }

    fn hang_up(&mut self) {
        self.closing = true;
        self.unread.clear();
        self.unsent.clear();
    }
}

/// One line of the protocol.
fn encode(response: &Response) -> Vec<u8> {
    let mut line = serde_json::to_vec(response).unwrap_or_else(|error| {
        // Only a value that JSON cannot carry could do this, and the protocol has none.
        format!("{{\"result\":\"error\",\"code\":\"internal\",\"message\":{:?},\"cure\":\"report this\"}}", error.to_string()).into_bytes()
    });
    line.push(b'\n');
    line
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
