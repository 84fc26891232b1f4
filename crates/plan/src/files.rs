//! The files that planning reads of a module: the one that is mapped has its code; names and debug information are in it
//! too, or were split off.

use profiler_elf::{Bytes, Elf};

/// Which of a module's files a name is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NameFile {
    /// The mapped one.
    Program,
    /// The one with symbols that it lacks.
    Symbols,
}

impl NameFile {
    pub const ALL: [Self; 2] = [Self::Program, Self::Symbols];
}

/// The files of a module.
#[derive(Clone)]
pub struct ModuleFiles {
    program: Bytes,
    symbols: Option<Bytes>,
    debug: Option<Bytes>,
    /// Whether there is debug information, where that is known without reading.
    has_debug_info: Option<bool>,
}

impl ModuleFiles {
    /// A module that has everything in the file that is mapped.
    #[must_use]
    pub fn whole(program: Bytes) -> Self {
        Self {
            program,
            symbols: None,
            debug: None,
            has_debug_info: None,
        }
    }

    /// Takes symbols that the mapped file lacks from another.
    #[must_use]
    pub fn with_symbols(mut self, symbols: Bytes) -> Self {
        self.symbols = Some(symbols);
        self
    }

    /// Takes debug information from another file than the mapped one.
    #[must_use]
    pub fn with_debug(mut self, debug: Bytes) -> Self {
        self.debug = Some(debug);
        self
    }

    /// The same of a file that has debug information, and is made when it is first read.
    #[must_use]
    pub fn with_debug_when_read(mut self, debug: Bytes) -> Self {
        self.debug = Some(debug);
        self.has_debug_info = Some(true);
        self
    }

    /// Whether there is debug information.
    pub(super) fn has_debug_info(&self) -> bool {
        let look = || Elf::parse(self.debug()).is_ok_and(|debug| debug.has_debug_info());
        self.has_debug_info.unwrap_or_else(look)
    }

    /// The mapped file, shared.
    #[must_use]
    pub fn program_bytes(&self) -> Bytes {
        Bytes::clone(&self.program)
    }

    /// The mapped file.
    #[must_use]
    pub fn program(&self) -> &[u8] {
        (*self.program).as_ref()
    }

    /// The file with debug information, if the module has any.
    #[must_use]
    pub fn debug(&self) -> &[u8] {
        self.debug
            .as_ref()
            .map_or(self.program(), |debug| (**debug).as_ref())
    }

    /// The file with symbols that the mapped one lacks, if there is one.
    #[must_use]
    pub fn symbols(&self) -> Option<&[u8]> {
        self.symbols.as_ref().map(|symbols| (**symbols).as_ref())
    }

    /// A file with names; nothing of one that there is not.
    pub(super) fn names(&self, file: NameFile) -> &[u8] {
        match file {
            NameFile::Program => self.program(),
            NameFile::Symbols => self.symbols().unwrap_or_default(),
        }
    }
}
