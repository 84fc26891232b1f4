//! The instructions of one value.

use super::{Instruction, MAX_INSTRUCTIONS};
use crate::assert_layout;

/// How one value is read. What follows the instructions is [`super::Operation::End`].
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadPlan {
    /// The instructions; those that are not needed are zero, which is [`super::Operation::End`].
    pub instructions: [Instruction; MAX_INSTRUCTIONS],
}

assert_layout!(ReadPlan, size 512, instructions at 0);

impl ReadPlan {
    /// A plan of these instructions, unless they are more than [`MAX_INSTRUCTIONS`].
    #[must_use]
    pub fn new(instructions: &[Instruction]) -> Option<Self> {
        let mut plan = Self {
            instructions: [Instruction::default(); MAX_INSTRUCTIONS],
        };
        plan.instructions
            .get_mut(..instructions.len())?
            .copy_from_slice(instructions);
        Some(plan)
    }

    /// Whether it reads more than registers.
    #[must_use]
    pub fn reads_memory(&self) -> bool {
        use super::Operation::{Copy, CopySlice, CopyString, Load, TryString};
        let reading = [Load, Copy, CopyString, CopySlice, TryString].map(|operation| operation as u8);
        let mut instructions = self.instructions.iter();
        instructions.any(|instruction| reading.contains(&instruction.operation))
    }
}
