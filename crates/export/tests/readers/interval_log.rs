//! The reader of `HdrHistogram`'s Python package.

use std::time::Duration;

use profiler_export::{
    Count,
    interval_log::{Interval, IntervalLog},
};

use super::*;

#[test]
fn every_interval_has_its_calls_in_their_buckets() {
    let began = Duration::from_secs(1_700_000_000);
    let counts =
        [(100, 3), (10_048, 9_000), (30_015_488, 500)].map(|(value_ns, count)| Count { value_ns, count });
    let mut log = IntervalLog::new(began, (1 << 42) - 1, &["scope: handle".to_owned()]);
    for (tag, after_s, counts) in [
        ("handle", 0, &counts[..]),
        ("parse", 0, &counts[..1]),
        ("handle", 1, &[]),
    ] {
        let interval = Interval {
            tag,
            began: Duration::from_secs(after_s),
            length: Duration::from_secs(1),
            counts,
        };
        log.add(&interval).unwrap();
    }
    let Some(intervals) = read_by_python("hdrh.log", "interval_log.py", &log.into_bytes()) else {
        return;
    };
    // The highest value of each bucket.
    let expected = serde_json::json!([
        [
            "handle",
            1_700_000_000.0,
            [[100, 3], [10_111, 9_000], [30_146_559, 500]]
        ],
        ["parse", 1_700_000_000.0, [[100, 3]]],
        ["handle", 1_700_000_001.0, []],
    ]);
    assert_eq!(Value::from(intervals), expected);
}
