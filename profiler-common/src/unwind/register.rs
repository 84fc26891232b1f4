//! Register numbers as DWARF counts them on x86-64 (System V psABI, "DWARF Register Number
//! Mapping"), which differ from the machine's own.

/// `rax`.
pub const RAX: u8 = 0;
/// `rdx`.
pub const RDX: u8 = 1;
/// `rcx`.
pub const RCX: u8 = 2;
/// `rbx`.
pub const RBX: u8 = 3;
/// `rsi`.
pub const RSI: u8 = 4;
/// `rdi`.
pub const RDI: u8 = 5;
/// `rbp`.
pub const RBP: u8 = 6;
/// `rsp`.
pub const RSP: u8 = 7;
/// `r11`.
pub const R11: u8 = 11;
/// The first of `r12` to `r15`, which calls preserve.
pub const R12: u8 = 12;
/// The return address, as a register.
pub const RIP: u8 = 16;
/// General registers; [`RIP`] is the next number.
pub const COUNT: u8 = 16;

/// Where the kernel's x86-64 signal frame has its saved registers, from the stack pointer at
/// `__restore_rt`: `uc_mcontext` in `struct ucontext`.
pub const CONTEXT_FROM_SP: u64 = 40;

/// `struct sigcontext` has the instruction pointer here.
pub const CONTEXT_IP: u64 = 128;

/// Positions in `struct sigcontext`, 4 bits a register: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp.
const CONTEXT_POSITIONS: u64 = packed([13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7]);

/// Positions in `struct pt_regs`, 4 bits a register; `rsp`, at 19, is not among them.
const PT_REGS_POSITIONS: u64 = packed([10, 12, 11, 5, 13, 14, 4, 0, 9, 8, 7, 6, 3, 2, 1, 0]);

const fn packed(positions: [u8; COUNT as usize]) -> u64 {
    let mut word = 0;
    let mut register = 0;
    while register < positions.len() {
        word |= (positions[register] as u64) << (4 * register);
        register += 1;
    }
    word
}

/// Offset in bytes of a general register in the kernel's `struct sigcontext`, which a signal
/// frame holds at [`CONTEXT_FROM_SP`]. Numbers from [`COUNT`] on alias others.
#[inline(always)]
#[must_use]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub const fn context_offset(register: u8) -> u64 {
    (CONTEXT_POSITIONS >> ((register & 15) * 4) & 15) * 8
}

/// Offset in bytes of a general register in the kernel's x86-64 `struct pt_regs`. Numbers from
/// [`COUNT`] on alias others.
#[inline(always)]
#[must_use]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub const fn pt_regs_offset(register: u8) -> u64 {
    if register & 15 == RSP {
        return 19 * 8;
    }
    (PT_REGS_POSITIONS >> ((register & 15) * 4) & 15) * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_has_a_place_of_its_own() {
        let mut context = [false; 16];
        for register in 0..COUNT {
            context[(context_offset(register) / 8) as usize] = true;
        }
        assert!(context.iter().all(|taken| *taken));
        assert_eq!(context_offset(RBP), 80);
        assert_eq!(context_offset(RSP), 120);

        let mut pt_regs = [0; 20];
        for register in 0..COUNT {
            pt_regs[(pt_regs_offset(register) / 8) as usize] += 1;
        }
        // 15 to 18 are orig_rax, rip, cs and flags.
        assert_eq!(
            pt_regs,
            [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1]
        );
        assert_eq!(pt_regs_offset(RBP), 32);
    }
}
