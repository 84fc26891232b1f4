//! A line is reached: what is required of its values, how many may be recorded, and the record.
//!
//! The working memory is the thread's own: a uprobe program can be preempted by another thread's on the same CPU.
//!
//! What is `PAGES_IN` is of programs that may wait: a page that is not in memory is brought in, as it is for the thread itself.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_ktime_get_ns, bpf_probe_read_kernel,
    generated::{
        bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_task_btf, bpf_loop,
        bpf_probe_read_kernel as copy_kernel, bpf_probe_read_kernel_str as copy_kernel_text,
        bpf_probe_read_user as copy_user, bpf_probe_read_user_str as copy_user_text, bpf_ringbuf_output,
    },
};
use profiler_common::{
    condition::Condition,
    hit::{BURST_NS, HitHeader, HitSlot, MAX_HIT_BYTES, MAX_READ_PLANS, ValueHeader},
    limits::MAX_PROBES,
    probe::{Cookie, ProbeId, ProbeSlot},
    record::{HIT, SpanEnd},
    thread::OpenSpan,
    values::{
        MAX_BYTES, MAX_INSTRUCTIONS, MAX_VALUES, OUTPUT_BYTES, Outcome, ReadPlan, State, Test, Thread, step,
        thread,
    },
};

use crate::{
    atomic,
    emit::{BPF_RB_NO_WAKEUP, Fill},
    gate, hit_stack, limit,
    maps::{self, HITS, READ_PLANS, READINGS, RING},
    memory, place,
    plain::set,
    registers::{BY_DWARF, Registers},
    span, task,
};

/// Place of an address within its page.
const PAGE_MASK: u32 = 0xfff;

/// Registers by their DWARF numbers, the instruction pointer last; rounded up to a power of two.
const REGISTERS: usize = 32;

/// Where a value may begin in a record, at most; a power of two, so that an offset can be masked.
const OFFSETS: usize = 4096;

/// Room for a record: what begins at the last offset fits. From Linux 7.0 task storage has no room for more than 8 KiB.
const RECORD_BYTES: usize = OFFSETS + 512;

/// Pages that are brought in for the values of one hit, and for what is required of it.
const MAX_PAGES_IN: usize = 16;

const _: () = assert!(size_of::<Reading>() <= 7 * 1024);

const _: () = assert!(MAX_HIT_BYTES <= RECORD_BYTES);
const _: () = assert!(size_of::<ValueHeader>() + MAX_BYTES <= OFFSETS);

/// The working memory of a thread at a site.
#[repr(C)]
pub struct Reading {
    /// Where it is a CPU's: whether a program is at work on it, see [`crate::place::begin`].
    pub taken: u32,
    /// The plan at hand, and the one behind the last.
    plan: u32,
    end: u32,
    /// Values are recorded, and not required to be something.
    recording: u32,
    /// A required value is not what it has to be.
    rejected: u32,
    /// Bytes of the record that are written.
    length: u32,
    /// Values in it.
    values: u32,
    /// [`HitHeader::STACK`] where the thread's stack was taken, else 0.
    has_stack: u32,
    /// Bytes of the record at a place of the kernel, which register 0 leads to; 0 elsewhere.
    record_bytes: u32,
    /// Pages that were brought in for the values, and the address that the last one was for.
    paged_in: u32,
    last_fault: u64,
    /// Pages brought in for it.
    tries: u32,
    thread_pointer: u64,
    registers: [u64; REGISTERS],
    state: State,
    record: [u8; RECORD_BYTES],
}

/// Counts a hit, and records it if it is to be recorded.
#[inline(always)]
pub fn take<const PAGES_IN: bool>(ctx: *mut c_void, cookie: Cookie) {
    let registers = Registers::new(ctx);
    let instruction_pointer = registers.instruction_pointer();
    let Some(probe) = span::slot_of(cookie.probe()) else {
        return;
    };
    let Some(slot) = HITS.get_ptr_mut(cookie.probe().index() & (MAX_PROBES - 1)) else {
        return;
    };
    // What the hit is inside of: null where its scope has no step before it.
    let mut parent = ptr::null_mut();
    // SAFETY: `probe` and `slot` are live map values, and so is `parent` if it is not null.
    unsafe {
        if (*slot).id != cookie.probe() || !goes_this_way(slot, registers) {
            return;
        }
        if (*probe).requires != 0 {
            parent = look_inside(probe, registers.stack_pointer());
            if parent.is_null() {
                atomic::add(&raw mut (*probe).outside, 1);
                return;
            }
        }
        let is_here = (instruction_pointer as u32 ^ (*slot).page_offset) & PAGE_MASK == 0;
        if is_here && (*slot).test.of != Test::NONE && fails_test(slot, registers) {
            atomic::add(&raw mut (*slot).refused, 1);
            return;
        }
        atomic::add(&raw mut (*probe).entries, 1);
        let records = (*slot).flags & HitSlot::RECORD != 0;
        let takes = (*slot).values > 0 || (*slot).flags & HitSlot::STACK != 0;
        let reads = (*slot).required > 0 || records && takes;
        if reads && !is_here {
            atomic::add(&raw mut (*slot).disturbed, 1);
            return;
        }
        if (*slot).required > 0 {
            look::<PAGES_IN>(ctx, slot, probe, parent, cookie);
            return;
        }
        open(probe, parent);
        // Nothing of the thread is taken down for a hit that is beyond the limit.
        if records && may_record(slot) {
            record::<PAGES_IN>(ctx, slot, probe, parent, cookie);
        }
    }
}

/// Whether the test of a hit's values rejects it. What it cannot decide, the plans do. A function of its own for its share
/// of the stack.
#[inline(never)]
unsafe fn fails_test(slot: *mut HitSlot, registers: Registers) -> bool {
    // SAFETY: a live map value.
    unsafe {
        let test = &(*slot).test;
        let mut word = registers.by_dwarf(test.register).wrapping_add(test.offset);
        if test.of == Test::MEMORY {
            match task::read_user_bytes(word, test.size) {
                Some(read) => word = read,
                None => return false,
            }
        }
        !test.holds(word)
    }
}

/// Records a hit that is to be recorded. A function of its own for its share of the stack.
#[inline(never)]
unsafe fn record<const PAGES_IN: bool>(
    ctx: *mut c_void,
    slot: *mut HitSlot,
    probe: *mut ProbeSlot,
    parent: *mut OpenSpan,
    cookie: Cookie,
) {
    // SAFETY: live map values; `parent` may be null.
    unsafe {
        let reading = reading();
        if reading.is_null() {
            atomic::add(&raw mut (*slot).no_state, 1);
            return;
        }
        begin(reading, Registers::new(ctx));
        if take_stack(ctx, reading, slot) {
            write::<PAGES_IN>(reading, slot, probe, parent, cookie);
        }
    }
}

/// Decides on values, and records the hit if it is to be recorded. A function of its own for its share of the stack.
#[inline(never)]
unsafe fn look<const PAGES_IN: bool>(
    ctx: *mut c_void,
    slot: *mut HitSlot,
    probe: *mut ProbeSlot,
    parent: *mut OpenSpan,
    cookie: Cookie,
) {
    // SAFETY: live map values; `parent` may be null.
    unsafe {
        let reading = reading();
        if reading.is_null() {
            atomic::add(&raw mut (*slot).no_state, 1);
            return;
        }
        begin(reading, Registers::new(ctx));
        if !passes::<PAGES_IN>(reading, slot) {
            return;
        }
        open(probe, parent);
        if (*slot).flags & HitSlot::RECORD != 0 && may_record(slot) && take_stack(ctx, reading, slot) {
            write::<PAGES_IN>(reading, slot, probe, parent, cookie);
        }
    }
}

/// Whether all that is required of values holds; if not, that is counted.
///
/// # Safety
/// Live map values, `reading` at the place.
#[inline(always)]
pub unsafe fn passes<const PAGES_IN: bool>(reading: *mut Reading, slot: *mut HitSlot) -> bool {
    // SAFETY: the caller's.
    unsafe {
        if (*slot).required == 0 {
            return true;
        }
        let end = (*slot).first_plan.wrapping_add((*slot).required);
        read::<PAGES_IN>(reading, (*slot).first_plan, end, false);
        if (*reading).rejected == 0 {
            return true;
        }
        atomic::add(&raw mut (*slot).rejected, 1);
        false
    }
}

/// Takes the thread's stack if it is to be recorded. Whether the hit may be recorded; if not, it is counted why.
#[inline(always)]
unsafe fn take_stack(ctx: *mut c_void, reading: *mut Reading, slot: *mut HitSlot) -> bool {
    // SAFETY: live map values.
    unsafe {
        set!((*reading).has_stack, 0);
        if (*slot).flags & HitSlot::STACK == 0 {
            return true;
        }
        if !hit_stack::take(ctx) {
            atomic::add(&raw mut (*slot).no_state, 1);
            return false;
        }
        set!((*reading).has_stack, HitHeader::STACK);
        true
    }
}

/// Whether a hit may be recorded now; if not, it is counted why.
#[inline(always)]
pub unsafe fn may_record(slot: *mut HitSlot) -> bool {
    // SAFETY: a live map value.
    unsafe {
        if !is_within_limit(slot) {
            atomic::add(&raw mut (*slot).limited, 1);
            return false;
        }
        if Fill::now().should_yield() {
            atomic::add(&raw mut (*slot).ring_full, 1);
            return false;
        }
        true
    }
}

/// Records a hit.
///
/// # Safety
/// Live map values, `reading` at the place; `parent` may be null.
#[inline(never)]
pub unsafe fn write<const PAGES_IN: bool>(
    reading: *mut Reading,
    slot: *mut HitSlot,
    probe: *mut ProbeSlot,
    parent: *mut OpenSpan,
    cookie: Cookie,
) {
    // SAFETY: live map values; `parent` may be null.
    unsafe {
        let header = (&raw mut (*reading).record).cast::<HitHeader>();
        set!((*header).flags, (*reading).has_stack);
        set!((*header).parent, 0);
        if !parent.is_null() {
            set!((*header).parent, u64::from((*parent).sequence));
            if (*probe).flags & ProbeSlot::JOINED != 0 {
                if !gate::join(probe, parent) {
                    return;
                }
                set!((*header).flags, (*reading).has_stack | HitHeader::JOINED);
            }
        }
        if (*slot).values > 0 {
            let first = (*slot).first_plan.wrapping_add((*slot).required);
            read::<PAGES_IN>(reading, first, first.wrapping_add((*slot).values), true);
        }
        emit(reading, slot, cookie);
    }
}

/// Opens a span if values are as is asked, and records what is to be known of it.
#[inline(always)]
pub fn enter<const PAGES_IN: bool>(ctx: *mut c_void, cookie: Cookie) {
    let registers = Registers::new(ctx);
    let Some(probe) = span::slot_of(cookie.probe()) else {
        return;
    };
    let Some(slot) = HITS.get_ptr_mut(cookie.probe().index() & (MAX_PROBES - 1)) else {
        return;
    };
    // SAFETY: `probe` and `slot` are live map values.
    unsafe {
        if (*slot).id != cookie.probe() || span::goes_on(cookie, registers.stack_pointer()) {
            return;
        }
        if (*probe).requires != 0 && look_inside(probe, registers.stack_pointer()).is_null() {
            atomic::add(&raw mut (*probe).outside, 1);
            return;
        }
        if (registers.instruction_pointer() as u32 ^ (*slot).page_offset) & PAGE_MASK != 0 {
            atomic::add(&raw mut (*slot).disturbed, 1);
            return;
        }
        if (*slot).test.of != Test::NONE && fails_test(slot, registers) {
            atomic::add(&raw mut (*slot).rejected, 1);
            return;
        }
        if (*slot).required > 0 && !is_as_asked::<PAGES_IN>(ctx, slot) {
            return;
        }
        // Before the span opens: the time that it takes is not the call's.
        let is_recorded = (*slot).flags & HitSlot::RECORD != 0 && may_record(slot);
        let is_taken = is_recorded && take_entry::<PAGES_IN>(ctx, slot);
        open_span(ctx, cookie);
        if is_recorded {
            send_entry(ctx, slot, cookie, is_taken);
        }
    }
}

/// Opens a span. A function of its own for its share of the stack.
#[inline(never)]
fn open_span(ctx: *mut c_void, cookie: Cookie) {
    let registers = Registers::new(ctx);
    let (stack_pointer, address) = (registers.stack_pointer(), registers.instruction_pointer());
    span::enter(ptr::null_mut(), cookie, stack_pointer, address);
}

/// Whether all that is required of values holds.
#[inline(never)]
unsafe fn is_as_asked<const PAGES_IN: bool>(ctx: *mut c_void, slot: *mut HitSlot) -> bool {
    // SAFETY: live map values.
    unsafe {
        let reading = reading();
        if reading.is_null() {
            atomic::add(&raw mut (*slot).no_state, 1);
            return false;
        }
        begin(reading, Registers::new(ctx));
        passes::<PAGES_IN>(reading, slot)
    }
}

/// Reads the values that are recorded of a span's beginning.
///
/// # Safety
/// Live map values, `reading` at the place.
#[inline(always)]
pub unsafe fn read_beginning<const PAGES_IN: bool>(reading: *mut Reading, slot: *mut HitSlot) {
    // SAFETY: the caller's.
    unsafe {
        if (*slot).values > 0 {
            let first = (*slot).first_plan.wrapping_add((*slot).required);
            read::<PAGES_IN>(reading, first, first.wrapping_add((*slot).values), true);
        }
    }
}

/// Hands over what was read of a span's beginning. `sequence` is the span's.
///
/// # Safety
/// Live map values, `reading` after [`read_beginning`].
#[inline(always)]
pub unsafe fn send_beginning(reading: *mut Reading, slot: *mut HitSlot, cookie: Cookie, sequence: u32) {
    // SAFETY: the caller's.
    unsafe {
        let header = (&raw mut (*reading).record).cast::<HitHeader>();
        set!((*header).flags, (*reading).has_stack | HitHeader::ENTRY);
        set!((*header).parent, u64::from(sequence));
        emit(reading, slot, cookie);
    }
}

/// Takes down the values and the stack of a call that is about to begin; if it cannot, it is counted why. A function of its own for
/// its share of the stack.
#[inline(never)]
unsafe fn take_entry<const PAGES_IN: bool>(ctx: *mut c_void, slot: *mut HitSlot) -> bool {
    // SAFETY: live map values.
    unsafe {
        let reading = reading();
        if reading.is_null() {
            atomic::add(&raw mut (*slot).no_state, 1);
            return false;
        }
        begin(reading, Registers::new(ctx));
        if !take_stack(ctx, reading, slot) {
            return false;
        }
        read_beginning::<PAGES_IN>(reading, slot);
        true
    }
}

/// Asks for the end of the span that has just been opened, and hands over what was taken down of it, if it was. A function of its own
/// for its share of the stack.
#[inline(never)]
unsafe fn send_entry(ctx: *mut c_void, slot: *mut HitSlot, cookie: Cookie, is_taken: bool) {
    // SAFETY: live map values.
    unsafe {
        let sequence = span::ask_for_end(cookie.probe(), Registers::new(ctx).stack_pointer(), (*slot).opens);
        let reading = reading();
        if sequence != 0 && is_taken && !reading.is_null() {
            send_beginning(reading, slot, cookie, sequence);
        }
    }
}

/// Records the values that are found by what a span returns, which is about to end. Where they find no room, the end says it.
///
/// # Safety
/// `ctx` is the program's own, its registers those that the span returns with; `span` is a live map value.
#[inline(never)]
pub unsafe fn follow(ctx: *mut c_void, span: *const OpenSpan) {
    // SAFETY: the caller's.
    let (probe, sequence) = unsafe { ((*span).probe, (*span).sequence) };
    let Some(slot) = HITS.get_ptr_mut(probe.index() & (MAX_PROBES - 1)) else {
        return;
    };
    let reading = reading();
    // SAFETY: live map values.
    unsafe {
        if reading.is_null() || (*slot).id != probe || Fill::now().should_yield() {
            return;
        }
        begin(reading, Registers::new(ctx));
        set!((*reading).has_stack, 0);
        let header = (&raw mut (*reading).record).cast::<HitHeader>();
        set!((*header).flags, HitHeader::END);
        set!((*header).parent, u64::from(sequence));
        let before = (*slot).required.wrapping_add((*slot).values);
        let first = (*slot).first_plan.wrapping_add(before);
        read::<false>(reading, first, first.wrapping_add((*slot).followed), true);
        write_header(reading, probe, bpf_ktime_get_ns());
        send(reading);
    }
}

/// What keeps a span that is about to end from counting, because of what it returns: flags of its end, 0 where it does count.
///
/// # Safety
/// `ctx` is the program's own, its registers those that the span returns with, or null where they do not hold that; `span` is
/// a live map value.
#[inline(never)]
pub unsafe fn decide(ctx: *mut c_void, span: *const OpenSpan) -> u32 {
    const UNDECIDED: u32 = SpanEnd::REFUSED | SpanEnd::UNDECIDED;
    // SAFETY: the caller's.
    let (probe, is_of_kernel) = unsafe { ((*span).probe, span::is_of_kernel(span)) };
    let Some(slot) = HITS.get_ptr_mut(probe.index() & (MAX_PROBES - 1)) else {
        return UNDECIDED;
    };
    // SAFETY: live map values.
    unsafe {
        if ctx.is_null() || (*slot).id != probe {
            return UNDECIDED;
        }
        // A function of the kernel may return in the middle of a program of the thread.
        let reading = if is_of_kernel {
            place::take_reading()
        } else {
            reading()
        };
        if reading.is_null() {
            return UNDECIDED;
        }
        begin(reading, Registers::new(ctx));
        let before = (*slot).required.wrapping_add((*slot).values);
        let first = (*slot)
            .first_plan
            .wrapping_add(before)
            .wrapping_add((*slot).followed);
        read::<false>(reading, first, first.wrapping_add((*slot).decided), false);
        let refused = (*reading).rejected != 0;
        if is_of_kernel {
            place::end(reading);
        }
        if refused { SpanEnd::REFUSED } else { 0 }
    }
}

/// Whether a conditional jump at the site is about to go the way that is looked for.
#[inline(always)]
unsafe fn goes_this_way(slot: *mut HitSlot, registers: Registers) -> bool {
    // SAFETY: a live map value.
    let branch = unsafe { (*slot).branch };
    branch == 0 || Condition::from_number((branch - 1) as u8).holds(registers.flags())
}

/// Finds the span that the hit is inside of.
#[inline(never)]
pub unsafe fn look_inside(probe: *mut ProbeSlot, stack_pointer: u64) -> *mut OpenSpan {
    let Some(thread) = task::state() else {
        return ptr::null_mut();
    };
    // SAFETY: live map values.
    unsafe {
        span::leave(thread, stack_pointer);
        gate::parent(thread, probe)
    }
}

/// Opens the gate of the step that follows.
#[inline(always)]
pub unsafe fn open(probe: *mut ProbeSlot, parent: *mut OpenSpan) {
    // SAFETY: live map values.
    unsafe {
        let gate = (*probe).opens;
        if parent.is_null() || gate == 0 || (*parent).own_gates & gate != 0 {
            return;
        }
        if let Some(thread) = task::state() {
            gate::reach(thread, parent, gate);
        }
    }
}

/// The thread's working memory; null where it cannot be had.
#[inline(always)]
pub fn reading() -> *mut Reading {
    READINGS.current_or_new()
}

/// Takes down where the thread is.
#[inline(always)]
unsafe fn begin(reading: *mut Reading, registers: Registers) {
    const INSTRUCTION_POINTER: usize = 16;
    // SAFETY: a live map value of this thread.
    unsafe {
        macro_rules! keep {
            ($($number:literal)+) => {
                $(set!((*reading).registers[$number], registers.get(BY_DWARF[$number]));)+
            };
        }
        keep!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        set!(
            (*reading).registers[INSTRUCTION_POINTER],
            registers.instruction_pointer()
        );
        let fs_base = bpf_get_current_task_btf() as u64 + u64::from(maps::fs_base_offset());
        set!(
            (*reading).thread_pointer,
            bpf_probe_read_kernel(fs_base as *const u64).unwrap_or(0)
        );
        identify(reading);
        set!((*reading).record_bytes, 0);
        set!((*reading).length, size_of::<HitHeader>() as u32);
        set!((*reading).values, 0);
        set!((*reading).paged_in, 0);
        set!((*reading).last_fault, u64::MAX);
        set!((*reading).tries, 0);
    }
}

/// Takes down who the thread is. A function of its own: the kernel may use its stack for the helpers.
#[inline(never)]
unsafe fn identify(reading: *mut Reading) -> u32 {
    const NAME: usize = thread::NAME[0] as usize;
    // SAFETY: a live map value of this thread; the name's two words are next to each other.
    unsafe {
        // Of some kernels, what is behind the name's NUL is left as it is.
        set!((*reading).registers[NAME], 0);
        set!((*reading).registers[NAME + 1], 0);
        let name = (&raw mut (*reading).registers).cast::<u64>().add(NAME);
        bpf_get_current_comm(name.cast(), thread::NAME_BYTES as u32);
        let number = u64::from(bpf_get_current_pid_tgid() as u32);
        set!((*reading).registers[thread::NUMBER as usize], number);
    }
    0
}

const _: () = assert!(thread::NAME[1] == thread::NAME[0] + 1 && (thread::NAME[1] as usize) < REGISTERS);

/// As [`begin`], at a place of the kernel: register 0 is where its record lies, of so many bytes at most.
///
/// # Safety
/// A live map value, and nobody else's meanwhile.
#[inline(always)]
pub unsafe fn begin_in_kernel(reading: *mut Reading, record: *mut c_void, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        set!((*reading).registers[0], record as u64);
        set!((*reading).record_bytes, bytes);
        set!((*reading).has_stack, 0);
        set!((*reading).length, size_of::<HitHeader>() as u32);
        set!((*reading).values, 0);
    }
}

/// Runs the plans from `first` up to `end`. A function of its own: the kernel may use 24 bytes of its stack for the loop.
#[inline(never)]
unsafe fn read<const PAGES_IN: bool>(reading: *mut Reading, first: u32, end: u32, recording: bool) {
    // SAFETY: a live map value of this thread; the callback takes a `Cursor`, which outlives the call.
    unsafe {
        set!((*reading).plan, first);
        set!((*reading).end, end);
        set!((*reading).recording, u32::from(recording));
        set!((*reading).rejected, 0);
        restart(reading);
        let mut cursor = Cursor { reading };
        let repeated = if PAGES_IN { MAX_PAGES_IN } else { 0 };
        bpf_loop(
            (MAX_VALUES + repeated) as u32 * MAX_INSTRUCTIONS as u32,
            read_one::<PAGES_IN> as *mut c_void,
            (&raw mut cursor).cast(),
            0,
        );
    }
}

#[inline(always)]
unsafe fn restart(reading: *mut Reading) {
    // SAFETY: a live map value of this thread.
    unsafe {
        let state = &raw mut (*reading).state;
        set!((*state).outcome, Outcome::Running as u8);
        set!((*state).next, 0);
        set!((*state).depth, 0);
        set!((*state).length, 0);
        set!((*state).fault, 0);
    }
}

/// What the loop over the instructions carries along: the state is in a map, so that the verifier need not follow it.
#[repr(C)]
struct Cursor {
    reading: *mut Reading,
}

/// Does one instruction, and what comes after a plan's last.
unsafe extern "C" fn read_one<const PAGES_IN: bool>(_index: u32, cursor: *mut c_void) -> i64 {
    // SAFETY: `read` passes a `Cursor` of a live map value of this thread.
    unsafe {
        let reading = (*cursor.cast::<Cursor>()).reading;
        if (*reading).plan >= (*reading).end {
            return 1;
        }
        let outcome = read_instruction(reading);
        if outcome == Outcome::Running as u32 {
            return 0;
        }
        if PAGES_IN && misses_memory(reading, outcome) && page_in(reading) {
            restart(reading);
            return 0;
        }
        if (*reading).recording == 0 {
            // What cannot be compared is not what it has to be.
            if outcome != Outcome::Ok as u32 {
                set!((*reading).rejected, 1);
                return 1;
            }
        } else {
            append(reading, outcome);
        }
        set!((*reading).plan, (*reading).plan.wrapping_add(1));
        restart(reading);
    }
    0
}

/// Whether memory could not be read that the value is in, or text that belongs to it.
#[inline(always)]
unsafe fn misses_memory(reading: *mut Reading, outcome: u32) -> bool {
    // SAFETY: a live map value of this thread.
    let fault = unsafe { (*reading).state.fault };
    outcome == Outcome::Unreadable as u32 || outcome == Outcome::Ok as u32 && fault != 0
}

/// Has the kernel bring in the page that could not be read, which the thread waits for; whether it is worth another try.
#[inline(always)]
unsafe fn page_in(reading: *mut Reading) -> bool {
    // SAFETY: a live map value of this thread.
    unsafe {
        let fault = (*reading).state.fault;
        // What begins in a page that is there goes on in the next one.
        let tries = if fault == (*reading).last_fault {
            (*reading).tries.wrapping_add(1)
        } else {
            0
        };
        if tries > 1 || (*reading).paged_in as usize >= MAX_PAGES_IN {
            return false;
        }
        set!((*reading).last_fault, fault);
        set!((*reading).tries, tries);
        let page = u64::from(PAGE_MASK) + 1;
        let is_there = memory::bring_in(fault.wrapping_add(u64::from(tries) * page) & !u64::from(PAGE_MASK));
        set!(
            (*reading).paged_in,
            (*reading).paged_in.wrapping_add(u32::from(is_there))
        );
        is_there
    }
}

/// Does the next instruction of the plan at hand; an [`Outcome`]. A global function: the verifier looks at it once.
///
/// # Safety
/// `reading` is null or valid, and nobody else's meanwhile.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn read_instruction(reading: *mut Reading) -> u32 {
    // SAFETY: the caller's.
    let Some(reading) = (unsafe { reading.as_mut() }) else {
        return Outcome::Invalid as u32;
    };
    let Some(plan) = READ_PLANS.get_ptr(reading.plan & (MAX_READ_PLANS - 1)) else {
        return Outcome::Invalid as u32;
    };
    let next = reading.state.next;
    if next as usize >= MAX_INSTRUCTIONS {
        // All instructions were done, and none of them was the end.
        return Outcome::Ok as u32;
    }
    let mut index = u64::from(next);
    // SAFETY: register arithmetic that the optimiser cannot drop; the result is within the plan.
    let instruction = unsafe {
        core::arch::asm!("{0} &= 31", inout(reg) index);
        &*(&raw const (*plan.cast::<ReadPlan>()).instructions)
            .cast::<profiler_common::values::Instruction>()
            .add(index as usize)
    };
    let mut thread = Probed {
        registers: &raw const reading.registers,
        thread_pointer: reading.thread_pointer,
        record: reading.registers[0],
        record_bytes: reading.record_bytes,
    };
    if step(instruction, &mut reading.state, &mut thread) {
        Outcome::Running as u32
    } else {
        u32::from(reading.state.outcome)
    }
}

const _: () = assert!(MAX_INSTRUCTIONS == 32);

/// The thread whose values are read.
struct Probed {
    registers: *const [u64; REGISTERS],
    thread_pointer: u64,
    record: u64,
    record_bytes: u32,
}

impl Probed {
    /// Whether an address is in the record of a place of the kernel, behind what that begins with. Nothing else of the
    /// kernel is ever read: the program chooses what its pointers are, also those that it hands over.
    #[inline(always)]
    fn is_in_record(&self, address: u64) -> bool {
        const IN_COMMON: u64 = 8;
        let offset = address.wrapping_sub(self.record);
        offset >= IN_COMMON && offset < u64::from(self.record_bytes)
    }
}

/// A length as the verifier believes it: at most [`MAX_BYTES`].
#[inline(always)]
fn bounded(length: u32) -> u32 {
    let mut length = u64::from(length);
    // SAFETY: register arithmetic only. The optimiser knows the bound and would drop a comparison.
    unsafe {
        core::arch::asm!("if {0} <= 256 goto +1", "{0} = 256", inout(reg) length);
    }
    length as u32
}

/// The place in the output where something is copied to, as the verifier believes it.
#[inline(always)]
fn place(output: &mut [u8; OUTPUT_BYTES], at: u32) -> *mut c_void {
    let mut at = u64::from(at);
    // SAFETY: register arithmetic that the optimiser cannot drop; what begins there fits into the output.
    unsafe {
        core::arch::asm!("{0} &= 255", inout(reg) at);
        output.as_mut_ptr().add(at as usize).cast()
    }
}

const _: () = assert!(MAX_BYTES == 256 && OUTPUT_BYTES == 512);

impl Thread for Probed {
    #[inline(always)]
    fn register(&mut self, number: u8) -> u64 {
        let mut index = u64::from(number);
        // SAFETY: as in `place`.
        unsafe {
            core::arch::asm!("{0} &= 31", inout(reg) index);
            self.registers.cast::<u64>().add(index as usize).read()
        }
    }

    #[inline(always)]
    fn thread_pointer(&mut self) -> u64 {
        self.thread_pointer
    }

    #[inline(always)]
    fn word(&mut self, address: u64, size: u8) -> Option<u64> {
        if self.is_in_record(address) {
            task::read_kernel_bytes(address, size)
        } else {
            task::read_user_bytes(address, size)
        }
    }

    #[inline(always)]
    fn copy(&mut self, address: u64, output: &mut [u8; OUTPUT_BYTES], at: u32, length: u32) -> bool {
        let (to, length, from) = (place(output, at), bounded(length), address as *const c_void);
        // SAFETY: place and length are bounded to the output; the helpers check the address.
        unsafe {
            if self.is_in_record(address) {
                copy_kernel(to, length, from) == 0
            } else {
                copy_user(to, length, from) == 0
            }
        }
    }

    #[inline(always)]
    fn copy_string(
        &mut self,
        address: u64,
        output: &mut [u8; OUTPUT_BYTES],
        at: u32,
        length: u32,
    ) -> Option<u32> {
        let (to, length, from) = (place(output, at), bounded(length), address as *const c_void);
        // SAFETY: as for `copy`.
        let read = unsafe {
            if self.is_in_record(address) {
                copy_kernel_text(to, length, from)
            } else {
                copy_user_text(to, length, from)
            }
        };
        if read < 0 { None } else { Some(read as u32) }
    }
}

/// Appends a value to the record. One that has no room left is not appended, nor is what follows.
#[inline(never)]
unsafe fn append(reading: *mut Reading, outcome: u32) {
    // SAFETY: a live map value of this thread; offset and length are masked to the record.
    unsafe {
        if (*reading).length as usize >= OFFSETS {
            return;
        }
        let length = if outcome == Outcome::Ok as u32 {
            (*reading).state.length
        } else {
            0
        };
        let mut offset = u64::from((*reading).length);
        core::arch::asm!("{0} &= 4088", inout(reg) offset);
        let at = (&raw mut (*reading).record).cast::<u8>().add(offset as usize);
        let header = at.cast::<ValueHeader>();
        set!((*header).outcome, outcome);
        set!((*header).length, length);
        set!((*header).fault, (*reading).state.fault);
        let bytes = at.add(size_of::<ValueHeader>());
        copy_kernel(
            bytes.cast(),
            bounded(length),
            (&raw const (*reading).state.output).cast(),
        );
        let padded = length.wrapping_add(7) & !7;
        let end = (offset as u32).wrapping_add(size_of::<ValueHeader>() as u32);
        set!((*reading).length, end.wrapping_add(padded));
        set!((*reading).values, (*reading).values.wrapping_add(1));
    }
}

const _: () = assert!(OFFSETS == 4096);

/// Whether one more hit may be recorded now, which then counts against the limit.
#[inline(always)]
unsafe fn is_within_limit(slot: *mut HitSlot) -> bool {
    // SAFETY: a live map value; the helper takes nothing.
    unsafe {
        let interval_ns = (*slot).interval_ns;
        interval_ns == 0
            || limit::takes_turn(
                &raw mut (*slot).next_ns,
                interval_ns,
                BURST_NS,
                bpf_ktime_get_ns(),
            )
    }
}

/// Writes the header, and hands the record over.
#[inline(never)]
pub unsafe fn emit(reading: *mut Reading, slot: *mut HitSlot, cookie: Cookie) {
    // SAFETY: live map values; the length is masked to the record.
    unsafe {
        let ts_ns = bpf_ktime_get_ns();
        write_header(reading, cookie.probe(), ts_ns);
        if (*reading).has_stack != 0 && !hit_stack::send(ts_ns) {
            atomic::add(&raw mut (*slot).ring_full, 1);
            return;
        }
        if !send(reading) {
            atomic::add(&raw mut (*slot).ring_full, 1);
        }
    }
}

/// Writes of the header what all records have.
#[inline(always)]
unsafe fn write_header(reading: *mut Reading, probe: ProbeId, ts_ns: u64) {
    // SAFETY: a live map value of this thread; the helper takes nothing.
    unsafe {
        let header = (&raw mut (*reading).record).cast::<HitHeader>();
        let ids = bpf_get_current_pid_tgid();
        set!((*header).kind, HIT);
        set!((*header).values, (*reading).values);
        set!((*header).tgid, (ids >> 32) as u32);
        set!((*header).tid, ids as u32);
        set!((*header).probe, probe);
        set!((*header).ts_ns, ts_ns);
    }
}

/// Hands the record over; whether there was room for it.
#[inline(always)]
unsafe fn send(reading: *mut Reading) -> bool {
    // SAFETY: a live map value of this thread; the length is masked to the record.
    unsafe {
        let mut length = u64::from((*reading).length);
        core::arch::asm!("if {0} <= 4608 goto +1", "{0} = 4608", inout(reg) length);
        let record = (&raw mut (*reading).record).cast();
        bpf_ringbuf_output(maps::handle(&RING), record, length, BPF_RB_NO_WAKEUP) == 0
    }
}

const _: () = assert!(RECORD_BYTES == 4608);
