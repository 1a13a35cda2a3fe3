// SPDX-License-Identifier: GPL-2.0-or-later
//! `prezero` through `/dev/limelight`: the kernel zeroes pages between response windows.

use limelight_core::model::prezero::{Engine, Extent, Pool};
use limelight_core::policy::prezero::Step;
use limelight_proto::Change;
use limelight_sys::capability;
use limelight_sys::device::{Device, DeviceError, Mechanism, Setting, Zeroing};
use limelight_sys::zero_extent::ZeroExtent;
use tracing::warn;

use crate::mechanisms::shared::Context;

/// A range of zeroes on a disk. It is kept open for as long as the kernel reads it.
#[derive(Debug)]
pub(super) struct ZeroedDisk {
    extent: Extent,
    disk: ZeroExtent,
}

/// Why the pool was not switched on or off.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSwitched {
    /// The kernel refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The disk with the zeroes could not be opened.
    #[error(transparent)]
    Disk(#[from] limelight_sys::Error),
}

/// Switches the pool on, or off with `None`. The disk is closed only after the kernel has stopped
/// reading it.
pub(super) fn switch(
    device: &Device,
    pool: Option<&Pool>,
    open: &mut Option<ZeroedDisk>,
) -> Result<(), NotSwitched> {
    let Some(pool) = pool else {
        device.switch_off(Mechanism::Prezero)?;
        *open = None;
        return Ok(());
    };
    let fresh = match (&pool.engine, &pool.extent, &open) {
        (Engine::Block, Some(extent), Some(known)) if known.extent == *extent => None,
        (Engine::Block, Some(extent), _) => {
            let trusted = extent.trusted && capability::has_raw_io();
            if trusted != extent.trusted {
                warn!(
                    "[expert] prezero_block_trusted needs CAP_SYS_RAWIO, which limelightd does not have; \
                     each page is verified instead (systemd: CapabilityBoundingSet=)"
                );
            }
            let disk = ZeroExtent::open(&extent.device, extent.offset, extent.len, trusted);
            Some(ZeroedDisk {
                extent: extent.clone(),
                disk: disk?,
            })
        }
        _ => None,
    };
    let disk = fresh.as_ref().or(open.as_ref()).map(|open| &open.disk);
    let engine = match (pool.engine, disk) {
        (Engine::Block, Some(disk)) => Zeroing::Block(disk),
        (Engine::Dma, _) => Zeroing::Dma,
        _ => Zeroing::Cpu,
    };
    let setting = Setting::Prezero {
        target_pages: u32::try_from(pool.target).unwrap_or(u32::MAX),
        engine,
    };
    device.switch_on(setting)?;
    match pool.engine {
        Engine::Block => *open = fresh.or_else(|| open.take()),
        Engine::Cpu | Engine::Dma => *open = None,
    }
    Ok(())
}

pub(super) fn change(step: &Step, context: Context<'_>) -> Change {
    let Step::Switch { pool } = step;
    let to = |pool: &Pool| format!("on, {} pages by {}", pool.target, pool.engine.name());
    let rule = "prezero: pages are zeroed in advance, as many as any known app takes in one \
                response window plus a quarter";
    context.device_change("prezero", pool.as_ref().map(to), rule)
}
