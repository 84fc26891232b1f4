//! Counting a duration in its probe's histogram.

use aya_ebpf::helpers::generated::{bpf_map_pop_elem, bpf_map_push_elem};
use profiler_common::{
    counter::Counter,
    layout::{PAGE_BUCKETS, bucket_of},
    limits::MAX_HISTOGRAM_PAGES,
    probe::{DIRECTORY, ProbeSlot},
};

use crate::{
    atomic, emit,
    maps::{self, FREE_PAGES, PAGES},
};

/// Counts a duration; a histogram page is allocated on its first hit.
#[inline(always)]
pub fn record(slot: *mut ProbeSlot, duration_ns: u64) {
    let bucket = bucket_of(duration_ns);
    let entry = (bucket / PAGE_BUCKETS) & (DIRECTORY - 1);
    // SAFETY: `slot` is a live map value and `entry` is masked to its directory.
    let cell = unsafe { (&raw mut (*slot).pages).cast::<u32>().add(entry) };
    // SAFETY: as above. A stale 0 is caught by the exchange in `allocate`.
    let mut page = unsafe { cell.read_volatile() };
    if page == 0 {
        // SAFETY: as above.
        page = unsafe { allocate(slot, entry as u64) };
    }
    let counts = PAGES.get_ptr_mut(page.wrapping_sub(1));
    // SAFETY: both pointers are live map values, and the bucket is masked to its page.
    unsafe {
        match counts {
            Some(counts) => atomic::add(counts.cast::<u64>().add(bucket & (PAGE_BUCKETS - 1)), 1),
            None => atomic::add(&raw mut (*slot).no_page, 1),
        }
    }
}

/// Finds a free page for a directory cell; 0 where the pool is exhausted.
#[inline(never)]
unsafe fn allocate(slot: *mut ProbeSlot, entry: u64) -> u32 {
    let mut entry = entry;
    // SAFETY: register arithmetic that the optimiser cannot drop; `slot` is the caller's live map value.
    let cell = unsafe {
        core::arch::asm!("{0} &= 127", inout(reg) entry);
        (&raw mut (*slot).pages).cast::<u32>().add(entry as usize)
    };
    let mut number = 0u32;
    // SAFETY: `number` is a u32, as the map's values are.
    let reused = unsafe { bpf_map_pop_elem(maps::handle(&FREE_PAGES), (&raw mut number).cast()) } == 0;
    if !reused {
        let fresh = emit::take_number(Counter::PagesUsed);
        if fresh >= u64::from(MAX_HISTOGRAM_PAGES) {
            return 0;
        }
        number = fresh as u32;
    }
    let page = number + 1;
    // SAFETY: `cell` lies in a live map value.
    let before = unsafe { atomic::compare_exchange(cell, 0, page) };
    if before == 0 {
        return page;
    }
    // Another CPU was faster: its page counts, ours goes back.
    // SAFETY: `number` is a u32, as the map's values are.
    unsafe { bpf_map_push_elem(maps::handle(&FREE_PAGES), (&raw const number).cast(), 0) };
    before
}

const _: () = assert!(DIRECTORY == 128);
