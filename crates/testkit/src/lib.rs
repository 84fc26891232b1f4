//! What tests of several crates share.
//!
//! See `docs/internals/testing.md` for how the code is tested.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::missing_panics_doc, reason = "a test that cannot go on fails")]
#![expect(clippy::must_use_candidate, reason = "tests also call for what happens")]

pub mod bpf;
pub mod fixture;
pub mod json;
pub mod mapped;
mod random;
mod readers;
mod skip;
pub mod stepping;

pub use random::Random;
pub use readers::{npm_package, python, reader};
pub use skip::{has_program, skipped};
