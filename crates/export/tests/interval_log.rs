//! An interval log, read back by the reader of the `hdrhistogram` crate.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    },
};
use profiler_export::{
    Count,
    interval_log::{Interval, IntervalLog},
};

const HIGHEST_NS: u64 = (1 << 42) - 1;

fn counts(counts: &[(u64, u64)]) -> Vec<Count> {
    let counts = counts.iter();
    counts
        .map(|&(value_ns, count)| Count { value_ns, count })
        .collect()
}

fn add(log: &mut IntervalLog, tag: &str, began_ms: u64, of: &[(u64, u64)]) {
    let interval = Interval {
        tag,
        began: Duration::from_millis(began_ms),
        length: Duration::from_millis(1_001),
        counts: &counts(of),
    };
    log.add(&interval).unwrap();
}

/// Tags, beginnings, longest values, and the buckets that are not empty.
struct Read {
    tag: String,
    began: Duration,
    length: Duration,
    max_ms: f64,
    counts: Vec<(u64, u64)>,
}

fn read(bytes: &[u8]) -> Vec<Read> {
    let mut read = Vec::new();
    for entry in IntervalLogIterator::new(bytes) {
        let LogEntry::Interval(interval) = entry.unwrap() else {
            continue;
        };
        let packed = STANDARD.decode(interval.encoded_histogram()).unwrap();
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &packed[..]).unwrap();
        read.push(Read {
            tag: interval.tag().unwrap().as_str().to_owned(),
            began: interval.start_timestamp(),
            length: interval.duration(),
            max_ms: interval.max(),
            counts: histogram
                .iter_recorded()
                .map(|value| (value.value_iterated_to(), value.count_at_value()))
                .collect(),
        });
    }
    read
}

#[test]
fn every_interval_has_its_time_and_every_count_in_its_bucket() {
    let mut log = IntervalLog::new(
        Duration::from_millis(1_700_000_000_250),
        HIGHEST_NS,
        &["scope: f\n#[BaseTime: 7 (seconds since epoch)]".to_owned()],
    );
    add(&mut log, "f", 0, &[(1, 3), (255, 1), (256, 5), (HIGHEST_NS, 2)]);
    add(&mut log, "g", 0, &[]);
    add(&mut log, "f", 1_001, &[(1_000_000, 1 << 40)]);
    assert_eq!((log.intervals(), log.left_out()), (3, 0));
    let bytes = log.into_bytes();
    let times: Vec<Duration> = IntervalLogIterator::new(&bytes)
        .filter_map(|entry| match entry.unwrap() {
            LogEntry::StartTime(time) | LogEntry::BaseTime(time) => Some(time),
            LogEntry::Interval(_) => None,
        })
        .collect();
    assert_eq!(times, [Duration::from_millis(1_700_000_000_250); 2]);
    let read = read(&bytes);
    assert_eq!(read.len(), 3);
    assert_eq!((read[0].tag.as_str(), read[1].tag.as_str()), ("f", "g"));
    // The highest value of each bucket.
    assert_eq!(read[0].counts, [(1, 3), (255, 1), (257, 5), (HIGHEST_NS, 2)]);
    assert!(read[1].counts.is_empty());
    assert_eq!(read[2].counts, [(1_003_519, 1 << 40)]);
    assert_eq!(
        (read[2].began, read[2].length),
        (Duration::from_millis(1_001), Duration::from_millis(1_001))
    );
    assert!((read[2].max_ms - 1.004).abs() < 1e-9, "{}", read[2].max_ms);
}

#[test]
fn names_are_tags_whatever_is_in_them() {
    let mut names: Vec<String> = [
        "std::map<int, char>::at(int const&)",
        "a;\"b\"\n'c'",
        "100%",
        "\u{1b}[31m\u{202e}\0",
        "",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(64 << 10));
    let mut log = IntervalLog::new(Duration::ZERO, HIGHEST_NS, &[]);
    for name in &names {
        add(&mut log, name, 0, &[(7, 1)]);
    }
    let bytes = log.into_bytes();
    assert!(!bytes.iter().any(|byte| byte.is_ascii_control() && *byte != b'\n'));
    let tags: Vec<String> = read(&bytes).into_iter().map(|read| read.tag).collect();
    assert_eq!(tags[0], "std::map<int%2C%20char>::at(int%20const&)");
    assert_eq!(
        tags.iter().map(|tag| unescape(tag)).collect::<Vec<_>>(),
        names,
        "they can be told from what is written"
    );
}

/// As URLs are read.
fn unescape(tag: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), tag.as_bytes());
    while let [first, others @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(&others[..2]).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &others[2..];
        } else {
            bytes.push(*first);
            rest = others;
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn counts_intervals_beyond_the_size_limit() {
    let mut log = IntervalLog::new(Duration::ZERO, HIGHEST_NS, &[]).at_most(1_000);
    for second in 0..100 {
        add(&mut log, "f", second * 1_000, &[(7, 1)]);
    }
    let (intervals, left_out) = (log.intervals(), log.left_out());
    assert!(intervals > 0 && left_out > 0 && intervals + left_out == 100);
    let bytes = log.into_bytes();
    assert!(bytes.len() <= 1_000);
    assert_eq!(read(&bytes).len() as u64, intervals);
}

#[test]
fn refuses_durations_beyond_the_histogram() {
    let mut log = IntervalLog::new(Duration::ZERO, HIGHEST_NS, &[]);
    let interval = Interval {
        tag: "f",
        began: Duration::ZERO,
        length: Duration::ZERO,
        counts: &counts(&[(1 << 43, 1)]),
    };
    assert!(!log.add(&interval).unwrap_err().reason.is_empty());
    assert_eq!(log.intervals(), 0);
}
