//! What a register held when the function was called.
//!
//! The compiler says so where a variable is no longer kept but was an argument. The register itself may have been
//! overwritten; what the caller had put in is known from the caller's own debug information, by the return address.

use std::{collections::HashSet, rc::Rc};

use gimli::{AttributeValue, Expression, Operation as Dwarf, UnitOffset};
use profiler_common::{
    unwind::register::{R12, RBP, RBX, RSP},
    values::{Instruction, Operation},
};
use profiler_elf::skip::skip_attributes;

use super::{
    code::Code,
    context::{Context, Location, Source},
    entry::Entry,
    file::{DebugFile, Slice},
    frame::general,
    functions::Function,
    refusal::{Refusal, optimized_out},
};

/// Calls that a plan tells apart.
const MAX_CALLS: usize = 4;
/// Instructions that the value of one of them may take.
const MAX_VALUE: usize = 4;
/// Entries from an instance to what it is one of.
const MAX_ORIGINS: usize = 8;
/// Calls of one unit that are listed.
const MAX_LISTED: usize = 1 << 18;

/// Calls of one unit: what is called, as an offset into `.debug_info`, and the entry that describes the call.
pub(super) type Calls = Rc<[(usize, UnitOffset)]>;

/// What a caller's debug information says the value of.
#[derive(Clone, Copy)]
enum Handed {
    /// A register, by its number.
    Register(u8),
    /// A parameter that the callee was left without, as the compiler made a copy of it for what its callers pass: the
    /// parameter's entry, as an offset into `.debug_info`.
    Parameter(usize),
}

impl<'a> Context<'_, 'a> {
    /// The value that the caller would have passed, had the compiler not left the parameter out: of an entry in this unit.
    pub fn left_out_value(&self, parameter: UnitOffset) -> Result<Code, Refusal> {
        let Some(function) = self.function else {
            return optimized_out("it is an argument's value at the entry, outside of functions");
        };
        // Which caller is meant is not clear there, and gdb takes another.
        let is_inlined = |block: &Entry<'_>| block.tag() == gimli::DW_TAG_inlined_subroutine;
        if function.blocks.iter().any(is_inlined) {
            return optimized_out(
                "it is an argument that was left out of a copy of the function, in a call that is inlined",
            );
        }
        let parameter = Entry::at(&self.unit, parameter)?;
        self.by_calls(function, Handed::Parameter(self.file.declared_first(&parameter)?))
    }

    /// The constant that the callers of a copy of a function pass for a parameter, where the compiler made the copy for that: they all
    /// pass the same, so that one that is described tells it.
    pub fn constant_passed(&self, variable: &Entry<'a>) -> Result<Option<Code>, Refusal> {
        let Some(function) = self.function else {
            return Ok(None);
        };
        let parameter = Handed::Parameter(self.file.declared_first(variable)?);
        for call in self
            .file
            .calls_of(&HashSet::from([function.entry.offset()]), function)?
        {
            let value = self.value_at_call(&call, parameter)?;
            if let Some((_, code)) = value.filter(|(_, code)| code.is_constant()) {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    /// The value at the function's entry of what an expression says, which is a register.
    pub fn entry_value(&self, expression: Expression<Slice<'a>>) -> Result<Code, Refusal> {
        let Some(function) = self.function else {
            return optimized_out("it is an argument's value at the entry, outside of functions");
        };
        let mut operations = expression.operations(self.unit.encoding());
        let first = operations.next()?;
        let register = match (first, operations.next()?) {
            (
                Some(
                    Dwarf::Register { register }
                    | Dwarf::RegisterOffset {
                        register, offset: 0, ..
                    },
                ),
                None,
            ) => general(register)?,
            _ => {
                return optimized_out(
                    "it is a value that was in memory when the function was called, and may have changed",
                );
            }
        };
        let entry = self.file.ranges(&function.entry).first().map(|range| range.start);
        if entry == Some(self.address) {
            return Ok(Code::register(register, 0));
        }
        self.by_calls(function, Handed::Register(register))
    }

    /// By the return address, among the calls that the debug information describes.
    fn by_calls(&self, function: &Function<'a>, handed: Handed) -> Result<Code, Refusal> {
        const NOT_KEPT: &str = "the argument's value at the entry is not kept";
        if !describes_tail_calls(function) {
            // It may have been entered by a jump out of itself, with other arguments.
            return optimized_out(NOT_KEPT);
        }
        let mut sides: Vec<(u64, Code)> = Vec::new();
        for call in self.file.calls_of(&self.file.instances(function)?, function)? {
            if let Some(side) = self.value_at_call(&call, handed)?
                && sides.len() < MAX_CALLS
                && sides.iter().all(|(address, _)| *address != side.0)
            {
                sides.push(side);
            }
        }
        if sides.is_empty() {
            return optimized_out(NOT_KEPT);
        }
        let mut code = self.file.cfa(self)?;
        code.add((-8_i64).cast_unsigned());
        code.load(8);
        // From the last to the first: how far it is from a value to the end of all.
        let length = |side: &(u64, Code)| 5 + side.1.instructions().len();
        let mut after: usize = 1 + sides.iter().map(length).sum::<usize>();
        for side in &sides {
            after -= length(side);
            let (address, value) = side;
            let count = |instructions: usize| u32::try_from(instructions).unwrap_or(u32::MAX);
            code.push(Instruction::new(Operation::Pick));
            code.push(Instruction::new(Operation::Constant).immediate(*address));
            code.operation(Operation::Equal);
            let value_and_jump = count(value.instructions().len() + 1);
            code.push(Instruction::new(Operation::JumpIfZero).length(value_and_jump));
            for instruction in value.instructions() {
                code.push(*instruction);
            }
            code.push(Instruction::new(Operation::Jump).length(count(after)));
        }
        code.operation(Operation::OptimizedOut);
        code.join();
        code.operation(Operation::Swap);
        code.operation(Operation::Drop);
        Ok(code)
    }

    /// The address that a call returns to, and what it hands over.
    fn value_at_call(&self, call: &Entry<'a>, handed: Handed) -> Result<Option<(u64, Code)>, Refusal> {
        let is_tail_call = call.flag(gimli::DW_AT_call_tail_call) || call.flag(gimli::DW_AT_GNU_tail_call);
        let returns_to = call
            .value(gimli::DW_AT_call_return_pc)
            .or_else(|| call.value(gimli::DW_AT_low_pc));
        let Some(returns_to) = returns_to.filter(|_| !is_tail_call) else {
            return Ok(None);
        };
        let Some(returns_to) = self.file.dwarf.attr_address(&call.unit, returns_to)? else {
            return Ok(None);
        };
        for parameter in call.children()? {
            let value = expression(&parameter, gimli::DW_AT_call_value)
                .or_else(|| expression(&parameter, gimli::DW_AT_GNU_call_site_value));
            let Some(value) = value else {
                continue;
            };
            if !self.hands_over(call, &parameter, handed)? {
                continue;
            }
            let context = Context {
                caller: Some(returns_to),
                function: None,
                ..self.inner()?.in_unit(call)
            };
            // A value that the caller alone can compute is left out: the call is then one that is not known.
            return Ok(match context.lower(value) {
                Ok(Location::Whole(Source::Memory(code) | Source::Value(code)))
                    if code.instructions().len() <= MAX_VALUE =>
                {
                    Some((returns_to.wrapping_add(self.bias), code))
                }
                _ => None,
            });
        }
        Ok(None)
    }

    /// Whether a part of a call's description is of what was handed over.
    fn hands_over(&self, call: &Entry<'a>, parameter: &Entry<'a>, handed: Handed) -> Result<bool, Refusal> {
        match handed {
            Handed::Register(register) => {
                let Some(location) = expression(parameter, gimli::DW_AT_location) else {
                    return Ok(false);
                };
                let first = location.operations(call.unit.encoding()).next()?;
                Ok(matches!(first, Some(Dwarf::Register { register: r }) if r.0 == u16::from(register)))
            }
            Handed::Parameter(wanted) => {
                for name in [gimli::DW_AT_call_parameter, gimli::DW_AT_abstract_origin] {
                    if let Some(left_out) = self.file.referred(parameter, name)? {
                        return Ok(self.file.declared_first(&left_out)? == wanted);
                    }
                }
                Ok(false)
            }
        }
    }
}

/// Whether all jumps out of a function to others are described, and there is none.
fn describes_tail_calls(function: &Function<'_>) -> bool {
    let described = [
        gimli::DW_AT_call_all_calls,
        gimli::DW_AT_call_all_tail_calls,
        gimli::DW_AT_GNU_all_call_sites,
        gimli::DW_AT_GNU_all_tail_call_sites,
    ];
    if !described.iter().any(|name| function.entry.flag(*name)) {
        return false;
    }
    let Ok(mut entries) = function.entry.unit.entries_at_offset(function.entry.die.offset()) else {
        return false;
    };
    let mut is_first = true;
    loop {
        match entries.next_dfs() {
            Ok(Some(entry)) if is_first || entry.depth() > 0 => {
                let is = |name| matches!(entry.attr_value(name), Some(AttributeValue::Flag(true)));
                if is(gimli::DW_AT_call_tail_call) || is(gimli::DW_AT_GNU_tail_call) {
                    return false;
                }
            }
            Ok(_) => return true,
            Err(_) => return false,
        }
        is_first = false;
    }
}

/// Whether a call leaves a register as it is.
pub(super) fn is_preserved(register: u8) -> bool {
    matches!(register, RBX | RBP | RSP) || (R12..16).contains(&register)
}

fn expression<'a>(entry: &Entry<'a>, name: gimli::DwAt) -> Option<Expression<Slice<'a>>> {
    match entry.value(name)? {
        AttributeValue::Exprloc(expression) => Some(expression),
        _ => None,
    }
}

impl<'a> DebugFile<'a> {
    /// The entry of a function and those of what it is an instance of, as offsets into `.debug_info`: calls name any of them.
    fn instances(&self, function: &Function<'a>) -> Result<HashSet<usize>, Refusal> {
        let mut names = HashSet::new();
        let mut at = Some(function.entry.clone());
        while let Some(entry) = at {
            if !names.insert(entry.offset()) {
                break;
            }
            at = self.origin(&entry)?;
        }
        Ok(names)
    }

    /// The entry that says first what one is an instance of, as an offset into `.debug_info`: where a program is linked with what
    /// was compiled to an intermediate form, there are several from one to the next.
    pub(super) fn declared_first(&self, entry: &Entry<'a>) -> Result<usize, Refusal> {
        let mut at = entry.clone();
        for _ in 0..MAX_ORIGINS {
            match self.origin(&at)? {
                Some(origin) => at = origin,
                None => break,
            }
        }
        Ok(at.offset())
    }

    /// The calls, in the unit of a function, of what these offsets stand for.
    fn calls_of(&self, called: &HashSet<usize>, function: &Function<'a>) -> Result<Vec<Entry<'a>>, Refusal> {
        let unit = &function.entry.unit;
        let start = unit.header.debug_info_offset().map_or(0, |offset| offset.0);
        let calls = self.calls_in(start, unit)?;
        let of_it = calls.iter().filter(|(callee, _)| called.contains(callee));
        of_it.map(|(_, call)| Entry::at(unit, *call)).collect()
    }

    fn calls_in(&self, start: usize, unit: &Rc<gimli::Unit<Slice<'a>>>) -> Result<Calls, Refusal> {
        if let Some(calls) = self.calls.borrow().get(&start) {
            return Ok(Rc::clone(calls));
        }
        let mut found = Vec::new();
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() && found.len() < MAX_LISTED {
            let at = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            skip_attributes(&mut entries, abbreviation.attributes())?;
            if !matches!(
                abbreviation.tag(),
                gimli::DW_TAG_call_site | gimli::DW_TAG_GNU_call_site
            ) {
                continue;
            }
            let call = Entry::at(unit, at)?;
            let called = match self.referred(&call, gimli::DW_AT_call_origin)? {
                Some(called) => Some(called),
                None => self.referred(&call, gimli::DW_AT_abstract_origin)?,
            };
            // What is called may itself be a declaration of the function.
            let mut called = called;
            for _ in 0..4 {
                let Some(entry) = called else { break };
                found.push((entry.offset(), at));
                called = self.origin(&entry)?;
            }
        }
        let calls: Calls = found.into();
        let mut kept = self.calls.borrow_mut();
        if kept.len() >= MAX_KEPT_UNITS {
            kept.clear();
        }
        kept.insert(start, Rc::clone(&calls));
        Ok(calls)
    }
}

/// Units whose calls are kept listed.
const MAX_KEPT_UNITS: usize = 64;
