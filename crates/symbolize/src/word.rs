//! Frames that stand for no code: words for the state of a thread off the CPU. Their numbers are fixed.

use super::frame::{Frame, FrameId};

/// The module of such frames.
const MODULE: &str = "[off-cpu]";

/// A word in place of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Its stack was not taken.
    StackNotTaken,
    /// It waits, and a signal ends that.
    Sleeping,
    /// It waits, and no signal ends that.
    Uninterruptible,
    /// It was stopped.
    Stopped,
    /// It could run, and waits for a CPU.
    Runnable,
    /// What it does has not ended.
    GoesOn,
    /// It ran, while another waited for it.
    Ran,
    /// What it did, while another waited for it, is not known.
    NotFollowed,
    /// What it waited for was no thread.
    Interrupt,
    /// What is drawn here was touched from stacks without a function in common.
    NothingInCommon,
}

impl Word {
    /// In the order of their numbers.
    pub(super) const ALL: [Self; 10] = [
        Self::StackNotTaken,
        Self::Sleeping,
        Self::Uninterruptible,
        Self::Stopped,
        Self::Runnable,
        Self::GoesOn,
        Self::Ran,
        Self::NotFollowed,
        Self::Interrupt,
        Self::NothingInCommon,
    ];

    /// Whether a frame says what a thread did that did not run, or that it still did: such stand innermost.
    #[must_use]
    pub fn is_of_activity(frame: FrameId) -> bool {
        let words = [
            Self::Sleeping,
            Self::Uninterruptible,
            Self::Stopped,
            Self::Runnable,
            Self::GoesOn,
        ];
        words.into_iter().any(|word| word.frame() == frame)
    }

    /// Its frame.
    #[must_use]
    pub fn frame(self) -> FrameId {
        // Behind `FrameId::OTHER`.
        FrameId(1 + self as u32)
    }

    pub(super) fn as_frame(self) -> Frame {
        let text = match self {
            Self::StackNotTaken => "[stack not taken]",
            Self::Sleeping => "[sleeping]",
            Self::Uninterruptible => "[uninterruptible]",
            Self::Stopped => "[stopped]",
            Self::Runnable => "[runnable]",
            Self::GoesOn => "[goes on]",
            Self::Ran => "[ran]",
            Self::NotFollowed => "[not followed]",
            Self::Interrupt => "[interrupt]",
            Self::NothingInCommon => "[nothing in common]",
        };
        Frame::named(text, &MODULE.into(), false)
    }
}
