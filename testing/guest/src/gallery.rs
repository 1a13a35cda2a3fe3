// SPDX-License-Identifier: GPL-2.0-or-later
//! `gallery-synthetic`: the viewer with background loads, in each arm.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::cgroup::Cgroup;
use crate::counters::{Counters, ServingCpu};
use crate::daemon::{write_config, Daemon};
use crate::dispatch::Stage;
use crate::guest_setup;
use crate::knobs;
use crate::load::{self, Counter};
use crate::memory::{now_ns, PAGE};
use crate::plan::Arm;
use crate::pool::Windows;
use crate::process::{Conversation, Process, Start};
use crate::random::seed;
use crate::record::Reporter;
use crate::response::{series, Responses};
use crate::rotation::rival;
use crate::scenario::{Family, Footprint, Gallery, Load};
use crate::store::Store;
use crate::viewer::{self, Resident, Swipe};

/// The viewer's cgroup, named as systemd names an app's.
pub const APP: &str = "app.slice/app-limelight-viewer-1.scope";

/// A running viewer, and its primer, the process that faulted in the viewer's library first.
pub struct Viewer {
    /// The viewer.
    pub talk: Conversation,
    /// The viewer's cgroup; `None` if all processes are in the root cgroup.
    pub cgroup: Option<Cgroup>,
    /// Resident pages after the last load or visit; `None` before the viewer has loaded.
    pub loaded: Option<Resident>,
    _primer: Process,
}

impl Viewer {
    /// Starts the viewer in the cgroup `app` and the primer in a background cgroup, or both in the
    /// root cgroup if `app` is `None`.
    pub fn start(
        store: &mut Store,
        name: &str,
        app: Option<&str>,
        footprint: &Footprint,
        swipe_percent: u32,
        family: Family,
        repetition: u32,
    ) -> Result<Self> {
        let spec = viewer::Spec::new(store, name, footprint, swipe_percent, family, repetition)?;
        // Creating the files has filled the page cache, which is charged to the runner's cgroup.
        guest_setup::drop_caches()?;
        let cgroup = app.map(Cgroup::create).transpose()?;
        let primer_cgroup = app
            .map(|_| Cgroup::background(&format!("{name}-primer")))
            .transpose()?;
        let mut primer =
            Start::in_cgroup(primer_cgroup.as_ref()).conversation("primer", &spec.library)?;
        primer.hear::<usize>().context("the primer failed")?;
        let talk = Start::in_cgroup(cgroup.as_ref()).conversation("viewer", &spec)?;
        let mut viewer = Viewer {
            talk,
            cgroup,
            loaded: None,
            _primer: primer.process,
        };
        if family != Family::ChildAfterFocus {
            viewer.load()?;
        }
        Ok(viewer)
    }

    /// Makes the viewer load everything.
    pub fn load(&mut self) -> Result<()> {
        self.loaded = Some(self.talk.ask("load").context("the viewer cannot load")?);
        Ok(())
    }

    /// Makes the viewer touch everything, as a user would before the loads begin. Limelight can
    /// attribute a page to an app only if the app accesses the page while it is topmost.
    pub fn visit(&mut self) -> Result<()> {
        self.loaded = Some(self.talk.ask("visit").context("the visit failed")?);
        Ok(())
    }

    /// The viewer's memory charge in bytes: its cgroup's charge or, without a cgroup, the size of
    /// its resident pages (0 before it has loaded).
    pub fn charge(&self) -> Result<u64> {
        match (&self.cgroup, &self.loaded) {
            (Some(cgroup), _) => cgroup.number("memory.current"),
            (None, Some(loaded)) => Ok(loaded.total() * PAGE as u64),
            (None, None) => Ok(0),
        }
    }

    /// The viewer's resident pages now.
    pub fn resident(&mut self) -> Result<Resident> {
        self.talk.ask("report")
    }
}

/// Prepares the arm for an app; returns the daemon if the arm has one.
pub fn prepare_arm(arm: Arm, viewer: &Viewer) -> Result<Option<Daemon>> {
    knobs::set(arm, viewer.cgroup.as_ref(), viewer.charge()?)?;
    knobs::check_damon(arm)?;
    match arm {
        Arm::LimelightOnDebian | Arm::Limelight => {
            Daemon::start_with_topmost(viewer.talk.process.pid()).map(Some)
        }
        _ => Ok(None),
    }
}

/// Loads that are not started yet. Their files and cgroups are created in advance: creating files
/// fills the page cache, and cgroups created after the daemon's start would count as left behind by
/// Limelight.
pub struct Prepared {
    loads: Vec<(load::Spec, Option<Cgroup>)>,
    nice: i32,
}

impl Prepared {
    /// Prepares background loads, each in its own cgroup or all in the root cgroup.
    pub fn new(
        loads: &[Load],
        store: &mut Store,
        own_cgroups: bool,
        nice: i32,
        repetition: u32,
    ) -> Result<Self> {
        let prepare = |(index, &load)| {
            let counter = PathBuf::from(format!("/run/load-{index}"));
            let name = load::name(&load);
            let cgroup = own_cgroups
                .then(|| Cgroup::background(&format!("{name}-{index}")))
                .transpose()?;
            let spec = load::Spec::new(load, store, counter, seed(index as u64, repetition))?;
            Ok((spec, cgroup))
        };
        let loads: Result<Vec<_>> = loads.iter().enumerate().map(prepare).collect();
        Ok(Prepared {
            loads: loads?,
            nice,
        })
    }

    /// Starts the loads.
    pub fn start(&self) -> Result<Loads> {
        let mut running = Vec::new();
        for (spec, cgroup) in &self.loads {
            let counter = Counter::create(&spec.counter)?;
            let process = Start {
                cgroup: cgroup.as_ref(),
                nice: self.nice,
                session: false,
            }
            .part("load", spec)?;
            running.push((spec.load, counter, process));
        }
        Ok(Loads { running })
    }
}

/// Background loads that run until they are dropped.
pub struct Loads {
    running: Vec<(Load, Counter, Process)>,
}

impl Loads {
    /// KiB that each load has processed so far.
    pub fn kib(&self) -> Vec<u64> {
        self.running
            .iter()
            .map(|(_, counter, _)| counter.kib())
            .collect()
    }

    /// Reports each load's throughput since `before`, and whether it is still running. Fails if a
    /// load ended for any reason but the OOM killer, because a missing load would improve the app's
    /// results.
    pub fn report(&mut self, before: &[u64], since_ns: u64, reporter: &mut Reporter) -> Result<()> {
        let seconds = (now_ns() - since_ns) as f64 / 1e9;
        for ((load, counter, process), before) in self.running.iter_mut().zip(before) {
            let name = load::name(load);
            let rate = (counter.kib() - before) as f64 / seconds;
            reporter.value(format!("load_{name}_kib_per_s"), rate);
            if let Load::Rounds { mib, rest_ms } = load {
                let round_ms = f64::from(*mib << 10) / rate * 1000.0 - f64::from(*rest_ms);
                reporter.value(format!("load_{name}_ms"), round_ms);
            }
            if let Some(status) = process.ended()? {
                if status.signal() != Some(libc::SIGKILL) {
                    bail!("the load {name} ended early with {status}: see the console");
                }
            }
            reporter.value(format!("load_{name}_alive"), process.alive());
        }
        Ok(())
    }
}

/// Swipes after each pause, and reports the viewer's responses, faults and read misses. With
/// `windows`, also reports each swipe to the daemon as a response window. Returns false if the
/// viewer has died.
pub fn swipe(
    viewer: &mut Viewer,
    gallery: &Gallery,
    windows: bool,
    reporter: &mut Reporter,
) -> Result<bool> {
    let (mut faults, mut library_faults, mut misses) = (0, 0, 0);
    let mut responses = Responses::default();
    let mut alive = true;
    'pauses: for pause in &gallery.pauses {
        for _ in 0..pause.swipes {
            sleep(Duration::from_millis(pause.ms.into()));
            // The daemon closes connections that are idle for long.
            let mut window = windows.then(Windows::connect).transpose()?;
            if let Some(window) = &mut window {
                window.open()?;
            }
            let command = format!("swipe {}", now_ns());
            let swipe: Swipe = match viewer.talk.ask(&command) {
                Ok(swipe) => swipe,
                Err(_) if !viewer.talk.process.alive() => {
                    alive = false;
                    break 'pauses;
                }
                Err(error) => return Err(error),
            };
            if let Some(window) = &mut window {
                window.close()?;
            }
            let response_us = swipe.response_ns as f64 / 1000.0;
            faults += swipe.major_faults;
            library_faults += swipe.library_major_faults;
            misses += swipe.read_miss_pages;
            responses.add(pause.ms, response_us, reporter);
            reporter.sample(series(pause.ms, "major_faults"), swipe.major_faults);
            reporter.sample(series(pause.ms, "read_miss_pages"), swipe.read_miss_pages);
        }
    }
    reporter.value("major_faults", faults);
    reporter.value("own_major_faults", faults - library_faults);
    reporter.value("read_miss_pages", misses);
    responses.report(reporter);
    reporter.value("viewer_alive", alive);
    Ok(alive)
}

/// Reports the resident pages of each kind, as `PREFIX_KIND_pages`.
pub fn report_resident(prefix: &str, resident: &Resident, reporter: &mut Reporter) {
    for (kind, pages) in [
        ("photos", resident.photos_pages),
        ("heap", resident.heap_pages),
        ("thumbnails", resident.thumbnails_pages),
        ("library", resident.library_pages),
    ] {
        reporter.value(format!("{prefix}_{kind}_pages"), pages);
    }
}

/// Prepares the loads (none in the idle arm), and starts the viewer.
pub fn set_up(stage: &Stage, gallery: &Gallery) -> Result<(Prepared, Viewer)> {
    let mut store = stage.store()?;
    let wanted = if stage.arm == Arm::Idle {
        &[]
    } else {
        gallery.loads.as_slice()
    };
    let prepared = Prepared::new(
        wanted,
        &mut store,
        gallery.app_cgroup,
        gallery.load_nice,
        stage.repetition,
    )?;
    let viewer = Viewer::start(
        &mut store,
        "viewer",
        gallery.app_cgroup.then_some(APP),
        &gallery.footprint,
        gallery.swipe_percent,
        gallery.family,
        stage.repetition,
    )?;
    Ok((prepared, viewer))
}

/// Runs the scenario.
pub fn run(mut stage: Stage, gallery: &Gallery) -> Result<()> {
    let (prepared, mut viewer) = set_up(&stage, gallery)?;
    if gallery.app_realtime {
        viewer.talk.process.make_realtime()?;
    }
    write_config(&gallery.config)?;
    let daemon = prepare_arm(stage.arm, &viewer)?;
    let earlyoom = rival::earlyoom(stage.arm)?;
    if viewer.loaded.is_none() {
        viewer.load()?;
    }
    viewer.visit()?;
    let loaded = viewer.loaded.context("the viewer has not loaded")?;
    stage.reporter.value("footprint_pages", loaded.total());
    sleep(Duration::from_millis(gallery.settle_ms.into()));

    let mut loads = prepared.start()?;
    sleep(Duration::from_millis(gallery.warm_up_ms.into()));
    let serving = ServingCpu::now(daemon.as_ref())?;
    let counters = Counters::now()?;
    let (before, since_ns) = (loads.kib(), now_ns());
    let windows = daemon.is_some() && gallery.windows;
    let alive = swipe(&mut viewer, gallery, windows, &mut stage.reporter)?;
    loads.report(&before, since_ns, &mut stage.reporter)?;
    serving.report(&mut stage.reporter.values);
    counters.report(&mut stage.reporter.values)?;
    stage.report_all_oom_kills()?;
    for (name, count) in knobs::damon_counts(stage.arm) {
        stage.reporter.value(name, count as f64);
    }
    if alive {
        report_resident("resident", &viewer.resident()?, &mut stage.reporter);
    }
    drop(loads);
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    if let Some(earlyoom) = earlyoom {
        rival::end_earlyoom(earlyoom, &stage.reporter)?;
    }
    stage.reporter.finish()
}
