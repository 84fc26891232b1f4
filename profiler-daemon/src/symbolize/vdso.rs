//! The code that the kernel maps into every process: an ELF file that is in memory only, with symbols of its own.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::target::{Mapping, executable_mappings};

/// What it is called in a process's mappings.
const NAME: &str = "[vdso]";
/// Largest that is read; Linux's is two pages.
const BYTES_MAX: u64 = 1 << 20;

/// Whether a mapping is the kernel's own code.
pub(super) fn is_vdso(mapping: &Mapping) -> bool {
    !mapping.is_file() && mapping.path == Path::new(NAME)
}

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
        let mappings = executable_mappings(std::process::id())?;
        let mapping = mappings
            .iter()
            .find(|mapping| is_vdso(mapping))
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "this process has no vDSO"))?;
        let length = mapping.end - mapping.start;
        if length > BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the vDSO is too large",
            ));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        File::open("/proc/self/mem")?.read_exact_at(&mut bytes, mapping.start)?;
        let mut file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(Self { file, length })
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
