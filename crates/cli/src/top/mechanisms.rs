// SPDX-License-Identifier: GPL-2.0-or-later
//! Mechanisms: whether they act, by which means, and their counters.

use limelight_proto::{MechanismId, MechanismStatus};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::Frame;

use super::feed::Picture;
use super::fit;
use super::theme::Theme;
use crate::counters;
use crate::format::{self, printable};

/// Draws the mechanisms in one column, or in two if there are too few rows for one.
pub fn draw(frame: &mut Frame, area: Rect, picture: &Picture, theme: Theme) {
    let lines: Vec<Line> = MechanismId::ALL
        .iter()
        .filter_map(|id| {
            let all = &picture.status.mechanisms;
            let mechanism = all.iter().find(|one| one.name == id.name())?;
            Some(line(picture, mechanism, theme))
        })
        .collect();
    if usize::from(area.height) >= lines.len() {
        let lines: Vec<Line> = lines
            .into_iter()
            .map(|one| fit::line(one, area.width))
            .collect();
        return frame.render_widget(Paragraph::new(lines), area);
    }
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)])
        .spacing(1)
        .areas(area);
    let half = lines.len().div_ceil(2);
    let (first, second) = lines.split_at(half);
    for (lines, area) in [(first, left), (second, right)] {
        let lines = lines.iter().cloned();
        let lines: Vec<Line> = lines.map(|one| fit::line(one, area.width)).collect();
        frame.render_widget(Paragraph::new(lines), area);
    }
}

fn line(picture: &Picture, mechanism: &MechanismStatus, theme: Theme) -> Line<'static> {
    let (sign, style) = theme.state(mechanism.state);
    let mut spans = vec![
        Span::styled(format!(" {sign} "), style),
        Span::styled(format!("{:10} ", mechanism.name), theme.strong()),
    ];
    let counted = counted(picture, mechanism);
    let detail = printable(detail(mechanism));
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

/// How the mechanism acts, or why it does not, in a few words.
fn detail(mechanism: &MechanismStatus) -> &str {
    match mechanism.short.as_str() {
        "" => &mechanism.detail,
        short => short,
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
}
