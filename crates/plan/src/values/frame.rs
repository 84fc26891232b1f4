//! The frame's base and the canonical frame address.

use std::{collections::HashMap, ops::Range};

use gimli::{
    CfaRule, DebugFrame, EhFrame, FrameDescriptionEntry, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindOffset, UnwindSection, UnwindTableRow,
};
use profiler_common::unwind::register::{RBP, RIP, RSP};

use super::{
    code::Code,
    context::{Context, Location, Source},
    entry_value::is_preserved,
    file::{DebugFile, Slice},
    refusal::{Refusal, unsupported},
};
use crate::frames::entry_by_table;

/// How the caller's registers are had at an address.
pub(super) struct Unwinding {
    pub row: UnwindTableRow<usize>,
    section: Section,
    /// How far the canonical frame address is from the stack pointer once the frame is set up, where that is certain:
    /// it is then furthest, and so for most of the code.
    set_up: Option<i64>,
}

#[derive(Clone, Copy)]
enum Section {
    EhFrame,
    DebugFrame,
}

impl<'a> DebugFile<'a> {
    /// The unwind rules at an address.
    pub(super) fn unwinding(&self, address: u64) -> Option<Unwinding> {
        let (entry, section) = self.unwound(address)?;
        let sections = self.sections;
        match section {
            Section::EhFrame => {
                let eh_frame = EhFrame::new(&sections.eh_frame, LittleEndian);
                rows(&eh_frame, self, &entry, address, section)
            }
            Section::DebugFrame => {
                let debug_frame = DebugFrame::new(&sections.debug_frame, LittleEndian);
                rows(&debug_frame, self, &entry, address, section)
            }
        }
    }

    /// The code that shares unwind information with an address: its function, or the piece of one that it is in.
    pub fn unwound_code(&self, address: u64) -> Option<Range<u64>> {
        let (entry, _) = self.unwound(address)?;
        Some(entry.initial_address()..entry.end_address())
    }

    /// The entry of unwind information that an address has.
    fn unwound(&self, address: u64) -> Option<(FrameDescriptionEntry<Slice<'a>>, Section)> {
        let sections = self.sections;
        let eh_frame = EhFrame::new(&sections.eh_frame, LittleEndian);
        let by_table = entry_by_table(
            &sections.eh_frame,
            &sections.eh_frame_hdr,
            &sections.bases,
            address,
        );
        if let Some(entry) = by_table.or_else(|| find(&eh_frame, self, address)) {
            return Some((entry, Section::EhFrame));
        }
        let debug_frame = DebugFrame::new(&sections.debug_frame, LittleEndian);
        Some((find(&debug_frame, self, address)?, Section::DebugFrame))
    }

    /// The canonical frame address: what the stack pointer was before the call.
    pub(super) fn cfa(&self, context: &Context<'_, 'a>) -> Result<Code, Refusal> {
        let Some(unwinding) = self.unwinding(context.address) else {
            return unsupported("no unwind information says where the frame begins");
        };
        match unwinding.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                let number = general(*register)?;
                Ok(Code::register(number, *offset))
            }
            CfaRule::Expression(expression) => {
                let sections = self.sections;
                let expression = match unwinding.section {
                    Section::EhFrame => expression.get(&EhFrame::new(&sections.eh_frame, LittleEndian))?,
                    Section::DebugFrame => {
                        expression.get(&DebugFrame::new(&sections.debug_frame, LittleEndian))?
                    }
                };
                match context.inner()?.lower(expression)? {
                    Location::Whole(Source::Memory(code)) => Ok(code),
                    _ => unsupported("the frame begins at an expression that is not an address"),
                }
            }
        }
    }

    /// What a register held in the caller that calls preserve.
    pub(super) fn callers_register(&self, context: &Context<'_, 'a>, register: u8) -> Result<Code, Refusal> {
        let Some(unwinding) = self.unwinding(context.address) else {
            return unsupported("no unwind information says where registers are saved");
        };
        if !is_preserved(register) {
            return unsupported("a register that calls do not preserve");
        }
        if register == RSP {
            return self.cfa(context);
        }
        match unwinding.row.register(Register(register.into())) {
            None | Some(RegisterRule::SameValue) => Ok(Code::register(register, 0)),
            Some(RegisterRule::Offset(offset)) => {
                let mut code = self.cfa(context)?;
                code.add(offset.cast_unsigned());
                code.load(8);
                Ok(code)
            }
            Some(_) => unsupported("a register is saved in an unusual way"),
        }
    }

    /// The canonical frame address of the caller, from the address that the call returns to.
    pub(super) fn callers_cfa(&self, context: &Context<'_, 'a>, returns_to: u64) -> Result<Code, Refusal> {
        // The call is the instruction before.
        let unwinding = self.unwinding(returns_to.wrapping_sub(1));
        match unwinding.as_ref().map(|unwinding| unwinding.row.cfa()) {
            Some(CfaRule::RegisterAndOffset { register, offset }) => {
                let mut code = self.callers_register(context, general(*register)?)?;
                code.add(offset.cast_unsigned());
                Ok(code)
            }
            _ => unsupported("the caller's frame begins in an unusual place"),
        }
    }

    /// A function that names a register as its frame's base has it there only while the frame is set up.
    fn check_set_up(&self, address: u64, register: u8) -> Result<(), Refusal> {
        let Some(unwinding) = self.unwinding(address) else {
            return unsupported("no unwind information says whether the frame is set up");
        };
        let is_set_up = match unwinding.row.cfa() {
            CfaRule::RegisterAndOffset {
                register: base,
                offset,
            } if base.0 == u16::from(register) => register != RSP || unwinding.set_up == Some(*offset),
            // A stack that is aligned anew keeps its base in another register, or in memory beneath rbp.
            CfaRule::RegisterAndOffset { .. } => false,
            CfaRule::Expression(_) => register == RBP,
        };
        if is_set_up {
            Ok(())
        } else {
            unsupported("the function's frame is not set up at this instruction")
        }
    }
}

impl Context<'_, '_> {
    /// The base that the function's variables are counted from, or those of the caller.
    pub(super) fn frame_base(&self) -> Result<Code, Refusal> {
        let callers;
        let (function, address) = match (self.caller, self.function) {
            (Some(returns_to), _) => {
                let call = returns_to.wrapping_sub(1);
                callers = self.file.function(call)?;
                (&callers, call)
            }
            (None, Some(function)) => (function, self.address),
            (None, None) => return unsupported("a location in a frame, outside of functions"),
        };
        let base = self
            .file
            .expression_at(&function.entry, gimli::DW_AT_frame_base, address)?;
        let Some(base) = base else {
            return unsupported("its function has no frame base here");
        };
        match self.inner()?.lower(base)? {
            Location::Whole(Source::Memory(code)) => Ok(code),
            Location::Whole(Source::Register(register)) if self.caller.is_some() => {
                self.file.check_set_up(address, register)?;
                self.file.callers_register(self, register)
            }
            Location::Whole(Source::Register(register)) => {
                self.file.check_set_up(address, register)?;
                Ok(Code::register(register, 0))
            }
            _ => unsupported("a frame base that is not an address"),
        }
    }
}

fn find<'a, S>(section: &S, file: &DebugFile<'a>, address: u64) -> Option<FrameDescriptionEntry<Slice<'a>>>
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: UnwindOffset<usize>,
{
    let bases = &file.sections.bases;
    section
        .fde_for_address(bases, address, |section, bases, offset| {
            section.cie_from_offset(bases, offset)
        })
        .ok()
}

fn rows<'a, S>(
    section: &S,
    file: &DebugFile<'a>,
    entry: &FrameDescriptionEntry<Slice<'a>>,
    address: u64,
    kind: Section,
) -> Option<Unwinding>
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: UnwindOffset<usize>,
{
    let mut context = UnwindContext::new();
    let mut table = entry.rows(section, &file.sections.bases, &mut context).ok()?;
    let mut found = None;
    let mut distances: HashMap<i64, u64> = HashMap::new();
    while let Ok(Some(row)) = table.next_row() {
        if let CfaRule::RegisterAndOffset { register, offset } = row.cfa()
            && register.0 == u16::from(RSP)
        {
            let bytes = row.end_address().saturating_sub(row.start_address());
            let covered = distances.entry(*offset).or_default();
            *covered = covered.saturating_add(bytes);
        }
        if row.contains(address) {
            found = Some(row.clone());
        }
    }
    let furthest = distances.keys().max().copied();
    let usual = distances.iter().max_by_key(|(_, bytes)| **bytes);
    let set_up = furthest.filter(|furthest| usual.is_some_and(|(usual, _)| usual == furthest));
    Some(Unwinding {
        row: found?,
        section: kind,
        set_up,
    })
}

/// A general register's DWARF number, or the instruction pointer's.
pub(super) fn general(register: Register) -> Result<u8, Refusal> {
    match u8::try_from(register.0) {
        Ok(number @ ..=RIP) => Ok(number),
        _ => unsupported(match register.0 {
            17..=32 => format!(
                "it is in the vector register xmm{}, which a probe cannot read",
                register.0 - 17
            ),
            33..=40 => format!(
                "it is in the register st{}, which a probe cannot read",
                register.0 - 33
            ),
            number => format!("it is in register {number}, which a probe cannot read"),
        }),
    }
}
