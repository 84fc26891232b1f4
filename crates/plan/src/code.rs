//! A function's machine code, decoded once.

use std::ops::Range;

use iced_x86::{ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use profiler_common::condition::Condition;

/// Largest function that is decoded.
pub(super) const MAX_CODE_BYTES: usize = 4 << 20;

/// Most bytes that one name without a size stands for, where neither another name nor unwind rows bound it.
const MAX_REACH_BYTES: usize = 16 << 10;

/// Why a function's code cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodeError {
    /// No symbol says how long it is.
    #[error("its size is not known")]
    NoSize,
    /// The file does not hold all of its bytes.
    #[error("its code is not in the file")]
    NotInFile,
    /// More code than is decoded for one function.
    #[error("it is {0} bytes long, too large to decode")]
    TooLarge(u64),
    /// More parts than are looked at for one function.
    #[error("its code is split into more than {0} parts")]
    TooManyParts(usize),
    /// Its last instruction leads into what follows.
    #[error("it falls through into the next function, which no probe can follow")]
    FallsThrough,
    /// Bytes that are no instruction.
    #[error("the bytes at +{0:#x} are not a known instruction")]
    Undecodable(u64),
    /// A branch that the decoded instructions cannot be right about.
    #[error("a branch at +{0:#x} leads into the middle of an instruction")]
    MisalignedBranch(u64),
    /// A branch that leaves the function or goes on: a probe on it cannot tell which.
    #[error("it may end in a conditional jump to another function at +{0:#x}, which no probe can follow")]
    ConditionalTailJump(u64),
}

/// Decoded code of one contiguous range.
pub struct Code {
    range: Range<u64>,
    instructions: Vec<Instruction>,
    /// Where its direct branches lead, inside and outside, sorted.
    targets: Vec<u64>,
}

impl Code {
    /// Decodes `bytes`, which run at `address`, to the last.
    ///
    /// # Errors
    /// What does not decode completely, and code with a branch between instruction boundaries:
    /// where one boundary is in doubt, none is to be trusted with a probe.
    pub fn decode(bytes: &[u8], address: u64) -> Result<Self, CodeError> {
        if bytes.is_empty() {
            return Err(CodeError::NoSize);
        }
        if bytes.len() > MAX_CODE_BYTES {
            return Err(CodeError::TooLarge(bytes.len() as u64));
        }
        let range = address
            ..address
                .checked_add(bytes.len() as u64)
                .ok_or(CodeError::NotInFile)?;
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let mut instructions = Vec::with_capacity(bytes.len() / 4);
        let mut targets = Vec::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err(CodeError::Undecodable(instruction.ip() - address));
            }
            if let Some(target) = jump_target(&instruction) {
                targets.push(target);
            }
            instructions.push(instruction);
        }
        targets.sort_unstable();
        targets.dedup();
        let code = Self {
            range,
            instructions,
            targets,
        };
        for instruction in &code.instructions {
            if let Some(target) = direct_target(instruction)
                && code.range.contains(&target)
                && !code.is_boundary(target)
            {
                return Err(CodeError::MisalignedBranch(instruction.ip() - address));
            }
        }
        Ok(code)
    }

    /// The addresses that were decoded.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The instructions, in order.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Whether a direct branch of this code leads to `address`.
    #[must_use]
    pub fn is_target(&self, address: u64) -> bool {
        self.targets.binary_search(&address).is_ok()
    }

    /// Whether a direct branch of this code leads into other code.
    #[must_use]
    pub fn branches_into(&self, other: &Self) -> bool {
        let after = self.targets.partition_point(|&target| target < other.range.start);
        self.targets
            .get(after)
            .is_some_and(|target| other.range.contains(target))
    }

    /// The number of the instruction at `address`.
    #[must_use]
    pub fn position(&self, address: u64) -> Option<usize> {
        self.instructions
            .binary_search_by_key(&address, Instruction::ip)
            .ok()
    }

    /// Whether an instruction begins at `address`, or does so once its `lock` is jumped over, which
    /// C libraries do where there is one thread only.
    fn is_boundary(&self, address: u64) -> bool {
        self.position(address).is_some()
            || address
                .checked_sub(1)
                .and_then(|before| self.position(before))
                .is_some_and(|position| self.instructions[position].has_lock_prefix())
    }
}

/// Where a direct branch or call leads.
#[must_use]
pub fn direct_target(instruction: &Instruction) -> Option<u64> {
    let near = matches!(instruction.op0_kind(), OpKind::NearBranch64);
    let branches = matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::XbeginXabortXend
    );
    (near && branches).then(|| instruction.near_branch_target())
}

/// Where a direct jump leads, be it taken always or not.
#[must_use]
pub fn jump_target(instruction: &Instruction) -> Option<u64> {
    direct_target(instruction).filter(|_| instruction.flow_control() != FlowControl::Call)
}

/// The end of code of no known size that begins at an address: behind the first instruction that does not go on, and that no jump
/// before it leads beyond. Hand-written assembly has often neither a size nor unwind rows. `bytes` may go on with other code.
#[must_use]
pub fn reach(bytes: &[u8], address: u64) -> u64 {
    let bytes = &bytes[..bytes.len().min(MAX_REACH_BYTES)];
    let limit = address.saturating_add(bytes.len() as u64);
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut farthest = address;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return instruction.ip();
        }
        if let Some(target) = jump_target(&instruction) {
            // One that leads far off leaves for other code.
            farthest = farthest.max(if target < limit { target } else { address });
        }
        if !goes_on(&instruction) && farthest < instruction.next_ip() {
            return instruction.next_ip();
        }
    }
    limit
}

/// Whether the next instruction may run after this one, what it calls included.
#[must_use]
pub fn goes_on(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    )
}

/// The instruction's name as assemblers write it.
#[must_use]
pub fn mnemonic(instruction: &Instruction) -> String {
    match instruction.mnemonic() {
        Mnemonic::INVALID => "?".to_owned(),
        mnemonic => format!("{mnemonic:?}").to_lowercase(),
    }
}

/// When a conditional jump is taken, where the flags alone say so.
#[must_use]
pub fn condition(instruction: &Instruction) -> Option<Condition> {
    if !instruction.is_jcc_short_or_near() {
        return None;
    }
    let condition = match instruction.condition_code() {
        ConditionCode::o => Condition::OVERFLOW,
        ConditionCode::no => Condition::NO_OVERFLOW,
        ConditionCode::b => Condition::BELOW,
        ConditionCode::ae => Condition::ABOVE_OR_EQUAL,
        ConditionCode::e => Condition::EQUAL,
        ConditionCode::ne => Condition::NOT_EQUAL,
        ConditionCode::be => Condition::BELOW_OR_EQUAL,
        ConditionCode::a => Condition::ABOVE,
        ConditionCode::s => Condition::SIGN,
        ConditionCode::ns => Condition::NO_SIGN,
        ConditionCode::p => Condition::PARITY,
        ConditionCode::np => Condition::NO_PARITY,
        ConditionCode::l => Condition::LESS,
        ConditionCode::ge => Condition::GREATER_OR_EQUAL,
        ConditionCode::le => Condition::LESS_OR_EQUAL,
        ConditionCode::g => Condition::GREATER,
        ConditionCode::None => return None,
    };
    Some(condition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn incomplete_code_is_refused() {
        assert_eq!(Code::decode(&[], 0).err(), Some(CodeError::NoSize));
        // A call cut short.
        assert_eq!(
            Code::decode(&[0x90, 0xe8, 0], 0x1000).err(),
            Some(CodeError::Undecodable(1))
        );
        // jmp into the middle of the next instruction (mov eax, imm32).
        let code = [0xeb, 0x01, 0xb8, 0x90, 0x90, 0x90, 0x90];
        assert_eq!(
            Code::decode(&code, 0x1000).err(),
            Some(CodeError::MisalignedBranch(0))
        );
        // je over the lock prefix of cmpxchg [rdi], ecx.
        assert!(Code::decode(&[0x74, 0x01, 0xf0, 0x0f, 0xb1, 0x0f, 0xc3], 0x1000).is_ok());
    }

    #[test]
    fn wide_vectors_decode() {
        // vmovdqu64 zmm0, [rdi]; ret
        assert!(Code::decode(&[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x07, 0xc3], 0).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), address: u64) {
            if let Ok(code) = Code::decode(&bytes, address) {
                let total: usize = code.instructions().iter().map(Instruction::len).sum();
                prop_assert_eq!(total, bytes.len());
            }
        }
    }
}
