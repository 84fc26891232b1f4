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
///
/// The programs take its parts one by one, with all that passes between them in memory: the verifier follows
/// every way through a part, and would have to follow the product of all of them through the whole.
pub fn step(
    rule: &Rule,
    frame: &mut Frame,
    register: impl Fn(u8) -> Option<u64>,
    read: impl Fn(u64) -> Option<u64>,
) -> Outcome {
    let advance = || {
        if rule.cfa == Cfa::Signal as u8 {
            return leave_signal_frame(frame, read);
        }
        if rule.is_plain() {
            let (ip, cfa) = find_plain(rule, frame, read)?;
            enter_plain(rule, frame, ip, cfa);
            return Ok(());
        }
        let cfa = find_cfa(rule, frame, &register, &read)?;
        let ip = find_caller(rule, frame, cfa, &register, &read)?;
        restore_rbp(rule, frame, cfa, &register);
        restore_rbx(rule, frame, cfa, &register);
        frame.enter(ip, cfa);
        Ok(())
    };
    match advance() {
        Ok(()) => Outcome::Continue,
        Err(outcome) => outcome,
    }
}

/// Where a frame with a rule that [`Rule::is_plain`] returns to, and its canonical frame address: what
/// [`find_cfa`] and [`find_caller`] find, in fewer steps. The frame may have read its `rbp`.
///
/// # Errors
/// Where the step ends here.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn find_plain(
    rule: &Rule,
    frame: &mut Frame,
    mut read: impl FnMut(u64) -> Option<u64>,
) -> Result<(u64, u64), Outcome> {
    let base = if rule.cfa_register == RSP {
        frame.sp
    } else {
        if frame.rbp_at != Frame::HERE {
            if frame.rbp_at == Frame::LOST {
                return Err(Outcome::Unsupported);
            }
            frame.rbp = read(frame.rbp_at).ok_or(Outcome::Unreadable)?;
            frame.rbp_at = Frame::HERE;
        }
        frame.rbp
    };
    let cfa = base.wrapping_add(i64::from(rule.cfa_offset).cast_unsigned());
    let ip = read(cfa.wrapping_sub(8)).ok_or(Outcome::Unreadable)?;
    if cfa == frame.sp && ip == frame.ip {
        return Err(Outcome::Stuck);
    }
    Ok((ip, cfa))
}

/// Goes on to the caller that [`find_plain`] found.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn enter_plain(rule: &Rule, frame: &mut Frame, ip: u64, cfa: u64) {
    if rule.rbp_saved() == Saved::AtCfa as u8 {
        frame.rbp_at = cfa.wrapping_add(i64::from(rule.rbp_offset).cast_unsigned());
    }
    if rule.rbx_saved() == Saved::AtCfa as u8 {
        frame.rbx_at = cfa.wrapping_add(i64::from(rule.rbx_offset).cast_unsigned());
    }
    frame.ip = ip;
    frame.sp = cfa;
    frame.age = frame.age.saturating_add(1);
}

/// The canonical frame address: what the caller's stack pointer will be. Not for [`Cfa::Signal`].
///
/// # Errors
/// Where the step ends here.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn find_cfa(
    rule: &Rule,
    frame: &mut Frame,
    register: &impl Fn(u8) -> Option<u64>,
    read: &impl Fn(u64) -> Option<u64>,
) -> Result<u64, Outcome> {
    const NONE: u8 = Cfa::None as u8;
    const UNSUPPORTED: u8 = Cfa::Unsupported as u8;
    const OVERWRITTEN: u8 = Cfa::Overwritten as u8;
    const LINKAGE_TABLE: u8 = Cfa::LinkageTable as u8;
    const DEREFERENCE: u8 = Cfa::Dereference as u8;

    match rule.cfa {
        NONE => return Err(Outcome::NoRule),
        UNSUPPORTED => return Err(Outcome::Unsupported),
        OVERWRITTEN => return Err(Outcome::Overwritten),
        _ => {}
    }
    if rule.return_address == Saved::Lost as u8 {
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
    let base = locate(rule.cfa_register, frame, register)?;
    let base = if base.at == Frame::HERE {
        base.value
    } else {
        read(base.at).ok_or(Outcome::Unreadable)?
    };
    let extra = i64::from(rule.extra).cast_unsigned();
    let cfa = base.wrapping_add(i64::from(rule.cfa_offset).cast_unsigned());
    Ok(match rule.cfa {
        LINKAGE_TABLE if frame.ip & 15 >= extra => cfa.wrapping_add(8),
        DEREFERENCE => read(cfa).ok_or(Outcome::Unreadable)?.wrapping_add(extra),
        _ => cfa,
    })
}

/// The address that the frame returns to.
///
/// # Errors
/// Where it is not to be had, or the caller would be the frame itself.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn find_caller(
    rule: &Rule,
    frame: &Frame,
    cfa: u64,
    register: &impl Fn(u8) -> Option<u64>,
    read: &impl Fn(u64) -> Option<u64>,
) -> Result<u64, Outcome> {
    let offset = if rule.cfa == Cfa::Register as u8 {
        rule.extra
    } else {
        -8
    };
    let ip = saved(rule.return_address, offset.into(), cfa, LOST, frame, register);
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
    Ok(ip)
}

/// Notes where the caller's `rbp` is. `rbx` is to be restored next, by the frame as it was.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn restore_rbp(rule: &Rule, frame: &mut Frame, cfa: u64, register: &impl Fn(u8) -> Option<u64>) {
    let same = Location {
        value: frame.rbp,
        at: frame.rbp_at,
    };
    let rbp = saved(rule.rbp_saved(), rule.rbp_offset, cfa, same, frame, register);
    frame.caller_rbp = rbp.value;
    frame.caller_rbp_at = rbp.at;
}

/// Notes where the caller's `rbx` is.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn restore_rbx(rule: &Rule, frame: &mut Frame, cfa: u64, register: &impl Fn(u8) -> Option<u64>) {
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
        register,
    );
    frame.rbx = rbx.value;
    frame.rbx_at = rbx.at;
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

/// The interrupted frame that a signal frame, of [`Cfa::Signal`], stands for.
///
/// # Errors
/// Where it cannot be read.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn leave_signal_frame(frame: &mut Frame, read: impl Fn(u64) -> Option<u64>) -> Result<(), Outcome> {
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
