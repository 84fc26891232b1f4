//! Debug information made by hand: DWARF 4, with one set of abbreviations for all units.

use super::elf_file::{Section, TEXT, elf_file};

/// A unit: where its lines begin, its first address, the addresses that it covers.
pub const UNIT: u8 = 1;
/// A function: the same, and its name as an offset.
pub const FUNCTION: u8 = 2;
/// A function without code: its name as an offset.
pub const ABSTRACT: u8 = 3;
/// A call inlined: the entry of the function as an offset in the unit.
pub const INLINED: u8 = 4;

/// A function with entries inside: as [`FUNCTION`].
pub const OUTER: u8 = 5;
/// A block, with entries inside: its ranges as an offset.
pub const BLOCK: u8 = 6;
/// A block without code of its own, with entries inside.
pub const BARE_BLOCK: u8 = 7;
/// A function that may be inlined: its name as an offset.
pub const MAY_BE_INLINED: u8 = 8;
/// An instance: the entry of the function as an offset in the unit, its first address, the addresses that it covers.
pub const INSTANCE: u8 = 9;
/// A variable: its name as an offset, the entry of its type as an offset in the unit.
pub const VARIABLE: u8 = 10;
/// A structure without a name.
pub const STRUCTURE: u8 = 11;
/// The type of a function, with entries inside.
pub const FUNCTION_TYPE: u8 = 12;
/// A parameter without a name: the entry of its type as an offset in the unit.
pub const PARAMETER: u8 = 13;
/// A variable: the length of its location and that, the entry of its type as an offset in the unit.
pub const LOCATED: u8 = 14;

/// For each: its number; its tag; whether it has children; pairs of attribute and form; twice 0.
const ABBREVIATIONS: [&[u8]; 14] = [
    &[UNIT, 0x11, 1, 0x10, 0x17, 0x11, 0x01, 0x12, 0x06, 0, 0],
    &[FUNCTION, 0x2e, 0, 0x11, 0x01, 0x12, 0x06, 0x03, 0x0e, 0, 0],
    &[ABSTRACT, 0x2e, 0, 0x03, 0x0e, 0, 0],
    &[INLINED, 0x1d, 0, 0x31, 0x13, 0, 0],
    &[OUTER, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0x03, 0x0e, 0, 0],
    &[BLOCK, 0x0b, 1, 0x55, 0x17, 0, 0],
    &[BARE_BLOCK, 0x0b, 1, 0, 0],
    &[MAY_BE_INLINED, 0x2e, 0, 0x03, 0x0e, 0x20, 0x19, 0, 0],
    &[INSTANCE, 0x1d, 0, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0],
    &[VARIABLE, 0x34, 0, 0x03, 0x0e, 0x49, 0x13, 0, 0],
    &[STRUCTURE, 0x13, 0, 0, 0],
    &[FUNCTION_TYPE, 0x15, 1, 0, 0],
    &[PARAMETER, 0x05, 0, 0x49, 0x13, 0, 0],
    &[LOCATED, 0x34, 0, 0x02, 0x18, 0x49, 0x13, 0, 0],
];

/// Units.
#[derive(Default)]
pub struct Info(Vec<u8>);

/// One unit's entries.
pub struct Unit(Vec<u8>);

impl Unit {
    /// One that covers addresses.
    pub fn new(first: u64, length: u32) -> Self {
        let mut bytes = vec![UNIT, 0, 0, 0, 0];
        bytes.extend(first.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        Self(bytes)
    }

    /// Where the next entry is.
    pub fn next_entry(&self) -> u32 {
        11 + u32::try_from(self.0.len()).unwrap()
    }

    /// Any entry: its number, and its attributes' bytes.
    pub fn entry(&mut self, number: u8, attributes: &[&[u8]]) {
        self.0.push(number);
        self.0.extend(attributes.concat());
    }

    /// The end of what is inside an entry.
    pub fn end(&mut self) {
        self.0.push(0);
    }

    pub fn function(&mut self, first: u64, length: u32, name: u32) {
        self.0.push(FUNCTION);
        self.0.extend(first.to_le_bytes());
        self.0.extend(length.to_le_bytes());
        self.0.extend(name.to_le_bytes());
    }

    pub fn without_code(&mut self, name: u32) {
        self.0.push(ABSTRACT);
        self.0.extend(name.to_le_bytes());
    }

    pub fn inlined(&mut self, function: u32) {
        self.0.push(INLINED);
        self.0.extend(function.to_le_bytes());
    }
}

impl Info {
    pub fn add(&mut self, unit: &Unit) {
        let length = u32::try_from(unit.0.len()).unwrap() + 8;
        self.0.extend(length.to_le_bytes());
        // Version 4, abbreviations at 0, addresses of 8 bytes.
        self.0.extend([4, 0, 0, 0, 0, 0, 8]);
        self.0.extend(&unit.0);
        self.0.push(0);
    }

    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The file with these units, and these sections besides.
    pub fn file(&self, others: &[(&str, &[u8])]) -> Vec<u8> {
        let mut abbreviations = ABBREVIATIONS.concat();
        abbreviations.push(0);
        let own = [(".debug_info", &*self.0), (".debug_abbrev", &abbreviations)];
        let section = |&(name, bytes)| Section {
            name,
            address: 0,
            bytes,
        };
        let sections: Vec<Section<'_>> = own.iter().chain(others).map(section).collect();
        elf_file(&sections, 0, 0)
    }
}

/// A table of lines: version 2, no directories, the file `a.c`, and as many rows, each an address and a line on.
pub fn lines(rows: usize) -> Vec<u8> {
    line_table(TEXT, b"a.c", &vec![13 + 14 + 1 + 5; rows])
}

/// A table of lines as [`lines`] has it, but of `/a.c`, and of pairs of rows, each an address on, that are of line 2 and of
/// line 1.
pub fn two_lines(first: u64, pairs: usize) -> Vec<u8> {
    let on = 13 + 14 + 5;
    line_table(first, b"/a.c", &[on + 1, on - 1].repeat(pairs))
}

fn line_table(first: u64, file: &[u8], rows: &[u8]) -> Vec<u8> {
    // The smallest instruction; statements; the first line, the range and the base of special opcodes; the lengths of
    // the others; no directory; a file; no more.
    let header = b"\x01\x01\xfb\x0e\x0d\0\x01\x01\x01\x01\0\0\0\x01\0\0\x01\0";
    let header = [header, file, b"\0\0\0\0\0"].concat();
    let mut program = b"\0\x09\x02".to_vec();
    program.extend(first.to_le_bytes());
    program.extend(rows);
    program.extend(b"\x02\x01\0\x01\x01");
    let mut table = 2u16.to_le_bytes().to_vec();
    table.extend(u32::try_from(header.len()).unwrap().to_le_bytes());
    table.extend(&header);
    table.extend(program);
    let mut section = u32::try_from(table.len()).unwrap().to_le_bytes().to_vec();
    section.extend(table);
    section
}
