//! Counters over time, on their way to the wire.

use std::collections::HashMap;

use profiler_aggregate::timeline::Counted;
use profiler_proto::v1;

use super::{
    arguments,
    stream_info::{self, Position, Shown},
};
use crate::{
    kernel::Counter,
    session::{Reason, SessionError, TimelineBucket, TimelineRequest, unknown_counter},
};

/// Counters that may be asked for at once.
const MAX_COUNTERS: usize = 32;

/// Parses a request.
pub fn request(request: &v1::WatchTimelineRequest) -> Result<TimelineRequest, SessionError> {
    let parse = |name: &String| Counter::parse(name).ok_or_else(|| unknown_counter(name));
    if request.counters.len() > MAX_COUNTERS {
        let message = format!(
            "up to {MAX_COUNTERS} counters can be asked for, not {}",
            request.counters.len()
        );
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let mut counters = Vec::with_capacity(request.counters.len());
    for name in &request.counters {
        let counter = parse(name)?;
        if counters.contains(&counter) {
            let message = format!("the counter `{name}` is asked for twice: leave it out once");
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        counters.push(counter);
    }
    Ok(TimelineRequest {
        counters,
        step_ns: arguments::step_ns(request.step)?,
        threads: request.threads,
    })
}

/// Makes the messages of one stream.
pub struct Messages {
    /// As they were asked for, until they are told.
    counters: Vec<String>,
}

impl Messages {
    /// Of these counters; of none those that the first bucket tells.
    pub fn new(counters: Vec<String>) -> Self {
        Self { counters }
    }

    /// The message of a bucket.
    pub fn next(&mut self, bucket: &TimelineBucket) -> v1::WatchTimelineResponse {
        let mut counters = std::mem::take(&mut self.counters);
        let mut missing = HashMap::new();
        if let Some(told) = &bucket.told {
            counters.clone_from(&told.counters);
            missing.extend(told.missing.clone());
        }
        v1::WatchTimelineResponse {
            info: Some(stream_info::info(
                Position {
                    seq: bucket.seq,
                    dropped: bucket.slow,
                },
                &Shown {
                    scope: &bucket.scope,
                    cost: bucket.cost,
                    children: None,
                    ended: bucket.ended.as_ref(),
                },
            )),
            dropped_before: 0,
            counters,
            missing,
            from_ns: bucket.from_ns,
            to_ns: bucket.to_ns,
            counts: counts(&bucket.counted),
            calls: bucket.calls,
            threads: bucket
                .threads
                .iter()
                .map(|thread| v1::ThreadCounts {
                    tid: thread.tid,
                    name: thread.name.to_string(),
                    counts: counts(&thread.counted),
                })
                .collect(),
            threads_left_out: bucket.threads_left_out,
        }
    }
}

fn counts(counted: &[Counted]) -> Vec<v1::Count> {
    let count = |counted: &Counted| v1::Count {
        unknown: counted.count.is_none(),
        count: counted.count.unwrap_or(0),
        share: counted.share,
    };
    counted.iter().map(count).collect()
}
