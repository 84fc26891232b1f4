//! Files that are damaged, or made to do damage: no panic, no unbounded memory or time.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{sync::Arc, sync::LazyLock};

use object::{Object as _, ObjectSection as _};
use profiler_unwind::{BuildError, Image, Limits, MAX_MODULE_PAGES, ROOT, Store, Table, build};
use proptest::prelude::*;

/// A small program with a bit of everything; where its `.eh_frame` is.
static PROGRAM: LazyLock<(Vec<u8>, usize, usize)> = LazyLock::new(|| {
    let bytes = std::fs::read("/usr/bin/true").unwrap();
    let (at, length) = {
        let elf = object::File::parse(&*bytes).unwrap();
        elf.section_by_name(".eh_frame").unwrap().file_range().unwrap()
    };
    (
        bytes,
        usize::try_from(at).unwrap(),
        usize::try_from(length).unwrap(),
    )
});

/// What must hold of any table, whatever it was made of.
fn check(table: &Table) {
    assert!(table.pages() as u64 <= MAX_MODULE_PAGES);
    assert_eq!(
        table.page_starts.last().copied().unwrap() as usize,
        table.rows.len()
    );
    for page in 0..table.pages() {
        let rows = table.page(page);
        assert!(rows.first().is_none_or(|row| row.offset == 0));
        assert!(rows.windows(2).all(|pair| pair[0].offset < pair[1].offset));
        assert!(rows.iter().all(|row| usize::from(row.rule) < table.rules.len()));
    }
    let mut store = Store::new(Limits::default());
    let placement = store.add(&Arc::from(&b"hostile"[..]), ROOT, table).unwrap();
    let mut image = Image::default();
    image.write(&placement);
    for page in 0..table.pages() as u64 {
        for offset in [0, 1, 0x7fff, 0xffff] {
            let found = image.rule(placement.module, page << 16 | offset);
            assert_eq!(
                found.is_some(),
                !table.page(usize::try_from(page).unwrap()).is_empty()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_unwind_information(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30)) {
        let (mut bytes, at, length) = PROGRAM.clone();
        for (place, byte) in changes {
            bytes[at + place.index(length)] = byte;
        }
        check(&build(&bytes).unwrap());
    }

    #[test]
    fn damaged_anywhere(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        in_headers in any::<bool>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = PROGRAM.0.clone();
        let length = bytes.len();
        for (place, byte) in changes {
            let place = place.index(if in_headers { 1024 } else { length });
            // The section headers are at the end.
            let place = if in_headers && byte & 1 == 1 { length - 1 - place } else { place };
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(length));
        }
        if let Ok(table) = build(&bytes) {
            check(&table);
        }
    }
}

/// An ELF file of this unwind information, with `text` bytes of text at 1 MiB.
fn elf(eh_frame: &[u8], text: u64) -> Vec<u8> {
    let names = b"\0.eh_frame\0.shstrtab\0";
    let (frame_at, names_at) = (120u64, 120 + eh_frame.len() as u64);
    let sections_at = names_at + names.len() as u64;
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_DYN, EM_X86_64, version 1.
    bytes.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    // The entry point, program headers, section headers.
    for word in [0, 64, sections_at] {
        bytes.extend(word.to_le_bytes());
    }
    // Flags; the header's size; a program header of 56 bytes; 3 section headers of 64, the last of names.
    bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 3, 0, 2, 0]);
    let mut words = |list: &[u64]| list.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    words(&[1 | 5 << 32, 0, 1 << 20, 1 << 20, 0, text, 4096]);
    bytes.extend(eh_frame);
    bytes.extend(names);
    let mut words = |list: &[u64]| list.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    words(&[0; 8]);
    words(&[1 | 1 << 32, 2, frame_at, frame_at, eh_frame.len() as u64, 0, 8, 0]);
    // The name `.shstrtab` begins at byte 11.
    words(&[0xb | 3 << 32, 0, 0, names_at, names.len() as u64, 0, 1, 0]);
    bytes
}

/// A common entry whose instructions are `initial`, and `entries` entries of `instructions` that use it, a page
/// of text each.
fn eh_frame(initial: &[u8], entries: u32, instructions: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Version 1, no augmentation, factors 1 and -8, return address in 16, the call frame as the ABI has it.
    let common = [&[1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1][..], initial].concat();
    bytes.extend(u32::try_from(common.len() + 4).unwrap().to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(&common);
    for entry in 0..entries {
        bytes.extend(u32::try_from(20 + instructions.len()).unwrap().to_le_bytes());
        bytes.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
        bytes.extend(((1u64 << 20) + (u64::from(entry) << 12)).to_le_bytes());
        bytes.extend(4096u64.to_le_bytes());
        bytes.extend(instructions);
    }
    bytes
}

#[test]
fn a_file_made_by_hand_is_read() {
    // At byte 4 of each: the CFA is 16 from the stack pointer.
    let table = build(&elf(&eh_frame(&[], 3, &[0x44, 0x0e, 16]), 1 << 16)).unwrap();
    check(&table);
    assert_eq!(table.counts.entries, 3);
    assert_eq!(table.rows.len(), 7, "two rows an entry, and the end");
}

#[test]
fn entries_that_share_endless_instructions() {
    let bytes = elf(&eh_frame(&vec![0; 60_000], 5000, &[]), 1 << 30);
    assert_eq!(build(&bytes), Err(BuildError::TooMuchWork));
}

#[test]
fn text_without_end() {
    let bytes = elf(&eh_frame(&[], 1, &[]), 1 << 40);
    assert!(matches!(build(&bytes), Err(BuildError::TextTooLarge(_))));
    let bytes = elf(&eh_frame(&[], 1, &[]), u64::MAX);
    assert!(matches!(build(&bytes), Err(BuildError::Damaged(_))));
}

#[test]
fn more_rules_than_are_taken_are_unsupported() {
    // Advance by 1, CFA offset n: as many rules as rows.
    let rows = |rows: u16| -> Vec<u8> {
        (0..rows)
            .flat_map(|n| {
                [
                    0x41,
                    0x0e,
                    n.to_le_bytes()[0] | 0x80,
                    u8::try_from(n >> 7).unwrap(),
                ]
            })
            .collect()
    };
    let table = build(&elf(&eh_frame(&[], 1, &rows(4090)), 1 << 16)).unwrap();
    check(&table);
    assert_eq!(table.counts.unsupported_rows, 0);
    let more = rows(5000);
    let mut frame = eh_frame(&[], 1, &more);
    // The one entry covers 8 KiB.
    let at = frame.len() - more.len() - 8;
    frame[at..at + 8].copy_from_slice(&8192u64.to_le_bytes());
    let table = build(&elf(&frame, 1 << 16)).unwrap();
    check(&table);
    assert!(table.counts.unsupported_rows > 0);
    assert!(table.rules.len() <= 4096);
}
