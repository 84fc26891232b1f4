//! Bytecode under construction.

use profiler_common::values::{Instruction, MAX_INSTRUCTIONS, OTHER_VARIANT, Operation, STACK_SLOTS};

use super::refusal::{Refusal, unsupported};

/// Instructions of a computation that is built; the plan has room for fewer, but parts may be left out yet.
const MAX_LENGTH: usize = 4 * MAX_INSTRUCTIONS;

/// Instructions that leave one word on the stack, or are on their way to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Code {
    instructions: Vec<Instruction>,
    /// Where a jump leads to at last: what comes after it cannot be joined with what is before.
    joined: usize,
}

impl Code {
    pub fn constant(word: u64) -> Self {
        let mut code = Self::default();
        code.push(Instruction::new(Operation::Constant).immediate(word));
        code
    }

    /// A register, by its DWARF number, plus an offset.
    pub fn register(number: u8, offset: i64) -> Self {
        let mut code = Self::default();
        let register = Instruction::new(Operation::Register).register(number);
        code.push(register.immediate(offset.cast_unsigned()));
        code
    }

    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Whether it leaves the same whatever registers and memory hold.
    pub fn is_constant(&self) -> bool {
        const OF_TARGET: [Operation; 3] = [Operation::Register, Operation::ThreadPointer, Operation::Load];
        let of_target = |operation: u8| OF_TARGET.iter().any(|known| *known as u8 == operation);
        !self
            .instructions
            .iter()
            .any(|instruction| of_target(instruction.operation))
    }

    pub fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    pub fn operation(&mut self, operation: Operation) {
        self.push(Instruction::new(operation));
    }

    /// Adds to the word on top.
    pub fn add(&mut self, offset: u64) {
        if offset == 0 {
            return;
        }
        let is_joined = self.instructions.len() == self.joined;
        if let Some(last) = self.instructions.last_mut()
            && !is_joined
            && (last.operation == Operation::Constant as u8
                || last.operation == Operation::Register as u8
                || last.operation == Operation::ThreadPointer as u8
                || last.operation == Operation::AddConstant as u8)
        {
            last.immediate = last.immediate.wrapping_add(offset);
            return;
        }
        self.push(Instruction::new(Operation::AddConstant).immediate(offset));
    }

    /// Stops unless the number at so many bytes from the address on top, of so many bytes, is one of these; or is none.
    pub fn require_number(&mut self, (offset, width): (u64, u8), numbers: &[u64], is_one: bool) {
        self.operation(Operation::Pick);
        if offset != 0 {
            self.push(Instruction::new(Operation::AddConstant).immediate(offset));
        }
        self.load(width);
        // What is left is 0 where the plan goes on.
        if let ([number], true) = (numbers, is_one) {
            self.push(Instruction::new(Operation::Constant).immediate(*number));
            self.operation(Operation::Subtract);
        } else {
            self.push(Instruction::new(Operation::Constant));
            for number in numbers {
                self.push(Instruction::new(Operation::Pick).length(1));
                self.push(Instruction::new(Operation::Constant).immediate(*number));
                self.operation(Operation::Equal);
                self.operation(Operation::Or);
            }
            self.operation(Operation::Swap);
            self.operation(Operation::Drop);
            if is_one {
                self.push(Instruction::new(Operation::Constant));
                self.operation(Operation::Equal);
            }
        }
        self.push(Instruction::new(Operation::JumpIfZero).length(1));
        self.push(Instruction::new(Operation::Absent).immediate(OTHER_VARIANT));
        self.join();
    }

    /// Replaces the address on top by what is there.
    pub fn load(&mut self, size: u8) {
        self.push(Instruction::new(Operation::Load).size(size));
    }

    pub fn shift_right(&mut self, bits: u64) {
        if bits != 0 {
            self.push(Instruction::new(Operation::Constant).immediate(bits));
            self.operation(Operation::ShiftRight);
        }
    }

    /// Extends the low bits of the word on top to all of it.
    pub fn extend(&mut self, bits: u64, signed: bool) {
        if let Ok(size @ 1..64) = u8::try_from(bits) {
            let operation = if signed {
                Operation::SignExtend
            } else {
                Operation::ZeroExtend
            };
            self.push(Instruction::new(operation).size(size));
        }
    }

    pub fn append(&mut self, other: &Self) {
        let offset = self.instructions.len();
        if other.joined > 0 {
            self.joined = self.joined.max(offset + other.joined);
        }
        self.instructions.extend_from_slice(&other.instructions);
    }

    /// Where jumps that are pushed before lead to.
    pub fn join(&mut self) {
        self.joined = self.instructions.len();
    }

    /// Takes away the last instruction where it pushes a constant.
    pub fn take_constant(&mut self) -> Option<u64> {
        if self.instructions.len() == self.joined {
            return None;
        }
        let last = self.instructions.last()?;
        (last.operation == Operation::Constant as u8).then_some(last.immediate)?;
        self.instructions.pop().map(|last| last.immediate)
    }

    /// # Errors
    /// Where it is longer than any plan.
    pub fn check_length(&self) -> Result<(), Refusal> {
        if self.instructions.len() > MAX_LENGTH {
            return unsupported("a location with too many operations");
        }
        Ok(())
    }
}

/// Checks that a plan of these instructions stays within the stack.
///
/// Words are counted as if no jump was taken: of what a jump passes over, both sides leave as many.
///
/// # Errors
/// Where it does not.
pub(super) fn check_stack(instructions: &[Instruction]) -> Result<(), Refusal> {
    let mut depth = 0_usize;
    let mut skipped_to = Vec::new();
    for (index, instruction) in instructions.iter().enumerate() {
        // The word that one side of a jump left is the one that the other side leaves.
        skipped_to.retain(|&(end, at_jump)| {
            if end == index {
                depth = at_jump;
            }
            end > index
        });
        let operation = instruction.operation;
        let is = |operations: &[Operation]| operations.iter().any(|one| *one as u8 == operation);
        let (pops, pushes) = if is(&[Operation::Constant, Operation::Register, Operation::ThreadPointer]) {
            (0, 1)
        } else if is(&[
            Operation::AddConstant,
            Operation::Negate,
            Operation::Not,
            Operation::Absolute,
            Operation::SignExtend,
            Operation::ZeroExtend,
            Operation::Load,
            Operation::Match,
            Operation::TryString,
        ]) {
            (1, 1)
        } else if is(&[
            Operation::Drop,
            Operation::Store,
            Operation::Copy,
            Operation::CopyString,
            Operation::JumpIfZero,
        ]) {
            (1, 0)
        } else if is(&[Operation::CopySlice, Operation::Require]) {
            (2, 0)
        } else if is(&[
            Operation::End,
            Operation::Jump,
            Operation::OptimizedOut,
            Operation::Absent,
        ]) {
            (0, 0)
        } else if is(&[Operation::Pick]) {
            let needed = instruction.length as usize + 1;
            (needed, needed + 1)
        } else if is(&[Operation::Swap]) {
            (2, 2)
        } else if is(&[Operation::Rotate]) {
            (3, 3)
        } else {
            (2, 1)
        };
        let Some(left) = depth.checked_sub(pops) else {
            return Err(Refusal::Damaged(
                "an expression pops more values than it pushed".into(),
            ));
        };
        depth = left + pushes;
        if depth > STACK_SLOTS {
            return unsupported("a location that needs too deep a stack");
        }
        if is(&[Operation::JumpIfZero, Operation::Jump]) {
            skipped_to.push((index + 1 + instruction.length as usize, depth));
        }
    }
    Ok(())
}
