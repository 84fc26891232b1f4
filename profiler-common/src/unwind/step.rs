//! One frame further by a rule. Compiled for eBPF and natively: no panics, no indexing, wrapping
//! arithmetic, few places that read.

use super::{
    frame::{Frame, Outcome},
    register::{CONTEXT_FROM_SP, CONTEXT_IP, R12, RBP, RBX, RSP, context_offset},
    rule::{Cfa, Rule, Saved},
};

/// A value, or the address to read it from.
#[derive(Clone, Copy)]
struct Location {
    value: u64,
    /// As [`Frame::rbp_at`].
    at: u64,
}

const LOST: Location = Location {
    value: 0,
    at: Frame::LOST,
};

/// Goes on to the caller of `frame` by the rule that holds at its [`Frame::lookup_ip`].
///
/// `register` gives the interrupted thread's general registers by DWARF number, and is asked for interrupted
/// frames and their callers only. `read` reads 8 bytes of the thread's memory. The frame is meaningless unless
/// the outcome is [`Outcome::Continue`], when it is the caller's, or [`Outcome::Root`], when it is unchanged.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn step(
    rule: &Rule,
    frame: &mut Frame,
    register: impl Fn(u8) -> Option<u64>,
    read: impl Fn(u64) -> Option<u64>,
) -> Outcome {
    match advance(rule, frame, register, read) {
        Ok(()) => Outcome::Continue,
        Err(outcome) => outcome,
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
fn advance(
    rule: &Rule,
    frame: &mut Frame,
    register: impl Fn(u8) -> Option<u64>,
    read: impl Fn(u64) -> Option<u64>,
) -> Result<(), Outcome> {
    const NONE: u8 = Cfa::None as u8;
    const UNSUPPORTED: u8 = Cfa::Unsupported as u8;
    const SIGNAL: u8 = Cfa::Signal as u8;
    const LINKAGE_TABLE: u8 = Cfa::LinkageTable as u8;
    const DEREFERENCE: u8 = Cfa::Dereference as u8;
    const NOWHERE: u8 = Saved::Lost as u8;

    match rule.cfa {
        NONE => return Err(Outcome::NoRule),
        UNSUPPORTED => return Err(Outcome::Unsupported),
        SIGNAL => return leave_signal_frame(frame, read),
        _ => {}
    }
    if rule.return_address == NOWHERE {
        return Err(Outcome::Root);
    }

    let by_rbp = Saved::AtFramePointer as u8;
    let needs_rbp = rule.cfa_register == RBP || rule.rbp_saved() == by_rbp || rule.rbx_saved() == by_rbp;
    if needs_rbp && frame.rbp_at != Frame::HERE {
        if frame.rbp_at == Frame::LOST {
            return Err(Outcome::Unsupported);
        }
        frame.rbp = read(frame.rbp_at).ok_or(Outcome::Unreadable)?;
        frame.rbp_at = Frame::HERE;
    }
    let base = locate(rule.cfa_register, frame, &register)?;
    let base = if base.at == Frame::HERE {
        base.value
    } else {
        read(base.at).ok_or(Outcome::Unreadable)?
    };
    let extra = i64::from(rule.extra).cast_unsigned();
    let mut cfa = base.wrapping_add(i64::from(rule.cfa_offset).cast_unsigned());
    if rule.cfa == LINKAGE_TABLE && frame.ip & 15 >= extra {
        cfa = cfa.wrapping_add(8);
    }
    if rule.cfa == DEREFERENCE {
        cfa = read(cfa).ok_or(Outcome::Unreadable)?.wrapping_add(extra);
    }

    let offset = if rule.cfa == Cfa::Register as u8 {
        rule.extra
    } else {
        -8
    };
    let ip = saved(rule.return_address, offset.into(), cfa, LOST, frame, &register);
    if ip.at == Frame::LOST {
        return Err(Outcome::Unsupported);
    }
    let ip = if ip.at == Frame::HERE {
        ip.value
    } else {
        read(ip.at).ok_or(Outcome::Unreadable)?
    };
    if cfa == frame.sp && ip == frame.ip {
        return Err(Outcome::Stuck);
    }

    let same = Location {
        value: frame.rbp,
        at: frame.rbp_at,
    };
    let rbp = saved(rule.rbp_saved(), rule.rbp_offset, cfa, same, frame, &register);
    let same = Location {
        value: frame.rbx,
        at: frame.rbx_at,
    };
    let rbx = saved(
        rule.rbx_saved(),
        rule.rbx_offset.into(),
        cfa,
        same,
        frame,
        &register,
    );
    frame.rbp = rbp.value;
    frame.rbp_at = rbp.at;
    frame.rbx = rbx.value;
    frame.rbx_at = rbx.at;
    frame.ip = ip;
    frame.sp = cfa;
    frame.age = frame.age.saturating_add(1);
    Ok(())
}

/// Where a register of `frame` is.
///
/// Registers that are not followed are known for an interrupted frame. Those that calls do not preserve are
/// taken to be unchanged in its caller as well: only hand-written assembly, whose helpers preserve
/// them, bases a CFA on one across a call.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
fn locate(number: u8, frame: &Frame, register: &impl Fn(u8) -> Option<u64>) -> Result<Location, Outcome> {
    let location = match number {
        RSP => Location {
            value: frame.sp,
            at: Frame::HERE,
        },
        RBP => Location {
            value: frame.rbp,
            at: frame.rbp_at,
        },
        RBX => Location {
            value: frame.rbx,
            at: frame.rbx_at,
        },
        _ if frame.age > u32::from(number < R12) => return Err(Outcome::Unsupported),
        _ if frame.context != 0 => Location {
            value: 0,
            at: frame.context.wrapping_add(context_offset(number)),
        },
        _ => Location {
            value: register(number).ok_or(Outcome::Unsupported)?,
            at: Frame::HERE,
        },
    };
    if location.at == Frame::LOST {
        Err(Outcome::Unsupported)
    } else {
        Ok(location)
    }
}

/// Where a register's value in the caller is.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
fn saved(
    saved: u8,
    offset: i32,
    cfa: u64,
    same: Location,
    frame: &Frame,
    register: &impl Fn(u8) -> Option<u64>,
) -> Location {
    const SAME: u8 = Saved::Same as u8;
    const AT_CFA: u8 = Saved::AtCfa as u8;
    const AT_FRAME_POINTER: u8 = Saved::AtFramePointer as u8;
    const AT_STACK_POINTER: u8 = Saved::AtStackPointer as u8;
    const IN_REGISTER: u8 = Saved::InRegister as u8;
    let base = match saved {
        SAME => return same,
        AT_CFA => cfa,
        AT_FRAME_POINTER => frame.rbp,
        AT_STACK_POINTER => frame.sp,
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a register number"
        )]
        IN_REGISTER => return locate(offset as u8, frame, register).unwrap_or(LOST),
        _ => {
            return LOST;
        }
    };
    Location {
        value: 0,
        at: base.wrapping_add(i64::from(offset).cast_unsigned()),
    }
}

/// The interrupted frame that a signal frame stands for.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
fn leave_signal_frame(frame: &mut Frame, read: impl Fn(u64) -> Option<u64>) -> Result<(), Outcome> {
    let context = frame.sp.wrapping_add(CONTEXT_FROM_SP);
    let ip = read(context.wrapping_add(CONTEXT_IP)).ok_or(Outcome::Unreadable)?;
    let sp = read(context.wrapping_add(context_offset(RSP))).ok_or(Outcome::Unreadable)?;
    frame.ip = ip;
    frame.sp = sp;
    frame.rbp_at = context.wrapping_add(context_offset(RBP));
    frame.rbx_at = context.wrapping_add(context_offset(RBX));
    frame.context = context;
    frame.age = 0;
    Ok(())
}
