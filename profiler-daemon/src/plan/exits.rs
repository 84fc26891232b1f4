//! Where a function is left: its returns and tail jumps.

use super::{
    action::exit_action,
    code::{Code, CodeError, direct_target},
    handling::is_refused,
    stack::certainly_moved,
};
use iced_x86::FlowControl;
use profiler_common::instruction::Action;

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

/// Finds the exits of a function and its cold parts, in order of address.
///
/// # Errors
/// Where an exit would be missed or invented.
pub fn exit_points(hot: &Code, cold: &[Code]) -> Result<Vec<ExitPoint>, CodeError> {
    let inside = |address: u64| {
        hot.range().contains(&address) || cold.iter().any(|part| part.range().contains(&address))
    };
    let start = hot.range().start;
    let mut exits = Vec::new();
    for (number, part) in std::iter::once(hot).chain(cold).enumerate() {
        let is_hot = number == 0;
        // Where a cold part is entered the stack pointer is not known.
        let moved = if is_hot {
            certainly_moved(part)
        } else {
            vec![false; part.instructions().len()]
        };
        let range = part.range();
        for (instruction, moved) in part.instructions().iter().zip(moved) {
            let may_stay_inside = match instruction.flow_control() {
                FlowControl::Return => false,
                // With something left on the stack it is not the function's end.
                _ if moved => continue,
                // A `notrack` jump goes through a switch's table, and the kernel refuses to probe it.
                FlowControl::IndirectBranch if is_refused(instruction) => continue,
                FlowControl::IndirectBranch => true,
                _ if direct_target(instruction).is_none_or(inside) => continue,
                FlowControl::UnconditionalBranch => false,
                FlowControl::ConditionalBranch => {
                    return Err(CodeError::ConditionalTailJump(
                        instruction.ip().wrapping_sub(start),
                    ));
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
