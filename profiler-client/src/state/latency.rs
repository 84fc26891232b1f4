//! The latency view as the client knows it.

use std::collections::BTreeMap;

use profiler_proto::v1;

use super::{Malformed, by_value::ByValue, histogram::Counts};

/// A latency view: snapshot and deltas applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LatencyState {
    /// Canonical text of the scope.
    pub scope: String,
    /// By the daemon's id for them.
    pub functions: BTreeMap<u32, FunctionState>,
    /// What the daemon costs.
    pub cost: Option<v1::Cost>,
    /// Losses by reason that belong to no single function.
    pub lost: BTreeMap<String, u64>,
    /// Updates that were skipped because this client did not keep up.
    pub dropped: u64,
    /// A snapshot has arrived.
    pub started: bool,
}

/// One function's latency.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionState {
    /// Which function.
    pub function: v1::Function,
    /// The three histograms in numbers.
    pub since_start: v1::Summary,
    /// Of the sliding window.
    pub window: v1::Summary,
    /// Exponentially weighted.
    pub ewma: v1::Summary,
    /// Calls by duration since the start.
    pub since_start_counts: Counts,
    /// Calls by duration in the window.
    pub window_counts: Counts,
    /// Spans open now.
    pub open: u64,
    /// Spans that were jumped over.
    pub abandoned: u64,
    /// Losses by reason.
    pub lost: BTreeMap<String, u64>,
    /// The probes' own share of a measured duration.
    pub overhead_ns: u64,
    /// What a call takes longer than without probes, in nanoseconds; 0 where that is not known.
    pub cost_ns: u64,
    /// Times since the start that its probes were reached beside those calls, each about as costly; `None` where that is not known.
    pub other_hits: Option<u64>,
    /// As many a second on average since the start.
    pub other_hits_hz: f64,
    /// Slowest recent calls, slowest first.
    pub slowest: Vec<v1::SlowCall>,
    /// Why its probes were taken off the target; empty while they are on it.
    pub taken_off: Option<v1::TakenOff>,
    /// Its calls by value, where the session divides them.
    pub by: Option<ByValue>,
}

impl LatencyState {
    /// Applies one message of the stream.
    ///
    /// # Errors
    ///
    /// Where the message contradicts the protocol; the state is then as before, or partly newer.
    pub fn apply(&mut self, message: v1::WatchLatencyResponse) -> Result<(), Malformed> {
        let v1::WatchLatencyResponse {
            info,
            snapshot,
            functions,
            lost,
            by,
        } = message;
        let v1::StreamInfo {
            dropped, scope, cost, ..
        } = info.unwrap_or_default();
        if snapshot {
            self.functions.clear();
            self.started = true;
        } else if !self.started && !functions.is_empty() {
            return Err(Malformed("a change before any snapshot"));
        }
        for function in functions {
            let id = function.id;
            // In a snapshot this is a new entry, in a delta the one that the counts add to.
            self.functions.entry(id).or_default().apply(function)?;
        }
        for by in by {
            let function = self.functions.get_mut(&by.function);
            function
                .ok_or(Malformed("calls by value of a function that it has not named"))?
                .by = Some(ByValue::read(by)?);
        }
        if !scope.is_empty() || snapshot {
            self.scope = scope;
        }
        if cost.is_some() {
            self.cost = cost;
        }
        if snapshot || !lost.is_empty() {
            self.lost = lost.into_iter().collect();
        }
        self.dropped = self.dropped.saturating_add(dropped);
        Ok(())
    }

    /// All losses of a function: its own and those of the run, by reason.
    #[must_use]
    pub fn lost_of(&self, function: &FunctionState) -> BTreeMap<String, u64> {
        let mut lost = function.lost.clone();
        for (reason, &count) in &self.lost {
            let sum = lost.entry(reason.clone()).or_default();
            *sum = sum.saturating_add(count);
        }
        lost
    }
}

impl FunctionState {
    /// The share of its calls since the start that its histograms hold, from 0 to 1: the others were abandoned, as those of
    /// fibers that a switch of stacks left open, or could not be timed. Those that are open count for neither.
    #[must_use]
    pub fn timed_share(&self) -> f64 {
        let lost = self
            .lost
            .values()
            .fold(self.abandoned, |sum, &count| sum.saturating_add(count));
        let all = self.since_start.count + lost as f64;
        if all > 0.0 {
            self.since_start.count / all
        } else {
            1.0
        }
    }

    /// What its probes take of the target's time, in CPUs: in the calls of the window, and where else they are reached, as often
    /// as that was since the start. 0 once they are taken off.
    #[must_use]
    pub fn probe_cores(&self) -> f64 {
        if self.taken_off.is_some() {
            return 0.0;
        }
        self.cost_ns as f64 * (self.window.rate_hz + self.other_hits_hz) / 1e9
    }

    fn apply(&mut self, message: v1::FunctionLatency) -> Result<(), Malformed> {
        let v1::FunctionLatency {
            id: _,
            function,
            since_start,
            window,
            ewma,
            since_start_counts,
            window_counts,
            open,
            abandoned,
            lost,
            overhead_ns,
            cost_ns,
            other_hits,
            other_hits_hz,
            slowest,
            taken_off,
        } = message;
        if let Some(function) = function {
            self.function = function;
        }
        if let Some(counts) = since_start_counts {
            self.since_start_counts.add(&Counts::read(&counts)?);
        }
        self.window_counts = Counts::read(&window_counts.unwrap_or_default())?;
        self.since_start = since_start.unwrap_or_default();
        self.window = window.unwrap_or_default();
        self.ewma = ewma.unwrap_or_default();
        self.open = open;
        self.abandoned = abandoned;
        self.lost = lost.into_iter().collect();
        self.overhead_ns = overhead_ns;
        self.cost_ns = cost_ns;
        (self.other_hits, self.other_hits_hz) = (other_hits, other_hits_hz);
        self.slowest = slowest;
        self.taken_off = taken_off;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_probes_cost_is_of_all_who_reach_them() {
        let mut function = FunctionState {
            cost_ns: 10_000,
            other_hits_hz: 3_000.0,
            ..Default::default()
        };
        assert!((function.probe_cores() - 0.03).abs() < 1e-9, "no call counts");
        function.window.rate_hz = 1_000.0;
        assert!((function.probe_cores() - 0.04).abs() < 1e-9);
        let taken_off = FunctionState {
            taken_off: Some(v1::TakenOff::default()),
            ..function
        };
        assert!(taken_off.probe_cores() < 1e-9);
    }

    fn counts(bucket: u32, count: u64) -> v1::Histogram {
        v1::Histogram {
            bucket_deltas: vec![bucket],
            counts: vec![count],
        }
    }

    fn message(snapshot: bool, count: u64) -> v1::WatchLatencyResponse {
        v1::WatchLatencyResponse {
            info: Some(v1::StreamInfo {
                scope: "f".into(),
                ..v1::StreamInfo::default()
            }),
            snapshot,
            functions: vec![v1::FunctionLatency {
                id: 3,
                function: snapshot.then(|| v1::Function {
                    name: "f".into(),
                    ..Default::default()
                }),
                since_start_counts: Some(counts(100, count)),
                window_counts: Some(counts(100, count)),
                abandoned: 1,
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn total(state: &LatencyState) -> (u64, u64) {
        let function = &state.functions[&3];
        (
            function.since_start_counts.total(),
            function.window_counts.total(),
        )
    }

    #[test]
    fn deltas_add_to_the_start_and_replace_the_window() {
        let mut state = LatencyState::default();
        state.apply(message(true, 5)).unwrap();
        assert_eq!(total(&state), (5, 5));
        state.apply(message(false, 2)).unwrap();
        assert_eq!(total(&state), (7, 2));
        assert_eq!(
            state.functions[&3].function.name, "f",
            "a delta need not repeat the function"
        );
    }

    #[test]
    fn a_snapshot_after_a_gap_replaces_everything() {
        let mut state = LatencyState::default();
        state.apply(message(true, 5)).unwrap();
        state
            .apply(v1::WatchLatencyResponse {
                info: Some(v1::StreamInfo {
                    seq: 9,
                    dropped: 4,
                    ..v1::StreamInfo::default()
                }),
                ..message(true, 6)
            })
            .unwrap();
        assert_eq!(total(&state), (6, 6));
        assert_eq!(state.dropped, 4);
        state
            .apply(v1::WatchLatencyResponse {
                snapshot: true,
                ..Default::default()
            })
            .unwrap();
        assert!(state.functions.is_empty());
    }

    #[test]
    fn a_delta_before_the_snapshot_is_refused() {
        LatencyState::default().apply(message(false, 1)).unwrap_err();
    }

    #[test]
    fn calls_by_value_replace_those_before() {
        let by = |calls| v1::CallsByValue {
            function: 3,
            calls,
            ..Default::default()
        };
        let mut state = LatencyState::default();
        state
            .apply(v1::WatchLatencyResponse {
                by: vec![by(1)],
                ..message(true, 5)
            })
            .unwrap();
        state.apply(message(false, 2)).unwrap();
        let calls = |state: &LatencyState| state.functions[&3].by.as_ref().map(|by| by.calls);
        assert_eq!(calls(&state), Some(1), "what did not change is not sent again");
        state
            .apply(v1::WatchLatencyResponse {
                by: vec![by(4)],
                ..message(false, 2)
            })
            .unwrap();
        assert_eq!(calls(&state), Some(4));
        state.apply(message(true, 2)).unwrap();
        assert_eq!(calls(&state), None);
        let of_nothing = v1::CallsByValue { function: 4, ..by(1) };
        state
            .apply(v1::WatchLatencyResponse {
                by: vec![of_nothing],
                ..message(false, 2)
            })
            .unwrap_err();
    }

    #[test]
    fn losses_of_a_function_include_those_of_the_run() {
        let mut state = LatencyState::default();
        let mut first = message(true, 1);
        first.lost.insert("ring_full".into(), 2);
        first.functions[0].lost.insert("ring_full".into(), 1);
        first.functions[0].lost.insert("too_deep".into(), 3);
        state.apply(first).unwrap();
        let lost = state.lost_of(&state.functions[&3]);
        assert_eq!(
            lost,
            [("ring_full".to_owned(), 3), ("too_deep".to_owned(), 3)].into()
        );
    }
}
