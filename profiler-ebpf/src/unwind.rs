//! Walking a user's stack by the daemon's tables. The walk's state is the sampler's scratch, or the probed thread's own.

mod begin;
mod lookup;

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_probe_read_user_buf, generated::bpf_loop};
use profiler_common::{
    limits::MAX_USER_FRAMES,
    record::SampleHeader,
    unwind::{
        Cfa, Frame, Mapping, Outcome, Process, Recent, Rule, enter_plain, find_caller, find_cfa, find_plain,
        frame_pointer_step, leave_signal_frame, register::pt_regs_offset, restore_rbp, restore_rbx,
    },
};

pub use begin::{begin_at_interrupt, begin_at_probe};

use crate::{
    maps::{UNWIND_PROCESSES, UNWIND_RULES},
    pending::{self, Pending},
    plain::{copy, set},
    task,
};

/// Bytes that a walk may write.
pub const WALK_BYTES: usize = MAX_USER_FRAMES * 8;

/// Words of `struct pt_regs`, rounded up to a power of two so that an index can be masked.
const REGISTER_WORDS: usize = 32;
const PT_REGS_BYTES: usize = 21 * 8;
/// Word of `pt_regs` that holds the instruction pointer.
const IP_WORD: usize = 16;
/// Word of `pt_regs` that is -1 where an exception or interrupt, and no system call, led into the kernel.
const ORIGINAL_AX_WORD: usize = 15;

/// Words of a [`Walk::window`]. It is aligned, so that it lies within a page; the next page may not be there.
const WINDOW_WORDS: usize = 128;
const WINDOW_BYTES: u64 = WINDOW_WORDS as u64 * 8;

/// A walk under way.
#[repr(C)]
pub struct Walk {
    frame: Frame,
    process: Process,
    /// Where the last frame's code was found: the next one's is often there too.
    mapping: Mapping,
    pending: Pending,
    /// The frame's rule, its canonical frame address, and where it returns to.
    rule: Rule,
    cfa: u64,
    caller: u64,
    /// The interrupted thread's `pt_regs`.
    registers: [u64; REGISTER_WORDS],
    /// A part of the thread's stack: a read of one word takes nearly as long as of many, and the next frames'
    /// return addresses are close by.
    window: [u64; WINDOW_WORDS],
    /// Where that part begins; 1, which nothing does, where there is none.
    window_at: u64,
    /// Frames written.
    frames: u32,
    /// Of [`SampleHeader::flags`].
    flags: u32,
    /// The frame is in the kernel's own code for return probes, and where that returns to is not known.
    lost: u32,
    /// The thread may be in the breakpoint of a probe.
    at_breakpoint: u32,
}

/// What the loop over the frames carries along: the state is in a map, so that the verifier need not follow it.
#[repr(C)]
struct Cursor {
    walk: *mut Walk,
    recent: *mut Recent,
    out: *mut u8,
}

/// What a walk found.
pub struct Walked {
    /// Addresses written, innermost first, with their marks.
    pub frames: usize,
    /// Of [`SampleHeader::flags`].
    pub flags: u16,
}

/// Forgets what the walk before found.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile.
#[inline(always)]
pub unsafe fn forget(walk: *mut Walk) {
    // SAFETY: the caller's.
    unsafe { set!((*walk).frames, 0) };
}

/// Sets a walk to the frame that `begin` sets; `None` where that gives up, or where the daemon has given no tables for
/// the process.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile.
#[inline(always)]
pub unsafe fn start(tgid: u32, walk: *mut Walk, begin: impl FnOnce(*mut Walk) -> Option<()>) -> Option<()> {
    // SAFETY: the value is copied at once.
    let process = unsafe { UNWIND_PROCESSES.get(&tgid).copied() }?;
    // SAFETY: the caller's.
    unsafe {
        set!((*walk).process.first_mapping, process.first_mapping);
        set!((*walk).process.mappings, process.mappings);
        set!((*walk).process.generation, process.generation);
        // Nothing is between 0 and 0.
        set!((*walk).mapping.start, 0);
        set!((*walk).mapping.end, 0);
        set!((*walk).window_at, 1);
        set!((*walk).frames, 0);
        set!((*walk).flags, 0);
        set!((*walk).lost, 0);
    }
    begin(walk)
}

/// Walks the current thread's user stack from where the walk was set to.
///
/// # Safety
/// `out` has room for [`WALK_BYTES`], `walk` is as it was started, and `recent` is the one of this CPU's sampler, or null.
#[inline(always)]
pub unsafe fn run(walk: *mut Walk, recent: *mut Recent, out: *mut u8) {
    let mut cursor = Cursor { walk, recent, out };
    // SAFETY: the callback takes a `Cursor`, which outlives the call.
    unsafe {
        bpf_loop(
            MAX_USER_FRAMES as u32,
            walk_one as *mut c_void,
            (&raw mut cursor).cast(),
            0,
        );
    }
}

/// What a walk found.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile.
#[inline(always)]
pub unsafe fn walked(walk: *const Walk) -> Walked {
    // SAFETY: the caller's.
    unsafe {
        let flags = (*walk).flags as u16;
        let cut = (*walk).frames as usize >= MAX_USER_FRAMES && flags & SampleHeader::USER_COMPLETE == 0;
        Walked {
            frames: (*walk).frames as usize,
            flags: flags | if cut { SampleHeader::USER_TRUNCATED } else { 0 },
        }
    }
}

/// Whether the tables of the process are still those that a walk went by.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile.
#[inline(always)]
pub unsafe fn is_current(tgid: u32, walk: *mut Walk) -> bool {
    // SAFETY: the caller's; the value is copied at once.
    unsafe {
        let generation = UNWIND_PROCESSES.get(&tgid).map(|process| process.generation);
        generation == Some((*walk).process.generation)
    }
}

#[inline(always)]
fn register(registers: &[u64; REGISTER_WORDS], number: u8) -> u64 {
    let word = pt_regs_offset(number) as usize / 8;
    // SAFETY: the index is masked.
    unsafe { registers.as_ptr().add(word & (REGISTER_WORDS - 1)).read() }
}

/// Writes a frame, and goes on to its caller; stops at the last.
unsafe extern "C" fn walk_one(index: u32, cursor: *mut c_void) -> i64 {
    // SAFETY: `walk` passes a `Cursor` of live map values; the index is masked to the room behind `out`.
    unsafe {
        let cursor = &*cursor.cast::<Cursor>();
        let walk = cursor.walk;
        let interrupted = if (*walk).frame.age == 0 {
            SampleHeader::INTERRUPTED
        } else {
            0
        };
        let out = cursor
            .out
            .cast::<u64>()
            .add(index as usize & (MAX_USER_FRAMES - 1));
        *out = (*walk).frame.ip & SampleHeader::ADDRESS | interrupted;
        (*walk).frames = index + 1;
        if (*walk).lost != 0 {
            return 1;
        }

        let outcome = step(walk, cursor.recent);
        if outcome == Outcome::Continue as u32 {
            return 0;
        }
        if outcome == Outcome::Root as u32 {
            (*walk).flags |= u32::from(SampleHeader::USER_COMPLETE);
            return 1;
        }
        let no_rule = outcome == Outcome::NoRule as u32 || outcome == Outcome::Unsupported as u32;
        if !no_rule || unwind_frame_pointer(walk) != Outcome::Continue as u32 {
            return 1;
        }
        *out |= SampleHeader::BY_FRAME_POINTER;
    }
    0
}

/// One frame further by its rule; an [`Outcome`].
#[inline(always)]
unsafe fn step(walk: *mut Walk, recent: *mut Recent) -> u32 {
    // SAFETY: live map values.
    unsafe {
        match UNWIND_RULES.get(lookup::rule_of(walk, recent)) {
            Some(rule) => copy::<Rule, { size_of::<Rule>() / 4 }>(rule, &raw mut (*walk).rule),
            None => return Outcome::NoRule as u32,
        }
        if (*walk).rule.is_plain() && unwind_plain(walk) {
            return Outcome::Continue as u32;
        }
        if (*walk).rule.cfa == Cfa::Signal as u8 {
            return unwind_signal_frame(walk);
        }
        let outcome = unwind_cfa(walk);
        if outcome != Outcome::Continue as u32 {
            return outcome;
        }
        let outcome = unwind_caller(walk);
        if outcome != Outcome::Continue as u32 {
            return outcome;
        }
        unwind_rbp(walk);
        unwind_rbx(walk)
    }
}

// The parts of a step, as global functions: the verifier follows each by itself. What passes between them is in
// the walk. Each returns an `Outcome`.

macro_rules! part {
    ($(#[$doc:meta])* fn $name:ident($walk:ident) $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// `walk` is null or valid, and nobody else's meanwhile.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub unsafe extern "C" fn $name(walk: *mut Walk) -> u32 {
            // SAFETY: the caller's.
            let Some($walk) = (unsafe { walk.as_mut() }) else {
                return Outcome::Unsupported as u32;
            };
            let body: Result<(), Outcome> = $body;
            match body {
                Ok(()) => Outcome::Continue as u32,
                Err(outcome) => outcome as u32,
            }
        }
    };
}

/// All of a step by a plain rule, where no return probe has replaced the address; else nothing. Most steps are of
/// this kind: it is part of the loop, whose calls take longer than what they do.
#[inline(always)]
unsafe fn unwind_plain(walk: *mut Walk) -> bool {
    // SAFETY: a live map value.
    let walk = unsafe { &mut *walk };
    if walk.at_breakpoint != 0 && walk.frames == 1 {
        return false;
    }
    let (window, window_at) = (&mut walk.window, &mut walk.window_at);
    let found = find_plain(&walk.rule, &mut walk.frame, |address| {
        read_near(window, window_at, address)
    });
    let Ok((ip, cfa)) = found else { return false };
    if pending::is_trampoline(&walk.pending, ip) {
        return false;
    }
    enter_plain(&walk.rule, &mut walk.frame, ip, cfa);
    true
}

part! {
    /// Finds the canonical frame address.
    fn unwind_cfa(walk) {
        let registers = &walk.registers;
        let register = |number| Some(register(registers, number));
        find_cfa(&walk.rule, &mut walk.frame, &register, &task::read_user).map(|cfa| walk.cfa = cfa)
    }
}

part! {
    /// Finds the address that the frame returns to, where a return probe replaced it as well.
    fn unwind_caller(walk) {
        let registers = &walk.registers;
        let register = |number| Some(register(registers, number));
        let found = find_caller(&walk.rule, &walk.frame, walk.cfa, &register, &task::read_user);
        // The return address of an ordinary frame lies right below the caller's stack pointer.
        let slot = walk.cfa.wrapping_sub(8);
        let may_be_replaced = walk.at_breakpoint != 0 && walk.frames == 1;
        found.and_then(|ip| {
            if may_be_replaced && pending::is_half_replaced(&walk.pending, ip) {
                return Err(Outcome::Unreadable);
            }
            // SAFETY: the walk's own.
            walk.caller = unsafe { pending::return_address(&raw mut walk.pending, slot, ip) };
            if walk.caller == 0 { Err(Outcome::Unreadable) } else { Ok(()) }
        })
    }
}

part! {
    /// Restores `rbp`.
    fn unwind_rbp(walk) {
        let registers = &walk.registers;
        restore_rbp(&walk.rule, &mut walk.frame, walk.cfa, &|number| Some(register(registers, number)));
        Ok(())
    }
}

part! {
    /// Restores `rbx`, and goes on to the caller.
    fn unwind_rbx(walk) {
        let registers = &walk.registers;
        restore_rbx(&walk.rule, &mut walk.frame, walk.cfa, &|number| Some(register(registers, number)));
        walk.frame.enter(walk.caller, walk.cfa);
        Ok(())
    }
}

part! {
    /// Leaves a signal frame.
    fn unwind_signal_frame(walk) {
        leave_signal_frame(&mut walk.frame, task::read_user).map(|()| {
            let (ip, sp) = (walk.frame.ip, walk.frame.sp);
            // SAFETY: the walk's own.
            let through = unsafe { pending::through_trampoline(&raw mut walk.pending, ip, sp, None) };
            match through {
                Some(through) if through.ip != 0 => {
                    walk.frame.ip = through.ip;
                    walk.frame.sp = through.sp;
                }
                Some(_) => walk.lost = 1,
                None => {}
            }
        })
    }
}

part! {
    /// Goes on along frame pointers.
    fn unwind_frame_pointer(walk) {
        match frame_pointer_step(&mut walk.frame, task::read_user) {
            Outcome::Continue => {
                let (slot, ip) = (walk.frame.sp.wrapping_sub(8), walk.frame.ip);
                // SAFETY: the walk's own.
                walk.frame.ip = unsafe { pending::return_address(&raw mut walk.pending, slot, ip) };
                if walk.frame.ip == 0 { Err(Outcome::Unreadable) } else { Ok(()) }
            }
            outcome => Err(outcome),
        }
    }
}

/// Reads a word of the thread's stack through the window, which is moved to where the word is.
#[inline(always)]
fn read_near(window: &mut [u64; WINDOW_WORDS], window_at: &mut u64, address: u64) -> Option<u64> {
    let at = address & !(WINDOW_BYTES - 1);
    if at != *window_at {
        *window_at = 1;
        let bytes = window.as_mut_ptr().cast::<u8>();
        // SAFETY: the window's own bytes; the helper checks the address.
        let bytes = unsafe { core::slice::from_raw_parts_mut(bytes, WINDOW_BYTES as usize) };
        // SAFETY: as above.
        unsafe { bpf_probe_read_user_buf(at as *const u8, bytes) }.ok()?;
        *window_at = at;
    }
    if address & 7 != 0 {
        return task::read_user(address);
    }
    let word = (address / 8) as usize & (WINDOW_WORDS - 1);
    // SAFETY: the index is masked.
    Some(unsafe { window.as_ptr().add(word).read() })
}
