//! One instruction done. Compiled for eBPF and natively: no panics, masked indexes, wrapping arithmetic.

use super::{
    Instruction, MAX_BYTES, MAX_INSTRUCTIONS, OUTPUT_BYTES, Operation, Outcome, ReadPlan, STACK_SLOTS, State,
    compare,
};

/// What the interpreter asks of the thread whose variable is read.
///
/// Where something is copied to the output, `at` is below [`MAX_BYTES`] and `length` at most [`MAX_BYTES`], so that
/// both together stay inside it; a verifier may have to be shown.
pub trait Thread {
    /// A general register by its DWARF number, below 16, for 16 the instruction pointer, or what [`super::thread`] numbers.
    fn register(&mut self, number: u8) -> u64;

    /// The base of `fs`.
    fn thread_pointer(&mut self) -> u64;

    /// The `size` bytes (1, 2, 4 or 8) of memory at an address, zero-extended.
    fn word(&mut self, address: u64, size: u8) -> Option<u64>;

    /// Copies memory to the output; whether all of it could be read.
    fn copy(&mut self, address: u64, output: &mut [u8; OUTPUT_BYTES], at: u32, length: u32) -> bool;

    /// Copies text to the output up to the NUL that ends it, or as much as fits into `length` bytes with a NUL at
    /// the end; how many bytes that were, NUL included.
    fn copy_string(
        &mut self,
        address: u64,
        output: &mut [u8; OUTPUT_BYTES],
        at: u32,
        length: u32,
    ) -> Option<u32>;
}

#[allow(clippy::cast_possible_truncation, reason = "small constants")]
mod narrow {
    pub const SLOT_MASK: u32 = super::STACK_SLOTS as u32 - 1;
    pub const MAX_BYTES: u32 = super::MAX_BYTES as u32;
    pub const OUTPUT_MASK: u32 = super::OUTPUT_BYTES as u32 - 1;
}

impl State {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    fn push(&mut self, word: u64) {
        self.stack[(self.depth & narrow::SLOT_MASK) as usize] = word;
        self.depth = self.depth.wrapping_add(1);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    fn pop(&mut self) -> u64 {
        self.depth = self.depth.wrapping_sub(1);
        self.stack[(self.depth & narrow::SLOT_MASK) as usize]
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    fn pick(&self, under: u32) -> u64 {
        self.stack[(self.depth.wrapping_sub(1).wrapping_sub(under) & narrow::SLOT_MASK) as usize]
    }

    /// Takes the next `length` bytes of the output.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    fn take(&mut self, length: u32) -> Result<u32, Outcome> {
        let at = self.length;
        let end = at.wrapping_add(length);
        if at >= narrow::MAX_BYTES || length > narrow::MAX_BYTES || end > narrow::MAX_BYTES {
            return Err(Outcome::Invalid);
        }
        self.length = end;
        Ok(at & (narrow::MAX_BYTES - 1))
    }
}

/// Does `instruction`, which is the one at [`State::next`]; whether to go on. Otherwise the state's outcome says why
/// not.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn step(instruction: &Instruction, state: &mut State, thread: &mut impl Thread) -> bool {
    state.next = state.next.wrapping_add(1);
    match execute(instruction, state, thread) {
        Ok(()) => true,
        Err(outcome) => {
            state.outcome = outcome as u8;
            false
        }
    }
}

/// Reads a value by a plan.
pub fn run(plan: &ReadPlan, state: &mut State, thread: &mut impl Thread) {
    state.restart();
    for _ in 0..MAX_INSTRUCTIONS {
        let Some(instruction) = plan.instructions.get(state.next as usize) else {
            break;
        };
        if !step(instruction, state, thread) {
            return;
        }
    }
    // All instructions were done, and none of them was the end.
    state.outcome = Outcome::Ok as u8;
}

#[inline(always)]
#[allow(
    clippy::inline_always,
    clippy::too_many_lines,
    non_upper_case_globals,
    reason = "inlined into eBPF; a table of the operations by their own names"
)]
fn execute(instruction: &Instruction, state: &mut State, thread: &mut impl Thread) -> Result<(), Outcome> {
    macro_rules! operations {
        ($($name:ident => $action:expr,)+) => {
            // Numbers, because what a map holds need not be an operation.
            $(const $name: u8 = Operation::$name as u8;)+
            match instruction.operation {
                $($name => $action,)+
                _ => return Err(Outcome::Invalid),
            }
        };
    }
    macro_rules! binary {
        (|$below:ident, $top:ident| $result:expr) => {{
            let $top = state.pop();
            let $below = state.pop();
            state.push($result);
        }};
    }
    macro_rules! unary {
        (|$top:ident| $result:expr) => {{
            let $top = state.pop();
            state.push($result);
        }};
    }
    let immediate = instruction.immediate;
    operations! {
        End => return Err(Outcome::Ok),
        Constant => state.push(immediate),
        Register => {
            let word = thread.register(instruction.register);
            state.push(word.wrapping_add(immediate));
        },
        ThreadPointer => {
            let word = thread.thread_pointer();
            state.push(word.wrapping_add(immediate));
        },
        AddConstant => unary!(|top| top.wrapping_add(immediate)),
        Add => binary!(|below, top| below.wrapping_add(top)),
        Subtract => binary!(|below, top| below.wrapping_sub(top)),
        Multiply => binary!(|below, top| below.wrapping_mul(top)),
        Divide => {
            let top = state.pop();
            let below = state.pop();
            if top == 0 {
                return Err(Outcome::Invalid);
            }
            // BPF divides without sign.
            let quotient = magnitude(below) / magnitude(top).max(1);
            let negative = (below ^ top) >> 63 != 0;
            state.push(if negative { quotient.wrapping_neg() } else { quotient });
        },
        Remainder => {
            let top = state.pop();
            let below = state.pop();
            if top == 0 {
                return Err(Outcome::Invalid);
            }
            state.push(below % top);
        },
        And => binary!(|below, top| below & top),
        Or => binary!(|below, top| below | top),
        ExclusiveOr => binary!(|below, top| below ^ top),
        ShiftLeft => binary!(|below, top| if top > 63 { 0 } else { below << (top & 63) }),
        ShiftRight => binary!(|below, top| if top > 63 { 0 } else { below >> (top & 63) }),
        ShiftRightSigned => binary!(|below, top| {
            let bits = if top > 63 { 63 } else { top & 63 };
            (below.cast_signed() >> bits).cast_unsigned()
        }),
        Negate => unary!(|top| top.wrapping_neg()),
        Not => unary!(|top| !top),
        Absolute => unary!(|top| magnitude(top)),
        Equal => binary!(|below, top| u64::from(below == top)),
        Less => binary!(|below, top| u64::from(below.cast_signed() < top.cast_signed())),
        LessOrEqual => binary!(|below, top| u64::from(below.cast_signed() <= top.cast_signed())),
        SignExtend => {
            let unused = 64_u32.wrapping_sub(instruction.size.into()) & 63;
            unary!(|top| ((top << unused).cast_signed() >> unused).cast_unsigned());
        },
        ZeroExtend => {
            let unused = 64_u32.wrapping_sub(instruction.size.into()) & 63;
            unary!(|top| (top << unused) >> unused);
        },
        Load => {
            let address = state.pop();
            let Some(word) = thread.word(address, instruction.size) else {
                state.fault = address;
                return Err(Outcome::Unreadable);
            };
            state.push(word);
        },
        Pick => state.push(state.pick(instruction.length)),
        Swap => {
            let top = state.pop();
            let below = state.pop();
            state.push(top);
            state.push(below);
        },
        Rotate => {
            let first = state.pop();
            let second = state.pop();
            let third = state.pop();
            state.push(first);
            state.push(third);
            state.push(second);
        },
        Drop => {
            state.pop();
        },
        Store => {
            let word = state.pop().to_le_bytes();
            let at = state.take((instruction.size & 15).into())?;
            for (index, byte) in (0_u32..).zip(word) {
                state.output[(at.wrapping_add(index) & narrow::OUTPUT_MASK) as usize] = byte;
            }
        },
        Copy => {
            let address = state.pop();
            let at = state.take(instruction.length)?;
            if !thread.copy(address, &mut state.output, at, instruction.length) {
                state.fault = address;
                return Err(Outcome::Unreadable);
            }
        },
        CopyString => {
            let address = state.pop();
            let at = state.take(instruction.length)?;
            let Some(length) = thread.copy_string(address, &mut state.output, at, instruction.length) else {
                state.fault = address;
                return Err(Outcome::Unreadable);
            };
            state.length = at.wrapping_add(length);
        },
        CopySlice => {
            let length = state.pop().min(instruction.length.into());
            let address = state.pop();
            #[allow(clippy::cast_possible_truncation, reason = "at most the plan's length, a u32")]
            let length = length as u32;
            let at = state.take(length)?;
            if length != 0 && !thread.copy(address, &mut state.output, at, length) {
                state.fault = address;
                return Err(Outcome::Unreadable);
            }
        },
        Jump => state.next = state.next.wrapping_add(instruction.length),
        JumpIfZero => {
            if state.pop() == 0 {
                state.next = state.next.wrapping_add(instruction.length);
            }
        },
        OptimizedOut => return Err(Outcome::OptimizedOut),
        Require => {
            let right = state.pop();
            let left = state.pop();
            if !compare::holds(instruction.size, instruction.comparison, left, right) {
                return Err(Outcome::Rejected);
            }
        },
        Match => {
            let mut word = [0; 8];
            for (index, byte) in (0_u32..).zip(&mut word) {
                *byte = state.output[(instruction.length.wrapping_add(index) & narrow::OUTPUT_MASK) as usize];
            }
            let unused = 64_u32.wrapping_sub(u32::from(instruction.size).wrapping_mul(8)) & 63;
            let is_equal = (u64::from_le_bytes(word) ^ immediate) << unused == 0;
            unary!(|top| if is_equal { top } else { 0 });
        },
        TryString => {
            let address = state.pop();
            let at = state.take(instruction.length)?;
            let copied = thread.copy_string(address, &mut state.output, at, instruction.length);
            // The value is what it is without it, which may be worth another try.
            if copied.is_none() {
                state.fault = address;
            }
            let length = copied.unwrap_or(0);
            state.length = at.wrapping_add(length);
            state.push(length.into());
        },
        Absent => {
            state.fault = immediate;
            return Err(Outcome::Absent);
        },
    }
    Ok(())
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
const fn magnitude(word: u64) -> u64 {
    if word >> 63 == 0 {
        word
    } else {
        word.wrapping_neg()
    }
}

#[cfg(test)]
#[path = "step/tests.rs"]
mod tests;
