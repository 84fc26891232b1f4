//! What is drawn over the screen: all keys, the command line, suggestions, what went wrong.

use ratatui::{
    layout::Rect,
    widgets::{Block, Clear, Widget},
};

use super::{spots::Sign, text::Page};
use crate::{
    live::line::{Line, Style, in_words},
    render::escape::terminal,
    tui::{
        data::Data,
        keys::{Binding, KEYS, On, TYPING},
        lens::{Action, Costly, Input, Lens, Overlay, Purpose, Wanted, of_screen, of_url, of_verb, quoted},
    },
};

/// What scopes are made of, by examples that each parse.
const SCOPES: [(&str, &str); 11] = [
    ("handle", "calls of a function; all of its name"),
    (
        "\"std::List<int>::add\"",
        "other characters need quotes; han* is a pattern",
    ),
    ("handle[>= p95]", "the slowest 5% of its calls; [> 10ms], [< p50]"),
    ("handle[n == 3]", "calls with a value; [str(name) == \"x\"]"),
    (
        "handle[arg0 != 0]",
        "without debug information: arg0 to arg5, (int)arg1",
    ),
    ("handle/parse", "a function inside of calls of another; / goes on"),
    ("handle/main.c:12", "a line; alone, its hits are shown (6)"),
    (
        "handle/main.c:12!taken",
        "its branch, where it is taken; !else: where not",
    ),
    ("handle/parse@main.c:12", "the calls that are made at a line"),
    ("parse@inlined", "a function where it is inlined"),
    ("syscall:read", "a system call; kernel:vfs_read: of the kernel"),
];

fn scopes() -> Vec<Line> {
    let row = |(scope, words): (&str, &str)| {
        Line::of(Style::Strong, format!("{scope:<24}")).and(Style::Plain, words)
    };
    SCOPES.into_iter().map(row).collect()
}

/// Panes in a row of the help.
const PANES_IN_ROW: usize = 4;

/// Lines above suggestions: the target, and what is typed.
const LINES_ABOVE: u16 = 3;

/// Suggestions that are shown.
const SUGGESTIONS: usize = 10;

/// Draws what there is.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    match lens.overlay {
        Overlay::None => {}
        Overlay::Help => boxed(
            page,
            " keys of this pane (? again: of all panes; any key closes) ",
            &help(lens, true),
        ),
        Overlay::MoreHelp => boxed(
            page,
            " keys of all panes (? again: scopes; any key closes) ",
            &help(lens, false),
        ),
        Overlay::Scopes => boxed(page, " scopes: e edits them (any key closes) ", &scopes()),
        Overlay::Screen => command(
            page,
            " this screen's command line, for the terminal's clipboard (y again: for scripts) ",
            &quoted(&of_screen(lens)),
        ),
        Overlay::Verb => command(
            page,
            " for scripts, for the terminal's clipboard (y again: a URL) ",
            &quoted(&of_verb(lens)),
        ),
        Overlay::Url => command(
            page,
            " a URL that shows this screen, for the terminal's clipboard ",
            &quoted(&of_url(lens)),
        ),
    }
    if let Some(input) = lens
        .input
        .as_ref()
        .filter(|input| input.purpose == Purpose::Scope)
    {
        suggestions(page, input, data);
    }
    let words = lens.costly.as_ref().map(|costly| question(lens, costly));
    if let Some(words) = words.or_else(|| lens.notice.clone()) {
        let columns = page.width().saturating_sub(4);
        let lines: Vec<Line> = words
            .lines()
            .flat_map(|line| in_words(line, columns))
            .map(|text| Line::of(Style::Warning, text))
            .collect();
        boxed_at_end(page, &lines);
    }
}

/// What is asked before an edit is done that is costly.
fn question(lens: &Lens, costly: &Costly) -> String {
    let keeps = match &lens.target {
        Some(target) if target.is_of_processes() && costly.cost().over_budget => {
            ", K keeps it whatever it costs"
        }
        _ => "",
    };
    format!(
        "{}: {}.\nEnter attaches it{keeps}, e edits it, Esc leaves it.",
        terminal(costly.scope()),
        costly.cost().words,
    )
}

fn command(page: &mut Page<'_>, title: &str, text: &str) {
    let text = terminal(text).into_owned();
    let lines: Vec<Line> = wrapped(&text, page.width().saturating_sub(4))
        .map(|text| Line::of(Style::Plain, text))
        .collect();
    boxed(page, title, &lines);
}

/// Lines of so many columns, whatever their words: as a shell takes them from the screen.
fn wrapped(text: &str, columns: usize) -> impl Iterator<Item = String> {
    let columns = columns.max(1);
    text.lines().flat_map(move |line| {
        let chars: Vec<char> = line.chars().collect();
        let pieces: Vec<String> = chars
            .chunks(columns)
            .map(|piece| piece.iter().collect())
            .collect();
        if pieces.is_empty() {
            vec![String::new()]
        } else {
            pieces
        }
    })
}

/// The keys of the screen, or those that work on others too: one line each, but those that move in one, and those of the panes
/// that stand above.
#[must_use]
pub fn help(lens: &Lens, of_screen: bool) -> Vec<Line> {
    // What moves, and where to, belongs to each screen.
    let is_of_screen = |binding: &&Binding| {
        let is_way = matches!(binding.action, Action::Move(_) | Action::Show(_));
        of_screen == (is_way || matches!(binding.on, On::These(_) | On::Processes))
    };
    let here: Vec<&Binding> = if lens.input.is_some() {
        TYPING.iter().collect()
    } else {
        let here = KEYS.iter().filter(|binding| binding.is_for(lens));
        here.filter(is_of_screen).collect()
    };
    let (moves, others): (Vec<&Binding>, Vec<&Binding>) = here
        .into_iter()
        .partition(|binding| matches!(binding.action, Action::Move(_)) && binding.short.is_empty());
    let (panes, others): (Vec<&Binding>, Vec<&Binding>) = others
        .into_iter()
        .partition(|binding| matches!(binding.action, Action::Show(_)));
    let names = |bindings: &[&Binding]| {
        bindings
            .iter()
            .map(|binding| binding.names())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let row =
        |keys: &str, words: &str| Line::of(Style::Strong, format!("{keys:>10}  ")).and(Style::Plain, words);
    let mut lines: Vec<Line> = others
        .iter()
        .map(|binding| row(&binding.names(), binding.words))
        .collect();
    if !moves.is_empty() {
        lines.push(row("move", &names(&moves)));
    }
    if !panes.is_empty() {
        let panes = panes.iter().filter_map(|binding| match binding.action {
            Action::Show(pane) => Some(format!("{} {}", binding.names(), pane.name())),
            _ => None,
        });
        let panes: Vec<String> = panes.collect();
        let rows = panes.chunks(PANES_IN_ROW).enumerate();
        lines.extend(rows.map(|(at, panes)| {
            let cells: Vec<String> = panes.iter().map(|pane| format!("{pane:<15}")).collect();
            row(if at == 0 { "panes" } else { "" }, cells.join(" ").trim_end())
        }));
    }
    lines
}

fn boxed(page: &mut Page<'_>, title: &str, lines: &[Line]) {
    let widest = lines
        .iter()
        .map(Line::width)
        .max()
        .unwrap_or(0)
        .max(title.chars().count());
    let area = page.area;
    let width = u16::try_from(widest + 4).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    framed(page, title, lines, place);
}

fn boxed_at_end(page: &mut Page<'_>, lines: &[Line]) {
    let area = page.area;
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(area.height);
    let place = Rect {
        y: area.y + area.height - height,
        height,
        ..area
    };
    framed(page, "", lines, place);
}

fn framed(page: &mut Page<'_>, title: &str, lines: &[Line], place: Rect) {
    Clear.render(place, page.buffer);
    let block = Block::bordered().title(title);
    let inner = block.inner(place);
    block.render(place, page.buffer);
    page.spots.add(place, Sign::Cover);
    let mut inside = page.part(Rect {
        x: inner.x.saturating_add(1).min(inner.right()),
        width: inner.width.saturating_sub(2),
        ..inner
    });
    for line in lines {
        inside.line(line);
    }
}

fn suggestions(page: &mut Page<'_>, input: &Input, data: &Data) {
    let chosen = input.chosen;
    let lines: Vec<Line> = data
        .completions
        .iter()
        .enumerate()
        .take(SUGGESTIONS.max(chosen.map_or(0, |at| at + 1)))
        .map(|(at, name)| {
            let mark = if chosen == Some(at) { "▸ " } else { "  " };
            let style = if chosen == Some(at) {
                Style::Strong
            } else {
                Style::Plain
            };
            Line::of(style, format!("{mark}{}", terminal(&name.text)))
                .and(Style::Faint, format!("  {}", terminal(&name.about)))
        })
        .collect();
    let lines = match input.wanted() {
        Wanted::Nothing => return,
        _ if !lines.is_empty() => lines,
        _ if data.completing => vec![Line::of(
            Style::Faint,
            "  looking for functions, lines and values …",
        )],
        _ => return,
    };
    let area = page.area;
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let place = Rect {
        y: area.y.saturating_add(LINES_ABOVE).min(area.bottom()),
        height: height.min(area.height.saturating_sub(LINES_ABOVE)),
        ..area
    };
    if place.height >= 3 {
        framed(page, " Tab completes, ↑↓ choose ", &lines, place);
    }
}

#[cfg(test)]
mod tests {
    use super::SCOPES;

    #[test]
    fn examples_of_scopes_parse_and_fit_80_columns() {
        for (scope, words) in SCOPES {
            assert!(profiler_scope::parse(scope).is_ok(), "{scope}");
            assert!(scope.len() < 24 && words.len() <= 52, "{scope}: {words}");
        }
    }
}
