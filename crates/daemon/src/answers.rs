// SPDX-License-Identifier: GPL-2.0-or-later
//! How threads that wait for something slow answer the loop.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::Arc;

use rustix::event::{eventfd, EventfdFlags};

/// Where answers arrive. Readable (`EPOLLIN`) when there are some.
#[derive(Debug)]
pub struct Answers<T> {
    answers: Receiver<T>,
    wake: Arc<OwnedFd>,
}

/// What a thread answers through.
#[derive(Debug)]
pub struct Reply<T> {
    answers: Sender<T>,
    wake: Arc<OwnedFd>,
}

// Derived, it would want T to be Clone.
impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        Reply {
            answers: self.answers.clone(),
            wake: Arc::clone(&self.wake),
        }
    }
}

/// A way for threads to answer.
pub fn answers<T>() -> std::io::Result<(Reply<T>, Answers<T>)> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let wake = Arc::new(wake);
    let (send, receive) = std::sync::mpsc::channel();
    let reply = Reply {
        answers: send,
        wake: Arc::clone(&wake),
    };
    let answers = Answers {
        answers: receive,
        wake,
    };
    Ok((reply, answers))
}

impl<T> Answers<T> {
    /// Takes all answers that wait.
    pub fn take(&self) -> Vec<T> {
        // Emptied first: an answer that comes meanwhile wakes once more.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        self.answers.try_iter().collect()
    }
}

impl<T> AsFd for Answers<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl<T> Reply<T> {
    /// Answers.
    pub fn send(&self, answer: T) {
        // Nobody listens any more: the daemon stops.
        if self.answers.send(answer).is_ok() {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}
