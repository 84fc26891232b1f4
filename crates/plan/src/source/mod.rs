//! The source of functions, and what can be probed in it: lines, branches, loops, calls, inlined instances, variables.
//!
//! Of the debug information only the units are read that hold the functions asked for. What is bounded and does not fit
//! is said in [`FunctionSource::missing`], as is what the file does not tell.
//!
//! What a scope's calls and branches are found by ([`super::calls`], [`super::branches`]) is shared with them.
//!
//! | file | idea |
//! |---|---|
//! | `place` | what to show, as it is written |
//! | `find` | from names and lines to functions and their instances |
//! | `units` | DWARF: units and functions by address, entries wherever they are |
//! | `budget` | what one file may take of a request |
//! | `scopes` | DWARF: blocks and inlined instances |
//! | `variables`, `types` | DWARF: variables, the names of their types |
//! | `rows` | DWARF: where lines begin to run |
//! | `flow`, `linkage`, `loops` | machine code: calls and branches, callees of the linkage table, jumps that loop |
//! | `whole` | all of a function's code, by its symbols |
//! | `part` | a function or an instance, and the lines that its addresses are shown with |
//! | `join` | all of it, by line |
//! | `model` | what comes out |
//!
//! See `docs/internals/source.md` for how the source of a function is shown.

pub(super) mod budget;
pub(super) mod find;
pub(super) mod flow;
mod join;
mod linkage;
mod loops;
mod model;
pub(super) mod part;
mod place;
pub(super) mod ranges;
pub(super) mod rows;
pub(super) mod scopes;
mod types;
pub(super) mod units;
mod variables;
pub(super) mod whole;

pub use find::{Found, MAX_INSTANCES, at_addresses, debugged, functions, inlined, inlined_count, line};
pub(super) use flow::slot;
pub use flow::{Call, CallKind};
pub(super) use linkage::slot_of;
pub use model::{Branch, FunctionSource, Instance, Line, Position, Readable};
pub use part::MAX_LINES;
pub use place::{Place, parse};
pub use variables::Variable;
