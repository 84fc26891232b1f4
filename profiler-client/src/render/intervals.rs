//! A latency view as an interval log: for each update and function a histogram of the calls that ended since the one before.

use std::{collections::BTreeMap, time::Duration};

use profiler_common::layout;
use profiler_export::interval_log::{Interval, IntervalLog, NotCountable};

use super::{durations::counts, text::distinct};
use crate::state::{histogram::Counts, latency::LatencyState};

/// How large a log gets; what comes later is counted.
const MOST_BYTES: usize = 256 << 20;

/// The log of a run, as its updates come.
#[derive(Debug)]
pub struct Intervals {
    /// When the run began, since 1970.
    began: Duration,
    log: Option<IntervalLog>,
    /// Calls before the run belong to no interval.
    joined: bool,
    /// By the daemon's id for the function: what was counted until the update before.
    before: BTreeMap<u32, Counts>,
    last: Duration,
}

impl Intervals {
    /// Of a run that began at a time, since 1970; whether it joined a session that ran before.
    #[must_use]
    pub const fn new(began: Duration, joined: bool) -> Self {
        Self {
            began,
            log: None,
            joined,
            before: BTreeMap::new(),
            last: Duration::ZERO,
        }
    }

    /// Takes an update that came so long after the beginning.
    ///
    /// # Errors
    ///
    /// Where a histogram cannot hold what was counted.
    pub fn update(&mut self, state: &LatencyState, elapsed: Duration) -> Result<(), NotCountable> {
        let is_first = self.log.is_none();
        let log = self.log.get_or_insert_with(|| {
            let scope = format!("scope: {}", state.scope);
            IntervalLog::new(self.began, layout::MAX_NS, &[scope]).at_most(MOST_BYTES)
        });
        let functions = state.functions.values().map(|function| &function.function);
        let names = distinct(functions, |function| function.name.clone());
        let mut now = BTreeMap::new();
        for ((id, function), name) in state.functions.iter().zip(names) {
            let all = &function.since_start_counts;
            if !(is_first && self.joined) {
                let more = self
                    .before
                    .get(id)
                    .map_or_else(|| all.clone(), |before| all.since(before));
                log.add(&Interval {
                    tag: &name,
                    began: self.last,
                    length: elapsed.saturating_sub(self.last),
                    counts: &counts(&more),
                })?;
            }
            now.insert(*id, all.clone());
        }
        (self.before, self.last) = (now, elapsed);
        Ok(())
    }

    /// The log; empty where there was no update.
    #[must_use]
    pub fn finish(self) -> IntervalLog {
        self.log
            .unwrap_or_else(|| IntervalLog::new(self.began, layout::MAX_NS, &[]))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use profiler_export::Count;
    use profiler_proto::v1;

    use super::*;

    /// One function's message: differences of buckets, and counts.
    fn message(snapshot: bool, buckets: &[u32], counts: &[u64]) -> v1::WatchLatencyResponse {
        v1::WatchLatencyResponse {
            info: Some(v1::StreamInfo {
                scope: "f".into(),
                ..v1::StreamInfo::default()
            }),
            snapshot,
            functions: vec![v1::FunctionLatency {
                id: 3,
                function: snapshot.then(|| v1::Function {
                    name: "map<int, int>".into(),
                    ..Default::default()
                }),
                since_start_counts: Some(v1::Histogram {
                    bucket_deltas: buckets.to_vec(),
                    counts: counts.to_vec(),
                }),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn log(joined: bool, messages: Vec<v1::WatchLatencyResponse>) -> Vec<String> {
        let mut state = LatencyState::default();
        let mut intervals = Intervals::new(Duration::from_secs(1_000), joined);
        for (second, message) in (1..).zip(messages) {
            state.apply(message).unwrap();
            intervals.update(&state, Duration::from_secs(second)).unwrap();
        }
        let text = String::from_utf8(intervals.finish().into_bytes()).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("Tag="));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn an_update_is_an_interval_with_what_came_in_it() {
        let lines = log(
            false,
            vec![
                message(true, &[100], &[5]),
                message(false, &[4_000], &[2]),
                message(false, &[], &[]),
                // After updates that were missed.
                message(true, &[100, 3_900], &[9, 2]),
            ],
        );
        let heads: Vec<&str> = lines
            .iter()
            .map(|line| line.rsplit_once(',').unwrap().0)
            .collect();
        let max_ms = layout::highest_ns(4_000) as f64 / 1e6;
        assert_eq!(
            heads,
            [
                "Tag=map<int%2C%20int>,0.000,1.000,0.000".to_owned(),
                format!("Tag=map<int%2C%20int>,1.000,1.000,{max_ms:.3}"),
                "Tag=map<int%2C%20int>,2.000,1.000,0.000".to_owned(),
                "Tag=map<int%2C%20int>,3.000,1.000,0.000".to_owned(),
            ]
        );
        let payload = |at: usize| lines[at].rsplit(',').next().unwrap();
        assert_ne!(payload(2), payload(3), "no call, and four");
    }

    #[test]
    fn calls_before_a_session_was_joined_are_of_no_interval() {
        let lines = log(
            true,
            vec![message(true, &[100], &[5]), message(false, &[100], &[1])],
        );
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains(",1.000,1.000,"), "{lines:?}");
    }

    #[test]
    fn every_bucket_is_one_of_the_log() {
        let all: BTreeMap<u32, u64> = (0..u32::try_from(layout::BUCKETS).unwrap())
            .map(|bucket| (bucket, 1))
            .collect();
        let deltas: Vec<u32> = all.keys().map(|bucket| u32::from(*bucket > 0)).collect();
        let counts = Counts::read(&v1::Histogram {
            bucket_deltas: deltas,
            counts: all.into_values().collect(),
        })
        .unwrap();
        let histogram = hdrhistogram::Histogram::<u64>::new_with_bounds(1, layout::MAX_NS, 2).unwrap();
        for (Count { value_ns, .. }, (bucket, _)) in super::counts(&counts).into_iter().zip(counts.buckets())
        {
            assert_eq!(histogram.lowest_equivalent(value_ns), layout::lowest_ns(bucket));
            assert_eq!(histogram.highest_equivalent(value_ns), layout::highest_ns(bucket));
        }
    }
}
