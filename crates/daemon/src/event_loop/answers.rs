// SPDX-License-Identifier: GPL-2.0-or-later
//! Channel that carries answers to the loop from threads that wait for slow operations.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::Arc;

use rustix::event::{eventfd, EventfdFlags};

/// Receiving end of the channel. Readable (`EPOLLIN`) when answers are waiting.
#[derive(Debug)]
pub struct Answers<T> {
    answers: Receiver<T>,
    wake: Arc<OwnedFd>,
}

/// Sending end of the channel, for a thread.
#[derive(Debug)]
pub struct Reply<T> {
    answers: Sender<T>,
    wake: Arc<OwnedFd>,
}

// A derived impl would require T: Clone.
impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        Reply {
            answers: self.answers.clone(),
            wake: Arc::clone(&self.wake),
        }
    }
}

/// Creates a channel for answers from threads.
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
    /// Takes all waiting answers.
    pub fn take(&self) -> Vec<T> {
        // The eventfd is cleared first, so that an answer that arrives meanwhile wakes the loop
        // again.
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
    /// Sends an answer and wakes the loop.
    pub fn send(&self, answer: T) {
        // An error means that the receiver is gone: the daemon is stopping.
        if self.answers.send(answer).is_ok() {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}
