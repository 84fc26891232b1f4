//! The unwind tables as the programs read them: written through shared memory.

use std::{
    marker::PhantomData,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
};

use aya::{
    Ebpf,
    maps::{ArrayOfMaps, HashMap, Map, MapData},
};
use memmap2::{MmapOptions, MmapRaw};
use profiler_common::{
    limits::{MAX_UNWIND_CHUNKS, MAX_UNWIND_MAPPINGS, MAX_UNWIND_MODULES, MAX_UNWIND_PAGES},
    unwind::{CHUNK_ROWS, Mapping, Module, Page, Row, Rule},
};
use profiler_unwind::{Limits, Placement};

use super::{KernelError, syscall};

const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The map of chunks.
const ROWS: &str = "UNWIND_ROWS";

/// `BPF_MAP_TYPE_ARRAY`.
const ARRAY: u32 = 2;

/// A chunk is a map of one value: all its rows.
const CHUNK_BYTES: u32 = CHUNK_ROWS * 4;

const _: () = assert!(size_of::<Row>() == 4);

/// The sizes of the maps.
pub const LIMITS: Limits = Limits {
    modules: MAX_UNWIND_MODULES,
    pages: MAX_UNWIND_PAGES,
    chunks: MAX_UNWIND_CHUNKS,
    rules: 1 << 16,
};

const _: () = assert!(LIMITS.rules as usize == Rule::MAX);

/// The maps. Whoever writes them keeps to an order: what is pointed to is complete before it is pointed to.
pub struct UnwindMaps {
    processes: HashMap<MapData, u32, [u64; 2]>,
    /// The last that was given out.
    generation: u64,
    mappings: Shared<Mapping>,
    modules: Shared<Module>,
    pages: Shared<Page>,
    rules: Shared<Rule>,
    rows: ArrayOfMaps<MapData, MapData>,
    /// The same map, for what aya cannot do with it.
    rows_descriptor: OwnedFd,
    chunks: Vec<Shared<Row>>,
}

impl UnwindMaps {
    /// Takes the maps of a loaded object, whose programs have been bound to them.
    ///
    /// # Errors
    /// Where one is missing or cannot be mapped.
    pub fn take(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        let rows = taken(ebpf, ROWS)?;
        let Map::ArrayOfMaps(data) = &rows else {
            return Err(KernelError::Missing(ROWS));
        };
        let rows_descriptor = data
            .fd()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| KernelError::system(format!("duplicating {ROWS}"), error))?;
        Ok(Self {
            processes: HashMap::try_from(taken(ebpf, "UNWIND_PROCESSES")?)?,
            generation: 0,
            mappings: Shared::of(ebpf, "UNWIND_MAPPINGS", MAX_UNWIND_MAPPINGS as usize)?,
            modules: Shared::of(ebpf, "UNWIND_MODULES", MAX_UNWIND_MODULES as usize)?,
            pages: Shared::of(ebpf, "UNWIND_PAGES", MAX_UNWIND_PAGES as usize)?,
            rules: Shared::of(ebpf, "UNWIND_RULES", Rule::MAX)?,
            rows: ArrayOfMaps::try_from(rows)?,
            rows_descriptor,
            chunks: Vec::new(),
        })
    }

    /// Writes a module's table.
    ///
    /// # Errors
    /// Where the kernel has no memory for another chunk.
    pub fn place(&mut self, placement: &Placement) -> Result<(), KernelError> {
        let Placement {
            new_rules,
            pieces,
            pages,
            module,
            record,
        } = placement;
        for new in new_rules {
            self.rules.write(usize::from(new.index), &[new.rule]);
        }
        let chunks = pieces.iter().map(|piece| piece.chunk as usize + 1).max();
        self.add_chunks(chunks.unwrap_or(0))?;
        for piece in pieces {
            self.chunks[piece.chunk as usize].write(piece.place as usize, &piece.rows);
        }
        self.pages.write(record.first_page as usize, pages);
        self.modules.write(*module as usize, &[*record]);
        Ok(())
    }

    /// Has so many chunks at least.
    ///
    /// # Errors
    /// Where the kernel has no memory for them.
    pub fn add_chunks(&mut self, count: usize) -> Result<(), KernelError> {
        let new: Vec<MapData> = (self.chunks.len()..count)
            .map(|_| {
                let definition = aya_obj::Map::new_from_params(ARRAY, 4, CHUNK_BYTES, 1, BPF_F_MMAPABLE);
                MapData::create(definition, "unwind_rows", None)
            })
            .collect::<Result<_, _>>()?;
        if new.is_empty() {
            return Ok(());
        }
        let first = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        let inner: Vec<BorrowedFd<'_>> = new.iter().map(|chunk| chunk.fd().as_fd()).collect();
        if let Err(error) = syscall::set_inner_maps(self.rows_descriptor.as_fd(), first, &inner) {
            tracing::debug!(%error, "chunks are added one by one");
            for (index, chunk) in (first..).zip(&new) {
                self.rows.set(index, chunk, 0)?;
            }
        }
        for chunk in &new {
            // The outer map and the mapping keep it.
            let rows = Shared::map(chunk.fd().as_fd(), ROWS, CHUNK_ROWS as usize)?;
            self.chunks.push(rows);
        }
        Ok(())
    }

    /// Takes a module back.
    pub fn remove_module(&mut self, module: u32) {
        self.modules.write(module as usize, &[Module::default()]);
    }

    /// Writes mappings from an index on.
    pub fn write_mappings(&mut self, first: u32, mappings: &[Mapping]) {
        self.mappings.write(first as usize, mappings);
    }

    /// Says which mappings are a process's.
    ///
    /// # Errors
    /// Where there are too many processes.
    pub fn set_process(&mut self, pid: u32, first: u32, count: u32) -> Result<(), KernelError> {
        self.generation += 1;
        // `profiler_common::unwind::Process`, by words.
        let mappings = u64::from(count) << 32 | u64::from(first);
        Ok(self.processes.insert(pid, [mappings, self.generation], 0)?)
    }

    /// Takes a process back.
    pub fn remove_process(&mut self, pid: u32) {
        // Nothing to be done where it was never set.
        let _ = self.processes.remove(&pid);
    }
}

fn taken(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, KernelError> {
    ebpf.take_map(name).ok_or(KernelError::Missing(name))
}

/// Types of `profiler_common` that maps hold: plain numbers without padding, which is asserted there.
trait Plain: Copy {}
impl Plain for Mapping {}
impl Plain for Module {}
impl Plain for Page {}
impl Plain for Row {}
impl Plain for Rule {}

/// An array map's values in shared memory.
struct Shared<T> {
    memory: MmapRaw,
    length: usize,
    values: PhantomData<T>,
}

impl<T: Plain> Shared<T> {
    fn of(ebpf: &Ebpf, name: &'static str, length: usize) -> Result<Self, KernelError> {
        let Some(Map::Array(data)) = ebpf.map(name) else {
            return Err(KernelError::Missing(name));
        };
        Self::map(data.fd().as_fd(), name, length)
    }

    fn map(descriptor: BorrowedFd<'_>, name: &str, length: usize) -> Result<Self, KernelError> {
        let bytes = (length * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        let memory = MmapOptions::new()
            .len(bytes)
            .map_raw(descriptor.as_raw_fd())
            .map_err(|error| KernelError::system(format!("mapping {name}"), error))?;
        Ok(Self {
            memory,
            length,
            values: PhantomData,
        })
    }

    /// Writes values from an index on.
    fn write(&mut self, first: usize, values: &[T]) {
        assert!(
            first
                .checked_add(values.len())
                .is_some_and(|end| end <= self.length)
        );
        for (index, value) in (first..).zip(values) {
            // SAFETY: the index is below `length`, and so within the mapping, which begins at a page and is thus
            // aligned; `T` is plain. Programs may read meanwhile: what they point to by then is complete, as
            // `UnwindMaps` says, and every index that they read is checked.
            unsafe {
                self.memory
                    .as_mut_ptr()
                    .cast::<T>()
                    .add(index)
                    .write_volatile(*value);
            };
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    }
}
