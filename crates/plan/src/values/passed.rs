//! What debug information says of a parameter where its function is entered, and is of a moment later.
//!
//! An expression that computes a parameter's value there is what the function's first statement makes of it, of whichever compiler.
//!
//! Of a parameter that the function's first statement changes, LLVM (clang, rustc) keeps the place, or the constant, behind
//! that statement alone, and tells it from the first instruction on. And of one that a function does not use, its callers may
//! pass whatever is there. Neither can be told from the expression, so that these are refused at the entry.

use std::collections::HashSet;

use gimli::{AttributeValue, Expression, Operation as Dwarf};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use profiler_common::unwind::register::RSP;

use super::{
    context::{Context, Location, Source},
    entry::Entry,
    entry_value::is_preserved,
    file::{DebugFile, Slice},
    prologue::{base_and_offset, dwarf_number},
    refusal::{Refusal, optimized_out},
};

/// Instructions that are looked at for a use.
const MAX_LOOKED_AT: usize = 2_000;
/// Calls that are followed, one within the other.
const MAX_CALLS: u8 = 3;
/// Bytes of the longest instruction.
const MAX_INSTRUCTION_BYTES: u64 = 15;

/// What has compiled a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// clang or rustc.
    Llvm,
    /// GCC, by its flags with optimization, of a copy of a function: it leaves parameters of these out, or passes them otherwise.
    GccOfCopy,
    /// GCC of anything else, which is called as its declaration says, or another compiler.
    Other,
}

/// Where an argument is when its function is entered.
#[derive(Clone, Copy)]
pub(super) enum Passed {
    /// In a register, by its DWARF number.
    Register(u8),
    /// On the stack: from the canonical frame address, so many bytes.
    Stack { at: i64, size: u64 },
}

impl<'a> DebugFile<'a> {
    /// Of a parameter at the first address of its function: what has compiled that.
    fn entered(&self, context: &Context<'_, 'a>, variable: &Entry<'a>) -> Result<Option<Maker>, Refusal> {
        let Some(function) = context.function.filter(|_| context.caller.is_none()) else {
            return Ok(None);
        };
        if variable.tag() != gimli::DW_TAG_formal_parameter
            || self.ranges(&function.entry).first().map(|range| range.start) != Some(context.address)
        {
            return Ok(None);
        }
        let own = Self::variables(&function.entry)?;
        if own.iter().all(|own| own.offset() != variable.offset()) {
            return Ok(None);
        }
        let unit = &function.entry.unit;
        let mut entries = unit.entries();
        let root = entries.next_dfs()?;
        let producer = root.and_then(|root| root.attr_value(gimli::DW_AT_producer));
        let producer = producer.and_then(|producer| self.dwarf.attr_string(unit, producer).ok());
        let producer = producer.map(|producer| String::from_utf8_lossy(producer.slice()).into_owned());
        let producer = producer.unwrap_or_default();
        let is_of = |words: &[&str]| words.iter().any(|word| producer.contains(word));
        let is_optimized = || is_of(&[" -O", "-flto"]) && !is_of(&[" -O0"]);
        Ok(Some(if is_of(&["clang", "LLVM", "rustc"]) {
            Maker::Llvm
        } else if is_optimized() && self.may_be_copy(context.address) {
            Maker::GccOfCopy
        } else {
            Maker::Other
        }))
    }

    /// Whether the function at an address can be a copy that GCC made of another one: its symbols say so, and where there are none,
    /// nothing says that it is not.
    fn may_be_copy(&self, address: u64) -> bool {
        const OF_COPIES: [&str; 3] = [".isra.", ".constprop.", ".part."];
        let function = self.module.and_then(|module| module.function_from(address));
        function.is_none_or(|function| {
            let is_of_copy = |name: &str| OF_COPIES.iter().any(|part| name.contains(part));
            function.is_unnamed() || function.linkage_names().any(|name| is_of_copy(&name))
        })
    }

    /// Where a parameter is that is said to be somewhere from the register that its function has the address of its caller's
    /// arguments in: as GCC has it where the stack is aligned anew. Only some of the function's instructions have it there, while the
    /// frame tells it everywhere.
    pub(super) fn by_argument_pointer(
        &self,
        context: &Context<'_, 'a>,
        variable: &Entry<'a>,
    ) -> Result<Option<Location>, Refusal> {
        let (Some(function), Some(AttributeValue::Exprloc(expression))) =
            (context.function, variable.value(gimli::DW_AT_location))
        else {
            return Ok(None);
        };
        let mut operations = expression.operations(variable.unit.encoding());
        let (Some(Dwarf::RegisterOffset { register, offset, .. }), None) =
            (operations.next()?, operations.next()?)
        else {
            return Ok(None);
        };
        let start = self.ranges(&function.entry).first().map(|range| range.start);
        let pointer = start.and_then(|start| self.argument_pointer(start));
        if pointer.map(u16::from) != Some(register.0) || context.caller.is_some() {
            return Ok(None);
        }
        let mut code = self.cfa(context)?;
        code.add(offset.cast_unsigned());
        Ok(Some(Location::Whole(Source::Memory(code))))
    }

    /// The register into which a function's first instruction puts the address of its caller's arguments: `lea 8(%rsp), %r10`.
    fn argument_pointer(&self, start: u64) -> Option<u8> {
        let bytes = self.code(start, 2 * MAX_INSTRUCTION_BYTES)?;
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut first = decoder.decode();
        if first.mnemonic() == Mnemonic::Endbr64 {
            first = decoder.decode();
        }
        let is_of_arguments = first.mnemonic() == Mnemonic::Lea
            && first.memory_base() == Register::RSP
            && first.memory_index() == Register::None
            && first.memory_displacement64() == 8;
        is_of_arguments
            .then(|| dwarf_number(first.op0_register()))
            .flatten()
    }

    /// Refuses what is said of a parameter at its function's entry, if it may be what the function makes of it; gives
    /// where else it is, if that is known. Of a constant, `location` is `None`.
    pub(super) fn check_passed(
        &self,
        context: &Context<'_, 'a>,
        variable: &Entry<'a>,
        location: Option<(&Location, Expression<Slice<'a>>)>,
        size: u64,
    ) -> Result<Option<Location>, Refusal> {
        const CHANGED: &str =
            "what is said of it here may be what the function's first statements make of it";
        let Some(maker) = self.entered(context, variable)? else {
            return Ok(None);
        };
        let is_llvm = maker == Maker::Llvm;
        // A copy of a function for one value of a parameter says what that becomes; its callers what it is.
        let constant = || match context.constant_passed(variable)? {
            Some(code) if !is_llvm => Ok(Some(Location::Whole(Source::Value(code)))),
            _ => optimized_out(CHANGED),
        };
        let Some((location, expression)) = location else {
            return constant();
        };
        let whole = [location_source(location)].into_iter().flatten();
        let pieces = match location {
            Location::Pieces(pieces) => pieces.as_slice(),
            Location::Whole(_) => &[],
        };
        let sources = whole.chain(pieces.iter().map(|piece| &piece.source));
        let mut operations = expression.operations(variable.unit.encoding());
        let is_entry_value = matches!(
            (operations.next()?, operations.next()?),
            (
                Some(Dwarf::EntryValue { .. } | Dwarf::ParameterRef { .. }),
                None | Some(Dwarf::StackValue)
            )
        );
        for source in sources {
            match source {
                Source::Register(_) if !is_llvm => {}
                Source::Memory(code) if !is_llvm => {
                    if let Some((RSP, offset @ 8..)) = base_and_offset(code)
                        && maker == Maker::GccOfCopy
                    {
                        self.check_used(context, Passed::Stack { at: offset - 8, size })?;
                    }
                }
                Source::Register(register) => {
                    self.check_used(context, Passed::Register(*register))?;
                }
                Source::Memory(code) => {
                    let passed = match base_and_offset(code) {
                        Some((RSP, offset)) if offset >= 8 => Passed::Stack { at: offset - 8, size },
                        Some((base, 0)) if !is_preserved(base) => Passed::Register(base),
                        // Where the function will put it, or what it will lead to.
                        _ => return optimized_out(CHANGED),
                    };
                    self.check_used(context, passed)?;
                }
                Source::Value(code) if code.is_constant() => return constant(),
                Source::Value(_) if !is_entry_value => return optimized_out(CHANGED),
                Source::Bytes(_) | Source::Pointer { .. } if is_llvm => {
                    return optimized_out(CHANGED);
                }
                Source::Value(_) | Source::Bytes(_) | Source::Pointer { .. } | Source::Missing => {}
            }
        }
        if !is_llvm {
            return Ok(None);
        }
        // Of two in one place, one has been given the other's value.
        let function = context.function.map(|function| &function.entry);
        for other in function.map(Self::variables).transpose()?.into_iter().flatten() {
            if other.tag() == gimli::DW_TAG_formal_parameter
                && other.offset() != variable.offset()
                && self.expression_at(&other, gimli::DW_AT_location, context.address)? == Some(expression)
            {
                return optimized_out(CHANGED);
            }
        }
        Ok(None)
    }

    /// Refuses an argument on the stack that its callers may have been left without: of copies that GCC made, and
    /// of LLVM's code.
    pub(super) fn check_used_on_stack(
        &self,
        context: &Context<'_, 'a>,
        variable: &Entry<'a>,
        passed: Passed,
    ) -> Result<(), Refusal> {
        match self.entered(context, variable)? {
            Some(Maker::Llvm | Maker::GccOfCopy) => self.check_used(context, passed),
            Some(Maker::Other) | None => Ok(()),
        }
    }

    /// Refuses an argument that its function does not use.
    fn check_used(&self, context: &Context<'_, 'a>, passed: Passed) -> Result<(), Refusal> {
        if self.uses(context.address, passed, MAX_CALLS) {
            Ok(())
        } else {
            optimized_out("the function does not use it, so that its callers may pass anything")
        }
    }

    /// Whether code from an address on reads what was passed, before it puts something else there.
    fn uses(&self, start: u64, passed: Passed, calls: u8) -> bool {
        let Some(range) = self.unwound_code(start) else {
            return true;
        };
        let mut info = InstructionInfoFactory::new();
        let mut seen = HashSet::new();
        let mut next = vec![start];
        while let Some(address) = next.pop() {
            if !seen.insert(address) || seen.len() > MAX_LOOKED_AT {
                continue;
            }
            // What is in another piece of the function, or is called, has the argument in its place, if it is a register.
            if !range.contains(&address) {
                if calls > 0 && matches!(passed, Passed::Register(_)) && self.uses(address, passed, calls - 1)
                {
                    return true;
                }
                continue;
            }
            let Some(bytes) = self.code(address, MAX_INSTRUCTION_BYTES) else {
                continue;
            };
            let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
            if instruction.is_invalid() {
                continue;
            }
            let (reads, ends) = match passed {
                Passed::Register(register) => use_of_register(&mut info, &instruction, register),
                Passed::Stack { at, size } => (self.reads_stack(&instruction, at, size), false),
            };
            if reads {
                return true;
            }
            let target = instruction.near_branch_target();
            let is_register = matches!(passed, Passed::Register(_));
            match instruction.flow_control() {
                FlowControl::Next if !ends => next.push(instruction.next_ip()),
                FlowControl::ConditionalBranch => next.extend([instruction.next_ip(), target]),
                FlowControl::UnconditionalBranch => next.push(target),
                FlowControl::Call | FlowControl::IndirectCall => {
                    if is_register {
                        if target != 0 && calls > 0 && self.uses(target, passed, calls - 1) {
                            return true;
                        }
                    } else {
                        next.push(instruction.next_ip());
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Whether an instruction reads bytes of the caller's stack, or takes their address.
    fn reads_stack(&self, instruction: &Instruction, at: i64, size: u64) -> bool {
        let uses_memory =
            (0..instruction.op_count()).any(|number| instruction.op_kind(number) == OpKind::Memory);
        let base = instruction.memory_base();
        if !uses_memory || !matches!(base, Register::RSP | Register::RBP) {
            return false;
        }
        let Some(unwinding) = self.unwinding(instruction.ip()) else {
            return true;
        };
        let gimli::CfaRule::RegisterAndOffset { register, offset } = unwinding.row.cfa() else {
            return true;
        };
        let is_by_it = match base {
            Register::RSP => register.0 == u16::from(RSP),
            _ => register.0 != u16::from(RSP),
        };
        if !is_by_it {
            return false;
        }
        let from = instruction
            .memory_displacement64()
            .cast_signed()
            .wrapping_sub(*offset);
        let bytes = i64::try_from(instruction.memory_size().size().max(1)).unwrap_or(1);
        let end = at.saturating_add_unsigned(size);
        from < end && at < from.saturating_add(bytes)
    }
}

fn location_source(location: &Location) -> Option<&Source> {
    match location {
        Location::Whole(source) => Some(source),
        Location::Pieces(_) => None,
    }
}

/// Whether an instruction reads a register, and whether something else is in it afterwards.
fn use_of_register(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: u8,
) -> (bool, bool) {
    let is_it = |used: Register| dwarf_number(used) == Some(register);
    let clears = matches!(instruction.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    let (mut reads, mut ends) = (false, false);
    for used in info.info(instruction).used_registers() {
        if !is_it(used.register()) {
            continue;
        }
        match used.access() {
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                if !clears =>
            {
                reads = true;
            }
            OpAccess::Write | OpAccess::ReadWrite => ends = true,
            _ => {}
        }
    }
    (reads, ends)
}
