//! What the kernel does with an instruction that a uprobe is on.

use iced_x86::{CpuidFeature, Instruction, Mnemonic, OpKind, Register};

/// What a kernel does with an instruction under a uprobe (`arch/x86/kernel/uprobes.c`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handling {
    /// Emulated by all kernels.
    Emulated,
    /// A `nop` of several bytes: emulated by newer kernels only.
    LongNop,
    /// Executed out of line in a single step.
    Stepped,
    /// Not to be probed at all.
    Refused,
}

impl Handling {
    /// Whether a kernel single-steps it, where it can be probed. `long_nops` says whether it emulates `nop`s of several
    /// bytes.
    #[must_use]
    pub fn is_single_stepped(self, long_nops: bool) -> bool {
        match self {
            Self::Emulated => false,
            Self::LongNop => !long_nops,
            Self::Stepped | Self::Refused => true,
        }
    }
}

/// Whether the kernel refuses a uprobe on it: one with a `lock` or an old segment prefix, which a
/// `notrack` is too (`is_prefix_bad` in `arch/x86/kernel/uprobes.c`), or one that its decoder does not know, as AMD's FMA4
/// (`arch/x86/lib/x86-opcode-map.txt`).
pub(super) fn is_refused(instruction: &Instruction) -> bool {
    let segment = matches!(
        instruction.segment_prefix(),
        Register::ES | Register::CS | Register::SS | Register::DS
    );
    let is_unknown = || instruction.cpuid_features().contains(&CpuidFeature::FMA4);
    instruction.has_lock_prefix() || segment || is_unknown()
}

/// What the kernel does with it. Of branches with an operand-size prefix see [`is_16_bit_branch`].
pub(super) fn handling(instruction: &Instruction) -> Handling {
    if is_refused(instruction) {
        return Handling::Refused;
    }
    // The kernel neither emulates nor accepts branches with an operand-size prefix. Other prefixes
    // are not worth telling apart.
    let bare = |lengths: &[usize]| {
        instruction.op0_kind() == OpKind::NearBranch64 && lengths.contains(&instruction.len())
    };
    match instruction.mnemonic() {
        // 90, however prefixed, `pause` among them.
        Mnemonic::Pause => Handling::Emulated,
        Mnemonic::Nop if instruction.op_count() == 0 => Handling::Emulated,
        Mnemonic::Nop => Handling::LongNop,
        // Only 50..57, alone or behind the prefix of r8..r15: at most two bytes.
        Mnemonic::Push if instruction.op0_register().is_gpr64() && instruction.len() <= 2 => {
            let plain = if instruction.op0_register().number() >= 8 {
                2
            } else {
                1
            };
            if instruction.len() == plain {
                Handling::Emulated
            } else {
                Handling::Stepped
            }
        }
        Mnemonic::Call | Mnemonic::Jmp if bare(&[2, 5]) => Handling::Emulated,
        _ if instruction.is_jcc_short_or_near() && bare(&[2, 6]) => Handling::Emulated,
        _ => Handling::Stepped,
    }
}

/// Whether it is a direct branch with an operand-size prefix, on which the kernel accepts no uprobe
/// (`branch_setup_xol_ops`): calls of `__tls_get_addr` have one. `bytes` are the instruction's own.
pub(super) fn is_16_bit_branch(instruction: &Instruction, bytes: &[u8]) -> bool {
    let direct = matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Jmp)
        || instruction.is_jcc_short_or_near();
    let is_prefix = |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    direct
        && instruction.op0_kind() == OpKind::NearBranch64
        && bytes.iter().take_while(is_prefix).any(|&byte| byte == 0x66)
}
