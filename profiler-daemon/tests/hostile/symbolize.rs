//! What resolving reads.

use profiler_daemon::symbolize::FileSymbols;

use super::{
    dwarf::{Info, Unit, lines},
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
