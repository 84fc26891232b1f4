//! Draws a lens on what has come. Nothing here changes either.

mod aside;
mod bar;
mod graph;
mod hits;
mod latency;
mod losses;
mod overlay;
mod processes;
mod source;
mod spans;
mod spots;
#[cfg(test)]
mod tests;
mod text;
pub mod theme;
mod threads;
mod top;

use std::borrow::Cow;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line as Spans, Span},
};

pub use self::spots::Spots;
use self::{spots::Sign, text::Page, theme::Theme};
use super::{
    data::Data,
    keys::{Binding, KEYS, TYPING},
    lens::{Action, Input, LeftScope, Lens, Pane, Purpose, Spot},
};
use crate::{
    live::line::{Line, Style},
    render::{escape::terminal, text as numbers, units},
    state::latency::FunctionState,
};

/// Columns from which on there is room between the names of panes and their keys.
const WIDE: usize = 150;

/// Share of a budget from which on its use is shown as a warning.
const NEAR_BUDGET: f64 = 0.7;

/// Draws all of it. Says what can be pointed at, and where.
pub fn draw(buffer: &mut Buffer, lens: &Lens, data: &Data, theme: Theme) -> Spots {
    let area = buffer.area;
    let mut spots = Spots::default();
    let mut page = Page::new(buffer, &mut spots, theme, area);
    let mut foot = page.foot(2);
    let width = foot.width();
    foot.line(&cost(lens, data, width));
    footer(&mut foot, lens);
    match lens.screen() {
        None => {
            page.line(&Line::of(Style::Strong, "profiler").and(
                Style::Faint,
                "  choose a process or a session: type / to filter, Enter attaches",
            ));
            processes::draw(&mut page, lens, data);
        }
        Some(pane) => {
            let mut top = page.part(Rect {
                height: 3.min(page.area.height),
                ..page.area
            });
            bar::draw(&mut top, lens, data);
            page.skip(3);
            tabs(&mut page, lens, pane);
            probes_gone(&mut page, lens, data);
            match pane {
                Pane::Top => top::draw(&mut page, lens, data),
                Pane::Graph | Pane::Difference => graph::draw(&mut page, lens, data),
                Pane::Latency => latency::draw(&mut page, lens, data),
                Pane::Source => source::draw(&mut page, lens, data),
                Pane::Hits => hits::draw(&mut page, lens, data),
                Pane::Threads => threads::draw(&mut page, lens, data),
                Pane::Sessions => processes::draw_sessions(&mut page, lens, data),
                Pane::Losses => losses::draw(&mut page, lens, data),
                Pane::Explain | Pane::Waits | Pane::Syscalls | Pane::Timeline => {
                    aside::draw(&mut page, lens, data);
                }
                Pane::Spans => spans::draw(&mut page, lens, data),
            }
        }
    }
    let mut all = Page::new(
        buffer,
        &mut spots,
        theme,
        Rect {
            height: area.height.saturating_sub(2),
            ..area
        },
    );
    overlay::draw(&mut all, lens, data);
    spots
}

/// Says which probes were taken off, or that no more of the pane comes, and what to do.
fn probes_gone(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    if let Some(LeftScope { scope, why }) = lens.left_scope() {
        let (scope, why) = (terminal(scope), terminal(why));
        let words =
            format!("`{scope}` is left: {why}; K takes it again and keeps its probes whatever they cost");
        return page.paragraph(Style::Warning, &words);
    }
    let of_hits = data.hits.ended.as_ref().filter(|_| lens.pane == Pane::Hits);
    let of_hits = of_hits.map(|end| format!("no more hits come: {}", end.reason));
    // Each pane with a session of its own says what became of that.
    let of_aside = data
        .aside
        .ended
        .as_ref()
        .filter(|_| data.aside.of.pane == lens.pane);
    let why = of_hits
        .or_else(|| data.taken_off())
        .or_else(|| of_aside.map(|end| end.reason.clone()));
    let Some(why) = why else {
        return;
    };
    let advice = if data.is_over_budget(lens) {
        "; K attaches and keeps them whatever they cost, u takes the edit back"
    } else {
        ""
    };
    page.paragraph(Style::Warning, &format!("{}{advice}", terminal(&why)));
}

/// A pane's key and name, as far as there is room for it.
struct Tab {
    pane: Pane,
    key: String,
    name: String,
}

/// The panes, with their keys. Where there is no room, those with letters are keys alone, and names are cut; `?` has them in full.
fn tabs_of(lens: &Lens, shown: Pane, room: usize) -> Vec<Tab> {
    let longest = Pane::ALL
        .into_iter()
        .map(|pane| pane.name().len())
        .max()
        .unwrap_or(0);
    let panes: Vec<Pane> = Pane::ALL.into_iter().filter(|pane| lens.has(*pane)).collect();
    let tabs = |letters: bool, longest: usize| -> Vec<Tab> {
        let tab = |pane: &Pane| {
            let key = key_of(*pane);
            let has_letter = key.starts_with(|c: char| c.is_alphabetic());
            let cut = if *pane == shown || letters && !has_letter {
                longest.max(if *pane == shown { usize::MAX } else { 0 })
            } else if has_letter && !letters {
                0
            } else {
                longest
            };
            Tab {
                pane: *pane,
                key,
                name: pane.name().chars().take(cut).collect(),
            }
        };
        panes.iter().map(tab).collect()
    };
    let width = |tabs: &[Tab]| {
        tabs.iter()
            .map(|tab| tab.key.len() + tab.name.len() + 1)
            .sum::<usize>()
    };
    let full = tabs(true, longest);
    if width(&full) <= room + 1 {
        return full;
    }
    let shorter = (1..=longest).rev().map(|longest| tabs(false, longest));
    shorter
        .into_iter()
        .find(|tabs| width(tabs) <= room + 1)
        .unwrap_or_default()
}

fn tabs(page: &mut Page<'_>, lens: &Lens, shown: Pane) {
    let mut spans = Vec::new();
    let mut rest = page.area;
    for Tab { pane, key, name } in tabs_of(lens, shown, page.width()) {
        let style = if pane == shown {
            Theme::selected()
        } else {
            page.theme.of(Style::Faint)
        };
        let (within, behind, gap) = if page.width() < WIDE {
            ("", " ", 1)
        } else {
            (" ", "   ", 3)
        };
        let tab = Span::styled(format!("{key}{within}{name}"), style);
        let place = Rect {
            width: u16::try_from(tab.width()).unwrap_or(u16::MAX),
            height: 1.min(rest.height),
            ..rest
        };
        let sign = Sign::Spot(Spot::Pane(pane));
        page.spots.add(place.intersection(rest), sign);
        let taken = place.width.saturating_add(gap).min(rest.width);
        rest.x += taken;
        rest.width -= taken;
        spans.push(tab);
        spans.push(Span::raw(behind));
    }
    page.styled(&Spans::from(spans), ratatui::style::Style::new());
}

/// What is shown of the stacks, where that is not all.
fn shape_line(lens: &Lens, data: &Data) -> Option<Line> {
    let words = lens.shape_in_words();
    if words.is_empty() {
        return None;
    }
    let share = if data.share_left_out > 0.0 {
        format!("{} of all: ", units::percent(1.0 - data.share_left_out))
    } else {
        String::new()
    };
    let words = terminal(&words.join(", ")).into_owned();
    if !data.is_made(lens) {
        return Some(Line::of(Style::Warning, format!("  drawing: {words} …")));
    }
    Some(Line::of(Style::Warning, format!("  {share}{words}")))
}

/// What is not there yet, and why.
fn nothing_yet(lens: &Lens, data: &Data) -> Cow<'static, str> {
    let so_far = nothing_so_far(lens, data);
    if !data.is_over() {
        return so_far.into();
    }
    if data.was_watched(lens) || lens.frozen {
        return format!("{so_far}{HAS_ENDED}").into();
    }
    nothing_watched(lens, data).into()
}

/// Behind what a pane has said of its scope until the end.
const HAS_ENDED: &str = "; the session has ended";

/// What a pane says that has nothing to show, and will not have.
fn nothing_watched(lens: &Lens, data: &Data) -> String {
    let panes = data.panes_with_pictures(lens);
    let panes = panes.into_iter().filter(|pane| Some(*pane) != lens.screen());
    let panes: Vec<String> = panes
        .map(|pane| format!("{} ({})", pane.name(), key_of(pane)))
        .collect();
    let seen = if panes.is_empty() {
        "P chooses another process".to_owned()
    } else {
        format!("still to be seen: {}", panes.join(", "))
    };
    let is_of_stacks = matches!(
        lens.pane,
        Pane::Top | Pane::Graph | Pane::Difference | Pane::Threads
    );
    // The panes of stacks share those that came last.
    let why = if is_of_stacks && data.flame.started {
        "the stacks that came last are of another view"
    } else {
        "nothing was watched here"
    };
    format!("the session has ended, and {why}; {seen}")
}

/// The key that shows a pane.
fn key_of(pane: Pane) -> String {
    let binding = KEYS.iter().find(|binding| binding.action == Action::Show(pane));
    let key = binding.and_then(|binding| binding.keys.first());
    key.map(|key| key.name()).unwrap_or_default()
}

fn nothing_so_far(lens: &Lens, data: &Data) -> &'static str {
    let is_left_out = data.is_made(lens) && data.share_left_out >= 1.0;
    if is_left_out && !lens.shape_shown().hide.is_empty() {
        "every sample has a function that is left out: H edits which; with no text, all are shown"
    } else if lens.is_unattached() {
        "nothing is shown of this scope: e edits it; for another part of the recording, q and --time A..B"
    } else if lens.is_of_recording() && data.ended.is_none() {
        "reading the recording …"
    } else if lens.is_of_recording() {
        "no sample in these calls in this part of the recording"
    } else if lens.attaching {
        "attaching …"
    } else if lens.frozen {
        "the screen is frozen, and nothing had come for this pane: z resumes"
    } else if data.flame.summary.warming {
        "too few calls have ended so far to say which are slow"
    } else if !lens.scope.is_empty() {
        "no sample in these calls so far"
    } else if data.is_over() {
        "no sample came: the process may have been idle"
    } else {
        "no sample so far: the process may be idle"
    }
}

/// What was lost, and what it costs: the target in probes, the daemon in all.
fn cost(lens: &Lens, data: &Data, width: usize) -> Line {
    let lost = data.losses();
    let mut line = Line::default();
    if !lost.is_empty() {
        let mut words = format!("{}  ", numbers::losses(&lost));
        if words.trim_end().chars().count() > width {
            words = format!("lost: for {} reasons, L explains them  ", lost.len());
        }
        line = line.and(Style::Warning, words);
    }
    // What has no room is in the pane of losses (L).
    let fits = |line: &Line, words: &str| line.width() + words.trim_end().chars().count() <= width;
    let calls = data.latency.functions.values();
    let probes: f64 = calls.map(FunctionState::probe_cores).sum();
    let goes_on = data.ended.is_none() || lens.is_of_recording();
    let cost = data.cost().filter(|_| goes_on);
    let probes = match cost.and_then(|cost| cost.budget_use) {
        Some(used) => {
            let is_near = used.taken > NEAR_BUDGET * used.allowed;
            let (taken, allowed) = (units::percent(used.taken), units::percent(used.allowed));
            let words = format!("probes {taken} of the target's time (budget {allowed})  ");
            Some((if is_near { Style::Warning } else { Style::Faint }, words))
        }
        None if probes > 0.0 && goes_on => Some((
            Style::Faint,
            format!("probes {} of a core  ", units::percent(probes)),
        )),
        None => None,
    };
    if let Some((style, words)) = probes.filter(|(_, words)| fits(&line, words)) {
        line = line.and(style, words);
    }
    let daemon = cost.map(numbers::cost);
    if let Some(words) = daemon.filter(|words| fits(&line, words)) {
        line = line.and(Style::Faint, words);
    }
    // What another tool has lost is not known.
    let none = "  lost none";
    let is_none = data.session.is_some() && lost.is_empty() && !lens.has_stacks_alone();
    if is_none && fits(&line, none) {
        line = line.and(Style::Faint, none);
    }
    line
}

/// The keys that matter most here; what is typed, where it is no scope.
fn footer(page: &mut Page<'_>, lens: &Lens) {
    let table: Vec<&Binding> = match &lens.input {
        Some(input) if input.purpose != Purpose::Scope => {
            for line in bar::typed(label(input), input, page.width(), 1) {
                page.line(&line);
            }
            return;
        }
        Some(_) => TYPING.iter().collect(),
        None => {
            let here = KEYS.iter().filter(|binding| binding.is_for(lens));
            here.filter(|binding| has_effect(binding, lens)).collect()
        }
    };
    let mut shown: Vec<&Binding> = table
        .into_iter()
        .filter(|binding| !binding.short.is_empty())
        .collect();
    let width = |binding: &&Binding| name(binding).chars().count() + binding.short.chars().count() + 3;
    let room = page.width();
    // Help and the end stay.
    while shown.len() > 2 && shown.iter().map(width).sum::<usize>() > room {
        shown.remove(shown.len() - 3);
    }
    let line = shown.iter().fold(Line::default(), |line, binding| {
        line.and(Style::Strong, name(binding))
            .and(Style::Faint, format!(" {}  ", binding.short))
    });
    page.line(&line);
}

/// Whether a key would change something as it is now.
fn has_effect(binding: &Binding, lens: &Lens) -> bool {
    match binding.action {
        Action::Nudge(_) => !lens.scope.is_empty(),
        Action::Undo => lens.has_edits(),
        // Conditions on values are those that were recorded.
        Action::Enter => !(lens.is_of_recording() && lens.pane == Pane::Hits),
        _ => true,
    }
}

fn label(input: &Input) -> &'static str {
    match input.purpose {
        Purpose::Scope => "scope ",
        Purpose::Search => "search ",
        Purpose::Print => "values (n,req->len) ",
        Purpose::Part => "part (10s..20s; 10s: the last ten; ..: all) ",
        Purpose::Hide => "leave out (malloc|free|std::*) ",
        Purpose::Fold => "part of who calls it (wrap|std::*) ",
    }
}

fn name(binding: &Binding) -> String {
    binding.keys.first().map(|key| key.name()).unwrap_or_default()
}
