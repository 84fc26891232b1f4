//! What resolving reads.

use profiler_symbolize::FileSymbols;

use super::{
    dwarf::{Info, LOCATED, OUTER, Unit, lines},
    elf_file::TEXT,
};

#[test]
fn units_that_share_a_table_of_lines() {
    const UNITS: u64 = 12;
    let mut info = Info::default();
    for number in 0..UNITS {
        let mut unit = Unit::new(TEXT + number * 16, 16);
        unit.function(TEXT + number * 16, 16, 0);
        info.add(&unit);
    }
    let lines = lines(900_000);
    let file = info.file(&[(".debug_str", b"name\0"), (".debug_line", &lines)]);
    let mut symbols = FileSymbols::new("hostile", file).unwrap();
    for number in 0..UNITS {
        let frames = symbols.resolve_lines(number * 16 + 1);
        assert_eq!(&*frames[0].function, "name");
        assert!(
            frames[0].line > 0 && frames[0].file.ends_with("a.c"),
            "{frames:?}"
        );
        assert!(symbols.bytes() < 100 << 20, "{} bytes", symbols.bytes());
    }
}

/// The location's length and those of the attributes behind it are more than any number: the function has its name all
/// the same, or a reason.
#[test]
fn a_variable_located_in_more_bytes_than_there_are() {
    let length = [&[0xff; 9][..], &[0x01]].concat();
    let mut unit = Unit::new(TEXT, 16);
    unit.entry(
        OUTER,
        &[&TEXT.to_le_bytes(), &16_u32.to_le_bytes(), &0_u32.to_le_bytes()],
    );
    unit.entry(LOCATED, &[&length, &[0; 4]]);
    unit.end();
    let mut info = Info::default();
    info.add(&unit);
    let file = info.file(&[(".debug_str", b"name\0"), (".debug_line", &lines(1))]);
    let mut symbols = FileSymbols::new("hostile", file).unwrap();
    let frames = symbols.resolve_lines(1);
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert!(
        &*frames[0].function == "name" || frames[0].unresolved.is_some(),
        "{frames:?}"
    );
}
