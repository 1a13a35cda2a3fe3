// SPDX-License-Identifier: GPL-2.0-or-later
//! Reports: an HTML page of the committed figures and of the results files, and tables in Markdown.

pub mod chart;
pub mod figures;

use std::collections::BTreeSet;

use limelight_apps::plan::Arm;

use self::chart::{bars, distributions, escape, Bar};
use crate::kernel::Linux;
use crate::results::table::{self, Table, Unit};
use crate::results::{Aggregates, Percentiles, Row};
use crate::scenario::{Spec, Variant, Verdict};

/// Maximum number of charts per task. The tables show all metrics.
const CHARTS: usize = 3;

/// The newest results of one scenario.
pub struct Section<'a> {
    /// The scenario.
    pub spec: &'a Spec,
    /// The scenario's rows, from the newest run of each variant.
    pub rows: Vec<Row>,
    /// The version of Linux of its kernels.
    pub linux: Linux,
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

    /// The command that repeats the measurement of `variant`.
    fn command(&self, variant: &Variant) -> String {
        let rows = || self.rows.iter().filter(|row| row.variant == *variant);
        let arms: BTreeSet<String> = rows().map(|row| row.arm.to_string()).collect();
        let repetitions = rows().map(|row| row.repetition + 1).max().unwrap_or(1);
        let mode = rows().next().map_or(self.spec.mode, |row| row.context.mode);
        let mut command = String::from("cargo run -p limelight-lab -- ");
        if self.linux != Linux::default() {
            command.push_str(&format!("--linux {} ", self.linux.series()));
        }
        command.push_str(&format!("run {} --variant {variant}", self.spec.name));
        if mode != self.spec.mode {
            command.push_str(&format!(" --mode {}", mode.name()));
        }
        let arms = Vec::from_iter(arms).join(",");
        command + &format!(" --arms {arms} --reps {repetitions}")
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

/// The whole report as one self-contained page. `committed` is the HTML of the committed figures.
pub fn html(committed: &str, sections: &[Section]) -> String {
    let mut page = String::from(HEAD);
    page.push_str(&contents(sections));
    page.push_str(committed);
    page.push_str("<h2 id=\"measured\">Measured on this machine</h2>\n");
    page.push_str(match sections {
        [] => "<p>Nothing yet: <code>make demo</code> takes minutes, <code>make bench</code> hours.</p>\n",
        _ => MEASURED,
    });
    for section in sections {
        let aggregates = section.aggregates();
        page.push_str(&format!(
            "<h2 id=\"{0}\">{0}</h2>\n<p>{1}.</p>\n<p class=\"small\">{2}</p>\n",
            escape(section.spec.name),
            escape(&capitalized(section.spec.about)),
            escape(&section.circumstances())
        ));
        page.push_str(&verdict_list(&section.verdicts()));
        for variant in aggregates.variants() {
            page.push_str(&format!(
                "<p class=\"small\">Reproduce <b>{variant}</b>: <code>{}</code></p>\n",
                escape(&section.command(&variant))
            ));
            for task in aggregates.tasks(&variant) {
                let table = table::table(section.spec, &aggregates, &variant, &task);
                let Some(table) = table else { continue };
                page.push_str(&format!("<h3>{} {}</h3>\n", variant, escape(&task)));
                page.push_str(&scrolled(&charts(
                    section.spec,
                    &aggregates,
                    &variant,
                    &task,
                )));
                page.push_str(&html_table(&table));
                page.push_str(&series(section.spec, &aggregates, &variant, &task));
            }
        }
    }
    page + "</main></html>\n"
}

/// Links to all parts of the page.
fn contents(sections: &[Section]) -> String {
    let fixed = [
        ("headlines", "headlines"),
        ("losses", "where we lose"),
        ("papers", "papers"),
        ("figures", "every figure"),
        ("measured", "measured here"),
    ];
    let scenarios = sections
        .iter()
        .map(|section| (section.spec.name, section.spec.name));
    let links: String = fixed
        .into_iter()
        .chain(scenarios)
        .map(|(id, text)| format!("<a href=\"#{id}\">{text}</a> "))
        .collect();
    format!("<nav>{links}</nav>\n")
}

/// Charts and a table of the distributions of all samples of each series, folded.
fn series(spec: &Spec, aggregates: &Aggregates, variant: &Variant, task: &str) -> String {
    let arms = table::arms_in_order(spec, aggregates, variant);
    let (mut text, mut rows) = (String::new(), Vec::new());
    for name in aggregates.series_names(variant, task) {
        let unit = Unit::of(&name);
        let bars: Vec<Bar> = arms
            .iter()
            .map(|arm| Bar {
                label: arm.to_string(),
                samples: aggregates.series(variant, *arm, task, &name),
                ours: arm.is_ours(),
            })
            .collect();
        text.push_str(&distributions(&name, unit, &bars));
        for bar in &bars {
            let Some(percentiles) = Percentiles::of(bar.samples) else {
                continue;
            };
            let mut row = vec![
                format!("{name}{}, {}", unit.note(), bar.label),
                percentiles.count.to_string(),
            ];
            row.extend(percentiles.values.map(|value| unit.number(value)));
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return text;
    }
    let head = ["series, arm", "samples"]
        .into_iter()
        .chain(Percentiles::NAMES);
    let table = Table {
        title: "Distribution of single samples, all runs".into(),
        head: head.map(str::to_owned).collect(),
        rows,
    };
    format!(
        "<details><summary>Distributions</summary>\n{}{}</details>\n",
        scrolled(&text),
        html_table(&table)
    )
}

/// Charts, which narrow screens scroll.
fn scrolled(charts: &str) -> String {
    format!("<div class=\"wide charts\">\n{charts}</div>\n")
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
        "<div class=\"wide\"><table><caption>{}</caption>\n{}{rows}</table></div>\n",
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
:root { color-scheme: light dark; --ours: #4c9a2a; --other: #7a8794; --line: #b3261e;
  --page: #fff; --text: #1b1d20; --link: #1a5fb4; }
@media (prefers-color-scheme: dark) {
  :root { --ours: #78c850; --line: #ff8a80; --page: #16181b; --text: #e4e6ea; --link: #8ab4f8; }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; background: var(--page); color: var(--text); }
main { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
a { color: var(--link); } nav a { display: inline-block; margin: 0 .6rem .3rem 0; }
figure { margin: 1rem 0; }
svg { width: 100%; height: auto; min-width: 34rem; max-width: 46rem; display: block; margin: .6rem 0; font-size: 12px; }
.charts svg text { fill: currentColor; }
svg .title { font-weight: 600; } svg .label { text-anchor: end; }
svg circle { fill: currentColor; opacity: .55; }
.bar { fill: var(--other); } .bar.ours { fill: var(--ours); }
.quartiles { stroke: currentColor; stroke-width: 2; }
.other { --arm: var(--other); } g.ours { --arm: var(--ours); }
.range { stroke: var(--arm); stroke-width: 2; } .middle { stroke: var(--arm); stroke-width: 9; }
.median { stroke: currentColor; stroke-width: 2; }
svg circle.p99 { fill: none; stroke: var(--arm); stroke-width: 2; opacity: 1; }
.limit { stroke: var(--line); stroke-dasharray: 4 3; }
.wide { overflow-x: auto; margin: .5rem 0 1.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid #8885; text-align: right; }
th:first-child, td:first-child { text-align: left; }
table.prose { min-width: 46rem; }
.prose th, .prose td { text-align: left; vertical-align: top; padding: .3rem .6rem; }
dt { font-weight: 600; margin-top: .7rem; } dd { margin-left: 1rem; }
code { font-size: 12px; overflow-wrap: anywhere; } summary { cursor: pointer; }
.small { font-size: 12px; opacity: .8; } li.failed b { color: var(--line); }
</style>
<main><h1>Limelight: measurements</h1>
<p>All figures come from emulated machines that anyone can boot. In fast mode, times depend on the
host, so the claims rest on counters. Exact mode counts instructions, one a nanosecond.
<i>Limit</i> is the same work with no background load, <i>stock</i> the kernel as it comes.</p>
"#;

const MEASURED: &str = "<p>Medians over repetitions; arms took turns. <i>x stock</i> is the ratio of a \
    median to the median without Limelight, <i>x limit</i> the ratio to the same work without \
    background load: on the same kernel if that was measured, else on the distribution's kernel. In \
    the charts, a bar is the median, a dot a repetition, the dark line the quartiles, and the \
    dashed line the limit.</p>\n";

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
            linux: Linux::default(),
        }
    }

    #[test]
    fn both_formats_contain_the_same_figures_and_failures() {
        let sections = [section()];
        let (markdown, html) = (markdown(&sections), html("", &sections));
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
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let committed = figures::Figures::load(&root).unwrap().html().unwrap();
        let page = html(&committed, &[section()]).replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains("http") && !page.contains("src="), "{page}");
        let links = page.matches("href=\"#").count();
        assert!(links > 5 && links == page.matches("href=").count());
    }

    #[test]
    fn each_variant_has_the_command_that_repeats_it() {
        let page = html("", &[section()]);
        assert!(
            page.contains(
                "cargo run -p limelight-lab -- run sample --variant mglru/zram/index --arms \
                 limelight@limelight,stock@debian --reps 1"
            ),
            "{page}"
        );
    }

    #[test]
    fn series_are_shown_as_distributions() {
        let mut section = section();
        let Outcome::Result { series, .. } = &mut section.rows[0].outcome else {
            unreachable!()
        };
        series.insert("swipe_us".into(), vec![1000.0, 2000.0, 9000.0]);
        let page = html("", &[section]);
        assert!(
            page.contains("<summary>Distributions") && page.contains("<th>p99</th>"),
            "{page}"
        );
        assert!(
            page.contains("<td>swipe_us (ms), stock@debian</td><td>3</td>"),
            "{page}"
        );
    }

    #[test]
    fn page_without_results_says_how_to_get_some() {
        assert!(html("", &[]).contains("make demo"));
    }
}
