//! What the targets do with an input, and how inputs are laid out.
//!
//! | file | idea |
//! |---|---|
//! | `input` | taking fields off an input's front |
//! | `elf_file` | an ELF file around fuzzed sections |
//! | `dwarf` | debug sections, as one input and mutated one at a time |
//! | `unwind` | unwind information, and what must hold of any table |
//! | `kept` | unwind tables as they are kept on disk |
//! | `recording` | the chunks of a recording |
//! | `recorded` | what the chunks hold |
//! | `file` | everything that is done with a file |
//! | `text` | perf maps, mappings, scopes, names |

pub mod dwarf;
pub mod elf_file;
pub mod file;
pub mod input;
pub mod kept;
pub mod recorded;
pub mod recording;
pub mod text;
pub mod unwind;
