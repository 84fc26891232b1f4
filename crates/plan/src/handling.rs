//! What the kernel does with an instruction that a uprobe is on.

use iced_x86::{CpuidFeature, EncodingKind, Instruction, Mnemonic, OpKind, Register};

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
    instruction.has_lock_prefix() || segment || is_unknown() || is_misread(instruction)
}

/// Whether the kernel takes it for another instruction, and refuses it or, worse, changes what the target computes or ends it: it
/// looks at the last byte of the opcode alone, in the table of opcodes of one byte, also where a VEX or EVEX prefix says another table
/// (`OPCODE1` in `arch/x86/kernel/uprobes.c`; each opcode seen on Linux 6.18). So `vpbroadcastb` (7A) is taken for `jp` and is never
/// done, as are `vpcmpeqb` (74) and `vpor` (EB); behind `vcmpps` (C2), taken for `ret`, the instruction pointer is left in the copy
/// that was stepped. `vpxor` (EF), taken for `out`, is refused.
fn is_misread(instruction: &Instruction) -> bool {
    let has_table = matches!(
        instruction.code().encoding(),
        EncodingKind::VEX | EncodingKind::EVEX | EncodingKind::MVEX | EncodingKind::XOP
    );
    let is_emulated = |opcode| matches!(opcode, 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb);
    // Calls, returns, jumps and `popf`, behind which it mends the instruction pointer, the stack or the flags.
    let is_mended = |opcode| matches!(opcode, 0x9d | 0xc2 | 0xc3 | 0xca | 0xcb | 0xff);
    let is_refused = |opcode| {
        matches!(
            opcode,
            0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f | 0x60..=0x62 | 0x6c..=0x6f | 0x82
            | 0x8e | 0x9a | 0xcc..=0xcf | 0xd4..=0xd6 | 0xe4..=0xe7 | 0xea | 0xec..=0xef | 0xf1 | 0xf4 | 0xfa | 0xfb
        )
    };
    let opcode = instruction.op_code().op_code() & 0xff;
    has_table && (is_emulated(opcode) || is_mended(opcode) || is_refused(opcode))
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

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn of(bytes: &[u8]) -> Handling {
        handling(&Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode())
    }

    #[test]
    fn instructions_that_the_kernel_takes_for_others_are_not_probed() {
        for misread in [
            // vpbroadcastb zmm16, esi
            &[0x62, 0xf2, 0x7d, 0x48, 0x7a, 0xc6][..],
            // vpor, vpsubsb, vpminsw ymm2, ymm1, ymm0
            &[0xc5, 0xf5, 0xeb, 0xd0],
            &[0xc5, 0xf5, 0xe8, 0xd0],
            &[0xc5, 0xf5, 0xea, 0xd0],
            // vcmpltps ymm2, ymm1, ymm0
            &[0xc5, 0xf4, 0xc2, 0xd0, 0x01],
            // vzeroupper
            &[0xc5, 0xf8, 0x77],
            // vpxor xmm0, xmm0, xmm0
            &[0xc5, 0xf9, 0xef, 0xc0],
            // vfmsub132ps ymm2, ymm1, ymm0
            &[0xc4, 0xe2, 0x75, 0x9a, 0xd0],
        ] {
            assert_eq!(of(misread), Handling::Refused, "{misread:x?}");
        }
        for stepped in [
            // cmpltps xmm2, xmm0: without a prefix that says the table
            &[0x0f, 0xc2, 0xd0, 0x01][..],
            // vxorps xmm0, xmm0, xmm0: no push, as it is longer
            &[0xc5, 0xf8, 0x57, 0xc0],
            // vmovups ymm0, [rdi]
            &[0xc5, 0xfc, 0x10, 0x07],
        ] {
            assert_eq!(of(stepped), Handling::Stepped, "{stepped:x?}");
        }
        assert_eq!(of(&[0x74, 0x02]), Handling::Emulated);
    }
}
