//! The calls of a step that count: all calls, or only those inside spans that meet the conditions on their
//! durations.

use std::collections::{BTreeMap, HashMap};

use profiler_common::{layout::bucket_of, probe::ProbeId, record::SpanEnd};

use super::readings::{Buckets, Readings, summed};

/// Calls that were found to count when the spans around them had ended, by probe and bucket.
#[derive(Default)]
pub struct JoinedCalls(HashMap<ProbeId, BTreeMap<usize, u64>>);

impl JoinedCalls {
    /// Adds a call.
    pub fn add(&mut self, end: &SpanEnd) {
        let bucket = bucket_of(end.end_ns.saturating_sub(end.start_ns));
        *self.0.entry(end.probe).or_default().entry(bucket).or_default() += 1;
    }

    /// Forgets probes that are gone.
    pub fn retain(&mut self, is_live: impl Fn(ProbeId) -> bool) {
        self.0.retain(|probe, _| is_live(*probe));
    }
}

/// What was counted of the calls of all steps.
#[derive(Clone, Copy)]
pub struct Calls<'a> {
    pub counted: &'a dyn Readings,
    pub joined: &'a JoinedCalls,
}

impl<'a> Calls<'a> {
    /// Those of a step; of one that waits for the ends of spans around it, where `is_joined`.
    pub fn of(self, is_joined: bool) -> Population<'a> {
        if is_joined {
            Population::Joined(self.joined)
        } else {
            Population::Counted(self.counted)
        }
    }
}

/// Where the calls of a step are counted.
#[derive(Clone, Copy)]
pub enum Population<'a> {
    /// By the programs.
    Counted(&'a dyn Readings),
    /// At the ends of spans around them.
    Joined(&'a JoinedCalls),
}

impl<'a> Population<'a> {
    /// The calls of several probes together, by the bucket of their duration, since they were attached.
    pub fn histogram_of(self, probes: &[ProbeId]) -> Buckets<'a> {
        match self {
            Self::Counted(readings) => readings.histogram_of(probes),
            Self::Joined(_) => summed(probes, |probe| self.histogram(probe)),
        }
    }

    /// A probe's calls by the bucket of their duration, since it was attached.
    pub fn histogram(self, probe: ProbeId) -> Buckets<'a> {
        match self {
            Self::Counted(readings) => readings.histogram(probe),
            Self::Joined(calls) => {
                let calls = calls.0.get(&probe).into_iter().flatten();
                Box::new(calls.map(|(bucket, count)| (*bucket, *count)))
            }
        }
    }
}
