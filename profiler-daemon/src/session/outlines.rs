//! Outlines of debug information, kept so that each is made once.

use std::sync::Arc;

use profiler_plan::{Outline, Outlines, Part};

use crate::cache::{Kind, Place};

/// Length of the files of which outlines are kept, at least: others are read in less time than theirs would take.
pub const MIN_LENGTH: u64 = 16 << 20;

/// What a part is kept as.
const fn kind(part: Part) -> Kind {
    match part {
        Part::Places => Kind::Places,
        Part::Names => Kind::Names,
        Part::Lines => Kind::Lines,
    }
}

impl Outlines for Place {
    fn outline(&self, part: Part, make: &dyn Fn() -> Outline) -> Outline {
        let read = || self.read(kind(part), |kept| Outline::read(Arc::new(kept), part));
        if let Some(kept) = read() {
            return kept;
        }
        let made = make();
        self.keep(kind(part), made.bytes());
        // Mapped, it takes no memory of our own.
        read().unwrap_or(made)
    }
}
