//! What resolving reads.

use profiler_daemon::symbolize::FileSymbols;

use super::{
    dwarf::{Info, Unit},
    elf_file::TEXT,
};

/// A table of lines: version 2, no directories, the file `a.c`, and as many rows, each an address and a line on.
fn lines(rows: usize) -> Vec<u8> {
    // The smallest instruction; statements; the first line, the range and the base of special opcodes; the lengths of
    // the others; no directory; a file; no more.
    let header = b"\x01\x01\xfb\x0e\x0d\0\x01\x01\x01\x01\0\0\0\x01\0\0\x01\0a.c\0\0\0\0\0";
    let mut program = b"\0\x09\x02".to_vec();
    program.extend(TEXT.to_le_bytes());
    program.extend(std::iter::repeat_n(13 + 14 + 1 + 5, rows));
    program.extend(b"\x02\x01\0\x01\x01");
    let mut table = 2u16.to_le_bytes().to_vec();
    table.extend(u32::try_from(header.len()).unwrap().to_le_bytes());
    table.extend(header);
    table.extend(program);
    let mut section = u32::try_from(table.len()).unwrap().to_le_bytes().to_vec();
    section.extend(table);
    section
}

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
