//! Code that goroutines run, which is no thread's.
//!
//! A goroutine goes on wherever it is put: on another thread while a call is open, and on another stack where its own has grown,
//! after which it runs the function's entry again. A span by thread and stack pointer would be wrong, so that none is begun.
//! C that a Go program calls stays on its thread and on that thread's stack.

use super::{frames::Frames, functions::ModuleIndex};

/// Why spans of a goroutine's code are refused, and what serves instead.
pub const NO_SPANS: &str = "it is Go's: goroutines move between threads and stacks, so that a call cannot be followed to its end; its \
                            lines can be traced (`trace FILE:LINE`) and its samples drawn (`flame`)";

/// Whether goroutines run the code at an address. Where a file has code of both, that is Go's which has no rows in `.eh_frame`:
/// its compiler describes frames in `.debug_frame` and in tables of its own.
#[must_use]
pub fn run(module: &ModuleIndex, address: u64) -> bool {
    module.has_go() && Frames::of(module.files().program()).piece(address).is_none()
}
