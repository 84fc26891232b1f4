//! The slowest calls, and what the selected one did from its beginning to its end.

use super::{spots::Sign, text::Page};
use crate::{
    live::line::{Line, Style},
    render::{escape::terminal, source_names::cut, spans, trace, units},
    tui::{
        data::{CallRow, Data},
        lens::{Item, Lens},
    },
};

/// Columns of what a bar is of, at most.
const LABEL: usize = 36;

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let calls = &data.aside.calls;
    if let Some(failure) = &data.aside.failure {
        return page.failure(failure);
    }
    let Some(selected) = data.selected_call(lens) else {
        let line = if calls.state.started {
            spans::none(&calls.state)
        } else {
            Line::of(Style::Faint, "  looking …")
        };
        page.line(&line);
        return;
    };
    let heading = format!(
        "the {} slowest so far; {}",
        calls.rows.len(),
        spans::calls(&calls.state)
    );
    page.line(&Line::of(Style::Strong, heading));
    let head = "   DURATION    ON CPU   OFF CPU         AT   THREAD  FUNCTION";
    page.line(&Line::of(Style::Faint, head));
    // The list keeps a third of the room, and what the opened call leaves.
    let least = (page.rows() / 3).max(1).min(calls.rows.len());
    let opened = open(selected, page.width(), page.rows().saturating_sub(least));
    let mut foot = page.foot(u16::try_from(opened.len()).unwrap_or(u16::MAX));
    for line in &opened {
        foot.line(line);
    }
    let list = page.rows();
    let at = calls.rows.iter().position(|row| row.id() == selected.id());
    let begin = page.first(lens, at.unwrap_or(0), calls.rows.len());
    for (number, row) in calls.rows.iter().enumerate().skip(begin).take(list) {
        page.sign(Sign::item(Item::Call(row.id())));
        page.row(&line_of(row, calls.origin_ns), Some(number) == at);
    }
}

fn line_of(row: &CallRow, origin_ns: u64) -> Line {
    let span = &row.span;
    let since_s = (i128::from(span.ts_ns) - i128::from(origin_ns)) as f64 / 1e9;
    let on_cpu_ns = span.times.map(|times| times.on_cpu_ns);
    let off_cpu_ns = on_cpu_ns.map(|ns| span.duration_ns.saturating_sub(ns));
    let [on_cpu, off_cpu] =
        [on_cpu_ns, off_cpu_ns].map(|ns| ns.map_or_else(|| "?".to_owned(), |ns| units::duration(ns as f64)));
    let name = span.function.as_ref().map_or("", |function| &function.name);
    let line = Line::of(
        Style::Strong,
        format!("   {:>8}", units::duration(span.duration_ns as f64)),
    )
    .and(Style::Plain, format!("  {on_cpu:>8}  {off_cpu:>8}"))
    .and(Style::Faint, format!("  {since_s:>7.3} s {:>8}", span.tid))
    .and(Style::Plain, format!("  {}", terminal(name)));
    let values = span.values.iter();
    values.fold(line, |line, value| trace::with_value(line, value, "  "))
}

/// A call, opened: when what was inside it was, what its thread did, and where. In so many rows at most.
fn open(row: &CallRow, columns: usize, rows: usize) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    let (span, whole_ns) = (&row.span, row.span.duration_ns);
    let mut bars = vec![Bar {
        label: "the call".to_owned(),
        from_ns: 0,
        duration_ns: Some(whole_ns),
        style: Style::Bar,
    }];
    bars.extend(span.longest_wait.as_ref().map(|wait| Bar {
        label: format!("[{}]", terminal(&wait.activity)),
        from_ns: wait.offset_ns,
        duration_ns: Some(wait.time_ns),
        style: Style::SlowBar,
    }));
    bars.extend(span.children.iter().map(|child| Bar {
        label: terminal(&child.place).into_owned(),
        from_ns: child.offset_ns,
        duration_ns: child.duration_ns,
        style: Style::Bar,
    }));
    let room = rows.saturating_sub(1).div_ceil(2);
    let left_out = (bars.len().saturating_sub(room) as u64).saturating_add(span.children_left_out);
    lines.extend(bars.iter().take(room).map(|bar| bar.line(whole_ns, columns)));
    if left_out > 0 {
        let words = format!("    … and {} more inside", units::count(left_out));
        lines.push(Line::of(Style::Faint, words));
    }
    lines.extend(spans::times(span));
    let left = rows.saturating_sub(lines.len() + 1);
    lines.extend(spans::places(&row.said, span, left));
    lines.truncate(rows);
    lines
}

/// A part of a call's time.
struct Bar {
    label: String,
    /// Since the call began.
    from_ns: u64,
    /// `None` of a hit.
    duration_ns: Option<u64>,
    style: Style,
}

impl Bar {
    fn line(&self, whole_ns: u64, columns: usize) -> Line {
        let label = LABEL.min(columns / 2);
        let words = match self.duration_ns {
            Some(ns) => format!("{}  {}", self.label, units::duration(ns as f64)),
            None => format!("{}  at {}", self.label, units::duration(self.from_ns as f64)),
        };
        let Cells { from, count } = self.cells(whole_ns, columns.saturating_sub(label + 5));
        let drawn = match self.duration_ns {
            Some(_) => "█".repeat(count),
            None => "▏".to_owned(),
        };
        Line::of(Style::Plain, format!("    {:<label$} ", cut(&words, label)))
            .and(Style::Plain, " ".repeat(from))
            .and(self.style, drawn)
    }

    /// Where it is drawn, of so many columns for the whole: at least one of them, whatever was measured.
    fn cells(&self, whole_ns: u64, columns: usize) -> Cells {
        let last = columns.saturating_sub(1);
        let column = |ns: u64, up: u64| {
            let whole_ns = u128::from(whole_ns.max(1));
            let scaled = u128::from(ns) * columns as u128 + u128::from(up) * (whole_ns - 1);
            usize::try_from(scaled / whole_ns).unwrap_or(usize::MAX)
        };
        let from = column(self.from_ns, 0).min(last);
        let end_ns = self.from_ns.saturating_add(self.duration_ns.unwrap_or(0));
        let to = column(end_ns, 1).min(columns);
        Cells {
            from,
            count: to.saturating_sub(from).max(1),
        }
    }
}

/// Columns that are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cells {
    from: usize,
    count: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bar(from_ns: u64, duration_ns: Option<u64>) -> Bar {
        Bar {
            label: String::new(),
            from_ns,
            duration_ns,
            style: Style::Bar,
        }
    }

    #[test]
    fn bars_are_where_their_time_is() {
        let cells = |from_ns, duration_ns| {
            let Cells { from, count } = bar(from_ns, duration_ns).cells(100, 10);
            (from, count)
        };
        assert_eq!(cells(0, Some(100)), (0, 10));
        assert_eq!(cells(50, Some(20)), (5, 2));
        assert_eq!(cells(55, Some(20)), (5, 3), "parts of columns are drawn");
        assert_eq!(cells(100, None), (9, 1), "at the very end");
        assert_eq!(cells(0, Some(0)), (0, 1));
    }

    proptest! {
        #[test]
        fn bars_never_leave_their_room(
            from_ns: u64, duration_ns in prop::option::of(any::<u64>()), whole_ns: u64, columns in 1_usize..500,
        ) {
            let Cells { from, count } = bar(from_ns, duration_ns).cells(whole_ns, columns);
            prop_assert!(count > 0 && from + count <= columns);
        }
    }
}
