//! Counters over time as the client knows them: the buckets that are kept, and what all of them add up to.

use std::collections::{BTreeMap, HashSet, VecDeque};

use profiler_proto::v1;

use super::Malformed;

/// Buckets that are kept; the oldest give way.
const MAX_BUCKETS: usize = 36_000;

/// Counts that are kept in all buckets, threads' included.
const MAX_COUNTS: usize = 2_000_000;

/// What a row shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A counter, by its place.
    Counter(usize),
    /// A counter by another.
    Ratio(usize, usize),
    /// Calls of the scope, or hits.
    Calls,
}

/// What was counted in a bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// The same.
    pub to_ns: u64,
    /// Of all threads, by counter.
    pub counts: Vec<v1::Count>,
    /// Calls or hits.
    pub calls: Option<u64>,
    /// By thread.
    pub threads: Vec<v1::ThreadCounts>,
    /// Threads beyond those.
    pub threads_left_out: u64,
}

impl Bucket {
    /// Its length.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// Whether a thread was counted by itself.
    #[must_use]
    pub fn has_thread(&self, tid: u32) -> bool {
        self.counts_of(Some(tid)).is_some()
    }

    /// The counts of a thread, or of all; `None` where it was not there.
    fn counts_of(&self, thread: Option<u32>) -> Option<&[v1::Count]> {
        match thread {
            None => Some(&self.counts),
            Some(tid) => {
                let at = self
                    .threads
                    .binary_search_by_key(&tid, |thread| thread.tid)
                    .ok()?;
                Some(&self.threads[at].counts)
            }
        }
    }
}

/// What some buckets add up to, of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    above: f64,
    /// Of a ratio the other counter, else nanoseconds.
    below: f64,
    any: bool,
}

impl Sum {
    fn add(&mut self, bucket: &Bucket, row: &Row, thread: Option<u32>) {
        let count = |at: usize| {
            let count = bucket.counts_of(thread)?.get(at)?;
            (!count.unknown).then_some(count.count as f64)
        };
        let parts = match row {
            Row::Counter(at) => count(*at).map(|count| (count, bucket.ns() as f64)),
            Row::Ratio(above, below) => count(*above).zip(count(*below)),
            Row::Calls => bucket.calls.map(|calls| (calls as f64, bucket.ns() as f64)),
        };
        if let Some((above, below)) = parts {
            self.above += above;
            self.below += below;
            self.any = true;
        }
    }

    /// Of the buckets of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            above: self.above + other.above,
            below: self.below + other.below,
            any: self.any || other.any,
        }
    }

    /// Its value: a ratio, or what there is of it in a nanosecond; `None` where that is not known.
    #[must_use]
    pub fn value(self) -> Option<f64> {
        (self.any && self.below > 0.0).then(|| self.above / self.below)
    }
}

/// What a stream has said so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimelineState {
    /// Canonical text of the scope.
    pub scope: String,
    /// The counters, in the order of counts.
    pub counters: Vec<String>,
    /// Counters that would be there by default, and why they are not.
    pub missing: BTreeMap<String, String>,
    /// The latest buckets, oldest first.
    pub buckets: VecDeque<Bucket>,
    /// Threads that were seen, by number: their names, and their time on a CPU or what else comes first.
    threads: BTreeMap<u32, (String, u64)>,
    counts: usize,
    /// Buckets that came.
    pub received: u64,
    /// What all buckets add up to, by counter; those that had no turn in one are left out there.
    pub totals: Vec<u64>,
    /// Calls, of all buckets.
    pub calls: Option<u64>,
    /// The time of all buckets.
    pub duration_ns: u64,
    /// What the daemon costs.
    pub cost: Option<v1::Cost>,
    /// Buckets that were missed.
    pub dropped: u64,
}

impl TimelineState {
    /// Takes a bucket.
    ///
    /// # Errors
    ///
    /// Where it contradicts the protocol.
    pub fn apply(&mut self, message: v1::WatchTimelineResponse) -> Result<&Bucket, Malformed> {
        if self.received == 0 {
            self.counters = message.counters;
            self.missing = message.missing.into_iter().collect();
            self.totals = vec![0; self.counters.len()];
        }
        let is_whole = |counts: &[v1::Count]| counts.len() == self.counters.len();
        if !is_whole(&message.counts) || !message.threads.iter().all(|thread| is_whole(&thread.counts)) {
            return Err(Malformed("a bucket has other counters than the first message"));
        }
        if !message.threads.is_sorted_by_key(|thread| thread.tid) {
            return Err(Malformed("a bucket's threads are not in order"));
        }
        let bucket = Bucket {
            from_ns: message.from_ns,
            to_ns: message.to_ns,
            counts: message.counts,
            calls: message.calls,
            threads: message.threads,
            threads_left_out: message.threads_left_out,
        };
        let info = message.info.unwrap_or_default();
        self.scope = info.scope;
        self.cost = info.cost;
        self.dropped = info.dropped;
        self.received += 1;
        self.duration_ns += bucket.ns();
        if let Some(calls) = bucket.calls {
            let sum = self.calls.get_or_insert(0);
            *sum = sum.saturating_add(calls);
        }
        for (total, count) in self.totals.iter_mut().zip(&bucket.counts) {
            *total = total.saturating_add(count.count);
        }
        for thread in &bucket.threads {
            let first = thread.counts.first().map_or(0, |count| count.count);
            let known = self.threads.entry(thread.tid).or_default();
            known.0.clone_from(&thread.name);
            known.1 = known.1.saturating_add(first);
        }
        self.keep(bucket);
        self.buckets.back().ok_or(Malformed("there is no bucket"))
    }

    fn keep(&mut self, bucket: Bucket) {
        let counts = |bucket: &Bucket| bucket.counts.len() * (1 + bucket.threads.len());
        self.counts += counts(&bucket);
        self.buckets.push_back(bucket);
        while self.buckets.len() > MAX_BUCKETS || self.counts > MAX_COUNTS && self.buckets.len() > 1 {
            let Some(oldest) = self.buckets.pop_front() else {
                break;
            };
            self.counts -= counts(&oldest);
        }
        if self.threads.len() > 2 * MAX_BUCKETS {
            // Those that are gone from all that is kept.
            let threads = self.buckets.iter().flat_map(|bucket| &bucket.threads);
            let kept: HashSet<u32> = threads.map(|thread| thread.tid).collect();
            self.threads.retain(|tid, _| kept.contains(tid));
        }
    }

    /// Threads, those first of which the first counter has counted most; with their names.
    #[must_use]
    pub fn threads(&self) -> Vec<(u32, &str)> {
        let mut threads: Vec<_> = self.threads.iter().collect();
        threads.sort_by_key(|(_, (_, first))| std::cmp::Reverse(*first));
        threads
            .into_iter()
            .map(|(tid, (name, _))| (*tid, name.as_str()))
            .collect()
    }

    /// The kept buckets of the last so many nanoseconds.
    #[must_use]
    pub fn last(&self, range_ns: u64) -> impl DoubleEndedIterator<Item = &Bucket> + Clone {
        let end_ns = self.buckets.back().map_or(0, |bucket| bucket.to_ns);
        let from_ns = end_ns.saturating_sub(range_ns);
        let first = self.buckets.partition_point(|bucket| bucket.to_ns <= from_ns);
        self.buckets.range(first..)
    }

    /// What a row has in each kept bucket of the last so many nanoseconds: the mean of the time before its end.
    #[must_use]
    pub fn points(&self, row: &Row, thread: Option<u32>, range_ns: u64, rolling_ns: u64) -> Vec<(u64, Sum)> {
        let buckets: Vec<&Bucket> = self.last(range_ns.saturating_add(rolling_ns)).collect();
        let sums: Vec<Sum> = buckets
            .iter()
            .map(|bucket| {
                let mut sum = Sum::default();
                sum.add(bucket, row, thread);
                sum
            })
            .collect();
        let end_ns = buckets.last().map_or(0, |bucket| bucket.to_ns);
        let mut first = 0;
        let mut points = Vec::with_capacity(buckets.len());
        for (at, bucket) in buckets.iter().enumerate() {
            // A bucket is within if most of it is.
            while first < at
                && bucket.to_ns - buckets[first].to_ns.min(bucket.to_ns) + buckets[first].ns() / 2
                    > rolling_ns
            {
                first += 1;
            }
            if end_ns - bucket.to_ns <= range_ns.saturating_sub(bucket.ns() / 2) {
                let sum = sums[first..=at].iter().copied().fold(Sum::default(), Sum::and);
                points.push((bucket.to_ns, sum));
            }
        }
        points
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashMap;

    use super::*;

    fn count(count: u64) -> v1::Count {
        v1::Count {
            unknown: false,
            count,
            share: 1.0,
        }
    }

    /// A bucket of a tenth of a second.
    pub fn message(seq: u64, counts: [u64; 2], calls: u64) -> v1::WatchTimelineResponse {
        const STEP_NS: u64 = 100_000_000;
        let first = seq == 0;
        v1::WatchTimelineResponse {
            info: Some(v1::StreamInfo {
                seq,
                scope: "serve".to_owned(),
                ..v1::StreamInfo::default()
            }),
            counters: if first {
                vec!["task-clock".to_owned(), "page-faults".to_owned()]
            } else {
                Vec::new()
            },
            missing: if first {
                HashMap::from([("cycles".to_owned(), "none".to_owned())])
            } else {
                HashMap::new()
            },
            from_ns: 1_000 + seq * STEP_NS,
            to_ns: 1_000 + (seq + 1) * STEP_NS,
            counts: counts.map(count).to_vec(),
            calls: Some(calls),
            threads: vec![v1::ThreadCounts {
                tid: 7,
                name: "clerk".to_owned(),
                counts: vec![
                    count(counts[0] / 2),
                    v1::Count {
                        unknown: true,
                        count: 0,
                        share: 0.0,
                    },
                ],
            }],
            ..Default::default()
        }
    }

    fn values(state: &TimelineState, row: &Row, rolling_ns: u64) -> Vec<f64> {
        let points = state.points(row, None, 10_000_000_000, rolling_ns);
        points.into_iter().map(|(_, sum)| sum.value().unwrap()).collect()
    }

    #[test]
    fn points_are_rates_ratios_and_means() {
        let mut state = TimelineState::default();
        for (seq, clock) in [50_000_000, 100_000_000, 0, 50_000_000].into_iter().enumerate() {
            state.apply(message(seq as u64, [clock, 5], 10)).unwrap();
        }
        assert_eq!(values(&state, &Row::Counter(0), 0), [0.5, 1.0, 0.0, 0.5]);
        assert_eq!(
            values(&state, &Row::Counter(0), 200_000_000),
            [0.5, 0.75, 0.5, 0.25]
        );
        assert_eq!(values(&state, &Row::Calls, 0), [1e-7; 4]);
        assert_eq!(
            state.points(&Row::Ratio(1, 0), None, 1 << 40, 0)[2].1.value(),
            None,
            "nothing to divide by"
        );
        assert_eq!(
            state.points(&Row::Counter(1), Some(7), 1 << 40, 0)[0].1.value(),
            None,
            "it had no turn"
        );
        assert_eq!(
            state.points(&Row::Counter(0), Some(8), 1 << 40, 0)[0].1.value(),
            None,
            "no such thread"
        );
        assert_eq!(state.points(&Row::Counter(0), None, 200_000_000, 0).len(), 2);
        assert_eq!(
            (state.totals[0], state.calls, state.duration_ns),
            (200_000_000, Some(40), 400_000_000)
        );
        assert_eq!(state.threads(), [(7, "clerk")]);
    }

    #[test]
    fn buckets_of_other_counters_are_refused() {
        let mut state = TimelineState::default();
        state.apply(message(0, [1, 2], 0)).unwrap();
        let mut other = message(1, [1, 2], 0);
        other.counts.pop();
        assert!(state.apply(other).is_err());
        let mut other = message(1, [1, 2], 0);
        other.threads[0].counts.pop();
        assert!(state.apply(other).is_err());
    }
}
