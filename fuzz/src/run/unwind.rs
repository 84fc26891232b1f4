//! Unwind information: tables made of bytes, and the stacks that are walked by them.
//!
//! An input is a byte of choices, a byte that says how long the text is, the section's address in eights, the same
//! of its index, the index's length, the index, and the section.

use std::sync::Arc;

use profiler_common::unwind::{Frame, Mapping};
use profiler_symbolize::FileSymbols;
use profiler_unwind::{Image, Limits, MAX_MODULE_PAGES, Memory, ROOT, Segments, Store, Table, Walk, build};

use super::{
    elf_file::{Section, TEXT, elf_file},
    input::Input,
};

/// The choice of `.debug_frame` in place of `.eh_frame`.
pub const DEBUG_FRAME: u8 = 1;
/// The choice to have an index.
pub const INDEX: u8 = 2;
/// The choice to have an entry point.
pub const ENTRY: u8 = 4;

/// Frames of a walked stack.
const FRAMES: usize = 32;
/// Where the walked process has the file.
const BIAS: u64 = 0x5555_0000_0000;

/// Makes a table of an input, walks by it, and looks for roots in it.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (choices, text_size) = (input.byte(), input.byte());
    let (section_at, index_at) = (u64::from(input.short()) * 8, u64::from(input.short()) * 8);
    let index_length = input.short();
    let index = input.bytes(index_length.into());
    let section = Section {
        name: if choices & DEBUG_FRAME == 0 {
            ".eh_frame"
        } else {
            ".debug_frame"
        },
        address: section_at,
        bytes: input.0,
    };
    let index = Section {
        name: ".eh_frame_hdr",
        address: index_at,
        bytes: index,
    };
    let sections = if choices & INDEX == 0 {
        vec![section]
    } else {
        vec![section, index]
    };
    let entry = if choices & ENTRY == 0 { 0 } else { TEXT + 0x20 };
    let file = elf_file(&sections, 0x100 << (text_size % 24), entry);
    if let Ok(table) = build(&file) {
        check(&table, input.0);
    }
    let _ = Segments::read(&file).load_bias(BIAS, 0);
    if choices & INDEX != 0
        && let Ok(mut symbols) = FileSymbols::new("fuzzed", file)
    {
        for offset in (0..256).step_by(16) {
            symbols.resolve(offset);
        }
    }
}

/// What must hold of any table, whatever it was made of.
///
/// # Panics
/// Where it does not.
pub fn check(table: &Table, memory: &[u8]) {
    assert!(table.pages() as u64 <= MAX_MODULE_PAGES);
    assert_eq!(
        table.page_starts.last().map(|&last| last as usize),
        Some(table.rows.len())
    );
    for page in 0..table.pages() {
        let rows = table.page(page);
        assert!(rows.first().is_none_or(|row| row.offset == 0));
        assert!(rows.windows(2).all(|pair| pair[0].offset < pair[1].offset));
        assert!(rows.iter().all(|row| usize::from(row.rule) < table.rules.len()));
    }
    let mut store = Store::new(Limits::default());
    let Ok(placement) = store.add(&Arc::from(&b"fuzzed"[..]), ROOT, table) else {
        panic!("an empty store has no room");
    };
    let mut image = Image::default();
    image.write(&placement);
    for page in 0..table.pages().min(64) {
        for offset in [0, 1, 0x7fff, 0xffff] {
            let found = image.rule(placement.module, (page as u64) << 16 | offset);
            assert_eq!(found.is_some(), !table.page(page).is_empty());
        }
    }
    walk(&image, table, placement.module, memory);
}

/// Walks from the beginnings of some rows.
fn walk(image: &Image, table: &Table, module: u32, memory: &[u8]) {
    let length = (table.pages() as u64) << 16;
    let start = BIAS.checked_add(table.base);
    let ends = start.and_then(|start| Some((start, start.checked_add(length)?)));
    // A file that claims the last addresses cannot be mapped so.
    let Some((start, end)) = ends else { return };
    let mapping = Mapping {
        start,
        end,
        bias: BIAS.wrapping_add(table.base),
        module,
        reserved: 0,
    };
    let walk = Walk {
        image,
        mappings: &[mapping],
    };
    for row in table.page(0).iter().take(8) {
        let ip = mapping.start + u64::from(row.offset);
        let frame = Frame::interrupted(ip, STACK, STACK + 64, 0);
        let stack = walk.stack(frame, &Stack(memory), FRAMES);
        assert!(!stack.ips.is_empty() && stack.ips.len() <= FRAMES);
    }
}

/// Where the walked stack lies.
const STACK: u64 = 0x7fff_0000_0000;

/// A stack of an input's bytes over and over; of its words some are code.
struct Stack<'a>(&'a [u8]);

impl Memory for Stack<'_> {
    fn read(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(STACK)?).ok()?;
        let start = at % self.0.len().max(1);
        let word = self
            .0
            .get(start..start + 8)?
            .try_into()
            .map(u64::from_le_bytes)
            .ok()?;
        Some(match word % 4 {
            0 => BIAS + TEXT + word % 0x1000,
            1 => STACK + word % 0x1000,
            _ => word,
        })
    }

    fn register(&self, number: u8) -> Option<u64> {
        (number < 16).then(|| STACK + u64::from(number) * 8)
    }
}
