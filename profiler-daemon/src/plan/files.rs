//! The files that planning reads of a module: the one that is mapped has its code; names and debug information are in it
//! too, or were split off.

use super::elf::Bytes;

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
}

impl ModuleFiles {
    /// A module that has everything in the file that is mapped.
    #[must_use]
    pub fn whole(program: Bytes) -> Self {
        Self {
            program,
            symbols: None,
            debug: None,
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
