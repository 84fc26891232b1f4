//! What a module's names are read from: its own file and at most one companion.

use super::{
    companion::Wanted,
    debugdata,
    elf::{Bytes, Elf},
    home::Home,
    reason::Reason,
    sections::Sections,
    sideload::SideLoaded,
    split::{Skeleton, Split},
};

/// A module's files.
pub(super) struct Sources {
    own: Elf,
    home: Home,
    companion: Option<Elf>,
    /// Of the own file if that has any, else of the companion.
    debug: Sections,
    in_companion: bool,
    split: Split,
    found: bool,
    /// Something that should be there could not be read.
    damaged: bool,
}

impl Sources {
    pub fn new(own: Elf, home: Home) -> Self {
        Self {
            own,
            home,
            companion: None,
            debug: Sections::default(),
            in_companion: false,
            split: Split::default(),
            found: false,
            damaged: false,
        }
    }

    /// The file that is mapped.
    pub fn own(&self) -> &Elf {
        &self.own
    }

    /// Looks for the companion and the debug sections, the first time that it is called.
    pub fn find(&mut self, side_loaded: &SideLoaded) {
        if std::mem::replace(&mut self.found, true) {
            return;
        }
        match Sections::load(&self.own) {
            Ok(debug) => self.debug = debug,
            Err(error) => self.leave_out(&error),
        }
        if self.debug.has_info() {
            return;
        }
        let wanted = Wanted::by(&self.own);
        self.companion = side_loaded.find(&wanted).or_else(|| wanted.find(&self.home));
        if let Some(companion) = &self.companion {
            self.in_companion = true;
            match Sections::load(companion) {
                Ok(debug) => self.debug = debug,
                Err(error) => self.leave_out(&error),
            }
        } else if !self.own.has_section(".symtab") {
            match debugdata::read(&self.own) {
                Ok(symbols) => self.companion = symbols,
                Err(error) => self.leave_out(&error),
            }
        }
    }

    fn leave_out(&mut self, error: &std::io::Error) {
        tracing::debug!(%error, path = ?self.home.path(), "debug information left out");
        self.damaged = true;
    }

    /// Why an address is not found in them.
    pub fn lacking(&self) -> Reason {
        let mut files = std::iter::once(&self.own).chain(&self.companion);
        if self.damaged {
            Reason::Damaged
        } else if self.has_debug() || files.any(|file| file.has_section(".symtab")) {
            Reason::NoSymbolHere
        } else {
            Reason::NoSymbols
        }
    }

    /// The files that symbols are in, the mapped one first.
    pub fn with_symbols(&self) -> Vec<&Elf> {
        let complete = self.own.has_section(".symtab");
        let companion = self.companion.as_ref().filter(|_| !complete);
        std::iter::once(&self.own).chain(companion).collect()
    }

    /// Whether there is debug information, once it was looked for.
    pub fn has_debug(&self) -> bool {
        self.debug.has_info()
    }

    /// A view of the debug sections.
    pub fn dwarf(&self) -> gimli::Dwarf<Bytes<'_>> {
        match &self.companion {
            Some(companion) if self.in_companion => self.debug.dwarf(companion),
            _ => self.debug.dwarf(&self.own),
        }
    }

    /// Opens the files that these units are in.
    pub fn load_split(&mut self, skeletons: &[Skeleton]) {
        if skeletons.is_empty() {
            return;
        }
        let wanted = Wanted::by(&self.own);
        for skeleton in skeletons {
            self.split.load(skeleton, &wanted, &self.home);
        }
    }

    /// The files that units are in.
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// Whether the files are as long as they were: see [`Elf::map`].
    pub fn is_intact(&self) -> bool {
        self.own.is_intact() && self.companion.as_ref().is_none_or(Elf::is_intact)
    }

    /// Bytes of memory that they take, apart from what is mapped.
    pub fn bytes(&self) -> usize {
        self.debug.bytes() + self.split.bytes() + self.companion.as_ref().map_or(0, Elf::bytes_owned)
    }
}
