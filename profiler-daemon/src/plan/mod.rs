//! From a name to sites: which instructions to probe, by what a file says of itself.
//!
//! Everything here is pure: bytes and values in, sites out; no I/O, no clock. All input is hostile:
//! it gives errors, never panics, and nothing is allocated beyond what the input's own size allows.

pub mod action;
pub mod code;
pub mod demangle;
pub mod dwarf;
pub mod elf;
pub mod entry;
pub mod exits;
pub mod functions;
pub mod hazards;
pub mod names;
pub mod scope;
pub mod stack;

mod sites;

pub use dwarf::DebugIndex;
pub use functions::{Function, ModuleIndex};
pub use hazards::KernelAbility;
pub use sites::{ExitSite, Limits, Plan, PlanError, PlannedFunction, Skipped, only_inlined, plan};
