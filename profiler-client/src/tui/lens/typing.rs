//! Keys while text is typed.

use super::{
    Action, Costly, Effect, Input, Item, Lens, Move, NO_SCOPE, Pane, Purpose, Typing, Wanted, attaching,
    path, update::set_scope,
};
use crate::{
    cli::print_list,
    state::shape::Patterns,
    tui::data::{Data, is_match},
};

/// Functions are suggested from so many characters on, where nothing says what they are in.
const LEAST: usize = 2;

fn begin(lens: &mut Lens, purpose: Purpose) -> Vec<Effect> {
    let text = match purpose {
        Purpose::Scope => lens.scope.clone(),
        Purpose::Search => lens.search.clone(),
        Purpose::Print => lens.print.join(","),
        // Another one is typed anew.
        Purpose::Part => String::new(),
        Purpose::Hide => lens.shape.hide.text().to_owned(),
        Purpose::Fold => lens.shape.fold.text().to_owned(),
    };
    begin_with(lens, purpose, &text)
}

/// What an action begins to type, where there is something to be typed; `costly` is the edit that the user was asked about.
pub(super) fn begin_by(
    lens: &mut Lens,
    action: &Action,
    costly: Option<&Costly>,
    data: &Data,
) -> Vec<Effect> {
    let purpose = match action {
        Action::EditPart => Purpose::Part,
        Action::EditHide => Purpose::Hide,
        Action::EditFold => Purpose::Fold,
        Action::EditScope => Purpose::Scope,
        Action::Search => Purpose::Search,
        // No key does so there: which values a recording has was said when it was made.
        Action::EditPrint if lens.is_of_recording() => return Vec::new(),
        Action::EditPrint => Purpose::Print,
        _ => return Vec::new(),
    };
    if let Some(why_not) = why_not(lens, purpose, data) {
        lens.notice = Some(why_not.to_owned());
        return Vec::new();
    }
    match costly {
        Some(costly) if purpose == Purpose::Scope => begin_with(lens, purpose, costly.scope()),
        _ => begin(lens, purpose),
    }
}

/// Why there is nothing to be typed.
fn why_not(lens: &Lens, purpose: Purpose, data: &Data) -> Option<&'static str> {
    match purpose {
        Purpose::Part => attaching::why_no_parts(lens),
        Purpose::Scope if lens.has_stacks_alone() => Some(NO_SCOPE),
        Purpose::Print if data.is_over() => {
            Some("The session has ended: no other values can be read any more.")
        }
        _ => None,
    }
}

/// Begins to type with this text.
fn begin_with(lens: &mut Lens, purpose: Purpose, text: &str) -> Vec<Effect> {
    lens.input = Some(Input::new(purpose, text));
    suggestions(lens)
}

pub(super) fn typed(lens: &mut Lens, typing: &Typing, data: &Data) -> Vec<Effect> {
    let Some(mut input) = lens.input.take() else {
        return Vec::new();
    };
    match typing {
        Typing::Cancel => {
            if input.purpose == Purpose::Search {
                lens.search = String::new();
            }
            return Vec::new();
        }
        Typing::Confirm => return confirm(lens, input, data),
        Typing::Up | Typing::Down => choose(&mut input, typing, data),
        Typing::Complete => {
            if let Some(suggestion) = data.completions.get(input.chosen.unwrap_or(0)) {
                input.complete(&suggestion.text);
            }
        }
        _ => input.edit(typing),
    }
    let is_searched = lens.screen().is_none_or(Pane::is_searched);
    if input.purpose == Purpose::Search && is_searched && lens.search != input.text() {
        lens.search = input.text();
        // What is found first is selected.
        if matches!(lens.screen(), None | Some(Pane::Top)) {
            lens.unselect();
        }
    }
    lens.input = Some(input);
    suggestions(lens)
}

fn choose(input: &mut Input, typing: &Typing, data: &Data) {
    let count = data.completions.len();
    if input.purpose != Purpose::Scope || count == 0 {
        return;
    }
    input.chosen = match (typing, input.chosen) {
        (Typing::Up, Some(0) | None) => None,
        (Typing::Up, Some(at)) => Some(at - 1),
        (_, None) => Some(0),
        (_, Some(at)) => Some((at + 1).min(count - 1)),
    };
}

fn suggestions(lens: &Lens) -> Vec<Effect> {
    let input = lens.input.as_ref();
    let scope = input.filter(|input| input.purpose == Purpose::Scope);
    let Some(wanted) = scope.map(Input::wanted) else {
        return Vec::new();
    };
    // A function's name is found by some of it; those of before are nothing any more.
    let wanted = match wanted {
        Wanted::Step { before, fragment } if before.is_empty() && fragment.chars().count() < LEAST => {
            Wanted::Nothing
        }
        wanted => wanted,
    };
    vec![Effect::Complete(wanted)]
}

fn confirm(lens: &mut Lens, mut input: Input, data: &Data) -> Vec<Effect> {
    match input.purpose {
        Purpose::Search => {
            if lens.screen().is_some_and(|pane| !pane.is_searched()) && !input.text().is_empty() {
                // Functions are what can be found from anywhere.
                lens.pane = Pane::Top;
            }
            lens.search = input.text();
            let has_matches = lens.pane.is_graph() || lens.pane == Pane::Source;
            if has_matches && !lens.search.is_empty() && !is_found(lens, data) {
                crate::tui::moves::step(lens, Move::Next, data);
            }
            super::update(lens, Action::Drawn, data)
        }
        Purpose::Hide => {
            lens.shape.hide = Patterns::read(&input.text());
            Vec::new()
        }
        Purpose::Fold => {
            lens.shape.fold = Patterns::read(&input.text());
            Vec::new()
        }
        Purpose::Print => match expressions(&input.text()) {
            Ok(print) => {
                lens.print = print;
                Vec::new()
            }
            Err(message) => again(lens, input, message),
        },
        Purpose::Part => match attaching::type_part(lens, &input.text(), data) {
            Ok(effects) => effects,
            Err(message) => again(lens, input, format!("This is no part of a recording: {message}.")),
        },
        Purpose::Scope => {
            if let Some(suggestion) = input.chosen.and_then(|at| data.completions.get(at)) {
                input.complete(&suggestion.text);
            }
            let text = input.text();
            // So the screen calls it.
            let text = if text.trim() == "everything" { "" } else { &text };
            match path::read(text) {
                Ok(scope) => {
                    let effects = set_scope(lens, Ok(scope.to_string()));
                    if lens.pane == Pane::Source && !effects.is_empty() {
                        // The source of what was typed.
                        lens.source = path::source(&lens.scope).or(lens.source.take());
                    }
                    lens.typed = (!effects.is_empty()).then_some(input);
                    effects
                }
                Err(message) => again(lens, input, message),
            }
        }
    }
}

/// Whether the selected box or line matches the search.
fn is_found(lens: &Lens, data: &Data) -> bool {
    match lens.selection() {
        Some(Item::Stack(stack)) => {
            (stack.last()).is_some_and(|frame| is_match(&frame.function, &lens.search))
        }
        Some(Item::Line(_)) => {
            (data.selected_line(lens)).is_some_and(|(_, line)| is_match(&line.text, &lens.search))
        }
        _ => false,
    }
}

fn expressions(text: &str) -> Result<Vec<String>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let list = print_list::parse(text)?;
    print_list::join(vec![list]).map_err(|failure| failure.message)
}

/// It goes on being typed.
fn again(lens: &mut Lens, input: Input, message: String) -> Vec<Effect> {
    lens.input = Some(input);
    lens.notice = Some(message);
    Vec::new()
}
