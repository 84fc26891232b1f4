//! Unwinding by tables: what the daemon makes of `.eh_frame`, and how the programs walk by it.
//!
//! | file | holds |
//! |---|---|
//! | `register.rs` | DWARF's register numbers, and where a kernel and a signal frame keep them |
//! | `rule.rs` | [`Rule`]: how one frame's caller is found; shared by all modules, interned |
//! | `row.rs` | [`Row`], [`Page`], [`Module`], [`Mapping`], [`Process`]: from an address to its rule |
//! | `recent.rs` | [`Recent`]: what was found a while ago |
//! | `search.rs` | the bounded binary search over rows and mappings |
//! | `frame.rs` | [`Frame`]: what is known of a frame while walking |
//! | `step.rs` | [`step`]: one frame further by a rule |
//! | `frame_pointer.rs` | [`frame_pointer_step`]: the fallback where there is no rule |
//!
//! An address is looked up in this order: the process's sorted [`Mapping`]s, the [`Module`], its
//! [`Page`] of 64 KiB of text, the page's sorted [`Row`]s, the [`Rule`].

mod frame;
mod frame_pointer;
mod recent;
pub mod register;
mod row;
mod rule;
mod search;
mod step;

pub use frame::{Frame, Outcome};
pub use frame_pointer::frame_pointer_step;
pub use recent::{RECENT, Recent};
pub use row::{CHUNK_ROWS, MAX_MAPPINGS, Mapping, Module, PAGE_BYTES, Page, Process, Row};
pub use rule::{Cfa, Rule, Saved};
pub use search::{MAPPING_STEPS, ROW_STEPS, last_at_or_below};
pub use step::{
    enter_plain, find_caller, find_cfa, find_plain, leave_signal_frame, restore_rbp, restore_rbx, step,
};
