//! How far the stack pointer is from where it was at entry, instruction by instruction.
//!
//! A jump out of a function with something left on the stack is no tail call: it leads to a piece
//! of the same function that lies elsewhere, or through a switch's table.

use super::code::{Code, goes_on, jump_target};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// What is known before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Depth {
    /// No path to it has been followed: only exceptions or jump tables lead there.
    Unreached,
    /// Bytes below the stack pointer at entry.
    Known(i64),
    /// Paths disagree, or something was not understood.
    Unknown,
}

/// Says of each instruction whether the stack pointer differs from that at entry; `None` where that is not known.
#[must_use]
pub fn moved(code: &Code) -> Vec<Option<bool>> {
    let instructions = code.instructions();
    let mut depths = vec![Depth::Unreached; instructions.len()];
    let mut info = InstructionInfoFactory::new();
    // Every instruction changes state at most twice, so this ends.
    let mut pending = vec![(0usize, Depth::Known(0))];
    while let Some((at, depth)) = pending.pop() {
        let Some(instruction) = instructions.get(at) else {
            continue;
        };
        let merged = match (depths[at], depth) {
            (Depth::Unreached, new) => new,
            (old, new) if old == new => continue,
            (Depth::Unknown, _) => continue,
            _ => Depth::Unknown,
        };
        depths[at] = merged;
        let after = match merged {
            Depth::Known(bytes) => step(instruction, bytes, &mut info),
            other => other,
        };
        if let Some(target) = jump_target(instruction).and_then(|target| code.position(target)) {
            pending.push((target, after));
        }
        if goes_on(instruction) {
            pending.push((at + 1, after));
        }
    }
    depths
        .iter()
        .map(|depth| match depth {
            Depth::Known(bytes) => Some(*bytes != 0),
            Depth::Unreached | Depth::Unknown => None,
        })
        .collect()
}

fn step(instruction: &Instruction, bytes: i64, info: &mut InstructionInfoFactory) -> Depth {
    let to_stack_pointer =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    let by_immediate =
        instruction.op_count() == 2 && !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
    let change = match instruction.mnemonic() {
        // A callee takes its return address with it.
        Mnemonic::Call => 0,
        Mnemonic::Sub if to_stack_pointer && by_immediate => instruction.immediate(1).cast_signed(),
        Mnemonic::Add if to_stack_pointer && by_immediate => {
            instruction.immediate(1).cast_signed().wrapping_neg()
        }
        Mnemonic::Pop if to_stack_pointer => return Depth::Unknown,
        Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq => {
            -i64::from(instruction.stack_pointer_increment())
        }
        _ => {
            let writes = info.info(instruction).used_registers().iter().any(|used| {
                let reads = matches!(
                    used.access(),
                    OpAccess::None | OpAccess::Read | OpAccess::CondRead
                );
                !reads && used.register().full_register() == Register::RSP
            });
            if writes {
                return Depth::Unknown;
            }
            0
        }
    };
    bytes.checked_add(change).map_or(Depth::Unknown, Depth::Known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certainly_moved(bytes: &[u8]) -> Vec<bool> {
        let moved = moved(&Code::decode(bytes, 0x1000).unwrap());
        moved.into_iter().map(|moved| moved == Some(true)).collect()
    }

    #[test]
    fn follows_the_stack_pointer() {
        // push rbx; sub rsp, 16; call; add rsp, 16; pop rbx; ret
        let code = [
            0x53, 0x48, 0x83, 0xec, 16, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 16, 0x5b, 0xc3,
        ];
        assert_eq!(certainly_moved(&code), [false, true, true, true, true, false]);
        // je over (push rbx): paths disagree at the jmp
        assert_eq!(
            certainly_moved(&[0x74, 1, 0x53, 0xff, 0xe0]),
            [false, false, false]
        );
        // push rbp; mov rbp, rsp; leave; ret: not understood, so not certain
        assert_eq!(
            certainly_moved(&[0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3]),
            [false, true, true, false]
        );
        // jmp rax; push rbx (reached by a table only)
        assert_eq!(certainly_moved(&[0xff, 0xe0, 0x53, 0xc3]), [false, false, false]);
    }
}
