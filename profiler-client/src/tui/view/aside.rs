//! Reasons, waits and system calls.

use super::{spots::Sign, text::Page};
use crate::{
    live::line::{Line, Style},
    render::{escape::terminal, explain, syscalls, timeline, units, waits},
    tui::{
        data::Data,
        lens::{Item, Lens, Pane, path},
    },
};
use profiler_proto::v1;

/// Draws the pane that is shown.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let aside = &data.aside;
    if let Some(failure) = &aside.failure {
        return page.failure(failure);
    }
    let lines = match lens.pane {
        Pane::Waits if aside.waits.started => waits::waits(&aside.waits),
        Pane::Syscalls if aside.syscalls.started => {
            syscalls::syscalls(&aside.syscalls, v1::Grouping::Function)
        }
        Pane::Timeline => return counters(page, lens, data),
        Pane::Explain => match &aside.explained {
            Some(explained) => return reasons(page, lens, data, explained),
            None => return awaited(page, lens, data, "looking at calls …"),
        },
        _ => return awaited(page, lens, data, "looking …"),
    };
    if path::threshold(&lens.scope).is_some() {
        let words = "waits and system calls of all calls: how long a call takes is not known until it ends";
        page.paragraph(Style::Warning, words);
    }
    for line in lines.iter().take(page.rows()) {
        page.line(line);
    }
}

/// What is awaited, or why it does not come.
fn awaited(page: &mut Page<'_>, lens: &Lens, data: &Data, words: &str) {
    let words = match &data.ended {
        Some(why) => format!("nothing more comes: {}", terminal(why)),
        None if lens.frozen => super::nothing_yet(lens, data).to_owned(),
        None => words.to_owned(),
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
        "{} slow calls of {} on average, {} others of {}; {} things looked at: branches, calls, values, waits",
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
        let words = if explained.warming {
            "too few calls have ended so far to say which are slow"
        } else {
            "no difference between slow calls and others so far"
        };
        page.line(&Line::of(Style::Faint, format!("  {words}")));
        return;
    }
    foot(&mut page.foot(1), lens, data);
    page.line(&Line::of(Style::Faint, "   slow  others  at least"));
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
        page.row(&explain::line(finding), is_selected(finding));
    }
}

/// What Enter does.
fn foot(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let next = data
        .selected_finding(lens)
        .map_or("", |finding| finding.next.as_str());
    let line = if next.is_empty() {
        Line::of(Style::Faint, "no scope selects only these calls")
    } else {
        Line::of(Style::Plain, "Enter: ").and(Style::Strong, terminal(next).into_owned())
    };
    page.line(&line);
}
