//! One row of `.eh_frame` as a [`Rule`].

use gimli::{CfaRule, Register, RegisterRule, UnwindSection, UnwindTableRow};
use profiler_common::unwind::{
    Cfa, Rule, Saved,
    register::{self, CONTEXT_FROM_SP, CONTEXT_IP, RBP, RBX, RIP, RSP, context_offset},
};

use super::{
    collect::Slice,
    expression::{Shape, shape},
};

/// The rule that a row says; [`Rule::UNSUPPORTED`] where no rule can.
pub(super) fn translate<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    row: &UnwindTableRow<usize>,
    signal: bool,
) -> Rule {
    let rule = if signal {
        signal_frame(section, row)
    } else {
        ordinary(section, row)
    };
    rule.unwrap_or(Rule::UNSUPPORTED)
}

fn ordinary<'a, S: UnwindSection<Slice<'a>>>(section: &S, row: &UnwindTableRow<usize>) -> Option<Rule> {
    // A CFA that is not the caller's stack pointer: `longjmp`, about to go elsewhere.
    if !matches!(
        row.register(Register(RSP.into())),
        None | Some(RegisterRule::ValOffset(0))
    ) {
        return None;
    }
    let mut rule = cfa(section, row)?;

    let is_register = rule.cfa == Cfa::Register as u8;
    match row.register(Register(RIP.into()))? {
        RegisterRule::Undefined => {
            return Some(Rule::ROOT);
        }
        RegisterRule::Offset(-8) if !is_register => rule.return_address = Saved::AtCfa as u8,
        RegisterRule::Offset(offset) if is_register => {
            rule.return_address = Saved::AtCfa as u8;
            rule.extra = offset.try_into().ok()?;
        }
        RegisterRule::Register(Register(number)) if is_register && number < register::COUNT.into() => {
            rule.return_address = Saved::InRegister as u8;
            rule.extra = number.try_into().ok()?;
        }
        _ => return None,
    }
    let (rbp, offset) = saved(section, row, RBP);
    rule.rbp_offset = offset;
    let (mut rbx, offset) = saved(section, row, RBX);
    rule.rbx_offset = offset.try_into().unwrap_or_else(|_| {
        rbx = Saved::Lost;
        0
    });
    rule.saved = rbp as u8 | (rbx as u8) << 4;
    Some(rule)
}

fn cfa<'a, S: UnwindSection<Slice<'a>>>(section: &S, row: &UnwindTableRow<usize>) -> Option<Rule> {
    let (kind, register, offset, extra) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => (Cfa::Register, register.0, *offset, 0),
        CfaRule::Expression(expression) => match shape(section, expression)? {
            Shape::Register { register, offset } => (Cfa::Register, register, offset, 0),
            Shape::Dereference {
                register,
                offset,
                extra,
            } => (Cfa::Dereference, register, offset, extra),
            Shape::LinkageTable { offset, threshold } => (Cfa::LinkageTable, RSP.into(), offset, threshold),
        },
    };
    if register >= register::COUNT.into() {
        return None;
    }
    Some(Rule {
        cfa_register: register.try_into().ok()?,
        cfa_offset: offset.try_into().ok()?,
        extra: extra.try_into().ok()?,
        ..Rule::bare(kind)
    })
}

/// Where a followed register's value in the caller is. Without a word about it, a call preserves it.
fn saved<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    row: &UnwindTableRow<usize>,
    register: u8,
) -> (Saved, i32) {
    let place = match row.register(Register(register.into())) {
        None | Some(RegisterRule::SameValue) => return (Saved::Same, 0),
        Some(RegisterRule::Offset(offset)) => Some((Saved::AtCfa, offset)),
        Some(RegisterRule::Register(Register(number))) if number < register::COUNT.into() => {
            Some((Saved::InRegister, number.into()))
        }
        Some(RegisterRule::Expression(expression)) => match shape(section, &expression) {
            Some(Shape::Register { register, offset }) if register == u16::from(RBP) => {
                Some((Saved::AtFramePointer, offset))
            }
            Some(Shape::Register { register, offset }) if register == u16::from(RSP) => {
                Some((Saved::AtStackPointer, offset))
            }
            _ => None,
        },
        Some(_) => None,
    };
    match place.map(|(saved, offset)| (saved, i32::try_from(offset))) {
        Some((saved, Ok(offset))) => (saved, offset),
        _ => (Saved::Lost, 0),
    }
}

/// A signal frame is supported where it is the kernel's, whose every register is known then.
fn signal_frame<'a, S: UnwindSection<Slice<'a>>>(section: &S, row: &UnwindTableRow<usize>) -> Option<Rule> {
    let CfaRule::Expression(expression) = row.cfa() else {
        return None;
    };
    let kernels = |offset: u64| i64::try_from(CONTEXT_FROM_SP + offset).ok();
    let sp = Shape::Dereference {
        register: RSP.into(),
        offset: kernels(context_offset(RSP))?,
        extra: 0,
    };
    if shape(section, expression)? != sp {
        return None;
    }
    for (register, offset) in [
        (RIP, CONTEXT_IP),
        (RBP, context_offset(RBP)),
        (RBX, context_offset(RBX)),
    ] {
        let place = Shape::Register {
            register: RSP.into(),
            offset: kernels(offset)?,
        };
        let Some(RegisterRule::Expression(expression)) = row.register(Register(register.into())) else {
            return None;
        };
        if shape(section, &expression)? != place {
            return None;
        }
    }
    Some(Rule::SIGNAL)
}
