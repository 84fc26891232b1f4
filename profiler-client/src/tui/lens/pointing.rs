//! What a click does.

use super::{Effect, Item, Lens, Mouse, Pointed, Spot, enter::enter, update::show};
use crate::tui::data::Data;

impl Lens {
    /// The row of the screen that what is selected stands on, because it was clicked there.
    #[must_use]
    pub fn pointed_row(&self) -> Option<u16> {
        let pointed = self.pointed.as_ref()?;
        let is_selected = match &pointed.spot {
            Spot::Pane(_) => false,
            Spot::Item(item) => self.selection() == Some(item),
            Spot::Value { hit, .. } => self.selection() == Some(&Item::Hit(*hit)),
        };
        is_selected.then_some(pointed.row)
    }
}

/// Selects what was clicked, or enters it if it was `before` too, and nothing was done since.
pub(super) fn point(lens: &mut Lens, now: Pointed, before: Option<&Pointed>, data: &Data) -> Vec<Effect> {
    let item = match &now.spot {
        Spot::Pane(pane) => return show(lens, *pane, data),
        Spot::Item(item) => item.clone(),
        Spot::Value { hit, .. } => Item::Hit(*hit),
    };
    if before.is_some_and(|before| before.spot == now.spot) && lens.selection() == Some(&item) {
        return enter(lens, data);
    }
    if let Item::Line(_) = item {
        lens.place = None;
    }
    if let Spot::Value { expression, .. } = &now.spot {
        lens.value = Some(expression.clone());
    }
    lens.select(item);
    lens.pointed = Some(now);
    Vec::new()
}

/// The mouse selects here, or text of the terminal.
pub(super) fn change_mouse(lens: &mut Lens) -> Vec<Effect> {
    lens.mouse = match lens.mouse {
        Mouse::Here => Mouse::OfTerminal,
        Mouse::OfTerminal => Mouse::Here,
    };
    lens.notice = Some(
        match lens.mouse {
            Mouse::Here => "The mouse selects here: M leaves it to the terminal.",
            Mouse::OfTerminal => "The mouse selects text of the terminal: M takes it back.",
        }
        .to_owned(),
    );
    vec![Effect::Mouse(lens.mouse)]
}
