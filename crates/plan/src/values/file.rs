//! A file's DWARF, read a unit at a time, and the other sections that expressions need.

use std::{
    borrow::Cow,
    cell::{OnceCell, RefCell},
    collections::HashMap,
    ops::Range,
    rc::Rc,
};

use gimli::{
    BaseAddresses, Dwarf, DwarfSections, EndianSlice, LittleEndian, Section as _, Unit, UnitHeader,
    UnitOffset,
};
use profiler_elf::{Elf, ElfError, MAX_UNCOMPRESSED_BYTES};

use super::{entry_value::Calls, refusal::Refusal, thread_local::ThreadStorage, thread_tables::ThreadModule};
use crate::{
    frames::bases_of,
    functions::ModuleIndex,
    outline::{self, Outline, Part},
    sections::dwarf_sections,
};

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Header<'a> = UnitHeader<Slice<'a>>;

/// Units whose headers are listed.
const MAX_UNITS: usize = 1 << 22;
/// Units that are kept parsed; then all are parsed anew.
const MAX_CACHED_UNITS: usize = 64;

/// What is read of a file, uncompressed. It outlives the [`DebugFile`] over it.
pub struct DebugSections<'a> {
    dwarf: DwarfSections<Cow<'a, [u8]>>,
    pub(super) eh_frame: Cow<'a, [u8]>,
    pub(super) eh_frame_hdr: Cow<'a, [u8]>,
    pub(super) debug_frame: Cow<'a, [u8]>,
    pub(super) bases: BaseAddresses,
    pub(super) thread_storage: Option<ThreadStorage>,
    pub(super) program: Elf<'a>,
    pub(super) program_bytes: &'a [u8],
}

impl<'a> DebugSections<'a> {
    /// Finds the sections: those that describe variables in `debug`, the others in `program`. Both are the same
    /// file, unless its debug information was split off.
    ///
    /// # Errors
    /// What is not x86-64 ELF, and what is damaged.
    pub fn load(program: &'a [u8], debug: &'a [u8]) -> Result<Self, ElfError> {
        let debug = Elf::parse(debug)?;
        let dwarf = dwarf_sections(&debug);
        let elf = Elf::parse(program)?;
        let mut left = MAX_UNCOMPRESSED_BYTES;
        let mut section = |name: &str| elf.section(name, &mut left).unwrap_or_default();
        let (eh_frame, eh_frame_hdr) = (section(".eh_frame"), section(".eh_frame_hdr"));
        let debug_frame = debug.section(".debug_frame", &mut left).unwrap_or_default();
        let file = profiler_elf::parse(program)?;
        Ok(Self {
            dwarf,
            eh_frame,
            eh_frame_hdr,
            debug_frame,
            bases: bases_of(&file),
            thread_storage: ThreadStorage::of(&file),
            program: elf,
            program_bytes: program,
        })
    }

    /// Whether it has thread-local variables that are found by a process's tables.
    #[must_use]
    pub fn needs_thread_module(&self) -> bool {
        self.thread_storage
            .is_some_and(|storage| storage.thread_pointer_offset(0).is_none())
    }
}

/// The functions of one unit that have code, by their ranges of addresses.
pub(super) type Functions = Rc<[(Range<u64>, UnitOffset)]>;

/// A file's debug information, read as it is asked for.
pub struct DebugFile<'a> {
    pub(super) dwarf: Dwarf<Slice<'a>>,
    pub(super) sections: &'a DebugSections<'a>,
    headers: OnceCell<Vec<Header<'a>>>,
    /// The file's symbols, which keep its outline.
    pub(super) module: Option<&'a ModuleIndex>,
    outlines: outline::Lazy,
    units: RefCell<HashMap<usize, Rc<Unit<Slice<'a>>>>>,
    pub(super) functions: RefCell<HashMap<usize, Functions>>,
    pub(super) calls: RefCell<HashMap<usize, Calls>>,
    /// What threads find its storage by, if it is a library's.
    pub(super) thread_module: Option<Result<ThreadModule, Refusal>>,
    pub(super) prologue_ends: RefCell<HashMap<usize, Option<u64>>>,
}

impl<'a> DebugFile<'a> {
    /// A file over its sections. Nothing is read yet.
    #[must_use]
    pub fn new(sections: &'a DebugSections<'a>) -> Self {
        Self {
            dwarf: sections
                .dwarf
                .borrow(|section| EndianSlice::new(section, LittleEndian)),
            sections,
            headers: OnceCell::new(),
            module: None,
            thread_module: None,
            outlines: outline::Lazy::default(),
            units: RefCell::default(),
            functions: RefCell::default(),
            calls: RefCell::default(),
            prologue_ends: RefCell::default(),
        }
    }

    /// Takes the outline of its units from the file that has its code.
    #[must_use]
    pub fn of_module(mut self, module: &'a ModuleIndex) -> Self {
        self.module = Some(module);
        self
    }

    /// Takes what the threads of the process find its storage by, or why that is not known.
    #[must_use]
    pub fn with_thread_module(mut self, module: Result<ThreadModule, Refusal>) -> Self {
        self.thread_module = Some(module);
        self
    }

    /// Which units have what.
    pub(super) fn outline(&self, part: Part) -> Outline {
        if let Some(module) = self.module {
            return module.outline(part);
        }
        let debug = self.dwarf.debug_info.reader().len();
        let length = self.sections.program_bytes.len() + debug;
        self.outlines
            .get(part, &|| Outline::of(&self.dwarf, part, length))
    }

    /// The headers of all units, in order of offset. Those behind a damaged one are not found.
    pub(super) fn headers(&self) -> &[Header<'a>] {
        self.headers.get_or_init(|| {
            let mut headers = Vec::new();
            let mut units = self.dwarf.units();
            while let Ok(Some(header)) = units.next() {
                if headers.len() == MAX_UNITS {
                    break;
                }
                headers.push(header);
            }
            headers
        })
    }

    /// The unit that begins at an offset into `.debug_info`.
    pub(super) fn unit_at(&self, offset: usize) -> Result<Rc<Unit<Slice<'a>>>, Refusal> {
        if let Some(unit) = self.units.borrow().get(&offset) {
            return Ok(Rc::clone(unit));
        }
        let header = self.dwarf.unit_header(gimli::DebugInfoOffset(offset))?;
        let unit = Rc::new(self.dwarf.unit(header)?);
        let mut units = self.units.borrow_mut();
        if units.len() >= MAX_CACHED_UNITS {
            units.clear();
        }
        units.insert(offset, Rc::clone(&unit));
        Ok(unit)
    }

    /// The unit that an offset into `.debug_info` lies in.
    pub(super) fn unit_around(&self, offset: usize) -> Result<Rc<Unit<Slice<'a>>>, Refusal> {
        let headers = self.headers();
        let after = headers.partition_point(|header| start_of(header) <= offset);
        let header = after.checked_sub(1).and_then(|index| headers.get(index));
        let header = header.ok_or_else(|| Refusal::Damaged("a reference points nowhere".into()))?;
        self.unit_at(start_of(header))
    }

    /// The units that may have code at an address, those first that the file's own index names.
    pub(super) fn units_of_code(&self, address: u64) -> Vec<usize> {
        let mut found = self.indexed(address);
        if found.is_empty() {
            let headers = self.headers();
            let outline = self.outline(Part::Places);
            let holding = outline.ranges().filter(|(range, _)| range.contains(&address));
            found.extend(holding.filter_map(|(_, unit)| headers.get(unit).map(start_of)));
            found.dedup();
        }
        found
    }

    /// By `.debug_aranges`.
    fn indexed(&self, address: u64) -> Vec<usize> {
        let mut found = Vec::new();
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let mut entries = header.entries();
            while let Ok(Some(entry)) = entries.next() {
                if entry.range().begin <= address && address < entry.range().end {
                    found.push(header.debug_info_offset().0);
                    break;
                }
            }
        }
        found
    }
}

/// Where a unit begins in `.debug_info`.
pub(super) fn start_of(header: &Header<'_>) -> usize {
    header.debug_info_offset().map_or(0, |offset| offset.0)
}
