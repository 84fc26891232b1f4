//! The code that the kernel maps into every process: an ELF file that is in memory only, with symbols of its own.

use std::{
    fs::File,
    io::{self, Write as _},
};

use profiler_target::{Mapping, executable_mappings};
use rustix::fs::{MemfdFlags, memfd_create};

/// The image as a file. It is this process's: the kernel has one for all 64-bit processes.
pub(super) struct Vdso {
    file: File,
    length: u64,
}

impl Vdso {
    /// Reads it.
    ///
    /// # Errors
    /// Where this process has none, or its memory cannot be read.
    pub fn read() -> io::Result<Self> {
        let own = std::process::id();
        let mappings = executable_mappings(own)?;
        let mapping = mappings
            .iter()
            .find(|mapping| mapping.is_vdso())
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "this process has no vDSO"))?;
        let mut file = File::from(memfd_create("vdso", MemfdFlags::CLOEXEC)?);
        file.write_all(&mapping.read_vdso(own)?)?;
        Ok(Self {
            file,
            length: mapping.end - mapping.start,
        })
    }

    /// The image, for a mapping that is as long.
    ///
    /// # Errors
    /// Where the mapping is of another length, and so of another image.
    pub fn open(&self, mapping: &Mapping) -> io::Result<File> {
        if mapping.end - mapping.start != self.length {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "another vDSO than this process's",
            ));
        }
        self.file.try_clone()
    }
}
