//! Instructions that a program does itself, so that the kernel need not single-step them.
//!
//! The daemon's disassembler decides which and what they mean; the programs only carry it out.

use crate::assert_layout;

/// What kind of thing to do. Numbers are the wire format between loader and programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Operation {
    /// Leave the instruction to the kernel.
    Leave = 0,
    /// Do nothing but step over it (`endbr64`, `nop`).
    Skip = 1,
    /// `mov register, register`.
    MoveRegister = 2,
    /// `mov register, immediate`.
    MoveImmediate = 3,
    /// `mov register, [base + index * scale + displacement]`.
    Load = 4,
    /// `lea register, [base + index * scale + displacement]`.
    LoadAddress = 5,
    /// `sub register, immediate`, with flags.
    SubtractImmediate = 6,
    /// `sub register, register`, with flags.
    SubtractRegister = 7,
    /// `xor register, register`, with flags.
    ExclusiveOr = 8,
    /// `test register, register`, with flags.
    Test = 9,
    /// `ret`.
    Return = 10,
    /// `jmp register`.
    JumpRegister = 11,
    /// `jmp [base + index * scale + displacement]`.
    JumpMemory = 12,
}

/// Register numbers are the machine's (`rax rcx rdx rbx rsp rbp rsi rdi r8`…`r15`).
pub mod register {
    /// Base of a RIP-relative operand: the address of the next instruction.
    pub const RIP: u8 = 16;
    /// No such operand.
    pub const NONE: u8 = 255;
    /// The stack pointer.
    pub const RSP: u8 = 4;
}

/// One instruction's meaning.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action {
    /// An [`Operation`] as a number.
    pub operation: u8,
    /// Operand size in bytes: 4 or 8. A result of 4 bytes clears the register's upper half.
    pub size: u8,
    /// Register that is written, or the first operand of `test`.
    pub target: u8,
    /// Register that is read.
    pub source: u8,
    /// Base register of a memory operand.
    pub base: u8,
    /// Index register of a memory operand.
    pub index: u8,
    /// log2 of the index's scale.
    pub scale: u8,
    /// Length of the instruction in bytes.
    pub length: u8,
    /// Immediate, or displacement, sign-extended; of `ret`, the bytes that it drops beyond the address.
    pub immediate: i64,
    /// For jumps that may stay inside their function: the function's length in bytes.
    pub function_size: u32,
    /// For such jumps: distance from the function's first byte to this instruction.
    pub function_offset: u32,
    /// Where the instruction lies in the target; 0 where that is not known for certain. A program does the
    /// instruction only when the thread is still there: another program on the same site may have done it.
    pub address: u64,
}

assert_layout!(Action, size 32,
    operation at 0, size at 1, target at 2, source at 3, base at 4, index at 5, scale at 6,
    length at 7, immediate at 8, function_size at 16, function_offset at 20, address at 24);

impl Action {
    /// Leaves the instruction to the kernel.
    pub const LEAVE: Self = Self {
        operation: Operation::Leave as u8,
        size: 8,
        target: register::NONE,
        source: register::NONE,
        base: register::NONE,
        index: register::NONE,
        scale: 0,
        length: 0,
        immediate: 0,
        function_size: 0,
        function_offset: 0,
        address: 0,
    };
}
