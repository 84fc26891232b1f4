//! The stream of records for a recording: samples, ends of calls and hits as they come, and counts of calls.
//!
//! | file | idea |
//! |---|---|
//! | `scope` | what is recorded |
//! | `record` | one record |
//! | `summed` | samples of a minute, summed up |
//! | `gathered` | records between two batches, each kind with room of its own |
//! | `batch` | what readers are given each time |
//! | `reader` | one of them, and what it missed |
//!
//! See `docs/internals/recordings.md` for how a recording is made and queried.

mod batch;
mod gathered;
mod reader;
mod record;
mod scope;
mod summed;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc};

use profiler_common::record::SpanEnd;
use tokio::sync::mpsc;

pub use self::{
    batch::{
        AT_EVENTS_DROPPED, EventReading, HitReading, Moment, OUTSIDE_DROPPED, ProbeReading, RecordBatch,
        WAITS_DROPPED,
    },
    record::{
        AtEvent, OffAtFirst, Recorded, RecordedAtEvent, RecordedLook, RecordedReached, RecordedSample,
        RecordedWait,
    },
    scope::{
        GROUPINGS, MAX_RECORDED_EVENTS, MoreRecords, RecordedExpression, RecordedFunction, RecordedPlace,
        RecordedScope, RecordedStep,
    },
    summed::{SummedElsewhere, SummedRow, SummedSamples},
};
use self::{
    gathered::{Gathered, Kind},
    reader::{Offered, Reader},
};
use super::{
    backlog::Backlog,
    recorded_calls::RecordedTurn,
    symbols::{Named, NamedWait},
};
use crate::kernel::{Event, Hit};

/// Threads that are told to be off the CPU; more are lost, counted as waits are.
pub const MAX_OFF_CPU: usize = 1 << 16;

/// Time between batches.
const BATCH_NS: u64 = 250_000_000;

/// Time after which it is looked again who is off the CPU.
const OFF_CPU_NS: u64 = 30_000_000_000;

/// The records of a session, while they are kept by anybody.
pub struct Recorder {
    /// Without what readers ask for beyond it.
    scope: Arc<RecordedScope>,
    readers: Vec<Reader>,
    backlog: Backlog,
    /// All readers' records.
    gathered: Gathered,
    /// System calls by when they returned.
    turns: Vec<Arc<RecordedTurn>>,
    from_ns: u64,
    /// What was before is not recorded: it may be of a time before the session, when others alone could look at the process.
    begun_ns: u64,
    /// Who was off the CPU when that was looked at last, once waits are told.
    off_cpu: Option<Arc<OffAtFirst>>,
}

impl Recorder {
    /// Begins now, of a session whose clients have this backlog.
    pub fn new(scope: RecordedScope, backlog: Backlog, now_ns: u64) -> Self {
        Self {
            backlog,
            scope: Arc::new(scope),
            readers: Vec::new(),
            gathered: Gathered::default(),
            turns: Vec::new(),
            from_ns: now_ns,
            begun_ns: now_ns,
            off_cpu: None,
        }
    }

    /// Goes on with another scope.
    pub fn set_scope(&mut self, scope: RecordedScope) {
        for reader in &mut self.readers {
            reader.set_scope(&scope);
        }
        self.scope = Arc::new(scope);
    }

    /// Whether a batch is due.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.from_ns + BATCH_NS
    }

    /// Opens a stream. Its first batch is of the time from now on.
    pub fn watch(&mut self, more: &MoreRecords, moment: &Moment<'_>) -> mpsc::Receiver<RecordBatch> {
        // What came before belongs to the others.
        self.publish(moment);
        let (reader, receiver) = Reader::open(&self.scope, more, &self.backlog, moment.now_ns);
        self.readers.push(reader);
        // What is counted already is the beginning.
        self.publish_from(moment, self.readers.len() - 1);
        receiver
    }

    /// Whether waits are recorded for anybody.
    pub fn has_waits(&self) -> bool {
        self.readers.iter().any(|reader| reader.waits)
    }

    /// Whether time off the CPU is recorded for anybody in calls or not.
    pub fn has_off_cpu(&self) -> bool {
        self.readers.iter().any(|reader| reader.scope.off_cpu)
    }

    /// Whether stacks are taken at an event for anybody that a tracepoint names so.
    pub fn event_of_tracepoint(&self, id: u32) -> Option<Event> {
        let events = self.readers.iter().flat_map(|reader| &reader.scope.events);
        events.copied().find(|event| event.id_of_tracepoint() == Some(id))
    }

    /// Events that stacks are taken at for anybody.
    pub fn events(&self) -> BTreeSet<Event> {
        let events = self.readers.iter().flat_map(|reader| &reader.scope.events);
        events.copied().collect()
    }

    /// Whether system calls are recorded for anybody.
    pub fn has_calls(&self) -> bool {
        self.readers.iter().any(Reader::has_calls)
    }

    /// Takes system calls of turns behind one another.
    pub fn take_turns(&mut self, turns: Vec<RecordedTurn>) {
        self.turns.extend(turns.into_iter().map(Arc::new));
    }

    /// Whether it is to be looked again who is off the CPU, so that what came long ago is not needed to understand the rest.
    pub fn is_to_look(&self, now_ns: u64) -> bool {
        let is_old = |off: &Arc<OffAtFirst>| now_ns >= off.since_ns.saturating_add(OFF_CPU_NS);
        self.has_waits() && self.off_cpu.as_ref().is_none_or(is_old)
    }

    /// Takes who is off the CPU.
    pub fn set_off_cpu(&mut self, mut off: OffAtFirst) {
        let too_many = off.threads.len().saturating_sub(MAX_OFF_CPU);
        if too_many > 0 {
            off.threads = off.threads.into_iter().take(MAX_OFF_CPU).collect();
            self.gathered.lose(Kind::Wait, too_many as u64);
        }
        self.off_cpu = Some(Arc::new(off));
    }

    /// Takes a wait.
    pub fn take_wait(&mut self, named: &NamedWait) {
        if !self.has_waits() {
            return;
        }
        let [_, _, end_ns] = named.wait.times;
        self.keep(Kind::Wait, end_ns, || {
            Recorded::Wait(Box::new(RecordedWait {
                wait: named.wait.clone(),
                spans: named.spans.clone(),
            }))
        });
    }

    /// Open streams.
    pub fn watchers(&self) -> usize {
        self.readers.len()
    }

    /// Forgets streams that nobody reads any more; whether there are others.
    pub fn sweep(&mut self) -> bool {
        self.readers.retain(|reader| !reader.is_gone());
        !self.readers.is_empty()
    }

    /// Takes a record of the session's own.
    pub fn take(&mut self, named: &Named) {
        let Some(recorded) = Recorded::of(named) else {
            return;
        };
        let (kind, at_ns) = match &recorded {
            Recorded::Sample(sample) if sample.is_outside() => (Kind::Outside, sample.ts_ns),
            Recorded::Sample(sample) => (Kind::Call, sample.ts_ns),
            Recorded::SpanEnd(end) => (Kind::Call, end.end_ns),
            _ => return,
        };
        self.keep(kind, at_ns, || recorded);
    }

    /// Takes a sample that was taken at an event.
    pub fn take_at_event(&mut self, event: Event, named: &Named) {
        let mut readers = self.readers.iter();
        if !readers.any(|reader| reader.scope.events.contains(&event)) {
            return;
        }
        let what = match named {
            Named::Sample { key, .. } => {
                RecordedSample::of(named).map(|sample| AtEvent::Sample(sample, *key))
            }
            Named::Weight(weight) => Some(AtEvent::Weight(*weight)),
            _ => None,
        };
        let Some(what) = what else { return };
        let at_ns = match &what {
            AtEvent::Sample(sample, _) => sample.ts_ns,
            AtEvent::Weight(weight) => weight.ts_ns,
        };
        self.keep(Kind::AtEvent, at_ns, || {
            Recorded::AtEvent(Box::new(RecordedAtEvent { event, what }))
        });
    }

    /// Takes a line that was reached.
    pub fn take_reached(&mut self, hit: &Hit, look: RecordedLook) {
        let reached = RecordedReached {
            tgid: hit.tgid,
            tid: hit.tid,
            probe: hit.probe,
            ts_ns: hit.ts_ns,
            parent: hit.parent,
            joined: hit.joined,
        };
        self.keep(Kind::Call, hit.ts_ns, || Recorded::Reached(reached, look));
    }

    /// Takes a call that ended, with what was looked at where it began.
    pub fn take_call(&mut self, end: &SpanEnd, look: RecordedLook) {
        self.keep(Kind::Call, end.end_ns, || Recorded::Call(*end, look));
    }

    /// Keeps a record of a time, unless that was before.
    fn keep(&mut self, kind: Kind, at_ns: u64, record: impl FnOnce() -> Recorded) {
        if at_ns >= self.begun_ns {
            self.gathered.keep(kind, record);
        }
    }

    /// Hands over what came since the batch before.
    pub fn publish(&mut self, moment: &Moment<'_>) {
        self.publish_from(moment, 0);
        // Where there is no reader, nobody has taken it.
        self.gathered.take();
        self.turns.clear();
        self.from_ns = moment.now_ns;
    }

    /// The same to the readers from this one on.
    fn publish_from(&mut self, moment: &Moment<'_>, first: usize) {
        if self.readers.len() <= first {
            return;
        }
        let functions = self.scope.steps.iter().flat_map(|step| &step.functions);
        let probes = functions.flat_map(|function| &function.probes);
        let readings = probes.map(|probe| ProbeReading::now(moment.readings, *probe));
        let places = self.scope.places.iter();
        let hits = places.map(|place| HitReading {
            probe: place.probe,
            counts: moment.readings.hit_counts(place.probe),
        });
        let (records, came) = self.gathered.take();
        let lost = self.gathered.lost();
        let batch = RecordBatch {
            turns: Vec::new(),
            off_cpu: self.off_cpu.clone(),
            hits: Arc::new(hits.collect()),
            trace: moment.trace,
            from_ns: self.from_ns,
            to_ns: moment.now_ns,
            scope: Arc::clone(&self.scope),
            frames: moment.frames.clone(),
            records: Arc::new(records),
            readings: Arc::new(readings.collect()),
            sampling: moment.sampling,
            spans: moment.spans,
            own: moment.own,
            dropped: lost.calls,
            waits_dropped: lost.waits,
            calls_dropped: 0,
            outside_dropped: lost.outside,
            events: Arc::new(moment.events.clone()),
            at_events_dropped: lost.at_events,
            cost: moment.cost,
            ended: moment.ended.cloned(),
            room: None,
        };
        let bytes = batch.bytes();
        for reader in self.readers.iter_mut().skip(first) {
            let offered = Offered {
                batch: &batch,
                bytes,
                came,
            };
            reader.give(&offered, &self.turns, moment);
        }
    }
}
