//! What a click does.

use super::{
    Effect, Item, Lens, MAX_EDITS, Mouse, Pointed, Spot,
    enter::enter,
    update::{show, threshold},
};
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
    let is_second = before.is_some_and(|before| before.spot == now.spot && !before.is_threshold);
    if is_second && lens.selection() == Some(&item) {
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

/// The mouse was drawn from what was pointed at `before` to another bar: calls are slow from there on. All of that is one edit,
/// which one undo takes back.
pub(super) fn drag(lens: &mut Lens, now: Pointed, before: Option<Pointed>, data: &Data) -> Vec<Effect> {
    let (Some(before), Spot::Item(bar @ Item::Bar(_))) = (before, &now.spot) else {
        return Vec::new();
    };
    let stays = before.spot == now.spot || !matches!(before.spot, Spot::Item(Item::Bar(_)));
    if stays || lens.edits >= MAX_EDITS {
        lens.pointed = Some(before);
        return Vec::new();
    }
    lens.mark = None;
    lens.select(bar.clone());
    lens.pointed = Some(Pointed {
        is_threshold: true,
        ..now
    });
    let effects = threshold(lens, data);
    if before.is_threshold && !effects.is_empty() && lens.trail.len() > 1 {
        lens.trail.pop();
        if let Some(first) = lens.trail.last_mut() {
            first.edits = first.edits.saturating_add(1);
        }
    }
    effects
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
