//! Where a function's frame begins at each of its instructions, as its file's unwind rows say (`.eh_frame`).
//!
//! At a function's first instruction, and again where it leaves by a jump, the frame begins a word above the stack pointer: there
//! is nothing but the return address. Where it begins elsewhere a jump stays in the function, be it that its target lies far off.

use std::{borrow::Cow, ops::Range};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, FrameDescriptionEntry, LittleEndian, UnwindContext,
    UnwindSection as _,
};
use object::{Object as _, ObjectSection as _};
use profiler_common::unwind::register::{RBP, RSP};
use profiler_elf::{Elf, Parsed};

/// Entries that one function's rows are read of.
const MAX_ENTRIES: usize = 64;

/// Entries of a file that are looked at; ten times a large browser's.
const MAX_FILE_ENTRIES: usize = 1 << 24;

/// Rows of one function that are kept.
const MAX_ROWS: usize = 1 << 16;

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// A file's unwind rows.
pub struct Frames<'a> {
    eh_frame: &'a [u8],
    header: &'a [u8],
    bases: BaseAddresses,
}

/// Where a frame begins (its canonical frame address, CFA): the word below is the return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// So many bytes above the stack pointer.
    StackPointer(i64),
    /// So many bytes above `rbp`.
    FramePointer(i64),
    /// Where an expression says, or another register.
    Elsewhere,
}

impl Base {
    /// Nothing but the return address is on the stack.
    pub const AT_ENTRY: Self = Self::StackPointer(8);
}

/// The rows of some code, in order of address.
pub struct Rows(Vec<Row>);

struct Row {
    range: Range<u64>,
    base: Base,
}

impl Rows {
    /// Where the frame begins before this instruction; `None` where no row says.
    #[must_use]
    pub fn base(&self, address: u64) -> Option<Base> {
        let behind = self.0.partition_point(|row| row.range.start <= address);
        let row = self.0.get(behind.checked_sub(1)?)?;
        row.range.contains(&address).then_some(row.base)
    }

    /// Whether there is certainly more on the stack than the return address, before this instruction.
    #[must_use]
    pub fn is_moved(&self, address: u64) -> bool {
        self.base(address).is_some_and(|base| base != Base::AT_ENTRY)
    }
}

impl<'a> Frames<'a> {
    /// Those of a file; without such rows, or with damaged ones, nothing is known of any address.
    #[must_use]
    pub fn of(program: &'a [u8]) -> Self {
        let mut left = 0;
        let elf = Elf::parse(program).ok();
        // What is loaded is not compressed.
        let mut section = |name| match elf.as_ref().and_then(|elf| elf.section(name, &mut left)) {
            Some(Cow::Borrowed(bytes)) => bytes,
            _ => &[],
        };
        let (eh_frame, header) = (section(".eh_frame"), section(".eh_frame_hdr"));
        let bases = profiler_elf::parse(program)
            .map(|file| bases_of(&file))
            .unwrap_or_default();
        Self {
            eh_frame,
            header,
            bases,
        }
    }

    /// The code that has its rows in common with an address: its function, or the piece of one that it lies in.
    #[must_use]
    pub fn piece(&self, address: u64) -> Option<Range<u64>> {
        let entry = self.entry(address)?;
        Some(entry.initial_address()..entry.end_address())
    }

    /// The code of each entry that begins as a function does: with nothing on the stack but the return address. In order of
    /// address, without what overlaps what is before it. Parts that the compiler has moved away from their functions, and that are
    /// gone on to with a frame on the stack, are not among them.
    #[must_use]
    pub fn functions(&self) -> Vec<Range<u64>> {
        let eh_frame = EhFrame::new(self.eh_frame, LittleEndian);
        let mut context = UnwindContext::new();
        let mut entries = eh_frame.entries(&self.bases);
        let mut found = Vec::new();
        for _ in 0..MAX_FILE_ENTRIES {
            let Ok(Some(entry)) = entries.next() else { break };
            let gimli::CieOrFde::Fde(entry) = entry else {
                continue;
            };
            let Ok(entry) = entry.parse(EhFrame::cie_from_offset) else {
                continue;
            };
            let range = entry.initial_address()..entry.end_address();
            let first = entry.rows(&eh_frame, &self.bases, &mut context);
            let begins = first.is_ok_and(|mut rows| {
                let first = rows.next_row().ok().flatten();
                first.is_some_and(|first| base_of(first.cfa()) == Base::AT_ENTRY)
            });
            if begins && !range.is_empty() {
                found.push(range);
            }
        }
        found.sort_unstable_by_key(|range| (range.start, range.end));
        found.dedup_by(|behind, before| behind.start < before.end);
        found
    }

    /// The rows of some code.
    #[must_use]
    pub fn rows(&self, code: Range<u64>) -> Rows {
        let mut rows = Vec::new();
        let mut address = code.start;
        for _ in 0..MAX_ENTRIES {
            if address >= code.end {
                break;
            }
            let Some(entry) = self.entry(address) else { break };
            self.append(&entry, &mut rows);
            // Past it in any case: an entry that is empty has no address in it.
            address = entry.end_address().max(address.saturating_add(1));
        }
        Rows(rows)
    }

    fn entry(&self, address: u64) -> Option<FrameDescriptionEntry<Slice<'_>>> {
        entry_by_table(self.eh_frame, self.header, &self.bases, address)
    }

    fn append(&self, entry: &FrameDescriptionEntry<Slice<'_>>, rows: &mut Vec<Row>) {
        let eh_frame = EhFrame::new(self.eh_frame, LittleEndian);
        let mut context = UnwindContext::new();
        let Ok(mut table) = entry.rows(&eh_frame, &self.bases, &mut context) else {
            return;
        };
        while let Ok(Some(row)) = table.next_row() {
            if rows.len() == MAX_ROWS {
                return;
            }
            let base = base_of(row.cfa());
            let range = row.start_address()..row.end_address();
            rows.push(Row { range, base });
        }
    }
}

fn base_of(rule: &CfaRule<usize>) -> Base {
    match *rule {
        CfaRule::RegisterAndOffset { register, offset } if register.0 == u16::from(RSP) => {
            Base::StackPointer(offset)
        }
        CfaRule::RegisterAndOffset { register, offset } if register.0 == u16::from(RBP) => {
            Base::FramePointer(offset)
        }
        _ => Base::Elsewhere,
    }
}

/// Where the sections lie that addresses in unwind rows are counted from.
pub(super) fn bases_of(file: &Parsed<'_>) -> BaseAddresses {
    let mut bases = BaseAddresses::default();
    for section in file.sections() {
        let address = section.address();
        match section.name_bytes() {
            Ok(b".eh_frame") => bases = bases.set_eh_frame(address),
            Ok(b".eh_frame_hdr") => bases = bases.set_eh_frame_hdr(address),
            Ok(b".text") => bases = bases.set_text(address),
            Ok(b".got") => bases = bases.set_got(address),
            _ => {}
        }
    }
    bases
}

/// The entry of `.eh_frame` that an address has, by the table in `.eh_frame_hdr`.
pub(super) fn entry_by_table<'a>(
    eh_frame: &'a [u8],
    header: &'a [u8],
    bases: &BaseAddresses,
    address: u64,
) -> Option<FrameDescriptionEntry<Slice<'a>>> {
    let eh_frame = EhFrame::new(eh_frame, LittleEndian);
    let header = EhFrameHdr::new(header, LittleEndian).parse(bases, 8).ok()?;
    let table = header.table()?;
    table
        .fde_for_address(&eh_frame, bases, address, |section, bases, offset| {
            section.cie_from_offset(bases, offset)
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_of_this_very_program_begin_at_the_return_address() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let frames = Frames::of(&program);
        let elf = Elf::parse(&program).unwrap();
        let functions = elf
            .symbols()
            .filter(|symbol| !symbol.undefined && symbol.kind == object::elf::STT_FUNC && symbol.size > 64);
        let (mut with, mut moved) = (0, 0);
        for function in functions.take(2000) {
            let rows = frames.rows(function.address..function.address + function.size);
            let Some(base) = rows.base(function.address) else {
                continue;
            };
            assert_eq!(base, Base::AT_ENTRY, "{:#x}", function.address);
            with += 1;
            moved += usize::from((1..function.size).any(|at| rows.is_moved(function.address + at)));
        }
        assert!(
            with > 1000 && moved > with / 2,
            "{with} with rows, {moved} with a frame"
        );
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), address: u64) {
            let frames = Frames { eh_frame: &bytes, header: &bytes, bases: BaseAddresses::default() };
            let _ = frames.piece(address);
            let _ = frames.functions();
            let _ = frames.rows(address..address.saturating_add(1000)).base(address);
            let _ = Frames::of(&bytes).piece(address);
        }
    }
}
