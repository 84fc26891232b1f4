//! Debug sections: functions, inlined frames, lines and declarations of addresses spread over the text.
//!
//! An input is two bytes that say at which addresses is looked, and then sections: the number of its name in
//! [`NAMES`], the length in two bytes, the content.

use std::sync::Arc;

use profiler_plan::{DebugIndex, ModuleIndex, source};
use profiler_scope::Name;
use profiler_symbolize::FileSymbols;

use super::{
    elf_file::{Section, elf_file},
    input::Input,
};

/// The sections' names, in the order of their numbers.
pub const NAMES: [&str; 12] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_str",
    ".debug_line_str",
    ".debug_rnglists",
    ".debug_ranges",
    ".debug_addr",
    ".debug_str_offsets",
    ".debug_loc",
    ".debug_loclists",
    ".debug_aranges",
];
/// Bytes before the sections.
const HEAD: usize = 2;
/// Bytes before a section's content.
const SECTION_HEAD: usize = 3;
/// How many addresses of one input are looked up.
const LOOKUPS: u64 = 24;
/// Functions of one request that are described.
const LIMIT: usize = 16;
/// What is looked up at least, so that sections too short to be a file that long still have code.
const TEXT_BYTES: usize = 4096;

/// The sections of an input, in its order; of a name that comes twice both.
#[must_use]
pub fn split(data: &[u8]) -> Vec<(u8, &[u8])> {
    let mut input = Input(data.get(HEAD..).unwrap_or_default());
    let mut sections = Vec::new();
    while !input.0.is_empty() && sections.len() < 2 * NAMES.len() {
        let number = input.byte();
        let length = input.short();
        sections.push((number, input.bytes(length.into())));
    }
    sections
}

/// The reverse of [`split`]. What is too long is cut.
#[must_use]
pub fn join(head: [u8; HEAD], sections: &[(u8, &[u8])]) -> Vec<u8> {
    let mut data = head.to_vec();
    for (number, bytes) in sections {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        data.push(*number);
        data.extend(length.to_le_bytes());
        data.extend(&bytes[..length.into()]);
    }
    data
}

/// Looks up what an input's sections say.
pub fn run(data: &[u8]) {
    let mut head = Input(data);
    let (step, start) = (u64::from(head.byte()) % 16 + 1, u64::from(head.byte()));
    let mut sections: Vec<Section<'_>> = split(data)
        .into_iter()
        .map(|(number, bytes)| Section {
            name: NAMES[usize::from(number) % NAMES.len()],
            address: 0,
            bytes,
        })
        .collect();
    let text = [0; TEXT_BYTES];
    sections.push(Section {
        name: ".text",
        address: 0,
        bytes: &text,
    });
    let file = elf_file(&sections, 0, 0);
    let _ = DebugIndex::new(&file);
    describe(&file);
    let Ok(mut symbols) = FileSymbols::new("fuzzed", file) else {
        unreachable!("the headers are right");
    };
    for lookup in 0..LOOKUPS {
        let offset = start + lookup * step;
        let functions = symbols.resolve(offset);
        let lines = symbols.resolve_lines(offset);
        assert_eq!(functions.len(), lines.len());
        assert!(!functions.is_empty());
        assert!(
            lines
                .iter()
                .zip(&functions)
                .all(|(line, function)| line.function == function.function)
        );
    }
}

/// Asks for what can be probed, by function, by line, and by a name that is inlined.
fn describe(file: &[u8]) {
    let Ok(index) = ModuleIndex::new(Arc::new(file.to_vec())) else {
        unreachable!("the headers are right");
    };
    let _ = source::at_addresses(&index, &[0x10, 0x400, 0xc00, 0xc40], LIMIT);
    let _ = source::line(&index, "inlined.c", 20, LIMIT);
    let _ = source::inlined(&index, &Name::Glob("*".to_owned()), LIMIT);
}

/// Mutates one section and leaves the others as they are: what is moved by a byte says nothing any more.
pub fn mutate(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    mutate: impl Fn(&mut [u8], usize, usize) -> usize,
) -> usize {
    let sections: Vec<(u8, Vec<u8>)> = split(&data[..size])
        .into_iter()
        .map(|(number, bytes)| (number, bytes.to_vec()))
        .collect();
    let room = max_size.saturating_sub(size).min(usize::from(u16::MAX));
    let choice = seed as usize % (sections.len() + 1);
    let (Some((_, chosen)), true) = (sections.get(choice), size > HEAD + SECTION_HEAD) else {
        return mutate(data, size, max_size);
    };
    let length = chosen.len();
    let limit = (length + room).min(usize::from(u16::MAX)).max(1);
    let mut changed = chosen.clone();
    changed.resize(limit.max(length), 0);
    let new_length = mutate(&mut changed, length, limit);
    let mut views: Vec<(u8, &[u8])> = sections
        .iter()
        .map(|(number, bytes)| (*number, &**bytes))
        .collect();
    views[choice].1 = &changed[..new_length];
    let joined = join([data[0], data[1]], &views);
    let kept = joined.len().min(max_size);
    data[..kept].copy_from_slice(&joined[..kept]);
    kept
}
