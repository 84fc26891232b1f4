//! The slowest calls, and what the selected one did from its beginning to its end.

use profiler_proto::v1;

use super::{spots::Sign, text::Page};
use crate::{
    live::line::{Line, Style, cut_middle},
    render::{
        course::{self, Cells, Fitting},
        escape::terminal,
        spans, trace, units,
    },
    tui::{
        data::{CallRow, Data},
        lens::{Item, Lens},
    },
};

/// Columns of what a bar is of, at most.
const LABEL: usize = 36;

/// What bars are of an opened call.
const LEGEND: &str = "  the selected call, from its beginning to its end: █ on the CPU, ░ off it";

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let calls = &data.aside.calls;
    if let Some(failure) = &data.aside.failure {
        return page.failure(failure);
    }
    let Some(selected) = data.selected_call(lens) else {
        if data.is_over() && !data.was_watched(lens) {
            return page.paragraph(Style::Faint, &super::nothing_yet(lens, data));
        }
        let line = if calls.state.started {
            let end = if data.is_over() { super::HAS_ENDED } else { "" };
            spans::none(&calls.state).and(Style::Faint, end)
        } else {
            Line::of(Style::Faint, "  looking …")
        };
        page.line(&line);
        return;
    };
    let so_far = if lens.is_of_recording() { "" } else { " so far" };
    let heading = format!(
        "the {} slowest{so_far}; {}",
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
    let origin_ns = data.recorded_begin_ns().unwrap_or(calls.origin_ns);
    for (number, row) in calls.rows.iter().enumerate().skip(begin).take(list) {
        page.sign(Sign::item(Item::Call(row.id())));
        page.row(&line_of(row, origin_ns), Some(number) == at);
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
    let mut lines = vec![Line::of(Style::Faint, LEGEND)];
    let (span, whole_ns) = (&row.span, row.span.duration_ns);
    let room = Room::of(columns);
    let call = format!("the call  {}", units::duration(whole_ns as f64));
    let mut bars = vec![room.line(&call, Style::Bar, course::whole(span, room.bars))];
    let most = rows.saturating_sub(1).div_ceil(2);
    let Fitting { kinds, rest } = course::fitting(span, most.saturating_sub(1));
    let kinds = kinds.iter();
    bars.extend(kinds.map(|kind| room.line(&kind.words(), Style::SlowBar, kind.bars(whole_ns, room.bars))));
    let rest = rest.into_iter();
    bars.extend(rest.map(|words| Line::of(Style::Faint, format!("    {words}"))));
    let most_inside = most.saturating_sub(bars.len());
    let inside = span.children.iter().take(most_inside);
    bars.extend(inside.map(|child| room.child(child, whole_ns)));
    lines.extend(bars);
    let left_out = span.children.len().saturating_sub(most_inside) as u64;
    let left_out = left_out.saturating_add(span.children_left_out);
    if left_out > 0 {
        let words = format!("    … and {} more inside", units::count(left_out));
        lines.push(Line::of(Style::Faint, words));
    }
    lines.extend(spans::times(span));
    lines.extend(spans::system_calls(span, (rows / 5).min(6)));
    let left = rows.saturating_sub(lines.len() + 1);
    lines.extend(spans::places(&row.said, span, left));
    lines.truncate(rows);
    lines
}

/// Columns of what a bar is of, and of bars.
#[derive(Clone, Copy)]
struct Room {
    label: usize,
    bars: usize,
}

impl Room {
    fn of(columns: usize) -> Self {
        let label = LABEL.min(columns / 2);
        Self {
            label,
            bars: columns.saturating_sub(label + 5),
        }
    }

    fn line(self, words: &str, style: Style, bars: String) -> Line {
        let label = self.label;
        Line::of(Style::Plain, format!("    {:<label$} ", cut_middle(words, label))).and(style, bars)
    }

    /// A call or hit inside.
    fn child(self, child: &v1::SpanChild, whole_ns: u64) -> Line {
        let place = terminal(&child.place);
        let words = match child.duration_ns {
            Some(ns) => format!("{place}  {}", units::duration(ns as f64)),
            None => format!("{place}  at {}", units::duration(child.offset_ns as f64)),
        };
        let time_ns = child.duration_ns.unwrap_or(0);
        let Cells { from, count } = Cells::of(child.offset_ns, time_ns, whole_ns, self.bars);
        let drawn = match child.duration_ns {
            Some(_) => "█".repeat(count),
            None => "▏".to_owned(),
        };
        self.line(&words, Style::Bar, " ".repeat(from) + &drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{render::course::tests::period, state::spans::SpansState};

    #[test]
    fn of_an_opened_call_what_has_no_room_is_said_by_what_it_is() {
        let child = |offset_ns| v1::SpanChild {
            place: "main.cc:1310".to_owned(),
            offset_ns,
            duration_ns: None,
        };
        let calls = ["read", "write", "futex", "poll", "recv", "send"];
        let row = CallRow {
            span: v1::Span {
                duration_ns: 20_000_000,
                off_cpu: (0..)
                    .zip(calls)
                    .map(|(at, call)| period(v1::Activity::Sleeping, at, 1, call))
                    .collect(),
                off_cpu_left_out: 2,
                children: (0..5).map(child).collect(),
                children_left_out: 4,
                ..v1::Span::default()
            },
            said: SpansState::default(),
        };
        let text = |rows| {
            let lines = open(&row, 80, rows);
            assert!(lines.len() <= rows, "{rows}");
            lines.iter().map(Line::text).collect::<Vec<_>>().join("\n")
        };
        let shown = text(12);
        for words in [
            "… and 2 other ways off the CPU, 2.00 ms in all",
            "… and 2 shorter times off the CPU",
            "… and 9 more inside",
        ] {
            assert!(shown.contains(words), "{words} is missing:\n{shown}");
        }
        let shown = text(24);
        assert!(!shown.contains("other ways"), "{shown}");
        assert!(shown.contains("… and 5 more inside"), "{shown}");
    }
}
