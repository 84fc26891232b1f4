//! What keys make of what is shown: its order and picture; of stacks, what frames stand for, and what is left out.

use super::{Action, FrameId, Item, Lens, Picture};
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
            (lens.zoom, lens.shape.around) = (Vec::new(), None);
        }
        Action::Sort => {
            lens.sort = match lens.sort {
                Sort::Own => Sort::Total,
                Sort::Total => Sort::Own,
            };
            // The first is what the order is for.
            lens.unselect();
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
            let selected = match lens.selection() {
                Some(Item::Stack(stack)) => stack.last().cloned(),
                _ => None,
            };
            around(lens, selected);
        }
        _ => {}
    }
}

/// What a function calls; who calls it; all. Another function is begun with anew.
fn around(lens: &mut Lens, selected: Option<FrameId>) {
    lens.shape.around = match (lens.shape.around.take(), selected) {
        (Some(Around::Callees(function)), Some(other)) if !is_same(&function, &other) => {
            Some(Around::Callees(other))
        }
        (Some(Around::Callees(function)), _) => Some(Around::Callers(function)),
        (Some(Around::Callers(function)), Some(other)) if !is_same(&function, &other) => {
            Some(Around::Callees(other))
        }
        (Some(Around::Callers(_)), _) => None,
        (None, Some(function)) => Some(Around::Callees(function)),
        (None, None) => {
            lens.notice =
                Some("Select a box first: what its function calls is shown, then who calls it.".to_owned());
            None
        }
    };
    lens.zoom = Vec::new();
    let function = match &lens.shape.around {
        Some(Around::Callees(function) | Around::Callers(function)) => function.clone(),
        None => return,
    };
    lens.select(Item::Stack(vec![function]));
}

fn is_same(function: &FrameId, other: &FrameId) -> bool {
    function.function == other.function && (function.module.is_empty() || function.module == other.module)
}

/// Takes back the selection that leaves most out.
pub(super) fn back(lens: &mut Lens) {
    if lens.shape_shown().around.is_some() {
        lens.shape.around = None;
    } else if !lens.shape.threads.is_empty() {
        lens.shape.threads = Patterns::default();
    } else if !lens.event.is_empty() {
        lens.event = String::new();
    }
}
