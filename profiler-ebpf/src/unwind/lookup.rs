//! From an address to the rule that holds there, by the daemon's tables.

use profiler_common::{
    record::SampleHeader,
    unwind::{CHUNK_ROWS, MAPPING_STEPS, Mapping, RECENT, ROW_STEPS, Recent, Row, Rule, last_at_or_below},
};

use super::Walk;
use crate::{
    maps::{UNWIND_MAPPINGS, UNWIND_MODULES, UNWIND_PAGES, UNWIND_ROWS},
    plain::copy,
};
/// The number of the rule that holds at the frame.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile; `recent` is the one of this CPU's sampler, or null.
#[inline(always)]
pub unsafe fn rule_of(walk: *mut Walk, recent: *mut Recent) -> u32 {
    // SAFETY: live map values; the place is masked, and of this CPU's sampler, which nothing interrupts.
    unsafe {
        let address = (*walk).frame.lookup_ip();
        let has_recent = !recent.is_null();
        let recent = recent.wrapping_add(masked_place(address));
        if has_recent && let Some(rule) = (*recent).rule(&(*walk).process, address) {
            return u32::from(rule);
        }
        if !find_mapping(walk, address) {
            (*walk).flags |= u32::from(SampleHeader::USER_NO_TABLE);
            return u32::from(Rule::NONE_INDEX);
        }
        let rule = unwind_rule((*walk).mapping.module, address.wrapping_sub((*walk).mapping.bias));
        if has_recent && let Some(found) = Recent::new(&(*walk).process, address, rule as u16) {
            copy::<Recent, { size_of::<Recent>() / 4 }>(&raw const found, recent);
        }
        rule
    }
}

/// The place of an address, masked in a way that the optimiser cannot drop.
#[inline(always)]
fn masked_place(address: u64) -> usize {
    let mut place = Recent::place(address);
    // SAFETY: register arithmetic only.
    unsafe { core::arch::asm!("{0} &= 1023", inout(reg) place) };
    place
}

const _: () = assert!(RECENT == 1024);

/// Makes the walk's mapping the one that holds an address; whether there is one.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile.
#[inline(always)]
pub unsafe fn find_mapping(walk: *mut Walk, address: u64) -> bool {
    // SAFETY: a live map value.
    unsafe {
        let mapping = &mut (*walk).mapping;
        if address.wrapping_sub(mapping.start) < mapping.end.wrapping_sub(mapping.start) {
            return true;
        }
        let index = unwind_mapping((*walk).process.first_mapping, (*walk).process.mappings, address);
        match UNWIND_MAPPINGS.get(index) {
            Some(found) if address >= found.start && address < found.end => {
                copy::<Mapping, { size_of::<Mapping>() / 4 }>(found, mapping);
                true
            }
            _ => false,
        }
    }
}

/// Whether the tables say anything of an address.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile.
#[inline(always)]
pub unsafe fn has_rule(walk: *mut Walk, address: u64) -> bool {
    // SAFETY: the caller's.
    unsafe {
        find_mapping(walk, address)
            && unwind_rule((*walk).mapping.module, address.wrapping_sub((*walk).mapping.bias))
                != u32::from(Rule::NONE_INDEX)
    }
}

// The two searches are global functions, scalars in and out: the verifier looks at each once, for all callers.

/// The index of the last of so many mappings that begins at or below an address; some other index where none does.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_mapping(first: u32, count: u32, address: u64) -> u32 {
    let start_of = |index: u32| {
        UNWIND_MAPPINGS
            .get(first.wrapping_add(index))
            .map(|other| other.start)
    };
    match last_at_or_below::<MAPPING_STEPS>(count, address, start_of) {
        Some(index) => first.wrapping_add(index),
        None => u32::MAX,
    }
}

/// The number of the rule that holds at an offset into a module's text.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_rule(module: u32, text_offset: u64) -> u32 {
    let none = u32::from(Rule::NONE_INDEX);
    let page = UNWIND_MODULES
        .get(module)
        .and_then(|module| module.page(text_offset));
    let Some(page) = page.and_then(|page| UNWIND_PAGES.get(page)) else {
        return none;
    };
    let Some(rows) = UNWIND_ROWS.get_value(page.chunk(), &0) else {
        return none;
    };
    let row = |index: u32| -> Row {
        let mut place = u64::from(page.place(index));
        // SAFETY: register arithmetic that the optimiser cannot drop; the result is within the chunk.
        unsafe {
            core::arch::asm!("{0} &= 65535", inout(reg) place);
            *rows.as_ptr().add(place as usize)
        }
    };
    let offset_of = |index: u32| Some(u64::from(row(index).offset));
    match last_at_or_below::<ROW_STEPS>(page.rows, text_offset & 0xffff, offset_of) {
        Some(index) => u32::from(row(index).rule),
        None => none,
    }
}

const _: () = assert!(CHUNK_ROWS == 1 << 16);
