//! An ELF file around sections that were made up: its headers are right, so that all there is to damage is in them.

/// Where the file's text begins: a linker puts that of a small library here, and so the addresses in debug
/// information made of one are in the text.
pub const TEXT: u64 = 0xb00;

/// A section to put into the file. The names of the symbols in a `.symtab` are in the section that follows it.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it is loaded; 0 where it is not.
    pub address: u64,
    /// What is in it.
    pub bytes: &'a [u8],
}

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const SYMBOL: u64 = 24;
const LIBRARY: u16 = 3;
const X86_64: u16 = 62;

/// A library for x86-64 with these sections, whose one segment is the whole file as code at [`TEXT`] and goes on for
/// `text_bytes` in memory. It begins at `entry`, or nowhere where that is 0.
#[must_use]
pub fn elf_file(sections: &[Section<'_>], text_bytes: u64, entry: u64) -> Vec<u8> {
    let mut names = vec![0];
    let mut contents: Vec<u8> = Vec::new();
    let mut headers = vec![0; SECTION_HEADER];
    let name_table = Section {
        name: ".shstrtab",
        address: 0,
        bytes: &[],
    };
    let contents_at = HEADER + PROGRAM_HEADER;
    for (number, section) in (1..).zip(sections.iter().chain([&name_table])) {
        let name = names.len();
        names.extend(section.name.as_bytes());
        names.push(0);
        let own = if section.name == name_table.name {
            names.clone()
        } else {
            Vec::new()
        };
        let bytes = if own.is_empty() { section.bytes } else { &own };
        let (kind, strings, entry) = match section.name {
            ".symtab" => (SYMTAB, number + 1, SYMBOL),
            ".strtab" | ".shstrtab" => (STRTAB, 0, 0),
            _ => (PROGBITS, 0, 0),
        };
        headers.extend(u32::try_from(name).unwrap_or(0).to_le_bytes());
        headers.extend(kind.to_le_bytes());
        let offset = contents_at + contents.len();
        for word in [
            0,
            section.address,
            offset as u64,
            bytes.len() as u64,
            strings,
            1,
            entry,
        ] {
            headers.extend(word.to_le_bytes());
        }
        contents.extend(bytes);
    }
    let sections_at = (contents_at + contents.len()).next_multiple_of(8);
    let length = (sections_at + headers.len()) as u64;
    let count = u16::try_from(sections.len() + 2).unwrap_or(0);

    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([LIBRARY, X86_64].map(u16::to_le_bytes).concat());
    file.extend(1u32.to_le_bytes());
    for word in [entry, HEADER as u64, sections_at as u64] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    // The sizes of headers, and how many there are of each; the last section is that of the names.
    for half in [64, 56, 1, 64, count, count - 1] {
        file.extend(half.to_le_bytes());
    }
    let (load, readable_code) = (1u64, 5u64 << 32);
    for word in [
        load | readable_code,
        0,
        TEXT,
        TEXT,
        length,
        text_bytes.max(length),
        4096,
    ] {
        file.extend(word.to_le_bytes());
    }
    file.extend(contents);
    file.resize(sections_at, 0);
    file.extend(headers);
    file
}
