// SPDX-License-Identifier: GPL-2.0-or-later
//! Layout of the screen for every size of the terminal.

use limelight_proto::MechanismId;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders};
use ratatui::Frame;

use super::feed::Picture;
use super::fit;
use super::theme::Theme;
use super::view::{Target, View};
use super::{apps, front, mechanisms, popup, recent};
use crate::format::printable;

/// Rows of each part, including its heading; 0 if the part is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts {
    front: u16,
    mechanisms: u16,
    recent: u16,
}

/// Minimum width of the terminal for two columns of mechanisms.
const TWO_COLUMNS: u16 = 70;

impl Parts {
    /// Layout for a terminal of this size. The apps get all rows that the other parts leave. On a
    /// small terminal, the mechanisms and the recent actions are left out.
    fn of(columns: u16, rows: u16) -> Parts {
        let many = MechanismId::ALL.len() as u16;
        let short = match columns {
            TWO_COLUMNS.. => many.div_ceil(2),
            _ => many,
        };
        match rows {
            0..=13 => Parts {
                front: 2,
                mechanisms: 0,
                recent: 0,
            },
            14..=21 => Parts {
                front: 4,
                mechanisms: 0,
                recent: 3,
            },
            22..=33 => Parts {
                front: 4,
                mechanisms: 1 + short,
                recent: 5,
            },
            _ => Parts {
                front: 4,
                mechanisms: 1 + many,
                recent: 1 + rows / 5,
            },
        }
    }
}

impl Parts {
    /// Gives the recent actions the rows that a short list of apps does not fill.
    fn without_gap(self, rows: u16, apps: usize) -> Parts {
        let apps = u16::try_from(apps.max(1)).unwrap_or(u16::MAX);
        let used = 1 + self.front + self.mechanisms + self.recent + 2;
        let gap = rows.saturating_sub(used.saturating_add(apps));
        match self.recent {
            0 => self,
            recent => Parts {
                recent: recent + gap,
                ..self
            },
        }
    }
}

/// Number of rows of the text form, which shows all parts.
pub fn rows(picture: &Picture, columns: u16) -> u16 {
    let parts = Parts::of(columns, u16::MAX);
    let apps = u16::try_from(picture.apps.len().max(1)).unwrap_or(u16::MAX);
    // Title, the two headings of the apps, and the heading of the recent actions.
    let fixed = 1 + parts.front + parts.mechanisms + 2 + 1;
    let recent = u16::try_from(recent::all(picture).len().clamp(1, RECENT)).unwrap_or(1);
    fixed.saturating_add(apps).saturating_add(recent)
}

/// Maximum number of recent actions in the text form.
const RECENT: usize = 10;

/// Draws the interactive screen. `trouble`: why the data is stale.
pub fn draw(
    frame: &mut Frame,
    picture: &Picture,
    view: &mut View,
    theme: Theme,
    trouble: Option<&str>,
) {
    view.targets.clear();
    let area = frame.area();
    let parts = Parts::of(area.width, area.height);
    let [main, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
    let parts = parts.without_gap(main.height, picture.apps.len());
    body(frame, main, parts, picture, view, theme);
    footer(frame, foot, view, theme, trouble);
    popup::draw(frame, view, theme);
}

/// Draws the text form, without the keys.
pub fn draw_all(frame: &mut Frame, picture: &Picture, view: &mut View, theme: Theme) {
    let area = frame.area();
    let recent = recent::all(picture).len().clamp(1, RECENT);
    let parts = Parts {
        recent: 1 + u16::try_from(recent).unwrap_or(1),
        ..Parts::of(area.width, u16::MAX)
    };
    body(frame, area, parts, picture, view, theme);
}

fn body(
    frame: &mut Frame,
    area: Rect,
    parts: Parts,
    picture: &Picture,
    view: &mut View,
    theme: Theme,
) {
    let [title, front, mechanisms, apps, recent] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(parts.front),
        Constraint::Length(parts.mechanisms),
        Constraint::Min(0),
        Constraint::Length(parts.recent),
    ])
    .areas(area);
    front::title(frame, title, picture, theme);
    front::draw(frame, front, picture, theme);
    if parts.mechanisms > 0 {
        let inner = heading(frame, mechanisms, "mechanisms", "", theme);
        mechanisms::draw(frame, inner, picture, theme);
    }
    let order = format!("by {}", view.order.name());
    let inner = heading(frame, apps, "apps", &order, theme);
    apps::draw(frame, inner, picture, view, theme);
    if parts.recent > 0 {
        let inner = heading(frame, recent, "recent", "", theme);
        recent::draw(frame, inner, picture, theme);
    }
}

/// Draws a heading: a line with a name in it. Returns the area below.
fn heading(frame: &mut Frame, area: Rect, name: &str, right: &str, theme: Theme) -> Rect {
    let mut block = Block::new()
        .borders(Borders::TOP)
        .border_style(theme.dim())
        .title(Span::styled(format!(" {name} "), theme.strong()));
    if !right.is_empty() {
        let right = Line::styled(format!(" {right} "), theme.dim()).right_aligned();
        block = block.title(right);
    }
    let inner = block.inner(area);
    frame.render_widget(block, area);
    inner
}

/// Draws the keys, the result of the last action, or the error.
fn footer(frame: &mut Frame, area: Rect, view: &mut View, theme: Theme, trouble: Option<&str>) {
    let first = |text: &str| printable(text.lines().next().unwrap_or_default());
    if let Some(trouble) = trouble {
        let text = format!(" stale data: {}", first(trouble));
        let text = fit::text(&text, area.width.into());
        return frame.render_widget(Span::styled(text, theme.bad()), area);
    }
    if let Some(said) = &view.said {
        let text = fit::text(&format!(" {}", first(said)), area.width.into());
        return frame.render_widget(Span::styled(text, theme.warn()), area);
    }
    let keys = [
        ('\n', "Enter", "explain"),
        ('c', "c", "class"),
        ('s', "s", "sort"),
        ('r', "r", "refresh"),
        ('?', "?", "help"),
        ('q', "q", "quit"),
    ];
    let mut spans = vec![Span::raw(" ")];
    let mut column = area.x + 1;
    for (press, key, what) in keys {
        let width = (key.chars().count() + what.chars().count() + 1) as u16;
        let place = Rect {
            x: column,
            width,
            ..area
        };
        view.targets
            .push((place.intersection(area), Target::Press(press)));
        spans.push(Span::styled(key, theme.strong()));
        spans.push(Span::styled(format!(" {what}   "), theme.dim()));
        column += width + 3;
    }
    frame.render_widget(Line::from(spans), area);
}
