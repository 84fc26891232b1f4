//! How long calls take: bars, or durations over time.

use super::{spots::Sign, text::Page};
use crate::{
    cli::args::BarsOver,
    live::{
        LatencyView, bars,
        line::{Line, Style},
    },
    render::{escape::terminal, units},
    state::{histogram::Row, latency::FunctionState},
    tui::{
        data::{Data, HeatColumn, SelectedBars, band},
        lens::{Item, Lens, Picture, path},
    },
};

/// Shades of a cell, from a single call to the most; each has twice as many bits as the one before.
const SHADES: [&str; 4] = ["░", "▒", "▓", "█"];

/// Columns of the durations beside the cells.
const DURATIONS: usize = 22;

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let (true, Some(session)) = (data.latency.started, &data.session) else {
        let step = path::steps(&lens.scope).pop().unwrap_or_default();
        let has_no_duration = profiler_scope::parse(&step)
            .is_ok_and(|step| step.last().is_some_and(|step| !step.place.has_spans()));
        let words = if has_no_duration {
            format!(
                "`{}` has no duration: 6 shows its hits, u takes it back",
                terminal(&step)
            )
        } else if lens.scope.is_empty() && !lens.is_of_recording() && !lens.attaching && !data.is_over() {
            "durations are those of a function's calls: choose one in top (1), Enter times them".to_owned()
        } else {
            super::nothing_yet(lens, data).into_owned()
        };
        return page.paragraph(Style::Faint, &words);
    };
    let threshold_ns =
        Some(data.flame.summary.threshold_ns).filter(|ns| *ns > 0 && path::divides_shown(&lens.scope));
    let view = LatencyView {
        session,
        bars: BarsOver::Start,
        threshold_ns,
    };
    let mut functions = data.latency.functions.values();
    if let (Some(function), None) = (functions.next(), functions.next()) {
        return one(page, lens, data, view, function);
    }
    // The view leaves room for lines that are not here.
    let rows = page.rows() + 3;
    for line in view.lines(&data.latency, page.width(), rows) {
        page.line(&line);
    }
}

fn one(page: &mut Page<'_>, lens: &Lens, data: &Data, view: LatencyView<'_>, function: &FunctionState) {
    page.line(&view.title(function));
    let rows = data.bars(lens);
    if rows.is_empty() {
        let words = if lens.is_of_recording() {
            "  no call ended in this part of the recording"
        } else {
            "  no call has ended yet"
        };
        page.line(&Line::of(Style::Faint, words));
        return;
    }
    foot(&mut page.foot(1), lens, data);
    // A recording comes at once: there is nothing to draw over time.
    let lines = if lens.picture == Picture::Heat && !lens.is_of_recording() {
        heat(page, data, view.threshold_ns, &rows)
    } else {
        let words = if lens.is_of_recording() {
            "  calls of the part that is shown: { shows its first half, then ] the next"
        } else {
            "  calls since the start"
        };
        page.line(&Line::of(Style::Faint, words));
        let (counts, summary) = (&function.since_start_counts, &function.since_start);
        bars::histogram(counts, summary, view.threshold_ns, page.width(), lens.most_bars())
    };
    let selected = data.selected_places(lens, &rows);
    for (at, line) in lines.iter().enumerate() {
        let is_selected = selected.as_ref().is_some_and(|places| places.contains(&at));
        if let Some(row) = rows.get(at) {
            page.sign(Sign::item(Item::Bar(band(row))));
        }
        page.row(line, is_selected);
    }
    page.skip(1);
    for line in LatencyView::numbers(&data.latency, function, page.width()) {
        page.line(&line);
    }
}

/// What Enter does.
fn foot(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let (next, more) = match data.selected_bars(lens) {
        SelectedBars::Durations(bars) => (
            path::between(&lens.scope, bars.from_ns, bars.below_ns),
            "   = slow from here on   m several",
        ),
        SelectedBars::WithoutCalls => (Err(path::WITHOUT_CALLS.to_owned()), ""),
        SelectedBars::None => (path::with_threshold(&lens.scope), "   ↑↓ choose durations"),
    };
    let line = match next {
        Ok(next) if next == lens.scope => {
            Line::of(Style::Plain, "Enter: ").and(Style::Strong, "how these calls differ from the others")
        }
        Ok(next) => Line::of(Style::Plain, "Enter: ").and(Style::Strong, terminal(&next).into_owned()),
        Err(why_not) => Line::of(Style::Faint, why_not),
    };
    page.line(&line.and(Style::Faint, more));
}

/// A row for each bar, a column for each message: the more calls, the denser.
fn heat(page: &mut Page<'_>, data: &Data, threshold_ns: Option<u64>, rows: &[Row]) -> Vec<Line> {
    let room = page.width().saturating_sub(DURATIONS);
    let columns = &data.heat.columns;
    let shown: Vec<&HeatColumn> = columns.iter().skip(columns.len().saturating_sub(room)).collect();
    let words = match (shown.first(), shown.last()) {
        (Some(first), Some(last)) => {
            let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
            format!(
                "  calls of the last {}, the latest at the right",
                units::duration(seconds * 1e9)
            )
        }
        _ => "  calls over time: the first come in a second".to_owned(),
    };
    page.line(&Line::of(Style::Faint, words));
    let counts: Vec<Vec<u64>> = shown.iter().map(|column| in_rows(column, rows)).collect();
    let most = counts.iter().flatten().copied().max().unwrap_or(0);
    let lines = rows.iter().enumerate().map(|(at, row)| {
        let is_slow = threshold_ns.is_some_and(|ns| row.high_ns > ns as f64);
        let cells: String = counts.iter().map(|column| shade(column[at], most)).collect();
        let gap = " ".repeat(room.saturating_sub(counts.len()));
        Line::of(Style::Faint, format!("  {} ", bars::edges(row)))
            .and(if is_slow { Style::SlowBar } else { Style::Bar }, gap + &cells)
    });
    lines.collect()
}

/// A column's calls by row.
fn in_rows(column: &HeatColumn, rows: &[Row]) -> Vec<u64> {
    let mut counts = vec![0_u64; rows.len()];
    for (bucket, count) in column.counts.buckets() {
        let ns = profiler_common::layout::lowest_ns(bucket).max(1) as f64;
        if let Some(at) = rows.iter().position(|row| ns < row.high_ns) {
            counts[at] = counts[at].saturating_add(count);
        }
    }
    counts
}

fn shade(count: u64, most: u64) -> &'static str {
    let Some(bits) = count.checked_ilog2() else {
        return " ";
    };
    let all = most.max(1).ilog2().max(1);
    let at = (bits as usize * SHADES.len() / (all as usize + 1)).min(SHADES.len() - 1);
    SHADES[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_calls_are_denser_and_one_is_seen() {
        assert_eq!(shade(0, 100), " ");
        assert_eq!((shade(1, 1_000_000), shade(1_000_000, 1_000_000)), ("░", "█"));
        assert_eq!(shade(1, 1), "░");
        let shades: Vec<&str> = [1, 10, 100, 1_000].map(|count| shade(count, 1_000)).to_vec();
        assert!(shades.windows(2).all(|pair| pair[0] != pair[1]), "{shades:?}");
    }
}
