//! Records as messages: names, stacks and threads are told once, what was counted as what came since the message before.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use profiler_aggregate::{
    ThreadId,
    waits::{Wait, Waker},
};
use profiler_common::{
    probe::ProbeId,
    record::{SpanEnd, SpanRef},
};
use profiler_proto::v1;
use profiler_symbolize::{Frame, FrameId, Grouping, Stacks};

use super::{convert, flame_delta::frame, latency_delta::histogram, trace::traced_place};
use crate::{
    kernel::{Activity, CallNumber, Event, EventCounts, HitCounts, Key, Pace, ProbeCounts},
    recording::{MAX_COUNT, values},
    session::{
        AT_EVENTS_DROPPED, AtEvent, CALLS_DROPPED, Ending, HitReading, OUTSIDE_DROPPED, OffAtFirst,
        OwnLosses, ProbeReading, RecordBatch, Recorded, RecordedAtEvent, RecordedFunction, RecordedPlace,
        RecordedReached, RecordedSample, RecordedScope, RecordedTurn, RecordedWait, Sampling, SpanLosses,
        Task, TraceLosses, WAITS_DROPPED,
    },
};

/// How often SIGUSR1 has come to the daemon.
static SIGNALLED: AtomicU64 = AtomicU64::new(0);

/// Tells all streams of records, with their next message, that SIGUSR1 has come.
pub fn signal() {
    SIGNALLED.fetch_add(1, Ordering::Relaxed);
}

/// Time after which numbers begin anew, so that what came long ago is not needed to understand the rest.
const ANEW_NS: u64 = 60_000_000_000;

/// Nodes after which they do.
const MAX_NODES: usize = 1 << 18;

/// Stacks whose nodes are kept; then all are looked up anew.
const MAX_PLACED: usize = 1 << 13;

/// The nodes of a stack.
#[derive(Clone, Copy, Default)]
struct Placed {
    function: u32,
    line: u32,
}

/// A thread that was told.
#[derive(Clone, Copy)]
struct Thread {
    id: u32,
    task: Option<Task>,
}

/// What has been told since numbers began anew.
#[derive(Default)]
struct Told {
    since_ns: u64,
    /// When the record before was taken.
    last_ns: u64,
    /// When the hit before was.
    last_hit_ns: u64,
    /// When the wait before ended.
    last_wait_ns: u64,
    /// When the sample of an event before was taken.
    last_event_ns: u64,
    /// Records of the message before that.
    records_at_event: usize,
    threads: HashMap<(u32, u32), Thread>,
    last_thread: u32,
    /// Whether a frame of a number was.
    frames: Vec<bool>,
    /// By parent and frame.
    nodes: HashMap<(u32, u32), u32>,
    /// The nodes of stacks that come again, by where these are.
    placed: HashMap<usize, (Placed, Stacks)>,
}

/// What was told when the message before was made.
struct Before {
    readings: HashMap<ProbeId, ProbeReading>,
    sampling: Sampling,
    spans: SpanLosses,
    own: OwnLosses,
    hits: HashMap<ProbeId, HitReading>,
    trace: TraceLosses,
    scope: Arc<RecordedScope>,
    dropped: u64,
    waits_dropped: u64,
    calls_dropped: u64,
    outside_dropped: u64,
    events: HashMap<Event, EventCounts>,
    at_events_dropped: u64,
}

impl Before {
    fn of(batch: &RecordBatch) -> Self {
        let readings = batch.readings.iter();
        Self {
            readings: readings.map(|reading| (reading.probe, reading.clone())).collect(),
            sampling: batch.sampling,
            spans: batch.spans,
            own: batch.own,
            hits: (batch.hits.iter())
                .map(|reading| (reading.probe, *reading))
                .collect(),
            trace: batch.trace,
            scope: Arc::clone(&batch.scope),
            dropped: batch.dropped,
            waits_dropped: batch.waits_dropped,
            calls_dropped: batch.calls_dropped,
            outside_dropped: batch.outside_dropped,
            events: (batch.events.iter())
                .map(|reading| (reading.event, reading.counts))
                .collect(),
            at_events_dropped: batch.at_events_dropped,
        }
    }
}

/// A stream of records on its way to a client.
#[derive(Default)]
pub struct Messages {
    /// Waits are told.
    waits: bool,
    /// Who was off the CPU when that was told last.
    off_cpu: Option<Arc<OffAtFirst>>,
    seq: u64,
    /// All frames, by number.
    frames: Vec<Frame>,
    /// Those that say which builds modules are.
    builds: Vec<FrameId>,
    told: Told,
    before: Option<Before>,
    /// As of [`SIGNALLED`], with the message before; `None` before the first.
    signalled: Option<u64>,
}

impl Messages {
    /// Those of a stream, with waits where these were asked for.
    pub fn new(waits: bool) -> Self {
        Self {
            waits,
            ..Self::default()
        }
    }

    /// The next message of the stream.
    pub fn next(&mut self, batch: &RecordBatch) -> v1::WatchRecordsResponse {
        let ids = self.frames.len()..;
        let builds = ids
            .zip(batch.frames.iter())
            .filter(|(_, frame)| frame.build().is_some());
        self.builds.extend(builds.map(|(id, _)| FrameId(number(id))));
        self.frames.extend(batch.frames.iter().cloned());
        let is_first = self.before.is_none();
        let before = self.before.take().unwrap_or_else(|| Before::of(batch));
        let begins_anew = is_first
            || !Arc::ptr_eq(&before.scope, &batch.scope)
            || batch.from_ns >= self.told.since_ns + ANEW_NS
            || self.told.nodes.len() > MAX_NODES;
        let signalled = SIGNALLED.load(Ordering::Relaxed);
        let before_signalled = self.signalled.replace(signalled);
        let mut message = v1::WatchRecordsResponse {
            signalled: before_signalled.is_some_and(|before| before != signalled),
            seq: self.seq,
            dropped: batch.dropped.saturating_sub(before.dropped),
            r#final: batch.ended.is_some(),
            final_reason: batch.ended.as_deref().unwrap_or_default().to_owned(),
            final_signal: Ending::signal_number(batch.ended.as_ref()),
            from_ns: batch.from_ns,
            to_ns: batch.to_ns,
            begins_anew,
            cost: Some(convert::cost(batch.cost)),
            weight_ns: usual_weight(&batch.records),
            ..Default::default()
        };
        if begins_anew {
            self.told = Told {
                since_ns: batch.from_ns,
                ..Told::default()
            };
            message.scope = Some(scope(&batch.scope, &before.readings));
        }
        self.tell_records(batch, begins_anew, &mut message);
        message.calls = (batch.readings.iter())
            .filter_map(|reading| calls(reading, before.readings.get(&reading.probe)))
            .collect();
        message.hit_counts = (batch.hits.iter())
            .filter_map(|reading| hits(reading, before.hits.get(&reading.probe)))
            .collect();
        let events = batch.scope.events.iter().zip(0..);
        message.event_counts = events
            .filter_map(|(event, number)| event_counts(*event, number, batch, &before))
            .collect();
        message.counters = (batch.sampling.since(before.sampling).counters().into_iter())
            .chain(batch.spans.since(before.spans).counters())
            .chain(batch.own.since(before.own).counters())
            .chain(batch.trace.since(before.trace).counters())
            .chain([
                (
                    WAITS_DROPPED,
                    batch.waits_dropped.saturating_sub(before.waits_dropped),
                ),
                (
                    CALLS_DROPPED,
                    batch.calls_dropped.saturating_sub(before.calls_dropped),
                ),
                (
                    AT_EVENTS_DROPPED,
                    if batch.scope.events.is_empty() {
                        0
                    } else {
                        batch.at_events_dropped.saturating_sub(before.at_events_dropped)
                    },
                ),
                (
                    OUTSIDE_DROPPED,
                    if batch.scope.has_outside() {
                        batch.outside_dropped.saturating_sub(before.outside_dropped)
                    } else {
                        0
                    },
                ),
            ])
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), count))
            .collect();
        self.before = Some(Before::of(batch));
        self.seq += 1;
        message
    }

    /// Tells what came, with the names that are new.
    fn tell_records(
        &mut self,
        batch: &RecordBatch,
        begins_anew: bool,
        message: &mut v1::WatchRecordsResponse,
    ) {
        self.told.last_ns = batch.from_ns;
        self.told.last_hit_ns = batch.from_ns;
        self.told.last_wait_ns = batch.from_ns;
        self.told.last_event_ns = batch.from_ns;
        self.told.records_at_event = 0;
        if let Some(off) = &batch.off_cpu {
            let is_told = |told: &Arc<OffAtFirst>| Arc::ptr_eq(told, off);
            if begins_anew || !self.off_cpu.as_ref().is_some_and(is_told) {
                message.off_cpu = Some(self.told.off_cpu(off, &self.frames, message));
                self.off_cpu = Some(Arc::clone(off));
            }
        }
        let mut records_at_hit = 0;
        for build in &self.builds {
            self.told.tell_frame(*build, &self.frames, message);
        }
        let turns = batch.turns.iter();
        let turns = turns.map(|turn| self.told.turn(turn, &self.frames, message));
        message.syscalls = turns.collect();
        for record in batch.records.iter() {
            let (what, look) = match record {
                // It is recorded for another reader.
                Recorded::Sample(sample)
                    if sample.activity != Activity::OnCpu && !batch.scope.has_outside() =>
                {
                    continue;
                }
                Recorded::Sample(sample) => {
                    let sample = self.told.sample(sample, &self.frames, message);
                    push(message, v1::record::Record::Sample(sample));
                    continue;
                }
                Recorded::SpanEnd(end) => {
                    let after_ns = self.told.after(end.end_ns);
                    let end = self.told.span_end(end, after_ns, &self.frames, message);
                    push(message, v1::record::Record::SpanEnd(end));
                    continue;
                }
                Recorded::Wait(wait) => {
                    if self.waits {
                        let wait = self.told.wait(wait, &self.frames, message);
                        message.waits.push(wait);
                    }
                    continue;
                }
                Recorded::AtEvent(at) => {
                    self.told.at_event(at, &batch.scope, &self.frames, message);
                    continue;
                }
                Recorded::Reached(hit, look) => {
                    let reached = self.told.reached(hit, &self.frames, message);
                    (v1::recorded_hit::What::Reached(reached), look)
                }
                Recorded::Call(end, look) => {
                    let after_ns = self.told.after_hit(end.end_ns);
                    let call = self.told.span_end(end, after_ns, &self.frames, message);
                    (v1::recorded_hit::What::Call(call), look)
                }
            };
            let records = message.records.len();
            let stack = look.stack.as_deref();
            let hit = v1::RecordedHit {
                records_before: number(records - std::mem::replace(&mut records_at_hit, records)),
                what: Some(what),
                values: look.values.iter().map(values::message).collect(),
                stack: stack.map(|stack| v1::RecordedStack {
                    node: self.told.node(&stack.frames, &self.frames, message),
                    incomplete: !stack.complete,
                }),
            };
            message.hits.push(hit);
        }
    }
}

impl Told {
    fn sample(
        &mut self,
        sample: &RecordedSample,
        frames: &[Frame],
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
    fn at_event(
        &mut self,
        at: &RecordedAtEvent,
        scope: &RecordedScope,
        frames: &[Frame],
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

    /// A time, in nanoseconds after that of the sample of an event before.
    fn after_event(&mut self, ns: u64) -> i64 {
        after(std::mem::replace(&mut self.last_event_ns, ns), ns)
    }

    /// Where a sample was taken, without its time and its weight.
    fn place_of(
        &mut self,
        sample: &RecordedSample,
        frames: &[Frame],
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

    fn span_end(
        &mut self,
        end: &SpanEnd,
        after_ns: i64,
        frames: &[Frame],
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
    fn off_cpu(
        &mut self,
        off: &OffAtFirst,
        frames: &[Frame],
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

    fn wait(
        &mut self,
        recorded: &RecordedWait,
        frames: &[Frame],
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
            after_ns: after(std::mem::replace(&mut self.last_wait_ns, *end_ns), *end_ns),
            waited_ns: woken_ns.saturating_sub(*left_ns),
            runnable_ns: end_ns.saturating_sub(*woken_ns),
            name_frame: self.tell_frame(place.thread, frames, message),
            node: self.node(&place.stack, frames, message),
            waiting: waiting
                .map_or(v1::Waiting::Unspecified, super::waits::waiting)
                .into(),
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
    fn turn(
        &mut self,
        turn: &RecordedTurn,
        frames: &[Frame],
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

    /// The number of a frame, above 0; 0 of none.
    fn tell_some(
        &mut self,
        frame: Option<FrameId>,
        frames: &[Frame],
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        frame.map_or(0, |frame| self.tell_frame(frame, frames, message))
    }

    fn reached(
        &mut self,
        hit: &RecordedReached,
        frames: &[Frame],
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

    /// A time, in nanoseconds after that of the hit before.
    fn after_hit(&mut self, ns: u64) -> i64 {
        after(std::mem::replace(&mut self.last_hit_ns, ns), ns)
    }

    /// A time, in nanoseconds after that of the record before.
    fn after(&mut self, ns: u64) -> i64 {
        after(std::mem::replace(&mut self.last_ns, ns), ns)
    }

    /// The number of a thread as it is called now.
    fn sampled_thread(
        &mut self,
        sample: &RecordedSample,
        frames: &[Frame],
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        let (pid, tid) = (sample.tgid, sample.tid);
        match self.threads.get(&(pid, tid)) {
            Some(told) if told.task == sample.task || sample.task.is_none() => told.id,
            _ => self.tell_thread(pid, tid, sample.task, frames, message),
        }
    }

    /// The number of a thread, whatever it is called.
    fn thread(
        &mut self,
        pid: u32,
        tid: u32,
        frames: &[Frame],
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        match self.threads.get(&(pid, tid)) {
            Some(told) => told.id,
            None => self.tell_thread(pid, tid, None, frames, message),
        }
    }

    fn tell_thread(
        &mut self,
        pid: u32,
        tid: u32,
        task: Option<Task>,
        frames: &[Frame],
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        self.last_thread += 1;
        let id = self.last_thread;
        let mut tell = |frame: fn(&Task) -> FrameId| {
            let frame = task.as_ref().map(frame);
            frame.map_or(0, |frame| self.tell_frame(frame, frames, message))
        };
        let (thread_frame, process_frame) = (tell(|task| task.thread), tell(|task| task.process));
        message.threads.push(v1::RecordedThread {
            id,
            pid,
            tid,
            thread_frame,
            process_frame,
        });
        self.threads.insert((pid, tid), Thread { id, task });
        id
    }

    /// The number of a frame, which is told if it has not been.
    fn tell_frame(&mut self, id: FrameId, frames: &[Frame], message: &mut v1::WatchRecordsResponse) -> u32 {
        let at = id.0 as usize;
        if self.frames.len() <= at {
            self.frames.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.frames[at], true)
            && let Some(told) = frames.get(at)
        {
            message.frames.push(frame((at, told)));
        }
        id.0
    }

    /// The nodes of a stack.
    fn place(&mut self, stacks: &Stacks, frames: &[Frame], message: &mut v1::WatchRecordsResponse) -> Placed {
        if let Some((placed, _)) = self.placed.get(&stacks.address()) {
            return *placed;
        }
        let of = |by| stacks.of(by).unwrap_or_default();
        let placed = Placed {
            function: self.node(of(Grouping::Function), frames, message),
            line: self.node(of(Grouping::Line), frames, message),
        };
        if stacks.are_shared() {
            if self.placed.len() >= MAX_PLACED {
                self.placed.clear();
            }
            self.placed.insert(stacks.address(), (placed, stacks.clone()));
        }
        placed
    }

    /// The node of a stack, root first.
    fn node(&mut self, stack: &[FrameId], frames: &[Frame], message: &mut v1::WatchRecordsResponse) -> u32 {
        let mut parent = 0;
        for frame_id in stack {
            self.tell_frame(*frame_id, frames, message);
            let next = number(self.nodes.len() + 1);
            parent = *self.nodes.entry((parent, frame_id.0)).or_insert_with(|| {
                message.nodes.push(v1::RecordedNode {
                    id: next,
                    parent,
                    frame: frame_id.0,
                });
                next
            });
        }
        parent
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

fn push(message: &mut v1::WatchRecordsResponse, record: v1::record::Record) {
    message.records.push(v1::Record { record: Some(record) });
}

fn place(place: &RecordedPlace) -> v1::RecordedPlace {
    v1::RecordedPlace {
        probe: place.probe.0,
        place: Some(traced_place(&place.place)),
        is_call: place.is_call,
        shown_per_second: place.shown_per_second,
        expressions: (place.expressions.iter())
            .map(|told| v1::RecordedExpression {
                expression: told.expression.to_string(),
                r#type: told.type_name.to_string(),
            })
            .collect(),
    }
}

/// What was counted at a place since an earlier reading, if anything was.
fn hits(reading: &HitReading, before: Option<&HitReading>) -> Option<v1::CountedHits> {
    let before = before.map(|before| before.counts).unwrap_or_default();
    let HitCounts {
        reached,
        rejected,
        limited,
        no_state,
        ring_full,
        disturbed,
    } = reading.counts;
    let hits = v1::CountedHits {
        probe: reading.probe.0,
        reached: reached.saturating_sub(before.reached),
        rejected: rejected.saturating_sub(before.rejected),
        rate_limit: limited.saturating_sub(before.limited),
        no_thread_state: no_state.saturating_sub(before.no_state),
        ring_full: ring_full.saturating_sub(before.ring_full),
        disturbed: disturbed.saturating_sub(before.disturbed),
    };
    let nothing = v1::CountedHits {
        probe: hits.probe,
        ..Default::default()
    };
    (hits != nothing).then_some(hits)
}

fn scope(scope: &RecordedScope, readings: &HashMap<ProbeId, ProbeReading>) -> v1::RecordedScope {
    let function = |function: &RecordedFunction| v1::RecordedFunction {
        function: Some(convert::function(&function.info)),
        exit_method: convert::exit_method(function.method).into(),
        overhead_ns: function.overhead_ns,
        probes: (function.probes.iter())
            .map(|probe| v1::RecordedProbe {
                id: probe.0,
                open: readings.get(probe).map_or(0, ProbeReading::open),
            })
            .collect(),
    };
    v1::RecordedScope {
        text: scope.text.to_string(),
        steps: (scope.steps.iter())
            .map(|step| v1::RecordedStep {
                text: step.text.clone(),
                functions: step.functions.iter().map(function).collect(),
                gates: step.gates,
            })
            .collect(),
        pids: scope.pids.clone(),
        frequency_hz: scope.frequency_hz,
        window: Some(convert::duration(scope.ages.window.window_ns)),
        half_life: Some(convert::duration(scope.ages.half_life_ns)),
        warnings: scope.warnings.clone(),
        places: scope.places.iter().map(place).collect(),
        off_cpu: scope.off_cpu,
        events: scope.events.iter().copied().map(event).collect(),
    }
}

/// An event, and how often stacks are taken at it.
pub fn event(event: Event) -> v1::RecordedEvent {
    let (period, frequency_hz) = match event.pace() {
        Pace::Period(period) => (period, 0),
        Pace::Frequency(frequency_hz) => (0, frequency_hz),
    };
    v1::RecordedEvent {
        name: event.to_string(),
        period,
        frequency_hz,
    }
}

/// What became of an event's samples since an earlier reading, if anything did.
fn event_counts(event: Event, number: u32, batch: &RecordBatch, before: &Before) -> Option<v1::CountedEvent> {
    let reading = batch.events.iter().find(|reading| reading.event == event)?;
    let earlier = before.events.get(&event).copied().unwrap_or_default();
    let since = reading.counts.since(earlier);
    let EventCounts {
        attempted,
        limited,
        yielded,
        ring_full,
        unseen,
    } = since;
    (since != EventCounts::default()).then_some(v1::CountedEvent {
        event: number,
        attempted,
        limited,
        yielded,
        ring_full,
        unseen,
    })
}

/// What was counted since an earlier reading, if anything was.
fn calls(reading: &ProbeReading, before: Option<&ProbeReading>) -> Option<v1::CountedCalls> {
    let earlier: HashMap<usize, u64> = before
        .map(|before| before.ended.iter().copied().collect())
        .unwrap_or_default();
    let ended: Vec<(u32, u64)> = (reading.ended.iter())
        .map(|(bucket, count)| {
            let earlier = earlier.get(bucket).copied().unwrap_or(0);
            (number(*bucket), count.saturating_sub(earlier))
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    let (now, before) = (
        reading.counts,
        before.map(|before| before.counts).unwrap_or_default(),
    );
    let ProbeCounts {
        entries,
        abandoned,
        too_deep,
        unmatched,
        no_state,
        no_page,
        outside: _,
        join_limit,
        refused,
        undecided,
        passed_by: _,
    } = now;
    let calls = v1::CountedCalls {
        probe: reading.probe.0,
        ended: (!ended.is_empty()).then(|| histogram(&ended)),
        begun: entries.saturating_sub(before.entries),
        abandoned: abandoned.saturating_sub(before.abandoned),
        too_deep: too_deep.saturating_sub(before.too_deep),
        open_at_attach: unmatched.saturating_sub(before.unmatched),
        no_thread_state: no_state.saturating_sub(before.no_state),
        no_histogram_page: no_page.saturating_sub(before.no_page),
        join_limit: join_limit.saturating_sub(before.join_limit),
        refused: refused.saturating_sub(before.refused),
        undecided: undecided.saturating_sub(before.undecided),
    };
    let nothing = v1::CountedCalls {
        probe: calls.probe,
        ..Default::default()
    };
    (calls != nothing).then_some(calls)
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

/// The weight of the first sample on the CPU, which the others have too.
fn usual_weight(records: &[Recorded]) -> u64 {
    let weights = records.iter().filter_map(|record| match record {
        Recorded::Sample(sample) if sample.activity == Activity::OnCpu => Some(sample.weight_ns),
        _ => None,
    });
    weights.into_iter().next().unwrap_or(0)
}

/// A number, as how much larger it is than another: a time in nanoseconds after another.
pub fn after(from_ns: u64, ns: u64) -> i64 {
    i64::try_from(i128::from(ns) - i128::from(from_ns)).unwrap_or(i64::MAX)
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
