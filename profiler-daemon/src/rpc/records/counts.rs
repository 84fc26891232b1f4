//! What was counted since the message before.

use std::{collections::HashMap, sync::Arc};

use profiler_common::probe::ProbeId;
use profiler_proto::v1;

use super::{super::latency_delta::histogram, number};
use crate::{
    kernel::{Event, EventCounts, HitCounts, ProbeCounts},
    session::{
        AT_EVENTS_DROPPED, CALLS_DROPPED, HitReading, OUTSIDE_DROPPED, OwnLosses, ProbeReading, RecordBatch,
        RecordedScope, Sampling, SpanLosses, TraceLosses, WAITS_DROPPED,
    },
};

/// What was told when the message before was made.
pub(super) struct Before {
    pub(super) readings: HashMap<ProbeId, ProbeReading>,
    sampling: Sampling,
    spans: SpanLosses,
    own: OwnLosses,
    pub(super) hits: HashMap<ProbeId, HitReading>,
    trace: TraceLosses,
    pub(super) scope: Arc<RecordedScope>,
    pub(super) dropped: u64,
    waits_dropped: u64,
    calls_dropped: u64,
    outside_dropped: u64,
    events: HashMap<Event, EventCounts>,
    at_events_dropped: u64,
}

impl Before {
    pub(super) fn of(batch: &RecordBatch) -> Self {
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

/// What was lost and noted since then by name, where anything was.
pub(super) fn counters(batch: &RecordBatch, before: &Before) -> HashMap<String, u64> {
    (batch.sampling.since(before.sampling).counters().into_iter())
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
        .collect()
}

/// What was counted at a place since an earlier reading, if anything was.
pub(super) fn hits(reading: &HitReading, before: Option<&HitReading>) -> Option<v1::CountedHits> {
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

/// What became of an event's samples since an earlier reading, if anything did.
pub(super) fn event_counts(
    event: Event,
    number: u32,
    batch: &RecordBatch,
    before: &Before,
) -> Option<v1::CountedEvent> {
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
pub(super) fn calls(reading: &ProbeReading, before: Option<&ProbeReading>) -> Option<v1::CountedCalls> {
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
