//! Who allocates a target's memory: at an allocator's functions it is kept, by the address of what they return, from where
//! they were called, until that is freed.
//!
//! The working memory is the thread's own: a uprobe program can be preempted.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_map_delete_elem, bpf_map_update_elem};
use profiler_common::{
    allocation::{ALLOCATION_FRAMES, Allocation, AllocationKey, AllocationSite, AllocatorCounts},
    counter::Counter,
};

use crate::{
    allowance::Allowance,
    atomic, emit, hit_stack,
    maps::{self, ALLOCATING, ALLOCATIONS, ALLOCATOR_COUNTS},
    plain::set,
    registers::Registers,
    task,
};

/// A thread's call of an allocator, until it returns.
#[repr(C)]
pub struct Allocating {
    /// What is asked for; 0 while there is no such call.
    size: u64,
    /// Where the address will be written to; 0 where it is returned.
    out: u64,
    /// What stacks may take of this thread.
    allowance: Allowance,
    made: Allocation,
}

/// Registers of parameters, and of what is returned, by the machine's numbers (System V ABI for x86-64).
const PARAMETERS: [u8; 4] = [7, 6, 2, 1];
const RETURNED: u8 = 0;

/// A parameter by its number, from 1; 0 for any other.
#[inline(always)]
fn parameter(registers: Registers, number: u8) -> u64 {
    match number {
        1 => registers.get(PARAMETERS[0]),
        2 => registers.get(PARAMETERS[1]),
        3 => registers.get(PARAMETERS[2]),
        4 => registers.get(PARAMETERS[3]),
        _ => 0,
    }
}

/// A function of the allocator is called.
#[inline(never)]
pub fn enter(ctx: *mut c_void, site: AllocationSite) {
    count(site);
    let registers = Registers::new(ctx);
    // Before it is: then it is another's at once.
    forget(site, parameter(registers, site.old()));
    if site.size() == 0 {
        return;
    }
    let size = parameter(registers, site.size());
    let times = if site.times() == 0 {
        1
    } else {
        parameter(registers, site.times())
    };
    let allocating = ALLOCATING.current_or_new();
    if allocating.is_null() {
        emit::count(Counter::AllocationMissed);
        return;
    }
    // SAFETY: a live map value of this thread.
    unsafe {
        set!((*allocating).size, size.wrapping_mul(times));
        set!((*allocating).out, parameter(registers, site.out()));
    }
}

/// It returns.
#[inline(never)]
pub fn exit(ctx: *mut c_void, site: AllocationSite) {
    let allocating = ALLOCATING.current();
    if allocating.is_null() {
        return;
    }
    // SAFETY: a live map value of this thread.
    let (size, out) = unsafe { ((*allocating).size, (*allocating).out) };
    // SAFETY: as above.
    unsafe { set!((*allocating).size, 0) };
    let returned = Registers::new(ctx).get(RETURNED);
    // What writes the address elsewhere returns an error's number.
    let address = match (out, returned) {
        (0, _) => returned,
        (_, 0) => task::read_user(out).unwrap_or(0),
        _ => 0,
    };
    // It may have been called when nobody looked yet.
    if size == 0 || address == 0 {
        return;
    }
    // SAFETY: the helper takes nothing; a live map value of this thread.
    let begun_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: as above.
    if !unsafe { Allowance::is_left(&raw const (*allocating).allowance, begun_ns) } {
        emit::count(Counter::AllocationSkipped);
        return forget(site, address);
    }
    if hit_stack::take(ctx) {
        keep(allocating, site, [address, size]);
    } else {
        emit::count(Counter::AllocationMissed);
        forget(site, address);
    }
    // SAFETY: as above.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: as above.
    unsafe { Allowance::charge(&raw mut (*allocating).allowance, begun_ns, now_ns) };
    count_stack(site, now_ns.wrapping_sub(begun_ns));
}

/// Counts what a stack took.
#[inline(never)]
fn count_stack(site: AllocationSite, took_ns: u64) {
    /// One that takes longer was preempted.
    const MOST_NS: u64 = 1_000_000;
    if let Some(counts) = counts_of(site) {
        let took_ns = if took_ns > MOST_NS { MOST_NS } else { took_ns };
        // SAFETY: a live map value.
        unsafe { atomic::add(&raw mut (*counts).stacks_ns, took_ns) };
    }
}

/// The counts of the watch that a site is of, while there is one.
#[inline(always)]
fn counts_of(site: AllocationSite) -> Option<*mut AllocatorCounts> {
    ALLOCATOR_COUNTS.get_ptr_mut(site.watch())
}

/// Counts a call.
#[inline(never)]
fn count(site: AllocationSite) {
    let Some(counts) = counts_of(site) else { return };
    // SAFETY: a live map value.
    unsafe {
        let counter = if site.size() == 0 {
            &raw mut (*counts).frees
        } else {
            &raw mut (*counts).allocations
        };
        atomic::add(counter, 1);
    }
}

/// Keeps where the allocator was called.
#[inline(never)]
fn keep(allocating: *mut Allocating, site: AllocationSite, [address, size]: [u64; 2]) {
    const BPF_ANY: u64 = 0;
    /// `-E2BIG`.
    const FULL: i64 = -7;
    let mut key = AllocationKey {
        watch: site.watch().into(),
        address,
    };
    // SAFETY: a live map value of this thread, with room for so many frames; the map's key and value are of these types.
    unsafe {
        let made = &raw mut (*allocating).made;
        set!((*made).size, size);
        let frames = hit_stack::copy((&raw mut (*made).stack).cast(), ALLOCATION_FRAMES as u32);
        set!((*made).frames, frames);
        let (map, key) = (maps::handle(&ALLOCATIONS), (&raw mut key).cast());
        match bpf_map_update_elem(map, key, made.cast(), BPF_ANY) {
            0 => return,
            FULL => emit::count(Counter::AllocationLimit),
            _ => emit::count(Counter::AllocationMissed),
        }
    }
    // It may have been freed by somebody who was not seen.
    forget(site, address);
}

/// Forgets what is freed.
#[inline(never)]
fn forget(site: AllocationSite, address: u64) {
    let mut key = AllocationKey {
        watch: site.watch().into(),
        address,
    };
    if address != 0 {
        // SAFETY: the map's key is of this type. What was allocated before anybody looked is not there.
        unsafe { bpf_map_delete_elem(maps::handle(&ALLOCATIONS), (&raw mut key).cast()) };
    }
}
