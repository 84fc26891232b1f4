//! A tick of the sampler, or an event: the stack, and the spans that are open on the thread.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_ktime_get_ns,
    generated::{bpf_get_current_pid_tgid, bpf_ringbuf_output},
};
use profiler_common::{
    counter::Counter,
    event::{BLOCK_BYTES, BLOCK_LATENCY, BURST_NS, INTERVAL_NS, MEMORY_GROWTH, OpenRequest},
    limits::MAX_DEPTH,
    record::{SAMPLE, SampleHeader, SpanRef, WEIGHT, Weight},
    settings::Sampling,
    unwind::Recent,
};

use crate::{
    admission, atomic,
    emit::{self, Fill},
    limit,
    maps::{self, EVENTS, OPEN_REQUESTS, RING, SCRATCH, TARGETS, UNWIND_RECENT},
    open_spans::{self, Mode, Taken},
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

/// Takes a sample of the current thread at a tick of the clock, if its process is a target.
#[inline(always)]
pub fn take(ctx: *mut c_void) {
    // SAFETY: the helpers take nothing.
    let (ids, ts_ns) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_ns()) };
    let tgid = (ids >> 32) as u32;
    // SAFETY: the value is copied at once; a target that is removed meanwhile is sampled once more.
    let Some(sampling) = (unsafe { TARGETS.get(&tgid).copied() }) else {
        return;
    };
    if sampling.flags & Sampling::TICKS == 0 || !admission::is_admitted() {
        return;
    }
    emit::count(Counter::SampleAttempted);
    if Fill::now().should_yield() {
        emit::count(Counter::SampleYielded);
        return;
    }
    let sample = Sample {
        ids,
        ts_ns,
        event: 0,
        weight: sampling.weight_ns,
        about: About::NOTHING,
        interrupt_ns: sampling.interrupt_ns,
    };
    if !send(ctx, &sample, Place::Event(ctx)) {
        emit::count(Counter::SampleRingFull);
    }
}

/// Takes a sample of the current thread at the event of this number, which is of targets' threads alone.
#[inline(never)]
pub fn take_at_event(ctx: *mut c_void, number: u32) -> u32 {
    if !admission::is_admitted() {
        return 0;
    }
    let registers = Registers::new(ctx);
    let about = About {
        key: registers.sample_address(),
        space: 0,
    };
    let Some(sample) = Sample::now(number, registers.sample_period(), about) else {
        return 0;
    };
    finish(number, send(ctx, &sample, Place::Event(ctx)))
}

/// Whether the current thread's process is asked for samples at tracepoints of this kind.
#[inline(always)]
pub fn is_asked_for(flag: u64) -> bool {
    let tgid = task::process();
    // SAFETY: the value is copied at once.
    let flags = unsafe { TARGETS.get(&tgid).map(|sampling| sampling.flags) };
    flags.unwrap_or(0) & flag != 0 && admission::is_admitted()
}

/// Takes a sample of the current thread at a tracepoint that costs are told by.
#[inline(always)]
pub fn take_at_place(ctx: *mut c_void, number: u32, weight: u64, about: About) -> u32 {
    let Some(sample) = Sample::now(number, weight, about) else {
        return 0;
    };
    finish(number, send(ctx, &sample, Place::Tracepoint(number)))
}

/// The same where a request begins whose weight is not known yet: it is remembered until it ends.
#[inline(always)]
pub fn take_at_request(ctx: *mut c_void, request: u64) -> u32 {
    let about = About {
        key: request,
        space: 0,
    };
    let Some(sample) = Sample::now(BLOCK_LATENCY, 0, about) else {
        return 0;
    };
    let open = OpenRequest {
        ts_ns: sample.ts_ns,
        begin_ns: sample.ts_ns,
        tgid: (sample.ids >> 32) as u32,
        tid: sample.ids as u32,
    };
    // Before it is sent: it cannot end before this program does.
    if OPEN_REQUESTS.insert(request, &open, 0).is_err() {
        if let Some(slot) = EVENTS.get_ptr_mut(BLOCK_LATENCY) {
            // SAFETY: a live map value.
            unsafe { atomic::add(&raw mut (*slot).limited, 1) };
        }
        return 0;
    }
    let is_sent = send(ctx, &sample, Place::Tracepoint(BLOCK_LATENCY));
    if !is_sent {
        // There is nothing to be done where it was removed meanwhile.
        let _ = OPEN_REQUESTS.remove(request);
    } else if let Some(open) = OPEN_REQUESTS.get_ptr_mut(request) {
        // SAFETY: a live map value, which nobody else looks at before this program has ended.
        unsafe { (*open).begin_ns = bpf_ktime_get_ns() };
    }
    finish(BLOCK_LATENCY, is_sent)
}

/// A request has ended, whoever is on the CPU: tells its weight if it is remembered. Where there is no room for that, the
/// sample stays without, and is counted as such where it waits.
#[inline(always)]
pub fn end_request(request: u64) -> u32 {
    // SAFETY: the value is copied at once.
    let Some(open) = (unsafe { OPEN_REQUESTS.get(&request).copied() }) else {
        return 0;
    };
    // There is nothing to be done where it was removed meanwhile.
    let _ = OPEN_REQUESTS.remove(request);
    let record = Weight {
        kind: WEIGHT,
        event: BLOCK_LATENCY + 1,
        tgid: open.tgid,
        tid: open.tid,
        ts_ns: open.ts_ns,
        key: request,
        // SAFETY: the helper takes nothing.
        weight: unsafe { bpf_ktime_get_ns() }.wrapping_sub(open.begin_ns),
    };
    // SAFETY: the record is initialised, and as long as is said.
    unsafe {
        bpf_ringbuf_output(
            maps::handle(&RING),
            (&raw const record).cast_mut().cast(),
            size_of::<Weight>() as u64,
            emit::BPF_RB_NO_WAKEUP,
        )
    };
    0
}

/// What a sample was about.
#[derive(Clone, Copy)]
pub struct About {
    /// [`SampleHeader::key`].
    pub key: u64,
    /// [`SampleHeader::space`].
    pub space: u64,
}

impl About {
    /// Nothing in particular.
    pub const NOTHING: Self = Self { key: 0, space: 0 };
}

/// Counts a sample that cannot be taken, because too many are on their way.
#[inline(always)]
pub fn count_limited(number: u32) {
    if let Some(slot) = EVENTS.get_ptr_mut(number) {
        // SAFETY: a live map value.
        unsafe {
            atomic::add(&raw mut (*slot).attempted, 1);
            atomic::add(&raw mut (*slot).limited, 1);
        }
    }
}

/// Counts a sample that found no room.
#[inline(always)]
fn finish(number: u32, is_sent: bool) -> u32 {
    if !is_sent && let Some(slot) = EVENTS.get_ptr_mut(number) {
        // SAFETY: a live map value.
        unsafe { atomic::add(&raw mut (*slot).ring_full, 1) };
    }
    0
}

/// What a sample is, beside its stack and the thread's spans.
struct Sample {
    /// Process and thread.
    ids: u64,
    ts_ns: u64,
    /// [`SampleHeader::event`].
    event: u32,
    weight: u64,
    about: About,
    /// What was taken of the thread beside the program's own time.
    interrupt_ns: u64,
}

impl Sample {
    /// Of an event, if one may be taken now; those that may not are counted.
    #[inline(always)]
    fn now(number: u32, weight: u64, about: About) -> Option<Self> {
        // SAFETY: the helpers take nothing.
        let (ids, ts_ns) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_ns()) };
        let slot = EVENTS.get_ptr_mut(number)?;
        // SAFETY: a live map value.
        unsafe {
            atomic::add(&raw mut (*slot).attempted, 1);
            if !limit::takes_turn(&raw mut (*slot).next_ns, INTERVAL_NS, BURST_NS, ts_ns) {
                atomic::add(&raw mut (*slot).limited, 1);
                return None;
            }
            if Fill::now().should_yield() {
                atomic::add(&raw mut (*slot).yielded, 1);
                return None;
            }
        }
        Some(Self {
            ids,
            ts_ns,
            event: number.wrapping_add(1),
            weight,
            about,
            interrupt_ns: 0,
        })
    }
}

/// Where a sample is taken.
#[derive(Clone, Copy)]
enum Place {
    /// In a program of a perf event, with its context, whose registers say whether that is in the kernel.
    Event(*mut c_void),
    /// At a tracepoint, by the event's number.
    Tracepoint(u32),
}

impl Place {
    #[inline(always)]
    fn is_in_kernel(self) -> bool {
        match self {
            Self::Event(ctx) => !Registers::new(ctx).in_user_mode(),
            Self::Tracepoint(_) => true,
        }
    }

    /// Which working memory is its own: a program of a perf event may interrupt the others, and one kind of these the
    /// other.
    #[inline(always)]
    fn scratch(self) -> u32 {
        match self {
            Self::Event(_) => 0,
            Self::Tracepoint(BLOCK_BYTES) => 1,
            Self::Tracepoint(BLOCK_LATENCY) => 3,
            Self::Tracepoint(_) => 2,
        }
    }

    /// Rules that were found on this CPU a while ago; none at tracepoints, which are rare.
    #[inline(always)]
    fn recent(self) -> Option<*mut Recent> {
        match self {
            Self::Event(_) => UNWIND_RECENT.get_ptr_mut(0).map(|recent| recent.cast()),
            Self::Tracepoint(_) => Some(ptr::null_mut()),
        }
    }
}

/// Walks the current thread's stack and sends it as a sample, whose spans have been hit then; `false` where the ring buffer
/// is full.
#[inline(always)]
fn send(ctx: *mut c_void, sample: &Sample, place: Place) -> bool {
    let Some(scratch) = SCRATCH.get_ptr_mut(place.scratch()) else {
        return true;
    };
    let out = scratch.cast::<u8>();

    let state = task::state();
    let mode = if place.is_in_kernel() {
        Mode::Kernel
    } else {
        Mode::User
    };
    // SAFETY: a live map value, and this CPU's own.
    let depth = open_spans::live_depth(state, unsafe { &raw mut (*scratch).depth }, mode);
    if let Some(state) = state {
        // SAFETY: the scratch has room for as many behind the header.
        unsafe { open_spans::write(state, out.add(size_of::<SampleHeader>()).cast(), depth) };
    }
    let mut offset = size_of::<SampleHeader>() + depth as usize * size_of::<SpanRef>();

    // What grows does so in a system call, whose own frames say nothing.
    let in_call = sample.event == MEMORY_GROWTH + 1;
    let kernel = if !in_call && place.is_in_kernel() {
        // SAFETY: the offset is masked below OFFSETS, and a walk's room lies behind that.
        unsafe { stack::walk(ctx, out.add(mask(offset)), Part::Kernel) }.unwrap_or(0)
    } else {
        0
    };
    offset += kernel * 8;
    let tgid = (sample.ids >> 32) as u32;
    // SAFETY: as above; the scratch is this CPU's, and nothing interrupts the sampler.
    let user = unsafe {
        let out = out.add(mask(offset));
        match walk_by_tables(
            tgid,
            &raw mut (*scratch).walk,
            out,
            (in_call || kernel > 0, place),
        ) {
            Some(walked) => walked,
            None => walk_by_kernel(ctx, out),
        }
    };
    offset += user.frames * 8;

    let header = SampleHeader {
        kind: SAMPLE,
        event: sample.event,
        tgid,
        tid: sample.ids as u32,
        ts_ns: sample.ts_ns,
        weight: sample.weight,
        key: sample.about.key,
        space: sample.about.space,
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
        return false;
    }
    // Only a sample that is on its way may ask for the end of its spans.
    if let Some(state) = state {
        // SAFETY: the helper takes nothing.
        let ended_ns = unsafe { bpf_ktime_get_ns() };
        let taken = Taken::by_program(state, depth, [sample.ts_ns, ended_ns], sample.interrupt_ns);
        open_spans::count_hit(state, depth, taken);
    }
    true
}

/// The way by tables, where there are some.
///
/// # Safety
/// `out` has room for [`unwind::WALK_BYTES`], and `walk` is the scratch of this CPU's sampler.
#[inline(always)]
unsafe fn walk_by_tables(
    tgid: u32,
    walk: *mut Walk,
    out: *mut u8,
    (in_kernel, place): (bool, Place),
) -> Option<Walked> {
    let recent = place.recent()?;
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
