//! Buckets of counters from messages, which somebody may have made up.

use std::collections::BTreeMap;

use profiler_aggregate::timeline::Counted;
use profiler_proto::v1;

use super::decode::{Damaged, MAX_COUNT};
use crate::session::{ThreadCounted, Told};

/// Counters of a bucket.
const MAX_COUNTERS: usize = 64;

/// Buckets of a message: there are a hundred a second at most, and four messages.
const MAX_BUCKETS: usize = 4096;

/// Threads of a bucket.
const MAX_THREADS: usize = 1024;

/// What was counted between two readings.
#[derive(Debug)]
pub struct RecordedBucket {
    pub from_ns: u64,
    pub to_ns: u64,
    /// By counter.
    pub counted: Vec<Counted>,
    /// Calls that began, or hits; `None` without a scope.
    pub calls: Option<u64>,
    /// Threads that were counted by themselves, by number.
    pub threads: Vec<ThreadCounted>,
    pub threads_left_out: u64,
    /// Buckets that were lost before.
    pub lost: u64,
}

/// What was counted since the message before.
#[derive(Default, Debug)]
pub struct RecordedCounts {
    pub told: Told,
    /// Threads were counted by themselves.
    pub threads: bool,
    pub buckets: Vec<RecordedBucket>,
}

/// The buckets of a message.
pub fn read(message: v1::RecordedCounters) -> Result<RecordedCounts, Damaged> {
    let v1::RecordedCounters {
        counters,
        missing,
        threads,
        buckets,
    } = message;
    if counters.len() > MAX_COUNTERS || missing.len() > MAX_COUNTERS || buckets.len() > MAX_BUCKETS {
        return Err(Damaged);
    }
    let count = counters.len();
    Ok(RecordedCounts {
        buckets: (buckets.into_iter())
            .map(|told| bucket(told, count))
            .collect::<Result<_, _>>()?,
        told: Told {
            counters,
            missing: missing.into_iter().collect::<BTreeMap<_, _>>(),
        },
        threads,
    })
}

fn bucket(told: v1::WatchTimelineResponse, counters: usize) -> Result<RecordedBucket, Damaged> {
    let dropped = told.buckets_lost();
    let v1::WatchTimelineResponse {
        from_ns,
        to_ns,
        counts,
        calls,
        threads,
        threads_left_out,
        ..
    } = told;
    let of_all = [calls.unwrap_or(0), threads_left_out, dropped];
    let is_too_much = threads.len() > MAX_THREADS || of_all.iter().any(|count| *count > MAX_COUNT);
    if to_ns < from_ns || is_too_much {
        return Err(Damaged);
    }
    Ok(RecordedBucket {
        from_ns,
        to_ns,
        counted: self::counts(counts, counters)?,
        calls,
        threads: (threads.into_iter())
            .map(|thread| {
                Ok(ThreadCounted {
                    tid: thread.tid,
                    name: thread.name.into(),
                    counted: self::counts(thread.counts, counters)?,
                })
            })
            .collect::<Result<_, _>>()?,
        threads_left_out,
        lost: dropped,
    })
}

fn counts(counts: Vec<v1::Count>, counters: usize) -> Result<Vec<Counted>, Damaged> {
    let is_count = |count: &v1::Count| (0.0..=1.0).contains(&count.share);
    if counts.len() != counters || !counts.iter().all(is_count) {
        return Err(Damaged);
    }
    let counted = counts.into_iter().map(|count| Counted {
        count: (!count.unknown).then_some(count.count),
        share: count.share,
    });
    Ok(counted.collect())
}
