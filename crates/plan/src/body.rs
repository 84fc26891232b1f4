//! All code of one function: the range of its symbol, its cold parts, and pieces of it without a symbol.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
};

use iced_x86::{FlowControl, Instruction, Mnemonic, Register};

use super::{
    code::{Code, CodeError, MAX_CODE_BYTES, direct_target},
    frames::{Base, Frames, Rows},
    functions::{Function, ModuleIndex},
    stack::moved,
};

/// Parts of one function that are decoded.
const MAX_PARTS: usize = 64;

/// Places without a symbol that its jumps lead to, each of which is looked at.
const MAX_TARGETS: usize = 256;

/// All code of a function.
pub struct Body {
    parts: Vec<Part>,
}

/// A contiguous part of it.
pub struct Part {
    /// What it does.
    pub code: Code,
    /// Where its frame begins.
    rows: Rows,
    /// By instruction, whether the stack pointer certainly differs from that at the function's entry.
    moved: Vec<bool>,
}

/// Where a jump leads.
struct LeftFor {
    target: u64,
    /// There is more on the stack than the return address.
    with_frame: bool,
}

impl Part {
    fn new(code: Code, frames: &Frames<'_>, is_first: bool) -> Self {
        let rows = frames.rows(code.range());
        let instructions = code.instructions();
        // Where another part is entered the stack pointer is not known but by the rows; where it is, rows may be imprecise.
        let by_code = if is_first {
            moved(&code)
        } else {
            vec![None; instructions.len()]
        };
        let by_rows = |instruction: &Instruction| rows.is_moved(instruction.ip());
        let moved = instructions
            .iter()
            .zip(by_code)
            .map(|(instruction, moved)| moved.unwrap_or_else(|| by_rows(instruction)))
            .collect();
        Self { code, rows, moved }
    }

    /// Whether the stack pointer certainly differs from that at the function's entry, before an instruction by its number.
    pub fn is_moved(&self, number: usize) -> bool {
        self.moved.get(number).copied().unwrap_or(false)
    }

    /// Where its jumps lead that leave it, with a frame on the stack or without.
    fn left_for(&self) -> impl Iterator<Item = LeftFor> + '_ {
        let range = self.code.range();
        let jumps = self.code.instructions().iter().zip(&self.moved);
        jumps.filter_map(move |(instruction, moved)| {
            let is_jump = matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
            );
            let target = direct_target(instruction).filter(|target| is_jump && !range.contains(target))?;
            Some(LeftFor {
                target,
                with_frame: *moved,
            })
        })
    }

    /// Whether an instruction reads or takes the address of the word that the function returns to.
    fn reads_return_address(&self, instruction: &Instruction) -> bool {
        let Some(base) = self.rows.base(instruction.ip()) else {
            return false;
        };
        if instruction.mnemonic() == Mnemonic::Pop {
            return base == Base::AT_ENTRY;
        }
        let displacement = instruction.memory_displacement64().cast_signed();
        let is_there = |register, offset: i64| {
            instruction.memory_base() == register
                && instruction.memory_index() == Register::None
                && displacement == offset.wrapping_sub(8)
        };
        match base {
            Base::StackPointer(offset) => is_there(Register::RSP, offset),
            Base::FramePointer(offset) => is_there(Register::RBP, offset),
            Base::Elsewhere => false,
        }
    }
}

impl Body {
    /// Decodes a function of a module whose frames these are.
    ///
    /// # Errors
    /// Where its code cannot be trusted.
    pub fn decode(
        module: &ModuleIndex,
        frames: &Frames<'_>,
        function: &Function<'_>,
    ) -> Result<Self, CodeError> {
        if function.size() == 0 {
            return Err(CodeError::NoSize);
        }
        let hot = Code::decode(function.code().ok_or(CodeError::NotInFile)?, function.address())?;
        let mut body = Self {
            parts: vec![Part::new(hot, frames, true)],
        };
        let ranges = module.cold_parts(function);
        let only = ranges.len() == 1;
        for range in ranges {
            let part = decode(module, range)?;
            // Functions of one name in several files have cold parts of one name.
            if only || body.hot().branches_into(&part) || part.branches_into(body.hot()) {
                body.add(Part::new(part, frames, false))?;
            }
        }
        body.find_pieces(module, frames)?;
        Ok(body)
    }

    /// Decodes code that no symbol names, as far as its unwind rows reach; `None` where it does not begin there, has none, or cannot
    /// be trusted. Of a stub that leads to another file's function the rows are those of all stubs.
    pub fn of_piece(module: &ModuleIndex, frames: &Frames<'_>, address: u64) -> Option<Self> {
        let range = frames.piece(address).filter(|range| range.start == address)?;
        let base = frames.rows(range.clone()).base(address);
        if base != Some(Base::AT_ENTRY) {
            return None;
        }
        let hot = decode(module, range).ok()?;
        let mut body = Self {
            parts: vec![Part::new(hot, frames, true)],
        };
        body.find_pieces(module, frames).ok()?;
        Some(body)
    }

    /// Finds the pieces that jumps lead to and that no symbol names, as a file has them whose symbols are stripped: what is left for
    /// with a frame on the stack, or goes on with one, is no other function.
    fn find_pieces(&mut self, module: &ModuleIndex, frames: &Frames<'_>) -> Result<(), CodeError> {
        let mut left_for: VecDeque<LeftFor> = self.parts.iter().flat_map(Part::left_for).collect();
        let mut judged = BTreeSet::new();
        while let Some(LeftFor { target, with_frame }) = left_for.pop_front() {
            if self.contains(target) || module.function_at(target).is_some() {
                continue;
            }
            if !judged.insert((target, with_frame)) {
                continue;
            }
            if judged.len() > MAX_TARGETS {
                return Err(CodeError::TooManyParts(MAX_PARTS));
            }
            let Some(range) = frames.piece(target) else {
                continue;
            };
            // Of a stub that leads to another file's function an expression says where the frame begins.
            let base = || frames.rows(range.clone()).base(target);
            let goes_on = || matches!(base(), Some(Base::StackPointer(9..) | Base::FramePointer(_)));
            if !with_frame && !goes_on() {
                continue;
            }
            let overlaps = |part: &Part| {
                let own = part.code.range();
                range.start < own.end && own.start < range.end
            };
            if self.parts.iter().any(overlaps) {
                continue;
            }
            let part = Part::new(decode(module, range)?, frames, false);
            left_for.extend(part.left_for());
            self.add(part)?;
        }
        Ok(())
    }

    fn add(&mut self, part: Part) -> Result<(), CodeError> {
        self.parts.push(part);
        if self.parts.len() > MAX_PARTS {
            return Err(CodeError::TooManyParts(MAX_PARTS));
        }
        let lengths = self.parts.iter().map(|part| part.code.range());
        let length = lengths.fold(0, |sum: u64, range| sum.saturating_add(range.end - range.start));
        if length > MAX_CODE_BYTES as u64 {
            return Err(CodeError::TooLarge(length));
        }
        Ok(())
    }

    /// Its parts; the first begins with its entry.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The part that it begins in.
    pub fn hot(&self) -> &Code {
        &self.parts[0].code
    }

    /// The address of its entry.
    pub fn start(&self) -> u64 {
        self.hot().range().start
    }

    /// Whether an address is in its code.
    pub fn contains(&self, address: u64) -> bool {
        self.parts.iter().any(|part| part.code.range().contains(&address))
    }

    /// Whether one of its own jumps leads to an address.
    pub fn jumps_to(&self, address: u64) -> bool {
        self.parts.iter().any(|part| part.code.is_target(address))
    }

    /// Whether one of its own jumps leads back to where it is entered: what is probed as its entry is reached at each turn, as no
    /// other jump leads in between.
    pub fn loops_to_entry(&self) -> bool {
        self.jumps_to(self.start())
    }

    /// Where its jumps lead that leave it for another function.
    pub fn tail_calls(&self) -> impl Iterator<Item = u64> + '_ {
        let left_for = self.parts.iter().flat_map(Part::left_for);
        left_for
            .filter(|jump| !jump.with_frame && !self.contains(jump.target))
            .map(|jump| jump.target)
    }

    /// All instructions of its parts.
    pub fn instructions(&self) -> impl Iterator<Item = &Instruction> {
        self.parts.iter().flat_map(|part| part.code.instructions())
    }

    /// Whether it calls its own code, as a thunk does that replaces its return address.
    pub fn calls_itself(&self) -> bool {
        let mut calls = self
            .instructions()
            .filter(|instruction| instruction.flow_control() == FlowControl::Call);
        calls.any(|call| {
            direct_target(call).is_some_and(|target| target != self.start() && self.contains(target))
        })
    }

    /// Whether its code ends in an instruction that leads into what follows.
    pub fn falls_through(&self) -> bool {
        self.parts.iter().any(|part| {
            let padding =
                |instruction: &&Instruction| matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
            let mut instructions = part.code.instructions().iter().rev();
            let Some(last) = instructions.find(|instruction| !padding(instruction)) else {
                return true;
            };
            // What is called last does not return.
            let goes_on = matches!(
                last.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
            );
            goes_on && last.mnemonic() != Mnemonic::Hlt && !self.contains(part.code.range().end)
        })
    }

    /// Whether it looks at the address that it returns to, which a return probe replaces.
    pub fn reads_return_address(&self) -> bool {
        let reads = |part: &Part| {
            let mut instructions = part.code.instructions().iter();
            instructions.any(|instruction| part.reads_return_address(instruction))
        };
        self.parts.iter().any(reads)
    }
}

fn decode(module: &ModuleIndex, range: Range<u64>) -> Result<Code, CodeError> {
    let bytes = module.code(range.clone()).ok_or(CodeError::NotInFile)?;
    Code::decode(bytes, range.start)
}
