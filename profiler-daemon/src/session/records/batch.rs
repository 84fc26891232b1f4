//! What readers are given each time: records, and what was counted.

use std::sync::Arc;

use profiler_common::probe::ProbeId;
use profiler_symbolize::FrameTable;

use super::{
    super::{
        backlog::Room,
        ending::Ending,
        picture::Cost,
        readings::Readings,
        recorded_calls::RecordedTurn,
        sampling::Sampling,
        span_losses::{OwnLosses, SpanLosses},
        trace::TraceLosses,
    },
    record::{OffAtFirst, Recorded},
    scope::RecordedScope,
};
use crate::kernel::{Event, EventCounts, HitCounts, ProbeCounts};

/// What waits that were lost are counted by.
pub const WAITS_DROPPED: &str = "recorded_waits_dropped";

/// What those that were lost are counted by.
pub const AT_EVENTS_DROPPED: &str = "recorded_events_dropped";

/// What those that were lost are counted by.
pub const OUTSIDE_DROPPED: &str = "recorded_off_cpu_dropped";

/// What came since the batch before.
#[derive(Clone, Debug)]
pub struct RecordBatch {
    /// Begin of its time, of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// End of its time.
    pub to_ns: u64,
    /// The same as long as nothing of it changed.
    pub scope: Arc<RecordedScope>,
    /// All frames by then.
    pub frames: FrameTable,
    /// Samples and ends of calls, as they came.
    pub records: Arc<Vec<Recorded>>,
    /// Each probe's counts.
    pub readings: Arc<Vec<ProbeReading>>,
    /// System calls by when they returned, where these are recorded.
    pub turns: Vec<Arc<RecordedTurn>>,
    /// Who was off the CPU, where waits are recorded; the same as long as it was not looked at again.
    pub off_cpu: Option<Arc<OffAtFirst>>,
    /// Each place's.
    pub hits: Arc<Vec<HitReading>>,
    /// What became of hits on their way, before the first batch too.
    pub trace: TraceLosses,
    /// What became of samples on their way, before the first batch too.
    pub sampling: Sampling,
    /// What became of spans on theirs.
    pub spans: SpanLosses,
    /// What the session does not see.
    pub own: OwnLosses,
    /// Records lost since the first batch: too many of one batch, or of those that waited for this reader.
    pub dropped: u64,
    /// Waits lost since then, for the same reasons. No call waits for one.
    pub waits_dropped: u64,
    /// System calls of turns lost since then, as of those that waited.
    pub calls_dropped: u64,
    /// Samples off the CPU outside of calls lost since then, for the same reasons as waits. No call waits for one.
    pub outside_dropped: u64,
    /// Of each event that anybody records.
    pub events: Arc<Vec<EventReading>>,
    /// Samples of events and weights lost since then, likewise.
    pub at_events_dropped: u64,
    /// What the daemon costs.
    pub cost: Cost,
    /// Why it is the last one.
    pub ended: Option<Ending>,
    /// Its room in the backlog until it has left.
    pub room: Option<Arc<Room>>,
}

impl RecordBatch {
    /// How much memory it takes of its own.
    pub(super) fn bytes(&self) -> usize {
        let readings = self.readings.iter();
        let readings: usize = readings
            .map(|reading| size_of_val(reading) + size_of_val(reading.ended.as_slice()))
            .sum();
        readings + size_of_val(self.hits.as_slice()) + Recorded::bytes_of(&self.records)
    }
}

/// What all batches made at one moment have in common.
pub struct Moment<'a> {
    pub now_ns: u64,
    pub frames: &'a FrameTable,
    pub readings: &'a dyn Readings,
    pub sampling: Sampling,
    pub spans: SpanLosses,
    pub own: OwnLosses,
    pub trace: TraceLosses,
    pub events: Vec<EventReading>,
    pub cost: Cost,
    pub ended: Option<&'a Ending>,
}

/// What was counted of a probe since it was attached.
#[derive(Clone, Debug)]
pub struct ProbeReading {
    pub probe: ProbeId,
    /// Calls that ended, by the bucket of their duration.
    pub ended: Vec<(usize, u64)>,
    pub counts: ProbeCounts,
}

impl ProbeReading {
    /// Calls that had begun and not ended.
    pub fn open(&self) -> u64 {
        self.counts.open(self.ended.iter().map(|(_, count)| count).sum())
    }

    pub(super) fn now(readings: &dyn Readings, probe: ProbeId) -> Self {
        // Ends before entries: a call in between counts as open.
        let ended = readings
            .histogram(probe)
            .filter(|(_, count)| *count > 0)
            .collect();
        Self {
            probe,
            ended,
            counts: readings.probe_counts(probe),
        }
    }
}

/// What has become of an event's samples since stacks are taken at it.
#[derive(Clone, Copy, Debug)]
pub struct EventReading {
    pub event: Event,
    pub counts: EventCounts,
}

/// What was counted at a place since it was attached.
#[derive(Clone, Copy, Debug)]
pub struct HitReading {
    pub probe: ProbeId,
    pub counts: HitCounts,
}
