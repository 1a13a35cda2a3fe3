// SPDX-License-Identifier: GPL-2.0-or-later
//! Bar charts in SVG: one bar per arm, repetitions as dots, the limit as a line.

use crate::results::table::Unit;
use crate::results::Summary;

const LABEL_WIDTH: f64 = 210.0;
const BAR_WIDTH: f64 = 420.0;
const VALUE_WIDTH: f64 = 110.0;
const ROW_HEIGHT: f64 = 24.0;
const BAR_HEIGHT: f64 = 14.0;

/// One bar of a chart: an arm's median, with the samples as dots.
pub struct Bar<'a> {
    /// The arm.
    pub label: String,
    /// The arm's samples, one for each repetition; at least one.
    pub samples: &'a [f64],
    /// Whether this is an arm with limelightd.
    pub ours: bool,
}

/// An SVG chart of `bars`. `limit` is the median of the arm without load.
pub fn bars(title: &str, unit: Unit, bars: &[Bar], limit: Option<f64>) -> String {
    let largest = bars
        .iter()
        .flat_map(|bar| bar.samples)
        .chain(&limit)
        .copied()
        .fold(0.0, f64::max);
    let scale = if largest > 0.0 {
        BAR_WIDTH / largest
    } else {
        0.0
    };
    let height = ROW_HEIGHT * (bars.len() as f64 + 1.0);
    let width = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{0}\">\
         <text x=\"0\" y=\"14\" class=\"title\">{0}</text>\n",
        escape(&format!("{title}{}", unit.note()))
    );
    for (index, bar) in bars.iter().enumerate() {
        let Some(summary) = Summary::of(bar.samples) else {
            continue;
        };
        let top = ROW_HEIGHT * (index as f64 + 1.0);
        let middle = top + BAR_HEIGHT / 2.0;
        let class = if bar.ours { "bar ours" } else { "bar" };
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" class=\"label\">{}</text>\
             <rect x=\"{LABEL_WIDTH}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR_HEIGHT}\" class=\"{class}\"/>",
            LABEL_WIDTH - 8.0,
            middle + 4.0,
            escape(&bar.label),
            (summary.median * scale).max(0.0),
        ));
        for sample in bar.samples.iter().filter(|_| bar.samples.len() > 1) {
            svg.push_str(&format!(
                "<circle cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"2\"/>",
                LABEL_WIDTH + sample * scale
            ));
        }
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            LABEL_WIDTH + summary.max * scale + 8.0,
            middle + 4.0,
            escape(&unit.summary(&summary)),
        ));
    }
    if let Some(limit) = limit {
        let x = LABEL_WIDTH + limit * scale;
        svg.push_str(&format!(
            "<line x1=\"{x:.1}\" y1=\"{ROW_HEIGHT}\" x2=\"{x:.1}\" y2=\"{height}\" class=\"limit\"/>\n"
        ));
    }
    svg + "</svg>\n"
}

/// Escapes `text` for HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_sample_fills_the_width_and_others_are_in_proportion() {
        let chart = bars(
            "major faults",
            Unit::Count,
            &[
                Bar {
                    label: "idle".into(),
                    samples: &[0.0],
                    ours: false,
                },
                Bar {
                    label: "stock <x>".into(),
                    samples: &[100.0],
                    ours: false,
                },
                Bar {
                    label: "limelight".into(),
                    samples: &[50.0],
                    ours: true,
                },
            ],
            Some(0.0),
        );
        assert!(
            chart.contains("width=\"420.0\" height=\"14\" class=\"bar\""),
            "{chart}"
        );
        assert!(
            chart.contains("width=\"210.0\" height=\"14\" class=\"bar ours\""),
            "{chart}"
        );
        assert!(chart.contains("stock &lt;x&gt;"), "{chart}");
        assert!(
            chart.contains("x1=\"210.0\""),
            "the limit's line is not at zero: {chart}"
        );
    }

    #[test]
    fn all_zero_samples_give_a_chart() {
        let bar = Bar {
            label: "idle".into(),
            samples: &[0.0, 0.0],
            ours: false,
        };
        let chart = bars("faults", Unit::Count, &[bar], None);
        assert!(
            chart.contains("width=\"0.0\"") && !chart.contains("NaN"),
            "{chart}"
        );
    }
}
