//! Where arguments are before the function has stored them.
//!
//! Code that is not optimized has one place for a variable in all of its function, though nothing is there until the
//! function's first instructions have stored it. These are followed to find what register they will store.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use profiler_common::values::Operation;
use profiler_elf::offset_of;

use super::{
    code::Code,
    context::{Context, Location, Piece, Source},
    entry::Entry,
    file::DebugFile,
    functions::Function,
    passed::Passed,
    place::Place,
    refusal::{Refusal, unsupported},
};

/// Bytes of a function's beginning that are followed.
const MAX_BYTES: u64 = 1024;

/// Functions that it is kept of where they begin.
const MAX_KEPT: usize = 4096;

/// Bytes of the longest instruction.
const MAX_INSTRUCTION_BYTES: u64 = 15;

/// A store into the frame.
struct Store {
    /// From the canonical frame address.
    at: i64,
    size: u64,
    /// Where the value is at the instruction that is asked for; `None` where that is not known.
    from: Option<From>,
}

/// What one instruction stores into the frame.
struct Stored {
    /// From the canonical frame address.
    at: i64,
    /// In bytes.
    size: u64,
    /// The register that is copied; `None` of anything else.
    source: Option<Register>,
}

#[derive(Clone, Copy)]
enum From {
    /// The store was done before: it is in its place.
    Stored,
    /// It is in a register, by its DWARF number.
    Register(u8),
}

impl<'a> DebugFile<'a> {
    /// Where the own code of the function at an address begins, after what sets up its frame and stores its
    /// arguments: where the line table says so, else its second line, as debuggers have it.
    #[must_use]
    pub fn body_start(&self, address: u64) -> Option<u64> {
        self.prologue_end(&self.function(address).ok()?)
    }

    fn prologue_end(&self, function: &Function<'a>) -> Option<u64> {
        let at = function.entry.offset();
        if let Some(end) = self.prologue_ends.borrow().get(&at) {
            return *end;
        }
        let end = self.find_prologue_end(function);
        let mut kept = self.prologue_ends.borrow_mut();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(at, end);
        end
    }

    fn find_prologue_end(&self, function: &Function<'a>) -> Option<u64> {
        let range = self.ranges(&function.entry).into_iter().next()?;
        let program = function.entry.unit.line_program.clone()?;
        let mut rows = program.rows();
        let mut second: Option<u64> = None;
        let mut said: Option<u64> = None;
        while let Ok(Some((_, row))) = rows.next_row() {
            let address = row.address();
            if row.end_sequence() || !range.contains(&address) {
                continue;
            }
            if row.prologue_end() && said.is_none_or(|said| address < said) {
                said = Some(address);
            }
            if address > range.start && second.is_none_or(|second| address < second) {
                second = Some(address);
            }
        }
        said.or(second)
    }

    /// The place of a variable of the frame that is not in its place yet; `None` where it is.
    ///
    /// # Errors
    /// Where it is nowhere that can be told.
    pub(super) fn before_it_is_stored(
        &self,
        context: &Context<'_, 'a>,
        function: &Function<'a>,
        variable: &Entry<'a>,
        size: u64,
    ) -> Result<Option<Place>, Refusal> {
        let start = self.ranges(&function.entry).first().map(|range| range.start);
        let Some(start) = start.filter(|start| context.address >= *start) else {
            return Ok(None);
        };
        if !Self::is_always_in_frame(variable)? {
            return Ok(None);
        }
        let Some(end) = self.prologue_end(function).filter(|end| context.address < *end) else {
            return Ok(None);
        };
        let refusal = || {
            unsupported(format!(
                "the function has not stored it yet at this instruction: it is known from {end:#x} on"
            ))
        };
        if variable.tag() != gimli::DW_TAG_formal_parameter {
            return refusal();
        }
        let Some(place) = self.offset_in_frame(context, variable, end)? else {
            return refusal();
        };
        let at_frame = |offset: i64| -> Result<Source, Refusal> {
            let mut code = self.cfa(context)?;
            code.add(offset.cast_unsigned());
            Ok(Source::Memory(code))
        };
        if place >= 0 {
            // The caller has put it on the stack.
            self.check_used_on_stack(context, variable, Passed::Stack { at: place, size })?;
            return Ok(Some(Place::new(Location::Whole(at_frame(place)?), size)?));
        }
        let stores = self.stores(start, context.address, end);
        let mut pieces = Vec::new();
        let mut covered = 0_u64;
        while covered < size {
            let wanted = place.saturating_add_unsigned(covered);
            let store = stores.iter().rev().find(|store| store.at == wanted);
            let Some(Store {
                from: Some(from),
                size: bytes,
                ..
            }) = store
            else {
                return refusal();
            };
            pieces.push(Piece {
                source: match *from {
                    From::Stored => at_frame(wanted)?,
                    From::Register(register) => Source::Register(register),
                },
                bits: bytes.min(&(size - covered)) * 8,
                skipped_bits: 0,
            });
            covered = covered.saturating_add(*bytes);
        }
        Ok(Some(Place::new(Location::Pieces(pieces), size)?))
    }

    /// Where a variable is once the frame is set up, from the canonical frame address.
    fn offset_in_frame(
        &self,
        context: &Context<'_, 'a>,
        variable: &Entry<'a>,
        set_up: u64,
    ) -> Result<Option<i64>, Refusal> {
        let later = Context {
            address: set_up,
            ..context.clone()
        };
        let Location::Whole(Source::Memory(place)) = self.location(&later, variable, 0, false)? else {
            return Ok(None);
        };
        let (place, frame) = (base_and_offset(&place), base_and_offset(&self.cfa(&later)?));
        Ok(match (place, frame) {
            (Some((base, place)), Some((frame_base, frame))) if base == frame_base => {
                Some(place.wrapping_sub(frame))
            }
            _ => None,
        })
    }

    /// Whether the instruction at an address returns.
    pub(super) fn is_return(&self, address: u64) -> bool {
        let Some(bytes) = self.code(address, MAX_INSTRUCTION_BYTES) else {
            return false;
        };
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        decoder.decode().mnemonic() == Mnemonic::Ret
    }

    /// The program's code from an address on, at most so many bytes.
    pub(super) fn code(&self, address: u64, length: u64) -> Option<&'a [u8]> {
        let from = usize::try_from(offset_of(&self.sections.program.segments, address)?).ok()?;
        let rest = self.sections.program_bytes.get(from..)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
        rest.get(..length)
    }

    /// What the instructions from a function's start on store into its frame, as seen at one of them.
    fn stores(&self, start: u64, at: u64, end: u64) -> Vec<Store> {
        let mut stores = Vec::new();
        let length = end.saturating_sub(start).min(MAX_BYTES);
        let Some(bytes) = self.code(start, length) else {
            return stores;
        };
        let mut tracked = Tracked::new();
        for instruction in Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
            let is_done = instruction.ip() < at;
            if instruction.ip() == at {
                tracked.forget_copies();
            }
            if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
                break;
            }
            if let Some(Stored { at, size, source }) = tracked.store(&instruction) {
                let held = source.and_then(|source| tracked.held(source, size));
                stores.push(Store {
                    at,
                    size,
                    from: if is_done {
                        Some(From::Stored)
                    } else {
                        held.map(From::Register)
                    },
                });
            }
            tracked.step(&instruction);
        }
        stores
    }
}

/// The register and the offset that an address is the sum of, if it is one.
pub(super) fn base_and_offset(code: &Code) -> Option<(u8, i64)> {
    match code.instructions() {
        [one] if one.operation == Operation::Register as u8 => {
            Some((one.register, one.immediate.cast_signed()))
        }
        _ => None,
    }
}

/// What is known while a function's beginning is followed.
struct Tracked {
    info: InstructionInfoFactory,
    /// The stack pointer and the frame pointer, from the canonical frame address.
    stack: Option<i64>,
    frame: Option<i64>,
    /// For each general register by the machine's number: whose value it holds, and how many bytes of it.
    copies: [Option<(usize, u64)>; 16],
}

impl Tracked {
    /// At the function's first instruction, where the return address is all that there is of the frame.
    fn new() -> Self {
        let mut tracked = Self {
            info: InstructionInfoFactory::new(),
            stack: Some(-8),
            frame: None,
            copies: [None; 16],
        };
        tracked.forget_copies();
        tracked
    }

    /// From here on, each register holds what it holds.
    fn forget_copies(&mut self) {
        self.copies = std::array::from_fn(|number| Some((number, 8)));
    }

    /// The register, by its DWARF number, that holds what is stored from one.
    fn held(&self, source: Register, size: u64) -> Option<u8> {
        let (number, bytes) = (*self.copies.get(number(source)?)?)?;
        dwarf_of(number).filter(|_| size <= bytes)
    }

    /// What an instruction stores into the frame.
    fn store(&mut self, instruction: &Instruction) -> Option<Stored> {
        if instruction.op_count() != 2 || instruction.op0_kind() != OpKind::Memory {
            return None;
        }
        let base = match instruction.memory_base() {
            Register::RSP => self.stack?,
            Register::RBP => self.frame?,
            _ => return None,
        };
        if instruction.memory_index() != Register::None || instruction.has_segment_prefix() {
            return None;
        }
        let written = self.info.info(instruction).op0_access();
        if !matches!(written, OpAccess::Write | OpAccess::ReadWrite) {
            return None;
        }
        let at = base.wrapping_add(instruction.memory_displacement64().cast_signed());
        let size = instruction.memory_size().size() as u64;
        let is_copy = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op1_kind() == OpKind::Register
            && !is_high_byte(instruction.op1_register());
        Some(Stored {
            at,
            size: size.max(1),
            source: is_copy.then(|| instruction.op1_register()),
        })
    }

    fn step(&mut self, instruction: &Instruction) {
        let is_register_move = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register;
        let (target, source) = (instruction.op0_register(), instruction.op1_register());
        let moved = is_register_move
            .then(|| {
                let (number_, bytes) = (*self.copies.get(number(source)?)?)?;
                (!is_high_byte(source) && !is_high_byte(target))
                    .then_some((number_, bytes.min(target.size() as u64)))
            })
            .flatten();
        let stack = match instruction.mnemonic() {
            Mnemonic::Push => self.stack.map(|at| at.wrapping_sub(8)),
            Mnemonic::Pop => self.stack.map(|at| at.wrapping_add(8)),
            Mnemonic::Sub if target == Register::RSP && instruction.op1_kind() != OpKind::Register => self
                .stack
                .map(|at| at.wrapping_sub(instruction.immediate(1).cast_signed())),
            _ if self.writes(instruction, 4) => None,
            _ => self.stack,
        };
        let frame = if is_register_move && target == Register::RBP && source == Register::RSP {
            self.stack
        } else if self.writes(instruction, 5) {
            None
        } else {
            self.frame
        };
        for register in 0..self.copies.len() {
            if self.writes(instruction, register) {
                self.copies[register] = None;
            }
        }
        if is_register_move && let Some(copy) = number(target).and_then(|target| self.copies.get_mut(target))
        {
            *copy = moved;
        }
        (self.stack, self.frame) = (stack, frame);
    }

    fn writes(&mut self, instruction: &Instruction, register: usize) -> bool {
        let used = self.info.info(instruction).used_registers().iter();
        used.filter(|used| {
            !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            )
        })
        .any(|used| number(used.register()) == Some(register))
    }
}

/// A general register's number, whatever part of it is named.
fn number(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

/// The DWARF number of a general register by the machine's.
fn dwarf_of(number: usize) -> Option<u8> {
    // Of rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi; the others have the machine's.
    const DWARF: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
    DWARF.get(number).copied().or_else(|| u8::try_from(number).ok())
}

/// The DWARF number of a general register, whatever part of it is named.
pub(super) fn dwarf_number(register: Register) -> Option<u8> {
    number(register).and_then(dwarf_of)
}

fn is_high_byte(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}
