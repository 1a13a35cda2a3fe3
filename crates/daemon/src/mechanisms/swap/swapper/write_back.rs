// SPDX-License-Identifier: GPL-2.0-or-later
//! Writes one app's pages from zram to its backing device (Linux's `CONFIG_ZRAM_WRITEBACK`).
//!
//! The kernel writes back a page that is named by its offset in the device. `pagemap` has that
//! offset for each of the app's swapped pages. An offset that has meanwhile got another page writes
//! that page back, which costs a later read from the disk and nothing else.

use std::sync::atomic::Ordering;

use limelight_core::model::{Harm, ProcessId};
use limelight_sys::dir::Dir;
use limelight_sys::meminfo::page_bytes;
use limelight_sys::proc::Proc;
use limelight_sys::remote_memory::AddressRange;
use limelight_sys::swap::WriteBack as Device;
use limelight_sys::swapped::SwapSlot;

use crate::mechanisms::swap::swapper::footprint::lock;
use crate::mechanisms::swap::swapper::ranges::{both, without};
use crate::mechanisms::swap::swapper::squeeze::{Squeezer, LOOK_MOST};
use crate::mechanisms::swap::swapper::{failure, WriteBack};
use crate::system::same_process;

/// Pages between two checks whether the gate protects the process or an app needs the disk.
const CHECKED: usize = 64;

impl Squeezer {
    /// Carries out a job. Returns the bytes of the pages that were written, and the error that ended
    /// the job early.
    pub(super) fn write_back(&self, job: &WriteBack) -> (u64, Option<String>) {
        let mut written = 0;
        let failed = self.write_pages(job, &mut written).err().and_then(failure);
        (written, failed)
    }

    fn write_pages(&self, job: &WriteBack, written: &mut u64) -> limelight_sys::Result<()> {
        let proc = Proc::open(&self.proc.to_string_lossy())?;
        let sys = Dir::open(&self.sys)?;
        let mut devices = Vec::new();
        for area in proc.swaps()? {
            devices.push(Device::open(&area, &sys)?);
        }
        let begun = self.waits.load(Ordering::Relaxed);
        let waited_for = || self.waits.load(Ordering::Relaxed) != begun;
        for &member in &job.members {
            let place = self.place(member);
            let slots = self.slots(&proc, job, member)?;
            for some in slots.chunks(CHECKED) {
                let refused = self.gate.process(member, place.as_ref(), Harm::Squeeze);
                if refused.is_some() || waited_for() {
                    break;
                }
                for slot in some {
                    if *written >= job.bytes {
                        return Ok(());
                    }
                    if let Some(Some(device)) = devices.get(slot.area) {
                        device.page(slot.offset)?;
                        *written += page_bytes();
                    }
                }
            }
        }
        Ok(())
    }

    /// The places of the process's swapped pages; those that the app needs when it returns come
    /// last. Empty when the process has ended.
    fn slots(
        &self,
        proc: &Proc,
        job: &WriteBack,
        member: ProcessId,
    ) -> limelight_sys::Result<Vec<SwapSlot>> {
        let Some(process) = same_process(proc, member) else {
            return Ok(Vec::new());
        };
        let swapped = process.swapped(LOOK_MOST)?;
        let ordered: Vec<AddressRange> = {
            let known = lock(&self.footprints);
            let known = known.get(&job.app).and_then(|app| app.get(&member));
            let hot = known.map_or(&[][..], |known| &known.hot);
            [without(&swapped, hot), both(&swapped, hot)].concat()
        };
        let mut slots = Vec::new();
        for range in ordered {
            slots.extend(process.swap_slots(range)?);
        }
        Ok(slots)
    }
}
