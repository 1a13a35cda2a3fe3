// SPDX-License-Identifier: GPL-2.0-or-later
//! Popups: help, details of an app, and the menu of classes.

use limelight_proto::Class;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Padding, Paragraph, Wrap};
use ratatui::Frame;

use super::theme::Theme;
use super::view::{Popup, Target, View, CLASSES};
use crate::format::{self, printable};

const KEYS: [(&str, &str); 9] = [
    (
        "↑ ↓  j k",
        "select an app (also Page Up, Page Down, Home, End)",
    ),
    (
        "Enter  e",
        "explain the app's class and what was changed for it",
    ),
    ("c", "set the app's class until it ends"),
    ("s", "next sort order: class, used, memory, swap, p95, app"),
    ("r", "refresh now"),
    ("Esc", "clear the selection; without a selection, quit"),
    ("q", "quit"),
    (
        "mouse",
        "click: select; again: explain; head: sort; wheel: scroll",
    ),
    ("signs", "● acts  ○ idle  × unavailable  - switched off"),
];

/// Draws the popup, if there is one.
pub fn draw(frame: &mut Frame, view: &mut View, theme: Theme) {
    let popup = view.popup.clone();
    match popup {
        Popup::None => {}
        Popup::Help => help(frame, theme),
        Popup::Explain {
            title,
            text,
            scroll,
        } => {
            let scroll = explain(frame, &title, &text, scroll, theme);
            view.popup = Popup::Explain {
                title,
                text,
                scroll,
            };
        }
        Popup::Class { name, chosen, .. } => classes(frame, view, &name, chosen, theme),
    }
}

fn opened(frame: &mut Frame, title: &str, columns: u16, rows: u16, theme: Theme) -> Rect {
    let screen = frame.area();
    let area = screen.centered(
        Constraint::Length(columns.min(screen.width)),
        Constraint::Length(rows.min(screen.height)),
    );
    let title = format!(" {} ", printable(title));
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.good())
        .title(Span::styled(title, theme.strong()))
        .padding(Padding::horizontal(1));
    let inner = block.inner(area);
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
    inner
}

fn help(frame: &mut Frame, theme: Theme) {
    let area = opened(frame, "keys", 74, KEYS.len() as u16 + 4, theme);
    let mut lines: Vec<Line> = KEYS
        .iter()
        .map(|(key, what)| {
            Line::from(vec![
                Span::styled(format!("{key:9}  "), theme.strong()),
                Span::raw(*what),
            ])
        })
        .collect();
    lines.push(Line::default());
    lines.push(Line::styled("see also: man limelight-top", theme.dim()));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

/// Wraps a line that consists of a name, blanks and a text. Indents continuation lines to the text.
fn hanging(line: &str, room: usize) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    let word = |from: usize| chars[from..].iter().position(|c| *c != ' ');
    let begin = word(0).unwrap_or(0);
    let gap = chars[begin..].windows(2).position(|two| two == [' ', ' ']);
    let text = gap.and_then(|gap| Some(begin + gap + word(begin + gap)?));
    let indent = text.filter(|text| *text <= room / 2).unwrap_or(begin);
    let rest: String = chars[indent..].iter().collect();
    let pieces = format::wrap(&rest, room.checked_sub(indent));
    pieces
        .iter()
        .enumerate()
        .map(|(at, piece)| match at {
            0 => chars[..indent].iter().collect::<String>() + piece,
            _ => format!("{:indent$}{piece}", ""),
        })
        .collect()
}

/// Draws an explanation. Returns the scroll position, limited to the end of the text.
fn explain(frame: &mut Frame, title: &str, text: &str, scroll: u16, theme: Theme) -> u16 {
    let screen = frame.area();
    let columns = screen.width.saturating_sub(4).min(110);
    let room = usize::from(columns.saturating_sub(4));
    let lines: Vec<String> = text.lines().flat_map(|line| hanging(line, room)).collect();
    let count = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let rows = count.saturating_add(2).min(screen.height.saturating_sub(2));
    let area = opened(frame, title, columns, rows.max(3), theme);
    let most = count.saturating_sub(area.height);
    let scroll = scroll.min(most);
    let shown = lines.into_iter().skip(usize::from(scroll)).map(Line::raw);
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), area);
    if most > 0 {
        let last = scroll + area.height;
        let shown = format!(" {} to {last} of {count}  ↑↓ ", scroll + 1);
        let border = Rect {
            y: area.bottom(),
            height: 1,
            ..area
        };
        let line = Line::styled(shown, theme.dim()).right_aligned();
        frame.render_widget(line, border.intersection(screen));
    }
    scroll
}

fn meaning(class: Option<Class>) -> (&'static str, &'static str) {
    match class {
        Some(Class::Keep) => ("keep", "may be swapped, never closed"),
        Some(Class::Normal) => (
            "normal",
            "may be swapped, closed if no disposable app is left",
        ),
        Some(Class::Disposable) => ("disposable", "not swapped, closed first"),
        None => ("auto", "the app's default class"),
    }
}

fn classes(frame: &mut Frame, view: &mut View, name: &str, chosen: usize, theme: Theme) {
    let area = opened(
        frame,
        &format!("class of {name}"),
        68,
        CLASSES.len() as u16 + 4,
        theme,
    );
    for (at, class) in CLASSES.iter().enumerate() {
        let (word, what) = meaning(*class);
        let line = Rect {
            y: area.y + at as u16,
            height: 1,
            ..area
        };
        let line = line.intersection(area);
        let text = format!(" {word:10}  {what}");
        let style = match at == chosen {
            true => theme.chosen(),
            false => ratatui::style::Style::new(),
        };
        let padded = format!("{text:width$}", width = usize::from(area.width));
        frame.render_widget(Span::styled(padded, style), line);
        view.targets.push((line, Target::Class(at)));
    }
    let foot = Rect {
        y: area.bottom().saturating_sub(1),
        height: 1,
        ..area
    };
    let hint = "Enter: until it ends. Permanently: [class] in limelight.toml";
    frame.render_widget(Line::styled(hint, theme.dim()), foot);
}
