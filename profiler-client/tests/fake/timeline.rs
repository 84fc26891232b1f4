//! What the scripted daemon sends of counters over time.

use profiler_proto::v1;

use super::info;

/// Length of a bucket.
const STEP_NS: u64 = 100_000_000;

/// A bucket of these counters; why it is the last message.
pub fn bucket(
    request: &v1::WatchTimelineRequest,
    update: usize,
    why: Option<&str>,
) -> v1::WatchTimelineResponse {
    let seq = update as u64;
    let names = request.counters.clone();
    let count = |at: usize| v1::Count {
        unknown: false,
        count: 1_000_000 * (at as u64 + 1),
        share: 1.0,
    };
    let counts: Vec<v1::Count> = (0..names.len()).map(count).collect();
    let thread = v1::ThreadCounts {
        tid: 7,
        name: "clerk\x1b[31m".into(),
        counts: counts.clone(),
    };
    v1::WatchTimelineResponse {
        info: Some(info(seq, "handle", why)),
        counters: names,
        from_ns: seq * STEP_NS,
        to_ns: (seq + 1) * STEP_NS,
        counts,
        calls: Some(3),
        threads: if request.threads { vec![thread] } else { Vec::new() },
        ..Default::default()
    }
}
