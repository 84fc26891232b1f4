//! Small files whose parts refer to each other over and over, so that their content is endless: reading them takes
//! little time and memory.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod calls;
mod dwarf;
#[path = "../../../../fuzz/src/run/elf_file.rs"]
mod elf_file;
mod plan;
mod source;
mod symbolize;
