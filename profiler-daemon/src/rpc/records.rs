//! Records as messages: names, stacks and threads are told once, what was counted as what came since the message before.
//!
//! | file | idea |
//! |---|---|
//! | `told` | names, threads and stacks that have been told |
//! | `record` | records, system calls, who was off the CPU |
//! | `counts` | what was counted since the message before |
//! | `scope` | whose records these are |

mod counts;
mod record;
mod scope;
mod told;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use profiler_proto::v1;
use profiler_symbolize::FrameId;

use self::{
    counts::{Before, calls, counters, event_counts, hits},
    scope::scope,
    told::Told,
};
pub use self::{record::activity, scope::event, told::after};
use super::stream_info::{self, Position, Shown};
use crate::{
    kernel::Activity,
    recording::values,
    session::{OffAtFirst, RecordBatch, Recorded},
};

/// How often SIGUSR1 has come to the daemon.
static SIGNALLED: AtomicU64 = AtomicU64::new(0);

/// Tells all streams of records, with their next message, that SIGUSR1 has come.
pub fn signal() {
    SIGNALLED.fetch_add(1, Ordering::Relaxed);
}

/// A stream of records on its way to a client.
#[derive(Default)]
pub struct Messages {
    /// Waits are told.
    waits: bool,
    /// Who was off the CPU when that was told last.
    off_cpu: Option<Arc<OffAtFirst>>,
    seq: u64,
    /// How many frames were looked at.
    frames: usize,
    /// Those of them that say which builds modules are.
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
        let new = (self.frames..).zip(batch.frames.since(self.frames));
        let builds = new.filter(|(_, frame)| frame.build().is_some());
        self.builds.extend(builds.map(|(id, _)| FrameId(number(id))));
        self.frames = batch.frames.len();
        let is_first = self.before.is_none();
        let before = self.before.take().unwrap_or_else(|| Before::of(batch));
        let begins_anew = is_first
            || !Arc::ptr_eq(&before.scope, &batch.scope)
            || self.told.is_to_begin_anew(batch.from_ns);
        let signalled = SIGNALLED.load(Ordering::Relaxed);
        let before_signalled = self.signalled.replace(signalled);
        let mut message = v1::WatchRecordsResponse {
            signalled: before_signalled.is_some_and(|before| before != signalled),
            info: Some(stream_info::info(
                Position {
                    seq: self.seq,
                    dropped: batch.dropped.saturating_sub(before.dropped),
                },
                &Shown {
                    scope: "",
                    cost: batch.cost,
                    children: Some(batch.own.children),
                    ended: batch.ended.as_ref(),
                },
            )),
            from_ns: batch.from_ns,
            to_ns: batch.to_ns,
            begins_anew,
            weight_ns: usual_weight(&batch.records),
            ..Default::default()
        };
        if begins_anew {
            self.told = Told::anew(batch.from_ns);
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
        message.counters = counters(batch, &before);
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
        self.told.begin(batch.from_ns);
        if let Some(off) = &batch.off_cpu {
            let is_told = |told: &Arc<OffAtFirst>| Arc::ptr_eq(told, off);
            if begins_anew || !self.off_cpu.as_ref().is_some_and(is_told) {
                message.off_cpu = Some(self.told.off_cpu(off, &batch.frames, message));
                self.off_cpu = Some(Arc::clone(off));
            }
        }
        let mut records_at_hit = 0;
        let turns = batch.turns.iter();
        let turns = turns.map(|turn| self.told.turn(turn, &batch.frames, message));
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
                    let sample = self.told.sample(sample, &batch.frames, message);
                    push(message, v1::record::Record::Sample(sample));
                    continue;
                }
                Recorded::SpanEnd(end) => {
                    let after_ns = self.told.after(end.end_ns);
                    let end = self.told.span_end(end, after_ns, &batch.frames, message);
                    push(message, v1::record::Record::SpanEnd(end));
                    continue;
                }
                Recorded::Wait(wait) => {
                    if self.waits {
                        let wait = self.told.wait(wait, &batch.frames, message);
                        message.waits.push(wait);
                    }
                    continue;
                }
                Recorded::AtEvent(at) => {
                    self.told.at_event(at, &batch.scope, &batch.frames, message);
                    continue;
                }
                Recorded::Reached(hit, look) => {
                    let reached = self.told.reached(hit, &batch.frames, message);
                    (v1::recorded_hit::What::Reached(reached), look)
                }
                Recorded::Call(end, look) => {
                    let after_ns = self.told.after_hit(end.end_ns);
                    let call = self.told.span_end(end, after_ns, &batch.frames, message);
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
                    node: self.told.node(&stack.frames, &batch.frames, message),
                    incomplete: !stack.complete,
                }),
            };
            message.hits.push(hit);
        }
        self.told.tell_builds(&self.builds, &batch.frames, message);
    }
}

fn push(message: &mut v1::WatchRecordsResponse, record: v1::record::Record) {
    message.records.push(v1::Record { record: Some(record) });
}

/// The weight of the first sample on the CPU, which the others have too.
fn usual_weight(records: &[Recorded]) -> u64 {
    let weights = records.iter().filter_map(|record| match record {
        Recorded::Sample(sample) if sample.activity == Activity::OnCpu => Some(sample.weight_ns),
        _ => None,
    });
    weights.into_iter().next().unwrap_or(0)
}

/// A number in a message; the largest there is for one beyond.
pub fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
