//! Finds code that sets the stack pointer by hand, whatever its name: switches between coroutines, and jumps to
//! another stack or frame.
//!
//! Compilers move the stack pointer by numbers, and put it back from the frame pointer or from where the same function has kept it. An
//! instruction that loads it from anywhere else, or exchanges it, was written by hand. Such bytes are looked for, and the function
//! around them is decoded from its beginning, as they may lie inside other instructions. Nothing is left out for being too much:
//! what is not looked at counts as found, which costs time in the target and no more.

mod kept;

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register};
use profiler_elf::{Elf, MappedCode};

use super::frames::Frames;
use kept::Kept;

/// Instructions that are looked at. Of 2,700 programs and libraries the one with most has 300.
const MAX_CANDIDATES: usize = 4096;
/// Largest function that is decoded, in bytes. Of those programs and libraries none is above 210 kB.
const MAX_FUNCTION_BYTES: usize = 1 << 20;
/// Code that is decoded, in bytes. Of those programs and libraries none takes more than 0.9 MB.
const MAX_DECODED_BYTES: usize = 4 << 20;
/// Where no unwind rows say how far a function reaches, code so near is taken for the same, in bytes.
const NEAR_BYTES: u64 = 256;
/// Decoding that is to tell whether instructions end at an address begins so far before it, or up to twice as far, in bytes.
const DECODED_BEFORE_BYTES: u64 = 32;
/// The longest instruction, in bytes.
const MAX_INSTRUCTION_BYTES: usize = 15;
/// `xchg %rax, %rsp`, which has an opcode of its own.
const EXCHANGE_WITH_RAX: [u8; 2] = [0x48, 0x94];

/// Addresses of instructions that set the stack pointer by hand; the first of each kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct SetByHand {
    /// The code around it keeps the old one elsewhere than on the stack, or exchanges the two: it may come back to it.
    pub switch: Option<u64>,
    /// All others.
    pub other: Option<u64>,
}

impl SetByHand {
    fn add(&mut self, kind: Kind, address: u64) {
        let first = match kind {
            Kind::Switch => &mut self.switch,
            Kind::Other => &mut self.other,
        };
        first.get_or_insert(address);
    }
}

/// What an instruction that sets the stack pointer is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Switch,
    Other,
}

/// How one instruction moves the whole stack pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Move {
    /// Loads it from a register or from memory.
    Load,
    /// Swaps it with a register or memory.
    Exchange,
    /// Keeps it in memory.
    Save,
}

/// Looks through a file's code.
pub(super) fn set_by_hand(elf: &Elf<'_>, program: &[u8]) -> SetByHand {
    let frames = Frames::of(program);
    let mut search = Search {
        frames: &frames,
        found: SetByHand::default(),
        candidates: 0,
        decoded_bytes: 0,
    };
    // Sections of a damaged file may overlap.
    let mut left = program.len();
    for code in elf.mapped_code() {
        let Some(rest) = left.checked_sub(code.bytes.len()) else {
            search.found.add(Kind::Other, code.address);
            break;
        };
        left = rest;
        search.look_through(&code);
        if search.found.switch.is_some() {
            break;
        }
    }
    search.found
}

struct Search<'a> {
    frames: &'a Frames<'a>,
    found: SetByHand,
    candidates: usize,
    decoded_bytes: usize,
}

impl Search<'_> {
    /// Looks through some code until a switch is found.
    fn look_through(&mut self, code: &MappedCode<'_>) {
        // Its instructions were judged together.
        let mut judged = 0..0;
        for offset in candidates(code.bytes) {
            let Some(address) = code.address.checked_add(offset as u64) else {
                return;
            };
            if judged.contains(&address) || !sets(&decoded(code, offset)) {
                continue;
            }
            self.candidates += 1;
            if self.candidates > MAX_CANDIDATES {
                self.found.add(Kind::Other, address);
                return;
            }
            match self.piece(code, address) {
                Some(piece) => {
                    judged = piece.address..piece.address.saturating_add(piece.bytes.len() as u64);
                    self.judge(code, &piece, address);
                }
                None => self.found.add(kind_without_piece(code, address), address),
            }
            if self.found.switch.is_some() {
                return;
            }
        }
    }

    /// The function that holds an address, or the part of one, as far as the unwind rows say and as much may be decoded still.
    fn piece<'a>(&mut self, code: &MappedCode<'a>, address: u64) -> Option<MappedCode<'a>> {
        let range = self.frames.piece(address)?;
        if !range.contains(&address) {
            return None;
        }
        let bytes = code.bytes.get(offsets(code, &range)?)?;
        let decoded_bytes = self.decoded_bytes.checked_add(bytes.len())?;
        if bytes.len() > MAX_FUNCTION_BYTES || decoded_bytes > MAX_DECODED_BYTES {
            return None;
        }
        self.decoded_bytes = decoded_bytes;
        Some(MappedCode {
            address: range.start,
            bytes,
        })
    }

    /// Decodes a function, which has a candidate at an address.
    fn judge(&mut self, code: &MappedCode<'_>, piece: &MappedCode<'_>, candidate: u64) {
        let decoder = Decoder::with_ip(64, piece.bytes, piece.address, DecoderOptions::NONE);
        let instructions: Vec<Instruction> = decoder.into_iter().collect();
        if instructions.iter().any(Instruction::is_invalid) {
            // Data among the code: where instructions begin is in doubt.
            self.found.add(kind_without_piece(code, candidate), candidate);
            return;
        }
        if !instructions.iter().any(sets) {
            return;
        }
        let kept = Kept::by(&instructions);
        let mut first = None;
        let mut kind = if kept.leaves { Kind::Switch } else { Kind::Other };
        for (position, instruction) in instructions.iter().enumerate() {
            match moves(instruction) {
                Some(Move::Load) if !kept.gives(position, instruction) => {}
                Some(Move::Exchange) => kind = Kind::Switch,
                Some(Move::Load | Move::Save) | None => continue,
            }
            first.get_or_insert(instruction.ip());
        }
        if let Some(address) = first {
            self.found.add(kind, address);
        }
    }
}

/// Where bytes begin that may set the stack pointer: an opcode with a 64-bit prefix before it and that register behind it.
fn candidates(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let moves = memchr::memchr3_iter(0x87, 0x89, 0x8b, bytes).filter_map(|opcode| {
        let start = opcode.checked_sub(1)?;
        let &[prefix, opcode, operands] = bytes.get(start..start + 3)? else {
            return None;
        };
        if prefix & 0xf8 != 0x48 {
            return None;
        }
        // The fourth register, and no prefix that makes it the twelfth.
        let in_reg = operands >> 3 & 7 == 4 && prefix & 4 == 0;
        let in_rm = operands >> 6 == 3 && operands & 7 == 4 && prefix & 1 == 0;
        let sets = match opcode {
            0x8b => in_reg,
            0x89 => in_rm,
            _ => in_reg || in_rm,
        };
        sets.then_some(start)
    });
    let exchanges = memchr::memmem::find_iter(bytes, &EXCHANGE_WITH_RAX);
    moves.chain(exchanges)
}

fn decoded(code: &MappedCode<'_>, offset: usize) -> Instruction {
    let end = offset.saturating_add(MAX_INSTRUCTION_BYTES).min(code.bytes.len());
    let bytes = code.bytes.get(offset..end).unwrap_or_default();
    let address = code.address.wrapping_add(offset as u64);
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode()
}

/// Offsets of a range of addresses, as far as it is in the code.
fn offsets(code: &MappedCode<'_>, range: &Range<u64>) -> Option<Range<usize>> {
    let offset = |address: u64| usize::try_from(address.checked_sub(code.address)?).ok();
    let start = offset(range.start)?;
    let end = offset(range.end)?.min(code.bytes.len());
    (start < end).then_some(start..end)
}

/// What a load or an exchange at an address is part of, by the bytes around it: nothing says where instructions begin.
fn kind_without_piece(code: &MappedCode<'_>, address: u64) -> Kind {
    if moves(&decoded_at(code, address)) == Some(Move::Exchange) && follows_instructions(code, address) {
        return Kind::Switch;
    }
    let near = address.saturating_sub(NEAR_BYTES).max(code.address)..address.saturating_add(NEAR_BYTES);
    let saves = offsets(code, &near).is_some_and(|near| {
        let from = near.start;
        let bytes = code.bytes.get(near).unwrap_or_default();
        memchr::memchr_iter(0x89, bytes)
            .filter_map(|opcode| (from + opcode).checked_sub(1))
            .any(|start| {
                let instruction = decoded(code, start);
                moves(&instruction) == Some(Move::Save) && !is_in_frame(&instruction)
            })
    });
    if saves { Kind::Switch } else { Kind::Other }
}

/// Whether instructions before an address end there. Decoding that begins in the middle of one soon falls in with the others.
fn follows_instructions(code: &MappedCode<'_>, address: u64) -> bool {
    let starts = address.saturating_sub(2 * DECODED_BEFORE_BYTES).max(code.address)
        ..=address.saturating_sub(DECODED_BEFORE_BYTES).max(code.address);
    let (mut count, mut ending) = (0, 0);
    for start in starts {
        let Some(bytes) = offsets(code, &(start..address)).and_then(|before| code.bytes.get(before)) else {
            // It is the first.
            return true;
        };
        let decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        count += 1;
        ending += u32::from(
            !decoder
                .into_iter()
                .any(|instruction| instruction.is_invalid() && instruction.next_ip() >= address),
        );
    }
    2 * ending > count
}

fn decoded_at(code: &MappedCode<'_>, address: u64) -> Instruction {
    let offset = address.checked_sub(code.address);
    offset
        .and_then(|offset| usize::try_from(offset).ok())
        .map_or_else(Instruction::default, |offset| decoded(code, offset))
}

/// Whether an instruction sets the stack pointer from anywhere but the function's own frame.
fn sets(instruction: &Instruction) -> bool {
    let from_register =
        |register| instruction.op1_kind() == OpKind::Register && instruction.op1_register() == register;
    match moves(instruction) {
        Some(Move::Load) if instruction.op1_kind() == OpKind::Memory => {
            instruction.memory_base() != Register::RSP
        }
        Some(Move::Load) => !from_register(Register::RBP) && !from_register(Register::RSP),
        Some(Move::Exchange) => true,
        Some(Move::Save) | None => false,
    }
}

/// Whether the memory that an instruction uses is told by the stack or the frame pointer.
fn is_in_frame(instruction: &Instruction) -> bool {
    matches!(instruction.memory_base(), Register::RSP | Register::RBP)
}

/// What an instruction does with the whole stack pointer; numbers that are added to it are none of this.
fn moves(instruction: &Instruction) -> Option<Move> {
    let is_stack_pointer = |operand| {
        instruction.op_kind(operand) == OpKind::Register && instruction.op_register(operand) == Register::RSP
    };
    match instruction.code() {
        Code::Mov_r64_rm64 | Code::Mov_rm64_r64 if is_stack_pointer(0) => Some(Move::Load),
        Code::Mov_rm64_r64 if is_stack_pointer(1) && instruction.op0_kind() == OpKind::Memory => {
            Some(Move::Save)
        }
        Code::Xchg_rm64_r64 | Code::Xchg_r64_RAX if is_stack_pointer(0) || is_stack_pointer(1) => {
            Some(Move::Exchange)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(bytes: &[u8], address: u64) -> SetByHand {
        let frames = Frames::of(&[]);
        let mut search = Search {
            frames: &frames,
            found: SetByHand::default(),
            candidates: 0,
            decoded_bytes: 0,
        };
        search.look_through(&MappedCode { address, bytes });
        search.found
    }

    #[test]
    fn code_at_the_end_of_the_address_space() {
        // mov (%rsi), %rsp
        let load = [0x48, 0x8b, 0x26];
        assert_eq!(found(&load, u64::MAX - 2).other, Some(u64::MAX - 2));
        // It would wrap.
        assert_eq!(
            found(&[[0x90; 3], load].concat(), u64::MAX - 2),
            SetByHand::default()
        );
    }

    proptest! {
        #[test]
        fn any_bytes(
            bytes in prop::collection::vec(prop::sample::select(vec![0x48, 0x87, 0x89, 0x8b, 0x94, 0x26, 0xe4]), 0..100),
            address: u64,
        ) {
            let code = MappedCode { address, bytes: &bytes };
            let found = found(&bytes, address);
            for address in [found.switch, found.other].into_iter().flatten() {
                prop_assert!(sets(&decoded_at(&code, address)));
            }
        }
    }
}
