//! Where on the screen what can be pointed at stands.

use ratatui::layout::{Position, Rect};

use crate::tui::{
    data::Data,
    lens::{Item, Spot},
};

/// What a part of the screen stands for.
#[derive(Clone, Debug)]
pub enum Sign {
    /// This.
    Spot(Spot),
    /// A box of the flame graph, by its node in the data that is drawn; `None` is that of all. There may be thousands, and the
    /// stack of one is needed: that of the box that is clicked.
    Block(Option<usize>),
    /// Nothing: something is drawn over what was there.
    Cover,
}

impl Sign {
    /// What can be selected.
    pub const fn item(item: Item) -> Self {
        Self::Spot(Spot::Item(item))
    }
}

#[derive(Debug)]
struct Part {
    area: Rect,
    sign: Sign,
}

/// All of a frame.
#[derive(Debug, Default)]
pub struct Spots(Vec<Part>);

impl Spots {
    /// Another one, over those before.
    pub fn add(&mut self, area: Rect, sign: Sign) {
        self.0.push(Part { area, sign });
    }

    /// What is there. `data` is what was drawn.
    #[must_use]
    pub fn at(&self, at: Position, data: &Data) -> Option<Spot> {
        let part = self.0.iter().rev().find(|part| part.area.contains(at))?;
        match &part.sign {
            Sign::Spot(spot) => Some(spot.clone()),
            Sign::Block(None) => Some(Spot::Item(Item::Stack(Vec::new()))),
            Sign::Block(Some(node)) if *node < data.graph.nodes.len() => {
                Some(Spot::Item(Item::Stack(data.graph.path(&data.flame, *node))))
            }
            Sign::Block(Some(_)) | Sign::Cover => None,
        }
    }
}
