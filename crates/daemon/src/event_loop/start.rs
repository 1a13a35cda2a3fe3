// SPDX-License-Identifier: GPL-2.0-or-later
//! Starts the daemon.

use limelight_sys::controllers::Lack;
use limelight_sys::heap;
use limelight_sys::memory_lock::lock_memory;
use limelight_sys::signal::Signals;
use rustix::event::epoll::EventFlags;
use rustix::process::Signal;
use tracing::warn;

use crate::config;
use crate::control::agents::Agents;
use crate::control::socket::ControlSource;
use crate::event_loop::reactor::{Reactor, Token};
use crate::event_loop::service_manager::Service;
use crate::event_loop::{Daemon, Options};
use crate::exit::Failure;
use crate::log;
use crate::mechanisms::device::DeviceDoor;
use crate::mechanisms::{Shared, Writer};
use crate::reconcile::Reconciler;
use crate::restore::undo::undo_all;
use crate::restore::watcher::Watcher;
use crate::restore::Ledger;
use crate::sources::evdev::Evdev;
use crate::sources::oom_score_adj::OomScoreAdj;
use crate::sources::pressure::PressureSource;
use crate::sources::sessions::Sessions;
use crate::sources::top_app::TopApp;
use crate::sources::wake_graph::WakeGraphSource;
use crate::sources::Sources;
use crate::system::{lock, now, self_tuning, System};

/// Reads the configuration, takes the lock, opens the system interfaces, and restores what a dead
/// daemon left changed. Nothing is changed for any app yet.
pub(super) fn open(options: Options) -> Result<Daemon, Failure> {
    let (config, warnings) = config::load_with_warnings(&options.config)?;
    log::warn_all(&warnings);
    let lock = lock::take(&options.roots.runtime)?;
    // Signals are blocked before any change, so that a signal that arrives while the daemon starts
    // is handled once it runs.
    let signals = Signals::block(&[Signal::TERM, Signal::INT, Signal::HUP])
        .map_err(|error| Failure::Broken(error.to_string()))?;
    self_tuning::raise_descriptor_limit();
    let mut system = System::open(options.roots.clone())?;
    let now = now();
    let program = options.watcher.clone().filter(|_| !options.dry_run);
    let watcher = Watcher::start(program, options.roots.runtime.clone(), now);
    system.watcher = watcher.pid();
    let mut ledger = Ledger::open(&options.roots.runtime, system.boot_id());
    let left = ledger.entries().len();
    if options.dry_run && left > 0 {
        warn!(
            "{left} changes of a dead limelightd are in force; a dry run keeps them; limelightd \
             --restore undoes them"
        );
    } else {
        undo_all(&mut ledger, &system);
    }

    let device = if options.dry_run {
        DeviceDoor::Unused("a dry run does not open it".to_owned())
    } else {
        DeviceDoor::open(&system.roots.device, config.device)?
    };
    check_power(&system, &device, options.dry_run)?;

    let io =
        |error: std::io::Error| Failure::Broken(format!("cannot create the event loop: {error}"));
    let reactor = Reactor::new().map_err(io)?;
    let mut control = ControlSource::bind(&options.roots.runtime)?;
    let sources = Sources {
        pressure: PressureSource::new(&system),
        oom_score_adj: OomScoreAdj::start(
            &system,
            &mut ledger,
            config.oom_score_adj,
            config.scan_interval,
            now,
        ),
        top_app: TopApp::start(&system, config.top_app),
        wake_graph: WakeGraphSource::default(),
        evdev: Evdev::default(),
        sessions: Sessions::watch(&system),
        topmost_exit: None,
    };
    reactor
        .add(&signals, Token::Signal, EventFlags::IN)
        .map_err(io)?;
    reactor
        .add(control.listener(), Token::Listener, EventFlags::IN)
        .map_err(io)?;
    let writer = match options.dry_run {
        true => Writer::DryRun,
        false => Writer::Live,
    };
    let shared = Shared::new(ledger, device, writer);
    let mut reconciler = Reconciler::new(config, options.dry_run, system, shared, now);
    control.set_group(reconciler.access.gid());
    reconciler.start_swap();
    Ok(Daemon {
        options,
        reactor,
        signals,
        control,
        agents: Agents::default(),
        sources,
        reconciler,
        started: now,
        service: Service::new(now),
        stopping: false,
        watcher,
        trimmed: now,
        _lock: lock,
    })
}

/// Keeps the daemon's memory in RAM. The daemon is needed most when memory is shortest, and must
/// not wait for the disk then.
pub(super) fn stay_in_memory() {
    heap::trim();
    if let Err(error) = lock_memory() {
        warn!("{error}: under pressure the daemon itself may be swapped out");
    }
}

/// Fails if no change would be permitted, and warns about mechanisms that cannot work.
fn check_power(system: &System, device: &DeviceDoor, dry_run: bool) -> Result<(), Failure> {
    if dry_run || device.device().is_some() {
        return Ok(());
    }
    let why = match device {
        DeviceDoor::Open(_) => return Ok(()),
        DeviceDoor::Unused(why) => why,
    };
    if !system.has_memory_controller() {
        let lack = system.proc.lack_of("memory").unwrap_or(Lack::Hidden);
        warn!(
            "{} has no memory controller ({lack}), and the device is not used ({why}): no memory \
             is reserved for the foreground app, and no other app is squeezed; {}",
            system.cgroups.mount_point().display(),
            lack.cure()
        );
    }
    let root = system.cgroup_file("/", "cgroup.subtree_control");
    let writable = rustix::fs::access(root.as_str(), rustix::fs::Access::WRITE_OK);
    if let Err(errno) = writable {
        return Err(Failure::Permission {
            what: format!("{root} is not writable: {errno}"),
            cure: "run limelightd as root (systemctl start limelightd), or try --dry-run",
        });
    }
    Ok(())
}
