// SPDX-License-Identifier: GPL-2.0-or-later
//! Reports from results files: an HTML page with charts, and tables in Markdown.

pub mod chart;

use std::collections::BTreeSet;

use limelight_apps::plan::Arm;

use self::chart::{bars, escape, Bar};
use crate::results::table::{self, Table, Unit};
use crate::results::{Aggregates, Row};
use crate::scenario::{Spec, Variant, Verdict};

/// Maximum number of charts per task. The tables show all metrics.
const CHARTS: usize = 3;

/// The newest results of one scenario.
pub struct Section<'a> {
    /// The scenario.
    pub spec: &'a Spec,
    /// The scenario's rows, from the newest run of each variant.
    pub rows: Vec<Row>,
}

impl Section<'_> {
    fn aggregates(&self) -> Aggregates {
        Aggregates::from_rows(&self.rows)
    }

    /// The scenario's verdicts, and failed checks and cells.
    fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts = (self.spec.must_hold)(&self.aggregates());
        let checks = self.rows.iter().filter_map(Row::check);
        verdicts.extend(checks.filter(|check| !check.passed));
        verdicts
    }

    /// A sentence with the conditions of the measurement: commit, kernels, mode, host and machine.
    fn circumstances(&self) -> String {
        let distinct = |of: &dyn Fn(&Row) -> String| {
            let values: BTreeSet<String> = self.rows.iter().map(of).collect();
            values
                .into_iter()
                .filter(|value| !value.is_empty())
                .collect::<Vec<_>>()
                .join(", ")
        };
        format!(
            "Commit {}; guest kernels {}; {} mode, {}; {}; host {}; {} MiB, {} vCPU.",
            distinct(&|row| row.context.commit.clone()),
            distinct(&|row| row.context.kernel_release.clone()),
            distinct(&|row| row.context.mode.name().into()),
            distinct(&|row| row.context.accelerator.clone()),
            distinct(&|row| row.context.qemu.clone()),
            distinct(&|row| row.context.host_cpu.clone()),
            distinct(&|row| row.context.memory_mib.to_string()),
            distinct(&|row| row.context.vcpus.to_string()),
        )
    }
}

/// The tables of all sections in Markdown.
pub fn markdown(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        text.push_str(&format!(
            "### {}\n\n{}. {}\n\n",
            section.spec.name,
            capitalized(section.spec.about),
            section.circumstances()
        ));
        for table in table::tables(section.spec, &section.aggregates()) {
            text.push_str(&table.markdown());
            text.push('\n');
        }
        // Almost all promises hold, so only the broken ones are listed.
        let verdicts = section.verdicts();
        let held = verdicts.iter().filter(|verdict| verdict.passed).count();
        text.push_str(&format!("{held} of {} promises held.\n", verdicts.len()));
        for verdict in verdicts.iter().filter(|verdict| !verdict.passed) {
            text.push_str(&format!(
                "- **not held**: {} ({})\n",
                verdict.what, verdict.seen
            ));
        }
        text.push('\n');
    }
    text
}

/// The whole report as one self-contained page.
pub fn html(sections: &[Section]) -> String {
    let mut page = String::from(HEAD);
    for section in sections {
        let aggregates = section.aggregates();
        page.push_str(&format!(
            "<h2>{}</h2>\n<p>{}.</p>\n<p class=\"small\">{}</p>\n",
            escape(section.spec.name),
            escape(&capitalized(section.spec.about)),
            escape(&section.circumstances())
        ));
        page.push_str(&verdict_list(&section.verdicts()));
        for variant in aggregates.variants() {
            for task in aggregates.tasks(&variant) {
                let table = table::table(section.spec, &aggregates, &variant, &task);
                let Some(table) = table else { continue };
                page.push_str(&format!("<h3>{} {}</h3>\n", variant, escape(&task)));
                page.push_str(&charts(section.spec, &aggregates, &variant, &task));
                page.push_str(&html_table(&table));
            }
        }
    }
    page + "</main></html>\n"
}

fn verdict_list(verdicts: &[Verdict]) -> String {
    let items = verdicts.iter().map(|verdict| {
        let (class, word) = if verdict.passed {
            ("held", "held")
        } else {
            ("failed", "not held")
        };
        format!(
            "<li class=\"{class}\"><b>{word}</b> {} <span class=\"small\">({})</span></li>\n",
            escape(&verdict.what),
            escape(&verdict.seen)
        )
    });
    let items: String = items.collect();
    if items.is_empty() {
        items
    } else {
        format!("<ul>\n{items}</ul>\n")
    }
}

fn charts(spec: &Spec, aggregates: &Aggregates, variant: &Variant, task: &str) -> String {
    let arms = table::arms_in_order(spec, aggregates, variant);
    let mut text = String::new();
    for metric in spec.metrics().iter().take(CHARTS) {
        let chart: Vec<Bar> = arms
            .iter()
            .map(|arm| Bar {
                label: arm.to_string(),
                samples: aggregates.samples(variant, *arm, task, metric.name),
                ours: arm.is_ours(),
            })
            .filter(|bar| !bar.samples.is_empty())
            .collect();
        if chart.is_empty() {
            continue;
        }
        let idle = arms.iter().find(|arm| arm.arm == Arm::Idle);
        let limit = idle.and_then(|idle| aggregates.median(variant, *idle, task, metric.name));
        text.push_str(&bars(metric.label, Unit::of(metric.name), &chart, limit));
    }
    text
}

fn html_table(table: &Table) -> String {
    let row = |cells: &[String], tag: &str| {
        let cells: String = cells
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
    format!(
        "<table><caption>{}</caption>\n{}{rows}</table>\n",
        escape(&table.title),
        row(&table.head, "th")
    )
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(characters).collect()
    })
}

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>Limelight: measurements</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; --ours: #c77700; --other: #7a8794; --line: #b3261e; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; max-width: 46rem; display: block; margin: .6rem 0; font-size: 12px; }
svg text { fill: currentColor; } svg .title { font-weight: 600; } svg .label { text-anchor: end; }
svg circle { fill: currentColor; opacity: .55; }
.bar { fill: var(--other); } .bar.ours { fill: var(--ours); }
.limit { stroke: var(--line); stroke-dasharray: 4 3; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; margin: .5rem 0 1.5rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid #8885; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.small { font-size: 12px; opacity: .75; } li.failed b { color: var(--line); }
</style>
<main><h1>Limelight: measurements</h1>
<p>Medians over repetitions; arms took turns. <i>x stock</i> is the ratio of a median to the median
without Limelight, <i>x limit</i> the ratio to the same work without background load: on the same
kernel if that was measured, else on the distribution's kernel. The dashed line is the limit. In
fast mode, times from an emulated processor are rough, so the claims rest on counters. Exact mode
counts instructions.</p>
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::row::tests::result_row;
    use crate::results::Outcome;
    use crate::scenario::{ArmOn, Kernel, Metric};

    const SAMPLE: Spec = Spec {
        name: "sample",
        about: "faults & times",
        arms: &[STOCK, OURS],
        must_hold: |aggregates| {
            let held = !aggregates.is_empty();
            vec![Verdict::new("fewer faults", held, "all seen")]
        },
        metrics: &[&[Metric::lower("major_faults", "major faults")]],
        ..Spec::BENCHMARK
    };
    const STOCK: ArmOn = ArmOn::new(Arm::Stock, Kernel::Debian);
    const OURS: ArmOn = ArmOn::new(Arm::Limelight, Kernel::Limelight);

    fn section() -> Section<'static> {
        let mut rows = vec![
            result_row(STOCK, 0, &[("major_faults", 1000.0)]),
            result_row(OURS, 0, &[("major_faults", 10.0)]),
        ];
        let why = "the guest died: <panic>".into();
        rows.push(Row {
            outcome: Outcome::Failed { why },
            ..rows[0].clone()
        });
        Section {
            spec: &SAMPLE,
            rows,
        }
    }

    #[test]
    fn both_formats_contain_the_same_figures_and_failures() {
        let sections = [section()];
        let (markdown, html) = (markdown(&sections), html(&sections));
        for text in [&markdown, &html] {
            assert!(text.contains("1,000") && text.contains("0.01"), "{text}");
            assert!(text.contains("not held"), "{text}");
        }
        assert!(markdown.contains("1 of 2 promises held"), "{markdown}");
        assert!(html.contains("fewer faults"), "{html}");
        assert!(
            markdown.contains("| limelight@limelight | 10 | 0.01 |"),
            "{markdown}"
        );
        assert!(
            html.contains("Faults &amp; times") && html.contains("&lt;panic&gt;"),
            "{html}"
        );
        assert!(html.contains("class=\"bar ours\""), "{html}");
    }

    #[test]
    fn page_is_self_contained() {
        let page = html(&[section()]);
        assert!(!page.contains("http") && !page.contains("src="), "{page}");
    }
}
