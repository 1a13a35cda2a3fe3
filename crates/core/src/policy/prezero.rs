// SPDX-License-Identifier: GPL-2.0-or-later
//! `prezero`: zeroes pages between response windows, so that the topmost app gets them ready for
//! use.
//!
//! Only the Limelight kernel can do that. The kernel decides when to zero pages: no window is open,
//! memory is free, and a processor is idle. The policy decides the engine and the size of the pool:
//! the largest known demand of an app in one window, plus a quarter. The pool is filled before an
//! app becomes topmost, because the app's first window opens at once. The pages of the pool still
//! count as available for other allocations. While no app is topmost and no demand is known,
//! prezero is off.

use super::plan::Event;
use crate::model::pressure::STEPS;
use crate::model::prezero::{Engine, Pool};
use crate::model::snapshot::Snapshot;
use crate::settings::EngineChoice;

/// Size of a page in the pool, in bytes.
const PAGE: u64 = 4096;
/// Targets are multiples of this many pages, so that small changes of the demand cause no system
/// call.
const GRAIN: u64 = 256;
/// The smallest pool, in pages.
const LEAST: u64 = 1024;
/// Reciprocal of the share of its maximum that the pool gets while no demand is known.
const UNKNOWN: u64 = 2;

/// One step of `prezero`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Switch the kernel's `prezero` on with this pool, or off.
    Switch {
        /// The pool; `None`: off.
        pool: Option<Pool>,
    },
}

/// The engine to use: the configured one if this machine offers it, else the processor. `auto` is
/// the processor too, because a DMA driver may report success for a transfer that failed, and
/// verifying the pages costs as much as DMA saves.
pub fn engine(snapshot: &Snapshot) -> Engine {
    let settings = &snapshot.settings.prezero;
    let offered = |engine| snapshot.engines.contains(&engine);
    match settings.engine {
        EngineChoice::Dma if offered(Engine::Dma) => Engine::Dma,
        EngineChoice::Block if settings.block.is_some() && offered(Engine::Block) => Engine::Block,
        _ => Engine::Cpu,
    }
}

/// Target size of the pool in pages.
fn target(snapshot: &Snapshot) -> u64 {
    let percent = u64::from(snapshot.settings.prezero.most_percent);
    let most = snapshot.memory.total / 100 * percent / PAGE;
    let wanted = match snapshot.demand {
        Some(pages) => pages.saturating_add(pages / 4),
        None => most / UNKNOWN,
    };
    let left = u64::from(STEPS - snapshot.lowered_steps.min(STEPS));
    let pages = wanted.max(LEAST).min(most) * left / u64::from(STEPS);
    pages / GRAIN * GRAIN
}

fn wanted(event: &Event, snapshot: &Snapshot) -> Option<Pool> {
    let on = snapshot.settings.prezero.enabled && snapshot.device_prezero;
    if *event == Event::Stop || !on {
        return None;
    }
    if snapshot.topmost.is_none() && snapshot.demand.is_none() {
        return None;
    }
    let target = target(snapshot);
    if target == 0 {
        return None;
    }
    let engine = engine(snapshot);
    let extent = snapshot.settings.prezero.block.as_ref();
    Some(Pool {
        engine,
        extent: extent.filter(|_| engine == Engine::Block).cloned(),
        target,
    })
}

/// Whether the pool in force may stay. A pool that is too small is worth a system call; one that is
/// up to a third too large is not.
fn settled(pool: &Pool, wanted: &Pool) -> bool {
    let fits = wanted.target <= pool.target && pool.target <= wanted.target + wanted.target / 3;
    pool.engine == wanted.engine && pool.extent == wanted.extent && fits
}

/// Steps that undo settings which no longer apply; they run before the steps of [`grant`].
pub fn withdraw(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let on = snapshot.in_force.device_prezero.is_some() && snapshot.device;
    if on && wanted(event, snapshot).is_none() {
        return vec![Step::Switch { pool: None }];
    }
    Vec::new()
}

/// Steps that put settings in force; they run after the steps of [`withdraw`].
pub fn grant(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let Some(wanted) = wanted(event, snapshot) else {
        return Vec::new();
    };
    let in_force = &snapshot.in_force.device_prezero;
    if in_force.as_ref().is_some_and(|pool| settled(pool, &wanted)) {
        return Vec::new();
    }
    vec![Step::Switch { pool: Some(wanted) }]
}

/// Notes for the user, one sentence each.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    let settings = &snapshot.settings.prezero;
    if !settings.enabled {
        return vec!["prezero is switched off by the configuration ([prezero] enabled)".to_owned()];
    }
    if !snapshot.device_prezero {
        return vec![
            "prezero needs a kernel whose /dev/limelight offers it; a stock kernel can only zero \
             pages when they are freed (init_on_free), which only moves the cost"
                .to_owned(),
        ];
    }
    let asked = match settings.engine {
        EngineChoice::Block => Some(Engine::Block),
        EngineChoice::Dma => Some(Engine::Dma),
        EngineChoice::Auto | EngineChoice::Cpu => None,
    };
    match asked.filter(|asked| *asked != engine(snapshot)) {
        Some(asked) => vec![format!(
            "prezero uses the processor: this machine does not offer the configured engine {} \
             ([expert] prezero_engine)",
            asked.name()
        )],
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::app::{App, AppKey, ProcessId};
    use crate::model::never::Exceptions;
    use crate::model::prezero::Extent;
    use crate::model::snapshot::Measured;

    const GIB: u64 = 1 << 30;

    fn snapshot(demand: Option<u64>) -> Snapshot {
        let process = ProcessId {
            pid: 7,
            starttime: 1,
        };
        let mut snapshot = Snapshot {
            device: true,
            device_prezero: true,
            engines: vec![Engine::Cpu],
            demand,
            topmost: Some(Measured {
                app: App {
                    key: AppKey::Tree(process),
                    name: "app".to_owned(),
                    process: Some(process),
                    home: None,
                },
                members: vec![process],
                footprint: None,
                terminal: None,
                exceptions: Exceptions::default(),
            }),
            ..Snapshot::default()
        };
        snapshot.memory.total = GIB;
        snapshot
    }

    fn pool(snapshot: &Snapshot) -> Option<Pool> {
        match grant(&Event::Tick, snapshot).as_slice() {
            [Step::Switch { pool }] => pool.clone(),
            [] => None,
            more => panic!("{more:?}"),
        }
    }

    #[test]
    fn pool_is_the_demand_of_a_window_plus_a_quarter() {
        let pool = pool(&snapshot(Some(8192))).unwrap();
        assert_eq!((pool.engine, pool.target), (Engine::Cpu, 10_240));
    }

    #[test]
    fn pool_is_bounded_by_memory_and_pressure() {
        let mut large = snapshot(Some(1 << 40));
        assert_eq!(
            pool(&large).unwrap().target,
            GIB / 100 * 8 / PAGE / GRAIN * GRAIN
        );
        large.lowered_steps = STEPS;
        assert_eq!(pool(&large), None);
        assert_eq!(pool(&snapshot(Some(3))).unwrap().target, LEAST);
        assert!(pool(&snapshot(None)).unwrap().target > LEAST);
    }

    #[test]
    fn pool_is_off_without_an_app_until_a_demand_is_known() {
        let mut none = snapshot(None);
        none.in_force.device_prezero = pool(&none);
        none.topmost = None;
        assert_eq!(pool(&none), None);
        let off = vec![Step::Switch { pool: None }];
        assert_eq!(withdraw(&Event::Topmost, &none), off);
        // A known app may be started next.
        none.demand = Some(8192);
        none.in_force.device_prezero = None;
        assert_eq!(pool(&none).unwrap().target, 10_240);
        assert_eq!(withdraw(&Event::Topmost, &none), []);
    }

    #[test]
    fn pool_stays_unless_it_is_too_small_or_much_too_large() {
        let mut before = snapshot(Some(8192));
        before.in_force.device_prezero = pool(&before);
        assert_eq!(pool(&before), None);
        before.demand = Some(7000);
        assert_eq!(pool(&before), None);
        before.demand = Some(9000);
        assert!(pool(&before).unwrap().target > 10_240);
        before.demand = Some(1000);
        assert_eq!(pool(&before).unwrap().target, 1024);
    }

    #[test]
    fn engine_is_the_configured_one_if_offered() {
        let mut machine = snapshot(None);
        machine.engines = Engine::ALL.to_vec();
        assert_eq!(engine(&machine), Engine::Cpu, "auto");
        machine.settings.prezero.engine = EngineChoice::Dma;
        assert_eq!(engine(&machine), Engine::Dma);
        machine.settings.prezero.engine = EngineChoice::Cpu;
        assert_eq!(engine(&machine), Engine::Cpu);
        machine.settings.prezero.engine = EngineChoice::Block;
        assert_eq!(engine(&machine), Engine::Cpu, "no extent");
        assert_eq!(notes(&machine).len(), 1);
        machine.settings.prezero.block = Some(Extent {
            device: "/dev/vdb".into(),
            offset: 0,
            len: 4096,
            trusted: false,
        });
        assert_eq!(engine(&machine), Engine::Block);
        assert!(notes(&machine).is_empty());
        machine.engines = vec![Engine::Cpu];
        assert_eq!(engine(&machine), Engine::Cpu, "not offered any more");
    }

    #[test]
    fn pool_is_switched_off_at_a_stop_and_by_the_setting() {
        let mut on = snapshot(Some(8192));
        on.in_force.device_prezero = pool(&on);
        let off = vec![Step::Switch { pool: None }];
        assert_eq!(withdraw(&Event::Stop, &on), off);
        assert!(grant(&Event::Stop, &on).is_empty());
        on.settings.prezero.enabled = false;
        assert_eq!(withdraw(&Event::Settings, &on), off);
        assert!(grant(&Event::Settings, &on).is_empty());
    }
}
