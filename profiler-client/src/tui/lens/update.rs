//! What each action does.

use profiler_scope::Place;

use super::{
    Action, Before, CameFrom, Costly, Effect, FrameId, Hits, Item, Lens, MAX_EDITS, MAX_TRAIL, Overlay, Pane,
    Pointed, Target,
    attaching::{
        attach_recording, attached, detach, ended, move_part, no_budget, not_attached, without_budget,
    },
    command_line,
    enter::enter,
    message,
    path::{self, Towards},
    pointing, shaping, typing,
};
use crate::{
    cli::args::{By, RecordedTime},
    tui::data::Data,
};

/// Says what an action changes, and what is to be done outside.
pub fn update(lens: &mut Lens, action: Action, data: &Data) -> Vec<Effect> {
    if action.is_of_user() {
        lens.notice = None;
    }
    let (before, search) = (lens.screen(), lens.search.clone());
    let mut effects = act(lens, action, data);
    if let (Some(before), Some(pane)) = (before, lens.screen())
        && before != pane
        && !(before.shares_search() && pane.shares_search())
        // Who comes back to a pane has its search again.
        && lens.search == search
    {
        lens.search = String::new();
    }
    effects.extend(follow(lens));
    effects
}

fn act(lens: &mut Lens, action: Action, data: &Data) -> Vec<Effect> {
    // Whatever is drawn over the screen goes with the next key.
    let over = lens.overlay;
    let (mut pointed, mut costly) = (None, None);
    if action.is_of_user() {
        // Whoever types, or reads what is drawn over the question or is to be, does not answer it.
        let is_read = match over {
            Overlay::None => action == Action::Help,
            _ => !shows_else(&action),
        };
        if lens.input.is_none() && !is_read {
            costly = lens.costly.take();
        }
        pointed = lens.pointed.take();
        lens.overlay = Overlay::None;
        if !matches!(action, Action::Type(_)) {
            lens.typed = None;
        }
    }
    match action {
        // A key that takes away what is drawn over the screen changes nothing that cannot be seen.
        _ if over != Overlay::None && !acts_over_screen(&action) => Vec::new(),
        Action::Enter | Action::Back | Action::NoBudget if costly.is_some() => costly
            .map(|costly| answer(lens, &action, costly))
            .unwrap_or_default(),
        Action::Show(pane) => show(lens, pane, data),
        Action::Move(towards) => {
            crate::tui::moves::step(lens, towards, data);
            Vec::new()
        }
        Action::Point { spot, row } => pointing::point(lens, Pointed::at(spot, row), pointed.as_ref(), data),
        Action::Drag { spot, row } => pointing::drag(lens, Pointed::at(spot, row), pointed, data),
        Action::Mouse => pointing::change_mouse(lens),
        Action::Enter => enter(lens, data),
        Action::Inside => inside(lens, data),
        Action::Values => values(lens, data),
        Action::Back => back(lens, data),
        Action::Undo => undo(lens),
        Action::Redo => redo(lens),
        Action::Nudge(towards) => nudge(lens, towards),
        Action::Part(part) => move_part(lens, part, data),
        Action::Mark => {
            match lens.screen() {
                Some(Pane::Top | Pane::Graph) => shaping::mark(lens),
                _ => mark(lens),
            }
            Vec::new()
        }
        Action::Threshold => {
            let effects = threshold(lens, data);
            done_with_bars(lens, &effects);
            effects
        }
        Action::Sort | Action::Picture | Action::By | Action::Collapse | Action::AtLeast | Action::Around => {
            shaping::change(lens, &action);
            Vec::new()
        }
        Action::EditPart
        | Action::EditHide
        | Action::EditFold
        | Action::EditScope
        | Action::Search
        | Action::EditPrint => typing::begin_by(lens, &action, costly.as_ref(), data),
        Action::Type(typed) => typing::typed(lens, &typed, data),
        Action::Freeze => {
            lens.frozen = !lens.frozen;
            Vec::new()
        }
        Action::Help => {
            lens.overlay = match over {
                Overlay::Help => Overlay::MoreHelp,
                Overlay::MoreHelp => Overlay::Scopes,
                Overlay::Scopes => Overlay::None,
                _ => Overlay::Help,
            };
            Vec::new()
        }
        Action::Copy => copy(lens, over),
        Action::Record => record(lens, data),
        Action::NoBudget => no_budget(lens, data),
        Action::Processes => detach(lens),
        Action::Suspend => vec![Effect::Suspend],
        Action::Quit => vec![Effect::Quit],
        Action::Nothing => Vec::new(),
        action => told(lens, action, data),
    }
}

/// What follows from what nobody has pressed a key for.
fn told(lens: &mut Lens, action: Action, data: &Data) -> Vec<Effect> {
    match action {
        Action::Resized(size) => {
            lens.size = size;
            Vec::new()
        }
        Action::Counted => {
            // The lines of the source have counts too.
            if !lens.frozen && lens.screen() == Some(Pane::Source) {
                lens.asked.source = None;
            }
            Vec::new()
        }
        Action::Drawn => {
            bind(lens, data);
            Vec::new()
        }
        Action::Attached { scope } => attached(lens, scope, data),
        Action::NotAttached { message } => not_attached(lens, message),
        Action::Ended(end) => ended(lens, &end),
        Action::Edited { scope } => {
            lens.edits = lens.edits.saturating_sub(1);
            if lens.edits == 0 {
                lens.scope = scope;
                lens.settled = lens.trail.clone();
                lens.typed = None;
                lens.left = lens.left.take().filter(|_| lens.scope.is_empty());
            }
            Vec::new()
        }
        Action::Refused { message, scope } => {
            let is_last = lens.edits <= 1;
            stay(lens, scope);
            lens.notice = Some(message);
            lens.type_again(is_last);
            Vec::new()
        }
        Action::Costly { wanted, cost, scope } => {
            let next = Before {
                scope: wanted,
                ..lens.here()
            };
            stay(lens, scope);
            lens.typed = None;
            lens.costly = Some(Costly { next, cost });
            Vec::new()
        }
        Action::Notice(message) => {
            lens.notice = Some(message);
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// Whether an action means what it does whatever is drawn over the screen.
const fn acts_over_screen(action: &Action) -> bool {
    let is_of_overlay = matches!(action, Action::Help | Action::Copy | Action::Suspend);
    !action.is_of_user() || is_of_overlay || shows_else(action)
}

/// Whether an action shows another pane, or begins to type.
const fn shows_else(action: &Action) -> bool {
    matches!(action, Action::Show(_) | Action::EditScope | Action::Search)
}

/// The scope is as the service says, and the user back where that was edited from.
fn stay(lens: &mut Lens, scope: String) {
    lens.edits = 0;
    if let Some(before) = lens.trail.iter().rev().find(|before| before.scope == scope) {
        lens.go_back(before.clone());
    }
    lens.trail = lens.settled.clone();
    lens.ahead.clear();
    lens.scope = scope;
}

/// Does an edit that is costly, or leaves it.
fn answer(lens: &mut Lens, action: &Action, Costly { next, .. }: Costly) -> Vec<Effect> {
    match action {
        Action::Enter => {
            let scope = next.scope.clone();
            let effects = set_scope(lens, Ok(scope.clone()));
            lens.go_back(next);
            let is_set = effects.contains(&Effect::SetScope(scope.clone()));
            if is_set {
                vec![Effect::SetCostlyScope(scope)]
            } else {
                effects
            }
        }
        Action::NoBudget => without_budget(lens, next),
        _ => Vec::new(),
    }
}

/// Gives the session another scope; says why not, where there is none.
pub(super) fn set_scope(lens: &mut Lens, scope: Result<String, String>) -> Vec<Effect> {
    match scope {
        Err(why_not) => {
            lens.notice = Some(why_not);
            Vec::new()
        }
        Ok(scope) if lens.unattached => {
            lens.scope = scope;
            let target = lens.target.clone();
            target
                .map(|target| attach_recording(lens, target))
                .into_iter()
                .collect()
        }
        Ok(scope) if scope == lens.scope => Vec::new(),
        Ok(scope) => {
            if lens.trail.len() == MAX_TRAIL {
                lens.trail.remove(0);
            }
            lens.trail.push(lens.here());
            lens.ahead.clear();
            lens.edits = lens.edits.saturating_add(1);
            if lens.pane != Pane::Source {
                // It begins at the line of the new step.
                lens.selected.remove(&Some(Pane::Source));
                lens.place = None;
            }
            lens.typed = None;
            lens.scope.clone_from(&scope);
            vec![Effect::SetScope(scope)]
        }
    }
}

/// As [`set_scope`], and to another screen if there is one.
pub(super) fn set_scope_and_show(lens: &mut Lens, scope: Result<String, String>, pane: Pane) -> Vec<Effect> {
    let is_one = scope.is_ok();
    let effects = set_scope(lens, scope);
    if is_one {
        lens.pane = pane;
    }
    effects
}

pub(super) fn show(lens: &mut Lens, pane: Pane, data: &Data) -> Vec<Effect> {
    if lens.target.is_none() {
        lens.notice = Some("Choose a process first: Enter attaches to the one that is selected.".to_owned());
        return Vec::new();
    }
    if lens.has_stacks_alone() && !lens.has(pane) {
        lens.notice = Some(format!(
            "A profile of another tool has stacks alone, and no {}.",
            pane.name()
        ));
        return Vec::new();
    }
    if !lens.has(pane) {
        lens.notice = Some(format!(
            "Recordings have no {}: `profiler tui` alone shows those of the daemon.",
            pane.name()
        ));
        return Vec::new();
    }
    match pane {
        Pane::Difference | Pane::Explain => {
            let selected = selected_place(lens, data).filter(|_| lens.scope.is_empty());
            let of = selected.map_or_else(|| lens.scope.clone(), path::only);
            let scope = match pane {
                Pane::Explain => path::explained(&of),
                _ => path::with_threshold(&of),
            };
            let is_edit = scope.as_ref().is_ok_and(|scope| *scope != lens.scope);
            if is_edit && data.is_over() && !lens.is_of_recording() {
                let wanted = scope.unwrap_or_default();
                lens.notice = Some(format!(
                    "The session has ended: its scope cannot become `{wanted}` any more."
                ));
                return Vec::new();
            }
            set_scope_and_show(lens, scope, pane)
        }
        Pane::Source => {
            show_source(lens, data);
            Vec::new()
        }
        Pane::Hits if lens.scope.is_empty() => {
            lens.notice =
                Some("Choose a function or a line first: hits are those of the last step.".to_owned());
            Vec::new()
        }
        Pane::Latency | Pane::Spans if lens.scope.is_empty() => {
            let notice = if lens.is_of_recording() {
                "This recording has no calls: record those of a function, as in `profiler record -p PID handle_request -o FILE`."
            } else {
                "Select a function and press Enter: its calls are timed."
            };
            lens.notice = Some(notice.to_owned());
            Vec::new()
        }
        _ => {
            if pane.is_visited() && !lens.pane.is_visited() {
                lens.came_from = CameFrom {
                    pane: lens.pane,
                    search: lens.search.clone(),
                };
            }
            lens.pane = pane;
            Vec::new()
        }
    }
}

/// As [`show`] a pane that was shown before: with the source that it had, and what it was left for.
pub(super) fn show_as_it_was(lens: &mut Lens, pane: Pane, data: &Data) -> Vec<Effect> {
    let has_source = pane == Pane::Source && lens.source.is_some();
    if lens.has(pane) && (has_source || pane.is_visited()) {
        lens.pane = pane;
        return Vec::new();
    }
    show(lens, pane, data)
}

fn show_source(lens: &mut Lens, data: &Data) {
    let selected = match lens.pane {
        Pane::Top | Pane::Graph | Pane::Difference => selected_frame(lens),
        _ => None,
    };
    // What threads wait for has none.
    let place = selected.and_then(|frame| path::place_of(data.frame_of(&frame)?));
    let function = place.and_then(|place| match place {
        Place::Function(name) | Place::Inlined(name) | Place::KernelFunction(name) => {
            Some(name.text().to_owned())
        }
        _ => None,
    });
    match function.or_else(|| path::function(&lens.scope)) {
        Some(function) => {
            lens.source = Some(path::quoted(&function));
            lens.pane = Pane::Source;
        }
        None if lens.source.is_some() => lens.pane = Pane::Source,
        None => lens.notice = Some("Select a function first: its source is shown.".to_owned()),
    }
}

/// The threshold at the next percentile or time, where there is one.
fn nudge(lens: &mut Lens, towards: Towards) -> Vec<Effect> {
    let scope = path::nudge(&lens.scope, towards);
    if scope.as_ref() == Ok(&lens.scope) {
        let key = match towards {
            Towards::Slower => ">",
            Towards::Faster => "<",
        };
        lens.notice = Some(format!(
            "{key} goes no further: press e to type another threshold, as in [>= p75] or [>= 3ms]."
        ));
    }
    set_scope(lens, scope)
}

/// The selected bar is one end of several; a second time, no longer.
fn mark(lens: &mut Lens) {
    let bar = match lens.selection() {
        Some(Item::Bar(bar)) => Some(*bar),
        _ => None,
    };
    if bar.is_none() {
        lens.notice =
            Some("Select a bar first (↑ and ↓): it is one end of those that Enter takes.".to_owned());
    }
    lens.mark = bar.filter(|bar| lens.mark != Some(*bar));
}

/// Calls are slow from the selected bar on.
pub(super) fn threshold(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let Some(bars) = data.selected_threshold(lens) else {
        lens.notice = Some("Select a bar first (↑ and ↓): calls are slow from it on.".to_owned());
        return Vec::new();
    };
    let scope = path::between(&lens.scope, bars.from_ns, None);
    set_scope(lens, scope)
}

/// What was selected has become the threshold: the next step is to look at those calls, and not to narrow them down again.
pub(super) fn done_with_bars(lens: &mut Lens, effects: &[Effect]) {
    if !effects.is_empty() {
        lens.mark = None;
        lens.unselect();
    }
}

/// What a recording that is begun by a key has, and has not.
const RECORDING: &str = "What comes from now on is recorded: samples, and calls of the scope. Waits, system calls, hits and values are not: \
                         `profiler record` has a flag for each. r ends the recording.";

fn record(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    lens.notice = match lens.target {
        _ if lens.is_of_recording() => Some("This is a recording already.".to_owned()),
        None => Some("Choose a process first: what comes of it can be recorded.".to_owned()),
        Some(_) if lens.attaching => Some("Nothing is attached yet: record once it is.".to_owned()),
        Some(_) => {
            let effect = Effect::Record(Box::new(message::of(lens)));
            // The key ends one as well.
            if data.recording.is_none() {
                lens.notice = Some(RECORDING.to_owned());
            }
            return vec![effect];
        }
    };
    Vec::new()
}

pub(super) fn inside(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    match scope_inside(lens, data) {
        // Its slow calls are held against the others, as they are where the pane is shown first.
        Some(scope) if lens.pane == Pane::Difference => {
            set_scope(lens, scope.and_then(|scope| path::with_threshold(&scope)))
        }
        Some(scope) => set_scope(lens, scope),
        None => no_function(lens),
    }
}

fn values(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    if lens.screen() != Some(Pane::Source) {
        return show(lens, Pane::Hits, data);
    }
    match selected_place(lens, data) {
        Some(place) => {
            let scope = path::append(&lens.scope, place);
            set_scope_and_show(lens, scope, Pane::Hits)
        }
        None => no_place(lens),
    }
}

pub(super) fn no_function(lens: &mut Lens) -> Vec<Effect> {
    lens.notice =
        Some("The selected frame has no function name, and cannot be added to the scope.".to_owned());
    Vec::new()
}

pub(super) fn no_place(lens: &mut Lens) -> Vec<Effect> {
    lens.notice = Some("No probe can be placed at this line: choose one marked on its left.".to_owned());
    Vec::new()
}

/// The scope that looks inside of the selected function: a step behind the last if it is called in there, or else its
/// own.
pub(super) fn scope_inside(lens: &Lens, data: &Data) -> Option<Result<String, String>> {
    let place = selected_place(lens, data)?;
    let outer = path::function(&lens.scope);
    let frame = selected_frame(lens);
    let is_inside = |outer: &str| {
        frame
            .as_ref()
            .is_some_and(|frame| data.is_called_in(frame, lens, outer))
    };
    Some(match outer {
        Some(outer) if lens.pane == Pane::Source || is_inside(&outer) => path::append(&lens.scope, place),
        // A line alone has no end: it is looked at in its function.
        _ if matches!(place, Place::Line { .. }) => {
            let function = frame.as_ref().and_then(|frame| data.frame_of(frame));
            let function = function.and_then(path::place_of)?;
            path::append(&path::only(function), place)
        }
        _ => path::append("", place),
    })
}

/// The function that is selected.
pub(super) fn selected_frame(lens: &Lens) -> Option<FrameId> {
    match lens.selection()? {
        Item::Function(frame) => Some(frame.clone()),
        Item::Stack(stack) => stack.last().cloned(),
        Item::Session(_)
        | Item::Process(_)
        | Item::Line(_)
        | Item::Hit(_)
        | Item::Call(_)
        | Item::Finding(_)
        | Item::Bar(_)
        | Item::Threads(_)
        | Item::Counter(_)
        | Item::Probed(_)
        | Item::Loss(_)
        | Item::Wait(_)
        | Item::SystemCall(_) => None,
    }
}

/// The step that is selected.
pub(super) fn selected_place(lens: &Lens, data: &Data) -> Option<Place> {
    if let Item::Line(_) = lens.selection()? {
        return data.selected_place(lens);
    }
    let frame = data.frame_of(&selected_frame(lens)?)?;
    match lens.flame_view().by {
        By::Module => None,
        By::Line => path::line_of(frame).or_else(|| path::place_of(frame)),
        _ => path::place_of(frame),
    }
}

fn back(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    if !lens.search.is_empty() {
        lens.search = String::new();
    } else if lens.screen() == Some(Pane::Latency) && lens.selection().is_some() {
        lens.unselect();
        lens.mark = None;
    } else if lens.pane.is_graph() && !lens.zoom.is_empty() {
        lens.zoom = Vec::new();
    } else if lens.target.is_some() && lens.pane.is_visited() {
        // Its scope may have become one that the other pane cannot show as it is.
        return come_back(lens, data);
    } else if lens.target.is_some() {
        shaping::back(lens);
    }
    Vec::new()
}

/// To the pane before one that was only looked into; where the scope has become one that the pane cannot show, to the functions.
fn come_back(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let CameFrom { pane, search } = lens.came_from.clone();
    let left = lens.pane;
    let effects = show_as_it_was(lens, pane, data);
    if lens.pane == left {
        lens.notice = None;
        lens.pane = Pane::Top;
    } else {
        lens.search = search;
    }
    effects
}

fn undo(lens: &mut Lens) -> Vec<Effect> {
    if lens.target.is_none() || lens.attaching {
        return Vec::new();
    }
    if lens.edits >= MAX_EDITS {
        return Vec::new();
    }
    let mut edits = 1;
    match lens.trail.pop() {
        Some(before) => {
            edits = before.edits;
            // No longer than the trail, which it came from.
            lens.ahead.push(lens.here());
            lens.go_back(before);
            if edits == 0 {
                // The edit was one of the session before. Nobody is asked whether it may be taken back.
                lens.edits = lens.edits.saturating_add(1);
                return vec![Effect::SetCostlyScope(lens.scope.clone())];
            }
        }
        // Somebody else's edits of a session that is shared can be taken back too.
        None if matches!(lens.target, Some(Target::Session(_))) => {}
        None => {
            let is_part = matches!(&lens.target, Some(Target::Recording(recorded)) if recorded.time != RecordedTime::default());
            let hint = if is_part {
                " Another part of the time: } is twice as long, @ types one."
            } else if lens.scope.is_empty() {
                ""
            } else {
                " To look at everything, press e, empty the scope with Ctrl-U, and press Enter."
            };
            lens.notice = Some(format!("There is no edit to take back.{hint}"));
            return Vec::new();
        }
    }
    lens.edits = lens.edits.saturating_add(1);
    vec![Effect::Undo(edits)]
}

/// As [`set_scope`] with what the last undo left.
fn redo(lens: &mut Lens) -> Vec<Effect> {
    if lens.target.is_none() || lens.attaching || lens.edits >= MAX_EDITS {
        return Vec::new();
    }
    let Some(next) = lens.ahead.pop() else {
        lens.notice = Some("No edit was taken back.".to_owned());
        return Vec::new();
    };
    let ahead = std::mem::take(&mut lens.ahead);
    let effects = set_scope(lens, Ok(next.scope.clone()));
    lens.go_back(next);
    lens.ahead = ahead;
    effects
}

fn copy(lens: &mut Lens, over: Overlay) -> Vec<Effect> {
    let of_screen = || command_line::of_screen(lens);
    let (overlay, text) = match over {
        Overlay::Screen => (Overlay::Verb, command_line::quoted(&command_line::of_verb(lens))),
        Overlay::Verb => (Overlay::Url, command_line::quoted(&command_line::of_url(lens))),
        _ => (Overlay::Screen, command_line::quoted(&of_screen())),
    };
    lens.overlay = overlay;
    vec![Effect::Copy(text)]
}

/// Binds the selection to what is there, so that it stays with it.
fn bind(lens: &mut Lens, data: &Data) {
    if lens.selection().is_some_and(|item| data.has(lens, item)) {
        return;
    }
    match data.first_item(lens) {
        Some(first) => lens.select(first),
        None => lens.unselect(),
    }
}

/// Asks for what the screen needs and has not asked for.
fn follow(lens: &mut Lens) -> Vec<Effect> {
    let mut effects = Vec::new();
    let screen = lens.screen().filter(|_| !lens.attaching);
    let source = match screen {
        Some(Pane::Source) => lens.source.clone(),
        // Findings have the text of their lines beside them.
        Some(Pane::Explain) if !lens.is_of_recording() && lens.edits == 0 => path::source(&lens.scope),
        _ => None,
    };
    if source.is_some() && source != lens.asked.source {
        lens.asked.source.clone_from(&source);
        effects.extend(source.map(Effect::Source));
    }
    let flame = screen.map(|_| lens.flame_view()).unwrap_or_default();
    if flame != lens.asked.flame {
        lens.asked.flame.clone_from(&flame);
        effects.push(Effect::Flame(flame));
    }
    // What is under way has its streams when it is done: it may be refused, or costly.
    if lens.edits == 0 {
        let hits = (screen == Some(Pane::Hits) && !lens.scope.is_empty()).then(|| Hits {
            scope: lens.scope.clone(),
            print: lens.print.clone(),
        });
        if hits != lens.asked.hits {
            lens.asked.hits.clone_from(&hits);
            effects.push(match hits {
                Some(Hits { scope, print }) => Effect::Hits { scope, print },
                None => Effect::NoHits,
            });
        }
        let aside = screen.filter(|pane| pane.is_aside());
        let aside = aside.map(|pane| (pane, lens.scope_aside(pane)));
        if aside != lens.asked.aside {
            lens.asked.aside.clone_from(&aside);
            effects.push(match aside {
                Some((pane, scope)) => Effect::Aside {
                    pane,
                    is_of_session: scope == lens.scope,
                    scope,
                },
                None => Effect::NoAside,
            });
        }
    }
    effects
}
