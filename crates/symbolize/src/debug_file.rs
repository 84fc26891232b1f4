//! Names from a debug file alone, for addresses that could not be named where they were seen: see
//! [`super::Nameable`].

use std::{fs::File, io, path::Path};

use profiler_debug_files::{Elf, Finder, Home, SideLoaded, supplement};

use super::{
    frame::{Frame, Frames},
    module::Module,
};

/// A file with a module's debug information.
pub struct DebugFile {
    module: Module,
    frames: Frames,
    finder: Finder,
    build_id: Vec<u8>,
    supplement: Option<Vec<u8>>,
}

impl DebugFile {
    /// Opens one; its frames will be of a module of this name.
    ///
    /// # Errors
    /// Where it is not readable, is no ELF file for x86-64, or has neither a build-id nor anything to read names from.
    pub fn open(path: &Path, name: &str) -> io::Result<Self> {
        let elf = Elf::open(File::open(path)?)?;
        let invalid = |text| io::Error::new(io::ErrorKind::InvalidData, text);
        if !(elf.has_section(".debug_info") || elf.has_section(".symtab")) {
            return Err(invalid("it has no symbols"));
        }
        let build_id = elf.build_id().map(<[u8]>::to_vec);
        let build_id = build_id.or_else(|| supplement::checksum(&elf));
        Ok(Self {
            build_id: build_id.ok_or_else(|| invalid("it has no build-id"))?,
            supplement: supplement::wanted_by(&elf),
            module: Module::new(name, elf, Home::new(path, &["/"])),
            frames: Frames::default(),
            finder: Finder::default(),
        })
    }

    /// Its build-id, or the checksum that a supplementary file has in its place.
    #[must_use]
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// The build-id of the supplementary file that it refers to.
    #[must_use]
    pub fn supplement(&self) -> Option<&[u8]> {
        self.supplement.as_deref()
    }

    /// Names where that may be, before anything is resolved.
    pub fn side_load(&mut self, files: SideLoaded) {
        self.finder.side_load(files);
    }

    /// The frames at an address of the module's numbering, innermost inlined one first; always at least one. With
    /// `lines`, they have the lines that run there in place of those of the declarations.
    pub fn resolve(&mut self, address: u64, lines: bool) -> Vec<Frame> {
        let Self {
            module,
            frames,
            finder,
            ..
        } = self;
        let resolved = if lines {
            module.resolve_address_lines(address, finder, frames)
        } else {
            module.resolve_address(address, finder, frames)
        };
        let frames = frames.table();
        resolved
            .iter()
            .filter_map(|id| frames.get(id.0 as usize).cloned())
            .collect()
    }
}
