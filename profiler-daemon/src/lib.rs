//! The profiler's daemon as a library: everything between the kernel and the wire.

pub mod kernel;
pub mod symbolize;
pub mod target;
