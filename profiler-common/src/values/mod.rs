//! Reading a variable: a small bytecode that the daemon lowers DWARF to, and the interpreter that the programs
//! run it by.
//!
//! A value is read by a [`ReadPlan`]: at most [`MAX_INSTRUCTIONS`] instructions that compute addresses on a stack
//! and append bytes to an output. Jumps lead forward only, so every plan ends. [`step()`] does one instruction on a
//! [`State`] that the caller keeps; what it needs of the thread it asks a [`Thread`]. Both compile for eBPF and
//! natively: no recursion, no loop but of a constant length, no panic, no floating point.
//!
//! | file | has |
//! |---|---|
//! | `instruction.rs` | what an instruction is |
//! | `plan.rs` | the instructions of one value |
//! | `state.rs` | where the interpreter stands, and what came of a value |
//! | `step.rs` | one instruction done |
//! | `test.rs` | a condition that needs no interpreter |
//! | `compare.rs` | comparisons, those of floating point by integers |

pub mod compare;
pub mod instruction;
pub mod plan;
pub mod state;
pub mod step;
pub mod test;

pub use compare::{Comparison, Kind};
pub use instruction::{Instruction, Operation, thread};
pub use plan::ReadPlan;
pub use state::{NO_STORAGE, OTHER_VARIANT, Outcome, State};
pub use step::{Thread, run, step};
pub use test::Test;

/// Instructions of one value.
pub const MAX_INSTRUCTIONS: usize = 32;

/// Values read at one site.
pub const MAX_VALUES: usize = 16;

/// Bytes read for one value.
pub const MAX_BYTES: usize = 256;

/// Bytes that a [`State`]'s output has room for: what is appended at any place below [`MAX_BYTES`] fits, so that
/// the verifier sees it by two masks.
pub const OUTPUT_BYTES: usize = 2 * MAX_BYTES;

/// Slots of the interpreter's stack. A power of two: its index is masked.
pub const STACK_SLOTS: usize = 16;
