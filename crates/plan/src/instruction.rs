//! One instruction to probe.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use profiler_common::instruction::Action;

use super::{
    action::entry_action,
    code::mnemonic,
    functions::ModuleIndex,
    handling::{Handling, handling, is_16_bit_branch},
    hazards::KernelAbility,
};

/// The longest instruction, in bytes.
const MAX_BYTES: u64 = 15;

/// The `nop` that Linux from 6.18 on replaces by a call, where a uprobe is on it. The call writes below the stack pointer, where
/// functions that call no others have variables (the red zone of the System V ABI).
const REPLACED_NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];

/// An instruction, and what the kernel and programs can do with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstructionSite {
    /// In the file's address space.
    pub address: u64,
    /// Where in the file it is.
    pub file_offset: u64,
    /// Its length in bytes.
    pub length: u8,
    /// Its name.
    pub mnemonic: String,
    /// What the kernel does with it under a uprobe; never [`Handling::Refused`].
    pub handling: Handling,
    /// What it does, for programs that can do it themselves.
    pub action: Action,
}

impl InstructionSite {
    /// The instruction at an address, which is known to be one's first.
    ///
    /// # Errors
    /// Where there is none, or none that can be probed.
    pub fn find(module: &ModuleIndex, address: u64) -> Result<Self, Obstacle> {
        let end = module.function_at(address).map_or(u64::MAX, |function| {
            function.address().saturating_add(function.size())
        });
        Ok(instruction_at(module, address, end)?.1)
    }

    /// The address behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.address.wrapping_add(self.length.into())
    }

    /// Whether a kernel would single-step it.
    #[must_use]
    pub fn is_single_stepped(&self, ability: KernelAbility) -> bool {
        self.handling.is_single_stepped(ability.long_nops)
    }
}

/// Why an instruction cannot be probed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Obstacle {
    /// The kernel accepts no uprobe on it.
    #[error(
        "the kernel accepts no probe on the {mnemonic} at {address:#x}: it refuses its prefix, does not know the instruction, or would take it for another"
    )]
    Refused {
        /// In the file's address space.
        address: u64,
        /// Its name.
        mnemonic: String,
    },
    /// The kernel would write a call over it.
    #[error(
        "the kernel may replace the nop at {address:#x} by a call, which overwrites stack memory that the function may use: probe another line"
    )]
    Replaced {
        /// In the file's address space.
        address: u64,
    },
    /// There is no such code.
    #[error("the instruction at {0:#x} is not in the file")]
    NotInFile(u64),
}

/// The instruction at an address, which is known to be one's first; it ends at `end` at the latest.
pub(super) fn instruction_at(
    module: &ModuleIndex,
    address: u64,
    end: u64,
) -> Result<(Instruction, InstructionSite), Obstacle> {
    let missing = Obstacle::NotInFile(address);
    let end = address.saturating_add(MAX_BYTES).min(end);
    let (Some(bytes), Some(file_offset)) = (module.code(address..end), module.offset_of(address)) else {
        return Err(missing);
    };
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    let length = u8::try_from(instruction.len()).unwrap_or(0);
    if instruction.is_invalid() || length == 0 {
        return Err(missing);
    }
    let mnemonic = mnemonic(&instruction);
    let handling = handling(&instruction);
    if handling == Handling::Refused || is_16_bit_branch(&instruction, &bytes[..length.into()]) {
        return Err(Obstacle::Refused { address, mnemonic });
    }
    if bytes.starts_with(&REPLACED_NOP) {
        return Err(Obstacle::Replaced { address });
    }
    let site = InstructionSite {
        address,
        file_offset,
        length,
        mnemonic,
        handling,
        action: entry_action(&instruction),
    };
    Ok((instruction, site))
}
