//! Records, system calls of a time, and who was off the CPU at first, as messages.

use profiler_aggregate::{
    ThreadId,
    waits::{Wait, Waker},
};
use profiler_common::record::{SpanEnd, SpanRef};
use profiler_proto::v1;
use profiler_symbolize::FrameTable;

use super::{
    super::{convert, waits},
    number,
    told::{Placed, Told, after},
};
use crate::{
    kernel::{Activity, CallNumber, Key},
    recording::MAX_COUNT,
    session::{
        AtEvent, OffAtFirst, RecordedAtEvent, RecordedReached, RecordedSample, RecordedScope, RecordedTurn,
        RecordedWait,
    },
};

impl Told {
    pub(super) fn sample(
        &mut self,
        sample: &RecordedSample,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> v1::RecordedSample {
        let after_ns = self.after(sample.ts_ns);
        let weight_ns = if sample.weight_ns == message.weight_ns {
            0
        } else {
            // Longer intervals off the CPU are none that is read.
            sample.weight_ns.min(MAX_COUNT)
        };
        v1::RecordedSample {
            after_ns,
            weight_ns,
            ..self.place_of(sample, frames, message)
        }
    }

    /// A sample that was taken at an event, or the weight of one, where the event is recorded for this reader.
    pub(super) fn at_event(
        &mut self,
        at: &RecordedAtEvent,
        scope: &RecordedScope,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) {
        let Some(event) = scope.events.iter().position(|event| *event == at.event) else {
            return;
        };
        let (key, what) = match &at.what {
            AtEvent::Sample(sample, key) => {
                let sample = v1::RecordedSample {
                    after_ns: self.after_event(sample.ts_ns),
                    weight_ns: sample.weight_ns.min(MAX_COUNT),
                    ..self.place_of(sample, frames, message)
                };
                (*key, v1::recorded_event_sample::What::Sample(sample))
            }
            AtEvent::Weight(weight) => {
                let told = v1::RecordedWeight {
                    thread: self.thread(weight.tgid, weight.tid, frames, message),
                    after_ns: self.after_event(weight.ts_ns),
                    weight: weight.weight.min(MAX_COUNT),
                };
                let key = Key {
                    space: 0,
                    place: weight.key,
                };
                (key, v1::recorded_event_sample::What::Weight(told))
            }
        };
        let records = message.records.len();
        message.event_samples.push(v1::RecordedEventSample {
            records_before: number(records - std::mem::replace(&mut self.records_at_event, records)),
            event: number(event),
            space: key.space,
            place: key.place,
            what: Some(what),
        });
    }

    /// Where a sample was taken, without its time and its weight.
    fn place_of(
        &mut self,
        sample: &RecordedSample,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> v1::RecordedSample {
        let Placed { function, line } = self.place(&sample.stacks, frames, message);
        v1::RecordedSample {
            thread: self.sampled_thread(sample, frames, message),
            after_ns: 0,
            weight_ns: 0,
            activity: activity(sample.activity).into(),
            continues: sample.continues,
            function_node: function,
            line_node: line,
            incomplete: !sample.complete,
            system_call: CallNumber::recorded(sample.system_call),
            spans: (sample.spans.iter())
                .map(|open| span(open, sample.ts_ns))
                .collect(),
        }
    }

    pub(super) fn span_end(
        &mut self,
        end: &SpanEnd,
        after_ns: i64,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> v1::RecordedSpanEnd {
        v1::RecordedSpanEnd {
            thread: self.thread(end.tgid, end.tid, frames, message),
            probe: end.probe.0,
            sequence: end.sequence,
            after_ns,
            duration_ns: end.end_ns.saturating_sub(end.start_ns),
            flags: end.flags,
            parent: end.parent,
            gates: end.gates,
            hits: end.hits,
        }
    }

    /// Who was off the CPU.
    pub(super) fn off_cpu(
        &mut self,
        off: &OffAtFirst,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> v1::RecordedOffCpu {
        let threads = off.threads.iter();
        v1::RecordedOffCpu {
            since_ns: off.since_ns,
            threads: threads
                .map(|thread| self.thread(thread.tgid, thread.tid, frames, message))
                .collect(),
        }
    }

    pub(super) fn wait(
        &mut self,
        recorded: &RecordedWait,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> v1::RecordedWait {
        let Wait {
            thread: ThreadId { tgid, tid },
            place,
            waiting,
            lock,
            times: [left_ns, woken_ns, end_ns],
            waker,
            still_ns,
        } = &recorded.wait;
        let waker = match waker {
            Waker::Unseen => None,
            Waker::GoesOn(holder) => Some(v1::recorded_wait::Waker::GoesOnFrame(
                self.tell_some(*holder, frames, message),
            )),
            Waker::Interrupt(function) => Some(v1::recorded_wait::Waker::InterruptFrame(
                self.tell_frame(*function, frames, message),
            )),
            Waker::Thread {
                thread: ThreadId { tgid, tid },
                place,
                is_own: _,
            } => Some(v1::recorded_wait::Waker::Woken(v1::RecordedWaker {
                thread: self.thread(*tgid, *tid, frames, message),
                name_frame: self.tell_frame(place.thread, frames, message),
                node: self.node(&place.stack, frames, message),
            })),
        };
        v1::RecordedWait {
            thread: self.thread(*tgid, *tid, frames, message),
            after_ns: self.after_wait(*end_ns),
            waited_ns: woken_ns.saturating_sub(*left_ns),
            runnable_ns: end_ns.saturating_sub(*woken_ns),
            name_frame: self.tell_frame(place.thread, frames, message),
            node: self.node(&place.stack, frames, message),
            waiting: waiting.map_or(v1::Waiting::Unspecified, waits::waiting).into(),
            lock: lock.map(|lock| v1::RecordedLock {
                process: lock.process,
                address: lock.address,
                name_frame: self.tell_some(lock.name, frames, message),
                allocated_frame: self.tell_some(lock.allocated, frames, message),
                memory_frame: self.tell_some(lock.memory, frames, message),
            }),
            waker,
            still_ns: *still_ns,
            spans: recorded.spans.iter().map(|open| span(open, *end_ns)).collect(),
        }
    }

    /// The system calls that returned in a time.
    pub(super) fn turn(
        &mut self,
        turn: &RecordedTurn,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> v1::RecordedSyscalls {
        let calls = turn.calls.iter().map(|calls| {
            let Placed { function, line } = self.place(&calls.stacks, frames, message);
            v1::RecordedSyscall {
                number: calls.call.number,
                is_32_bit: calls.call.is_32_bit,
                error: calls.error.unwrap_or(0),
                function_node: function,
                line_node: line,
                calls: calls.counted.calls,
                time_ns: calls.counted.time_ns,
                longest_ns: calls.counted.longest_ns,
            }
        });
        v1::RecordedSyscalls {
            from_ns: turn.from_ns,
            to_ns: turn.to_ns,
            calls: calls.collect(),
            open: (turn.open.iter())
                .map(|(call, calls)| v1::RecordedOpenSyscall {
                    number: call.number,
                    is_32_bit: call.is_32_bit,
                    calls: *calls,
                })
                .collect(),
            begun_before: turn.begun_before,
            lost: convert::losses(&turn.lost),
        }
    }

    pub(super) fn reached(
        &mut self,
        hit: &RecordedReached,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> v1::RecordedReached {
        v1::RecordedReached {
            thread: self.thread(hit.tgid, hit.tid, frames, message),
            probe: hit.probe.0,
            after_ns: self.after_hit(hit.ts_ns),
            parent: hit.parent,
            joined: hit.joined,
        }
    }
}

/// A span that was open at a time.
fn span(open: &SpanRef, at_ns: u64) -> v1::RecordedSpan {
    v1::RecordedSpan {
        probe: open.probe.0,
        sequence: open.sequence,
        before_ns: after(open.start_ns, at_ns),
        gates: open.gates,
    }
}

/// What a thread did.
pub fn activity(activity: Activity) -> v1::Activity {
    match activity {
        // The usual one takes no room.
        Activity::OnCpu => v1::Activity::Unspecified,
        Activity::Sleeping => v1::Activity::Sleeping,
        Activity::Uninterruptible => v1::Activity::Uninterruptible,
        Activity::Stopped => v1::Activity::Stopped,
        Activity::Runnable => v1::Activity::Runnable,
    }
}
