//! Where a function is left: its returns and tail jumps.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use profiler_common::{condition::Condition, instruction::Action};

use super::{
    action::exit_action,
    body::Body,
    code::{CodeError, condition, direct_target},
    handling::is_refused,
};

/// How a function is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It returns.
    Return,
    /// By a jump: another function returns in its place.
    Jump,
    /// By a jump to where a pointer leads: as before, but that it may also stay in the function.
    ByPointer,
    /// The same by what may be the table of a `switch`.
    ByTable,
}

impl Way {
    /// Whether another function returns in its place.
    #[must_use]
    pub fn is_jump(self) -> bool {
        self != Self::Return
    }

    /// Whether where it leads is known only when it is taken: it may also stay in the function.
    #[must_use]
    pub fn may_stay_inside(self) -> bool {
        matches!(self, Self::ByPointer | Self::ByTable)
    }
}

/// A place where a function is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExitPoint {
    /// Address of the instruction.
    pub address: u64,
    /// What the instruction does, for programs that can do it themselves.
    pub action: Action,
    /// How.
    pub way: Way,
    /// Of a conditional jump, when it is taken; `None` of what is always an end.
    pub condition: Option<Condition>,
    /// It lies in another function, which this one ends in a jump to: that one's own callers come there too.
    pub is_elsewhere: bool,
}

/// A jump to another function, which returns in this one's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TailJump {
    /// Address of the instruction.
    pub address: u64,
    /// Where it leads.
    pub target: u64,
    /// What the instruction does, for programs that can do it themselves.
    action: Action,
    kind: JumpKind,
}

/// When a jump is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JumpKind {
    Always,
    If(Condition),
    /// By a register that it counts down.
    Counted,
}

impl TailJump {
    /// The jump as an end of the function that begins at `start`, where what it leads to is not looked into.
    ///
    /// # Errors
    /// Where a probe cannot tell whether it is taken.
    pub fn as_end(&self, start: u64) -> Result<ExitPoint, CodeError> {
        let condition = match self.kind {
            JumpKind::Always => None,
            JumpKind::If(condition) => Some(condition),
            JumpKind::Counted => {
                return Err(CodeError::ConditionalTailJump(self.address.wrapping_sub(start)));
            }
        };
        Ok(ExitPoint {
            address: self.address,
            action: self.action,
            way: Way::Jump,
            condition,
            is_elsewhere: false,
        })
    }
}

/// Where a function is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exits {
    /// Its returns, and jumps to where nothing says beforehand.
    pub points: Vec<ExitPoint>,
    /// Jumps to other functions.
    pub jumps: Vec<TailJump>,
}

/// Finds the exits of a function; none of one that does not return, as what ends in `abort` or in an exception.
///
/// # Errors
/// Where an exit would be missed or invented.
pub fn exits(body: &Body) -> Result<Exits, CodeError> {
    if body.falls_through() {
        return Err(CodeError::FallsThrough);
    }
    let (mut points, mut jumps) = (Vec::new(), Vec::new());
    for part in body.parts() {
        let range = part.code.range();
        for (number, instruction) in part.code.instructions().iter().enumerate() {
            let way = match instruction.flow_control() {
                FlowControl::Return => Way::Return,
                // With something left on the stack it is not the function's end.
                _ if part.is_moved(number) => continue,
                // A `notrack` jump goes through a switch's table, and the kernel refuses to probe it.
                FlowControl::IndirectBranch if is_refused(instruction) => continue,
                FlowControl::IndirectBranch if is_by_pointer(&part.code.instructions()[..=number]) => {
                    Way::ByPointer
                }
                FlowControl::IndirectBranch => Way::ByTable,
                flow => {
                    let kind = match (flow, condition(instruction)) {
                        (FlowControl::UnconditionalBranch, _) => JumpKind::Always,
                        (FlowControl::ConditionalBranch, Some(condition)) => JumpKind::If(condition),
                        (FlowControl::ConditionalBranch, None) => JumpKind::Counted,
                        _ => continue,
                    };
                    let target = direct_target(instruction).filter(|target| !body.contains(*target));
                    if let Some(target) = target {
                        jumps.push(TailJump {
                            address: instruction.ip(),
                            target,
                            action: exit_action(instruction, range.start, range.end - range.start),
                            kind,
                        });
                    }
                    continue;
                }
            };
            points.push(ExitPoint {
                address: instruction.ip(),
                action: exit_action(instruction, range.start, range.end - range.start),
                way,
                condition: None,
                is_elsewhere: false,
            });
        }
    }
    Ok(Exits { points, jumps })
}

/// Instructions before a jump that are looked at for where its register comes from.
const MAX_BEFORE: usize = 16;

/// Whether a jump, the last of these instructions, leads to where a pointer in memory says: a `switch` has an index beside the
/// address of its table.
fn is_by_pointer(instructions: &[Instruction]) -> bool {
    let Some((jump, before)) = instructions.split_last() else {
        return false;
    };
    if jump.op0_kind() == OpKind::Memory {
        return jump.memory_index() == Register::None;
    }
    let register = jump.op0_register();
    let writes = |instruction: &&Instruction| {
        let is_there = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
        is_there && instruction.op0_register().full_register() == register.full_register()
    };
    let last = before.iter().rev().take(MAX_BEFORE).find(writes);
    match last {
        Some(load) => {
            let has_index = load.op1_kind() == OpKind::Memory && load.memory_index() != Register::None;
            load.mnemonic() == Mnemonic::Mov && !has_index
        }
        // An argument.
        None => before.len() <= MAX_BEFORE,
    }
}
