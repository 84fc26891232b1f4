//! Where a walk begins: the innermost frame, as the program left it, whatever the kernel's probes have done since.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_probe_read_kernel_buf, bpf_probe_read_user};
use profiler_common::unwind::{
    Frame,
    register::{R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP},
};

use super::{
    IP_WORD, ORIGINAL_AX_WORD, PT_REGS_BYTES, REGISTER_WORDS, Walk,
    lookup::{find_mapping, has_rule},
    register,
};
use crate::{pending, plain::set, task};

/// Sets the innermost frame of a thread at a probe: the registers that its program was called with, which stand at the
/// probed instruction.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile; `ctx` is the program's own.
#[inline(never)]
pub unsafe fn begin_at_probe(walk: *mut Walk, ctx: *mut c_void) -> Option<()> {
    // SAFETY: the caller's; what is read is checked by the helper.
    unsafe {
        let registers = (&raw mut (*walk).registers).cast::<u8>();
        let bytes = core::slice::from_raw_parts_mut(registers, PT_REGS_BYTES);
        bpf_probe_read_kernel_buf(ctx.cast_const().cast(), bytes).ok()?;
        pending::begin(&raw mut (*walk).pending);
        set!((*walk).at_breakpoint, 0);
        let registers = &(*walk).registers;
        set_frame(walk, registers[IP_WORD], register(registers, RSP));
    }
    Some(())
}

/// Sets the innermost frame: the thread's user registers, with what probes did to them undone.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile.
#[inline(never)]
pub unsafe fn begin_at_interrupt(walk: *mut Walk, in_kernel: bool) -> Option<()> {
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
            (ip, sp) = before_breakpoint(walk, ip, sp);
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
        set_frame(walk, ip, sp);
    }
    Some(())
}

/// Sets the innermost frame to these and the walk's other registers.
#[inline(always)]
unsafe fn set_frame(walk: *mut Walk, ip: u64, sp: u64) {
    // SAFETY: the caller's.
    unsafe {
        let registers = &(*walk).registers;
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
}

/// The instruction that a probe puts in another's place.
const BREAKPOINT: u8 = 0xcc;

/// Undoes what the kernel, in the breakpoint of a probe, has done of the instruction that the breakpoint replaced, and of
/// its way there: gives the instruction and the stack pointer as the program left them.
///
/// The breakpoint leaves the address one byte too far until the kernel has turned to it. The address is the same once the
/// kernel has done an instruction of one byte; the only such ones that change what the stack looks like push a
/// register, which is then what the stack ends with. In between, it is the stack pointer alone that has changed.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile.
#[inline(always)]
unsafe fn before_breakpoint(walk: *mut Walk, ip: u64, sp: u64) -> (u64, u64) {
    // SAFETY: the caller's.
    unsafe {
        let before = ip.wrapping_sub(1);
        if is_probed(walk, ip, before) {
            // Set back.
            let sp = if is_pushed(&(*walk).registers, sp) {
                sp.wrapping_add(8)
            } else {
                sp
            };
            return (ip, sp);
        }
        if is_probed(walk, before, ip) && !is_pushed(&(*walk).registers, sp) {
            return (before, sp);
        }
    }
    (ip, sp)
}

/// Whether an instruction may have been replaced by a breakpoint. What is between functions can be filled up with
/// breakpoints too, of which no table says anything, other than of what is `beside` it.
///
/// # Safety
/// `walk` is a live map value, and nobody else's meanwhile.
#[inline(never)]
unsafe fn is_probed(walk: *mut Walk, address: u64, beside: u64) -> bool {
    // SAFETY: the caller's.
    unsafe { is_breakpoint(address) && (has_rule(walk, address) || !has_rule(walk, beside)) }
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
