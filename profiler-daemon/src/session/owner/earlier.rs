//! Tables of names that streams still hold after names were made anew, which happens when no session is left: so many of them, and no
//! more, as one is of some hundred megabytes where somebody had that many names made.

use std::sync::Weak;

use profiler_symbolize::FrameTable;

/// Tables that are held beside the one in use, before names are not made anew any more.
const MAX_HELD: usize = 4;

/// Those that somebody may still hold.
#[derive(Default)]
pub struct EarlierTables(Vec<Weak<()>>);

impl EarlierTables {
    /// Whether as many are held as may be. Then the present one stays in use until a stream that holds one is read or closed.
    pub fn are_all_held(&mut self) -> bool {
        self.0.retain(|holders| holders.strong_count() > 0);
        self.0.len() >= MAX_HELD
    }

    /// A table is not in use any more.
    pub fn leave(&mut self, table: &FrameTable) {
        self.0.push(table.holders());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_nobody_holds_any_more_make_room_for_others() {
        let mut earlier = EarlierTables::default();
        for _ in 0..3 * MAX_HELD {
            earlier.leave(&FrameTable::default());
            assert!(!earlier.are_all_held(), "no stream has it");
        }
        let mut held: Vec<FrameTable> = (0..MAX_HELD)
            .map(|_| {
                assert!(!earlier.are_all_held());
                let table = FrameTable::default();
                earlier.leave(&table);
                // Another moment's.
                table.clone()
            })
            .collect();
        assert!(earlier.are_all_held());
        held.pop();
        assert!(!earlier.are_all_held());
    }
}
