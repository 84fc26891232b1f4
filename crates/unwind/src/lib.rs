//! From a file's `.eh_frame` to the tables that the programs unwind by. Pure: bytes in, tables out.
//!
//! | file | holds |
//! |---|---|
//! | `elf.rs` | the sections and the text that unwinding needs, of an ELF file or of the vDSO's image |
//! | `entry.rs` | the code that a process begins with |
//! | `collect.rs` | every entry's rows, in bounded work |
//! | `translate.rs` | one row of gimli's as a [`Rule`](profiler_common::unwind::Rule) |
//! | `eh_return.rs` | functions that leave to an exception's handler, and what they overwrite before |
//! | `expression.rs` | the shapes of DWARF expressions that rules can say |
//! | `flatten.rs` | entries put in order: overlaps, gaps, padding |
//! | `padding.rs` | whether bytes between functions are padding |
//! | `table.rs` | [`Table`]: a module's rows by page, and [`build`] |
//! | `kept.rs` | a table as bytes, as it is kept on disk, and back |
//! | `rule_set.rs` | [`RuleSet`]: rules interned |
//! | `shared_rules.rs` | the rules of all modules, each for as long as a module has it |
//! | `shares.rs` | how much of the tables one user's processes may use |
//! | `runs.rs` | free runs of numbers, first fit |
//! | `segments.rs` | where a file's text comes to lie in a process |
//! | `store.rs` | [`Store`]: which module has which pages and rows, under a cap |
//! | `image.rs` | [`Image`]: the packed tables in plain memory, as the programs have them in maps |
//! | `walk.rs` | [`Walk`]: a stack walked natively by the programs' own step |
//!
//! The daemon calls [`build`] off its event loop, [`Store::add`]s the table under the file's build-id, and
//! writes the returned [`Placement`] into the maps: rows and rules first, then pages, the module, and last the
//! mappings that point to it. Removal goes the other way:
//! mappings, then [`Store::release`]; records of what [`Store::evict`] names are zeroed.
//!
//! See `docs/internals/stacks.md` for how stacks are walked.

mod collect;
mod eh_return;
mod elf;
mod entry;
mod expression;
mod flatten;
mod image;
mod kept;
mod padding;
mod rule_set;
mod runs;
mod segments;
mod shared_rules;
mod shares;
mod store;
mod table;
mod translate;
mod walk;

pub use image::Image;
pub use rule_set::RuleSet;
pub use runs::Runs;
pub use segments::Segments;
pub use shared_rules::NewRule;
pub use shares::{ROOT, of_user, of_users, reach};
pub use store::{Key, Limits, Part, Piece, Placement, Refused, Store};
pub use table::{BuildError, Counts, MAX_MODULE_PAGES, MAX_MODULE_ROWS, Table, build};
pub use walk::{End, Memory, Stack, Walk};
