//! Hits with their values, the last at the end.

use profiler_proto::v1;
use profiler_scope::{Scope, Step, expression::Root};
use ratatui::{
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};

use super::{spots::Sign, text::Page, theme::Theme};
use crate::{
    live::line,
    render::{escape::terminal, source_names::cut, trace, units},
    state::trace::TraceState,
    tui::{
        data::{
            Data, HitRow,
            source::{self, RuledOut},
        },
        lens::{Item, Lens, Spot},
    },
};

/// Columns of a place.
const PLACE: usize = 32;
/// Columns of a value in the list; all of it stands below.
const VALUE: usize = 24;
/// The reason of hits that wait for the end of a call around them.
const WAITING: &str = "join_open";

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let hits = &data.hits;
    if let Some(failure) = &hits.failure {
        return page.failure(failure);
    }
    if let Some(row) = data.selected_hit(lens) {
        // The list keeps half of the room.
        let room = page.rows() / 2;
        let rows = u16::try_from(row.hit.values.len().min(room)).unwrap_or(0);
        let mut counts = page.foot(rows + 1);
        foot(&mut counts.foot(1), data);
        let chosen = data.selected_value(lens).map(|(expression, _)| expression);
        selected_values(&mut counts, row, chosen.as_deref());
    } else {
        foot(&mut page.foot(1), data);
    }
    if hits.rows.is_empty() {
        return nothing(page, lens, data);
    }
    if !lens.search.is_empty() {
        page.heading("", lens);
    }
    let rows: Vec<&HitRow> = data.hits_shown(lens).collect();
    if rows.is_empty() {
        let words = "no hit matches the search: a place, a value as in n=12, or a thread; Esc shows all";
        return page.paragraph(line::Style::Faint, words);
    }
    let chosen = match lens.selection() {
        Some(Item::Hit(id)) => rows.iter().position(|row| row.id() == *id),
        _ => None,
    };
    let selected = chosen.unwrap_or(rows.len() - 1);
    let room = page.rows();
    // As long as none is chosen, the last are shown.
    let begin = match chosen {
        Some(_) => page.first(lens, selected, rows.len()),
        None => rows.len().saturating_sub(room),
    };
    let first_ns = hits.rows.front().map_or(0, |row| row.hit.ts_ns);
    let origin_ns = data.recorded_begin_ns().unwrap_or(first_ns);
    let value = data.selected_value(lens).map(|(expression, _)| expression);
    for (at, row) in rows.into_iter().enumerate().skip(begin).take(room) {
        let value = value.as_deref().filter(|_| at == selected);
        let line = line_of(row, origin_ns, value, page.theme);
        page.sign(Sign::item(Item::Hit(row.id())));
        sign_values(page, row, &line);
        page.styled(&line, Style::new());
    }
}

/// What stands in the place of hits, where there are none: why that may be, and what can be done.
fn nothing(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let is_over = data.is_over();
    if is_over && !data.was_watched(lens) {
        return page.paragraph(line::Style::Faint, &super::nothing_yet(lens, data));
    }
    let words = if is_over {
        "no hit came; the session has ended"
    } else if data.hits.starting {
        "attaching …"
    } else if lens.is_of_recording() {
        "no hit of the recorded scope in this part of the recording"
    } else if data.hits.ended.is_some() {
        "no hit came"
    } else {
        "no hit yet"
    };
    page.paragraph(line::Style::Faint, words);
    if lens.is_of_recording() {
        return;
    }
    let Ok(scope) = profiler_scope::parse(&lens.scope) else {
        return;
    };
    let is_quiet = data.hits.is_quiet || is_over || data.hits.ended.is_some();
    let why_none = match ruled_out(lens, data, &scope) {
        Some(why_none) => why_none,
        None if is_quiet => quiet(lens, data, &scope),
        None => return,
    };
    page.skip(1);
    page.paragraph(line::Style::Warning, &terminal(&why_none.why));
    // Nothing can be done about what has ended.
    if !is_over && data.hits.ended.is_none() {
        page.paragraph(line::Style::Plain, &format!("What to do: {}.", why_none.advice));
    }
}

/// Why there is no hit, in a sentence, and what can be done.
struct WhyNone {
    why: String,
    advice: String,
}

/// The key that takes the last step back: that of the last edit, if this was what added the step.
fn step_back(lens: &Lens) -> &'static str {
    if lens.last_edit_added_a_step() {
        "u takes the step back"
    } else {
        "e edits the scope"
    }
}

/// The branch before that passes the place over, by the source that was shown; asked only while nothing says that it was reached.
fn ruled_out(lens: &Lens, data: &Data, scope: &Scope) -> Option<WhyNone> {
    if data.hits.state.reached > 0 {
        return None;
    }
    let source = data.source_of_scope(&lens.scope)?;
    let RuledOut { branch, goes_on_at } = source::ruled_out(source, scope)?;
    let place = &scope.last()?.place;
    Some(WhyNone {
        why: format!(
            "`{place}` seems to lie on the other way of `{branch}`, which goes on at line {goes_on_at}: calls that take that way may never \
             come to it."
        ),
        advice: format!(
            "{}; in the source (5), ← and → choose the other way of the branch",
            step_back(lens)
        ),
    })
}

/// Why there is no hit, by what was counted.
fn quiet(lens: &Lens, data: &Data, scope: &Scope) -> WhyNone {
    let state = &data.hits.state;
    let reached = state.reached.max(state.rejected);
    let not_rejected = reached - state.rejected;
    match trace::reasons(&state.lost) {
        Some(reasons) => lost(state, reached, &reasons),
        None if reached == 0 => not_reached(lens, data, scope),
        None if not_rejected == 0 => rejected(lens, scope, reached),
        None => WhyNone {
            why: format!(
                "The place was reached {}, and what became of {} of these hits is not known yet.",
                times(reached),
                units::count(not_rejected)
            ),
            advice: "wait for the next ones".to_owned(),
        },
    }
}

/// There were hits, and they were lost, or wait for the end of the calls around them.
fn lost(state: &TraceState, reached: u64, reasons: &str) -> WhyNone {
    let why = match (reached, state.rejected) {
        (0, _) => format!("What came of the place was lost: {reasons}."),
        (_, 0) => format!(
            "The place was reached {}, and no hit is shown: {reasons}.",
            times(reached)
        ),
        (_, rejected) => format!(
            "The place was reached {}, and no hit is shown: {} not as the scope asks; {reasons}.",
            times(reached),
            units::count(rejected)
        ),
    };
    let mut counts = state.lost.iter().filter(|(_, count)| **count > 0);
    let all_wait = counts.all(|(reason, _)| reason == WAITING);
    let advice = if all_wait {
        "wait: hits in calls whose duration is asked for are shown when these end"
    } else {
        "L explains each reason"
    };
    WhyNone {
        why,
        advice: advice.to_owned(),
    }
}

/// All hits were ruled out: by durations of calls, or by values.
fn rejected(lens: &Lens, scope: &Scope, reached: u64) -> WhyNone {
    let has_durations = scope.steps.iter().any(|step| !step.predicates.is_empty());
    let has_values = scope.steps.iter().any(|step| !step.conditions.is_empty());
    let reached = times(reached);
    match (has_durations, has_values) {
        (true, false) => WhyNone {
            why: format!(
                "The place was reached {reached}, each time in a call whose duration is not as asked."
            ),
            advice: format!("< and > move the duration that is asked for; {}", step_back(lens)),
        },
        (true, true) => WhyNone {
            why: format!(
                "The place was reached {reached}, and each time the duration of a call or a value was not as the scope asks."
            ),
            advice: "e edits the conditions".to_owned(),
        },
        (false, _) => WhyNone {
            why: format!(
                "The place was reached {reached}, and the conditions of the scope did not hold once."
            ),
            advice: "e edits the conditions".to_owned(),
        },
    }
}

/// No hit was counted: of which step none was, where that is known.
fn not_reached(lens: &Lens, data: &Data, scope: &Scope) -> WhyNone {
    let count = |step: &Step| {
        let counted = data.counts.get(&step.to_string());
        counted.map(|counted| counted.count)
    };
    let counted: Vec<Option<u64>> = scope.steps.iter().map(count).collect();
    let missed = counted.iter().position(|count| *count == Some(0));
    let count_before = missed.and_then(|at| counted[at.checked_sub(1)?]);
    let back = step_back(lens);
    match (missed, count_before) {
        (Some(at), Some(count)) => WhyNone {
            why: format!(
                "`{}` was reached {}, and `{}` not once inside of it: it may lie on another way of a branch, or be reached in other \
                 calls alone.",
                as_counted(&scope.steps[at - 1]),
                times(count),
                as_counted(&scope.steps[at])
            ),
            advice: format!(
                "{back}; the source (5) has the branches before the line, and how often lines are reached"
            ),
        },
        (Some(0), _) => WhyNone {
            why: format!(
                "`{}` was not reached so far, so nothing inside of it was.",
                as_counted(&scope.steps[0])
            ),
            advice: format!("wait for such a call, or {back}; 1 shows the functions that run"),
        },
        _ => WhyNone {
            why: "The place was not reached in such calls so far: it may lie on another way of a branch, or be reached in other calls alone."
                .to_owned(),
            advice: format!("{back}; the source (5) has the branches before the line"),
        },
    }
}

/// What is counted of a step: whatever its calls take and return, which is not known when they begin.
fn as_counted(step: &Step) -> String {
    let mut step = step.clone();
    step.predicates.clear();
    if step.place.has_spans() {
        step.conditions
            .retain(|condition| condition.expression.root != Root::Return);
    }
    step.to_string()
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{} times", units::count(count)),
    }
}

/// Spans of each value in a line of hits: what is before it, its name, itself.
const SPANS_OF_VALUE: usize = 3;

/// The values in the next line, which is that of the hit.
fn sign_values(page: &mut Page<'_>, row: &HitRow, line: &Line<'_>) {
    let of_values = row.hit.values.len() * SPANS_OF_VALUE;
    let (before, values) = line.spans.split_at(line.spans.len().saturating_sub(of_values));
    let width = |spans: &[Span<'_>]| {
        let columns: usize = spans.iter().map(Span::width).sum();
        u16::try_from(columns).unwrap_or(u16::MAX)
    };
    let mut x = page.area.x.saturating_add(width(before));
    for (value, spans) in row.hit.values.iter().zip(values.chunks(SPANS_OF_VALUE)) {
        let place = Rect {
            x,
            width: width(spans),
            height: 1,
            ..page.area
        };
        page.spots.add(place.intersection(page.area), sign_of(row, value));
        x = x.saturating_add(place.width);
    }
}

fn sign_of(row: &HitRow, value: &v1::HitValue) -> Sign {
    Sign::Spot(Spot::Value {
        hit: row.id(),
        expression: value.expression.clone(),
    })
}

fn line_of(row: &HitRow, origin_ns: u64, chosen: Option<&str>, theme: Theme) -> Line<'static> {
    let since_s = row.hit.ts_ns.saturating_sub(origin_ns) as f64 / 1e9;
    let place = line::cut_middle(&trace::place(&row.place), PLACE);
    let mark = if chosen.is_some() { "▸" } else { " " };
    let mut spans = vec![
        Span::styled(
            format!("{mark}{since_s:9.3} s {:>8}  ", row.hit.tid),
            theme.of(line::Style::Faint),
        ),
        Span::styled(place, theme.of(line::Style::Strong)),
    ];
    if let Some(duration_ns) = row.hit.duration_ns {
        spans.push(Span::raw(format!(" {:>9}", units::duration(duration_ns as f64))));
    }
    for value in &row.hit.values {
        let name = format!("{}=", terminal(&value.expression));
        spans.push(Span::raw("  "));
        let (text, style) = match trace::shown(value) {
            Ok(text) => (cut(&text, VALUE), line::Style::Plain),
            Err(why_not) => (why_not, line::Style::Warning),
        };
        let mut styles = (theme.of(line::Style::Faint), theme.of(style));
        if chosen == Some(value.expression.as_str()) {
            styles = (Theme::selected(), Theme::selected().add_modifier(Modifier::BOLD));
        }
        spans.push(Span::styled(name, styles.0));
        spans.push(Span::styled(text, styles.1));
    }
    Line::from(spans)
}

/// All values of a hit, a line each.
fn selected_values(page: &mut Page<'_>, row: &HitRow, chosen: Option<&str>) {
    for value in &row.hit.values {
        let style = if chosen == Some(value.expression.as_str()) {
            Theme::selected()
        } else {
            Style::new()
        };
        let kind = match value.r#type.as_str() {
            "" => String::new(),
            name => format!("  {}", terminal(name)),
        };
        let (Ok(text) | Err(text)) = trace::shown(value);
        page.sign(sign_of(row, value));
        page.styled(
            &Line::from(vec![
                Span::styled(
                    format!("  {} = ", terminal(&value.expression)),
                    page.theme.of(line::Style::Strong),
                ),
                Span::raw(text),
                Span::styled(kind, page.theme.of(line::Style::Faint)),
            ]),
            style,
        );
    }
}

/// The counts.
fn foot(page: &mut Page<'_>, data: &Data) {
    let state = &data.hits.state;
    if !state.started {
        return;
    }
    let mut text = format!(
        "{} hits, {} of them shown, {} rejected by conditions",
        units::count(state.reached),
        units::count(state.shown),
        units::count(state.rejected)
    );
    if let Some(reasons) = trace::reasons(&state.lost) {
        text.push_str(&format!("; not shown: {reasons}"));
    }
    page.line(&line::Line::of(line::Style::Faint, text));
}
