//! From addresses to functions.
//!
//! A [`Symbolizer`] belongs to one thread at a time, apart from the event loop: resolving reads files. What
//! it reads is hostile: every length is checked, every loop and every allocation has a bound, and what does
//! not resolve becomes a frame that says where it lies, never an error.
//!
//! Nothing that is kept borrows from a file: the caches hold numbers and names, and the views on a mapped
//! file are made anew for each address that is not in a cache. So a file can be dropped at any time.
//!
//! | file | idea |
//! |---|---|
//! | `symbolizer` | the verbs: resolve, forget |
//! | `frame` | functions, interned |
//! | `frame_table` | these by number |
//! | `shares` | how much of that table each user's processes take |
//! | `owners` | whose processes are |
//! | `reason` | why an address has no function |
//! | `space` | one process: its mappings and the addresses resolved so far |
//! | `cache` | modules by file and by build-id, least recently used out |
//! | `module` | one ELF file: DWARF, else symbols, else its name and an offset |
//! | `sources` | the files that a module's names are read from |
//! | `supplement` | what is read of the file that several files' debug information shares |
//! | `debug_file` | names from a debug file alone, for addresses that others could not name |
//! | `split` | debug information that the compiler left beside the objects |
//! | `sections` | its debug sections, decompressed where need be |
//! | `symbols` | function symbols, sorted |
//! | `units` | DWARF: which unit and function an address is in |
//! | `references` | DWARF: entries that another unit or file refers to |
//! | `inlined` | DWARF: the chain of inlined functions at an address |
//! | `declaration` | DWARF: a function's name and where it is declared |
//! | `root` | whether the unwind table says that nothing called the code |
//! | `entry` | the calls of a program's first functions, which its entry point leads to |
//! | `name` | demangling, bounded |
//! | `kernel` | `/proc/kallsyms` |
//! | `grouping` | what the frames of a stack stand for |
//! | `lines` | DWARF: the line that an address belongs to |
//! | `memory` | whose stack, which heap or mapping data lies in |
//! | `tasks` | what threads and processes are called |
//! | `perf_map` | functions that a just-in-time compiler has announced |
//! | `perf_file` | the file in which it does, read as it grows |
//! | `look_budget` | how much time goes into reading those files |
//! | `vdso` | the kernel's own code in every process, as a file |
//! | `detached` | a file or a perf map in memory, without a process |
//!
//! See `docs/internals/names.md` for where names come from.

mod cache;
mod debug_file;
mod declaration;
mod detached;
mod entry;
mod frame;
mod frame_table;
mod grouping;
mod inlined;
mod kernel;
mod lines;
mod look_budget;
mod memory;
mod module;
mod name;
mod owners;
mod perf_file;
mod perf_map;
mod reason;
mod references;
mod root;
mod sections;
mod shares;
mod sources;
mod space;
mod split;
mod supplement;
mod symbolizer;
mod symbols;
mod tasks;
mod units;
mod vdso;
mod word;

pub use debug_file::DebugFile;
pub use detached::{CompiledSymbols, FileSymbols};
pub use frame::{FRAMES_MAX, Frame, FrameId, Frames, Nameable};
pub use frame_table::FrameTable;
pub use grouping::{Grouping, Groupings, Stacks};
pub use memory::NamedMemory;
pub use name::demangle;
pub use reason::Reason;
pub use space::Generation;
pub use symbolizer::Symbolizer;
pub use tasks::{UNKNOWN_TASK, name_of_thread};
pub use word::Word;
