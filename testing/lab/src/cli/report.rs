// SPDX-License-Identifier: GPL-2.0-or-later
//! `report`: turns results files into an HTML page or into Markdown tables.

use std::iter;

use anyhow::{bail, Result};

use super::of_kind;
use crate::paths::{self, Paths};
use crate::report::figures::{self, Figures};
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
            sections.push(Section {
                spec,
                rows,
                linux: paths.linux,
            });
        }
    }
    if markdown {
        if sections.is_empty() {
            bail!("there are no results yet: `make demo` takes minutes, `make bench` hours");
        }
        print!("{}", report::markdown(&sections));
        return Ok(());
    }
    let page = paths.lab.join("report.html");
    let committed = Figures::load(&paths.root)?.html()?;
    paths::write(&page, report::html(&committed, &sections))?;
    println!("{}", paths.short(&page));
    Ok(())
}

/// Makes README's table and the drawings in docs/results from the committed figures.
pub fn run_figures(paths: &Paths) -> Result<()> {
    let changed = Figures::load(&paths.root)?.write(&paths.root)?;
    for file in &changed {
        println!("{file}");
    }
    println!("{}: {} files changed", figures::FILE, changed.len());
    Ok(())
}
