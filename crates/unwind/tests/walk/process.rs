//! What a process has mapped executable.

use object::{Object as _, ObjectSegment as _};

pub struct Part {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
}

pub fn executable(pid: u32) -> Vec<Part> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().filter_map(part).collect()
}

fn part(line: &str) -> Option<Part> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let executable = words.next()?.contains('x');
    let offset = words.next()?;
    let path = words.nth(2)?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    (executable && path != "[vsyscall]").then_some(Part {
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
        path: path.into(),
    })
}

/// The address, in the file's own address space, of a file offset.
pub fn address_of(elf: &[u8], offset: u64) -> u64 {
    let elf = object::File::parse(elf).unwrap();
    elf.segments()
        .find_map(|segment| {
            let (at, length) = segment.file_range();
            // A mapping begins at a page's start, which may lie before its segment.
            let page = at & !0xfff;
            (page..at + length)
                .contains(&offset)
                .then(|| (segment.address() - (at - page)) + (offset - page))
        })
        .unwrap()
}
