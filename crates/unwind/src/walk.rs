//! A stack walked natively, by the tables and the step that the programs walk by.

use profiler_common::unwind::{Frame, Mapping, Outcome, Rule, frame_pointer_step, step};

use super::image::Image;

/// An interrupted thread's memory and registers.
pub trait Memory {
    /// The 8 bytes at an address.
    fn read(&self, address: u64) -> Option<u64>;
    /// A general register, as DWARF counts them.
    fn register(&self, number: u8) -> Option<u64>;
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// At a verified root: the stack is complete.
    Root,
    /// There were more frames than asked for.
    Truncated,
    /// A step failed so, and frame pointers led nowhere.
    Failed(Outcome),
}

/// A stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stack {
    /// The instruction pointers to look names up by, innermost first.
    pub ips: Vec<u64>,
    /// How it ended.
    pub end: End,
    /// Frames of it that are a guess by frame pointers.
    pub by_frame_pointer: u32,
}

/// Tables, and a process's mappings.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    /// The tables.
    pub image: &'a Image,
    /// The mappings, sorted.
    pub mappings: &'a [Mapping],
}

impl Walk<'_> {
    /// Walks at most `limit` frames from an interrupted one.
    #[must_use]
    pub fn stack(&self, mut frame: Frame, memory: &impl Memory, limit: usize) -> Stack {
        let mut ips = Vec::new();
        let end = loop {
            if ips.len() == limit {
                break End::Truncated;
            }
            ips.push(frame.lookup_ip());
            match self.step(&mut frame, memory) {
                Outcome::Continue => {}
                Outcome::Root => break End::Root,
                outcome => break End::Failed(outcome),
            }
        };
        Stack {
            ips,
            end,
            by_frame_pointer: frame.by_frame_pointer,
        }
    }

    /// Goes on to the caller of `frame`, by its rule or, where there is none, by its frame pointer.
    pub fn step(&self, frame: &mut Frame, memory: &impl Memory) -> Outcome {
        let rule = self
            .image
            .rule_at(self.mappings, frame.lookup_ip())
            .unwrap_or(&Rule::NONE);
        let before = *frame;
        let outcome = step(
            rule,
            frame,
            |number| memory.register(number),
            |address| memory.read(address),
        );
        if outcome != Outcome::NoRule {
            return outcome;
        }
        *frame = before;
        match frame_pointer_step(frame, |address| memory.read(address)) {
            Outcome::Continue => Outcome::Continue,
            _ => outcome,
        }
    }
}
