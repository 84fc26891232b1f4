//! What is written as `perf script` prints it, read as each of its readers does.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::collections::BTreeMap;

use profiler_export::{Frame, Label, Measure, Profile, Stack, Unit, text::visible};
use support::{by_stack, perf_script_of, profile};

/// A record.
#[derive(Debug)]
struct Record {
    thread: String,
    time_ns: u64,
    period: u64,
    event: String,
    /// The outermost first.
    stack: Vec<String>,
    modules: Vec<String>,
}

/// Reads records as the readers' patterns have them.
fn read(bytes: &[u8]) -> Vec<Record> {
    let text = std::str::from_utf8(bytes).unwrap();
    let records = text.split("\n\n").filter(|record| !record.starts_with('#'));
    records.map(record).collect()
}

fn record(text: &str) -> Record {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split_ascii_whitespace().collect();
    let [thread, number, time, period, event] = head[..] else {
        panic!("{head:?}")
    };
    assert!(!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    let (seconds, ns) = time.strip_suffix(':').unwrap().split_once('.').unwrap();
    assert_eq!(ns.len(), 9, "nanoseconds");
    let (mut stack, mut modules) = (Vec::new(), Vec::new());
    for line in lines {
        let (address, rest) = line.trim_start().split_once(' ').unwrap();
        assert!(u64::from_str_radix(address, 16).is_ok(), "{line}");
        // What is in the last parentheses.
        let (name, module) = rest.strip_suffix(')').unwrap().rsplit_once(" (").unwrap();
        assert!(
            !module.contains(char::is_whitespace) && !module.contains(')'),
            "{line}"
        );
        assert!(!name.starts_with('('), "readers leave it out: {line}");
        stack.insert(0, name.strip_suffix("+0x0").unwrap_or(name).to_owned());
        modules.insert(0, module.to_owned());
    }
    Record {
        thread: thread.to_owned(),
        time_ns: seconds.parse::<u64>().unwrap() * 1_000_000_000 + ns.parse::<u64>().unwrap(),
        period: period.parse().unwrap(),
        event: event.trim_end_matches(':').to_owned(),
        stack,
        modules,
    }
}

/// As `stackcollapse-perf.pl` weighs records.
fn by_period(records: &[Record]) -> BTreeMap<(Vec<String>, String), u64> {
    let mut weights = BTreeMap::new();
    for record in records {
        *weights
            .entry((record.stack.clone(), record.thread.clone()))
            .or_default() += record.period;
    }
    weights
}

/// As speedscope weighs records: until halfway to the one before it and the one behind it.
fn by_time(records: &[Record]) -> BTreeMap<(Vec<String>, String), u64> {
    let mut threads: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        threads.entry(&record.thread).or_default().push(record);
    }
    let mut weights = BTreeMap::new();
    for (thread, records) in threads {
        assert!(records.is_sorted_by_key(|record| record.time_ns));
        let mut began_ns = records[0].time_ns;
        for (at, record) in records.iter().enumerate() {
            let ends_ns = records
                .get(at + 1)
                .map_or(record.time_ns, |next| u64::midpoint(record.time_ns, next.time_ns));
            *weights
                .entry((record.stack.clone(), thread.to_owned()))
                .or_default() += ends_ns - began_ns;
            began_ns = ends_ns;
        }
    }
    weights
}

/// What the profile has, with names as they are written.
fn expected(profile: &Profile) -> BTreeMap<(Vec<String>, String), u64> {
    let stacks = by_stack(profile).into_iter();
    stacks
        .map(|((names, side), weights)| {
            let names = names.iter().map(|name| visible(name).into_owned()).collect();
            ((names, side), weights[1])
        })
        .collect()
}

#[test]
fn periods_add_up_to_every_stack_whatever_its_name() {
    let profile = profile();
    let records = read(&perf_script_of(&profile));
    assert!(records.iter().all(|record| record.event == "cpu"));
    assert_eq!(by_period(&records), expected(&profile));
}

#[test]
fn times_say_the_same_to_who_looks_at_them() {
    let profile = profile();
    let (seen, expected) = (by_time(&read(&perf_script_of(&profile))), expected(&profile));
    for (stack, weight) in &expected {
        assert!(seen[stack].abs_diff(*weight) <= 1, "{stack:?}");
    }
    assert_eq!(seen.len(), expected.len());
}

#[test]
fn the_number_of_records_says_nearly_the_same() {
    let profile = profile();
    let records = read(&perf_script_of(&profile));
    let all: u64 = profile.stacks.iter().map(|stack| stack.weights[1]).sum();
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for record in &records {
        *counts
            .entry((record.stack.clone(), record.thread.clone()))
            .or_default() += 1;
    }
    for (stack, weight) in expected(&profile) {
        let share = weight as f64 / all as f64;
        let seen = counts[&stack] as f64 / records.len() as f64;
        assert!(
            (share - seen).abs() < 2e-3,
            "{stack:?}: {share} of all, {seen} of records"
        );
    }
}

#[test]
fn escapes_text_that_readers_would_cut_off() {
    let frame = |name: &str, module: &str| Frame {
        name: name.to_owned(),
        module: module.to_owned(),
        ..Frame::default()
    };
    let profile = Profile {
        title: "# a title".to_owned(),
        comments: vec!["scope: a\nb".to_owned()],
        measures: vec![Measure {
            name: "page faults".to_owned(),
            unit: Unit::Count,
        }],
        frames: vec![
            frame("(anonymous namespace)::run(int, char)", "/opt/my app (1)/a"),
            frame("libfoo.so+0x12", "[kernel]"),
            frame("(", ""),
            frame("  ", "a"),
            frame("operator() const (.cold)", "a"),
        ],
        stacks: vec![Stack {
            frames: vec![0, 1, 2, 3, 4],
            weights: vec![7],
            labels: vec![Label {
                key: "thread".to_owned(),
                value: "worker 7 1.5: x".to_owned(),
            }],
        }],
        ..Profile::default()
    };
    let bytes = perf_script_of(&profile);
    let records = read(&bytes);
    let names = [
        "{anonymous namespace}::run(int, char)",
        "libfoo.so+0x12",
        "{",
        "[unknown]",
        "operator() const (.cold)",
    ];
    let modules = ["/opt/my_app__1_/a", "[kernel.kallsyms]", "[unknown]", "a", "a"];
    for record in &records {
        assert_eq!(record.stack, names);
        assert_eq!(record.modules, modules);
        assert_eq!(
            (record.thread.as_str(), record.event.as_str()),
            ("worker_7_1.5:_x", "page_faults")
        );
    }
    assert_eq!(records.iter().map(|record| record.period).sum::<u64>(), 7);
    assert!(
        std::str::from_utf8(&bytes)
            .unwrap()
            .ends_with("# # a title\n# scope: a\\u{a}b\n")
    );
}

#[test]
fn a_profile_without_stacks_has_no_records() {
    assert!(perf_script_of(&Profile::default()).is_empty());
}
