//! Doing the probed instruction here, so that the kernel need not single-step it.
//!
//! The kernel skips the instruction when the program has moved the instruction pointer. Whatever
//! cannot be done exactly, a page that is not resident included, is left to the kernel.

use profiler_common::{
    condition::Condition,
    instruction::{Action, Operation, register},
    probe::Cookie,
};

use crate::{maps::ACTIONS, registers::Registers, task};

/// Place of an address within its page.
const PAGE_MASK: u64 = 0xfff;

const CARRY: u64 = 1 << 0;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;
const ARITHMETIC: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;

/// Whether a conditional jump goes the way that leaves what is inlined; true of other instructions. Programs that do the
/// instruction themselves have no such site.
#[inline(always)]
pub fn takes_branch(registers: Registers, cookie: Cookie) -> bool {
    cookie.flags() & Cookie::BRANCH == 0
        || Condition::from_number(cookie.site() as u8).holds(registers.flags())
}

/// Whether the instruction really leaves its function. A jump through a register may be a `switch`.
#[inline(always)]
pub fn leaves_function(registers: Registers, cookie: Cookie) -> bool {
    if cookie.flags() & Cookie::MAY_STAY_INSIDE == 0 {
        return true;
    }
    let Some(action) = ACTIONS.get(cookie.site()) else {
        return true;
    };
    let now = registers.instruction_pointer();
    // Another program on the site may have jumped already.
    let site = if action.address == 0 { now } else { action.address };
    let target = if site == now {
        jump_target(registers, action)
    } else {
        Some(now)
    };
    let start = site.wrapping_sub(u64::from(action.function_offset));
    target.is_none_or(|target| target.wrapping_sub(start) >= u64::from(action.function_size))
}

/// The stack pointer as it was when the thread came to the site. Another program there, of another session
/// or another daemon, may have done the instruction already.
#[inline(always)]
pub fn stack_pointer_at_site(registers: Registers, cookie: Cookie) -> u64 {
    let now = registers.stack_pointer();
    let Some(action) = ACTIONS.get(cookie.site()) else {
        return now;
    };
    // A program that the target ran meanwhile lies elsewhere, but at the same place within a page.
    if (registers.instruction_pointer() ^ action.address) & PAGE_MASK == 0 {
        return now;
    }
    if action.operation == Operation::Return as u8 {
        now.wrapping_sub(8).wrapping_sub(action.immediate as u64)
    } else if action.operation == Operation::SubtractImmediate as u8 && action.target == register::RSP {
        now.wrapping_add(action.immediate as u64)
    } else {
        now
    }
}

/// The address of the site, be it that another program there has done the instruction already.
#[inline(always)]
pub fn address_of_site(registers: Registers, cookie: Cookie) -> u64 {
    ACTIONS
        .get(cookie.site())
        .map_or(registers.instruction_pointer(), |action| action.address)
}

/// Does the instruction, if it is one that can be done and nobody has done it yet.
#[inline(always)]
pub fn run(registers: Registers, cookie: Cookie) {
    let Some(action) = ACTIONS.get(cookie.site()) else {
        return;
    };
    if registers.instruction_pointer() != action.address {
        return;
    }
    let next = registers
        .instruction_pointer()
        .wrapping_add(u64::from(action.length));
    let operation = action.operation;
    if operation == Operation::Return as u8 {
        let stack_pointer = registers.stack_pointer();
        let Some(address) = task::read_user(stack_pointer) else {
            return;
        };
        registers.set(
            register::RSP,
            stack_pointer
                .wrapping_add(8)
                .wrapping_add(action.immediate as u64),
        );
        registers.set_instruction_pointer(address);
        return;
    }
    if operation == Operation::JumpRegister as u8 || operation == Operation::JumpMemory as u8 {
        if let Some(target) = jump_target(registers, action) {
            registers.set_instruction_pointer(target);
        }
        return;
    }
    if operation == Operation::Leave as u8 {
        return;
    }
    if operation != Operation::Skip as u8 {
        let target = registers.get(action.target);
        let source = registers.get(action.source);
        let result = if operation == Operation::MoveRegister as u8 {
            source
        } else if operation == Operation::MoveImmediate as u8 {
            action.immediate as u64
        } else if operation == Operation::LoadAddress as u8 {
            address(registers, action)
        } else if operation == Operation::Load as u8 {
            let Some(value) = task::read_user(address(registers, action)) else {
                return;
            };
            value
        } else if operation == Operation::SubtractImmediate as u8 {
            subtract(registers, target, action.immediate as u64, action.size)
        } else if operation == Operation::SubtractRegister as u8 {
            subtract(registers, target, source, action.size)
        } else if operation == Operation::ExclusiveOr as u8 {
            logic(registers, target ^ source, action.size)
        } else if operation == Operation::Test as u8 {
            logic(registers, target & source, action.size);
            target
        } else {
            return;
        };
        if operation != Operation::Test as u8 {
            // A 32-bit result clears the upper half of its register.
            registers.set(action.target, truncate(result, action.size));
        }
    }
    registers.set_instruction_pointer(next);
}

#[inline(always)]
fn jump_target(registers: Registers, action: &Action) -> Option<u64> {
    if action.operation == Operation::JumpRegister as u8 {
        Some(registers.get(action.source))
    } else if action.operation == Operation::JumpMemory as u8 {
        task::read_user(address(registers, action))
    } else {
        None
    }
}

/// The address of a memory operand.
#[inline(always)]
fn address(registers: Registers, action: &Action) -> u64 {
    let base = if action.base == register::RIP {
        registers
            .instruction_pointer()
            .wrapping_add(u64::from(action.length))
    } else {
        registers.get(action.base)
    };
    let index = registers.get(action.index) << (action.scale & 3);
    truncate(base.wrapping_add(index).wrapping_add(action.immediate as u64), 8)
}

#[inline(always)]
fn truncate(value: u64, size: u8) -> u64 {
    if size == 4 { value & 0xffff_ffff } else { value }
}

/// `target - source` with the flags that `sub` sets.
/// Source: Intel SDM volume 2, SUB; volume 1, 3.4.3.1 "Status Flags".
#[inline(always)]
fn subtract(registers: Registers, target: u64, source: u64, size: u8) -> u64 {
    let target = truncate(target, size);
    let source = truncate(source, size);
    let result = truncate(target.wrapping_sub(source), size);
    let sign_bit = sign_bit(size);
    let mut flags = 0;
    if target < source {
        flags |= CARRY;
    }
    if (target ^ source ^ result) & 0x10 != 0 {
        flags |= ADJUST;
    }
    if (target ^ source) & (target ^ result) & sign_bit != 0 {
        flags |= OVERFLOW;
    }
    set_arithmetic(registers, flags | result_flags(result, size));
    result
}

/// The flags that `xor` and `test` set: no carry, no overflow. `AF` is undefined; it is cleared.
#[inline(always)]
fn logic(registers: Registers, result: u64, size: u8) -> u64 {
    let result = truncate(result, size);
    set_arithmetic(registers, result_flags(result, size));
    result
}

#[inline(always)]
fn sign_bit(size: u8) -> u64 {
    if size == 4 { 1 << 31 } else { 1 << 63 }
}

#[inline(always)]
fn result_flags(result: u64, size: u8) -> u64 {
    let mut flags = 0;
    if result == 0 {
        flags |= ZERO;
    }
    if result & sign_bit(size) != 0 {
        flags |= SIGN;
    }
    // Parity of the low byte, folded: PF is set for an even number of ones.
    let mut low = result & 0xff;
    low ^= low >> 4;
    low ^= low >> 2;
    low ^= low >> 1;
    if low & 1 == 0 {
        flags |= PARITY;
    }
    flags
}

#[inline(always)]
fn set_arithmetic(registers: Registers, flags: u64) {
    registers.set_flags(registers.flags() & !ARITHMETIC | flags);
}
