//! The profiler's daemon as a library: everything between the kernel and the wire.
//!
//! See `ARCHITECTURE.md` for the map and the invariants, and `docs/internals/bounds.md` for every limit.

pub mod abi;
mod cache;
mod follow;
mod host;
pub mod kernel;
mod recording;
pub mod rpc;
pub mod session;

pub use recording::{ColumnWriter, Summaries, Summarizer, Trigger, TriggerError};
