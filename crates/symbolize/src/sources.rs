//! The files that a module's names are read from: its own file, at most one companion, and the files that these
//! refer to.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use profiler_debug_files::{Bytes, Elf, Finder, Home, Wanted, debugdata};

use super::{
    reason::Reason,
    references::Offsets,
    sections::Sections,
    split::{Skeleton, Split},
    supplement::Supplement,
};

/// A module's files.
pub(super) struct Sources {
    own: Elf,
    home: Home,
    companion: Option<Elf>,
    /// Of the own file if that has any, else of the companion.
    debug: Sections,
    in_companion: bool,
    /// Of the file that the debug sections are in.
    supplement: Option<Supplement>,
    split: Split,
    found: bool,
    /// What is wrong with something that should be there.
    left_out: Option<Reason>,
}

impl Sources {
    pub fn new(own: Elf, home: Home) -> Self {
        Self {
            own,
            home,
            companion: None,
            debug: Sections::default(),
            in_companion: false,
            supplement: None,
            split: Split::default(),
            found: false,
            left_out: None,
        }
    }

    /// The file that the target runs.
    pub fn own(&self) -> &Elf {
        &self.own
    }

    /// Looks for the companion and the debug sections, the first time that it is called.
    pub fn find(&mut self, finder: &Finder) {
        if std::mem::replace(&mut self.found, true) {
            return;
        }
        if let Some(unfolded) = finder.unfolded(&self.own) {
            self.companion = Some(unfolded);
            self.in_companion = true;
        }
        self.load();
        if self.debug.has_info() {
            let path = self.home.path().map(PathBuf::from);
            self.find_supplement(path.as_deref(), finder);
            return;
        }
        (self.companion, self.in_companion) = (None, false);
        let wanted = Wanted::by(&self.own);
        if let Some((companion, path)) = finder.companion(&wanted, &self.home) {
            self.companion = Some(companion);
            self.in_companion = true;
            self.load();
            self.find_supplement(Some(&path), finder);
        } else if !self.own.has_section(".symtab") {
            match debugdata::read(self.own.bytes()) {
                Ok(symbols) => self.companion = symbols,
                Err(error) => self.leave_out(&error),
            }
        }
    }

    /// Finds the debug sections of the file that has them.
    fn load(&mut self) {
        match Sections::load(self.companion.as_ref().unwrap_or(&self.own)) {
            Ok(debug) => self.debug = debug,
            Err(error) => self.leave_out(&error),
        }
    }

    /// Looks for the supplementary file of the file with the debug sections, which is at a path.
    fn find_supplement(&mut self, path: Option<&Path>, finder: &Finder) {
        if !self.debug.has_info() {
            return;
        }
        let referring = self.companion.as_ref().unwrap_or(&self.own);
        let owner = self.own.owner();
        match Supplement::find(referring, path, owner, &self.home, finder) {
            Ok(supplement) => self.supplement = supplement,
            Err(error) => {
                tracing::debug!(%error, path = ?self.home.path(), "supplementary file left out");
                let missing = error.kind() == ErrorKind::NotFound;
                let reason = if missing {
                    Reason::NoSupplement
                } else {
                    Reason::Damaged
                };
                self.left_out.get_or_insert(reason);
            }
        }
    }

    fn leave_out(&mut self, error: &std::io::Error) {
        tracing::debug!(%error, path = ?self.home.path(), "debug information left out");
        self.left_out = Some(Reason::Damaged);
    }

    /// Why an address is not found in them.
    pub fn lacking(&self) -> Reason {
        let mut files = std::iter::once(&self.own).chain(&self.companion);
        if let Some(reason) = self.left_out {
            reason
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
        let mut dwarf = match &self.companion {
            Some(companion) if self.in_companion => self.debug.dwarf(companion),
            _ => self.debug.dwarf(&self.own),
        };
        if let Some(supplement) = &self.supplement {
            dwarf.set_sup(supplement.dwarf());
        }
        dwarf
    }

    /// Where the units of the supplementary file begin.
    pub fn supplement_offsets(&self) -> Option<&Offsets> {
        self.supplement.as_ref().map(Supplement::offsets)
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

    /// Where they are looked for.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Whether the files are as long as they were: see [`Elf::open`].
    pub fn is_intact(&self) -> bool {
        self.own.is_intact()
            && self.companion.as_ref().is_none_or(Elf::is_intact)
            && self.supplement.as_ref().is_none_or(Supplement::is_intact)
    }

    /// Bytes of memory that they take, apart from what is mapped.
    pub fn bytes(&self) -> usize {
        self.own.bytes_owned()
            + self.debug.bytes()
            + self.split.bytes()
            + self.companion.as_ref().map_or(0, Elf::bytes_owned)
            + self.supplement.as_ref().map_or(0, Supplement::bytes)
    }
}
