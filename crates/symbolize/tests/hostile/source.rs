//! What can be probed in a function.

use std::{sync::Arc, time::Instant};

use profiler_plan::{
    ModuleIndex,
    source::{self, FunctionSource},
};
use profiler_scope::Name;

use super::{
    dwarf::{
        BARE_BLOCK, BLOCK, FUNCTION_TYPE, INSTANCE, Info, MAY_BE_INLINED, OUTER, PARAMETER, STRUCTURE, Unit,
        VARIABLE, lines,
    },
    elf_file::TEXT,
};

/// What reading anything of these files takes at most, in seconds, on a slow machine without optimisation. Each took
/// minutes, or more memory than there is, when it was read without a budget.
const MAX_SECONDS: u64 = 20;

/// Describes the functions at some addresses.
fn described(file: Vec<u8>, addresses: &[u64]) -> Vec<FunctionSource> {
    let index = ModuleIndex::new(Arc::new(file)).unwrap();
    let started = Instant::now();
    let found = source::at_addresses(&index, addresses, 64).functions;
    assert!(
        started.elapsed().as_secs() < MAX_SECONDS,
        "{:?}",
        started.elapsed()
    );
    found
}

/// A function that covers addresses, with entries inside.
fn outer(unit: &mut Unit, first: u64, length: u32) {
    unit.entry(OUTER, &[&first.to_le_bytes(), &length.to_le_bytes(), &[0; 4]]);
}

#[test]
fn ranges_that_many_blocks_share() {
    let ranges: Vec<u8> = (0..60_000u64)
        .flat_map(|at| [TEXT + 2 * at, TEXT + 2 * at + 1])
        .flat_map(u64::to_le_bytes)
        .chain([0; 16])
        .collect();
    let mut unit = Unit::new(TEXT, 0x1000);
    outer(&mut unit, TEXT, 0x1000);
    for _ in 0..19_000 {
        unit.entry(BLOCK, &[&[0; 4]]);
        unit.end();
        unit.entry(BARE_BLOCK, &[]);
        unit.end();
    }
    unit.end();
    let mut info = Info::default();
    info.add(&unit);
    let file = info.file(&[
        (".debug_ranges", &ranges),
        (".debug_str", b"f\0"),
        (".debug_line", &lines(1)),
    ]);
    let [function] = &*described(file, &[TEXT]) else {
        panic!("not one")
    };
    assert!(!function.missing.is_empty());
}

#[test]
fn blocks_within_blocks() {
    let mut unit = Unit::new(TEXT, 0x4_0000);
    outer(&mut unit, TEXT, 0x4_0000);
    for _ in 0..200_000 {
        unit.entry(BARE_BLOCK, &[]);
    }
    for _ in 0..200_001 {
        unit.end();
    }
    let mut info = Info::default();
    info.add(&unit);
    let file = info.file(&[(".debug_str", b"f\0"), (".debug_line", &lines(200_000))]);
    let [function] = &*described(file, &[TEXT]) else {
        panic!("not one")
    };
    assert!(
        function
            .missing
            .iter()
            .any(|missing| missing.contains("too large")),
        "{:?}",
        function.missing
    );
}

#[test]
fn instances_in_a_unit_with_many_lines() {
    let mut unit = Unit::new(TEXT, 0x10_0000);
    let inlined = unit.next_entry();
    unit.entry(MAY_BE_INLINED, &[&[0; 4]]);
    outer(&mut unit, TEXT, 0x10_0000);
    for number in 0..1_500u64 {
        let first = TEXT + number;
        unit.entry(
            INSTANCE,
            &[&inlined.to_le_bytes(), &first.to_le_bytes(), &[1, 0, 0, 0]],
        );
    }
    unit.end();
    let mut info = Info::default();
    info.add(&unit);
    let file = info.file(&[(".debug_str", b"f\0"), (".debug_line", &lines(1_000_000))]);
    let index = ModuleIndex::new(Arc::new(file)).unwrap();
    let started = Instant::now();
    let found = source::inlined(&index, &Name::Exact("f".to_owned()), 64);
    assert!(
        started.elapsed().as_secs() < MAX_SECONDS,
        "{:?}",
        started.elapsed()
    );
    assert_eq!(found.functions[0].instances.len(), source::MAX_INSTANCES);
    // No more are described than are shown.
    let none = source::inlined(&index, &Name::Exact("f".to_owned()), 0);
    assert_eq!((none.functions.len(), none.left_out), (0, 1));
}

#[test]
fn addresses_that_many_ranges_hold() {
    let mut unit = Unit::new(TEXT, 0x10_0000);
    unit.function(TEXT, 0x10_0000, 0);
    let mut info = Info::default();
    info.add(&unit);
    let range: Vec<u8> = [TEXT, 0x10_0000].into_iter().flat_map(u64::to_le_bytes).collect();
    let ranges = 500_000;
    let mut table = u32::try_from(28 + 16 * ranges).unwrap().to_le_bytes().to_vec();
    // Version 2, the unit at 0, addresses of 8 bytes, to a multiple of 16 bytes.
    table.extend([2, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0]);
    table.extend(range.repeat(ranges));
    table.extend([0; 16]);
    let file = info.file(&[
        (".debug_aranges", &table),
        (".debug_str", b"f\0"),
        (".debug_line", &lines(1)),
    ]);
    let addresses: Vec<u64> = (0..10_000).map(|at| TEXT + at).collect();
    assert_eq!(described(file, &addresses).len(), 1);
}

#[test]
fn types_that_refer_to_each_other() {
    const PARAMETERS: usize = 30;
    const LEVELS: u32 = 11;
    let mut unit = Unit::new(TEXT, 0x1000);
    // Each level's type has parameters of the next level's.
    let level_bytes = u32::try_from(1 + 5 * PARAMETERS + 1).unwrap();
    let first = unit.next_entry();
    for level in 0..LEVELS {
        unit.entry(FUNCTION_TYPE, &[]);
        let next = first + (level + 1) * level_bytes;
        for _ in 0..PARAMETERS {
            unit.entry(PARAMETER, &[&next.to_le_bytes()]);
        }
        unit.end();
    }
    let structures = unit.next_entry();
    for _ in 0..20_000 {
        unit.entry(STRUCTURE, &[]);
    }
    let functions = 6u32;
    for number in 0..functions {
        outer(&mut unit, TEXT + 16 * u64::from(number), 16);
        for variable in 0..4_000 {
            let of = structures + (4_000 * number + variable).min(19_999);
            let of = if number + 1 == functions { first } else { of };
            unit.entry(VARIABLE, &[&[0; 4], &of.to_le_bytes()]);
        }
        unit.end();
    }
    let mut info = Info::default();
    info.add(&unit);
    let file = info.file(&[(".debug_str", b"f\0"), (".debug_line", &lines(1))]);
    let addresses: Vec<u64> = (0..u64::from(functions)).map(|at| TEXT + 16 * at).collect();
    let found = described(file, &addresses);
    assert_eq!(found.len(), 6);
    let types = found
        .iter()
        .flat_map(|function| &function.variables)
        .map(|variable| variable.type_name.len());
    assert!(types.max().unwrap() < 300);
}

#[test]
fn a_text_without_end_is_cut() {
    let mut unit = Unit::new(TEXT, 0x1000);
    for number in 0..3_000 {
        unit.function(TEXT + u64::from(number), 1, number);
    }
    let mut info = Info::default();
    info.add(&unit);
    let file = info.file(&[(".debug_str", &vec![b'x'; 64 << 20]), (".debug_line", &lines(1))]);
    let addresses: Vec<u64> = (0..3_000).map(|at| TEXT + at).collect();
    let found = described(file, &addresses);
    assert_eq!(found.len(), 64);
    assert_eq!(found[0].name.len(), 64 << 10);
}
