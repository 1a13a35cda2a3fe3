// SPDX-License-Identifier: GPL-2.0-or-later
//! Charts in SVG. Bars: one per arm, repetitions as dots, quartiles as a line, the limit as a dashed
//! line. Distributions: one line per arm with its percentiles.

use crate::results::table::Unit;
use crate::results::{Percentiles, Summary};

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
        if bar.samples.len() > 1 {
            let (lower, upper) = (summary.lower * scale, summary.upper * scale);
            svg.push_str(&format!(
                "<line x1=\"{:.1}\" y1=\"{middle:.1}\" x2=\"{:.1}\" y2=\"{middle:.1}\" \
                 class=\"quartiles\"/>",
                LABEL_WIDTH + lower,
                LABEL_WIDTH + upper,
            ));
        }
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

/// Ratio of the largest to the smallest percentile from which the axis is logarithmic.
const LOGARITHMIC: f64 = 30.0;

/// An SVG chart of the distributions of all samples of some arms: a thin line from the 5th to the
/// 95th percentile, a thick one from the 25th to the 75th, a mark at the median and a ring at the
/// 99th. Arms without samples are left out.
pub fn distributions(title: &str, unit: Unit, bars: &[Bar]) -> String {
    let arms: Vec<(&Bar, Percentiles)> = bars
        .iter()
        .filter_map(|bar| Some((bar, Percentiles::of(bar.samples)?)))
        .collect();
    let values = || arms.iter().flat_map(|(_, percentiles)| percentiles.values);
    let largest = values().fold(0.0, f64::max);
    let smallest = values().fold(f64::INFINITY, f64::min);
    let logarithmic = smallest > 0.0 && largest / smallest >= LOGARITHMIC;
    let place = |value: f64| match (logarithmic, largest > 0.0) {
        (true, _) => (value / smallest).ln() / (largest / smallest).ln() * BAR_WIDTH,
        (false, true) => value / largest * BAR_WIDTH,
        (false, false) => 0.0,
    };
    let height = ROW_HEIGHT * (arms.len() as f64 + 1.0);
    let width = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH;
    let axis = if logarithmic {
        ", logarithmic axis"
    } else {
        ""
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{0}\">\
         <text x=\"0\" y=\"14\" class=\"title\">{0}</text>\n",
        escape(&format!("{title}{}: p5 to p95{axis}", unit.note()))
    );
    for (index, (bar, percentiles)) in arms.iter().enumerate() {
        let y = ROW_HEIGHT * (index as f64 + 1.0) + BAR_HEIGHT / 2.0;
        let [p5, p25, p50, p75, p95, p99, _] = percentiles.values;
        let x = |value: f64| LABEL_WIDTH + place(value);
        let class = if bar.ours { "ours" } else { "other" };
        let line = |from: f64, to: f64, class: &str| {
            format!(
                "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" class=\"{class}\"/>",
                x(from),
                x(to)
            )
        };
        svg.push_str(&format!(
            "<g class=\"{class}\"><text x=\"{:.1}\" y=\"{:.1}\" class=\"label\">{}</text>{}{}",
            LABEL_WIDTH - 8.0,
            y + 4.0,
            escape(&bar.label),
            line(p5, p95, "range"),
            line(p25, p75, "middle"),
        ));
        svg.push_str(&format!(
            "<line x1=\"{0:.1}\" y1=\"{1:.1}\" x2=\"{0:.1}\" y2=\"{2:.1}\" class=\"median\"/>\
             <circle cx=\"{3:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"p99\"/>\
             <text x=\"{4:.1}\" y=\"{5:.1}\">{6}, p99 {7}</text></g>\n",
            x(p50),
            y - BAR_HEIGHT / 2.0,
            y + BAR_HEIGHT / 2.0,
            x(p99),
            x(p99.max(p95)) + 8.0,
            y + 4.0,
            escape(&unit.number(p50)),
            escape(&unit.number(p99)),
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
    fn distribution_has_percentiles_on_a_logarithmic_axis_if_needed() {
        let near: Vec<f64> = (1..=9).map(f64::from).collect();
        let far: Vec<f64> = (1..=1000).map(f64::from).collect();
        let bar = |samples| Bar {
            label: "stock <x>".into(),
            samples,
            ours: false,
        };
        let chart = distributions("swipe", Unit::Count, &[bar(near.as_slice())]);
        assert!(!chart.contains("logarithmic"), "{chart}");
        assert!(
            chart.contains("stock &lt;x&gt;") && chart.contains(">5, p99 8.92<"),
            "{chart}"
        );
        let chart = distributions("swipe", Unit::Count, &[bar(near.as_slice()), bar(&far)]);
        assert!(chart.contains("logarithmic axis"), "{chart}");
        assert_eq!(chart.matches("class=\"p99\"").count(), 2);
        let chart = distributions("none", Unit::Count, &[bar([].as_slice()), bar(&[0.0])]);
        assert!(
            !chart.contains("NaN") && chart.matches("<g").count() == 1,
            "{chart}"
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
