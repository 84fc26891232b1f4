//! Hits with their values, the last at the end.

use profiler_proto::v1;
use profiler_scope::Scope;
use ratatui::{
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};

use super::{spots::Sign, text::Page, theme::Theme};
use crate::{
    live::line,
    render::{escape::terminal, source_names::cut, trace, units},
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
    let chosen = match lens.selection() {
        Some(Item::Hit(id)) => hits.rows.iter().position(|row| row.id() == *id),
        _ => None,
    };
    let selected = chosen.unwrap_or(hits.rows.len() - 1);
    let room = page.rows();
    // As long as none is chosen, the last are shown.
    let begin = match chosen {
        Some(_) => page.first(lens, selected, hits.rows.len()),
        None => hits.rows.len().saturating_sub(room),
    };
    let first_ns = hits.rows.front().map_or(0, |row| row.hit.ts_ns);
    let origin_ns = data.recorded_begin_ns().unwrap_or(first_ns);
    let value = data.selected_value(lens).map(|(expression, _)| expression);
    for (at, row) in hits.rows.iter().enumerate().skip(begin).take(room) {
        let value = value.as_deref().filter(|_| at == selected);
        let line = line_of(row, origin_ns, value, page.theme);
        page.sign(Sign::item(Item::Hit(row.id())));
        sign_values(page, row, &line);
        page.styled(&line, Style::new());
    }
}

/// What stands in the place of hits, where there are none: why that may be, and what can be done.
fn nothing(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    if data.is_over() {
        return page.paragraph(line::Style::Faint, &super::nothing_yet(lens, data));
    }
    let words = match (lens.is_of_recording(), data.hits.starting) {
        (true, false) => "no hit of the recorded scope in this part of the recording",
        (_, true) => "attaching …",
        (false, false) => "no hit yet",
    };
    page.paragraph(line::Style::Faint, words);
    if lens.is_of_recording() {
        return;
    }
    let Ok(scope) = profiler_scope::parse(&lens.scope) else {
        return;
    };
    let ruled_out = data.source.as_deref();
    if let Some(ruled_out) = ruled_out.and_then(|source| source::ruled_out(source, &scope)) {
        page.skip(1);
        let line = scope
            .last()
            .map(|step| step.place.to_string())
            .unwrap_or_default();
        let RuledOut { branch, goes_on_at } = ruled_out;
        let words = format!(
            "`{line}` seems to lie on the other way of `{branch}`, which goes on at line {goes_on_at}: calls that take that way may never \
             come to it."
        );
        page.paragraph(line::Style::Warning, &terminal(&words));
        page.paragraph(
            line::Style::Plain,
            "What to do: u takes the line back; in the source (5), ← and → choose the other way of the branch.",
        );
    } else if data.hits.is_quiet {
        page.skip(1);
        let Quiet { why, advice } = quiet(&scope, data);
        page.paragraph(line::Style::Warning, &terminal(&why));
        page.paragraph(line::Style::Plain, &format!("What to do: {advice}."));
    }
}

/// Why no hit may come, in a sentence, and what can be done.
struct Quiet {
    why: String,
    advice: &'static str,
}

fn quiet(scope: &Scope, data: &Data) -> Quiet {
    let rejected = data.hits.state.rejected;
    if rejected > 0 {
        return Quiet {
            why: format!(
                "The place was reached {}, and the conditions of the scope did not hold once.",
                times(rejected)
            ),
            advice: "e edits the conditions",
        };
    }
    let steps = scope.steps.iter().map(ToString::to_string);
    let counted: Vec<(String, Option<u64>)> = steps
        .map(|step| {
            let count = data.counts.get(&step).map(|counted| counted.count);
            (step, count)
        })
        .collect();
    let missed = counted.iter().position(|(_, count)| *count == Some(0));
    let before = missed.and_then(|at| counted.get(at.checked_sub(1)?));
    match (missed, before) {
        (Some(at), Some((before, Some(count)))) => Quiet {
            why: format!(
                "`{before}` was reached {}, and `{}` not once inside of it: it may lie on another way of a branch, or be reached in other \
                 calls alone.",
                times(*count),
                counted[at].0
            ),
            advice: "u takes the step back; the source (5) has the branches before the line, and how often lines are reached",
        },
        (Some(0), _) => Quiet {
            why: format!("`{}` was not reached so far, so nothing inside of it was.", counted[0].0),
            advice: "wait for such a call, or u takes the step back; 1 shows the functions that run",
        },
        _ if scope.steps.iter().any(|step| !step.predicates.is_empty()) => Quiet {
            why: "No such call had a hit there so far: hits in slow calls are shown when these end, and the line may not be reached in them."
                .to_owned(),
            advice: "< takes more calls; u takes the step back",
        },
        _ => Quiet {
            why: "The place was not reached in such calls so far: it may lie on another way of a branch, or be reached in other calls alone."
                .to_owned(),
            advice: "u takes the step back; the source (5) has the branches before the line",
        },
    }
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
