//! Where a function is left: its returns and tail jumps.

use iced_x86::FlowControl;
use profiler_common::instruction::Action;

use super::{
    action::exit_action,
    body::Body,
    code::{CodeError, direct_target},
    handling::is_refused,
};

/// A place where a function is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExitPoint {
    /// Address of the instruction.
    pub address: u64,
    /// What the instruction does, for programs that can do it themselves.
    pub action: Action,
    /// A jump whose target is known only when it is taken: it may also stay in the function.
    pub may_stay_inside: bool,
    /// A jump: another function returns in this one's place.
    pub is_jump: bool,
}

/// Finds the exits of a function, in order of address; none of one that does not return, as what ends in `abort` or in an
/// exception.
///
/// # Errors
/// Where an exit would be missed or invented.
pub fn exit_points(body: &Body) -> Result<Vec<ExitPoint>, CodeError> {
    if body.falls_through() {
        return Err(CodeError::FallsThrough);
    }
    let mut exits = Vec::new();
    for part in body.parts() {
        let range = part.code.range();
        for (number, instruction) in part.code.instructions().iter().enumerate() {
            let may_stay_inside = match instruction.flow_control() {
                FlowControl::Return => false,
                // With something left on the stack it is not the function's end.
                _ if part.is_moved(number) => continue,
                // A `notrack` jump goes through a switch's table, and the kernel refuses to probe it.
                FlowControl::IndirectBranch if is_refused(instruction) => continue,
                FlowControl::IndirectBranch => true,
                _ if direct_target(instruction).is_none_or(|target| body.contains(target)) => continue,
                FlowControl::UnconditionalBranch => false,
                FlowControl::ConditionalBranch => {
                    let offset = instruction.ip().wrapping_sub(body.start());
                    return Err(CodeError::ConditionalTailJump(offset));
                }
                _ => continue,
            };
            exits.push(ExitPoint {
                address: instruction.ip(),
                action: exit_action(instruction, range.start, range.end - range.start),
                may_stay_inside,
                is_jump: instruction.flow_control() != FlowControl::Return,
            });
        }
    }
    exits.sort_unstable_by_key(|exit| exit.address);
    Ok(exits)
}
