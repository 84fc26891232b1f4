//! A stream of latency pictures: the first whole, then what changed.

use std::{collections::HashMap, sync::Arc};

use profiler_plan::values::Reading;
use profiler_proto::v1;

use super::{
    convert,
    stream_info::{self, Position},
    trace,
};
use crate::session::{CallsByValue, FunctionLatency, LatencyPicture, OffCause, ValueCalls};

/// What a client of one stream knows.
#[derive(Default)]
pub struct LatencyDelta {
    /// By function: the function as last sent.
    sent: HashMap<u32, FunctionLatency>,
    /// By function: its calls by value as last sent.
    sent_by: HashMap<u32, CallsByValue>,
    /// `None` before the first picture.
    scope: Option<Arc<str>>,
}

impl LatencyDelta {
    /// The next message of the stream.
    pub fn next(&mut self, picture: &LatencyPicture, at: Position) -> v1::WatchLatencyResponse {
        // Another scope may have other functions; the client starts afresh.
        let snapshot = self.scope.as_ref() != Some(&picture.scope);
        if snapshot {
            *self = Self {
                scope: Some(Arc::clone(&picture.scope)),
                ..Self::default()
            };
        }
        let functions = picture
            .functions
            .iter()
            .filter(|function| self.sent.get(&function.id) != Some(function))
            .map(|function| message(function, self.sent.get(&function.id)))
            .collect();
        for function in &picture.functions {
            self.sent.insert(function.id, function.clone());
        }
        let by = picture
            .by
            .iter()
            .filter(|calls| self.sent_by.get(&calls.function) != Some(calls))
            .map(by_value)
            .collect();
        for calls in &picture.by {
            self.sent_by.insert(calls.function, calls.clone());
        }
        v1::WatchLatencyResponse {
            info: Some(stream_info::of_picture(
                at,
                &picture.scope,
                picture.cost,
                &picture.lost,
                picture.ended.as_ref(),
            )),
            snapshot,
            functions,
            lost: convert::losses(&picture.lost),
            by,
        }
    }
}

fn message(function: &FunctionLatency, before: Option<&FunctionLatency>) -> v1::FunctionLatency {
    let FunctionLatency {
        id,
        function: info,
        summaries,
        since_start,
        window,
        open,
        abandoned,
        lost,
        overhead_ns,
        cost_ns,
        other_hits,
        slowest,
        taken_off,
    } = function;
    v1::FunctionLatency {
        id: *id,
        function: Some(convert::function(info)),
        since_start: Some(convert::summary(&summaries.since_start)),
        window: Some(convert::summary(&summaries.window)),
        ewma: Some(convert::summary(&summaries.ewma)),
        since_start_counts: Some(histogram(&increments(
            since_start,
            before.map_or(&[], |before| before.since_start.as_slice()),
        ))),
        window_counts: Some(histogram(window)),
        open: *open,
        abandoned: *abandoned,
        lost: convert::losses(lost),
        overhead_ns: *overhead_ns,
        cost_ns: *cost_ns,
        other_hits: other_hits.map(|hits| hits.count),
        other_hits_hz: other_hits.map_or(0.0, |hits| hits.rate_hz),
        slowest: slowest
            .iter()
            .map(|call| v1::SlowCall {
                ts_ns: call.ts_ns,
                tid: call.tid,
                duration_ns: call.duration_ns,
            })
            .collect(),
        taken_off: taken_off.as_ref().map(|why| v1::TakenOff {
            reason: why.reason.to_string(),
            over_budget: why.cause == OffCause::Cost,
        }),
    }
}

/// All of a function's calls by value: they are few enough.
fn by_value(calls: &CallsByValue) -> v1::CallsByValue {
    let CallsByValue {
        function,
        expression,
        type_name,
        calls,
        values,
        other,
        not_divided,
    } = calls;
    v1::CallsByValue {
        function: *function,
        expression: expression.to_string(),
        r#type: type_name.to_string(),
        calls: *calls,
        values: values
            .iter()
            .map(|(reading, calls)| value(Some(reading), calls))
            .collect(),
        other: Some(value(None, other)),
        not_divided: convert::losses(not_divided),
    }
}

fn value(reading: Option<&Reading>, calls: &ValueCalls) -> v1::ValueLatency {
    let ValueCalls { summary, counts } = calls;
    v1::ValueLatency {
        value: reading.map(trace::reading),
        summary: Some(convert::summary(summary)),
        counts: Some(histogram(counts)),
    }
}

/// What a growing histogram has gained. Both are sorted by bucket.
fn increments(now: &[(u32, u64)], before: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let mut before = before.iter().peekable();
    now.iter()
        .filter_map(|(bucket, count)| {
            while before.next_if(|(known, _)| known < bucket).is_some() {}
            let known = before
                .next_if(|(known, _)| known == bucket)
                .map_or(0, |(_, known)| *known);
            let gained = count.saturating_sub(known);
            (gained > 0).then_some((*bucket, gained))
        })
        .collect()
}

/// Counts by bucket, in the order of these.
pub fn histogram(counts: &[(u32, u64)]) -> v1::Histogram {
    let mut last = 0;
    let bucket_deltas = counts
        .iter()
        .map(|(bucket, _)| {
            let delta = bucket - last;
            last = *bucket;
            delta
        })
        .collect();
    v1::Histogram {
        bucket_deltas,
        counts: counts.iter().map(|(_, count)| *count).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn increments_add_up(
            before in proptest::collection::btree_map(0u32..40, 1u64..9, 0..20),
            more in proptest::collection::btree_map(0u32..40, 1u64..9, 0..20),
        ) {
            let mut now = before.clone();
            for (bucket, count) in &more {
                *now.entry(*bucket).or_default() += count;
            }
            let flat = |map: &BTreeMap<u32, u64>| map.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>();
            prop_assert_eq!(increments(&flat(&now), &flat(&before)), flat(&more));
        }
    }

    #[test]
    fn the_first_picture_of_each_scope_is_whole() {
        let mut stream = LatencyDelta::default();
        let mut is_whole = |scope: &str| {
            let picture = LatencyPicture {
                scope: scope.into(),
                functions: Vec::new(),
                by: Vec::new(),
                cost: crate::session::Cost::default(),
                lost: crate::session::Losses::new(),
                ended: None,
            };
            stream.next(&picture, Position::default()).snapshot
        };
        assert_eq!(["", "", "f", "f"].map(&mut is_whole), [true, false, true, false]);
    }
}
