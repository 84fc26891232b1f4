//! What an instruction means, as data that an eBPF program carries out itself.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use profiler_common::instruction::{Action, Operation, register};

/// The instruction's action at a function's entry; [`Action::LEAVE`] for all that is not simple.
#[must_use]
pub fn entry_action(instruction: &Instruction) -> Action {
    // Where one program moves the stack pointer, others there must be able to tell what it was.
    entry(instruction)
        .filter(|action| {
            action.target != register::RSP || action.operation == Operation::SubtractImmediate as u8
        })
        .unwrap_or(Action::LEAVE)
}

/// The action of an instruction that leaves a function, which begins at `function` and is
/// `function_size` bytes long: needed to tell jumps inside it from those that leave.
#[must_use]
pub fn exit_action(instruction: &Instruction, function: u64, function_size: u64) -> Action {
    exit(instruction, function, function_size).unwrap_or(Action::LEAVE)
}

fn base(instruction: &Instruction, operation: Operation) -> Option<Action> {
    let length = u8::try_from(instruction.len()).ok()?;
    Some(Action {
        operation: operation as u8,
        length,
        ..Action::LEAVE
    })
}

fn entry(instruction: &Instruction) -> Option<Action> {
    if instruction.has_lock_prefix() || instruction.has_rep_prefix() || instruction.has_repne_prefix() {
        return None;
    }
    match instruction.mnemonic() {
        Mnemonic::Endbr64 | Mnemonic::Nop => base(instruction, Operation::Skip),
        Mnemonic::Mov => mov(instruction),
        Mnemonic::Lea => {
            let action = target(instruction, base(instruction, Operation::LoadAddress)?)?;
            // An address is a number here: its segment does not matter.
            memory_operand(instruction, action)
        }
        Mnemonic::Sub => match instruction.op1_kind() {
            OpKind::Register => two_registers(instruction, Operation::SubtractRegister),
            _ => with_immediate(instruction, Operation::SubtractImmediate),
        },
        Mnemonic::Xor => two_registers(instruction, Operation::ExclusiveOr),
        Mnemonic::Test => two_registers(instruction, Operation::Test),
        _ => None,
    }
}

fn exit(instruction: &Instruction, function: u64, function_size: u64) -> Option<Action> {
    match instruction.mnemonic() {
        Mnemonic::Ret => {
            let popped = match instruction.op_count() {
                0 => 0,
                _ => i64::from(instruction.immediate16()),
            };
            // With an operand-size prefix it would pop two bytes.
            let near = matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16);
            near.then(|| base(instruction, Operation::Return))?
                .map(|action| Action {
                    size: 8,
                    immediate: popped,
                    ..action
                })
        }
        Mnemonic::Jmp => {
            let action = Action {
                size: 8,
                function_size: u32::try_from(function_size).ok()?,
                function_offset: u32::try_from(instruction.ip().checked_sub(function)?).ok()?,
                ..base(instruction, Operation::JumpRegister)?
            };
            match instruction.op0_kind() {
                OpKind::Register => {
                    let (source, size) = machine_register(instruction.op0_register())?;
                    (size == 8).then_some(Action { source, ..action })
                }
                OpKind::Memory if instruction.memory_size().size() == 8 && flat(instruction) => {
                    memory_operand(
                        instruction,
                        Action {
                            operation: Operation::JumpMemory as u8,
                            ..action
                        },
                    )
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn mov(instruction: &Instruction) -> Option<Action> {
    match instruction.op1_kind() {
        OpKind::Register => two_registers(instruction, Operation::MoveRegister),
        OpKind::Memory if flat(instruction) => {
            let action = target(instruction, base(instruction, Operation::Load)?)?;
            memory_operand(instruction, action)
        }
        OpKind::Memory => None,
        _ => with_immediate(instruction, Operation::MoveImmediate),
    }
}

fn two_registers(instruction: &Instruction, operation: Operation) -> Option<Action> {
    if instruction.op0_kind() != OpKind::Register || instruction.op1_kind() != OpKind::Register {
        return None;
    }
    let action = target(instruction, base(instruction, operation)?)?;
    let (source, size) = machine_register(instruction.op1_register())?;
    (size == action.size).then_some(Action { source, ..action })
}

fn with_immediate(instruction: &Instruction, operation: Operation) -> Option<Action> {
    let is_immediate = matches!(
        instruction.op1_kind(),
        OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    );
    if !is_immediate {
        return None;
    }
    let action = target(instruction, base(instruction, operation)?)?;
    // Sign-extended by the operand's size: that of 32-bit operands is cut off with the result.
    Some(Action {
        immediate: instruction.immediate(1).cast_signed(),
        ..action
    })
}

fn target(instruction: &Instruction, action: Action) -> Option<Action> {
    if instruction.op0_kind() != OpKind::Register {
        return None;
    }
    let (target, size) = machine_register(instruction.op0_register())?;
    Some(Action {
        target,
        size,
        ..action
    })
}

/// Whether the operand's segment begins at address 0. The other prefixes mean nothing in 64 bits.
fn flat(instruction: &Instruction) -> bool {
    !matches!(instruction.memory_segment(), Register::FS | Register::GS)
}

fn memory_operand(instruction: &Instruction, action: Action) -> Option<Action> {
    let displacement = instruction.memory_displacement64().cast_signed();
    let part = |part: Register| match part {
        Register::None => Some(register::NONE),
        // A 32-bit address would have to be cut, which the programs do not do.
        part => machine_register(part)
            .filter(|&(_, size)| size == 8)
            .map(|(number, _)| number),
    };
    if instruction.memory_base() == Register::RIP {
        // The decoder gives the address itself; the programs add the next instruction's.
        let relative = displacement.wrapping_sub(instruction.next_ip().cast_signed());
        return Some(Action {
            base: register::RIP,
            immediate: relative,
            ..action
        });
    }
    Some(Action {
        base: part(instruction.memory_base())?,
        index: part(instruction.memory_index())?,
        scale: u8::try_from(instruction.memory_index_scale().trailing_zeros()).ok()?,
        immediate: displacement,
        ..action
    })
}

/// The machine's number of a general register of 4 or 8 bytes, and its size.
fn machine_register(name: Register) -> Option<(u8, u8)> {
    let size = match () {
        () if name.is_gpr64() => 8,
        () if name.is_gpr32() => 4,
        () => return None,
    };
    u8::try_from(name.number()).ok().map(|number| (number, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    const NONE: u8 = register::NONE;

    fn decode(bytes: &[u8]) -> Instruction {
        Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode()
    }

    fn check(bytes: &[u8], operation: Operation, fields: [u8; 6], immediate: i64) {
        let action = entry_action(&decode(bytes));
        let Action {
            size,
            target,
            source,
            base,
            index,
            scale,
            ..
        } = action;
        assert_eq!(action.operation, operation as u8, "{bytes:x?}");
        assert_eq!([size, target, source, base, index, scale], fields, "{bytes:x?}");
        assert_eq!(action.immediate, immediate, "{bytes:x?}");
        assert_eq!(usize::from(action.length), bytes.len());
    }

    #[test]
    fn entry_instructions() {
        use Operation as Op;
        check(
            &[0xf3, 0x0f, 0x1e, 0xfa],
            Op::Skip,
            [8, NONE, NONE, NONE, NONE, 0],
            0,
        );
        check(
            &[0x0f, 0x1f, 0x44, 0, 0],
            Op::Skip,
            [8, NONE, NONE, NONE, NONE, 0],
            0,
        );
        // mov rbp, rsp; mov r8d, edi
        check(&[0x48, 0x89, 0xe5], Op::MoveRegister, [8, 5, 4, NONE, NONE, 0], 0);
        check(&[0x41, 0x89, 0xf8], Op::MoveRegister, [4, 8, 7, NONE, NONE, 0], 0);
        // mov eax, 0xffffffff; mov rax, -1; movabs rax, 0x1122334455667788
        check(
            &[0xb8, 0xff, 0xff, 0xff, 0xff],
            Op::MoveImmediate,
            [4, 0, NONE, NONE, NONE, 0],
            0xffff_ffff,
        );
        check(
            &[0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff],
            Op::MoveImmediate,
            [8, 0, NONE, NONE, NONE, 0],
            -1,
        );
        check(
            &[0x48, 0xb8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            Op::MoveImmediate,
            [8, 0, NONE, NONE, NONE, 0],
            0x1122_3344_5566_7788,
        );
        // mov rax, [rdi + rsi*8 - 8]; mov eax, [rip + 0x10]
        check(
            &[0x48, 0x8b, 0x44, 0xf7, 0xf8],
            Op::Load,
            [8, 0, NONE, 7, 6, 3],
            -8,
        );
        check(
            &[0x8b, 0x05, 0x10, 0, 0, 0],
            Op::Load,
            [4, 0, NONE, 16, NONE, 0],
            0x10,
        );
        // lea rax, [rdi + rdi*4]; lea rax, [rip - 4]; lea eax, [rdi + 1]
        check(
            &[0x48, 0x8d, 0x04, 0xbf],
            Op::LoadAddress,
            [8, 0, NONE, 7, 7, 2],
            0,
        );
        check(
            &[0x48, 0x8d, 0x05, 0xfc, 0xff, 0xff, 0xff],
            Op::LoadAddress,
            [8, 0, NONE, 16, NONE, 0],
            -4,
        );
        check(&[0x8d, 0x47, 0x01], Op::LoadAddress, [4, 0, NONE, 7, NONE, 0], 1);
        // sub rsp, 8; sub rsp, 0x1000; sub eax, ecx
        check(
            &[0x48, 0x83, 0xec, 0x08],
            Op::SubtractImmediate,
            [8, 4, NONE, NONE, NONE, 0],
            8,
        );
        check(
            &[0x48, 0x81, 0xec, 0, 0x10, 0, 0],
            Op::SubtractImmediate,
            [8, 4, NONE, NONE, NONE, 0],
            0x1000,
        );
        check(&[0x29, 0xc8], Op::SubtractRegister, [4, 0, 1, NONE, NONE, 0], 0);
        // xor eax, eax; test rdi, rdi
        check(&[0x31, 0xc0], Op::ExclusiveOr, [4, 0, 0, NONE, NONE, 0], 0);
        check(&[0x48, 0x85, 0xff], Op::Test, [8, 7, 7, NONE, NONE, 0], 0);
    }

    #[test]
    fn programs_leave_complex_instructions_to_the_kernel() {
        for bytes in [
            &[0x55][..],                                    // push rbp
            &[0xe8, 0, 0, 0, 0],                            // call
            &[0x66, 0x89, 0xf8],                            // mov ax, di
            &[0x88, 0xd8],                                  // mov al, bl
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], // mov rax, fs:[0x28]
            &[0x48, 0x89, 0x07],                            // mov [rdi], rax
            &[0x67, 0x8b, 0x07],                            // mov eax, [edi]
            &[0x48, 0x2b, 0x07],                            // sub rax, [rdi]
            &[0x48, 0x85, 0x07],                            // test [rdi], rax
            &[0xf7, 0xc7, 1, 0, 0, 0],                      // test edi, 1
            &[0x48, 0x83, 0xf0, 1],                         // xor rax, 1
            &[0x8c, 0xd8],                                  // mov eax, ds
            &[0x0f, 0x20, 0xc0],                            // mov rax, cr0
            &[0x90, 0x90][..1],                             // nop is the one that is not
        ] {
            let action = entry_action(&decode(bytes));
            assert_eq!(action == Action::LEAVE, bytes != [0x90], "{bytes:x?}");
        }
    }

    #[test]
    fn exits() {
        let ret = exit_action(&decode(&[0xc3]), 0x1000, 1);
        assert_eq!(
            (ret.operation, ret.immediate, ret.length),
            (Operation::Return as u8, 0, 1)
        );
        let ret = exit_action(&decode(&[0xc2, 0x10, 0]), 0x1000, 3);
        assert_eq!(
            (ret.operation, ret.immediate, ret.length),
            (Operation::Return as u8, 16, 3)
        );
        assert_eq!(exit_action(&decode(&[0xf3, 0xc3]), 0x1000, 2).length, 2);
        // jmp rax; notrack jmp rdx
        let jump = exit_action(&decode(&[0xff, 0xe0]), 0xff0, 0x40);
        assert_eq!((jump.operation, jump.source), (Operation::JumpRegister as u8, 0));
        assert_eq!((jump.function_size, jump.function_offset), (0x40, 0x10));
        assert_eq!(exit_action(&decode(&[0x3e, 0xff, 0xe2]), 0xff0, 0x40).source, 2);
        // jmp [rip + 2]; jmp [rax*8 + 0x400000]; jmp fs:[rax]
        let jump = exit_action(&decode(&[0xff, 0x25, 2, 0, 0, 0]), 0x1000, 6);
        assert_eq!(
            (jump.operation, jump.base, jump.immediate),
            (Operation::JumpMemory as u8, 16, 2)
        );
        let jump = exit_action(&decode(&[0xff, 0x24, 0xc5, 0, 0, 0x40, 0]), 0x1000, 7);
        assert_eq!(
            (jump.base, jump.index, jump.scale, jump.immediate),
            (NONE, 0, 3, 0x40_0000)
        );
        assert_eq!(
            exit_action(&decode(&[0x64, 0xff, 0x20]), 0x1000, 3),
            Action::LEAVE
        );
        // A direct jump is emulated by the kernel.
        assert_eq!(
            exit_action(&decode(&[0xe9, 0, 0, 0, 0]), 0x1000, 5),
            Action::LEAVE
        );
    }
}
