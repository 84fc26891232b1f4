//! The outlines of a file, from where they are kept, or made when they are first asked for.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Outline, Part};

/// Where outlines are kept, so that each is made once.
pub trait Outlines: Send + Sync {
    /// The outline that is kept, or what `make` makes.
    fn outline(&self, part: Part, make: &dyn Fn() -> Outline) -> Outline;
}

/// The outlines of a file, made or got when they are first asked for.
#[derive(Default)]
pub(crate) struct Lazy {
    places: Mutex<Option<Outline>>,
    names: Mutex<Option<Outline>>,
    lines: Mutex<Option<Outline>>,
    kept: Option<Arc<dyn Outlines>>,
}

impl Lazy {
    pub fn kept_in(outlines: Arc<dyn Outlines>) -> Self {
        Self {
            kept: Some(outlines),
            ..Self::default()
        }
    }

    /// An outline. Who asks while it is made waits for it.
    pub fn get(&self, part: Part, make: &dyn Fn() -> Outline) -> Outline {
        let made = match part {
            Part::Places => &self.places,
            Part::Names => &self.names,
            Part::Lines => &self.lines,
        };
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        let get = || match &self.kept {
            Some(kept) => kept.outline(part, make),
            None => make(),
        };
        made.get_or_insert_with(get).clone()
    }

    /// Bytes of memory that they take, as far as they are made.
    pub fn memory(&self) -> usize {
        let of = |made: &Mutex<Option<Outline>>| {
            // Nobody waits for one that is being made.
            let made = made.try_lock().ok()?;
            made.as_ref()
                .filter(|outline| outline.is_made)
                .map(|outline| outline.bytes().len())
        };
        let all = [&self.places, &self.names, &self.lines];
        all.into_iter().filter_map(of).sum()
    }
}
