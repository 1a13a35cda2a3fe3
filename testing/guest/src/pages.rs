// SPDX-License-Identifier: GPL-2.0-or-later
//! The system-wide folio sizes for anonymous memory.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::scenario::Pages;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// The kernel's large folio settings, restored on drop.
pub struct PageSetting(Vec<(String, String)>);

impl PageSetting {
    /// Enables folios of this size; other sizes stay as they are. A size that the kernel does not
    /// support is an error.
    pub fn make(pages: Pages) -> Result<Self> {
        let mut setting = PageSetting(Vec::new());
        setting.add(pages)?;
        Ok(setting)
    }

    /// Enables another size as well.
    pub fn add(&mut self, pages: Pages) -> Result<()> {
        let of_size = |kib| format!("{THP}/hugepages-{kib}kB/enabled");
        let (file, word) = match pages {
            Pages::Base => return Ok(()),
            Pages::Mthp { kib } => (of_size(kib), "always"),
            Pages::Thp => (format!("{THP}/enabled"), "always"),
            Pages::Madvise { kib } => (of_size(kib), "madvise"),
        };
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        let before = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map(|(word, _)| word.to_owned())
            .with_context(|| format!("{file} marks no selected value: {text:?}"))?;
        fs::write(&file, word).with_context(|| format!("cannot write {file}"))?;
        self.0.push((file, before));
        Ok(())
    }
}

impl Drop for PageSetting {
    fn drop(&mut self) {
        for (file, before) in &self.0 {
            if let Err(error) = fs::write(Path::new(file), before) {
                eprintln!("cannot write {before} back to {file}: {error}");
            }
        }
    }
}
