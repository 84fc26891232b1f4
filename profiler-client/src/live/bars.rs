//! Histograms out of block characters.

use profiler_proto::v1;

use super::line::{Line, Style};
use crate::{
    render::units,
    state::histogram::{Counts, Part, Row},
};

/// Eighths of a column, from none to seven.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// Eighths of a line, for histograms within a line of text.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar for each row of durations, the percentiles marked beside the row they fall in, and where calls begin to be slow.
#[must_use]
pub fn histogram(
    counts: &Counts,
    summary: &v1::Summary,
    threshold_ns: Option<u64>,
    width: usize,
    height: usize,
) -> Vec<Line> {
    let rows = counts.rows(height);
    let total = counts.total().max(1);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0).max(1);
    // What a row has besides its bar: two durations, the count, the share, the marks.
    let room = width.saturating_sub(58).max(8);
    rows.iter()
        .map(|row| {
            let share = row.count as f64 / most as f64;
            let slow = summary.count > 0.0 && row.low_ns >= summary.p95_ns as f64;
            let style = if slow { Style::SlowBar } else { Style::Bar };
            Line::of(Style::Faint, format!("  {} ", edges(row)))
                .and(style, format!("{:<room$}", bar(share, room, row.count > 0)))
                .and(Style::Plain, format!(" {:>9}", units::count(row.count)))
                .and(
                    Style::Faint,
                    format!(" {:>6}  ", units::percent(row.count as f64 / total as f64)),
                )
                .and(Style::Strong, marks(row, summary))
                .and(Style::Warning, handle(row, threshold_ns))
        })
        .collect()
}

/// The durations of a row, in 19 columns.
#[must_use]
pub fn edges(row: &Row) -> String {
    let (low, high) = (units::duration(row.low_ns), units::duration(row.high_ns));
    match row.part {
        Part::Even => format!("{low:>8} – {high:>8}"),
        Part::Faster => format!("         < {high:>8}"),
        Part::Slower => format!("         ≥ {low:>8}"),
    }
}

fn bar(share: f64, room: usize, any: bool) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a width"
    )]
    let mut eighths = (share.clamp(0.0, 1.0) * room as f64 * 8.0).round() as usize;
    // A single call among millions is still to be seen.
    if any {
        eighths = eighths.max(1);
    }
    let mut bar = "█".repeat(eighths / 8);
    bar.push_str(EIGHTHS[eighths % 8]);
    bar
}

fn marks(row: &Row, summary: &v1::Summary) -> String {
    if summary.count <= 0.0 {
        return String::new();
    }
    let within = |ns: u64| (row.low_ns..row.high_ns).contains(&(ns as f64).max(1.0));
    [
        ("p50", summary.p50_ns),
        ("p95", summary.p95_ns),
        ("p99", summary.p99_ns),
    ]
    .into_iter()
    .filter(|(_, ns)| within(*ns))
    .map(|(name, _)| name)
    .collect::<Vec<_>>()
    .join(" ")
}

/// Marks the row that a threshold lies in.
fn handle(row: &Row, threshold_ns: Option<u64>) -> &'static str {
    let lies_in = |ns: u64| (row.low_ns..row.high_ns).contains(&(ns as f64).max(1.0));
    if threshold_ns.is_some_and(lies_in) {
        " ◀ slow"
    } else {
        ""
    }
}

/// A histogram in a few characters, fastest calls to the left.
#[must_use]
pub fn spark(counts: &Counts, width: usize) -> String {
    let rows = counts.even_rows(width);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0).max(1);
    rows.iter()
        .map(|row| match row.count {
            0 => ' ',
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
            count => LEVELS[(count as f64 / most as f64 * 7.0).round() as usize],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(u32, u64)]) -> Counts {
        let mut before = 0;
        let mut wire = v1::Histogram::default();
        for &(bucket, count) in pairs {
            wire.bucket_deltas.push(bucket - before);
            wire.counts.push(count);
            before = bucket;
        }
        Counts::read(&wire).unwrap()
    }

    #[test]
    fn bars_are_in_proportion_and_never_vanish() {
        assert_eq!(bar(1.0, 4, true), "████");
        assert_eq!(bar(0.5, 4, true), "██");
        assert_eq!(bar(0.53, 4, true), "██▏");
        assert_eq!(bar(1e-9, 4, true), "▏");
        assert_eq!(bar(0.0, 4, false), "");
    }

    #[test]
    fn percentiles_are_marked_in_their_row() {
        let summary = v1::Summary {
            count: 10.0,
            p50_ns: 1030,
            p95_ns: 2050,
            p99_ns: 2060,
            ..Default::default()
        };
        // Buckets of 1024 ns and 2048 ns.
        let lines = histogram(&counts(&[(512, 9), (640, 1)]), &summary, None, 80, 10);
        assert!(lines[0].text().trim_end().ends_with("p50"), "{}", lines[0].text());
        assert!(
            lines[2].text().trim_end().ends_with("p95 p99"),
            "{}",
            lines[2].text()
        );
        assert!(lines.iter().all(|line| line.width() <= 80));
        let lines = histogram(&counts(&[(512, 9), (640, 1)]), &summary, Some(1100), 80, 10);
        assert!(lines[0].text().ends_with("p50 ◀ slow"), "{}", lines[0].text());
    }

    #[test]
    fn what_lies_beyond_the_others_says_so() {
        let row = |part| {
            let row = Row {
                low_ns: 3_200_000.0,
                high_ns: 268_000_000.0,
                count: 4,
                part,
            };
            edges(&row)
        };
        assert_eq!(row(Part::Even), " 3.20 ms –   268 ms");
        assert_eq!(row(Part::Slower), "         ≥  3.20 ms");
        assert_eq!(row(Part::Faster), "         <   268 ms");
    }

    #[test]
    fn a_spark_fits() {
        assert_eq!(spark(&counts(&[(512, 9), (640, 1)]), 8), "█ ▂");
        assert_eq!(spark(&Counts::default(), 8), "");
    }
}
