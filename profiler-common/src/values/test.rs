//! What most conditions are: one number, in a register or at a distance from where one leads, compared with a constant.
//!
//! Such a condition is decided without the interpreter and its working memory, so that a hit that it rejects costs little
//! more than an empty program. It says what its plan would, which it is made of.

use super::{Instruction, Kind, Operation, ReadPlan, compare::holds};
use crate::assert_layout;

/// A condition on one number.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Test {
    /// [`Test::NONE`], [`Test::REGISTER`] or [`Test::MEMORY`].
    pub of: u8,
    /// The register, by its DWARF number, below 16.
    pub register: u8,
    /// How many bits of the word the number has, 1 to 64.
    pub bits: u8,
    /// Bytes that are read of memory: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether the number's highest bit is its sign: 1, or 0.
    pub is_signed: u8,
    /// A [`Kind`] as a number: how it compares.
    pub kind: u8,
    /// A [`super::Comparison`] as a number.
    pub comparison: u8,
    /// Always 0.
    pub zero: u8,
    /// What is added to the register; negative ones in two's complement.
    pub offset: u64,
    /// What the number is compared with.
    pub right: u64,
}

assert_layout!(Test, size 24,
    of at 0, register at 1, bits at 2, size at 3, is_signed at 4, kind at 5, comparison at 6, zero at 7, offset at 8,
    right at 16);

impl Test {
    /// There is no such test.
    pub const NONE: u8 = 0;
    /// The number is in the register, with the offset added.
    pub const REGISTER: u8 = 1;
    /// It is in memory, at the register plus the offset.
    pub const MEMORY: u8 = 2;

    /// The test that a plan stands for; `None` of one that does more.
    #[must_use]
    pub fn of_plan(plan: &ReadPlan) -> Option<Self> {
        let mut instructions = plan.instructions.iter().peekable();
        let next = instructions.next()?;
        let is = |instruction: &Instruction, operation: Operation| instruction.operation == operation as u8;
        if !is(next, Operation::Register) || next.register >= 16 {
            return None;
        }
        let mut test = Self {
            of: Self::REGISTER,
            register: next.register,
            bits: 64,
            offset: next.immediate,
            ..Self::default()
        };
        while let Some(add) = instructions.next_if(|next| is(next, Operation::AddConstant)) {
            test.offset = test.offset.wrapping_add(add.immediate);
        }
        if let Some(load) = instructions.next_if(|next| is(next, Operation::Load)) {
            test.of = Self::MEMORY;
            test.size = load.size;
        }
        let extends =
            |next: &&Instruction| is(next, Operation::SignExtend) || is(next, Operation::ZeroExtend);
        if let Some(extend) = instructions.next_if(extends) {
            if !(1..=64).contains(&extend.size) {
                return None;
            }
            test.bits = extend.size;
            test.is_signed = u8::from(is(extend, Operation::SignExtend));
        }
        let constant = instructions.next().filter(|next| is(next, Operation::Constant))?;
        let require = instructions.next().filter(|next| is(next, Operation::Require))?;
        let is_whole = [Kind::Unsigned, Kind::Signed]
            .iter()
            .any(|kind| require.size == *kind as u8);
        if !is_whole || !instructions.next().is_none_or(|next| is(next, Operation::End)) {
            return None;
        }
        test.right = constant.immediate;
        test.kind = require.size;
        test.comparison = require.comparison;
        Some(test)
    }

    /// Whether it holds, given the word that the register, or memory, has.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn holds(&self, word: u64) -> bool {
        let above = 64u8.wrapping_sub(self.bits) & 63;
        let left = word << above;
        let number = if self.is_signed == 0 {
            left >> above
        } else {
            (left.cast_signed() >> above).cast_unsigned()
        };
        holds(self.kind, self.comparison, number, self.right)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{vec, vec::Vec};

    use proptest::prelude::*;

    use super::*;
    use crate::values::{OUTPUT_BYTES, Outcome, State, Thread, run};

    /// One whose registers and memory are words that follow from where they are.
    struct Made;

    impl Made {
        const fn at(place: u64) -> u64 {
            place.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
        }
    }

    impl Thread for Made {
        fn register(&mut self, number: u8) -> u64 {
            Self::at(number.into())
        }

        fn thread_pointer(&mut self) -> u64 {
            0
        }

        fn word(&mut self, address: u64, size: u8) -> Option<u64> {
            Some(Self::at(address) >> (64 - 8 * u32::from(size)))
        }

        fn copy(&mut self, _: u64, _: &mut [u8; OUTPUT_BYTES], _: u32, _: u32) -> bool {
            false
        }

        fn copy_string(&mut self, _: u64, _: &mut [u8; OUTPUT_BYTES], _: u32, _: u32) -> Option<u32> {
            None
        }
    }

    fn decide(test: &Test) -> bool {
        let register = Made.register(test.register).wrapping_add(test.offset);
        test.holds(match test.of {
            Test::MEMORY => Made.word(register, test.size).unwrap(),
            _ => register,
        })
    }

    fn instruction() -> impl Strategy<Value = Instruction> {
        let operations = [
            Operation::End,
            Operation::Constant,
            Operation::Register,
            Operation::AddConstant,
            Operation::Load,
            Operation::SignExtend,
            Operation::ZeroExtend,
            Operation::Require,
            Operation::Negate,
        ];
        let sizes = prop::sample::select(vec![0, 1, 2, 3, 4, 8, 16, 31, 32, 64]);
        let immediate = prop_oneof![0_u64..4, any::<u64>()];
        (
            prop::sample::select(operations.to_vec()),
            sizes,
            0_u8..18,
            0_u8..6,
            immediate,
        )
            .prop_map(|(operation, size, register, comparison, immediate)| Instruction {
                comparison,
                ..Instruction::new(operation)
                    .size(size)
                    .register(register)
                    .immediate(immediate)
            })
    }

    /// Of the form that is looked for, each part there or not.
    fn condition() -> impl Strategy<Value = Vec<Instruction>> {
        let with = |operations: &'static [Operation], sizes: &'static [u8]| {
            (
                instruction(),
                prop::sample::select(operations),
                prop::sample::select(sizes),
            )
                .prop_map(|(other, operation, size)| Instruction {
                    operation: operation as u8,
                    size,
                    ..other
                })
        };
        let begin = with(&[Operation::Register], &[0]);
        let add = prop::option::of(with(&[Operation::AddConstant], &[0]));
        let load = prop::option::of(with(&[Operation::Load], &[1, 2, 4, 8]));
        let extend = prop::option::of(with(
            &[Operation::SignExtend, Operation::ZeroExtend],
            &[1, 7, 8, 16, 32, 63, 64],
        ));
        let constant = with(&[Operation::Constant], &[0]);
        let require = with(&[Operation::Require], &[0, 1]);
        (begin, add, load, extend, constant, require).prop_map(
            |(begin, add, load, extend, constant, require)| {
                let middle = [Some(begin), add, load, extend, Some(constant), Some(require)];
                middle.into_iter().flatten().collect()
            },
        )
    }

    fn says_what_its_plan_does(instructions: &[Instruction]) -> Option<bool> {
        let plan = ReadPlan::new(instructions).unwrap();
        let test = Test::of_plan(&plan)?;
        let mut state = State::START;
        run(&plan, &mut state, &mut Made);
        assert_eq!(
            decide(&test),
            state.outcome == Outcome::Ok as u8,
            "{instructions:?}"
        );
        Some(true)
    }

    proptest! {
        #[test]
        fn a_condition_is_decided_as_by_the_interpreter(instructions in condition()) {
            let is_of_form = instructions[0].register < 16;
            prop_assert_eq!(says_what_its_plan_does(&instructions).is_some(), is_of_form);
        }

        #[test]
        fn whatever_is_taken_for_one_is_decided_so(instructions in prop::collection::vec(instruction(), 0..7)) {
            says_what_its_plan_does(&instructions);
        }
    }

    #[test]
    fn numbers_of_all_sizes_have_their_sign() {
        let test = |bits, is_signed, right: i64| Test {
            bits,
            is_signed,
            kind: if is_signed == 1 {
                Kind::Signed
            } else {
                Kind::Unsigned
            } as u8,
            right: right.cast_unsigned(),
            ..Test::default()
        };
        assert!(test(8, 1, -1).holds(0x1234_56ff));
        assert!(!test(8, 0, -1).holds(0x1234_56ff));
        assert!(test(8, 0, 0xff).holds(0x1234_56ff));
        assert!(test(64, 1, -2).holds(u64::MAX - 1));
        assert!(test(32, 1, 7).holds(0xffff_ffff_0000_0007));
    }
}
