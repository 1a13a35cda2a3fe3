// SPDX-License-Identifier: GPL-2.0-or-later
//! The list of apps.

use limelight_proto::{AppReport, Role};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Text;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::Frame;

use super::feed::Picture;
use super::fit;
use super::order::Order;
use super::theme::Theme;
use super::view::{Target, View};
use crate::class::{marks, used};
use crate::format::{self, printable};

/// A column: the order that sorts by it, its head, its width, and whether it is right-aligned.
struct Column {
    order: Option<Order>,
    head: &'static str,
    width: Constraint,
    right: bool,
}

const fn column(order: Option<Order>, head: &'static str, width: u16, right: bool) -> Column {
    Column {
        order,
        head,
        width: Constraint::Length(width),
        right,
    }
}

/// As many columns as fit; the name gets the remaining width.
fn columns(width: u16) -> Vec<Column> {
    let name = |least| Column {
        order: Some(Order::Name),
        head: "app",
        width: Constraint::Min(least),
        right: false,
    };
    let class = || column(Some(Order::Class), "class", 10, false);
    let used = || column(Some(Order::Used), "used", 11, false);
    let memory = || column(Some(Order::Memory), "memory", 9, true);
    let swap = || column(Some(Order::Swap), "swap", 9, true);
    let answer = || column(Some(Order::Answer), "p95", 8, true);
    let marks = |width| column(None, "", width, false);
    match width {
        0..=49 => vec![name(8), class(), memory()],
        50..=77 => vec![name(14), class(), used(), memory(), swap()],
        78..=109 => vec![
            name(15),
            class(),
            used(),
            memory(),
            swap(),
            answer(),
            marks(9),
        ],
        _ => vec![
            name(16),
            column(None, "pid", 8, true),
            class(),
            used(),
            memory(),
            swap(),
            answer(),
            marks(34),
        ],
    }
}

/// Draws the list and records its click targets.
pub fn draw(frame: &mut Frame, area: Rect, picture: &Picture, view: &mut View, theme: Theme) {
    let apps = view.order.sorted(picture);
    if apps.is_empty() {
        let text = " none: no app has a unit or has been in the foreground (man limelight-class)";
        return frame.render_widget(Paragraph::new(text), area);
    }
    let columns = columns(area.width);
    let place = view.place(&apps);
    let heads = columns.iter().map(|column| {
        let ordered = column.order == Some(view.order);
        let text = match ordered {
            true => format!("{}▾", column.head),
            false => column.head.to_owned(),
        };
        let style = match ordered {
            true => theme.strong(),
            false => theme.dim(),
        };
        aligned(text, column.right).style(style)
    });
    let widths: Vec<Constraint> = columns.iter().map(|column| column.width).collect();
    let inner = Rect {
        x: area.x + 1,
        width: area.width.saturating_sub(2),
        ..area
    };
    let places = Layout::horizontal(widths.clone()).spacing(1).split(inner);
    let rows = apps.iter().enumerate().map(|(at, app)| {
        let chosen = Some(at) == place;
        row(picture, app, (&columns, &places), chosen, theme)
    });
    let table = Table::new(rows, widths)
        .header(Row::new(heads))
        .column_spacing(1)
        .row_highlight_style(theme.chosen());
    view.table.select(place);
    if place.is_none() {
        *view.table.offset_mut() = 0;
    }
    frame.render_stateful_widget(table, inner, &mut view.table);

    for (place, column) in places.iter().zip(&columns) {
        if let Some(order) = column.order {
            let head = Rect {
                height: 1,
                ..*place
            };
            view.targets.push((head, Target::Head(order)));
        }
    }
    let offset = view.table.offset();
    for line in 1..inner.height {
        let at = offset + usize::from(line) - 1;
        if at < apps.len() {
            let place = Rect {
                y: inner.y + line,
                height: 1,
                ..area
            };
            view.targets.push((place, Target::App(at)));
        }
    }
}

fn aligned(text: String, right: bool) -> Cell<'static> {
    let text = Text::raw(text);
    Cell::new(match right {
        true => text.right_aligned(),
        false => text,
    })
}

fn row(
    picture: &Picture,
    app: &AppReport,
    (columns, places): (&[Column], &[Rect]),
    chosen: bool,
    theme: Theme,
) -> Row<'static> {
    let front = app.role == Role::Topmost;
    // Cells of the selected line have no colours of their own.
    let styled = |cell: Cell<'static>, style: Style| match chosen {
        true => cell,
        false => cell.style(style),
    };
    let cells = columns.iter().zip(places).map(|(column, place)| {
        let bytes = |bytes: u64| match bytes {
            0 => "-".to_owned(),
            bytes => format::bytes(bytes),
        };
        let (text, style) = match (column.order, column.head) {
            (Some(Order::Name), _) => {
                let name = printable(&app.app.name);
                let style = if front { theme.front() } else { Style::new() };
                (name, style)
            }
            (Some(Order::Class), _) => (app.class.to_string(), theme.class(app.class)),
            (Some(Order::Used), _) => {
                let style = if front { theme.good() } else { Style::new() };
                (used(app, picture.at), style)
            }
            (Some(Order::Memory), _) => (bytes(app.resident), Style::new()),
            (Some(Order::Swap), _) => (bytes(app.swapped), Style::new()),
            (Some(Order::Answer), _) => {
                let answers = picture.answers(&app.app.name);
                let answers = answers.filter(|one| one.answers > 0);
                let text = answers.map_or("-".to_owned(), |one| format::micros(one.p95_us));
                (text, Style::new())
            }
            (None, "pid") => {
                let pid = app.app.pid.map(|pid| pid.to_string());
                (pid.unwrap_or_default(), theme.dim())
            }
            (None, _) => (marks(app), theme.dim()),
        };
        let text = fit::text(&text, place.width.into());
        styled(aligned(text, column.right), style)
    });
    Row::new(cells)
}
