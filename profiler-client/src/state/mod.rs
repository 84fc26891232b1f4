//! What the client knows of a view: snapshots and deltas applied, nothing else.

pub mod by_value;
pub mod end;
pub mod flame;
pub mod functions;
pub mod histogram;
pub mod imported;
pub mod latency;
pub mod lines;
pub mod rename;
pub mod shape;
pub mod sides;
pub mod spans;
pub mod syscalls;
pub mod thread_names;
pub mod timeline;
pub mod times;
pub mod trace;
pub mod tree;
pub mod unresolved;
pub mod waits;

/// A message that contradicts the protocol; the daemon is of another version, or broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("The daemon sent {0}, which profiler.v1 does not allow: are daemon and client of one version?")]
pub struct Malformed(pub &'static str);
