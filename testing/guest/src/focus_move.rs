// SPDX-License-Identifier: GPL-2.0-or-later
//! Two apps of the same size: the first gets the focus, then the second, then memory runs short
//! while both are idle. Each app's resident pages show which app was protected from reclaim.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::counters::Counters;
use crate::daemon::{focus, Daemon};
use crate::dispatch::Stage;
use crate::gallery::{report_resident, Prepared, Viewer};
use crate::plan::Arm;
use crate::scenario::{Family, FocusMove};

/// Time for which each app has the focus. It is longer than the daemon needs to measure an app, and
/// longer than the gaps without focus that the daemon bridges.
const HELD: Duration = Duration::from_secs(3);

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &FocusMove) -> Result<()> {
    let daemon_wanted = match stage.arm {
        Arm::Stock => false,
        Arm::LimelightOnDebian | Arm::Limelight => true,
        arm => bail!("focus-move has no arm {arm:?}: hand-set knobs do not follow the focus"),
    };
    let mut store = stage.store()?;
    let prepared = Prepared::new(
        &work.loads,
        &mut store,
        work.app_cgroup,
        0,
        stage.repetition,
    )?;
    let mut start = |name: &str| {
        let scope = format!("app.slice/app-limelight-{name}-1.scope");
        Viewer::start(
            &mut store,
            name,
            work.app_cgroup.then_some(scope.as_str()),
            &work.footprint,
            100,
            Family::Single,
            stage.repetition,
        )
    };
    let mut first = start("first")?;
    let mut second = start("second")?;
    let pids = [&first, &second].map(|viewer| viewer.talk.process.pid());
    let daemon = if daemon_wanted {
        let daemon = Daemon::start(&pids)?;
        for (pid, viewer) in pids.into_iter().zip([&mut first, &mut second]) {
            focus(pid)?;
            viewer.visit()?;
            sleep(HELD);
        }
        Some(daemon)
    } else {
        None
    };

    let counters = Counters::now()?;
    let loads = prepared.start()?;
    sleep(Duration::from_millis(work.pressure_ms.into()));
    counters.report(&mut stage.reporter.values)?;
    drop(loads);

    let loaded = second.loaded.context("the second app has not loaded")?;
    stage.reporter.value("footprint_pages", loaded.total());
    for (name, viewer) in [("first", &mut first), ("second", &mut second)] {
        let resident = viewer
            .resident()
            .with_context(|| format!("the {name} app does not answer after the load"))?;
        stage
            .reporter
            .value(format!("{name}_resident_pages"), resident.total());
        report_resident(name, &resident, &mut stage.reporter);
    }
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}
