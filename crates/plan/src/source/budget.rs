//! What one file may make a request do and keep, in all.

use super::super::left::Left;

/// Rows, entries and attributes that are read: some seconds. A unit of a million rows and all functions
/// of one name stay far below it.
const WORK: usize = 1 << 27;
/// Bytes of machine code that are decoded: those of a line of a header in thousands of functions.
const CODE: usize = 1 << 24;
/// Ranges of units and functions that are compared with addresses.
const STEPS: usize = 1 << 26;
/// Ranges of blocks, inlined instances and variables.
const RANGES: usize = 1 << 20;
/// Rows of line tables that are kept of functions.
const ROWS: usize = 1 << 23;
/// Bytes of names and paths.
const TEXT: usize = 1 << 28;
/// Calls and branches.
const FOUND: usize = 1 << 20;

/// What is left of it.
pub(crate) struct Budget {
    pub work: Left,
    pub code: Left,
    pub steps: Left,
    pub ranges: Left,
    pub rows: Left,
    pub text: Left,
    pub found: Left,
}

impl Budget {
    pub const fn new() -> Self {
        Self {
            work: Left::new(WORK),
            code: Left::new(CODE),
            steps: Left::new(STEPS),
            ranges: Left::new(RANGES),
            rows: Left::new(ROWS),
            text: Left::new(TEXT),
            found: Left::new(FOUND),
        }
    }

    /// A text to keep, or what stands for it.
    pub fn text(&self, text: &str) -> String {
        if self.text.take(text.len()) {
            text.to_owned()
        } else {
            "…".to_owned()
        }
    }

    /// Whether something had to be left out.
    pub fn is_short(&self) -> bool {
        [
            &self.work,
            &self.code,
            &self.steps,
            &self.ranges,
            &self.rows,
            &self.text,
            &self.found,
        ]
        .into_iter()
        .any(Left::is_short)
    }
}
