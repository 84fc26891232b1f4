//! What planning reads.

use std::{sync::Arc, time::Instant};

use profiler_elf::ElfError;
use profiler_plan::{
    DebugIndex, KernelAbility, Limits, ModuleIndex,
    hazards::{Hazards, exit_method},
    outline::{Outline, Part},
};
use profiler_scope::Name;

use super::{
    dwarf::{Info, LOCATED, Unit, lines},
    elf_file::{Section, TEXT, elf_file},
};

/// Where [`with_symbols`] puts the one instruction.
const CODE: u64 = TEXT + 64 + 56;

/// A file with these functions, each its address and the offset of its name, of a byte each. One of them can return.
fn with_symbols(symbols: &[(u64, u32)], names: &[u8]) -> Vec<u8> {
    let mut table = vec![0; 24];
    for (address, name) in symbols {
        table.extend(name.to_le_bytes());
        // A global function in section 1.
        table.extend([0x12, 0, 1, 0]);
        table.extend(address.to_le_bytes());
        table.extend(1u64.to_le_bytes());
    }
    let section = |name, bytes| Section {
        name,
        address: 0,
        bytes,
    };
    let code = [0xc3];
    let sections = [
        section(".text", &code),
        section(".symtab", &table),
        section(".strtab", names),
    ];
    elf_file(&sections, 0, 0)
}

#[test]
fn symbols_that_share_a_long_name() {
    let mut names = vec![b'x'; 60_000];
    names.push(0);
    let symbols: Vec<(u64, u32)> = (0..20_000).map(|number| (TEXT + number, 0)).collect();
    let few = ModuleIndex::new(Arc::new(with_symbols(&symbols[..2], &names))).unwrap();
    assert_eq!(few.len(), 2);
    let many = ModuleIndex::new(Arc::new(with_symbols(&symbols, &names)));
    assert!(matches!(many.err(), Some(ElfError::Damaged(_))));
}

#[test]
fn cold_pieces_of_a_function_with_many_names() {
    let mut names = vec![0];
    let mut symbols = Vec::new();
    for number in 0..60_000u64 {
        symbols.push((CODE, u32::try_from(names.len()).unwrap()));
        names.extend(format!("f{number}\0").as_bytes());
        symbols.push((TEXT + 0x2000 + number, u32::try_from(names.len()).unwrap()));
        names.extend(format!("g{number}.cold\0").as_bytes());
    }
    let index = ModuleIndex::new(Arc::new(with_symbols(&symbols, &names))).unwrap();
    assert_eq!(index.len(), 1);
    let started = Instant::now();
    let ability = KernelAbility::default();
    let decision = exit_method(&Hazards::default(), ability, false, None);
    let limits = Limits { functions: 10 };
    let name = Name::Exact("f7".into());
    let plan = profiler_plan::plan(
        &name,
        &[&index],
        &profiler_plan::ifuncs::Choices::default(),
        &decision,
        ability,
        limits,
    )
    .unwrap();
    assert_eq!(plan.functions.len(), 1, "{:?}", plan.skipped);
    // Comparing each name with each takes a hundred times as long.
    assert!(started.elapsed().as_secs() < 8, "{:?}", started.elapsed());
}

#[test]
fn functions_that_share_a_long_name() {
    let mut names = vec![b'x'; 60_000];
    names.push(0);
    let mut unit = Unit::new(TEXT, 0x1000);
    for number in 0..2000 {
        // Ends of the name, so that no two are the same.
        let entry = unit.next_entry();
        unit.without_code(number);
        unit.inlined(entry);
    }
    let mut info = Info::default();
    info.add(&unit);
    let file = info.file(&[(".debug_str", &names), (".debug_line", &lines(1))]);
    let index = DebugIndex::new(&file).unwrap();
    assert_eq!(index.skipped_units, 0);
    assert!(!index.inlined_only.is_empty());
    let text: usize = index
        .inlined_only
        .iter()
        .map(|function| function.name.len())
        .sum();
    assert!(text <= 16 * info.bytes(), "{text} bytes of names");
}

#[test]
fn short_names_are_all_kept() {
    let mut unit = Unit::new(TEXT, 0x1000);
    let entry = unit.next_entry();
    unit.without_code(0);
    unit.inlined(entry);
    let mut info = Info::default();
    info.add(&unit);
    let file = info.file(&[(".debug_str", b"name\0"), (".debug_line", &lines(1))]);
    let index = DebugIndex::new(&file).unwrap();
    assert_eq!(index.inlined_only[0].name, "name");
    assert_eq!(index.skipped_units, 0);
}

/// The location's length and those of the attributes behind it are more than any number.
#[test]
fn a_variable_located_in_more_bytes_than_there_are() {
    let length = [&[0xff; 9][..], &[0x01]].concat();
    let outlined = |entries: usize| {
        let mut unit = Unit::new(TEXT, 1);
        for _ in 0..entries {
            unit.entry(LOCATED, &[&length, &[0; 4]]);
        }
        let mut info = Info::default();
        info.add(&unit);
        let file = info.file(&[(".debug_line", &lines(1)), (".text", &[0xc3])]);
        Outline::of_file(&file, Part::Names).bytes().to_vec()
    };
    assert_eq!(outlined(2), outlined(0));
}
