//! The slowest calls on their way to the wire: whole pictures, with the frames that their stacks are made of.

use std::{collections::BTreeSet, slice};

use profiler_aggregate::{ThreadId, slowest::MAX_SHOWN, waits::Waker};
use profiler_proto::v1::{self, wait_end::By};
use profiler_symbolize::FrameTable;

use super::{
    arguments, convert, flame_delta, records,
    stream_info::{self, Position},
    thread_names::ThreadNames,
    trace, waits,
};
use crate::{
    abi,
    kernel::Activity,
    session::{
        SessionError, SlowSpan, SpanChild, SpanPeriod, SpanSystemCall, SpanSystemCalls, SpanWait,
        SpansPicture,
    },
};

/// Spans in a message, where nobody said how many.
const DEFAULT_SPANS: usize = 10;

/// How many spans are asked for.
pub fn wanted(spans: u32) -> Result<usize, SessionError> {
    match usize::try_from(spans) {
        Ok(0) => Ok(DEFAULT_SPANS),
        Ok(spans) if spans <= MAX_SHOWN => Ok(spans),
        _ => Err(arguments::invalid(format!(
            "at most {MAX_SHOWN} spans are shown, not {spans}"
        ))),
    }
}

/// Makes the messages of one stream.
#[derive(Default)]
pub struct Messages {
    names: ThreadNames,
}

impl Messages {
    /// The message of a picture.
    pub fn next(&mut self, picture: &SpansPicture, at: Position) -> v1::WatchSpansResponse {
        let used: BTreeSet<u32> = picture
            .spans
            .iter()
            .flat_map(|span| {
                let waited = span.longest_wait.iter().flat_map(|wait| &wait.stack);
                let ended = match span.waker() {
                    Some(Waker::Thread { place, .. }) => &*place.stack,
                    Some(Waker::Interrupt(function)) => slice::from_ref(function),
                    _ => &[],
                };
                span.stack.iter().chain(waited).chain(ended).map(|frame| frame.0)
            })
            .collect();
        let threads = picture.spans.iter().flat_map(|span| {
            let waker = match span.waker() {
                Some(Waker::Thread { thread, .. }) => Some(*thread),
                _ => None,
            };
            [
                Some(ThreadId {
                    tgid: span.pid,
                    tid: span.tid,
                }),
                waker,
            ]
            .into_iter()
            .flatten()
        });
        v1::WatchSpansResponse {
            info: Some(stream_info::of_picture(
                at,
                &picture.scope,
                picture.cost,
                &picture.lost,
                picture.ended.as_ref(),
            )),
            spans: picture
                .spans
                .iter()
                .map(|span| message(span, &picture.frames))
                .collect(),
            frames: flame_delta::frames(&used, &picture.frames),
            calls: picture.calls,
            window_ns: picture.window_ns,
            watched_ns: picture.watched_ns,
            not_sampled: !picture.sampled,
            threshold_ns: picture.threshold_ns,
            lost: convert::losses(&picture.lost),
            thread_names: match &picture.thread_names {
                Some(recorded) => recorded.iter().map(trace::thread_name).collect(),
                None => self.names.of(threads),
            },
        }
    }
}

fn message(span: &SlowSpan, frames: &FrameTable) -> v1::Span {
    let SlowSpan {
        start_ns,
        pid,
        tid,
        function,
        duration_ns,
        values,
        children,
        children_left_out,
        sampled,
        samples,
        stack,
        stack_samples,
        times,
        waits,
        longest_wait,
        off_cpu,
        system_calls: calls,
    } = span;
    v1::Span {
        ts_ns: *start_ns,
        pid: *pid,
        tid: *tid,
        function: Some(convert::function(function)),
        duration_ns: *duration_ns,
        values: values.iter().flatten().map(trace::value).collect(),
        values_missing: values.is_none(),
        children: children.iter().map(child).collect(),
        children_left_out: *children_left_out,
        not_sampled: !sampled,
        samples: *samples,
        stack_samples: *stack_samples,
        stack: stack.iter().map(|frame| frame.0).collect(),
        times: times.map(
            |[
                on_cpu_ns,
                sleeping_ns,
                uninterruptible_ns,
                stopped_ns,
                runnable_ns,
            ]| {
                v1::SpanTimes {
                    on_cpu_ns,
                    sleeping_ns,
                    uninterruptible_ns,
                    stopped_ns,
                    runnable_ns,
                }
            },
        ),
        waits: *waits,
        longest_wait: longest_wait.as_ref().map(|longest| wait(longest, frames)),
        off_cpu: off_cpu.periods.iter().map(period).collect(),
        off_cpu_left_out: off_cpu.left_out,
        off_cpu_left_out_ns: off_cpu.left_out_ns,
        system_calls: calls.as_ref().map(system_calls),
    }
}

fn system_calls(calls: &SpanSystemCalls) -> v1::SpanSystemCalls {
    let error = |number| abi::error(number).map_or_else(|| number.to_string(), str::to_owned);
    let kind = |kind: &SpanSystemCall| v1::SpanSystemCall {
        name: kind.call.name().into_owned(),
        error: if kind.error == 0 {
            String::new()
        } else {
            error(kind.error)
        },
        calls: kind.count,
        time_ns: kind.time_ns,
        longest_ns: kind.longest_ns,
    };
    v1::SpanSystemCalls {
        kinds: calls.calls.iter().map(kind).collect(),
        left_out: calls.left_out,
    }
}

fn period(period: &SpanPeriod) -> v1::SpanPeriod {
    let SpanPeriod {
        activity,
        offset_ns,
        time_ns,
        system_call,
    } = *period;
    v1::SpanPeriod {
        activity: records::activity(activity).into(),
        offset_ns,
        time_ns,
        system_call: system_call.map_or_else(String::new, |call| call.name().into_owned()),
    }
}

fn wait(wait: &SpanWait, frames: &FrameTable) -> v1::SpanWait {
    let activity = match wait.activity {
        Activity::OnCpu => "on_cpu",
        Activity::Sleeping => "sleeping",
        Activity::Uninterruptible => "uninterruptible",
        Activity::Stopped => "stopped",
        Activity::Runnable => "runnable",
    };
    v1::SpanWait {
        activity: activity.to_owned(),
        offset_ns: wait.offset_ns,
        time_ns: wait.time_ns,
        stack: wait.stack.iter().map(|frame| frame.0).collect(),
        lock: wait.lock.as_ref().map(|lock| waits::lock(lock, frames)),
        end: wait.ended_by.as_ref().and_then(ended_by),
    }
}

fn ended_by(waker: &Waker) -> Option<v1::WaitEnd> {
    let by = match waker {
        Waker::Thread { thread, place, .. } => By::Thread(v1::WakingThread {
            pid: thread.tgid,
            tid: thread.tid,
            stack: place.stack.iter().map(|frame| frame.0).collect(),
        }),
        Waker::Interrupt(function) => By::Interrupt(function.0),
        Waker::Unseen | Waker::GoesOn(_) => return None,
    };
    Some(v1::WaitEnd { by: Some(by) })
}

fn child(child: &SpanChild) -> v1::SpanChild {
    let SpanChild {
        place,
        offset_ns,
        duration_ns,
    } = child;
    v1::SpanChild {
        place: place.to_string(),
        offset_ns: *offset_ns,
        duration_ns: *duration_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_spans_is_within_its_bound() {
        assert_eq!(wanted(0).unwrap(), DEFAULT_SPANS);
        assert_eq!(wanted(100).unwrap(), 100);
        assert!(wanted(101).unwrap_err().message.contains("at most 100"));
    }
}
