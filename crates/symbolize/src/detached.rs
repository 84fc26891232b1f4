//! The same without a process: a file and a perf map that are in memory.

use std::io;

use profiler_debug_files::{Elf, Finder, Home};

use super::{
    frame::{Frame, FrameId, Frames},
    module::Module,
    perf_map::PerfMap,
};

/// An ELF file in memory. Nothing else is read: no companion, and no debug information beside the objects.
pub struct FileSymbols {
    module: Module,
    frames: Frames,
    finder: Finder,
}

impl FileSymbols {
    /// Reads the headers; `name` is what the module is called.
    ///
    /// # Errors
    /// Where the bytes are no ELF file.
    pub fn new(name: &str, bytes: Vec<u8>) -> io::Result<Self> {
        Ok(Self {
            module: Module::new(name, Elf::from_bytes(bytes)?, Home::default()),
            frames: Frames::default(),
            finder: Finder::default(),
        })
    }

    /// The frames at an offset in the file, innermost first; at least one.
    pub fn resolve(&mut self, file_offset: u64) -> Vec<Frame> {
        let Self {
            module,
            frames,
            finder,
        } = self;
        let resolved = module.resolve(file_offset, finder, frames);
        self.frames_of(&resolved)
    }

    /// As [`Self::resolve`], with the lines that run there in place of those of the declarations.
    pub fn resolve_lines(&mut self, file_offset: u64) -> Vec<Frame> {
        let Self {
            module,
            frames,
            finder,
        } = self;
        let resolved = module.resolve_lines(file_offset, finder, frames);
        self.frames_of(&resolved)
    }

    fn frames_of(&self, resolved: &[FrameId]) -> Vec<Frame> {
        let frame = |id: &FrameId| self.frames.table().get(id.0 as usize).cloned();
        resolved.iter().filter_map(frame).collect()
    }

    /// Bytes of memory that what was read takes, apart from the file; about right.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.module.bytes()
    }
}

/// The text of a perf map in memory.
pub struct CompiledSymbols {
    map: PerfMap,
    frames: Frames,
}

impl CompiledSymbols {
    /// An empty one, whose entries take at most `bytes_max` bytes: the oldest quarter goes when they take more.
    #[must_use]
    pub fn with_limit(bytes_max: usize) -> Self {
        Self {
            map: PerfMap::with_limit(bytes_max),
            frames: Frames::default(),
        }
    }

    /// Takes what follows in the file. A line counts once its end is there.
    pub fn append(&mut self, bytes: &[u8]) {
        self.map.append(bytes);
    }

    /// The function that holds an address.
    pub fn resolve(&mut self, address: u64) -> Option<Frame> {
        let id = self.map.resolve(address, &mut self.frames)?;
        self.frames.table().get(id.0 as usize).cloned()
    }

    /// Bytes of memory that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.bytes()
    }
}
