// SPDX-License-Identifier: GPL-2.0-or-later
//! Recent actions and changed knobs.

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_proto::{Change, MemoryAction, Outcome};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::Frame;

use super::feed::Picture;
use super::fit;
use super::theme::Theme;
use crate::format::{self, printable};
use crate::history;

/// A recent action or change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    /// Time since it happened.
    pub ago: Duration,
    /// The action or change.
    pub what: String,
    /// Its reason.
    pub why: String,
    /// The action; `None`: a changed knob.
    pub action: Option<MemoryAction>,
    /// Whether the change had no effect.
    pub fruitless: bool,
}

/// All recent actions and changes, latest first.
pub fn all(picture: &Picture) -> Vec<Recent> {
    let actions = picture.history.iter().map(|entry| Recent {
        ago: picture
            .wall
            .saturating_sub(Duration::from_millis(entry.unix_ms)),
        what: history::action(entry),
        why: line(&entry.reason),
        action: Some(entry.action),
        fruitless: false,
    });
    let mut all: Vec<Recent> = actions.chain(knobs(picture)).collect();
    all.sort_by_key(|one| one.ago);
    all
}

fn line(text: &str) -> String {
    printable(text)
}

/// Merges the changes that one rule made to files of the same name in the same second, because an
/// app may have hundreds of threads.
fn knobs(picture: &Picture) -> Vec<Recent> {
    let mut groups: BTreeMap<(u64, &str, &str), Vec<&Change>> = BTreeMap::new();
    for change in &picture.status.changes {
        let file = change.knob.rsplit('/').next().unwrap_or_default();
        let key = (change.at_ms / 1000, file, change.rule.as_str());
        groups.entry(key).or_default().push(change);
    }
    groups
        .into_values()
        .filter_map(|changes| {
            let first = *changes.first()?;
            let why = match &first.outcome {
                Outcome::Applied => line(&first.rule),
                Outcome::Planned => format!("dry run: {}", line(&first.rule)),
                Outcome::Inert { why } => format!("no effect: {}", line(why)),
                Outcome::Failed { why } => format!("refused: {}", line(why)),
            };
            let at = Duration::from_millis(first.at_ms);
            Some(Recent {
                ago: picture.at.saturating_sub(at),
                what: turned(&changes, first),
                why,
                action: None,
                fruitless: matches!(
                    first.outcome,
                    Outcome::Inert { .. } | Outcome::Failed { .. }
                ),
            })
        })
        .collect()
}

fn turned(changes: &[&Change], first: &Change) -> String {
    let mut path = first.knob.rsplit('/');
    let file = path.next().unwrap_or_default();
    let (from, to) = (
        format::value(&first.knob, &first.from),
        format::value(&first.knob, &first.to),
    );
    let text = match changes.len() {
        1 => {
            let whose = match path.next() {
                Some("" | "dev") | None => String::new(),
                Some(whose) => format!(" of {whose}"),
            };
            format!("{file}{whose}: {from} -> {to}")
        }
        count => format!("{file} ×{count}: {from} -> {to}"),
    };
    line(&text)
}

/// Draws the latest actions and changes, one line each.
pub fn draw(frame: &mut Frame, area: Rect, picture: &Picture, theme: Theme) {
    let all = all(picture);
    if all.is_empty() {
        let text = Line::styled(" no action yet", theme.dim());
        return frame.render_widget(text, area);
    }
    let lines: Vec<Line> = all
        .iter()
        .take(usize::from(area.height))
        .map(|one| {
            let style = match (one.action, one.fruitless) {
                (Some(action), _) => theme.action(action),
                (None, true) => theme.warn(),
                (None, false) => Style::new(),
            };
            let line = Line::from(vec![
                Span::styled(format!(" {:>11}  ", format::span(one.ago)), theme.dim()),
                Span::styled(one.what.clone(), style),
                Span::styled(format!("  {}", one.why), theme.dim()),
            ]);
            fit::line(line, area.width)
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}
