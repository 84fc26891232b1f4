//! Functions that leave to an exception's handler: GCC's `__builtin_eh_return`, as its unwinder (libgcc's
//! `_Unwind_RaiseException` and three more) ends with it.
//!
//! Such a function saves the registers that calls preserve as any other does, and is left with all of them as the
//! handler's frame had them: they are written over what it has saved itself, its return address included. Its unwind
//! information does not say so. It ends so (libgcc's `uw_install_context`):
//!
//! | code | is true of the frame |
//! |---|---|
//! | a call with two contexts, that of its own frame and that of the handler's | |
//! | while that runs (`uw_install_context_1`) | a copy of its return address, in the first context |
//! | a call that debuggers stop at (`_Unwind_DebugHook`), with the handler's address out of the second context | the same |
//! | the handler's address is written over a return address further up, registers are loaded, `mov %rcx, %rsp; pop %rcx; jmp *%rcx` | nothing |

use std::{collections::HashMap, ops::Range};

use gimli::{CfaRule, RegisterRule, UnwindTableRow};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use profiler_common::unwind::register::{R12, RAX, RBP, RBX, RDX, RSP};

use super::elf::Text;

/// How far the way out goes at most. libgcc's is 6 bytes long.
const MAX_EXIT_BYTES: u64 = 64;

/// How far into a context the address is that it continues at. GCC's on x86-64 has it at 152.
const IN_CONTEXT: Range<i64> = 8..512;

/// How a function is left to a handler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Leaving {
    /// The code that runs while what the function has saved is overwritten.
    pub overwritten: Range<u64>,
    /// Where its return address is still to be had meanwhile, from `rbp`.
    pub return_address: Option<i64>,
    /// The address after the jump. What is between it and the other code has no caller.
    pub end: u64,
}

/// Where a function saves what calls preserve, by [`Places::PRESERVED`], from its canonical frame address.
pub(super) type Saves = [Option<i64>; 5];

/// Of a row of the way out to a handler, what the function has saved; `None` of others. The stack pointer comes from a register
/// that has nothing to do with this frame, and the two registers that handlers get their arguments in are saved.
pub(super) fn exit(row: &UnwindTableRow<usize>) -> Option<Saves> {
    let saved = |number: u8| match row.register(gimli::Register(number.into())) {
        Some(RegisterRule::Offset(offset)) => Some(offset),
        _ => None,
    };
    let is_exit = matches!(row.cfa(), CfaRule::RegisterAndOffset { register, .. }
        if ![RSP, RBP].map(u16::from).contains(&register.0))
        && saved(RAX).is_some()
        && saved(RDX).is_some();
    is_exit.then(|| [RBX, R12, R12 + 1, R12 + 2, R12 + 3].map(saved))
}

/// How a function is left that begins at `start`, and whose way out begins at `exit`.
pub(super) fn leaving(text: &Text<'_>, start: u64, exit: u64, saves: Saves) -> Option<Leaving> {
    let bytes = text.bytes_within(start, exit.checked_add(MAX_EXIT_BYTES)?)?;
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut places = Places {
        held: HashMap::new(),
        saves,
    };
    let mut calls: [Option<Call>; 2] = [None, None];
    while decoder.can_decode() {
        let instruction = decoder.decode();
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall if instruction.ip() < exit => {
                let [_, last] = calls;
                calls = [last, Some(places.call(&instruction))];
            }
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
                if instruction.ip() >= exit =>
            {
                let [install, hook] = calls;
                let hook = hook?;
                return Some(Leaving {
                    return_address: install
                        .as_ref()
                        .and_then(|install| return_address(install, &hook)),
                    overwritten: install.map_or(hook.code.start, |install| install.code.start)..hook.code.end,
                    end: instruction.next_ip(),
                });
            }
            _ => places.pass(&instruction),
        }
    }
    None
}

/// Where the first of the two contexts keeps an address as the second does, out of which the handler's address is read
/// for the second call.
fn return_address(install: &Call, hook: &Call) -> Option<i64> {
    let (Some(Place::Address(own)), Some(Place::Address(handlers)), Some(Place::At(handler))) =
        (install.first, install.second, hook.second)
    else {
        return None;
    };
    let offset = handler - handlers;
    let is_apart = own.abs_diff(handlers) > offset.unsigned_abs();
    (IN_CONTEXT.contains(&offset) && is_apart).then_some(own + offset)
}

/// A call, and what its first two arguments are of the frame.
struct Call {
    code: Range<u64>,
    first: Option<Place>,
    second: Option<Place>,
}

/// What a register holds of a frame, by an offset from `rbp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// This address.
    Address(i64),
    /// What is read from there.
    At(i64),
}

/// What registers hold of the frame, in code that is passed from its first byte to its last.
///
/// Jumps are not followed. Another way out of the function, on which registers are loaded from where they are saved, is passed
/// over.
struct Places {
    held: HashMap<Register, Place>,
    saves: Saves,
}

impl Places {
    /// What calls preserve.
    const PRESERVED: [Register; 5] = [
        Register::RBX,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];

    fn pass(&mut self, instruction: &Instruction) {
        if instruction.op_count() == 0
            || instruction.op0_kind() != OpKind::Register
            || [Mnemonic::Cmp, Mnemonic::Test].contains(&instruction.mnemonic())
        {
            return;
        }
        let to = instruction.op0_register().full_register();
        let of_frame = instruction.op1_kind() == OpKind::Memory
            && instruction.memory_base() == Register::RBP
            && instruction.memory_index() == Register::None;
        let offset = instruction.memory_displacement64().cast_signed();
        let place = match instruction.mnemonic() {
            Mnemonic::Lea if of_frame => Some(Place::Address(offset)),
            Mnemonic::Mov if of_frame && self.is_saved_at(to, offset) => return,
            Mnemonic::Mov if of_frame => Some(Place::At(offset)),
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                self.held.get(&instruction.op1_register()).copied()
            }
            _ => None,
        };
        match place {
            Some(place) => self.held.insert(to, place),
            None => self.held.remove(&to),
        };
    }

    /// Whether the function keeps its caller's register at an offset from `rbp`, which is 16 below its canonical frame
    /// address.
    fn is_saved_at(&self, register: Register, offset: i64) -> bool {
        let mut saves = Self::PRESERVED.iter().zip(self.saves);
        saves.any(|(preserved, at)| {
            *preserved == register && at.and_then(|at| at.checked_add(16)) == Some(offset)
        })
    }

    fn call(&mut self, instruction: &Instruction) -> Call {
        let [first, second] =
            [Register::RDI, Register::RSI].map(|register| self.held.get(&register).copied());
        self.held.retain(|register, _| Self::PRESERVED.contains(register));
        Call {
            code: instruction.ip()..instruction.next_ip(),
            first,
            second,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use object::{Object as _, ObjectSymbol as _};
    use profiler_common::unwind::{Rule, Saved, register};

    use super::{
        super::{elf, table::build},
        *,
    };

    /// GCC's own.
    const LIBRARY: &str = "/lib/x86_64-linux-gnu/libgcc_s.so.1";
    /// `mov %rcx, %rsp; pop %rcx; jmp *%rcx`
    const EXIT: [u8; 6] = [0x48, 0x89, 0xcc, 0x59, 0xff, 0xe1];
    const CALL: [u8; 5] = [0xe8, 0, 0, 0, 0];

    #[test]
    fn of_libgcc() {
        let bytes = fs::read(LIBRARY).unwrap();
        let table = build(&bytes).unwrap();
        let rule_at = |address: u64| {
            let offset = address - table.base;
            let rows = table.page(usize::try_from(offset >> 16).unwrap());
            let after = rows.partition_point(|row| u64::from(row.offset) <= offset & 0xffff);
            table.rules[usize::from(rows[after - 1].rule)]
        };
        let text = elf::read(&bytes).unwrap().text;
        let file = object::File::parse(&*bytes).unwrap();
        for name in [
            "_Unwind_RaiseException",
            "_Unwind_ForcedUnwind",
            "_Unwind_Resume",
            "_Unwind_Resume_or_Rethrow",
        ] {
            let symbol = file
                .dynamic_symbols()
                .find(|symbol| symbol.name() == Ok(name))
                .unwrap();
            let (start, end) = (symbol.address(), symbol.address() + symbol.size());
            let code = text.bytes(start, end).unwrap();
            let exit = code.windows(EXIT.len()).position(|code| code == EXIT).unwrap();
            let exit = start + u64::try_from(exit).unwrap();
            // Below `rbp`, the CFA and the two registers of the handler's arguments: as the rows have it.
            let saves = [-56, -48, -40, -32, -24].map(Some);
            let found = leaving(&text, start, exit, saves).unwrap();
            assert_eq!(found.end, exit + 6, "{name}");
            assert!(found.overwritten.end < exit, "{name}");
            let before = rule_at(found.overwritten.start - 1);
            assert_eq!((before.cfa_register, before.extra), (register::RBP, -8), "{name}");
            for address in found.overwritten.clone() {
                let rule = rule_at(address);
                let lost = [rule.rbp_saved(), rule.rbx_saved()];
                assert_eq!(lost, [Saved::Lost as u8; 2], "{name}");
                let from_rbp = i64::from(rule.cfa_offset) + i64::from(rule.extra);
                assert_eq!(Some(from_rbp), found.return_address, "{name}");
            }
            for address in found.overwritten.end..found.end {
                assert_eq!(rule_at(address), Rule::OVERWRITTEN, "{name}");
            }
        }
    }

    /// Code at 0x1000 whose way out begins `exit` bytes on.
    fn of_code(code: &[u8], exit: u64) -> Option<Leaving> {
        let saves = [Some(-0x20), None, None, None, None];
        leaving(&Text::of(0x1000, code), 0x1000, 0x1000 + exit, saves)
    }

    #[test]
    fn contexts_that_are_not_told_leave_no_return_address() {
        // lea -0x40(%rbp), %rdi; lea -0x80(%rbp), %rsi
        let contexts = [0x48, 0x8d, 0x7d, 0xc0, 0x48, 0x8d, 0x75, 0x80];
        // mov -0x70(%rbp), %rsi
        let handler = [0x48, 0x8b, 0x75, 0x90];
        let leaving = |parts: &[&[u8]]| {
            let code = parts.concat();
            let exit = code.len() as u64;
            of_code(&[&code[..], &EXIT].concat(), exit)
        };
        let whole = leaving(&[&contexts, &CALL, &handler, &CALL]).unwrap();
        assert_eq!(whole.overwritten, 0x1008..0x1016);
        assert_eq!((whole.return_address, whole.end), (Some(-0x30), 0x101c));
        // lea -0x40(%rbp), %rbx; mov OFFSET(%rbp), %rbx; mov %rbx, %rdi: from where it is saved, or anything.
        let by_rbx = |offset: u8| {
            let load = [0x48, 0x8d, 0x5d, 0xc0, 0x48, 0x8b, 0x5d, offset, 0x48, 0x89, 0xdf];
            leaving(&[&load, &contexts[4..], &CALL, &handler, &CALL]).unwrap()
        };
        assert_eq!(by_rbx(0xf0).return_address, Some(-0x30));
        assert_eq!(by_rbx(0xe8).return_address, None);
        // The address of a context in a register that the first call does not preserve.
        let without = leaving(&[&contexts, &CALL, &CALL]).unwrap();
        assert_eq!(without.return_address, None);
        let without = leaving(&[&contexts[4..], &CALL, &handler, &CALL]).unwrap();
        assert_eq!(without.return_address, None);
        // One call alone.
        let without = leaving(&[&contexts, &CALL]).unwrap();
        assert_eq!(
            (without.overwritten, without.return_address),
            (0x1008..0x100d, None)
        );
    }

    #[test]
    fn rejects_truncated_code() {
        assert_eq!(of_code(&EXIT[..4], 0), None);
        assert_eq!(of_code(&[], 0), None);
        assert_eq!(of_code(&EXIT, 0), None);
        assert_eq!(of_code(&EXIT, u64::MAX - 0x1000), None);
        // Not in one segment with its beginning.
        assert_eq!(of_code(&EXIT, 0x1000), None);
    }
}
