//! The thread's registers where a probe or the sampler met it: how the context of these programs begins.
//!
//! Accesses are written as instructions with constant offsets. The verifier allows no others, and the
//! optimiser would otherwise merge the arms of a `match` into one access at a computed offset.

use core::{arch::asm, ffi::c_void};

/// Offset of the stack pointer in `struct pt_regs`, which is part of x86-64's user ABI.
pub const SP_OFFSET: u32 = 152;

/// The machine's numbers of general registers by those of DWARF.
pub const BY_DWARF: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// A program's context.
#[derive(Clone, Copy)]
pub struct Registers(*mut c_void);

macro_rules! load {
    ($base:expr, $offset:literal) => {{
        let value: u64;
        // SAFETY: the context is valid for the whole program and holds a u64 at this offset.
        unsafe { asm!(concat!("{value} = *(u64 *)({base} + ", $offset, ")"), value = out(reg) value, base = in(reg) $base) };
        value
    }};
}

macro_rules! store {
    ($base:expr, $offset:literal, $value:expr) => {
        // SAFETY: as for a load; only programs loaded where the kernel allows writing it get here.
        unsafe { asm!(concat!("*(u64 *)({base} + ", $offset, ") = {value}"), value = in(reg) $value, base = in(reg) $base) }
    };
}

impl Registers {
    /// Wraps the context that the program was called with.
    #[inline(always)]
    pub fn new(ctx: *mut c_void) -> Self {
        Self(ctx)
    }

    #[inline(always)]
    pub fn stack_pointer(self) -> u64 {
        load!(self.0, "152")
    }

    #[inline(always)]
    pub fn instruction_pointer(self) -> u64 {
        load!(self.0, "128")
    }

    #[inline(always)]
    pub fn set_instruction_pointer(self, value: u64) {
        store!(self.0, "128", value);
    }

    /// Whether the thread was in the program itself, and not in the kernel.
    #[inline(always)]
    pub fn in_user_mode(self) -> bool {
        const PRIVILEGE_LEVEL: u64 = 3;
        let code_segment = load!(self.0, "136");
        code_segment & PRIVILEGE_LEVEL != 0
    }

    /// Of the sampler's programs: how many of its events a sample stands for.
    #[inline(always)]
    pub fn sample_period(self) -> u64 {
        load!(self.0, "168")
    }

    /// Of the sampler's programs: the address that the event is about, of a fault; else 0.
    #[inline(always)]
    pub fn sample_address(self) -> u64 {
        load!(self.0, "176")
    }

    #[inline(always)]
    pub fn flags(self) -> u64 {
        load!(self.0, "144")
    }

    #[inline(always)]
    pub fn set_flags(self, value: u64) {
        store!(self.0, "144", value);
    }

    /// A general register by the machine's number; 0 for [`profiler_common::instruction::register::NONE`].
    #[inline(always)]
    pub fn get(self, number: u8) -> u64 {
        match number {
            0 => load!(self.0, "80"),
            1 => load!(self.0, "88"),
            2 => load!(self.0, "96"),
            3 => load!(self.0, "40"),
            4 => load!(self.0, "152"),
            5 => load!(self.0, "32"),
            6 => load!(self.0, "104"),
            7 => load!(self.0, "112"),
            8 => load!(self.0, "72"),
            9 => load!(self.0, "64"),
            10 => load!(self.0, "56"),
            11 => load!(self.0, "48"),
            12 => load!(self.0, "24"),
            13 => load!(self.0, "16"),
            14 => load!(self.0, "8"),
            15 => load!(self.0, "0"),
            _ => 0,
        }
    }

    /// A general register by its DWARF number; 0 for others.
    #[inline(always)]
    pub fn by_dwarf(self, number: u8) -> u64 {
        macro_rules! one_of {
            ($($number:literal)+) => {
                match number {
                    $($number => self.get(BY_DWARF[$number]),)+
                    _ => 0,
                }
            };
        }
        one_of!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    }

    /// Writes a general register by the machine's number.
    #[inline(always)]
    pub fn set(self, number: u8, value: u64) {
        match number {
            0 => store!(self.0, "80", value),
            1 => store!(self.0, "88", value),
            2 => store!(self.0, "96", value),
            3 => store!(self.0, "40", value),
            4 => store!(self.0, "152", value),
            5 => store!(self.0, "32", value),
            6 => store!(self.0, "104", value),
            7 => store!(self.0, "112", value),
            8 => store!(self.0, "72", value),
            9 => store!(self.0, "64", value),
            10 => store!(self.0, "56", value),
            11 => store!(self.0, "48", value),
            12 => store!(self.0, "24", value),
            13 => store!(self.0, "16", value),
            14 => store!(self.0, "8", value),
            15 => store!(self.0, "0", value),
            _ => {}
        }
    }
}
