//! Functions by the time in them, as a list and as JSON.

use std::time::Duration;

use serde_json::json;

use super::{escape::terminal, text, threshold, units};
use crate::{
    live::line::{Line, Style, wrapped},
    state::{
        flame::FlameState,
        functions::{FunctionRow, FunctionTimes},
        tree,
    },
};

/// The list as it is redrawn: a heading, as many functions as there is room for, what it costs.
#[must_use]
pub fn screen(
    times: &FunctionTimes,
    state: &FlameState,
    target: &str,
    elapsed: Duration,
    (columns, rows): (usize, usize),
) -> Vec<Line> {
    let seconds = elapsed.as_secs();
    let scope = if state.scope.is_empty() {
        "everything"
    } else {
        &state.scope
    };
    let about = format!(
        "  {target}  {}:{:02}  {} samples  {}",
        seconds / 60,
        seconds % 60,
        units::count(state.summary.samples),
        threshold::describe(&state.scope, &state.summary)
    );
    let mut lines = vec![Line::of(Style::Strong, terminal(scope).into_owned()).and(Style::Faint, about)];
    let lost = state
        .lost()
        .into_iter()
        .map(|(reason, count)| (reason.to_owned(), count))
        .collect();
    let cost = state.cost.as_ref().map(text::cost).unwrap_or_default();
    let foot = wrapped(
        Style::Faint,
        &format!("  {cost}  {}", text::losses(&lost)),
        columns,
    );
    let room = rows.saturating_sub(2 + foot.len());
    lines.extend(self::lines(times, state, room, Some(columns)));
    lines.extend(foot);
    lines
}

/// A heading and a line for each of the first functions.
#[must_use]
pub fn lines(times: &FunctionTimes, state: &FlameState, most: usize, columns: Option<usize>) -> Vec<Line> {
    let heading = format!("{:>7} {:>10} {:>7} {:>10}  FUNCTION", "SELF", "", "TOTAL", "");
    let mut lines = vec![Line::of(Style::Faint, heading)];
    lines.extend(
        times
            .rows
            .iter()
            .take(most)
            .map(|row| line(row, times, &state.unit, columns)),
    );
    lines
}

/// A function.
#[must_use]
pub fn line(row: &FunctionRow, times: &FunctionTimes, unit: &str, columns: Option<usize>) -> Line {
    let share = |part: u64| units::percent(units::ratio(part, times.total.inside_ns));
    let numbers = format!(
        "{:>7} {:>10} {:>7} {:>10}  ",
        share(row.own.inside_ns),
        units::weight(row.own.inside_ns, unit),
        share(row.total.inside_ns),
        units::weight(row.total.inside_ns, unit),
    );
    let inlined = if row.frame.inlined { " (inlined)" } else { "" };
    let name = format!("{}{inlined}", terminal(tree::name(&row.frame)));
    let module = row.frame.module.rsplit('/').next().unwrap_or_default();
    let line = Line::of(Style::Plain, numbers).and(Style::Strong, name);
    let line = line.and(Style::Faint, format!("  {}", terminal(module)));
    columns.map_or(line.clone(), |columns| line.cut(columns))
}

/// The run in a line.
#[must_use]
pub fn summary(state: &FlameState, elapsed: Duration) -> String {
    let mut text = format!(
        "{}, {} samples",
        units::duration(elapsed.as_nanos() as f64),
        units::count(state.summary.samples)
    );
    if !state.scope.is_empty() {
        text.push_str(&format!(", {} inside", units::count(state.summary.inside)));
    }
    let threshold = threshold::describe(&state.scope, &state.summary);
    if !threshold.is_empty() {
        text.push_str(&format!(", {threshold}"));
    }
    text
}

/// An object for each of the first functions, then the summary.
#[must_use]
pub fn json(times: &FunctionTimes, state: &FlameState, most: usize) -> String {
    let mut lines = String::new();
    for row in times.rows.iter().take(most) {
        let frame = &row.frame;
        let object = json!({
            "type": "function_time",
            "schema": 1,
            "function": tree::name(frame),
            "module": frame.module,
            "inlined": frame.inlined,
            "self_ns": row.own.inside_ns,
            "self_samples": row.own.inside_samples,
            "total_ns": row.total.inside_ns,
            "total_samples": row.total.inside_samples,
        });
        lines.push_str(&format!("{object}\n"));
    }
    let summary = json!({
        "type": "summary",
        "schema": 1,
        "scope": state.scope,
        "functions": times.rows.len(),
        "time_ns": times.total.inside_ns,
        "samples": state.summary.samples,
        "inside": state.summary.inside,
        "lost": state.lost(),
    });
    lines.push_str(&format!("{summary}\n"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::functions::Sort;

    #[test]
    fn losses_for_many_reasons_take_the_lines_that_they_need() {
        let mut state = FlameState::default();
        let lost = (0..12).map(|number| (format!("a_reason_{number}"), 123_456));
        state.summary.lost = lost.collect();
        let times = FunctionTimes::of(&state, Sort::default());
        let lines = screen(&times, &state, "pid 7", Duration::ZERO, (80, 24));
        let text: Vec<String> = lines.iter().map(Line::text).collect();
        assert!(text.iter().all(|line| line.chars().count() <= 80), "{text:?}");
        assert_eq!(text.concat().matches("123,456").count(), 12, "{text:?}");
    }
}
