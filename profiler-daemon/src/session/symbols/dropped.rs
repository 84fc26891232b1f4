//! What is lost where the thread that names addresses falls behind, by kind.

use std::{
    collections::HashMap,
    ops::{Add, AddAssign},
};

use profiler_common::probe::ProbeId;

use crate::kernel::Record;

/// Records dropped because the thread fell behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    pub samples: u64,
    pub events: u64,
    pub span_ends: u64,
    pub system_calls: u64,
}

impl Dropped {
    /// Hits are told apart: see [`DroppedHits`].
    fn all(records: &[Record]) -> Self {
        let mut dropped = Self::default();
        for record in records {
            match record {
                Record::Sample { event: 0, .. } | Record::OffCpu(_) => dropped.samples += 1,
                Record::Sample { .. } => dropped.events += 1,
                Record::SpanEnd(_) => dropped.span_ends += 1,
                Record::SystemCall(_) => dropped.system_calls += 1,
                // A sample whose weight does not come is told where it waits.
                Record::Hit(_) | Record::Weight(_) => {}
            }
        }
        dropped
    }
}

impl Add for Dropped {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            events: self.events + other.events,
            span_ends: self.span_ends + other.span_ends,
            system_calls: self.system_calls + other.system_calls,
        }
    }
}

/// What is in a batch.
#[derive(Default, Debug)]
pub struct Content {
    pub(super) counts: Dropped,
    pub(super) hits: DroppedHits,
    /// Memory that its records take.
    pub(super) bytes: usize,
}

impl AddAssign for Content {
    fn add_assign(&mut self, other: Self) {
        self.counts = self.counts + other.counts;
        add_hits(&mut self.hits, &other.hits);
        self.bytes += other.bytes;
    }
}

impl Content {
    pub(super) fn of(records: &[Record]) -> Self {
        let mut hits = DroppedHits::new();
        for record in records {
            // The others are parts of a hit, which is shown without them.
            if let Record::Hit(hit) = record
                && !hit.is_end
            {
                *hits.entry(hit.probe).or_default() += 1;
            }
        }
        Self {
            counts: Dropped::all(records),
            hits,
            bytes: records.iter().map(Record::bytes).sum(),
        }
    }
}

/// Hits and beginnings of calls that were dropped, by their probes.
pub type DroppedHits = HashMap<ProbeId, u64>;

/// Adds the hits of another batch.
pub(super) fn add_hits(hits: &mut DroppedHits, more: &DroppedHits) {
    for (probe, count) in more {
        *hits.entry(*probe).or_default() += count;
    }
}
