//! Outlines of debug information, kept so that each is made once.

use std::sync::Arc;

use crate::{
    cache::{Kind, Place},
    plan::{Outline, Outlines, Part},
};

/// Length of the files of which outlines are kept, at least: others are read in less time than theirs would take.
pub const MIN_LENGTH: u64 = 16 << 20;

impl Part {
    /// What it is kept as.
    const fn kind(self) -> Kind {
        match self {
            Self::Places => Kind::Places,
            Self::Names => Kind::Names,
            Self::Lines => Kind::Lines,
        }
    }
}

impl Outlines for Place {
    fn outline(&self, part: Part, make: &dyn Fn() -> Outline) -> Outline {
        let read = || self.read(part.kind(), |kept| Outline::read(Arc::new(kept), part));
        if let Some(kept) = read() {
            return kept;
        }
        let made = make();
        self.keep(part.kind(), made.bytes());
        // Mapped, it takes no memory of our own.
        read().unwrap_or(made)
    }
}
