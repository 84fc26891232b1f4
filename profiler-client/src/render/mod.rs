//! One renderer a file: state in, bytes or text out. None of them does I/O.

pub mod by_value;
pub mod by_value_json;
pub mod durations;
pub mod escape;
pub mod estimate;
pub mod estimate_json;
pub mod events;
pub mod explain;
pub mod explain_json;
pub mod folded;
pub mod intervals;
pub mod json;
#[cfg(test)]
mod parsed;
pub mod process;
pub mod profile;
pub mod reasons;
pub mod source;
pub mod source_json;
pub mod source_names;
pub mod spans;
pub mod spans_json;
pub mod svg;
pub mod syscalls;
pub mod syscalls_json;
pub mod text;
pub mod threshold;
pub mod timeline;
pub mod timeline_json;
pub mod timeline_svg;
pub mod top;
pub mod trace;
pub mod trace_json;
pub mod tree;
pub mod units;
pub mod waits;
pub mod waits_json;
