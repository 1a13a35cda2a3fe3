// SPDX-License-Identifier: GPL-2.0-or-later
//! Mechanisms: whether they act, by which means, and their counters.

use limelight_proto::{MechanismStatus, State};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::Frame;

use super::feed::Picture;
use super::theme::Theme;
use crate::counters;
use crate::format::{self, printable};

/// The mechanisms in display order.
pub const NAMES: [&str; 6] = ["protect", "boost", "readahead", "premap", "prezero", "swap"];

/// Draws the mechanisms in one column, or in two if there are too few rows for one.
pub fn draw(frame: &mut Frame, area: Rect, picture: &Picture, theme: Theme) {
    let lines: Vec<Line> = NAMES
        .iter()
        .filter_map(|name| {
            let all = &picture.status.mechanisms;
            let mechanism = all.iter().find(|one| one.name == *name)?;
            Some(line(picture, mechanism, theme))
        })
        .collect();
    if usize::from(area.height) >= lines.len() {
        return frame.render_widget(Paragraph::new(lines), area);
    }
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)])
        .spacing(1)
        .areas(area);
    let half = lines.len().div_ceil(2);
    let (first, second) = lines.split_at(half);
    frame.render_widget(Paragraph::new(first.to_vec()), left);
    frame.render_widget(Paragraph::new(second.to_vec()), right);
}

fn line(picture: &Picture, mechanism: &MechanismStatus, theme: Theme) -> Line<'static> {
    let (sign, style) = theme.state(mechanism.state);
    let mut spans = vec![
        Span::styled(format!(" {sign} "), style),
        Span::styled(format!("{:10} ", mechanism.name), theme.strong()),
    ];
    let counted = counted(picture, mechanism);
    let detail = printable(&detail(mechanism));
    match counted.is_empty() {
        true => spans.push(Span::styled(detail, theme.dim())),
        false => {
            spans.push(Span::raw(format!("{}  ", counted.join(", "))));
            spans.push(Span::styled(detail, theme.dim()));
        }
    }
    Line::from(spans)
}

/// Shortens a large number: `24577` is `24.6k`.
fn short(number: u64) -> String {
    match number {
        0..=9_999 => number.to_string(),
        10_000..=999_999 => format!("{:.1}k", number as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.1}M", number as f64 / 1e6),
        _ => format!("{:.1}G", number as f64 / 1e9),
    }
}

/// The mechanism's counters above zero: `killed 2 (34.0 MiB)`.
fn counted(picture: &Picture, mechanism: &MechanismStatus) -> Vec<String> {
    let all = counters::of(&picture.status, &picture.counters, &mechanism.name);
    let value = |name: &str| {
        let mut all = all.iter();
        all.find(|(known, _)| known == name)
            .map(|(_, value)| *value)
    };
    let times = all
        .iter()
        .filter(|(name, value)| *value > 0 && !name.ends_with("_bytes"));
    times
        .map(|(name, times)| {
            let bytes = value(&format!("{name}_bytes")).filter(|bytes| *bytes > 0);
            let bytes = bytes.map(|bytes| format!(" ({})", format::bytes(bytes)));
            format!(
                "{} {}{}",
                name.replace('_', " "),
                short(*times),
                bytes.unwrap_or_default()
            )
        })
        .collect()
}

/// The means by which the mechanism acts, shortened to fit on its line.
fn detail(mechanism: &MechanismStatus) -> String {
    let text = mechanism.detail.as_str();
    let live: Vec<&str> = text
        .split("; ")
        .filter_map(|part| part.strip_suffix(" live"))
        .collect();
    match mechanism.state {
        State::Active if !live.is_empty() => live.join(", "),
        _ => {
            let text = text.strip_prefix("by ").unwrap_or(text);
            text.split("; ").next().unwrap_or(text).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_shortened() {
        for (number, text) in [
            (0, "0"),
            (9_999, "9999"),
            (24_577, "24.6k"),
            (2_000_000, "2.0M"),
            (3_000_000_000, "3.0G"),
        ] {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn details_are_shortened() {
        let mechanism = |state, detail: &str| MechanismStatus {
            name: "boost".to_owned(),
            state,
            detail: detail.to_owned(),
            counters: Default::default(),
        };
        let boost = "cpu.weight live; nice not used: cpu.weight acts; slice live";
        assert_eq!(
            detail(&mechanism(State::Active, boost)),
            "cpu.weight, slice"
        );
        let protect = "by memory.min of the app's cgroup; pressure: polled";
        assert_eq!(
            detail(&mechanism(State::Idle, protect)),
            "memory.min of the app's cgroup"
        );
    }
}
