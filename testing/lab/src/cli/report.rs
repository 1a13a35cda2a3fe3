// SPDX-License-Identifier: GPL-2.0-or-later
//! `report`: turns results files into an HTML page or into Markdown tables.

use std::iter;

use anyhow::{bail, Result};

use super::of_kind;
use crate::paths::{self, Paths};
use crate::report::{self, Section};
use crate::results::store;
use crate::scenario::Kind;
use crate::scenarios::demo::DEMO;

/// Writes the page, or prints the tables as Markdown.
pub fn run(paths: &Paths, markdown: bool, only: &[String]) -> Result<()> {
    let mut sections = Vec::new();
    for spec in iter::once(&DEMO).chain(of_kind(Kind::Benchmark)) {
        if !only.is_empty() && !only.iter().any(|name| name == spec.name) {
            continue;
        }
        let rows = store::newest(store::load(&paths.results(), spec.name)?);
        if !rows.is_empty() {
            sections.push(Section { spec, rows });
        }
    }
    if sections.is_empty() {
        bail!("there are no results yet: `make demo` takes minutes, `make bench` hours");
    }
    if markdown {
        print!("{}", report::markdown(&sections));
        return Ok(());
    }
    let page = paths.lab.join("report.html");
    paths::write(&page, report::html(&sections))?;
    println!("{}", paths.short(&page));
    Ok(())
}
