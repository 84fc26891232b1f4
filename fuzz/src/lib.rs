//! What is fuzzed, and what each target does with an input.
//!
//! The daemon's readers are compiled here as modules: they depend on nothing else of it, and all of it, with its server
//! and its eBPF engine, would take minutes to build anew with what fuzzing needs.

/// The one type that symbols share with what is made of them.
#[path = ""]
pub mod aggregate {
    #[path = "../../profiler-daemon/src/aggregate/calltree.rs"]
    pub mod calltree;
}
#[path = "../../profiler-daemon/src/debug_files/mod.rs"]
pub mod debug_files;
#[path = "../../profiler-daemon/src/plan/mod.rs"]
pub mod plan;
#[path = "../../profiler-daemon/src/symbolize/mod.rs"]
pub mod symbolize;
#[path = "../../profiler-daemon/src/target/mod.rs"]
pub mod target;
#[expect(unused_imports, reason = "the rest of the daemon uses one more")]
#[path = "../../profiler-daemon/src/unwind/mod.rs"]
pub mod unwind;

pub mod run;
