//! Counters over time for people: a row each, its numbers and its shape.

use std::time::Duration;

use super::{escape::terminal, scopes::without_thresholds, text, units};
use crate::{
    cli::{events, request::Timeline},
    live::line::{Line, Style, cut_middle, wrapped},
    state::timeline::{Row, Sum, TimelineState},
};

/// What is drawn.
pub struct View {
    rows: Vec<Row>,
    threads: bool,
    range_ns: u64,
    rolling_ns: u64,
}

/// A row's name and points.
pub struct Drawn {
    /// What it shows.
    pub row: Row,
    /// What it is called.
    pub label: String,
    /// The same, without the thread.
    pub counter: String,
    /// The thread whose it is; `None` of all.
    pub thread: Option<u32>,
    /// Of what its numbers are.
    pub unit: Unit,
    /// Ends of buckets, and what there was.
    pub points: Vec<(u64, Option<f64>)>,
    /// The mean of all of them.
    pub mean: Option<f64>,
}

/// What a row's numbers are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Time on a CPU, by time.
    Cpus,
    /// In a second.
    Rate,
    /// A number.
    Ratio,
}

impl Unit {
    fn of(row: &Row, counters: &[String]) -> Self {
        match row {
            Row::Counter(at) if counters.get(*at).is_some_and(|name| name == "task-clock") => Self::Cpus,
            Row::Counter(_) | Row::Calls => Self::Rate,
            Row::Ratio(..) => Self::Ratio,
        }
    }

    fn value(self, sum: Sum) -> Option<f64> {
        let scale = if self == Self::Rate { 1e9 } else { 1.0 };
        sum.value().map(|value| value * scale)
    }

    /// Its name; empty of a number alone.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpus => "CPUs",
            Self::Rate => "/s",
            Self::Ratio => "",
        }
    }

    /// Behind a label.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Cpus => " (CPUs)",
            Self::Rate => " (/s)",
            Self::Ratio => "",
        }
    }

    /// A value of it.
    #[must_use]
    pub fn text(self, value: Option<f64>) -> String {
        match (value, self) {
            (None, _) => "–".to_owned(),
            (Some(value), Self::Rate) => units::number(value),
            (Some(value), Self::Cpus | Self::Ratio) => format!("{value:.2}"),
        }
    }
}

impl View {
    /// What a request asks for, of the counters that the daemon counts.
    #[must_use]
    pub fn of(request: &Timeline, state: &TimelineState) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            rows: events::rows(&request.events, &state.counters),
            threads: request.threads,
            range_ns: ns(request.range),
            rolling_ns: ns(request.rolling),
        }
    }

    /// All counters that are counted, of the last minute.
    #[must_use]
    pub fn live(state: &TimelineState) -> Self {
        const MINUTE_NS: u64 = 60_000_000_000;
        Self {
            rows: events::rows(&[], &state.counters),
            threads: false,
            range_ns: MINUTE_NS,
            rolling_ns: 0,
        }
    }

    /// The rows of all threads, then those of each.
    #[must_use]
    pub fn drawn(&self, state: &TimelineState) -> Vec<Drawn> {
        let calls = state.calls.map(|_| Row::Calls);
        let all = self.rows.iter().chain(&calls);
        let mut drawn: Vec<Drawn> = all.map(|row| self.row(state, row, None)).collect();
        if self.threads {
            for (tid, _) in state.threads() {
                drawn.extend(self.rows.iter().map(|row| self.row(state, row, Some(tid))));
            }
        }
        drawn
    }

    fn row(&self, state: &TimelineState, row: &Row, thread: Option<u32>) -> Drawn {
        let unit = Unit::of(row, &state.counters);
        let sums = state.points(row, thread, self.range_ns, self.rolling_ns);
        let own = if self.rolling_ns == 0 {
            sums.clone()
        } else {
            state.points(row, thread, self.range_ns, 0)
        };
        let all = own.iter().fold(Sum::default(), |all, (_, sum)| all.and(*sum));
        let name = |tid: u32| {
            let threads = state.threads();
            let known = threads.into_iter().find(|(known, _)| *known == tid);
            known.map_or_else(String::new, |(_, name)| terminal(name).into_owned())
        };
        // Calls are counted where they begin.
        let scope = without_thresholds(&state.scope);
        let label = events::label(row, &state.counters, &terminal(&scope));
        Drawn {
            row: row.clone(),
            label: match thread {
                None => label.clone(),
                Some(tid) => format!("{} {tid}: {label}", name(tid)),
            },
            counter: label,
            thread,
            unit,
            points: sums
                .into_iter()
                .map(|(end_ns, sum)| (end_ns, unit.value(sum)))
                .collect(),
            mean: unit.value(all),
        }
    }
}

/// Eighths of a character, from the bottom.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of a row's shape where the width is not known.
const COLUMNS: usize = 60;

/// Columns that a row's shape is left beside a long label.
const LEAST_SHAPE: usize = 8;

/// Columns that a label is left, however narrow the screen is.
const LEAST_LABEL: usize = 16;

/// Width of what is before a row's shape, less its label.
const NUMBERS: usize = 36;

/// The table.
#[must_use]
pub fn table(drawn: &[Drawn], width: Option<usize>) -> Vec<Line> {
    let room = width.map_or(usize::MAX, |width| {
        width.saturating_sub(NUMBERS + 2 + LEAST_SHAPE).max(LEAST_LABEL)
    });
    let label = |row: &Drawn| {
        let suffix = row.unit.suffix();
        format!(
            "{}{suffix}",
            cut_middle(&row.label, room.saturating_sub(suffix.len()))
        )
    };
    let longest = drawn
        .iter()
        .map(|row| label(row).chars().count())
        .max()
        .unwrap_or(0);
    let columns = width.map_or(COLUMNS, |width| {
        width.saturating_sub(NUMBERS + longest + 2).min(4 * COLUMNS)
    });
    let mut lines = vec![Line::of(
        Style::Faint,
        format!("{:>10} {:>10} {:>10}  counter", "now", "mean", "max"),
    )];
    for row in drawn {
        let known = row.points.iter().filter_map(|(_, value)| *value);
        let most = known.fold(None, |most: Option<f64>, value| {
            Some(most.map_or(value, |most| most.max(value)))
        });
        let now = row.points.last().and_then(|(_, value)| *value);
        let numbers = [now, row.mean, most].map(|value| format!("{:>10}", row.unit.text(value)));
        let line = Line::of(Style::Plain, numbers.join(" "))
            .and(Style::Strong, format!("  {:<longest$}  ", label(row)));
        lines.push(line.and(Style::Bar, shape(&row.points, most.unwrap_or(0.0), columns)));
    }
    lines
}

/// Points as columns, the last at the right; the highest of a column's own.
fn shape(points: &[(u64, Option<f64>)], most: f64, columns: usize) -> String {
    let width = columns.min(points.len());
    (0..width)
        .map(|column| {
            let (from, to) = (column * points.len() / width, (column + 1) * points.len() / width);
            let known = points[from..to].iter().filter_map(|(_, value)| *value);
            let Some(highest) = known.reduce(f64::max) else {
                return ' ';
            };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
            let eighth = if most > 0.0 {
                (highest / most * 7.0).round().clamp(0.0, 7.0) as usize
            } else {
                0
            };
            BLOCKS[eighth]
        })
        .collect()
}

/// The screen.
#[must_use]
pub fn screen(
    state: &TimelineState,
    view: &View,
    target: &str,
    elapsed: Duration,
    (columns, rows): (usize, usize),
) -> Vec<Line> {
    let seconds = elapsed.as_secs();
    let title = if state.scope.is_empty() {
        "timeline".to_owned()
    } else {
        terminal(&state.scope).into_owned()
    };
    let mut lines = vec![Line::of(Style::Strong, title).and(
        Style::Faint,
        format!("  {target}  {}:{:02}", seconds / 60, seconds % 60),
    )];
    let mut foot = notes(state)
        .into_iter()
        .flat_map(|note| wrapped(Style::Warning, &format!("  {note}"), columns))
        .collect::<Vec<_>>();
    if let Some(cost) = &state.cost {
        foot.push(Line::of(Style::Faint, format!("  {}", text::cost(cost))));
    }
    let room = rows.saturating_sub(lines.len() + foot.len());
    lines.extend(table(&view.drawn(state), Some(columns)).into_iter().take(room));
    lines.extend(foot);
    lines
}

/// What is not there, and what was missed.
#[must_use]
pub fn notes(state: &TimelineState) -> Vec<String> {
    let mut notes = Vec::new();
    if !state.missing.is_empty() {
        let missing = state
            .missing
            .iter()
            .map(|(name, why)| format!("{} ({})", terminal(name), terminal(why)));
        notes.push(format!("not here: {}", missing.collect::<Vec<_>>().join(", ")));
    }
    let last = state.buckets.back();
    for (name, count) in state
        .counters
        .iter()
        .zip(last.into_iter().flat_map(|bucket| &bucket.counts))
    {
        if count.share < 1.0 {
            let share = units::percent(count.share);
            notes.push(format!(
                "{} counted {share} of the time and is scaled: counters take turns",
                terminal(name)
            ));
        }
    }
    if let Some(left_out) = last
        .map(|bucket| bucket.threads_left_out)
        .filter(|left_out| *left_out > 0)
    {
        notes.push(format!("{} threads have no row", units::count(left_out)));
    }
    if state.dropped > 0 {
        notes.push(format!("{} steps were missed", units::count(state.dropped)));
    }
    notes
}

/// The run in a line.
#[must_use]
pub fn summary(state: &TimelineState) -> String {
    let seconds = state.duration_ns as f64 / 1e9;
    let mut text = format!("{seconds:.1} s in {} steps", units::count(state.received));
    for note in notes(state) {
        text.push_str("; ");
        text.push_str(&note);
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::state::timeline::tests::message;

    /// Four buckets of two counters, a ratio and calls.
    pub fn sample() -> (TimelineState, View) {
        let mut state = TimelineState::default();
        for (seq, clock) in [50_000_000, 100_000_000, 0, 50_000_000].into_iter().enumerate() {
            state.apply(message(seq as u64, [clock, 5], 10)).unwrap();
        }
        let view = View {
            rows: vec![Row::Counter(0), Row::Counter(1), Row::Ratio(1, 0)],
            threads: true,
            range_ns: 1 << 40,
            rolling_ns: 0,
        };
        (state, view)
    }

    #[test]
    fn a_row_has_its_numbers_and_its_shape() {
        let (state, view) = sample();
        let text: Vec<String> = table(&view.drawn(&state), Some(120))
            .iter()
            .map(Line::text)
            .collect();
        assert_eq!(text[0], "       now       mean        max  counter");
        let row = |at: usize| text[at].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(row(1), "0.50 0.50 1.00 task-clock (CPUs) ▅█▁▅");
        assert_eq!(row(2), "50 50 50 page-faults (/s) ████");
        assert!(row(3).contains("page-faults/task-clock"));
        assert_eq!(row(4), "100 100 100 calls of serve (/s) ████");
        assert_eq!(row(5), "0.25 0.25 0.50 clerk 7: task-clock (CPUs) ▅█▁▅");
        assert_eq!(row(6), "– – – clerk 7: page-faults (/s)");
    }

    #[test]
    fn a_long_label_leaves_room_for_shapes() {
        let (state, view) = sample();
        let mut drawn = view.drawn(&state);
        drawn[0].label =
            "calls of server::connection::Connection::write_all_buffers in the worker".to_owned();
        for line in table(&drawn, Some(80)) {
            assert!(line.width() <= 80, "{}", line.text());
        }
        let first = table(&drawn, Some(80))[1].text();
        assert!(
            first.contains("calls of ser") && first.ends_with("he worker (CPUs)  ▅█▁▅"),
            "{first}"
        );
    }

    #[test]
    fn what_is_not_there_is_said() {
        let (state, _) = sample();
        assert_eq!(summary(&state), "0.4 s in 4 steps; not here: cycles (none)");
    }
}
