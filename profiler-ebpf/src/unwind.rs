//! Walking a user's stack by the daemon's tables. Only the sampler may: the walk's state is its scratch.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_probe_read_kernel_buf, bpf_probe_read_user, bpf_probe_read_user_buf, generated::bpf_loop,
};
use profiler_common::{
    limits::MAX_USER_FRAMES,
    record::SampleHeader,
    unwind::{
        CHUNK_ROWS, Cfa, Frame, MAPPING_STEPS, Mapping, Outcome, Process, RECENT, ROW_STEPS, Recent, Row,
        Rule, enter_plain, find_caller, find_cfa, find_plain, frame_pointer_step, last_at_or_below,
        leave_signal_frame,
        register::{R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, pt_regs_offset},
        restore_rbp, restore_rbx,
    },
};

use crate::{
    maps::{
        UNWIND_MAPPINGS, UNWIND_MODULES, UNWIND_PAGES, UNWIND_PROCESSES, UNWIND_RECENT, UNWIND_ROWS,
        UNWIND_RULES,
    },
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

/// Walks the current thread's user stack; `None` where the daemon has given no tables for its process.
///
/// # Safety
/// `out` has room for [`WALK_BYTES`], and `walk` is the scratch of this CPU's sampler.
#[inline(always)]
pub unsafe fn walk(tgid: u32, walk: *mut Walk, out: *mut u8, in_kernel: bool) -> Option<Walked> {
    // SAFETY: the value is copied at once.
    let process = unsafe { UNWIND_PROCESSES.get(&tgid).copied() }?;
    let recent = UNWIND_RECENT.get_ptr_mut(0)?.cast::<Recent>();
    // SAFETY: the caller's scratch is a live map value that nothing else uses meanwhile.
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
        begin(walk, in_kernel)?;
        let mut cursor = Cursor { walk, recent, out };
        bpf_loop(
            MAX_USER_FRAMES as u32,
            walk_one as *mut c_void,
            (&raw mut cursor).cast(),
            0,
        );
        let flags = (*walk).flags as u16;
        let cut = (*walk).frames as usize >= MAX_USER_FRAMES && flags & SampleHeader::USER_COMPLETE == 0;
        Some(Walked {
            frames: (*walk).frames as usize,
            flags: flags | if cut { SampleHeader::USER_TRUNCATED } else { 0 },
        })
    }
}

/// Sets the innermost frame: the thread's user registers, with what probes did to them undone.
#[inline(never)]
unsafe fn begin(walk: *mut Walk, in_kernel: bool) -> Option<()> {
    // SAFETY: the caller's scratch is a live map value; what is read is checked by the helpers.
    unsafe {
        let registers = (&raw mut (*walk).registers).cast::<u8>();
        let bytes = core::slice::from_raw_parts_mut(registers, PT_REGS_BYTES);
        bpf_probe_read_kernel_buf(task::user_registers() as *const u8, bytes).ok()?;
        let pending = &raw mut (*walk).pending;
        pending::begin(pending);
        let registers = &(*walk).registers;
        let mut ip = pending::instruction_of(pending, registers[IP_WORD]);
        let mut sp = register(registers, RSP);
        // As an exception has it; a system call of the trampoline's pretends to be one.
        let at_breakpoint = in_kernel && registers[ORIGINAL_AX_WORD] == u64::MAX;
        set!((*walk).at_breakpoint, u32::from(at_breakpoint));
        if at_breakpoint {
            (ip, sp) = before_breakpoint(registers, ip, sp);
        }
        let kept = [R11, RCX, RAX].map(|number| register(registers, number));
        let returned = if in_kernel { Some(kept[2]) } else { None };
        match pending::through_trampoline(pending, ip, sp, returned) {
            // What is read of the stack while the kernel writes it may be half of one address and half of another.
            Some(through) if through.ip != 0 && find_mapping(walk, through.ip) => {
                (ip, sp) = (through.ip, through.sp);
            }
            Some(_) => set!((*walk).lost, 1),
            None if at_breakpoint => sp = pending::before_leaving(pending, sp, kept),
            None => {}
        }
        let frame = &raw mut (*walk).frame;
        set!((*frame).ip, ip);
        set!((*frame).sp, sp);
        set!((*frame).rbp, register(registers, RBP));
        set!((*frame).rbp_at, Frame::HERE);
        set!((*frame).rbx, register(registers, RBX));
        set!((*frame).rbx_at, Frame::HERE);
        set!((*frame).context, 0);
        set!((*frame).age, 0);
        set!((*frame).by_frame_pointer, 0);
    }
    Some(())
}

/// The instruction that a probe puts in another's place.
const BREAKPOINT: u8 = 0xcc;

/// Undoes what the kernel, in the breakpoint of a probe, has done of the instruction that the breakpoint replaced, and of
/// its way there: gives the instruction and the stack pointer as the program left them.
///
/// The breakpoint leaves the address one byte too far until the kernel has turned to it. The address is the same once the
/// kernel has done an instruction of one byte; the only such ones that change what the stack looks like push a
/// register, which is then what the stack ends with. In between, it is the stack pointer alone that has changed.
#[inline(always)]
fn before_breakpoint(registers: &[u64; REGISTER_WORDS], ip: u64, sp: u64) -> (u64, u64) {
    if is_breakpoint(ip) {
        // Set back.
        return (
            ip,
            if is_pushed(registers, sp) {
                sp.wrapping_add(8)
            } else {
                sp
            },
        );
    }
    let before = ip.wrapping_sub(1);
    if is_breakpoint(before) && !is_pushed(registers, sp) {
        (before, sp)
    } else {
        (ip, sp)
    }
}

/// Whether the stack ends with a register that one byte of code can push; the stack pointer is none that programs do.
#[inline(never)]
fn is_pushed(registers: &[u64; REGISTER_WORDS], sp: u64) -> bool {
    let Some(last) = task::read_user(sp) else {
        return false;
    };
    let mut pushed = false;
    for number in [RAX, RDX, RCX, RBX, RSI, RDI, RBP] {
        pushed |= register(registers, number) == last;
    }
    pushed
}

#[inline(always)]
fn is_breakpoint(address: u64) -> bool {
    // SAFETY: the helper checks the address.
    let byte = unsafe { bpf_probe_read_user(address as *const u8) };
    byte == Ok(BREAKPOINT)
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
        match UNWIND_RULES.get(rule_of(walk, recent)) {
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

/// The number of the rule that holds at the frame.
#[inline(always)]
unsafe fn rule_of(walk: *mut Walk, recent: *mut Recent) -> u32 {
    // SAFETY: live map values; the place is masked, and of this CPU's sampler, which nothing interrupts.
    unsafe {
        let address = (*walk).frame.lookup_ip();
        let recent = recent.add(masked_place(address));
        if let Some(rule) = (*recent).rule(&(*walk).process, address) {
            return u32::from(rule);
        }
        if !find_mapping(walk, address) {
            (*walk).flags |= u32::from(SampleHeader::USER_NO_TABLE);
            return u32::from(Rule::NONE_INDEX);
        }
        let rule = unwind_rule((*walk).mapping.module, address.wrapping_sub((*walk).mapping.bias));
        if let Some(found) = Recent::new(&(*walk).process, address, rule as u16) {
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

#[inline(always)]
unsafe fn find_mapping(walk: *mut Walk, address: u64) -> bool {
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
