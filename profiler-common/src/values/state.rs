//! Where the interpreter stands, and what came of a value.

use super::{OUTPUT_BYTES, STACK_SLOTS};
use crate::assert_layout;

/// What came of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Outcome {
    /// Not done yet.
    Running = 0,
    /// It is in the output.
    Ok = 1,
    /// Memory at [`State::fault`] could not be read.
    Unreadable = 2,
    /// It has no value in this call.
    OptimizedOut = 3,
    /// A comparison rejects the hit.
    Rejected = 4,
    /// The plan divides by zero or is not one that the daemon makes.
    Invalid = 5,
    /// There is none at the moment; [`State::fault`] is why: [`NO_STORAGE`] or [`OTHER_VARIANT`].
    Absent = 6,
}

/// Why a value is absent: it is thread-local, and the thread has no storage for it yet.
pub const NO_STORAGE: u64 = 0;
/// Why a value is absent: the enum that it is in has another variant.
pub const OTHER_VARIANT: u64 = 1;

/// The interpreter's state while it reads one value. It is kept in memory that nothing else uses meanwhile.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// An [`Outcome`] as a number.
    pub outcome: u8,
    /// Always 0.
    pub reserved: [u8; 3],
    /// The instruction that is next.
    pub next: u32,
    /// Words on the stack.
    pub depth: u32,
    /// Bytes in the output.
    pub length: u32,
    /// The address that could not be read, or why there is no value. Of a value that is there, the address of text that could
    /// not be read with it; 0 where all was.
    pub fault: u64,
    /// The stack.
    pub stack: [u64; STACK_SLOTS],
    /// What was read: `length` bytes of the value, then nothing that counts.
    pub output: [u8; OUTPUT_BYTES],
}

assert_layout!(State, size 664,
    outcome at 0, reserved at 1, next at 4, depth at 8, length at 12, fault at 16, stack at 24, output at 152);

impl State {
    /// The state before a plan's first instruction.
    pub const START: Self = Self {
        outcome: Outcome::Running as u8,
        reserved: [0; 3],
        next: 0,
        depth: 0,
        length: 0,
        fault: 0,
        stack: [0; STACK_SLOTS],
        output: [0; OUTPUT_BYTES],
    };

    /// Goes to the start again. The stack and the output stay as they are: nothing reads what was not written.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub fn restart(&mut self) {
        self.outcome = Outcome::Running as u8;
        self.next = 0;
        self.depth = 0;
        self.length = 0;
        self.fault = 0;
    }

    /// What was read, once the outcome is [`Outcome::Ok`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.output.get(..self.length as usize).unwrap_or_default()
    }
}
