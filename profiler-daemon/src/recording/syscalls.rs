//! System calls from messages, which somebody may have made up.

use std::collections::{BTreeMap, HashMap};

use profiler_aggregate::system_calls::Counted;
use profiler_proto::v1;
use profiler_symbolize::{Frames, Stacks};

use super::{
    decode::{Damaged, Decoder, MAX_COUNT},
    reasons::reason,
};
use crate::{
    kernel::CallNumber,
    session::{CALL_LOSSES, Losses, RecordedCalls, RecordedTurn, STACKS_FULL, UNNAMED},
};

/// Calls, results and stacks of a message: more than are told in one.
const MAX_CALLS: usize = 1 << 18;

/// Reasons of losses of a turn.
const MAX_REASONS: usize = 1024;

/// Turns of a message, and kinds of system calls that are open in one.
const MAX_TURNS: usize = 1024;
const MAX_OPEN: usize = 4096;

impl Decoder {
    /// Takes the system calls of a message.
    pub(super) fn turns(
        &mut self,
        told: Vec<v1::RecordedSyscalls>,
        frames: &mut Frames,
    ) -> Result<Vec<RecordedTurn>, Damaged> {
        let calls = told.iter().map(|turn| turn.calls.len());
        if told.len() > MAX_TURNS || calls.sum::<usize>() > MAX_CALLS {
            return Err(Damaged);
        }
        told.into_iter().map(|turn| self.turn(turn, frames)).collect()
    }

    fn turn(&mut self, told: v1::RecordedSyscalls, frames: &mut Frames) -> Result<RecordedTurn, Damaged> {
        let v1::RecordedSyscalls {
            from_ns,
            to_ns,
            calls,
            open,
            begun_before,
            lost,
        } = told;
        let is_count = |count: u64| count <= MAX_COUNT;
        let are_counts =
            open.iter().all(|open| is_count(open.calls)) && lost.values().all(|lost| is_count(*lost));
        if from_ns > to_ns
            || open.len() > MAX_OPEN
            || lost.len() > MAX_REASONS
            || !is_count(begun_before)
            || !are_counts
        {
            return Err(Damaged);
        }
        let calls = calls.iter().map(|calls| self.calls(calls, frames));
        Ok(RecordedTurn {
            from_ns,
            to_ns,
            calls: calls.collect::<Result<_, _>>()?,
            open: (open.iter())
                .map(|open| (call(open.number, open.is_32_bit), open.calls))
                .collect::<BTreeMap<_, _>>(),
            begun_before,
            lost: losses(&lost),
        })
    }

    fn calls(&mut self, told: &v1::RecordedSyscall, frames: &mut Frames) -> Result<RecordedCalls, Damaged> {
        let counts = [told.calls, told.time_ns, told.longest_ns];
        if counts.iter().any(|count| *count > MAX_COUNT) {
            return Err(Damaged);
        }
        let error = (told.error != 0).then_some(told.error);
        Ok(RecordedCalls {
            call: call(told.number, told.is_32_bit),
            error,
            stacks: match (told.function_node, told.line_node) {
                (0, 0) => Stacks::default(),
                nodes => self.stacks(nodes, None, frames)?,
            },
            counted: Counted {
                calls: told.calls,
                failed: if error.is_some() { told.calls } else { 0 },
                time_ns: told.time_ns,
                longest_ns: told.longest_ns,
            },
        })
    }
}

fn call(number: u32, is_32_bit: bool) -> CallNumber {
    CallNumber { number, is_32_bit }
}

/// Losses by their reasons, be it that only a newer version knows these.
fn losses(told: &HashMap<String, u64>) -> Losses {
    let mut losses = Losses::new();
    for (name, count) in told {
        let mut known = CALL_LOSSES.into_iter().chain([STACKS_FULL, UNNAMED]);
        let known = known.find(|known| known == name);
        let sum = losses.entry(known.unwrap_or_else(|| reason(name))).or_default();
        *sum += *count;
    }
    losses
}
