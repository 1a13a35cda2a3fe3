// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's pool of zeroed pages, the configuration of its engine, and the response windows in
//! which it must not be filled.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::daemon::{log_tail, write_config, Line};
use crate::guest_setup::number_in;
use crate::plan::Machine;
use crate::scenario::{Engine, Mechanisms};

/// sysfs directory of the pool.
const POOL: &str = "/sys/kernel/mm/limelight/prezero";
/// Timeout for the pool to fill. 8192 pages take an eighth of a second at 256 MiB/s, but longer on
/// an emulated CPU with other work.
const FILL_LIMIT: Duration = Duration::from_secs(60);

/// Number and distance of the polls of [`wait_for`].
const FILL_POLLS: u32 = 600;
const FILL_POLL: Duration = Duration::from_millis(100);

/// The contents of a file of the pool's directory.
pub fn text(name: &str) -> Result<String> {
    let path = format!("{POOL}/{name}");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().to_owned())
}

/// The number in a file of the pool's directory.
pub fn number(name: &str) -> Result<u64> {
    number_in(&Path::new(POOL).join(name))
}

/// Switches the kernel's check of each page that the pool hands out on or off.
pub fn set_verify(on: bool) -> Result<()> {
    let path = format!("{POOL}/verify");
    fs::write(&path, if on { "1" } else { "0" }).with_context(|| format!("cannot write {path}"))
}

/// Waits until the pool has reached its target; returns its size.
pub fn wait_full() -> Result<u64> {
    let deadline = Instant::now() + FILL_LIMIT;
    loop {
        let (pooled, target) = (number("pooled")?, number("target")?);
        if target > 0 && pooled >= target {
            return Ok(pooled);
        }
        if Instant::now() > deadline {
            bail!(
                "the pool has {pooled} of {target} pages after {FILL_LIMIT:?} (engine {}); \
                 limelightd wrote:\n{}",
                text("engine")?,
                log_tail()
            );
        }
        sleep(Duration::from_millis(20));
    }
}

/// Waits until the pool has at least `pages` pages. The limit is a number of polls, because a guest
/// on a busy host may stand still for a minute.
pub fn wait_for(pages: u64) -> Result<()> {
    for _ in 0..FILL_POLLS {
        if number("pooled")? >= pages {
            return Ok(());
        }
        sleep(FILL_POLL);
    }
    bail!(
        "the pool has {} of {pages} pages after {FILL_POLLS} polls (target {}, engine {}); \
         limelightd wrote:\n{}",
        number("pooled")?,
        number("target")?,
        text("engine")?,
        log_tail()
    )
}

/// Writes the daemon's configuration for an engine of this machine.
pub fn configure(engine: Engine, mechanisms: Mechanisms, machine: &Machine) -> Result<()> {
    let mut text = String::new();
    if mechanisms == Mechanisms::PrezeroOnly {
        for section in ["protect", "boost", "premap", "readahead"] {
            text.push_str(&format!("[{section}]\nenabled = false\n"));
        }
    }
    text.push_str("[prezero]\n");
    if mechanisms == Mechanisms::AllButPrezero {
        text.push_str("enabled = false\n");
    }
    match engine {
        Engine::Cpu => text.push_str("[expert]\nprezero_engine = \"cpu\"\n"),
        Engine::Block {
            disk,
            offset_mib,
            trusted,
        } => {
            let device = machine.zero_disks.get(disk as usize).with_context(|| {
                format!("the plan's machine has no disk of zeroes with index {disk}")
            })?;
            text.push_str(&format!(
                "[expert]\nprezero_engine = \"block\"\nprezero_block_device = \"{device}\"\n\
                 prezero_block_mib = 4\nprezero_block_offset_mib = {offset_mib}\n\
                 prezero_block_trusted = {trusted}\n"
            ));
        }
    }
    write_config(&text)
}

/// A connection to the daemon that reports response windows, as a compositor does.
pub struct Windows(Line);

impl Windows {
    /// Connects to the daemon.
    pub fn connect() -> Result<Self> {
        Line::connect().map(Windows)
    }

    /// Opens a window: reports input for the topmost app.
    pub fn open(&mut self) -> Result<()> {
        self.0
            .tell(r#"{"op":"window","event":"open","source":"lab"}"#)
    }

    /// Closes the window: reports the frame that answers the input.
    pub fn close(&mut self) -> Result<()> {
        self.0
            .tell(r#"{"op":"window","event":"close","source":"lab"}"#)
    }

    /// Like [`Windows::open`] and [`Windows::close`], for an app that may not be in the foreground.
    /// Returns whether the daemon accepts the report.
    pub fn attempt(&mut self, event: &str) -> Result<bool> {
        self.0.send(&format!(
            r#"{{"op":"window","event":"{event}","source":"lab"}}"#
        ))?;
        Ok(self.0.answer()?.contains(r#""result":"ok""#))
    }
}
