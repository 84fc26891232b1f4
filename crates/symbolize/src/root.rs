//! What the unwind table says of code that has no symbol left: where its function begins, and whether nothing called it. Where
//! a thread begins, the return address is marked undefined, as in a stripped libc's `clone3`; musl says nothing of that, but its code
//! does.

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry, LittleEndian,
    RegisterRule, UnwindContext, UnwindSection as _, X86_64,
};
use object::{Object as _, ObjectSection as _};
use profiler_debug_files::Elf;

/// How an index begins that all linkers write: version 1; a pointer; a 4-byte count; signed 4-byte pairs
/// relative to the section (Linux Standard Base, "The `.eh_frame_hdr` section").
const VERSION: u8 = 1;
const COUNT_UDATA4: u8 = 0x03;
const TABLE_DATAREL_SDATA4: u8 = 0x3b;
/// The pointer, in the encodings that are four bytes long: `sdata4` and `udata4`, relative or not.
const POINTER_FORMATS: [u8; 2] = [0x0b, 0x03];
/// Where the pairs begin.
const TABLE_AT: usize = 12;
/// Bytes of a pair: where a function begins and where its entry is.
const PAIR: usize = 8;

/// Whether the return address is undefined at an address of the file's numbering.
pub(super) fn is_root(elf: &Elf, address: u64) -> bool {
    let says_root = at(elf, address, |entry, frames, bases| {
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(frames, bases, &mut context, address);
        row.is_ok_and(|row| row.register(X86_64::RA) == Some(RegisterRule::Undefined))
    });
    says_root.unwrap_or(false)
}

/// Where the code begins that has its rows in common with an address: its function, or a part that was moved away from one.
pub(super) fn beginning(elf: &Elf, address: u64) -> Option<u64> {
    at(elf, address, |entry, _, _| entry.initial_address())
}

/// What musl's `clone` does with what a thread's first function returned: the system call `exit`.
const EXIT: [u8; 8] = [
    0x89, 0xc7, // mov %eax, %edi
    0x31, 0xc0, // xor %eax, %eax
    0xb0, 0x3c, // mov $60, %al
    0x0f, 0x05, // syscall
];

/// Most entries of a table without an index that are looked at.
const ENTRIES_MAX: usize = 1 << 18;

/// Whether unwind rows may say who called the code at an address: not where a whole table has none of it. Programs that are linked
/// statically have tables without an index, which are read through.
pub(super) fn may_have_rows(elf: &Elf, address: u64) -> bool {
    let Ok(parsed) = elf.parse() else { return true };
    let is_empty = |name| {
        parsed
            .section_by_name(name)
            .is_none_or(|section| section.size() == 0)
    };
    if is_empty(".eh_frame") {
        return false;
    }
    if !is_empty(".eh_frame_hdr") {
        let index = parsed.section_by_name(".eh_frame_hdr");
        let index = index.and_then(|index| index.data().ok());
        let is_readable = index.is_some_and(|index| pairs(index).is_some());
        return !is_readable || beginning(elf, address).is_some();
    }
    let frames = parsed.section_by_name(".eh_frame");
    let data = frames
        .as_ref()
        .and_then(|frames| Some((frames.address(), frames.data().ok()?)));
    data.is_none_or(|(at, data)| may_have_entry(data, at, address))
}

/// Whether an entry of a table holds an address, or the table cannot be read to its end.
pub(super) fn may_have_entry(table: &[u8], table_address: u64, address: u64) -> bool {
    let bases = BaseAddresses::default().set_eh_frame(table_address);
    let frames = EhFrame::new(table, LittleEndian);
    let mut entries = frames.entries(&bases);
    for _ in 0..ENTRIES_MAX {
        match entries.next() {
            Ok(None) => return false,
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(Some(CieOrFde::Fde(entry))) => {
                let entry = entry.parse(EhFrame::cie_from_offset);
                if entry.map_or(true, |entry| entry.contains(address)) {
                    return true;
                }
            }
            Err(_) => return true,
        }
    }
    true
}

/// Whether the code behind a call ends the thread. `address` is the last byte of the call.
pub(super) fn exits_behind(elf: &Elf, address: u64) -> bool {
    let behind = address.checked_add(1);
    behind.is_some_and(|behind| elf.code_from(behind).starts_with(&EXIT))
}

/// What hands over what a call returned.
const RESULT_MOVES: [&[u8]; 3] = [
    &[0x48, 0x89, 0xc7], // mov %rax, %rdi
    &[0x89, 0xc7],       // mov %eax, %edi
    &[0x48, 0x63, 0xf8], // movslq %eax, %rdi
];

/// Where the code behind a call goes with what that returned: it hands it over, by a direct call. `None` where it does anything else. `address` is the last byte of the call.
pub(super) fn result_goes_to(elf: &Elf, address: u64) -> Option<u64> {
    let behind = address.checked_add(1)?;
    let code = elf.code_from(behind);
    let moved = RESULT_MOVES.iter().find(|moved| code.starts_with(moved))?;
    let (&[0xe8, a, b, c, d], _) = code.get(moved.len()..)?.split_first_chunk()? else {
        return None;
    };
    let next = behind.checked_add(moved.len() as u64 + 5)?;
    next.checked_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// What is read of the entry that holds an address; `None` where there is none.
fn at<T>(
    elf: &Elf,
    address: u64,
    read: impl FnOnce(&FrameDescriptionEntry<Slice<'_>>, &EhFrame<Slice<'_>>, &BaseAddresses) -> T,
) -> Option<T> {
    let parsed = elf.parse().ok()?;
    let index = parsed.section_by_name(".eh_frame_hdr")?;
    let frames = parsed.section_by_name(".eh_frame")?;
    let entry_address = entry_address(index.data().ok()?, index.address(), address)?;
    let offset = usize::try_from(entry_address.checked_sub(frames.address())?).ok()?;
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(index.address())
        .set_eh_frame(frames.address());
    let frames = EhFrame::new(frames.data().ok()?, LittleEndian);
    let entry = frames
        .fde_from_offset(&bases, EhFrameOffset(offset), EhFrame::cie_from_offset)
        .ok()?;
    entry.contains(address).then(|| read(&entry, &frames, &bases))
}

/// The address of the entry of the last function that begins at or before an address.
///
/// gimli's own search is not used: in 0.34 its arithmetic overflows on damaged tables.
fn entry_address(index: &[u8], index_address: u64, address: u64) -> Option<u64> {
    let pairs = pairs(index)?;
    let part = |pair: &[u8; PAIR], at: usize| {
        let relative = i32::from_le_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]);
        index_address.wrapping_add_signed(i64::from(relative))
    };
    let after = pairs.partition_point(|pair| part(pair, 0) <= address);
    Some(part(&pairs[after.checked_sub(1)?], 4))
}

/// The pairs of an index; `None` where it is of another form, or damaged.
fn pairs(index: &[u8]) -> Option<&[[u8; PAIR]]> {
    let [VERSION, pointer, COUNT_UDATA4, TABLE_DATAREL_SDATA4, ..] = *index else {
        return None;
    };
    if !POINTER_FORMATS.contains(&(pointer & 0x0f)) {
        return None;
    }
    let count = u32::from_le_bytes(index.get(8..TABLE_AT)?.try_into().ok()?);
    let (pairs, _) = index.get(TABLE_AT..)?.as_chunks::<PAIR>();
    Some(&pairs[..pairs.len().min(count as usize)])
}
