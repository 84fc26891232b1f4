//! The profiler's client: the command line and what it is made of.
//!
//! Everything goes through the `profiler.v1` service; nothing here traces, reads ELF or attaches.

pub mod cli;
pub mod render;
pub mod state;
