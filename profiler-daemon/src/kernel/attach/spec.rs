//! What is to be probed: where spans begin and end, and what is looked at there.

use profiler_common::{
    condition::Condition,
    instruction::{Action, Operation},
    probe::Cookie,
};
use profiler_plan::exits::Way;

use crate::kernel::{gates::Gates, hits::LookSpec};

/// Bytes of a jump with its distance.
const JUMP_BYTES: u64 = 5;

/// A place where a span ends.
#[derive(Clone, Debug)]
pub struct ExitSite {
    /// File offset of the instruction.
    pub offset: u64,
    /// What the instruction means.
    pub action: Action,
    /// How what is timed is left there.
    pub way: Way,
    /// The way that a conditional jump has to go there; `None` for either.
    pub condition: Option<Condition>,
    /// It is what is behind a call, and ends the span only where that has returned.
    pub is_behind_call: bool,
    /// It is in another function, whose own callers come there too.
    pub is_elsewhere: bool,
}

impl ExitSite {
    /// Bytes of its instruction, about.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self.way {
            Way::Return => 1,
            Way::Jump | Way::ByPointer | Way::ByTable => JUMP_BYTES,
        }
    }

    /// An instruction that ends the span whenever it is reached.
    #[must_use]
    pub fn new(offset: u64, action: Action) -> Self {
        Self {
            offset,
            action,
            way: Way::Return,
            condition: None,
            is_behind_call: false,
            is_elsewhere: false,
        }
    }
}

/// Where a span ends.
#[derive(Clone, Debug)]
pub enum Ends {
    /// At a return probe of the kernel.
    ReturnProbe,
    /// At each of these.
    At(Vec<ExitSite>),
    /// At no place in a file: it is given up once the thread is certainly outside of it.
    Never,
}

impl Ends {
    /// Those in functions that it ends in jumps to: what begins there at its stack pointer does not end it.
    pub fn elsewhere(&self) -> impl Iterator<Item = &ExitSite> {
        let exits = match self {
            Self::At(exits) => exits.as_slice(),
            Self::ReturnProbe | Self::Never => &[],
        };
        exits.iter().filter(|exit| exit.is_elsewhere)
    }
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanKind {
    /// Calls of a function.
    Function,
    /// One call: what its exits are is behind its instruction, which has this length.
    Call {
        /// In bytes.
        length: u8,
    },
    /// A part of a function, within which the stack pointer stays what it is: what is inlined.
    Inlined,
    /// System calls. What else is said of places in a file is not used.
    SystemCall {
        /// Their number.
        number: u32,
        /// The number of the tracepoint that each passes when it begins.
        tracepoint: u64,
    },
    /// Calls of a function of the kernel. What else is said of places in a file is not used.
    KernelFunction {
        /// Its address.
        address: u64,
    },
}

impl SpanKind {
    /// What its cookies say of it.
    pub(super) fn flag(self) -> u8 {
        match self {
            Self::Function => 0,
            Self::Call { .. } => Cookie::CALL_SITE,
            Self::Inlined | Self::SystemCall { .. } | Self::KernelFunction { .. } => Cookie::INLINED,
        }
    }
}

/// A function to be probed.
#[derive(Clone, Debug)]
pub struct ProbeSpec {
    /// File offset of the entry probe.
    pub entry_offset: u64,
    /// What the instruction there means.
    pub entry_action: Action,
    /// The entry is reached again within a span, at the same stack pointer.
    pub loops: bool,
    /// Where the span ends.
    pub ends: Ends,
    /// Programs do the probed instructions themselves.
    pub done_by_program: bool,
    /// The target may switch stacks.
    pub stacks_switch: bool,
    /// Its step's place in a scope.
    pub gates: Gates,
    /// What is looked at where it begins.
    pub look: Option<LookSpec>,
    /// What is timed.
    pub kind: SpanKind,
}

/// Whether programs can do an instruction.
#[must_use]
pub fn can_be_done(action: &Action) -> bool {
    action.operation != Operation::Leave as u8 && action.address != 0
}
