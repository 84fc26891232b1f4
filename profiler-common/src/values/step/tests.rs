extern crate std;

use super::*;
use crate::values::{Comparison, Kind};
use proptest::prelude::*;
use std::{vec, vec::Vec};

/// A thread with registers of 100 times their number, and memory from 0x1000 on.
struct Fake(Vec<u8>);

const BASE: u64 = 0x1000;

impl Fake {
    fn slice(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        self.0.get(start..start.checked_add(length)?)
    }
}

impl Thread for Fake {
    fn register(&mut self, number: u8) -> u64 {
        u64::from(number) * 100
    }

    fn thread_pointer(&mut self) -> u64 {
        0x7000
    }

    fn word(&mut self, address: u64, size: u8) -> Option<u64> {
        let mut word = [0; 8];
        let size = usize::from(size);
        word.get_mut(..size)?.copy_from_slice(self.slice(address, size)?);
        Some(u64::from_le_bytes(word))
    }

    fn copy(&mut self, address: u64, output: &mut [u8; OUTPUT_BYTES], at: u32, length: u32) -> bool {
        assert!((at as usize) < MAX_BYTES && length as usize <= MAX_BYTES);
        let Some(bytes) = self.slice(address, length as usize) else {
            return false;
        };
        output[at as usize..][..bytes.len()].copy_from_slice(bytes);
        true
    }

    fn copy_string(
        &mut self,
        address: u64,
        output: &mut [u8; OUTPUT_BYTES],
        at: u32,
        length: u32,
    ) -> Option<u32> {
        assert!((at as usize) < MAX_BYTES && length as usize <= MAX_BYTES);
        for index in 0..length {
            let last = index + 1 == length;
            let byte = if last {
                0
            } else {
                self.slice(address + u64::from(index), 1)?[0]
            };
            output[(at + index) as usize] = byte;
            if byte == 0 {
                return Some(index + 1);
            }
        }
        Some(0)
    }
}

fn read(instructions: &[Instruction]) -> State {
    let plan = ReadPlan::new(instructions).unwrap();
    let mut state = State::START;
    let mut memory = b"hello\0world\xff".to_vec();
    memory.resize(512, 7);
    run(&plan, &mut state, &mut Fake(memory));
    state
}

fn op(operation: Operation) -> Instruction {
    Instruction::new(operation)
}

fn constant(word: i64) -> Instruction {
    op(Operation::Constant).immediate(word.cast_unsigned())
}

/// What a plan leaves, as a word.
fn computes(instructions: &[Instruction]) -> u64 {
    let mut instructions = instructions.to_vec();
    instructions.push(op(Operation::Store).size(8));
    let state = read(&instructions);
    assert_eq!(state.outcome, Outcome::Ok as u8);
    assert_eq!(state.depth, 0);
    u64::from_le_bytes(state.bytes().try_into().unwrap())
}

#[test]
fn registers_and_memory() {
    let register = op(Operation::Register).register(3).immediate(7);
    assert_eq!(computes(&[register]), 307);
    assert_eq!(computes(&[op(Operation::ThreadPointer).immediate(8)]), 0x7008);
    let hell = u64::from(u32::from_le_bytes(*b"hell"));
    assert_eq!(computes(&[constant(0x1000), op(Operation::Load).size(4)]), hell);
    let state = read(&[constant(0xfff), op(Operation::Load).size(4)]);
    assert_eq!((state.outcome, state.fault), (Outcome::Unreadable as u8, 0xfff));
}

#[test]
fn output_is_assembled() {
    let state = read(&[
        constant(0x1000),
        op(Operation::CopyString).length(20),
        constant(-1),
        op(Operation::Store).size(2),
        constant(0x1006),
        op(Operation::Copy).length(3),
        constant(0x1006),
        constant(2),
        op(Operation::CopySlice).length(100),
        constant(0x1006),
        constant(100),
        op(Operation::CopySlice).length(1),
    ]);
    assert_eq!(state.bytes(), b"hello\0\xff\xffworwow");
    let cut = read(&[constant(0x1000), op(Operation::CopyString).length(3)]);
    assert_eq!(cut.bytes(), b"he\0");
}

#[test]
fn output_is_bounded() {
    let two = [constant(0x1000), op(Operation::Copy).length(200)].repeat(2);
    assert_eq!(read(&two).outcome, Outcome::Invalid as u8);
    let all = read(&[constant(0x1000), op(Operation::Copy).length(256)]);
    assert_eq!((all.outcome, all.length), (Outcome::Ok as u8, 256));
    let more = read(&[constant(0x1000), op(Operation::Copy).length(257)]);
    assert_eq!(more.outcome, Outcome::Invalid as u8);
}

#[test]
fn jumps_and_ends() {
    let plan = |condition| {
        [
            constant(condition),
            op(Operation::JumpIfZero).length(2),
            constant(1),
            op(Operation::Jump).length(1),
            constant(2),
        ]
    };
    assert_eq!(computes(&plan(5)), 1);
    assert_eq!(computes(&plan(0)), 2);
    assert_eq!(
        read(&[op(Operation::OptimizedOut)]).outcome,
        Outcome::OptimizedOut as u8
    );
    assert_eq!(
        read(&[op(Operation::Jump).length(u32::MAX)]).outcome,
        Outcome::Ok as u8
    );
    assert_eq!(read(&vec![constant(1); 32]).outcome, Outcome::Ok as u8);
    let unknown = Instruction {
        operation: 99,
        ..Instruction::default()
    };
    assert_eq!(read(&[unknown]).outcome, Outcome::Invalid as u8);
    assert!(ReadPlan::new(&[constant(1); 33]).is_none());
}

#[test]
fn requirements() {
    let require = |kind: Kind, comparison: Comparison, left, right| {
        let mut require = op(Operation::Require).size(kind as u8);
        require.comparison = comparison as u8;
        read(&[constant(left), constant(right), require]).outcome
    };
    let (ok, rejected) = (Outcome::Ok as u8, Outcome::Rejected as u8);
    assert_eq!(require(Kind::Signed, Comparison::Less, -1, 1), ok);
    assert_eq!(require(Kind::Unsigned, Comparison::Less, -1, 1), rejected);
    assert_eq!(require(Kind::Signed, Comparison::GreaterOrEqual, 3, 4), rejected);
}

#[test]
fn text_is_matched() {
    let matches = |text: &[u8]| {
        let mut plan = vec![
            constant(0x1000),
            op(Operation::CopyString).length(20),
            constant(1),
        ];
        for (length, word) in (0..).step_by(8).zip(text.chunks(8)) {
            let mut bytes = [0xaa; 8];
            bytes[..word.len()].copy_from_slice(word);
            let size = u8::try_from(word.len()).unwrap();
            plan.push(
                op(Operation::Match)
                    .size(size)
                    .length(length)
                    .immediate(u64::from_le_bytes(bytes)),
            );
        }
        plan.extend([op(Operation::Store).size(1)]);
        read(&plan).bytes().last().copied()
    };
    assert_eq!(matches(b"hello\0"), Some(1));
    assert_eq!(matches(b"hell\0"), Some(0));
    assert_eq!(matches(b"hello "), Some(0));
    assert_eq!(matches(b""), Some(1));
}

#[test]
fn text_that_may_be_none_is_tried() {
    let tried = |address| {
        let state = read(&[
            constant(address),
            op(Operation::TryString).length(20),
            op(Operation::Store).size(2),
        ]);
        assert_eq!(state.outcome, Outcome::Ok as u8);
        state.bytes().to_vec()
    };
    assert_eq!(tried(0x1000), b"hello\0\x06\0");
    assert_eq!(tried(0), b"\0\0");
    let absent = read(&[op(Operation::Absent).immediate(1)]);
    assert_eq!((absent.outcome, absent.fault), (Outcome::Absent as u8, 1));
}

#[test]
fn stack_operations() {
    let three = [constant(1), constant(2), constant(3)];
    let with = |more: &[Instruction]| {
        let mut all = three.to_vec();
        all.extend_from_slice(more);
        all.extend([op(Operation::Store).size(1); 3]);
        read(&all).bytes().to_vec()
    };
    assert_eq!(with(&[]), [3, 2, 1]);
    assert_eq!(with(&[op(Operation::Swap)]), [2, 3, 1]);
    assert_eq!(with(&[op(Operation::Rotate)]), [2, 1, 3]);
    assert_eq!(with(&[op(Operation::Pick).length(2)]), [1, 3, 2]);
    assert_eq!(
        with(&[op(Operation::Drop), op(Operation::Pick).length(0)]),
        [2, 2, 1]
    );
}

proptest! {
    #[test]
    fn arithmetic_is_dwarfs(below in any::<i64>(), top in prop_oneof![any::<i64>(), -70_i64..70], bits in 1_u8..64) {
        let of = |operation| computes(&[constant(below), constant(top), op(operation)]).cast_signed();
        prop_assert_eq!(of(Operation::Add), below.wrapping_add(top));
        prop_assert_eq!(of(Operation::Subtract), below.wrapping_sub(top));
        prop_assert_eq!(of(Operation::Multiply), below.wrapping_mul(top));
        if top != 0 {
            prop_assert_eq!(of(Operation::Divide), below.wrapping_div(top));
            let rest = below.cast_unsigned() % top.cast_unsigned();
            prop_assert_eq!(of(Operation::Remainder), rest.cast_signed());
        }
        prop_assert_eq!(of(Operation::Less), i64::from(below < top));
        prop_assert_eq!(of(Operation::LessOrEqual), i64::from(below <= top));
        prop_assert_eq!(of(Operation::Equal), i64::from(below == top));
        let by = u32::try_from(top).ok();
        prop_assert_eq!(of(Operation::ShiftLeft), by.and_then(|by| below.checked_shl(by)).unwrap_or(0));
        let sign = if below < 0 { -1 } else { 0 };
        prop_assert_eq!(of(Operation::ShiftRightSigned), by.and_then(|by| below.checked_shr(by)).unwrap_or(sign));
        let right = by.and_then(|by| below.cast_unsigned().checked_shr(by)).unwrap_or(0);
        prop_assert_eq!(of(Operation::ShiftRight), right.cast_signed());
        let one = |operation| computes(&[constant(below), op(operation).size(bits)]);
        prop_assert_eq!(one(Operation::Absolute), below.unsigned_abs());
        prop_assert_eq!(one(Operation::Negate).cast_signed(), below.wrapping_neg());
        prop_assert_eq!(one(Operation::Not).cast_signed(), !below);
        prop_assert_eq!(one(Operation::ZeroExtend), below.cast_unsigned() & ((1 << bits) - 1));
        let unused = 64 - u32::from(bits);
        prop_assert_eq!(one(Operation::SignExtend).cast_signed(), (below << unused) >> unused);
    }

    #[test]
    fn any_plan_ends(words in prop::collection::vec((0_u8..43, any::<u8>(), any::<u8>(), 0_u32..300, any::<u64>()), 0..32)) {
        let instructions: Vec<Instruction> = words
            .into_iter()
            .map(|(operation, size, register, length, immediate)| Instruction {
                operation,
                size,
                register,
                comparison: register,
                length,
                immediate,
            })
            .collect();
        let state = read(&instructions);
        prop_assert!(state.outcome != Outcome::Running as u8);
        prop_assert!(state.length as usize <= MAX_BYTES);
    }
}
