//! Reads the supplementary file, which has the debug information that several files share.

use std::{io, path::Path};

use profiler_debug_files::{Bytes, Elf, Finder, Home};

use super::{references::Offsets, sections::Sections};

/// A supplementary file.
pub(super) struct Supplement {
    elf: Elf,
    sections: Sections,
    offsets: Offsets,
}

impl Supplement {
    /// The one that a file refers to, if it does; `from` is where that file is, and `owner` whose the module is.
    ///
    /// # Errors
    /// Where there should be one and none is found, or it is damaged.
    pub fn find(
        referring: &Elf,
        from: Option<&Path>,
        owner: Option<u32>,
        home: &Home,
        finder: &Finder,
    ) -> io::Result<Option<Self>> {
        let Some(elf) = finder.supplement(referring, from, owner, home)? else {
            return Ok(None);
        };
        let sections = Sections::load(&elf)?;
        let offsets = Offsets::read(&sections.dwarf(&elf));
        Ok(Some(Self {
            elf,
            sections,
            offsets,
        }))
    }

    /// A view of its sections.
    pub fn dwarf(&self) -> gimli::Dwarf<Bytes<'_>> {
        self.sections.dwarf(&self.elf)
    }

    /// Where its units begin.
    pub fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// Whether the file is as long as it was: see [`Elf::open`].
    pub fn is_intact(&self) -> bool {
        self.elf.is_intact()
    }

    /// Bytes of memory that it takes, apart from what is mapped.
    pub fn bytes(&self) -> usize {
        self.elf.bytes_owned() + self.sections.bytes() + self.offsets.bytes()
    }
}
