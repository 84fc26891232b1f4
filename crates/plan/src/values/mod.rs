//! From an expression and an address to a plan that reads it, and from the bytes read to a value.
//!
//! A variable's location is lowered once, for that address, to the bytecode of [`profiler_common::values`]. What
//! cannot be read for certain is refused with the reason: a plausible wrong value is worse than none.
//!
//! | file | has |
//! |---|---|
//! | `file.rs` | a file's DWARF, a unit at a time, and what else of it is needed |
//! | `entry.rs` | its entries, and what they refer to |
//! | `functions.rs` | which function and blocks an address is in |
//! | `scope.rs` | which variable a name means there |
//! | `globals.rs` | variables outside of functions |
//! | `location.rs` | where a variable is at an address |
//! | `context.rs` | where an expression is evaluated, and what it comes to |
//! | `on_entry.rs` | where arguments are when control reaches their function |
//! | `operations.rs` | DWARF expressions to bytecode |
//! | `code.rs` | bytecode under construction |
//! | `frame.rs` | the frame's base and the canonical frame address |
//! | `entry_value.rs` | what a register held when the function was called |
//! | `prologue.rs` | where arguments are before the function has stored them |
//! | `thread_tables.rs` | where libraries have theirs, by glibc's tables |
//! | `thread_local.rs` | where thread-local variables are |
//! | `types.rs` | types, a step at a time |
//! | `shape.rs` | what bytes mean: types described in full, and owned |
//! | `structure.rs` | the shapes of structures and of Rust's enums |
//! | `place.rs` | a part of a variable, in memory or in pieces |
//! | `text.rs` | strings and slices of the languages' libraries |
//! | `same_text.rs` | comparisons with text |
//! | `of_thread.rs` | the thread's own number and name |
//! | `passed.rs` | what is said of parameters at the entry, and may be of a moment later |
//! | `path.rs` | from a variable to what is meant of it |
//! | `lower.rs` | all of it together |
//! | `record.rs` | the records of the kernel's tracepoints |
//! | `returned.rs` | what functions return, and in which registers |
//! | `render.rs` | bytes to a value |
//! | `print.rs` | a value to text |
//!
//! See `docs/internals/values.md` for how a hit gets its values.

pub mod render;
pub mod shape;

mod code;
mod context;
mod entry;
mod entry_value;
mod file;
mod frame;
mod functions;
mod globals;
mod location;
mod lower;
mod of_thread;
mod on_entry;
mod operations;
mod passed;
mod path;
mod place;
mod print;
mod prologue;
mod record;
mod refusal;
mod returned;
mod same_text;
mod scope;
mod structure;
mod text;
mod thread_local;
mod thread_tables;
mod types;

pub use file::{DebugFile, DebugSections};
pub use lower::{Layout, Lowered, Returns, Site, lower, lower_with, require, require_text, require_with};
pub use record::{Parameter, Record};
pub use refusal::Refusal;
pub use render::{Reading, Value, render};
pub use returned::{of_kernel_function, of_system_call, render_returned, require_of_system_call};
pub use scope::nearest;
pub use shape::Shape;
pub use thread_tables::ThreadModule;
