//! Calls by duration over time, as messages of the latency view brought them.

use std::{collections::VecDeque, time::Instant};

use crate::state::{histogram::Counts, latency::LatencyState};

/// Messages that are kept: ten minutes of one a second.
const KEPT: usize = 600;

/// What one message has brought.
#[derive(Clone, Debug)]
pub struct HeatColumn {
    /// Calls that have ended since the one before, by duration.
    pub counts: Counts,
    /// When it came.
    pub at: Instant,
}

/// What has been counted so far.
#[derive(Clone, Debug)]
struct Counted {
    functions: Vec<u32>,
    calls: Counts,
}

/// All of them that are kept.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    /// Oldest first.
    pub columns: VecDeque<HeatColumn>,
    before: Option<Counted>,
}

impl Heat {
    /// Takes what the view has had since the last time. Of what it had at first, nothing says when that was.
    pub fn add(&mut self, view: &LatencyState, at: Instant) {
        let functions: Vec<u32> = view.functions.keys().copied().collect();
        let mut all = Counts::default();
        for function in view.functions.values() {
            all.add(&function.since_start_counts);
        }
        match &self.before {
            Some(before) if before.functions == functions && before.calls.total() <= all.total() => {
                if self.columns.len() == KEPT {
                    self.columns.pop_front();
                }
                let counts = all.since(&before.calls);
                self.columns.push_back(HeatColumn { counts, at });
            }
            // Others are counted, or they are counted anew.
            _ => self.columns.clear(),
        }
        self.before = Some(Counted {
            functions,
            calls: all,
        });
    }
}

#[cfg(test)]
mod tests {
    use profiler_proto::v1;

    use super::*;

    fn view(count: u64, id: u32) -> LatencyState {
        let mut view = LatencyState::default();
        let message = v1::WatchLatencyResponse {
            snapshot: true,
            functions: vec![v1::FunctionLatency {
                id,
                since_start_counts: Some(v1::Histogram {
                    bucket_deltas: vec![300],
                    counts: vec![count],
                }),
                ..v1::FunctionLatency::default()
            }],
            ..v1::WatchLatencyResponse::default()
        };
        view.apply(message).unwrap();
        view
    }

    #[test]
    fn each_message_is_a_column_of_what_came_since_the_one_before() {
        let mut heat = Heat::default();
        for count in [10, 10, 17] {
            heat.add(&view(count, 1), Instant::now());
        }
        let totals = |heat: &Heat| {
            heat.columns
                .iter()
                .map(|column| column.counts.total())
                .collect::<Vec<_>>()
        };
        assert_eq!(totals(&heat), [0, 7], "those of before the first came some time");
        heat.add(&view(20, 2), Instant::now());
        assert!(totals(&heat).is_empty(), "another function");
        heat.add(&view(5, 2), Instant::now());
        assert!(totals(&heat).is_empty(), "counted anew");
        for count in 6..2_000 {
            heat.add(&view(count, 2), Instant::now());
        }
        assert_eq!(heat.columns.len(), KEPT);
    }
}
