//! Damaged debug information: it gives refusals, and never anything else.

use std::{borrow::Cow, ops::Range, sync::OnceLock};

use gimli::{EndianSlice, LittleEndian};
use object::{Object as _, ObjectSection as _};
use profiler_common::values::{OUTPUT_BYTES, State, Thread, run};
use profiler_plan::values::{DebugFile, DebugSections, Site, lower, render};
use profiler_scope::expression::parse;
use proptest::prelude::*;

use crate::build;

/// A thread whose memory can be read anywhere.
struct Anywhere;

impl Thread for Anywhere {
    fn register(&mut self, number: u8) -> u64 {
        u64::from(number) << 12
    }

    fn thread_pointer(&mut self) -> u64 {
        0x7000
    }

    fn word(&mut self, address: u64, _size: u8) -> Option<u64> {
        Some(address >> 3)
    }

    fn copy(&mut self, _address: u64, output: &mut [u8; OUTPUT_BYTES], at: u32, length: u32) -> bool {
        output[at as usize..][..length as usize].fill(7);
        true
    }

    fn copy_string(&mut self, _: u64, output: &mut [u8; OUTPUT_BYTES], at: u32, _: u32) -> Option<u32> {
        output[at as usize] = 0;
        Some(1)
    }
}

struct Original {
    bytes: Vec<u8>,
    /// Where in the file what is read lies.
    sections: Vec<Range<usize>>,
    names: Vec<String>,
    addresses: Vec<u64>,
}

/// A program, its variables' names, and some addresses of its functions.
fn original(source: &str) -> Original {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fixture");
    let program = build::matrix()
        .into_iter()
        .find(|program| program.source == source && program.is_optimized())
        .unwrap();
    program.compile(&path);
    let bytes = std::fs::read(&path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let read = [
        ".debug_info",
        ".debug_abbrev",
        ".debug_loclists",
        ".debug_rnglists",
        ".eh_frame",
        ".debug_line",
    ];
    let sections = read
        .iter()
        .filter_map(|name| elf.section_by_name(name)?.file_range())
        .map(|(start, size)| usize::try_from(start).unwrap()..usize::try_from(start + size).unwrap())
        .collect();
    let load = |id: gimli::SectionId| -> Result<Cow<'_, [u8]>, gimli::Error> {
        let section = elf.section_by_name(id.name());
        Ok(section.map_or(Cow::Borrowed(&[][..]), |section| {
            section.uncompressed_data().unwrap()
        }))
    };
    let loaded = gimli::DwarfSections::load(load).unwrap();
    let dwarf = loaded.borrow(|section| EndianSlice::new(section, LittleEndian));
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let mut units = dwarf.units();
    while let Some(header) = units.next().unwrap() {
        let unit = dwarf.unit(header).unwrap();
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs().unwrap() {
            if matches!(
                entry.tag(),
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter
            ) && let Some(name) = entry.attr_value(gimli::DW_AT_name)
            {
                names.push(
                    dwarf
                        .attr_string(&unit, name)
                        .unwrap()
                        .to_string_lossy()
                        .into_owned(),
                );
            }
            if let Ok(mut ranges) = dwarf.die_ranges(&unit, entry)
                && let Ok(Some(range)) = ranges.next()
            {
                addresses.extend([range.begin, u64::midpoint(range.begin, range.end)]);
            }
        }
    }
    names.sort();
    names.dedup();
    names.truncate(60);
    addresses.sort_unstable();
    addresses.dedup();
    Original {
        bytes: bytes.clone(),
        sections,
        names,
        addresses,
    }
}

fn read_all(original: &Original, bytes: &[u8], at: &[prop::sample::Index]) {
    let Ok(sections) = DebugSections::load(bytes, bytes) else {
        return;
    };
    let file = DebugFile::new(&sections);
    for address in at {
        let site = Site {
            address: *address.get(&original.addresses),
            bias: 0x5000,
        };
        for name in &original.names {
            for text in [
                name.clone(),
                format!("*{name}"),
                format!("{name}->x"),
                format!("{name}[1]"),
            ] {
                let Ok(expression) = parse(&text) else { continue };
                match lower(&file, site, &expression) {
                    Ok(lowered) => {
                        let mut state = State::START;
                        run(&lowered.plan, &mut state, &mut Anywhere);
                        let _ = render(&lowered, &state);
                    }
                    Err(refusal) => drop(refusal.to_string()),
                }
            }
        }
    }
}

#[test]
fn reads_return_values_only_at_return_instructions() {
    let original = original("values.c");
    let sections = DebugSections::load(&original.bytes, &original.bytes).unwrap();
    let file = DebugFile::new(&sections);
    let expression = parse("return").unwrap();
    let mut found = Vec::new();
    for &start in &original.addresses {
        for address in start..start + 0x200 {
            let site = Site { address, bias: 0 };
            if let Ok(lowered) = lower(&file, site, &expression) {
                // `ret`, with whatever prefixes where this is inside of an instruction.
                let at = usize::try_from(address & 0xffff).unwrap();
                let code = &original.bytes[at..at + 4];
                assert!(
                    code.contains(&0xc3) || code.contains(&0xc2),
                    "{address:#x}: {code:x?}"
                );
                found.push(lowered.shape.type_name);
            }
        }
    }
    for name in ["int", "long int"] {
        assert!(found.iter().any(|found| found == name), "{name}: {found:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_debug_information_is_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..60),
        at in prop::collection::vec(any::<prop::sample::Index>(), 3),
        of_cpp in any::<bool>(),
    ) {
        static C: OnceLock<Original> = OnceLock::new();
        static CPP: OnceLock<Original> = OnceLock::new();
        let original = if of_cpp {
            CPP.get_or_init(|| original("values.cc"))
        } else {
            C.get_or_init(|| original("values.c"))
        };
        let mut bytes = original.bytes.clone();
        for (section, place, value) in changes {
            let section = section.get(&original.sections).clone();
            bytes[section.start + place.index(section.len())] = value;
        }
        read_all(original, &bytes, &at);
    }
}
