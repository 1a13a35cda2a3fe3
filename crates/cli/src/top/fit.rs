// SPDX-License-Identifier: GPL-2.0-or-later
//! Cuts text to the width that it has. A cut text ends in an ellipsis.

use ratatui::text::{Line, Span};

/// The text, cut to this number of columns.
pub fn text(text: &str, columns: usize) -> String {
    if Span::raw(text).width() <= columns {
        return text.to_owned();
    }
    let mut cut = String::new();
    let room = columns.saturating_sub(1);
    for one in text.chars() {
        cut.push(one);
        if Span::raw(cut.as_str()).width() > room {
            cut.pop();
            break;
        }
    }
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// The line, cut to this number of columns.
pub fn line(line: Line<'static>, columns: u16) -> Line<'static> {
    let columns = usize::from(columns);
    if line.width() <= columns {
        return line;
    }
    let mut spans: Vec<Span> = Vec::new();
    let mut left = columns;
    for span in line.spans {
        let width = span.width();
        // The span that is cut shows the ellipsis, also if only that fits.
        if width < left {
            left -= width;
            spans.push(span);
            continue;
        }
        let cut = match width == left {
            true => text(&format!("{} ", span.content), left),
            false => text(&span.content, left),
        };
        spans.push(Span::styled(cut, span.style));
        break;
    }
    Line::from(spans).style(line.style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_text_is_cut_and_ends_in_an_ellipsis() {
        for (long, columns, cut) in [
            ("gimp", 4, "gimp"),
            ("gimp", 3, "gi…"),
            ("gimp", 1, "…"),
            ("gimp", 0, ""),
            ("写真写真", 5, "写真…"),
        ] {
            assert_eq!(text(long, columns), cut);
        }
    }

    #[test]
    fn cut_line_is_as_wide_as_the_screen_at_most() {
        let whole = Line::from(vec![Span::raw("abc"), Span::raw("def"), Span::raw("ghi")]);
        let shown = |columns| line(whole.clone(), columns).to_string();
        assert_eq!(shown(9), "abcdefghi");
        assert_eq!(shown(8), "abcdefg…");
        assert_eq!(shown(6), "abcde…");
        assert_eq!(shown(3), "ab…");
        assert_eq!(shown(0), "");
    }
}
