// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts accesses to each block of the swap disk from the kernel's request trace. Blocks that are
//! accessed often wear flash out; SWAP's authors measured more than 200 accesses to some blocks.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::memory::{MIB, PAGE};

const INSTANCE: &str = "/sys/kernel/tracing/instances/limelight-lab";
/// Trace buffer, large enough for the requests between two reads.
const BUFFER_KIB: u32 = 8192;
const SECTORS_PER_PAGE: u64 = PAGE as u64 / 512;

/// A running trace of one partition.
pub struct Blocks {
    pipe: File,
    first_sector: u64,
    accesses: Vec<u32>,
    /// The last line read, if incomplete.
    rest: String,
}

/// Summary over all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of blocks accessed at all.
    pub used: u64,
    /// Accesses of the most accessed block.
    pub hottest: u64,
}

impl Blocks {
    /// Starts tracing the `mib` MiB from `first_sector` on. The trace covers all disks, but only
    /// the flash disk is large enough to have these sectors.
    pub fn watch(first_sector: u64, mib: u32) -> Result<Self> {
        let at = |file: &str| PathBuf::from(INSTANCE).join(file);
        if !at("").is_dir() {
            fs::create_dir(INSTANCE).with_context(|| format!("cannot create {INSTANCE}"))?;
        }
        let write = |file: &str, value: &str| {
            fs::write(at(file), value).with_context(|| format!("cannot write {value} to {file}"))
        };
        write("trace", "")?;
        write("buffer_size_kb", &BUFFER_KIB.to_string())?;
        write("events/block/block_rq_issue/enable", "1")?;
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(at("trace_pipe"))
            .context("cannot open trace_pipe")?;
        Ok(Blocks {
            pipe,
            first_sector,
            accesses: vec![0; mib as usize * MIB / PAGE],
            rest: String::new(),
        })
    }

    /// Processes the requests since the last call.
    pub fn collect(&mut self) -> Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.pipe.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => self.take(&String::from_utf8_lossy(&buffer[..count])),
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(()),
                Err(error) => return Err(error).context("cannot read trace_pipe"),
            }
        }
    }

    fn take(&mut self, text: &str) {
        let whole = std::mem::take(&mut self.rest) + text;
        let (lines, rest) = whole.rsplit_once('\n').unwrap_or(("", &whole));
        for (sector, sectors) in lines.lines().filter_map(request) {
            let Some(from) = sector.checked_sub(self.first_sector) else {
                continue;
            };
            let pages = from / SECTORS_PER_PAGE..(from + sectors).div_ceil(SECTORS_PER_PAGE);
            for page in pages {
                if let Some(count) = self.accesses.get_mut(page as usize) {
                    *count += 1;
                }
            }
        }
        self.rest = rest.to_owned();
    }

    /// Stops tracing and returns the summary.
    pub fn stop(mut self) -> Result<Summary> {
        fs::write(
            PathBuf::from(INSTANCE).join("events/block/block_rq_issue/enable"),
            "0",
        )
        .context("cannot stop the trace of requests")?;
        self.collect()?;
        drop(self.pipe);
        fs::remove_dir(INSTANCE).with_context(|| format!("cannot remove {INSTANCE}"))?;
        Ok(Summary {
            used: self.accesses.iter().filter(|&&count| count > 0).count() as u64,
            hottest: self.accesses.iter().copied().max().unwrap_or(0).into(),
        })
    }
}

/// First sector and number of sectors of a request, from its trace line:
/// `... block_rq_issue: 252,0 WS 4096 () 524296 + 8 none,0,0 [kswapd0]`.
fn request(line: &str) -> Option<(u64, u64)> {
    let place = line.split_once("block_rq_issue: ")?.1.split_once(") ")?.1;
    let mut words = place.split(' ');
    let sector = words.next()?.parse().ok()?;
    let sectors = words.nth(1)?.parse().ok()?;
    Some((sector, sectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        " kswapd0-40 [000] d..1. 12.345: block_rq_issue: 252,0 WS 8192 () 1016 + 16 \
                        none,0,0 [kswapd0]\n";

    fn blocks() -> Blocks {
        Blocks {
            pipe: File::open("/dev/null").unwrap(),
            first_sector: 1000,
            accesses: vec![0; 8],
            rest: String::new(),
        }
    }

    #[test]
    fn request_counts_for_each_of_its_pages() {
        let mut blocks = blocks();
        blocks.take(LINE);
        assert_eq!(blocks.accesses, [0, 0, 1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn partial_lines_are_joined_and_other_partitions_ignored() {
        let mut blocks = blocks();
        let (begin, end) = LINE.split_at(60);
        blocks.take(begin);
        blocks.take(end);
        blocks.take(&LINE.replace(" 1016 ", " 8 "));
        blocks.take("CPU:0 [LOST 5 EVENTS]\n");
        assert_eq!(blocks.accesses.iter().sum::<u32>(), 2);
    }
}
