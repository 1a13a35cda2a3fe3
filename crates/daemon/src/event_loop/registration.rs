// SPDX-License-Identifier: GPL-2.0-or-later
//! Adds the sources to the loop. A source that cannot be added is disabled or polled; the daemon
//! still runs.

use std::os::fd::AsFd;

use rustix::event::epoll::EventFlags;
use tracing::warn;

use crate::event_loop::reactor::{Reactor, Token};
use crate::mechanisms::readahead::Readahead;
use crate::mechanisms::swap::Swap;
use crate::reconcile::Reconciler;
use crate::restore::Ledger;
use crate::sources::new_units::NewUnits;
use crate::sources::oom_score_adj::OomScoreAdj;
use crate::sources::pressure::PressureSource;
use crate::sources::sessions::Sessions;
use crate::sources::top_app::TopApp;
use crate::sources::Sources;

/// Warnings when a queue cannot be added.
pub(super) const NO_OPENS: &str =
    "epoll_ctl failed for read-ahead events; starts of apps are not recorded";
pub(super) const NO_WAITS: &str =
    "epoll_ctl failed for the app's waits for pages; neighbouring pages are not read ahead";
pub(super) const NO_UNITS: &str =
    "epoll_ctl failed for new units; new apps are found only by the next scan";

/// Reports one event, and no further event until [`rearm`].
const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// Adds a source if it exists. A failure is logged with the text `lost` and does not stop the
/// daemon.
fn add(reactor: &Reactor, source: Option<impl AsFd>, token: Token, flags: EventFlags, lost: &str) {
    if let Some(Err(error)) = source.map(|source| reactor.add(source, token, flags)) {
        warn!("{lost}: {error}");
    }
}

/// Re-arms a one-shot queue.
pub(super) fn rearm(reactor: &Reactor, queue: Option<impl AsFd>, token: Token, lost: &str) {
    if let Some(Err(error)) = queue.map(|queue| reactor.modify(queue, token, ONCE)) {
        warn!("{lost}: {error}");
    }
}

/// Adds all sources that exist when the daemon starts, except the watcher.
pub(super) fn all(reactor: &Reactor, sources: &mut Sources, reconciler: &mut Reconciler) {
    let mechanisms = &mut reconciler.mechanisms;
    swap(reactor, &mechanisms.swap);
    pressure(reactor, &mut sources.pressure);
    let ledger = &mut mechanisms.shared.ledger;
    oom_score_adj(reactor, &mut sources.oom_score_adj, ledger);
    top_app(reactor, &sources.top_app);
    readahead(reactor, &mechanisms.readahead);
    units(reactor, &reconciler.scan.new_units);
    sessions(reactor, &sources.sessions);
}

fn pressure(reactor: &Reactor, source: &mut PressureSource) {
    if let Some(trigger) = source.trigger() {
        if let Err(error) = reactor.add(trigger, Token::Pressure, EventFlags::PRI) {
            warn!("epoll_ctl failed for the PSI trigger: {error}; polling instead");
            source.drop_trigger();
        }
    }
}

fn units(reactor: &Reactor, source: &NewUnits) {
    add(reactor, source.queue(), Token::Units, ONCE, NO_UNITS);
}

fn sessions(reactor: &Reactor, source: &Sessions) {
    let lost = "epoll_ctl failed for session changes; a session switch is detected only at the \
                session's next claim";
    let queue = source.queue();
    add(reactor, queue, Token::Sessions, EventFlags::IN, lost);
}

pub(super) fn watcher(reactor: &Reactor, pidfd: Option<impl AsFd>) {
    let added = pidfd.map(|pidfd| reactor.add(pidfd, Token::Watcher, EventFlags::IN));
    if let Some(Err(error)) = added {
        warn!(
            "epoll_ctl failed for the watcher process: {error}; it is not restarted when it ends"
        );
    }
}

fn swap(reactor: &Reactor, swap: &Swap) {
    const LOST: &str = "epoll_ctl failed for swap's threads; their reports are not received";
    let (guard, swapper) = (swap.guard.as_ref(), swap.swapper.as_ref());
    add(reactor, guard, Token::Guard, EventFlags::IN, LOST);
    let answers = swapper.map(|swapper| swapper.answers());
    add(reactor, answers, Token::Swapper, EventFlags::IN, LOST);
}

pub(super) fn readahead(reactor: &Reactor, readahead: &Readahead) {
    let at_once = EventFlags::IN;
    add(reactor, readahead.execs(), Token::Execs, at_once, NO_OPENS);
    add(reactor, readahead.opens(), Token::Opens, ONCE, NO_OPENS);
    let answers = readahead.answers();
    add(reactor, answers, Token::Readers, at_once, NO_OPENS);
    let lost = "epoll_ctl failed for mounts; file systems mounted later are not watched";
    let mounts = readahead.mounts();
    add(reactor, mounts, Token::Mounts, EventFlags::PRI, lost);
    add(reactor, readahead.waits(), Token::Waits, ONCE, NO_WAITS);
}

pub(super) fn oom_score_adj(reactor: &Reactor, source: &mut OomScoreAdj, ledger: &mut Ledger) {
    if let Some(instance) = source.instance() {
        if let Err(error) = reactor.add(instance, Token::Trace, EventFlags::IN) {
            warn!(
                "epoll_ctl failed for the oom_score_adj tracepoint, which is not used any more: \
                 {error}"
            );
            source.stop(ledger);
        }
    }
}

pub(super) fn top_app(reactor: &Reactor, source: &TopApp) {
    let lost = "epoll_ctl failed for the cpuset top-app; its changes are not detected";
    let group = source.group();
    add(reactor, group, Token::TopApp, EventFlags::IN, lost);
}
