//! What was lost, by reason and view; what each probed function costs; what is to be known of the probes.

use profiler_proto::v1;
use ratatui::layout::Rect;

use super::{spots::Sign, text::Page};
use crate::{
    live::line::{Line, Style, in_words},
    render::{
        escape::terminal,
        reasons::{Explained, explained},
        text, units,
    },
    state::latency::FunctionState,
    tui::{
        data::{Data, Loss},
        lens::{Item, Lens},
    },
};

/// Rows that losses have at least, where something was lost: their heading, one of them, and what can be done against it.
const LEAST_FOR_LOSSES: usize = 5;

/// What the cost of probes leaves out: the service does not tell what these cost.
const NOT_COUNTED: &str = "  not counted: probes of earlier steps; panes 6 to 9, 0 and events while shown";

/// Draws it: warnings stand above losses, of which there may be many.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let lost = data.losses_by_view();
    let warnings = warnings(data, page.width());
    let for_losses = if lost.is_empty() { 1 } else { LEAST_FOR_LOSSES };
    // Each is followed by an empty line.
    let for_warnings = if warnings.is_empty() {
        0
    } else {
        warnings.len() + 1
    };
    let taken_off = why_selected_is_off(lens, data, page.width());
    let for_probes = 3 + taken_off.len();
    let rest = page.rows().saturating_sub(for_warnings + for_losses + for_probes);
    probes(page, lens, data, rest.min(page.rows() / 2).max(1));
    for line in &taken_off {
        page.line(&Line::of(Style::Warning, line.as_str()));
    }
    page.skip(1);
    if !warnings.is_empty() {
        let room = page.rows().saturating_sub(for_losses + 1).max(1);
        draw_warnings(page, &warnings, room);
        page.skip(1);
    }
    losses(page, lens, &lost, data.cost());
}

/// What is costly or uncertain about the probes, in lines of the screen.
fn warnings(data: &Data, columns: usize) -> Vec<String> {
    let warnings = data.session.as_ref().map_or(&[][..], |session| &session.warnings);
    let lines = warnings
        .iter()
        .flat_map(|warning| in_words(&format!("! {}", terminal(warning)), columns.saturating_sub(4)));
    lines.map(|line| format!("  {line}")).collect()
}

fn draw_warnings(page: &mut Page<'_>, lines: &[String], room: usize) {
    let fits = lines.len() <= room;
    let shown = if fits { room } else { room.saturating_sub(1) };
    for line in lines.iter().take(shown) {
        page.line(&Line::of(Style::Plain, line.as_str()));
    }
    if !fits {
        let more = lines.len() - shown.min(lines.len());
        page.line(&Line::of(
            Style::Faint,
            format!("  … {more} more lines of warnings: a higher terminal shows them"),
        ));
    }
}

/// What was lost, what the selected one of it means and what can be done, and what the daemon costs.
fn losses(page: &mut Page<'_>, lens: &Lens, lost: &[Loss], cost: Option<&v1::Cost>) {
    let selected = lost
        .iter()
        .position(|loss| matches!(lens.selection(), Some(Item::Loss(id)) if *id == loss.id));
    let Some(explained_loss) = lost.get(selected.unwrap_or(0)) else {
        page.line(&Line::of(Style::Faint, "  nothing was lost"));
        draw_cost(page, cost);
        return;
    };
    page.line(&Line::of(
        Style::Faint,
        "       LOST  REASON, AND THE VIEW THAT LACKS IT (↑↓ selects one to explain)",
    ));
    let words = words_of(explained_loss);
    let for_words = words
        .as_ref()
        .map_or(0, |words| in_words(words, page.width().saturating_sub(4)).len());
    let room = page.rows().saturating_sub(for_words).clamp(1, lost.len());
    let mut list = page.part(Rect {
        height: u16::try_from(room).unwrap_or(u16::MAX).min(page.area.height),
        ..page.area
    });
    let begin = list.first(lens, selected.unwrap_or(0), lost.len());
    for (at, loss) in lost.iter().enumerate().skip(begin).take(room) {
        list.sign(Sign::item(Item::Loss(loss.id.clone())));
        let line = Line::of(
            Style::Warning,
            format!("{:>11}  {}", units::count(loss.count), terminal(&loss.id.reason)),
        );
        list.row(
            &line.and(Style::Faint, format!("  {}", loss.id.view)),
            Some(at) == selected,
        );
    }
    page.skip(u16::try_from(room).unwrap_or(u16::MAX));
    if let Some(words) = words {
        page.paragraph(Style::Faint, &words);
    }
    draw_cost(page, cost);
}

/// What a loss means and what can be done; `None` of one that a newer service has.
fn words_of(loss: &Loss) -> Option<String> {
    let Explained { meaning, advice } = explained(&loss.id.reason)?;
    let reason = terminal(&loss.id.reason);
    Some(format!("{reason}: {meaning}. What to do: {advice}."))
}

fn draw_cost(page: &mut Page<'_>, cost: Option<&v1::Cost>) {
    if let Some(cost) = cost {
        page.skip(1);
        page.line(&Line::of(Style::Faint, format!("  {}", text::cost(cost))));
    }
}

/// Functions with probes, and what these take of the target's time, in so many rows below their heading.
fn probes(page: &mut Page<'_>, lens: &Lens, data: &Data, room: usize) {
    let functions = &data.latency.functions;
    if functions.is_empty() {
        let last = profiler_scope::parse(&lens.scope).ok();
        let is_of_function = last.is_none_or(|scope| scope.last().is_none_or(|step| step.place.has_spans()));
        let words = if lens.scope.is_empty() || is_of_function {
            "no function has probes: samples alone cost the target nothing but their interrupts; what waits, system calls, events and \
             explain cost it while they are looked at is not counted here"
        } else {
            "what each of the probes costs is known of functions that are the last step, and not of others: the last line but one has \
             the share of all, where it matters"
        };
        return page.paragraph(Style::Faint, words);
    }
    let heading = format!(
        "{:>11} {:>10} {:>11}  PROBED, Enter: its source",
        "CALLS/S", "EACH", "OF A CORE"
    );
    page.line(&Line::of(Style::Faint, heading));
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
    page.line(&Line::of(Style::Faint, NOT_COUNTED));
}

/// Why the probes of the selected function were taken off, in lines of the screen; none where they are on, or that is said above all panes.
fn why_selected_is_off(lens: &Lens, data: &Data, columns: usize) -> Vec<String> {
    let functions = data.latency.functions.iter();
    let taken_off = functions.filter_map(|(id, function)| Some((id, function, function.taken_off.as_ref()?)));
    // Above all panes stands that of the first.
    let mut others = taken_off.skip(1);
    let is_selected = |id: &u32| matches!(lens.selection(), Some(Item::Probed(selected)) if selected == id);
    let Some((_, function, why)) = others.find(|(id, ..)| is_selected(id)) else {
        return Vec::new();
    };
    let name = text::name(&function.function);
    let words = format!("{name} was taken off: {}", terminal(&why.reason));
    let lines = in_words(&words, columns.saturating_sub(4)).into_iter();
    lines.map(|line| format!("  {line}")).collect()
}

/// What the probes of a function cost; of one whose probes are gone, nothing that changes with the time since.
fn probe(function: &FunctionState) -> Line {
    let is_on = function.taken_off.is_none();
    let now = |words: String| if is_on { words } else { "-".to_owned() };
    let line = Line::of(
        Style::Plain,
        format!(
            "{:>11} {:>10} {:>11}  ",
            now(units::number(function.window.rate_hz)),
            // Recordings do not have it.
            if function.cost_ns == 0 {
                "?".to_owned()
            } else {
                units::duration(function.cost_ns as f64)
            },
            if function.cost_ns == 0 {
                "?".to_owned()
            } else {
                now(units::percent(function.probe_cores()))
            },
        ),
    );
    let line = line.and(Style::Strong, text::name(&function.function));
    if !is_on {
        line.and(Style::Warning, "  taken off")
    } else if function.other_hits_hz > 0.0 {
        let others = units::number(function.other_hits_hz);
        line.and(Style::Faint, format!("  and {others}/s that do not count"))
    } else {
        line
    }
}
