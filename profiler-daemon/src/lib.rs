//! The profiler's daemon as a library: everything between the kernel and the wire.

pub mod abi;
pub mod aggregate;
mod cache;
pub mod debug_files;
pub mod environment;
mod follow;
pub mod kernel;
pub mod plan;
pub mod rpc;
pub mod session;
pub mod symbolize;
pub mod target;
pub mod unwind;
