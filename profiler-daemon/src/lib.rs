//! The profiler's daemon as a library: everything between the kernel and the wire.

pub mod abi;
mod cache;
pub mod environment;
mod follow;
pub mod kernel;
mod recording;
pub mod rpc;
pub mod session;
