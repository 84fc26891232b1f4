//! Files whose parts refer to each other over and over, so that a small file says endlessly much: what is read of them
//! stays small, and is read soon.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod calls;
mod dwarf;
#[path = "../../../../fuzz/src/run/elf_file.rs"]
mod elf_file;
mod plan;
mod source;
mod symbolize;
