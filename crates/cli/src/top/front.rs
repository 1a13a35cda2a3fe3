// SPDX-License-Identifier: GPL-2.0-or-later
//! The foreground app, its response times, memory, swap, and the time that programs wait.

use std::time::Duration;

use limelight_proto::{MemoryStatus, Stall, Status, WindowStatus};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::Frame;

use super::feed::Picture;
use super::fit;
use super::theme::Theme;
use crate::format::{self, printable};

/// Draws the title line.
pub fn title(frame: &mut Frame, area: Rect, picture: &Picture, theme: Theme) {
    let status = &picture.status;
    let up = format::span(Duration::from_millis(status.uptime_ms));
    let dry = match status.dry_run {
        true => "dry run, nothing is changed   ",
        false => "",
    };
    let paused = match &status.paused {
        Some(pause) => format!("{}   ", format::pause(pause)),
        None => String::new(),
    };
    let left = format!(" limelight {}", printable(&status.version));
    let right = format!("{paused}{dry}up {up} ");
    let gap = usize::from(area.width)
        .saturating_sub(left.chars().count() + right.chars().count())
        .max(1);
    let text = format!("{left}{:gap$}{right}", "");
    let text = format!("{text:width$}", width = usize::from(area.width));
    frame.render_widget(Span::styled(text, theme.title()), area);
}

/// Draws four lines, or two if there are fewer than three rows.
pub fn draw(frame: &mut Frame, area: Rect, picture: &Picture, theme: Theme) {
    let status = &picture.status;
    let lines = [
        topmost(status, theme),
        answers(&status.window, area.width, theme),
        memory(&status.memory, area.width, theme),
        waits(picture, area.width, theme),
    ];
    // With only two rows, memory is more useful than the response times.
    let shown: Vec<Line> = match area.height {
        0..=2 => {
            let [first, _, third, _] = lines;
            vec![first, third]
        }
        _ => lines.into(),
    };
    let shown: Vec<Line> = shown
        .into_iter()
        .map(|one| fit::line(one, area.width))
        .collect();
    frame.render_widget(Paragraph::new(shown), area);
}

fn label(name: &str, theme: Theme) -> Span<'static> {
    Span::styled(format!(" {name:10} "), theme.dim())
}

fn topmost(status: &Status, theme: Theme) -> Line<'static> {
    let Some(topmost) = &status.topmost else {
        let text = match status.hidden {
            Some(_) => "not shown: another user's app, or you have no session at the screen",
            None => "none: no app is protected or boosted",
        };
        return Line::from(vec![label("foreground", theme), Span::raw(text)]);
    };
    let name = printable(&topmost.app.name);
    let pid = topmost
        .app
        .pid
        .map(|pid| format!("pid {pid}, "))
        .unwrap_or_default();
    let mut spans = vec![
        label("foreground", theme),
        Span::styled(name, theme.front()),
        Span::raw(format!(
            "  {pid}{}, for {}, by {}",
            format::count(topmost.members.into(), "process", "processes"),
            format::span(Duration::from_millis(topmost.for_ms)),
            printable(&topmost.source),
        )),
    ];
    if let Some(left) = topmost.demoted_in_ms {
        let left = format::span(Duration::from_millis(left));
        spans.push(Span::styled(format!(", demoted in {left}"), theme.warn()));
    }
    if !topmost.app.own_cgroup {
        spans.push(Span::styled(", no cgroup of its own", theme.warn()));
    }
    Line::from(spans)
}

fn answers(window: &WindowStatus, columns: u16, theme: Theme) -> Line<'static> {
    let mut left = vec![label("answers", theme)];
    match window.topmost.as_ref().filter(|seen| seen.answers > 0) {
        Some(seen) => {
            let wide = columns >= 100;
            let times = [
                ("p50", seen.p50_us),
                ("p95", seen.p95_us),
                ("p99", seen.p99_us),
                ("max", seen.max_us),
            ];
            for (name, us) in times.into_iter().take(if wide { 4 } else { 3 }) {
                left.push(Span::styled(format!("{name} "), theme.dim()));
                left.push(Span::styled(
                    format!("{}  ", format::micros(us)),
                    theme.strong(),
                ));
            }
            if wide {
                let answers = format::count(seen.answers, "answer", "answers");
                left.push(Span::styled(format!("of {answers}"), theme.dim()));
            }
        }
        None => left.push(Span::raw("no answers yet")),
    }
    let frame = match &window.open {
        Some(open) => {
            let text = format!("◆ window {}", format::micros(open.for_us));
            Span::styled(text, theme.warn())
        }
        None => Span::styled("◇ no window", theme.dim()),
    };
    let used: usize = left.iter().chain([&frame]).map(Span::width).sum();
    let room = usize::from(columns).saturating_sub(used + 7);
    if let Some(seen) = window.topmost.as_ref().filter(|_| room >= SPARKS_MIN) {
        let sparks = sparks(&seen.recent_us, room);
        let gap = if columns >= 100 { "  " } else { "" };
        left.push(Span::styled(format!("{gap}{sparks}"), theme.good()));
    }
    justified(left, vec![frame], columns)
}

/// Least width of the sparkline.
const SPARKS_MIN: usize = 6;

/// The last response times as a sparkline, the latest on the right. Each step up is twice the time:
/// up to 1 ms, 2 ms, 4 ms, and so on, and above 64 ms.
fn sparks(recent_us: &[u64], room: usize) -> String {
    const SIGNS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let sign = |us: &u64| {
        let doublings = us.div_ceil(1000).max(1).next_power_of_two().ilog2();
        SIGNS[(doublings as usize).min(SIGNS.len() - 1)]
    };
    let first = recent_us.len().saturating_sub(room);
    recent_us[first..].iter().map(sign).collect()
}

/// Width of a bar in columns.
fn bar_width(columns: u16) -> usize {
    usize::from(columns / 5).saturating_sub(6).clamp(8, 40)
}

/// A bar of parts of a whole. Each part has its own character; the remainder is drawn as free.
fn bar(width: usize, whole: u64, parts: &[(u64, char, Style)], theme: Theme) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    let mut left = width;
    for (part, sign, style) in parts {
        let cells = match whole {
            0 => 0,
            // A part above 0 gets at least one cell.
            whole => ((*part as f64 / whole as f64 * width as f64).round() as usize)
                .max(usize::from(*part > 0))
                .min(left),
        };
        left -= cells;
        // On a terminal with colours, the colours distinguish the parts.
        let sign = if theme.colour { '━' } else { *sign };
        spans.push(Span::styled(sign.to_string().repeat(cells), *style));
    }
    let free = if theme.colour { "─" } else { "·" };
    spans.push(Span::styled(free.repeat(left), theme.dim()));
    spans
}

/// Puts one text on the left and one on the right, at least two columns apart.
fn justified(left: Vec<Span<'static>>, right: Vec<Span<'static>>, columns: u16) -> Line<'static> {
    let width = |spans: &[Span]| spans.iter().map(Span::width).sum::<usize>();
    let used = width(&left) + width(&right) + 1;
    let gap = usize::from(columns).saturating_sub(used).max(2);
    let mut spans = left;
    spans.push(Span::raw(" ".repeat(gap)));
    spans.extend(right);
    Line::from(spans)
}

fn memory(memory: &MemoryStatus, columns: u16, theme: Theme) -> Line<'static> {
    let used = memory.total.saturating_sub(memory.available);
    let kept = (memory.protected + memory.locked).min(memory.total);
    let parts = [
        (kept, '█', theme.good()),
        (used.saturating_sub(kept), '▒', Style::new()),
    ];
    let mut left = vec![label("memory", theme)];
    left.extend(bar(bar_width(columns), memory.total, &parts, theme));
    let total = format::bytes(memory.total);
    let (kept, available) = (format::bytes(kept), format::bytes(memory.available));
    left.push(Span::styled(format!("  {kept} protected"), theme.good()));
    left.push(Span::raw(format!(", {available} free of {total}")));
    let mut right = Vec::new();
    if memory.lowered_steps > 0 {
        let steps = format::count(memory.lowered_steps.into(), "step", "steps");
        right.push(Span::styled(format!("lowered by {steps} "), theme.warn()));
    }
    if let Some(level) = memory.level {
        right.push(Span::styled(level.name(), theme.level(level)));
    }
    justified(left, right, columns)
}

fn waits(picture: &Picture, columns: u16, theme: Theme) -> Line<'static> {
    let memory = &picture.status.memory;
    let mut left = vec![label("swap", theme)];
    match memory.swap_total {
        0 => left.push(Span::raw("none")),
        total => {
            let used = total.saturating_sub(memory.swap_free);
            let parts = [(used, '▒', Style::new())];
            left.extend(bar(bar_width(columns), total, &parts, theme));
            let (used, total) = (format::bytes(used), format::bytes(total));
            left.push(Span::raw(format!("  {used} of {total}")));
        }
    }
    let stalls = &picture.status.stalls;
    let mut right = Vec::new();
    if columns >= 90 {
        right.push(Span::styled("waits", theme.dim()));
    }
    for (name, stall) in [
        ("cpu", stalls.cpu),
        ("mem", stalls.memory),
        ("disk", stalls.io),
    ] {
        if let Some(Stall { some, .. }) = stall {
            right.push(Span::styled(format!("  {name} "), theme.dim()));
            right.push(Span::styled(format!("{some:.0}%"), theme.share(some)));
        }
    }
    if stalls.memory.is_none() {
        right.push(Span::raw("  unknown (no PSI)"));
    }
    justified(left, right, columns)
}
