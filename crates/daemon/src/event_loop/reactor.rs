// SPDX-License-Identifier: GPL-2.0-or-later
//! The epoll set of the event loop.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::Timespec;
use rustix::io::Errno;

/// Identifies an event source of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// A signal.
    Signal,
    /// A new connection to the control socket.
    Listener,
    /// Memory pressure.
    Pressure,
    /// The `oom_score_adj` tracepoint.
    Trace,
    /// A process was moved into Android's cpuset of the foreground app.
    TopApp,
    /// The topmost app's process ended, or its cgroup changed: the app may have ended.
    Front,
    /// Files were executed, or a stream that stood still was read again.
    Execs,
    /// Files were opened.
    Opens,
    /// Input on an input device.
    Input,
    /// Input devices were plugged in.
    Plugged,
    /// The display showed a frame.
    Frames,
    /// An answer of a thread that reads ahead.
    Readers,
    /// The topmost app waits for a file.
    Waits,
    /// The guard reports a new shortage level, a kill or a refusal, or needs another alarm.
    Guard,
    /// An app was squeezed, its memory was read back, or its working set was measured.
    Swapper,
    /// A unit for a new app was created.
    Units,
    /// logind's sessions changed.
    Sessions,
    /// The watcher process ended.
    Watcher,
    /// Something was mounted or unmounted.
    Mounts,
    /// A client sent a request, or its socket has room for more answers.
    Client(u64),
}

/// Number of the first client's token.
const CLIENTS: u64 = 32;

impl Token {
    fn number(self) -> u64 {
        match self {
            Token::Signal => 0,
            Token::Listener => 1,
            Token::Pressure => 2,
            Token::Trace => 3,
            Token::Front => 4,
            Token::Opens => 5,
            Token::Readers => 6,
            Token::Execs => 7,
            Token::Waits => 8,
            Token::Input => 9,
            Token::Plugged => 10,
            Token::Frames => 11,
            Token::Guard => 12,
            Token::Swapper => 13,
            Token::Units => 14,
            Token::Sessions => 15,
            Token::TopApp => 16,
            Token::Mounts => 17,
            Token::Watcher => 18,
            Token::Client(id) => CLIENTS + id,
        }
    }

    fn from_number(number: u64) -> Option<Token> {
        Some(match number {
            0 => Token::Signal,
            1 => Token::Listener,
            2 => Token::Pressure,
            3 => Token::Trace,
            4 => Token::Front,
            5 => Token::Opens,
            6 => Token::Readers,
            7 => Token::Execs,
            8 => Token::Waits,
            9 => Token::Input,
            10 => Token::Plugged,
            11 => Token::Frames,
            12 => Token::Guard,
            13 => Token::Swapper,
            14 => Token::Units,
            15 => Token::Sessions,
            16 => Token::TopApp,
            17 => Token::Mounts,
            18 => Token::Watcher,
            19..CLIENTS => return None,
            id => Token::Client(id - CLIENTS),
        })
    }
}

/// An event on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The source of the event.
    pub token: Token,
    /// The epoll flags of the event.
    pub flags: EventFlags,
}

/// The epoll set.
#[derive(Debug)]
pub struct Reactor {
    epoll: OwnedFd,
}

impl Reactor {
    /// Makes an empty set.
    pub fn new() -> std::io::Result<Reactor> {
        Ok(Reactor {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Adds a descriptor, level-triggered.
    pub fn add(&self, fd: impl AsFd, token: Token, flags: EventFlags) -> std::io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(token.number()),
            flags,
        )?)
    }

    /// Changes the awaited events of a descriptor.
    pub fn modify(&self, fd: impl AsFd, token: Token, flags: EventFlags) -> std::io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            fd,
            EventData::new_u64(token.number()),
            flags,
        )?)
    }

    /// Removes a descriptor.
    pub fn remove(&self, fd: impl AsFd) {
        // A descriptor that is not in the set needs no removal.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits at most this long; `None` means without limit. An interrupted wait returns no events.
    pub fn wait(&self, timeout: Option<Duration>) -> std::io::Result<Vec<Ready>> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(86_400) as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = Vec::with_capacity(64);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = events.iter().filter_map(|event| {
            let token = Token::from_number(event.data.u64())?;
            Some(Ready {
                token,
                flags: event.flags,
            })
        });
        Ok(ready.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for token in [
            Token::Signal,
            Token::Listener,
            Token::Pressure,
            Token::Trace,
            Token::Front,
            Token::Execs,
            Token::Input,
            Token::Plugged,
            Token::Frames,
            Token::Opens,
            Token::Readers,
            Token::Waits,
            Token::Guard,
            Token::Swapper,
            Token::Units,
            Token::Sessions,
            Token::TopApp,
            Token::Mounts,
            Token::Watcher,
            Token::Client(0),
            Token::Client(99),
        ] {
            assert_eq!(Token::from_number(token.number()), Some(token));
        }
    }
}
