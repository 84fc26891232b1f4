//! Reasons, waits and system calls.

use super::{spots::Sign, text::Page};
use crate::{
    live::line::{Line, Style},
    render::{self, escape::terminal, explain, timeline, units},
    tui::{
        data::Data,
        lens::{Item, Lens, Pane, path, sampled_function},
    },
};
use profiler_proto::v1;

/// Draws the pane that is shown.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let aside = &data.aside;
    if let Some(failure) = &aside.failure {
        return page.failure(failure);
    }
    match lens.pane {
        Pane::Waits if aside.waits.started => waits(page, lens, data),
        Pane::Syscalls if aside.syscalls.started => syscalls(page, lens, data),
        Pane::Timeline => counters(page, lens, data),
        Pane::Explain => match &aside.explained {
            Some(explained) => reasons(page, lens, data, explained),
            None => awaited(page, lens, data, "looking at calls …"),
        },
        _ => awaited(page, lens, data, "looking …"),
    }
}

/// A row, and what it selects.
struct ListRow {
    line: Line,
    item: Option<Item>,
}

fn waits(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let state = &data.aside.waits;
    if state.waits == 0 {
        let none = if lens.is_of_recording() {
            "no wait ended in this part of the recording, in calls of the recorded scope"
        } else {
            "no wait has ended so far; one that goes on is not counted yet"
        };
        let elsewhere = if lens.scope.is_empty() {
            "; who could run and has no CPU waits for nobody"
        } else {
            "; calls that could run and had no CPU waited for nobody: graph (2) and spans (0) show that time as [runnable]"
        };
        return page.paragraph(Style::Faint, &[none, elsewhere].concat());
    }
    let frame = data.selected_wait(lens);
    let frame = frame.and_then(|node| render::waits::own_frame(state, node));
    let place = frame.and_then(path::place_of);
    let next = place.map(|place| terminal(&place.to_string()).into_owned());
    let rows = render::waits::rows(state).into_iter();
    let rows = rows.map(|row| ListRow {
        line: row.line,
        item: row.node.map(|number| Item::Wait(state.path(number))),
    });
    list(page, lens, &render::waits::heading(), rows.collect(), next);
}

fn syscalls(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let state = &data.aside.syscalls;
    if state.syscalls.is_empty() {
        let words = if lens.is_of_recording() {
            "no system call returned in this part of the recording, in calls of the recorded scope"
        } else {
            "no system call has returned so far"
        };
        return page.paragraph(Style::Faint, words);
    }
    let next = match lens.selection() {
        Some(Item::SystemCall(name)) => Some(format!("syscall:{}", terminal(name))),
        _ => None,
    };
    let numbered = render::syscalls::Numbered::Fully;
    let rows = render::syscalls::rows(state, v1::Grouping::Function, numbered).into_iter();
    let rows = rows.map(|row| ListRow {
        line: row.line,
        item: row.name.map(Item::SystemCall),
    });
    list(
        page,
        lens,
        &render::syscalls::heading(numbered),
        rows.collect(),
        next,
    );
}

/// Rows, some of which can be selected, and what Enter times.
fn list(page: &mut Page<'_>, lens: &Lens, heading: &Line, rows: Vec<ListRow>, next: Option<String>) {
    if path::threshold(&lens.scope).is_some() {
        let words = "of all calls: how long a call takes is not known until it ends";
        page.paragraph(Style::Warning, words);
    }
    let foot = match next {
        Some(next) => Line::of(Style::Plain, "Enter: times ").and(Style::Strong, next),
        None => Line::of(Style::Faint, "no function of the program is known here"),
    };
    page.foot(1).line(&foot);
    page.line(heading);
    let is_selected = |row: &ListRow| row.item.is_some() && row.item.as_ref() == lens.selection();
    let selected = rows.iter().position(is_selected).unwrap_or(0);
    let begin = page.first(lens, selected, rows.len());
    let room = page.rows();
    for row in rows.into_iter().skip(begin).take(room) {
        let is_selected = is_selected(&row);
        if let Some(item) = row.item {
            page.sign(Sign::item(item));
        }
        page.row(&row.line, is_selected);
    }
}

/// What is awaited, or why it does not come.
fn awaited(page: &mut Page<'_>, lens: &Lens, data: &Data, words: &str) {
    // Each view of a recording comes to its own end.
    let words = if data.is_over() || lens.frozen {
        super::nothing_yet(lens, data)
    } else {
        words.into()
    };
    page.paragraph(Style::Faint, &words);
}

fn counters(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let drawn = data.counters();
    if drawn.is_empty() {
        return awaited(page, lens, data, "counting …");
    }
    let words = "Enter: where the selected counter counts, as a flame graph";
    page.foot(1).line(&Line::of(Style::Faint, words));
    let lines = timeline::table(&drawn, Some(page.width()));
    let mut lines = lines.iter();
    lines.next().into_iter().for_each(|heading| page.line(heading));
    for (line, drawn) in lines.zip(&drawn) {
        let is_selected = matches!(lens.selection(), Some(Item::Counter(label)) if *label == drawn.label);
        page.sign(Sign::item(Item::Counter(drawn.label.clone())));
        page.row(line, is_selected);
    }
    for note in timeline::notes(&data.aside.timeline) {
        page.paragraph(Style::Faint, &note);
    }
}

fn reasons(page: &mut Page<'_>, lens: &Lens, data: &Data, explained: &v1::WatchExplainResponse) {
    let (slow, other) = (
        explained.slow.unwrap_or_default(),
        explained.other.unwrap_or_default(),
    );
    let heading = format!(
        "{} slow calls of {} on average, {} others of {}; looked at: {} of branches, calls, values and waits",
        units::count(slow.calls),
        units::duration(slow.mean_ns),
        units::count(other.calls),
        units::duration(other.mean_ns),
        units::count(explained.features.into()),
    );
    page.paragraph(Style::Strong, &heading);
    if let Some(words) = explain::unjudged(explained) {
        page.paragraph(Style::Faint, &words);
    }
    let findings: Vec<&v1::Finding> = data.findings().collect();
    if findings.is_empty() {
        let words = match (explained.warming, lens.is_of_recording()) {
            (true, false) => "too few calls have ended so far to say which are slow",
            (false, false) => "no difference between slow calls and others so far",
            (true, true) => "too few calls in this part of the recording to say which are slow",
            (false, true) => "no difference between slow calls and others in this part of the recording",
        };
        page.line(&Line::of(Style::Faint, format!("  {words}")));
        return;
    }
    foot(&mut page.foot(1), lens, data);
    page.line(&Line::of(Style::Faint, explain::HEADING));
    let is_selected = |finding: &v1::Finding| match lens.selection() {
        Some(Item::Finding(text)) => finding.text == *text,
        _ => false,
    };
    let selected = findings
        .iter()
        .position(|finding| is_selected(finding))
        .unwrap_or(0);
    let room = page.rows();
    let begin = page.first(lens, selected, findings.len());
    for finding in findings.iter().skip(begin).take(room) {
        page.sign(Sign::item(Item::Finding(finding.text.clone())));
        let line = explain::line_with_text(finding, data.source.as_deref());
        page.row(&line, is_selected(finding));
    }
}

/// What Enter does.
fn foot(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let finding = data.selected_finding(lens);
    let next = finding.map_or("", |finding| finding.next.as_str());
    let line = match finding.and_then(sampled_function) {
        Some(function) if next.is_empty() => {
            let words = format!("`{}` in the flame graph", terminal(function));
            Line::of(Style::Plain, "Enter: ").and(Style::Strong, words)
        }
        _ if next.is_empty() => Line::of(Style::Faint, "no scope selects only these calls"),
        _ => Line::of(Style::Plain, "Enter: ").and(Style::Strong, terminal(next).into_owned()),
    };
    page.line(&line);
}
