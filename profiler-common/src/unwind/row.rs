//! From an address to the number of its rule.

use crate::assert_layout;

/// Bytes of text that a [`Page`] covers.
pub const PAGE_BYTES: u64 = 1 << 16;

/// Rows in a chunk, the unit in which memory for rows is had: 256 KiB.
pub const CHUNK_ROWS: u32 = 1 << 16;

/// Mappings that a process can have.
pub const MAX_MAPPINGS: u32 = 1 << 12;

/// The rule that holds from an offset on, until the next row's offset or the page's end.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Offset within the page's text.
    pub offset: u16,
    /// Index into the rule table.
    pub rule: u16,
}

assert_layout!(Row, size 4, offset at 0, rule at 2);

/// 64 KiB of a module's text. A page that has rows has one at offset 0.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Page {
    /// The first row: its chunk in the high half, its place in the chunk in the low half. A page's rows
    /// never straddle chunks.
    pub first_row: u32,
    /// Number of rows, at most [`CHUNK_ROWS`]; 0 where the page has no unwind information.
    pub rows: u32,
}

assert_layout!(Page, size 8, first_row at 0, rows at 4);

impl Page {
    /// The chunk that holds the rows.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn chunk(self) -> u32 {
        self.first_row >> 16
    }

    /// Place in the chunk of the page's row number `index`, always below [`CHUNK_ROWS`].
    #[inline(always)]
    #[must_use]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn place(self, index: u32) -> u32 {
        self.first_row.wrapping_add(index) & (CHUNK_ROWS - 1)
    }
}

/// A file's text: consecutive pages.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Module {
    /// Index of its first page.
    pub first_page: u32,
    /// Number of pages; 0 where the module is gone.
    pub pages: u32,
}

assert_layout!(Module, size 8, first_page at 0, pages at 4);

impl Module {
    /// Index of the page that holds an offset into the module's text.
    #[inline(always)]
    #[must_use]
    #[allow(
        clippy::inline_always,
        clippy::cast_possible_truncation,
        reason = "inlined into eBPF; below a number of 32 bits"
    )]
    pub const fn page(self, text_offset: u64) -> Option<u32> {
        let page = text_offset / PAGE_BYTES;
        if page < self.pages as u64 {
            Some(self.first_page.wrapping_add(page as u32))
        } else {
            None
        }
    }
}

/// A process's mappings: so many from an index on.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Process {
    /// Index of its first mapping.
    pub first_mapping: u32,
    /// Number of mappings, at most [`MAX_MAPPINGS`].
    pub mappings: u32,
    /// No other mappings, of this process or another, ever have the same; not 0.
    pub generation: u64,
}

assert_layout!(Process, size 16, first_mapping at 0, mappings at 4, generation at 8);

/// Addresses of a process at which a module's text is mapped. A process's mappings are sorted and
/// do not overlap.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// An address minus this is its offset into the module's text.
    pub bias: u64,
    /// Index of the module.
    pub module: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

assert_layout!(Mapping, size 32, start at 0, end at 8, bias at 16, module at 24, reserved at 28);
