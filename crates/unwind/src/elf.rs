//! The sections and the text that unwinding needs. Everything is read in place; nothing is believed.

use std::borrow::Cow;

use gimli::BaseAddresses;
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSegment as _, SegmentFlags,
    elf::{ET_EXEC, PF_X, PT_INTERP},
    read::elf::{FileHeader as _, ProgramHeader as _},
};
use profiler_elf::{
    Parsed,
    compressed::{self, Folded},
};

use super::table::BuildError;

/// Executable segments that are looked at. Linkers write one or two.
const MAX_SEGMENTS: usize = 64;

/// Largest size that a compressed `.debug_frame` may unfold to.
const MAX_UNCOMPRESSED_BYTES: u64 = 256 << 20;

/// How many times its size it may unfold to, and what it may unfold to however small it is.
const MAX_UNFOLDED_TIMES: u64 = 32;
const MIN_UNFOLDED_BYTES: u64 = 64 << 10;

/// Which section the unwind information is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    EhFrame,
    DebugFrame,
}

/// What is needed of a file.
pub(super) struct Source<'a> {
    pub kind: Kind,
    /// The section's bytes.
    pub section: Cow<'a, [u8]>,
    /// What its pointers are relative to.
    pub bases: BaseAddresses,
    pub text: Text<'a>,
    /// Where a process begins, if it begins in this file.
    pub entry: Option<u64>,
}

/// The executable parts of a file, in its own address space.
pub(super) struct Text<'a> {
    segments: Vec<(u64, &'a [u8])>,
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
}

impl<'a> Text<'a> {
    /// One segment's.
    #[cfg(test)]
    pub fn of(start: u64, bytes: &'a [u8]) -> Self {
        Self {
            segments: vec![(start, bytes)],
            start,
            end: start + bytes.len() as u64,
        }
    }

    /// The bytes from `start` on, to `end` or the end of their segment.
    pub fn bytes_within(&self, start: u64, end: u64) -> Option<&'a [u8]> {
        self.segments.iter().find_map(|(address, bytes)| {
            let from = usize::try_from(start.checked_sub(*address)?).ok()?;
            let to = usize::try_from(end.checked_sub(*address)?).ok()?;
            bytes.get(from..to.min(bytes.len()))
        })
    }

    /// The bytes from `start` to `end`, where they lie in one segment.
    pub fn bytes(&self, start: u64, end: u64) -> Option<&'a [u8]> {
        self.segments.iter().find_map(|(address, bytes)| {
            let from = usize::try_from(start.checked_sub(*address)?).ok()?;
            let to = usize::try_from(end.checked_sub(*address)?).ok()?;
            bytes.get(from..to)
        })
    }
}

/// Finds them.
pub(super) fn read(bytes: &[u8]) -> Result<Source<'_>, BuildError> {
    let elf = profiler_elf::parse(bytes)?;
    let text = text(&elf)?;
    let entry = entry(&elf);

    let mut bases = BaseAddresses::default();
    if let Some(section) = elf.section_by_name(".text") {
        bases = bases.set_text(section.address());
    }
    if let Some(section) = elf.section_by_name(".got") {
        bases = bases.set_got(section.address());
    }
    if let Some(section) = elf.section_by_name(".eh_frame") {
        let data = section
            .data()
            .map_err(|_| BuildError::Damaged(".eh_frame is not where it says"))?;
        if !data.is_empty() {
            let bases = bases.set_eh_frame(section.address());
            return Ok(Source {
                kind: Kind::EhFrame,
                section: data.into(),
                bases,
                text,
                entry,
            });
        }
    }
    let debug_frame = elf
        .section_by_name(".debug_frame")
        .ok_or(BuildError::NoUnwindInformation)?;
    let damaged = |_| BuildError::Damaged(".debug_frame is not where it says");
    let data = debug_frame.compressed_data().map_err(damaged)?;
    // Compilers' unfold to some three times their size; what is made up to be little and unfold to much takes others' time.
    let most = (data.data.len() as u64).saturating_mul(MAX_UNFOLDED_TIMES);
    let mut left = MAX_UNCOMPRESSED_BYTES.min(most.max(MIN_UNFOLDED_BYTES));
    let section = compressed::unfold(data, &mut left).map_err(|why| {
        BuildError::Damaged(match why {
            Folded::Damaged => ".debug_frame does not unfold to what it says",
            Folded::TooLarge => ".debug_frame unfolds beyond all measure",
        })
    })?;
    if section.is_empty() {
        return Err(BuildError::NoUnwindInformation);
    }
    Ok(Source {
        kind: Kind::DebugFrame,
        section,
        bases,
        text,
        entry,
    })
}

fn entry(elf: &Parsed<'_>) -> Option<u64> {
    let header = elf.elf_header();
    let entry = header.e_entry(LittleEndian);
    // Linkers let libraries, which nothing begins in, begin at their first instruction.
    let is_program = header.e_type(LittleEndian) == ET_EXEC
        || elf
            .elf_program_headers()
            .iter()
            .any(|header| header.p_type(LittleEndian) == PT_INTERP);
    let is_first = elf
        .section_by_name(".text")
        .is_none_or(|section| section.address() == entry);
    (entry != 0 && (is_program || !is_first)).then_some(entry)
}

fn text<'a>(elf: &Parsed<'a>) -> Result<Text<'a>, BuildError> {
    let mut text = Text {
        segments: Vec::new(),
        start: u64::MAX,
        end: 0,
    };
    for segment in elf.segments() {
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else {
            continue;
        };
        if !p_flags.contains(PF_X) || segment.size() == 0 {
            continue;
        }
        if text.segments.len() == MAX_SEGMENTS {
            return Err(BuildError::Damaged("it has too many executable segments"));
        }
        let end = segment
            .address()
            .checked_add(segment.size())
            .ok_or(BuildError::Damaged("a segment ends beyond the address space"))?;
        // A file that was cut short keeps its rows; only its padding is not recognised.
        text.segments
            .push((segment.address(), segment.data().unwrap_or_default()));
        text.start = text.start.min(segment.address());
        text.end = text.end.max(end);
    }
    if text.segments.is_empty() {
        return Err(BuildError::Damaged("it has no executable segment"));
    }
    Ok(text)
}
