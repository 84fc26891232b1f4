//! Where a `switch` jumps to: compilers compare the value with the last case, and add to the address of a table of 32-bit
//! distances the one that is there for the value.
//!
//! ```text
//!     cmp    $5,%edi
//!     ja     default
//!     lea    table(%rip),%rdx
//!     mov    %edi,%edi
//!     movslq (%rdx,%rdi,4),%rax
//!     add    %rdx,%rax
//!     jmp    *%rax
//! ```
//!
//! Only this form is read, in whatever order registers allow, without a way that leads into the midst of it. Of any other it is
//! not known where it leads.

use std::ops::Range;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedRegister,
};

/// Instructions that such a jump is made of, and others between them, at most.
const MAX_INSTRUCTIONS: usize = 24;

/// Cases of a `switch`, at most.
const MAX_CASES: u64 = 4096;

/// A jump through a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    /// Where it leads, by address.
    pub targets: Vec<u64>,
    /// The instructions that have to be passed, which is so if nothing leads into their midst.
    pub passed: Range<usize>,
}

/// What has to be known of the registers before the jump.
#[derive(Clone, Copy)]
enum Looking {
    /// The sum of both is in this one.
    Sum(Register),
    /// One is the address of the table, the other what was read from it.
    Parts(Register, Register),
    /// The address of the table, and the value that was looked up in it.
    Lookup {
        base: Option<Register>,
        index: Option<Register>,
    },
}

/// The table that the jump at a place goes through. `bytes` reads the file.
pub(crate) fn of<'b>(
    instructions: &[Instruction],
    jump: usize,
    bytes: impl Fn(Range<u64>) -> Option<&'b [u8]>,
) -> Option<Table> {
    let last = instructions.get(jump)?;
    if last.mnemonic() != Mnemonic::Jmp || last.op0_kind() != OpKind::Register {
        return None;
    }
    let mut info = InstructionInfoFactory::new();
    let mut looking = Looking::Sum(last.op0_register());
    let (mut table, mut cases) = (None, None);
    let mut first = jump;
    let mut next = last;
    for at in (jump.saturating_sub(MAX_INSTRUCTIONS)..jump).rev() {
        let instruction = &instructions[at];
        if instruction.next_ip() != next.ip() {
            return None;
        }
        next = instruction;
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch => {
                if let Looking::Lookup {
                    index: Some(index), ..
                } = looking
                    && instruction.mnemonic() == Mnemonic::Ja
                    && let Some(bound) = at
                        .checked_sub(1)
                        .and_then(|at| bound_of(&instructions[at], index))
                {
                    cases = Some(bound + 1);
                    // What is compared is right before.
                    first = first.min(at - 1);
                    looking = without_index(looking);
                }
            }
            _ => return None,
        }
        let written = written(instruction, &mut info);
        looking = match looking {
            Looking::Sum(sum) if written.contains(&sum) => {
                let (one, other) = sum_of(instruction)?;
                Looking::Parts(one, other)
            }
            Looking::Parts(one, other) if written.contains(&one) || written.contains(&other) => {
                let (read, base, index) = lookup(instruction)?;
                if (read, base) != (one, other) && (read, base) != (other, one) {
                    return None;
                }
                Looking::Lookup {
                    base: Some(base),
                    index: Some(index),
                }
            }
            Looking::Lookup { mut base, mut index } => {
                if base.is_some_and(|base| written.contains(&base)) {
                    table = Some(address(instruction)?);
                    first = first.min(at);
                    base = None;
                }
                if let Some(copied) = index.filter(|index| written.contains(index)) {
                    index = Some(extended_from(instruction, copied)?);
                }
                Looking::Lookup { base, index }
            }
            other => other,
        };
        if let (Some(table), Some(cases)) = (table, cases) {
            return read(table, cases, bytes).map(|targets| Table {
                targets,
                passed: first..jump,
            });
        }
    }
    None
}

fn without_index(looking: Looking) -> Looking {
    match looking {
        Looking::Lookup { base, .. } => Looking::Lookup { base, index: None },
        other => other,
    }
}

/// The registers that are others behind an instruction, as a whole.
fn written(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Vec<Register> {
    let is_written = |used: &&UsedRegister| {
        !matches!(
            used.access(),
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        )
    };
    let info = info.info(instruction);
    let written = info.used_registers().iter().filter(is_written);
    written.map(|used| used.register().full_register()).collect()
}

/// What is compared with a register's value, if that is all that an instruction does.
fn bound_of(instruction: &Instruction, index: Register) -> Option<u64> {
    let is_comparison = instruction.mnemonic() == Mnemonic::Cmp
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == index;
    let bound = match instruction.op1_kind() {
        OpKind::Immediate8 => u64::from(instruction.immediate8()),
        OpKind::Immediate16 => u64::from(instruction.immediate16()),
        OpKind::Immediate32 => u64::from(instruction.immediate32()),
        OpKind::Immediate8to16 => u64::from(instruction.immediate8to16().cast_unsigned()),
        OpKind::Immediate8to32 => u64::from(instruction.immediate8to32().cast_unsigned()),
        OpKind::Immediate8to64 => instruction.immediate8to64().cast_unsigned(),
        OpKind::Immediate32to64 => instruction.immediate32to64().cast_unsigned(),
        _ => return None,
    };
    (is_comparison && bound < MAX_CASES).then_some(bound)
}

/// `add %rdx,%rax`
fn sum_of(instruction: &Instruction) -> Option<(Register, Register)> {
    let of_registers =
        instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
    let (one, other) = (instruction.op0_register(), instruction.op1_register());
    let is_sum = instruction.mnemonic() == Mnemonic::Add && of_registers && one.is_gpr64() && one != other;
    is_sum.then_some((one, other))
}

/// `movslq (%rdx,%rdi,4),%rax`: what is read, the table, the index.
fn lookup(instruction: &Instruction) -> Option<(Register, Register, Register)> {
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let is_lookup = instruction.mnemonic() == Mnemonic::Movsxd
        && instruction.op0_register().is_gpr64()
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_index_scale() == 4
        && instruction.memory_displacement64() == 0
        && base.is_gpr64()
        && index.is_gpr64()
        && base != index;
    is_lookup.then(|| (instruction.op0_register(), base, index))
}

/// `lea table(%rip),%rdx`
fn address(instruction: &Instruction) -> Option<u64> {
    let is_address = instruction.mnemonic() == Mnemonic::Lea && instruction.memory_base() == Register::RIP;
    is_address.then(|| instruction.memory_displacement64())
}

/// `mov %edi,%eax`, `movzbl %dil,%eax`: the register whose value an index is, with zeros above.
fn extended_from(instruction: &Instruction, index: Register) -> Option<Register> {
    let of_registers =
        instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
    let to = instruction.op0_register();
    let is_whole = to.is_gpr32() || to.is_gpr64() && instruction.mnemonic() == Mnemonic::Mov;
    let is_copy = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Movzx);
    let is_extended = of_registers && is_copy && is_whole && to.full_register() == index;
    is_extended.then(|| instruction.op1_register().full_register())
}

/// Where a table of so many distances leads.
fn read<'b>(table: u64, cases: u64, bytes: impl Fn(Range<u64>) -> Option<&'b [u8]>) -> Option<Vec<u64>> {
    let distances = bytes(table..table.checked_add(cases.checked_mul(4)?)?)?;
    let distances = distances.chunks_exact(4);
    let targets = distances.map(|distance| {
        let distance = i32::from_le_bytes(distance.try_into().ok()?);
        table.checked_add_signed(distance.into())
    });
    targets.collect()
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    const BASE: u64 = 0x1000;
    const TABLE: u64 = 0x2000;

    const COMPARE: &[u8] = &[0x83, 0xff, 2];
    const ABOVE: &[u8] = &[0x77, 0x20];
    /// `lea` of 7 bytes; the distance goes by where it lies.
    const EXTEND: &[u8] = &[0x89, 0xff];
    const LOOK_UP: &[u8] = &[0x48, 0x63, 0x04, 0xba];
    const ADD: &[u8] = &[0x48, 0x01, 0xd0];
    const JUMP: &[u8] = &[0xff, 0xe0];

    fn lea(at: u64) -> Vec<u8> {
        let distance = u32::try_from(TABLE - (BASE + at + 7)).unwrap();
        [&[0x48, 0x8d, 0x15][..], &distance.to_le_bytes()].concat()
    }

    fn found(parts: &[&[u8]]) -> Option<Table> {
        let code = parts.concat();
        let mut decoder = Decoder::with_ip(64, &code, BASE, DecoderOptions::NONE);
        let instructions: Vec<Instruction> = decoder.iter().collect();
        let table: Vec<u8> = [-0x1000i32, -0xff0, -0xfe0]
            .iter()
            .flat_map(|distance| distance.to_le_bytes())
            .collect();
        of(&instructions, instructions.len() - 1, |range| {
            (range == (TABLE..TABLE + 12)).then_some(&table[..])
        })
    }

    #[test]
    fn the_usual_form_is_read() {
        let targets = vec![0x1000, 0x1010, 0x1020];
        let of_gcc = found(&[COMPARE, ABOVE, &lea(5), EXTEND, LOOK_UP, ADD, JUMP]).unwrap();
        assert_eq!((of_gcc.targets, of_gcc.passed), (targets.clone(), 0..6));
        // With what has nothing to do with it between: mov ecx, 2.
        let mixed = found(&[
            COMPARE,
            ABOVE,
            &lea(5),
            &[0xb9, 2, 0, 0, 0],
            EXTEND,
            LOOK_UP,
            ADD,
            JUMP,
        ]);
        assert_eq!(mixed.unwrap().targets, targets);
        // The address comes first.
        let early = found(&[&lea(0), COMPARE, ABOVE, EXTEND, LOOK_UP, ADD, JUMP]).unwrap();
        assert_eq!((early.targets, early.passed), (targets, 0..6));
    }

    #[test]
    fn rejects_code_that_only_resembles_a_jump_table() {
        // No comparison; another condition (jae); another register (cmp esi).
        assert_eq!(found(&[&lea(0), EXTEND, LOOK_UP, ADD, JUMP]), None);
        assert_eq!(
            found(&[COMPARE, &[0x73, 0x20], &lea(5), EXTEND, LOOK_UP, ADD, JUMP]),
            None
        );
        let other = &[0x83, 0xfe, 2];
        assert_eq!(found(&[other, ABOVE, &lea(5), EXTEND, LOOK_UP, ADD, JUMP]), None);
        // The value, or the address, is changed between: inc edi; inc rdx.
        let changed = &[0xff, 0xc7];
        assert_eq!(
            found(&[COMPARE, ABOVE, &lea(5), changed, LOOK_UP, ADD, JUMP]),
            None
        );
        let changed = &[0x48, 0xff, 0xc2];
        assert_eq!(
            found(&[COMPARE, ABOVE, &lea(5), changed, EXTEND, LOOK_UP, ADD, JUMP]),
            None
        );
        // A call between; a jump through memory.
        let call = &[0xe8, 0, 1, 0, 0];
        assert_eq!(
            found(&[COMPARE, ABOVE, &lea(5), call, EXTEND, LOOK_UP, ADD, JUMP]),
            None
        );
        assert_eq!(
            found(&[COMPARE, ABOVE, &lea(5), EXTEND, LOOK_UP, ADD, &[0xff, 0x20]]),
            None
        );
    }
}
