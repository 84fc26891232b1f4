//! What is fuzzed, and what each target does with an input.
//!
//! The readers are crates of their own: the daemon's server and its eBPF engine would take minutes to build with what fuzzing
//! needs.

pub mod run;
