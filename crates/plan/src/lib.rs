//! From a name to sites: finds the instructions to probe from a file's symbols, unwind tables, debug information
//! and code.
//!
//! Everything here is pure: bytes and values in, sites out; no I/O, no clock. All input is hostile:
//! it gives errors, never panics, and nothing is allocated beyond what the input's own size allows.

pub mod action;
pub mod addresses;
pub mod allocators;
pub mod branches;
pub mod calls;
pub mod code;
pub mod demangle;
pub mod dwarf;
pub mod entry;
pub mod exits;
pub mod files;
pub mod functions;
pub mod handling;
pub mod hazards;
pub mod ifuncs;
pub mod inlined;
pub mod instruction;
pub mod lines;
pub mod mangling;
pub mod names;
pub mod outline;
pub mod source;
pub mod stack;
pub mod values;

mod body;
mod frames;
mod futures;
mod goroutines;
mod held;
mod left;
mod return_address;
mod same_code;
mod sections;
mod sites;
mod stack_switch;
mod subprograms;
mod tail;
mod unusable;

pub use dwarf::DebugIndex;
pub use files::ModuleFiles;
pub use functions::{Function, ModuleIndex};
pub use hazards::KernelAbility;
pub use held::lines_of;
pub use outline::{Outline, Outlines, Part};
pub use sites::{
    ChosenFunction, Ends, ExitSite, Limits, Plan, PlanError, PlannedFunction, Skipped, only_inlined, plan,
};
pub use tail::TailCalls;
