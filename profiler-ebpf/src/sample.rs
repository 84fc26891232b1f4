//! A tick of the sampler: the stack, and the spans that are open on the thread.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_get_smp_processor_id, bpf_ktime_get_ns,
    generated::{bpf_get_current_pid_tgid, bpf_ringbuf_output},
};
use profiler_common::{
    counter::Counter,
    limits::MAX_DEPTH,
    record::{SAMPLE, SampleHeader, SpanRef},
    settings::Sampling,
};

use crate::{
    emit::{self, Fill},
    maps::{self, RING, SCRATCH, TARGETS, UNWIND_RECENT},
    open_spans::{self, Mode},
    registers::Registers,
    stack::{self, Part},
    task,
    unwind::{self, Walk, Walked},
};

/// Where the variable parts of a record may begin, at most; a power of two, so that an offset can be masked.
const OFFSETS: usize = 8192;

const _: () =
    assert!(size_of::<SampleHeader>() + MAX_DEPTH * size_of::<SpanRef>() + stack::WALK_BYTES < OFFSETS);
const _: () = assert!(stack::WALK_BYTES <= unwind::WALK_BYTES);

/// Room for a record, and for the last walk behind the last offset; a power of two, so that a length can be masked.
const RECORD_BYTES: usize = 2 * OFFSETS;

/// The record as it is put together, and the state of the walk.
#[repr(C)]
pub struct Scratch {
    bytes: [u8; RECORD_BYTES],
    /// Spans that are not left behind. Here rather than on the stack, where the verifier would count along.
    depth: u32,
    walk: Walk,
}

/// Takes a sample of the current thread, if its process is a target.
#[inline(always)]
pub fn take(ctx: *mut c_void) {
    // SAFETY: the helpers take nothing.
    let (ids, ts_ns) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_ns()) };
    let tgid = (ids >> 32) as u32;
    // SAFETY: the value is copied at once; a target that is removed meanwhile is sampled once more.
    let Some(sampling) = (unsafe { TARGETS.get(&tgid).copied() }) else {
        return;
    };
    if sampling.flags & Sampling::TICKS == 0 {
        return;
    }
    emit::count(Counter::SampleAttempted);
    let fill = Fill::now();
    if fill.should_yield() {
        emit::count(Counter::SampleYielded);
        return;
    }
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        return;
    };
    let out = scratch.cast::<u8>();

    let state = task::state();
    let in_user_mode = Registers::new(ctx).in_user_mode();
    let mode = if in_user_mode { Mode::User } else { Mode::Kernel };
    // SAFETY: a live map value, and this CPU's own.
    let depth = open_spans::live_depth(state, unsafe { &raw mut (*scratch).depth }, mode);
    if let Some(state) = state {
        // SAFETY: the scratch has room for as many behind the header.
        unsafe { open_spans::write(state, out.add(size_of::<SampleHeader>()).cast(), depth) };
    }
    let mut offset = size_of::<SampleHeader>() + depth as usize * size_of::<SpanRef>();

    let kernel = if in_user_mode {
        0
    } else {
        // SAFETY: the offset is masked below OFFSETS, and a walk's room lies behind that.
        unsafe { stack::walk(ctx, out.add(mask(offset)), Part::Kernel) }.unwrap_or(0)
    };
    offset += kernel * 8;
    // SAFETY: as above; the scratch is this CPU's, and nothing interrupts the sampler.
    let user = unsafe {
        let out = out.add(mask(offset));
        match walk_by_tables(tgid, &raw mut (*scratch).walk, out, kernel > 0) {
            Some(walked) => walked,
            None => walk_by_kernel(ctx, out),
        }
    };
    offset += user.frames * 8;

    let header = SampleHeader {
        kind: SAMPLE,
        // SAFETY: the helper takes nothing.
        cpu: unsafe { bpf_get_smp_processor_id() },
        tgid,
        tid: ids as u32,
        ts_ns,
        weight_ns: sampling.weight_ns,
        spans: depth as u16,
        kernel_frames: kernel as u16,
        user_frames: user.frames as u16,
        flags: user.flags,
    };
    // SAFETY: the scratch begins with room for a header; its length is masked below OFFSETS.
    let failed = unsafe {
        ptr::write_unaligned(out.cast(), header);
        bpf_ringbuf_output(
            maps::handle(&RING),
            out.cast(),
            mask_length(offset) as u64,
            emit::BPF_RB_NO_WAKEUP,
        )
    };
    if failed != 0 {
        emit::count(Counter::SampleRingFull);
        return;
    }
    // Only a sample that is on its way may ask for the end of its spans.
    if let Some(state) = state {
        // SAFETY: the helper takes nothing.
        let program_ns = unsafe { bpf_ktime_get_ns() }.wrapping_sub(ts_ns);
        let sampling_ns = program_ns.wrapping_add(sampling.interrupt_ns);
        open_spans::count_hit(state, depth, sampling_ns);
    }
}

/// The way by tables, where there are some.
///
/// # Safety
/// `out` has room for [`unwind::WALK_BYTES`], and `walk` is the scratch of this CPU's sampler.
#[inline(always)]
unsafe fn walk_by_tables(tgid: u32, walk: *mut Walk, out: *mut u8, in_kernel: bool) -> Option<Walked> {
    let recent = UNWIND_RECENT.get_ptr_mut(0)?.cast();
    // SAFETY: the caller's.
    unsafe {
        unwind::start(tgid, walk, |walk| unwind::begin_at_interrupt(walk, in_kernel))?;
        unwind::run(walk, recent, out);
        Some(unwind::walked(walk))
    }
}

/// The way without tables: along frame pointers.
///
/// # Safety
/// `out` has room for [`stack::WALK_BYTES`].
#[inline(always)]
unsafe fn walk_by_kernel(ctx: *mut c_void, out: *mut u8) -> Walked {
    // SAFETY: the caller gives the room.
    let frames = unsafe { stack::walk(ctx, out, Part::User) };
    let flags = match frames {
        None => SampleHeader::USER_MISSING,
        Some(frames) if frames * 8 >= stack::WALK_BYTES => SampleHeader::USER_TRUNCATED,
        Some(_) => 0,
    };
    Walked {
        frames: frames.unwrap_or(0),
        flags: flags | SampleHeader::USER_BY_KERNEL,
    }
}

/// Masks an offset in a way that the optimiser cannot drop: older verifiers do not follow a range
/// check through the arithmetic, and the compiler removes a mask that a range check made redundant.
#[inline(always)]
fn mask(mut offset: usize) -> usize {
    // SAFETY: register arithmetic only.
    unsafe { core::arch::asm!("{0} &= 8191", inout(reg) offset) };
    offset
}

/// Masks a record's length, in the same way.
#[inline(always)]
fn mask_length(mut length: usize) -> usize {
    // SAFETY: register arithmetic only.
    unsafe { core::arch::asm!("{0} &= 16383", inout(reg) length) };
    length
}

const _: () = assert!(RECORD_BYTES == 16384 && OFFSETS + unwind::WALK_BYTES < RECORD_BYTES);
