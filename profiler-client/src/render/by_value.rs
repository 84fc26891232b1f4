//! Calls by value for people: a table.

use super::{
    escape::terminal,
    text, trace,
    units::{self, narrow_duration},
};
use crate::{
    live::line::{Line, Style},
    state::by_value::{ByValue, ValueCalls},
};

/// Columns of a value, at most: what is longer is cut.
const MAX_VALUE_COLUMNS: usize = 48;

/// Columns that a narrow table does without, the least first.
const LEAST: [&str; 4] = ["mean", "p99", "p50", "time"];

/// A line for each value, under a heading; then those that have no row, and why. At most `most` lines, none wider than
/// `width` where that can be had by leaving columns out.
#[must_use]
pub fn lines(by: &ByValue, width: usize, most: usize) -> Vec<Line> {
    let not_divided = not_divided(by);
    let mut rows: Vec<&ValueCalls> = by.values.iter().collect();
    if by.other.summary.count > 0.0 {
        rows.push(&by.other);
    }
    // A heading, and what is below.
    let mut room = most.saturating_sub(1 + usize::from(not_divided.is_some()));
    let mut hidden = 0;
    if rows.len() > room {
        room = room.saturating_sub(1);
        hidden = rows.len() - room;
        rows.truncate(room);
    }
    let mut table = table(by, &rows, width).into_iter();
    let mut lines: Vec<Line> = table
        .next()
        .map(|heading| Line::of(Style::Faint, heading))
        .into_iter()
        .chain(table.map(|row| Line::of(Style::Plain, row)))
        .collect();
    if by.values.is_empty() && not_divided.is_none() {
        lines.push(Line::of(Style::Faint, "  no call has ended yet"));
    }
    if hidden > 0 {
        lines.push(Line::of(Style::Faint, format!("  … and {hidden} more")));
    }
    lines.extend(not_divided.map(|text| Line::of(Style::Faint, text)));
    lines.truncate(most);
    lines
}

/// Why values could not be read, a line for each state.
#[must_use]
pub fn reasons(by: &ByValue) -> Vec<String> {
    let unread = by.values.iter().filter(|row| !row.value.reason.is_empty());
    unread
        .map(|row| format!("  {}: {}", label(row), terminal(&row.value.reason)))
        .collect()
}

fn not_divided(by: &ByValue) -> Option<String> {
    let reasons = trace::reasons(&by.not_divided)?;
    let count: u64 = by.not_divided.values().fold(0, |sum, &n| sum.saturating_add(n));
    Some(format!("  not divided {}: {reasons}", units::count(count)))
}

fn table(by: &ByValue, rows: &[&ValueCalls], width: usize) -> Vec<String> {
    let all_ns = by.time_ns();
    let mut heading = format!("by {}", terminal(&by.expression));
    if !by.type_name.is_empty() {
        heading.push_str(&format!(" ({})", terminal(&by.type_name)));
    }
    let mut cells = vec![
        [
            cut(&heading).as_str(),
            "calls",
            "time",
            "mean",
            "p50",
            "p95",
            "p99",
            "max",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    cells.extend(rows.iter().map(|row| {
        let summary = &row.summary;
        let name = if std::ptr::eq(*row, &raw const by.other) {
            "(other)".to_owned()
        } else {
            label(row)
        };
        vec![
            cut(&name),
            units::number(summary.count),
            units::percent(if all_ns > 0.0 { row.time_ns() / all_ns } else { 0.0 }),
            narrow_duration(summary.mean_ns),
            narrow_duration(summary.p50_ns as f64),
            narrow_duration(summary.p95_ns as f64),
            narrow_duration(summary.p99_ns as f64),
            narrow_duration(summary.max_ns as f64),
        ]
    }));
    for column in LEAST {
        let lines = text::align(&cells, 1);
        if lines.iter().all(|line| line.chars().count() <= width) {
            return lines;
        }
        if let Some(at) = cells[0].iter().position(|heading| heading == column) {
            for row in &mut cells {
                row.remove(at);
            }
        }
    }
    text::align(&cells, 1)
}

/// A value as in a trace; without one, its state alone, as the reason may be long.
fn label(row: &ValueCalls) -> String {
    match trace::shown(&row.value) {
        Ok(text) => text,
        Err(why_not) => match why_not.split_once(": ") {
            Some((state, _)) => format!("{state}>"),
            None => why_not,
        },
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_VALUE_COLUMNS {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(MAX_VALUE_COLUMNS - 1).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use profiler_proto::v1;
    use proptest::prelude::*;

    use super::*;
    use crate::state::by_value::tests::sample;

    fn shown(by: &ByValue, width: usize, most: usize) -> Vec<String> {
        lines(by, width, most).iter().map(Line::text).collect()
    }

    fn read() -> ByValue {
        ByValue::read(sample(1)).unwrap()
    }

    #[test]
    fn a_value_is_a_line() {
        assert_eq!(
            shown(&read(), usize::MAX, usize::MAX),
            [
                "  by req->kind (enum kind)  calls   time    mean    p50     p95     p99     max",
                "  RED                          80  87.3%  9.00µs  900ns  2.00µs  3.00µs  4.00µs",
                "  9007199254740993             40   9.7%  2.00µs  900ns  2.00µs  3.00µs  4.00µs",
                "  <unreadable>                 10   1.2%  1.00µs  900ns  2.00µs  3.00µs  4.00µs",
                "  (other)                      15   1.8%  1.00µs  900ns  2.00µs  3.00µs  4.00µs",
                "  not divided 5: open 1, rate_limit 4",
            ]
        );
        assert_eq!(reasons(&read()), ["  <unreadable>: no page\\u{1b}[2J"]);
    }

    #[test]
    fn the_screen_bounds_it() {
        assert_eq!(
            shown(&read(), 60, 4),
            [
                "  by req->kind (enum kind)  calls   time     p95     max",
                "  RED                          80  87.3%  2.00µs  4.00µs",
                "  … and 3 more",
                "  not divided 5: open 1, rate_limit 4",
            ]
        );
        assert!(shown(&read(), 60, 0).is_empty());
        assert_eq!(shown(&ByValue::default(), 60, 10)[1], "  no call has ended yet");
    }

    proptest! {
        #[test]
        fn hostile_text_moves_no_cursor(text in any::<String>(), state in -1..6_i32, width in 0..200_usize, most in 0..9_usize) {
            let mut by = read();
            (by.expression, by.type_name) = (text.clone(), text.clone());
            by.not_divided.insert(text.clone(), 1);
            by.values[0].value = v1::HitValue {
                state,
                json: text.clone(),
                text: text.clone(),
                reason: text.clone(),
                ..Default::default()
            };
            let lines = shown(&by, width, most);
            prop_assert!(lines.len() <= most);
            prop_assert!(lines.iter().chain(&reasons(&by)).all(|line| !line.contains(char::is_control)));
        }
    }
}
