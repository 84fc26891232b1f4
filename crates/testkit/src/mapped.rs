//! What a process has mapped executable.

/// A part of its memory.
#[derive(Debug)]
pub struct Part {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// Its file, or what the kernel calls it.
    pub path: String,
}

/// All of them.
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
