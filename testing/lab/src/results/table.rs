// SPDX-License-Identifier: GPL-2.0-or-later
//! Tables of results, as text, as Markdown and for the HTML report.

use super::stats::{ratio, Summary};
use super::Aggregates;
use crate::scenario::{ArmOn, Kernel, Metric, Spec, Variant};
use limelight_apps::plan::Arm;

/// The text of a table cell without a value.
const NOTHING: &str = "-";

/// A table of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Title.
    pub title: String,
    /// Column heads.
    pub head: Vec<String>,
    /// Rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Removes columns without any value, such as ratios to an arm that did not run.
    fn without_empty_columns(mut self) -> Self {
        for column in (1..self.head.len()).rev() {
            if self.rows.iter().all(|row| row[column] == NOTHING) {
                self.head.remove(column);
                self.rows
                    .iter_mut()
                    .for_each(|row| drop(row.remove(column)));
            }
        }
        self
    }

    /// The table as text for a terminal: aligned columns, with numbers to the right.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]);
            cells
                .chain([&self.head[column]])
                .map(|c| c.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded = cells.iter().enumerate().map(|(column, cell)| match column {
                0 => format!("{cell:<0$}", widths[0]),
                _ => format!("{cell:>0$}", widths[column]),
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let rule = widths
            .iter()
            .map(|width| "-".repeat(*width))
            .collect::<Vec<_>>()
            .join("  ");
        let rows: Vec<String> = self.rows.iter().map(|row| line(row)).collect();
        format!(
            "{}\n{}\n{rule}\n{}\n",
            self.title,
            line(&self.head),
            rows.join("\n")
        )
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let rule: Vec<&str> = (0..self.head.len())
            .map(|column| if column == 0 { "---" } else { "---:" })
            .collect();
        let rows: Vec<String> = self.rows.iter().map(|row| line(row)).collect();
        format!(
            "**{}**\n\n{}\n|{}|\n{}\n",
            self.title,
            line(&self.head),
            rule.join("|"),
            rows.join("\n")
        )
    }
}

/// One table per task and variant, with one row per arm. Each metric has its median, spread and
/// ratio to stock; times also have their ratio to the limit.
pub fn tables(spec: &Spec, aggregates: &Aggregates) -> Vec<Table> {
    let mut all = Vec::new();
    for variant in aggregates.variants() {
        for task in aggregates.tasks(&variant) {
            all.extend(table(spec, aggregates, &variant, &task));
        }
    }
    all
}

/// The table of one task of one variant; `None` if no metric of the scenario was measured.
pub fn table(spec: &Spec, aggregates: &Aggregates, variant: &Variant, task: &str) -> Option<Table> {
    let arms = arms_in_order(spec, aggregates, variant);
    let metrics: Vec<Metric> = spec
        .metrics()
        .into_iter()
        .filter(|m| {
            arms.iter()
                .any(|a| !aggregates.samples(variant, *a, task, m.name).is_empty())
        })
        .collect();
    if metrics.is_empty() {
        return None;
    }
    let mut head = vec!["arm".to_owned()];
    for metric in &metrics {
        let unit = Unit::of(metric.name);
        head.push(format!("{}{}", metric.label, unit.note()));
        head.push("x stock".to_owned());
        if unit.is_time() {
            head.push("x limit".to_owned());
        }
    }
    let mut repetitions = 0;
    let mut rows = Vec::new();
    for arm in &arms {
        let mut row = vec![arm.to_string()];
        for metric in &metrics {
            let summary = aggregates.summary(variant, *arm, task, metric.name);
            repetitions = repetitions.max(summary.map_or(0, |s| s.count));
            let against = |base: Arm| {
                let base = base_arm(&arms, base, arm.kernel)?;
                let base = aggregates.median(variant, base, task, metric.name)?;
                let ratio = ratio(summary?.median, base).filter(|_| base != 0.0);
                Some(ratio.map_or(NOTHING.into(), |r| format!("{r:.2}")))
            };
            row.push(summary.map_or(NOTHING.into(), |s| Unit::of(metric.name).summary(&s)));
            row.push(against(Arm::Stock).unwrap_or_else(|| NOTHING.into()));
            if Unit::of(metric.name).is_time() {
                row.push(against(Arm::Idle).unwrap_or_else(|| NOTHING.into()));
            }
        }
        rows.push(row);
    }
    let title = format!(
        "{} {variant} {task} (median of {repetitions} ± spread)",
        spec.name
    );
    Some(Table { title, head, rows }.without_empty_columns())
}

/// The arms with figures, in the scenario's order; arms that the scenario does not list come last.
pub fn arms_in_order(spec: &Spec, aggregates: &Aggregates, variant: &Variant) -> Vec<ArmOn> {
    let present = aggregates.arms(variant);
    let mut arms: Vec<ArmOn> = spec
        .arms(variant)
        .into_iter()
        .filter(|arm| present.contains(arm))
        .collect();
    arms.extend(
        present
            .into_iter()
            .filter(|arm| !arms.contains(arm))
            .collect::<Vec<_>>(),
    );
    arms
}

/// Finds the arm to compare with an arm on `kernel`: `base` on the same kernel, else on the
/// distribution's kernel, else on any kernel.
fn base_arm(arms: &[ArmOn], base: Arm, kernel: Kernel) -> Option<ArmOn> {
    let candidates = || arms.iter().copied().filter(|arm| arm.arm == base);
    candidates()
        .find(|arm| arm.kernel == kernel)
        .or_else(|| candidates().find(|arm| arm.kernel == Kernel::Debian))
        .or_else(|| candidates().next())
}

/// Display unit of a value, derived from its name's suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `_us`, shown in milliseconds.
    Micros,
    /// `_ns` or `_ns_per_...`, in nanoseconds.
    Nanos,
    /// `_kib_per_s`, shown in MiB/s.
    Throughput,
    /// `_kib`, shown in MiB.
    Kib,
    /// Everything else: a count.
    Count,
}

impl Unit {
    /// The unit of the value `name`.
    pub fn of(name: &str) -> Self {
        match name {
            _ if name.ends_with("_us") => Unit::Micros,
            _ if name.ends_with("_ns") || name.contains("_ns_per_") => Unit::Nanos,
            _ if name.ends_with("_kib_per_s") => Unit::Throughput,
            _ if name.ends_with("_kib") => Unit::Kib,
            _ => Unit::Count,
        }
    }

    /// Whether it is a unit of time. Only times have a column for the ratio to the limit.
    pub fn is_time(self) -> bool {
        matches!(self, Unit::Micros | Unit::Nanos)
    }

    /// The unit, appended to a metric's label.
    pub fn note(self) -> &'static str {
        match self {
            Unit::Micros => " (ms)",
            Unit::Nanos => " (ns)",
            Unit::Throughput => " (MiB/s)",
            Unit::Kib => " (MiB)",
            Unit::Count => "",
        }
    }

    /// A value in the unit of [`Unit::note`].
    pub fn number(self, value: f64) -> String {
        match self {
            Unit::Micros => short(value / 1000.0),
            Unit::Throughput | Unit::Kib => short(value / 1024.0),
            Unit::Nanos | Unit::Count => short(value),
        }
    }

    /// Median and spread as text.
    pub fn summary(self, summary: &Summary) -> String {
        if summary.count == 1 {
            return self.number(summary.median);
        }
        format!(
            "{} ± {}",
            self.number(summary.median),
            self.number(summary.spread())
        )
    }
}

/// Three significant digits or the whole integer part, whichever is longer, with thousands
/// separators. Values below 1 have three decimals.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    if value == value.trunc() && magnitude < 1000.0 || magnitude >= 100.0 {
        return thousands(value.round());
    }
    let digits = match magnitude {
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 {
        text.insert(0, '-');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_the_whole_part() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.1234, "0.123"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.0, "1,234"),
            (-1_234_567.0, "-1,234,567"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn units_are_derived_from_names() {
        assert_eq!(Unit::of("response_us").number(1500.0), "1.50");
        assert_eq!(Unit::of("load_copy_kib_per_s").number(2048.0), "2");
        assert_eq!(Unit::of("footprint_kib").note(), " (MiB)");
        assert_eq!(Unit::of("reclaim_ns_per_page"), Unit::Nanos);
        assert_eq!(Unit::of("resident_heap_pages"), Unit::Count);
    }

    #[test]
    fn ratios_prefer_the_same_kernel() {
        let on = |arm, kernel| ArmOn::new(arm, kernel);
        let arms = [
            on(Arm::Idle, Kernel::Debian),
            on(Arm::Idle, Kernel::Limelight),
            on(Arm::Stock, Kernel::Debian),
        ];
        assert_eq!(base_arm(&arms, Arm::Idle, Kernel::Limelight), Some(arms[1]));
        assert_eq!(
            base_arm(&arms, Arm::Stock, Kernel::Limelight),
            Some(arms[2])
        );
        assert_eq!(base_arm(&arms, Arm::MemoryLow, Kernel::Debian), None);
    }

    #[test]
    fn columns_without_any_value_are_removed() {
        let cells = |row: [&str; 3]| row.map(String::from).to_vec();
        let table = Table {
            title: "title".into(),
            head: cells(["arm", "faults", "x limit"]),
            rows: vec![cells(["idle", "-", "-"]), cells(["stock", "7", "-"])],
        };
        let kept = table.without_empty_columns();
        assert_eq!(kept.head, ["arm", "faults"]);
        assert_eq!(kept.rows, [["idle", "-"], ["stock", "7"]]);
    }

    #[test]
    fn text_is_aligned_and_markdown_is_a_table() {
        let cells = |row: &[&str]| {
            row.iter()
                .map(|cell| (*cell).to_owned())
                .collect::<Vec<_>>()
        };
        let table = Table {
            title: "title".into(),
            head: cells(&["arm", "faults"]),
            rows: vec![cells(&["idle", "0"]), cells(&["stock@debian", "1,234"])],
        };
        assert_eq!(
            table.text(),
            "title\narm           faults\n------------  ------\nidle               0\n\
             stock@debian   1,234\n"
        );
        assert_eq!(
            table.markdown(),
            "**title**\n\n| arm | faults |\n|---|---:|\n| idle | 0 |\n| stock@debian | 1,234 |\n"
        );
    }
}
