//! Functions that a just-in-time compiler has announced: the content of a perf map.
//!
//! The format is perf's (`tools/perf/Documentation/jit-interface.txt` of the kernel): a line for each function,
//! `START SIZE NAME`, both numbers hexadecimal, the name to the end of the line. The file is only ever appended
//! to, and code can come to lie where other code lay: of entries that overlap, the later one wins.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::{
    frame::{Frame, FrameId, Frames},
    name::NAME_MAX,
};

/// What the module of such functions is called.
pub(super) const JIT: &str = "[jit]";
/// Most bytes that the entries of one process may take, by [`ENTRY_BYTES`] and their names: about 200,000
/// functions. Then the oldest quarter is forgotten.
const BYTES_MAX: usize = 32 << 20;
/// What an entry takes beside its name, about.
const ENTRY_BYTES: usize = 112;
/// Longest line that is looked at.
const LINE_MAX: usize = NAME_MAX + 64;

/// A function, or what others have left of it.
#[derive(Clone)]
struct Entry {
    end: u64,
    name: Arc<str>,
    /// Grows with each line.
    number: u64,
    frame: Option<FrameId>,
}

impl Entry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.name.len()
    }
}

/// The functions of one process, by address.
pub(super) struct PerfMap {
    /// By their first address; they do not overlap.
    entries: BTreeMap<u64, Entry>,
    bytes: usize,
    bytes_max: usize,
    lines: u64,
    skipped: u64,
    forgotten: u64,
    /// The beginning of a line whose end has not been read.
    partial: Vec<u8>,
    /// The present line is too long: it is passed over to its end.
    too_long: bool,
}

impl Default for PerfMap {
    fn default() -> Self {
        Self::with_limit(BYTES_MAX)
    }
}

impl PerfMap {
    /// An empty one. The oldest quarter of its entries goes when they take more bytes than this.
    pub fn with_limit(bytes_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            lines: 0,
            skipped: 0,
            forgotten: 0,
            partial: Vec::new(),
            too_long: false,
        }
    }

    /// Takes what follows in the file. A line counts once its end is there.
    pub fn append(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            if self.partial.is_empty() && !self.too_long {
                self.line(line);
            } else {
                self.keep_partial(line);
                let line = std::mem::take(&mut self.partial);
                if !std::mem::take(&mut self.too_long) {
                    self.line(&line);
                }
            }
        }
        self.keep_partial(rest);
    }

    fn keep_partial(&mut self, piece: &[u8]) {
        if self.too_long {
            return;
        }
        if self.partial.len() + piece.len() > LINE_MAX {
            self.too_long = true;
            self.skipped += 1;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(piece);
        }
    }

    fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        let parsed = (line.len() <= LINE_MAX).then(|| parse(line)).flatten();
        match parsed {
            Some(line) => self.insert(line.start, line.end, &line.name),
            None => self.skipped += 1,
        }
    }

    fn insert(&mut self, start: u64, end: u64, name: &str) {
        self.cut_out(start, end);
        self.add(
            start,
            Entry {
                end,
                name: name.into(),
                number: self.lines,
                frame: None,
            },
        );
        if self.bytes > self.bytes_max {
            self.forget_oldest();
        }
    }

    /// Takes what lies in a range from the functions that hold it.
    fn cut_out(&mut self, start: u64, end: u64) {
        let mut after = None;
        if let Some((_, before)) = self.entries.range_mut(..start).next_back()
            && before.end > start
        {
            if before.end > end {
                after = Some(before.clone());
            }
            before.end = start;
        }
        while let Some((&at, _)) = self.entries.range(start..end).next() {
            if let Some(covered) = self.entries.remove(&at) {
                self.bytes -= covered.bytes();
                if covered.end > end {
                    after = Some(covered);
                }
            }
        }
        if let Some(after) = after {
            self.add(end, after);
        }
    }

    fn add(&mut self, start: u64, entry: Entry) {
        self.bytes += entry.bytes();
        self.entries.insert(start, entry);
    }

    /// A quarter at a time, so that the look at all of them is rare.
    fn forget_oldest(&mut self) {
        let mut numbers: Vec<u64> = self.entries.values().map(|entry| entry.number).collect();
        let quarter = numbers.len() / 4;
        let (_, &mut oldest_kept, _) = numbers.select_nth_unstable(quarter);
        let before = self.entries.len();
        self.entries
            .retain(|_, entry| entry.number > oldest_kept || quarter == 0);
        self.bytes = self.entries.values().map(Entry::bytes).sum();
        self.forgotten += (before - self.entries.len()) as u64;
    }

    /// The function that holds an address.
    pub fn resolve(&mut self, address: u64, frames: &mut Frames) -> Option<FrameId> {
        let (_, entry) = self.entries.range_mut(..=address).next_back()?;
        if entry.end <= address {
            return None;
        }
        let Entry { name, frame, .. } = entry;
        Some(*frame.get_or_insert_with(|| frames.intern(Frame::named(name, &JIT.into(), false))))
    }

    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes + self.partial.capacity()
    }

    /// What it does not have.
    pub fn left_out(&self) -> LeftOut {
        LeftOut {
            skipped: self.skipped,
            forgotten: self.forgotten,
        }
    }
}

/// What a map does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// Lines that were not of the form, or too long.
    pub skipped: u64,
    /// Functions forgotten because there were too many.
    pub forgotten: u64,
}

/// A function as a line has it.
struct Line<'a> {
    start: u64,
    /// One past the last address.
    end: u64,
    name: Cow<'a, str>,
}

/// What a line says; `None` where it is not of the form or says nothing.
fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut rest = line.trim_ascii();
    let mut number = || {
        let end = rest.iter().position(u8::is_ascii_whitespace)?;
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        rest = rest[end..].trim_ascii_start();
        let digits = text
            .strip_prefix("0x")
            .or_else(|| text.strip_prefix("0X"))
            .unwrap_or(text);
        // What `from_str_radix` would take for a sign.
        (!digits.starts_with('+')).then_some(())?;
        u64::from_str_radix(digits, 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let end = start.checked_add(size)?;
    let name = &rest[..rest.len().min(NAME_MAX)];
    (size > 0 && !name.is_empty()).then(|| Line {
        start,
        end,
        name: String::from_utf8_lossy(name),
    })
}

#[cfg(test)]
mod tests;
