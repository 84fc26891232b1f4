//! Counters over time, on their way to the wire.

use std::collections::HashMap;

use profiler_aggregate::timeline::Counted;
use profiler_proto::v1;

use super::{arguments, convert};
use crate::{
    kernel::Counter,
    session::{Ending, Reason, SessionError, TimelineBucket, TimelineRequest, unknown_counter},
};

/// Counters that may be asked for at once.
const MAX_COUNTERS: usize = 32;

/// What is counted if nothing is asked for: of any machine, then of those that count in hardware.
const DEFAULT: [&str; 4] = ["task-clock", "context-switches", "cpu-migrations", "page-faults"];
const DEFAULT_OF_HARDWARE: [&str; 2] = ["cycles", "instructions"];

/// What was asked for.
pub struct Asked {
    /// What is counted.
    pub request: TimelineRequest,
    /// The counters' names as they were asked for.
    pub names: Vec<String>,
    /// What is not, and why.
    pub missing: HashMap<String, String>,
}

/// Parses a request.
pub fn request(request: &v1::WatchTimelineRequest) -> Result<Asked, SessionError> {
    let parse = |name: &str| Counter::parse(name).ok_or_else(|| unknown_counter(name));
    if request.counters.len() > MAX_COUNTERS {
        let message = format!(
            "up to {MAX_COUNTERS} counters can be asked for, not {}",
            request.counters.len()
        );
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let mut missing = HashMap::new();
    let mut names = request.counters.clone();
    if names.is_empty() {
        names.extend(DEFAULT.map(str::to_owned));
        for name in DEFAULT_OF_HARDWARE {
            match parse(name)?.missing() {
                None => names.push(name.to_owned()),
                Some(why) => {
                    missing.insert(name.to_owned(), why);
                }
            }
        }
    }
    let counters = names.iter().map(|name| parse(name)).collect::<Result<_, _>>()?;
    Ok(Asked {
        request: TimelineRequest {
            counters,
            step_ns: arguments::step_ns(request.step)?,
            threads: request.threads,
        },
        names,
        missing,
    })
}

/// Makes the messages of one stream.
pub struct Messages {
    counters: Vec<String>,
    missing: HashMap<String, String>,
}

impl Messages {
    /// Of these counters.
    pub fn new(counters: Vec<String>, missing: HashMap<String, String>) -> Self {
        Self { counters, missing }
    }

    /// The message of a bucket.
    pub fn next(&mut self, bucket: &TimelineBucket) -> v1::WatchTimelineResponse {
        v1::WatchTimelineResponse {
            seq: bucket.seq,
            dropped: bucket.slow,
            r#final: bucket.ended.is_some(),
            final_reason: bucket.ended.as_deref().unwrap_or_default().to_owned(),
            final_signal: Ending::signal_number(bucket.ended.as_ref()),
            scope: bucket.scope.to_string(),
            counters: std::mem::take(&mut self.counters),
            missing: std::mem::take(&mut self.missing),
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
            cost: Some(convert::cost(bucket.cost)),
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
