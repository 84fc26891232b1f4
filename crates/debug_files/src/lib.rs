//! The files with a module's symbols and debug information: the mapped file, files split off from it, and the source.
//!
//! What is found was put there by others: only files of the module's owner or of root are taken, with the rights of
//! the module's owner or of the process that has mapped it; links stay within the target's root, and nothing is opened
//! that could wait.
//!
//! | file | idea |
//! |---|---|
//! | `elf` | the bytes of a file, mapped or copied, and where in them everything is |
//! | `home` | where files that belong to a module are looked for, and opening them |
//! | `reader` | whose rights decide whether one is opened |
//! | `finder` | how all of these are found |
//! | `companion` | the file with a module's debug information, where that was split off |
//! | `package` | the package that a distribution has the debug information in, where it is missing |
//! | `supplement` | the file with what the debug information of several files has in common |
//! | `sideload` | files with symbols that the user names |
//! | `source_text` | the text of source files that debug information names |
//! | `debugdata` | the packed symbols within a stripped file |
//! | `unfolded` | a file with compressed sections, written anew without
//!
//! See `docs/internals/names.md` for where names come from.

mod companion;
pub mod debugdata;
mod elf;
mod finder;
mod home;
mod package;
mod reader;
mod sideload;
mod source_text;
pub mod supplement;
mod unfolded;

pub use companion::{Wanted, hex};
pub use elf::{Bytes, Elf, Parsed};
pub use finder::{Finder, Kept, Unfold};
pub use home::{Home, Links, SharedWith, open_file, open_regular};
pub use package::{CutOff, DebugPackage, MappedFile, PackageBudget, installed_path};
pub use reader::{Reader, Rights};
pub use sideload::{SideLoadError, SideLoaded};
pub use source_text::{MAX_BYTES as MAX_SOURCE_BYTES, SourceText};
pub use unfolded::Unfolded;
