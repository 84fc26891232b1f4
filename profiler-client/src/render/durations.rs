//! A latency view as the durations that other tools' formats are made of.

use std::time::Duration;

use profiler_common::layout;
use profiler_export::{Count, Durations, FunctionDurations};

use super::text::distinct;
use crate::state::{
    histogram::Counts,
    latency::{FunctionState, LatencyState},
};

/// What is to be said of a run beside its calls.
pub struct About<'a> {
    /// What was profiled.
    pub target: &'a str,
    /// When calls were first counted, since 1970; nothing where that is not known.
    pub began: Option<Duration>,
    /// Until when, since 1970.
    pub ended: Duration,
}

/// Makes them of all calls since the start.
#[must_use]
pub fn of(state: &LatencyState, about: &About<'_>) -> Durations {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let functions = state.functions.values();
    let names = distinct(functions.clone().map(|function| &function.function), |function| {
        function.name.clone()
    });
    Durations {
        title: about.target.to_owned(),
        scope: state.scope.clone(),
        began_ns: about.began.map_or(0, ns),
        ended_ns: ns(about.ended),
        functions: functions
            .zip(names)
            .map(|(function, name)| calls(function, name))
            .collect(),
    }
}

fn calls(function: &FunctionState, name: String) -> FunctionDurations {
    let summary = &function.since_start;
    FunctionDurations {
        name,
        module: function.function.module.clone(),
        counts: counts(&function.since_start_counts),
        sum_ns: summary.mean_ns * summary.count,
        min_ns: summary.min_ns,
        max_ns: summary.max_ns,
    }
}

/// Each bucket by its middle.
#[must_use]
pub fn counts(counts: &Counts) -> Vec<Count> {
    let counts = counts.buckets();
    counts
        .map(|(bucket, count)| Count {
            value_ns: layout::midpoint_ns(bucket),
            count,
        })
        .collect()
}
