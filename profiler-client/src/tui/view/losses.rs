//! What was lost, by reason and view; what each probed function costs; what is to be known of the probes.

use ratatui::layout::Rect;

use super::{spots::Sign, text::Page};
use crate::{
    live::line::{Line, Style},
    render::{
        escape::terminal,
        reasons::{Explained, explained},
        text, units,
    },
    state::latency::FunctionState,
    tui::{
        data::Data,
        lens::{Item, Lens},
    },
};

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    probes(page, lens, data);
    page.skip(1);
    let lost = data.losses_by_view();
    if lost.is_empty() {
        page.line(&Line::of(Style::Faint, "  nothing was lost"));
    } else {
        page.line(&Line::of(
            Style::Faint,
            "       LOST  REASON, AND THE VIEW THAT LACKS IT",
        ));
    }
    for loss in lost {
        let line = Line::of(
            Style::Warning,
            format!("{:>11}  {}", units::count(loss.count), terminal(&loss.reason)),
        );
        page.line(&line.and(Style::Faint, format!("  {}", loss.view)));
        if let Some(Explained { meaning, advice }) = explained(&loss.reason) {
            page.paragraph(Style::Faint, &format!("{meaning}. What to do: {advice}."));
        }
    }
    let warnings = data.session.as_ref().map_or(&[][..], |session| &session.warnings);
    if !warnings.is_empty() {
        page.skip(1);
    }
    for warning in warnings {
        page.paragraph(Style::Plain, &format!("! {}", terminal(warning)));
    }
    if let Some(cost) = data.cost() {
        page.skip(1);
        page.line(&Line::of(Style::Faint, format!("  {}", text::cost(cost))));
    }
}

/// Functions with probes, and what these take of the target's time.
fn probes(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let functions = &data.latency.functions;
    if functions.is_empty() {
        page.line(&Line::of(
            Style::Faint,
            "  no function has probes: samples alone cost the target nothing but their interrupts",
        ));
        return;
    }
    let heading = format!(
        "{:>11} {:>10} {:>11}  PROBED, Enter: its source",
        "CALLS/S", "EACH", "OF A CORE"
    );
    page.line(&Line::of(Style::Faint, heading));
    // Losses have some room left.
    let room = (page.rows() / 2).max(1);
    let selected = functions
        .keys()
        .position(|id| matches!(lens.selection(), Some(Item::Probed(selected)) if selected == id));
    let list = page.part(Rect {
        height: u16::try_from(room).unwrap_or(u16::MAX).min(page.area.height),
        ..page.area
    });
    let begin = list.first(lens, selected.unwrap_or(0), functions.len());
    for (at, (id, function)) in functions.iter().enumerate().skip(begin).take(room) {
        page.sign(Sign::item(Item::Probed(*id)));
        page.row(&probe(function), Some(at) == selected);
    }
}

fn probe(function: &FunctionState) -> Line {
    let rate = function.window.rate_hz;
    let share = function.cost_ns as f64 * rate / 1e9;
    let line = Line::of(
        Style::Plain,
        format!(
            "{:>11} {:>10} {:>11}  ",
            units::number(rate),
            units::duration(function.cost_ns as f64),
            units::percent(share),
        ),
    );
    let line = line.and(Style::Strong, text::name(&function.function));
    if function.taken_off.is_empty() {
        line
    } else {
        line.and(
            Style::Warning,
            format!("  taken off: {}", terminal(&function.taken_off)),
        )
    }
}
