// SPDX-License-Identifier: GPL-2.0-or-later
//! The loop: waits for the display and for the daemon, and passes on what the one says to the other.
//! Input and frames go first: what is told of the focus may take a question or two to the server.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use limelight_core::control::FocusTarget;
use limelight_sys::clock;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::link::Link;
use crate::notify::Notifier;
use crate::sources::{DisplayGone, Seen, Source};
use crate::uses::Uses;

/// How long a display that went away may take to come back.
const DISPLAY_PATIENCE: Duration = Duration::from_secs(10);
const DISPLAY_RETRY: Duration = Duration::from_millis(500);

/// Why the loop ended.
#[derive(Debug)]
pub enum End {
    /// The display went away and did not come back in time.
    DisplayGone(DisplayGone),
    /// The kernel would not let us wait.
    Failed(Errno),
}

/// Runs until the display is gone.
pub fn run<S: Source>(
    mut source: S,
    mut reconnect: impl FnMut() -> Result<S, DisplayGone>,
    mut uses: Uses,
    mut notifier: Option<Notifier>,
    mut link: Link,
) -> End {
    let mut last = None;
    if notifier.is_some() {
        link.listen();
    }
    loop {
        let seen = source.responses().and_then(|news| {
            for (pid, news) in news {
                link.tell(source.name(), pid, news);
            }
            source.observe()
        });
        match seen {
            Ok(seen) => claim(&mut link, source.name(), seen, &mut last),
            Err(gone) => {
                tracing::warn!("{gone}; waiting for it to come back");
                link.claim(source.name(), FocusTarget::None);
                last = None;
                source = match wait_for_display(&mut reconnect, &mut link) {
                    Ok(source) => source,
                    Err(end) => return end,
                };
                tracing::info!("the display is back");
                uses.reconnect();
                continue;
            }
        }
        link.turn(Instant::now());
        uses.turn(clock::monotonic());
        link.in_use(uses.processes());
        link.turn(Instant::now());
        for notice in link.take_heard() {
            if let Some(notifier) = &mut notifier {
                notifier.tell(&notice, Instant::now());
            }
        }
        let due = [source.responses_deadline(), uses.deadline()];
        let due = due.into_iter().flatten().map(|due| {
            let left = due.saturating_sub(clock::monotonic());
            Instant::now() + left
        });
        let deadline = link.deadline().into_iter().chain(due).min();
        let mut fds = uses.fds();
        fds.push(source.fd());
        fds.extend(source.responses_fd());
        if let Err(errno) = wait(&fds, &link, deadline) {
            return End::Failed(errno);
        }
    }
}

fn claim(link: &mut Link, source: &'static str, seen: Seen, last: &mut Option<Seen>) {
    if last.as_ref() == Some(&seen) {
        return;
    }
    tracing::debug!(?seen, "focus");
    link.claim(source, seen.pid.map_or(FocusTarget::None, FocusTarget::Pid));
    *last = Some(seen);
}

fn wait_for_display<S>(
    reconnect: &mut impl FnMut() -> Result<S, DisplayGone>,
    link: &mut Link,
) -> Result<S, End> {
    let give_up = Instant::now() + DISPLAY_PATIENCE;
    loop {
        let gone = match reconnect() {
            Ok(source) => return Ok(source),
            Err(gone) => gone,
        };
        let retry = Instant::now() + DISPLAY_RETRY;
        if retry > give_up {
            return Err(End::DisplayGone(gone));
        }
        while Instant::now() < retry {
            link.turn(Instant::now());
            let deadline = link
                .deadline()
                .map_or(retry, |deadline| deadline.min(retry));
            wait(&[], link, Some(deadline)).map_err(End::Failed)?;
        }
    }
}

/// Waits for the display and whatever else is watched, the daemon, or the deadline.
fn wait(sources: &[BorrowedFd<'_>], link: &Link, deadline: Option<Instant>) -> Result<(), Errno> {
    let sources = sources.iter();
    let mut fds: Vec<PollFd<'_>> = sources.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let daemon = link.interest();
    fds.extend(daemon.as_ref().map(|(fd, events)| PollFd::new(fd, *events)));
    let timeout = deadline.map(|deadline| {
        // Rounded up, so that the deadline has really passed afterwards.
        let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
