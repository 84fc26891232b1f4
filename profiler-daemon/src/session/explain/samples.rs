//! Where calls were sampled on the CPU.

use std::collections::HashMap;

use profiler_aggregate::{calltree::CallTree, explain::SamplesAt};
use profiler_common::record::SpanRef;
use profiler_symbolize::{Frame, FrameId};

use super::OpenCall;

/// Calls that have been sampled, and not ended.
const MAX_OPEN: usize = 16_384;

/// Stacks of a call that are told apart.
const MAX_STACKS: usize = 256;

/// Where calls were sampled.
#[derive(Default)]
pub struct SamplesOfCalls {
    stacks: CallTree,
    /// Of calls that have not ended.
    open: HashMap<OpenCall, Sampled>,
    lost: LostSamples,
}

/// What is not known of samples.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LostSamples {
    /// Calls whose samples were forgotten before they ended.
    pub forgotten: u64,
    /// Samples at further stacks of a call than are told apart.
    pub stacks_full: u64,
}

/// The samples of a call.
struct Sampled {
    /// When the first of them was taken: a thread's numbers come again.
    from_ns: u64,
    stacks: Vec<SamplesAt>,
}

impl SamplesOfCalls {
    /// Takes a sample of a thread in these calls, at a stack that reaches a known root or not.
    pub fn take<'s>(
        &mut self,
        tid: u32,
        ts_ns: u64,
        calls: impl Iterator<Item = &'s SpanRef>,
        (frames, complete): (&[FrameId], bool),
    ) {
        let mut calls = calls.peekable();
        if calls.peek().is_none() {
            return;
        }
        let stack = self.stacks.intern(frames, complete);
        for call in calls {
            if self.open.len() >= MAX_OPEN {
                self.lost.forgotten += self.open.len() as u64;
                self.open.clear();
            }
            let call = OpenCall::referred(tid, call);
            let sampled = self.open.entry(call).or_insert_with(|| Sampled {
                from_ns: ts_ns,
                stacks: Vec::new(),
            });
            let stacks = &mut sampled.stacks;
            if let Some(known) = stacks.iter_mut().find(|known| known.stack == stack) {
                known.count += 1;
            } else if stacks.len() < MAX_STACKS {
                stacks.push(SamplesAt { stack, count: 1 });
            } else {
                self.lost.stacks_full += 1;
            }
        }
    }

    /// The samples of a call that has ended, by stack.
    pub fn of_call(&mut self, call: OpenCall, start_ns: u64) -> Box<[SamplesAt]> {
        let sampled = self.open.remove(&call);
        let sampled = sampled.filter(|sampled| sampled.from_ns >= start_ns);
        sampled.map_or_else(Box::default, |sampled| sampled.stacks.into())
    }

    /// All stacks.
    pub fn stacks(&self) -> &CallTree {
        &self.stacks
    }

    /// What is not known.
    pub fn lost(&self) -> LostSamples {
        self.lost
    }
}

/// The name of the function that a frame is, if it is one of the program's that has code of its own.
pub fn function(frame: &Frame) -> Option<&str> {
    let has_code = !frame.inlined && !frame.kernel && frame.unresolved.is_none();
    let is_of_file = !frame.module.starts_with('[');
    (has_code && is_of_file).then_some(&*frame.function)
}

/// Whether a frame is where x86's kernel begins to see to a breakpoint, or to an instruction that it single-steps; or, in newer
/// ones, to the system calls that probes are made into.
pub fn is_probe(frame: &Frame) -> bool {
    frame.kernel
        && matches!(
            &*frame.function,
            "asm_exc_int3" | "asm_exc_debug" | "__x64_sys_uretprobe" | "__x64_sys_uprobe"
        )
}

#[cfg(test)]
mod tests {
    use profiler_common::probe::ProbeId;

    use super::*;

    fn span(sequence: u64) -> SpanRef {
        SpanRef {
            probe: ProbeId(1),
            gates: 0,
            sequence,
            start_ns: 0,
        }
    }

    #[test]
    fn samples_are_those_of_their_call() {
        let mut samples = SamplesOfCalls::default();
        let stack = [FrameId(1), FrameId(2)];
        for ts_ns in [20, 30] {
            samples.take(7, ts_ns, [span(1), span(2)].iter(), (&stack, true));
        }
        samples.take(7, 40, [span(1)].iter(), (&stack[..1], true));
        let mut counts = |number, start_ns| -> Vec<u32> {
            let stacks = samples.of_call(OpenCall { tid: 7, number }, start_ns);
            stacks.iter().map(|samples| samples.count).collect()
        };
        assert_eq!(counts(2, 10), [2]);
        assert_eq!(counts(2, 10), [0; 0], "it has ended");
        assert_eq!(counts(1, 25), [0; 0], "of one before it");
        assert_eq!(samples.lost(), LostSamples::default());
    }

    #[test]
    fn counts_calls_and_stacks_beyond_the_limits() {
        let mut samples = SamplesOfCalls::default();
        for sequence in 0..=MAX_OPEN as u64 {
            samples.take(7, 20, [span(sequence)].iter(), (&[FrameId(1)], true));
        }
        for stack in (0..).take(MAX_STACKS + 1) {
            samples.take(8, 20, [span(1)].iter(), (&[FrameId(100 + stack)], true));
        }
        let lost = LostSamples {
            forgotten: MAX_OPEN as u64,
            stacks_full: 1,
        };
        assert_eq!(samples.lost(), lost);
    }
}
