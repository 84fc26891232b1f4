//! What keys make of what is shown: its order and picture; of stacks, what frames stand for, and what is left out.

use super::{Action, FrameId, Item, Lens, MAX_MARKED, Pane, Picture, update::selected_frame};
use crate::{
    cli::args::By,
    state::{
        functions::Sort,
        shape::{Around, Patterns},
    },
};

/// Shares below which boxes are left out, in tenths of a percent.
const SHARES: [u16; 6] = [0, 5, 10, 20, 50, 100];

/// Does it.
pub(super) fn change(lens: &mut Lens, action: &Action) {
    match action {
        Action::By => {
            lens.by = match lens.by {
                By::Function => By::Line,
                By::Line => By::Module,
                _ => By::Function,
            };
            // Only functions are told apart by thread.
            lens.shape.threads = Patterns::default();
            (lens.zoom, lens.shape.around, lens.marked) = (Vec::new(), None, Vec::new());
        }
        Action::Sort => {
            lens.sort = match lens.sort {
                Sort::Own => Sort::Total,
                Sort::Total => Sort::Own,
            };
            // The first is what the order is for.
            lens.unselect();
        }
        Action::Picture if lens.is_of_recording() => {
            let notice = "A recording comes at once, so nothing is drawn over time: { shows its first half, then ] the next.";
            lens.notice = Some(notice.to_owned());
        }
        Action::Picture => {
            lens.picture = match lens.picture {
                Picture::Bars => Picture::Heat,
                Picture::Heat => Picture::Bars,
            };
        }
        Action::Collapse => lens.shape.collapse = !lens.shape.collapse,
        Action::AtLeast => {
            let next = SHARES.into_iter().find(|share| *share > lens.at_least);
            lens.at_least = next.unwrap_or(0);
        }
        Action::Around => {
            let selected = selected_frame(lens);
            if lens.pane == Pane::Top {
                // It is drawn as a graph, and begins with what is called.
                lens.shape.around = None;
            }
            around(lens, selected.as_ref());
            if lens.shape.around.is_some() {
                lens.pane = Pane::Graph;
                select_root(lens, selected);
            }
        }
        _ => {}
    }
}

/// What functions call; who calls them; all. They are those that are marked, or else the selected one; others are begun with anew.
fn around(lens: &mut Lens, selected: Option<&FrameId>) {
    let marked =
        (!lens.marked.is_empty()).then(|| Patterns::of_names(lens.marked.iter().map(String::as_str)));
    let is_of = |now: &Patterns| match (&marked, selected) {
        (Some(marked), _) => now == marked,
        (None, Some(selected)) => now.matches(&selected.function),
        (None, None) => true,
    };
    let wanted = marked
        .clone()
        .or_else(|| selected.map(|selected| Patterns::of_names([selected.function.as_str()])));
    let before = lens.shape.around.take();
    lens.shape.around = match (before, wanted) {
        (Some(Around::Callees(now)), _) if is_of(&now) => Some(Around::Callers(now)),
        (Some(Around::Callers(now)), _) if is_of(&now) => None,
        (_, Some(wanted)) => Some(Around::Callees(wanted)),
        (_, None) => {
            lens.notice = Some(
                "Select a function first, or mark several (m): what they call is shown, then who calls them."
                    .to_owned(),
            );
            None
        }
    };
    lens.zoom = Vec::new();
}

/// Selects a root of the graph that is seen from some functions.
fn select_root(lens: &mut Lens, selected: Option<FrameId>) {
    let Some(functions) = lens.shape.around.as_ref().map(Around::functions) else {
        return;
    };
    let selected = selected.filter(|selected| functions.matches(&selected.function));
    let marked = lens.marked.first().map(|name| FrameId::named(name));
    if let Some(root) = selected.or(marked) {
        lens.select(Item::Stack(vec![root]));
    }
}

/// The selected function is one of those that all is seen from together, or no longer.
pub(super) fn mark(lens: &mut Lens) {
    let Some(function) = selected_frame(lens).filter(|frame| !frame.function.is_empty()) else {
        lens.notice = Some("Select a function first: B shows what marked functions call.".to_owned());
        return;
    };
    let name = function.function;
    if let Some(at) = lens.marked.iter().position(|marked| *marked == name) {
        lens.marked.remove(at);
    } else if lens.marked.len() < MAX_MARKED {
        lens.marked.push(name);
    } else {
        lens.notice = Some(format!(
            "{MAX_MARKED} functions are marked, and no more can be: m on a marked one takes its mark away."
        ));
    }
}

/// Takes back the selection that leaves most out.
pub(super) fn back(lens: &mut Lens) {
    if lens.shape_shown().around.is_some() {
        lens.shape.around = None;
    } else if !lens.marked.is_empty() && matches!(lens.pane, Pane::Top | Pane::Graph) {
        lens.marked = Vec::new();
    } else if !lens.shape.threads.is_empty() {
        lens.shape.threads = Patterns::default();
    } else if !lens.event.is_empty() {
        lens.event = String::new();
    }
}
