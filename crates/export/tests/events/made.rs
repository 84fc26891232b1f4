//! Timelines to write.

#![allow(dead_code, reason = "the readers' tests take a part of it")]

use profiler_export::timeline::{
    Argument, Category, Clocks, Counter, Fact, Flow, Instant, Member, Point, Process, Slice, Timeline, Value,
};
use proptest::prelude::*;

/// More than fits into any file.
pub const ANY_SIZE: usize = usize::MAX;

/// Names that formats could trip over.
pub fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "",
        "std::map<int, char>::at(int const&)",
        "a\"b\\c'd/",
        "line\nend\r\ttab",
        "\0\u{1}\u{1b}[31m\u{7f}\u{85}",
        "\u{202e}right to left\u{2066}\u{feff}\u{e0041}",
        "\u{fffd}\u{1f600}\u{10ffff}",
        "}],\"traceEvents\":[",
        "\\u0041",
    ]
    .map(str::to_owned)
    .into();
    names.push(String::from_utf8_lossy(b"cut \xf0\x9f\x98 short \xff").into_owned());
    names.push("x\u{202e}".repeat((64 << 10) / 4));
    names
}

fn value_of(text: &str, name: u32) -> Value {
    Value::Object(vec![
        Member {
            name: text.into(),
            value: Value::List(vec![
                Value::Signed(-7),
                Value::Bool(true),
                Value::Text(text.into()),
                Value::Name(name),
            ]),
        },
        Member {
            name: "none".into(),
            value: Value::List(Vec::new()),
        },
    ])
}

/// Two processes with a thread each, whose calls nest, and a counter.
pub fn sample() -> Timeline {
    let mut timeline = Timeline::of("demo");
    timeline.facts = vec![Fact {
        key: "scope".into(),
        value: "f[>= p95]".into(),
    }];
    timeline.clocks = Some(Clocks {
        monotonic_ns: 9_000_000_000_000_123,
        boottime_ns: 9_500_000_000_000_123,
        realtime_ns: 1_700_000_000_000_000_123,
    });
    let (outer, inner, reached) = (
        timeline.name("outer"),
        timeline.name("inner"),
        timeline.name("a.c:3"),
    );
    let argument = timeline.name("n");
    for pid in [7, 8] {
        let process = timeline.process(pid);
        let thread = timeline.thread(process, pid + 100);
        for (name, began_ns, duration_ns) in [
            // As calls are seen: the inner one ends first.
            (inner, 9_000_000_000_001_001, 999),
            (outer, 9_000_000_000_000_001, 9_000_000_001),
        ] {
            timeline.slices.push(Slice {
                began_ns,
                duration_ns,
                arguments: Box::new([Argument {
                    name: argument,
                    value: Value::Unsigned(u64::MAX),
                }]),
                thread,
                name,
                category: Category::Call,
            });
        }
        timeline.instants.push(Instant {
            at_ns: 9_000_000_000_001_500,
            arguments: Box::new([Argument {
                name: argument,
                value: Value::Double(0.5),
            }]),
            thread,
            name: reached,
            category: Category::Hit,
            flow: None,
        });
        timeline.counters.push(Counter {
            process,
            thread: (pid == 8).then_some(thread),
            name: "page-faults".into(),
            unit: "/s".into(),
            points: [(9_000_000_000_000_001, 1.5), (9_000_100_000_000_001, 0.0)]
                .map(|(at_ns, value)| Point { at_ns, value })
                .into(),
        });
    }
    timeline.processes[0].name = "server".into();
    timeline.threads[1].name = "clerk".into();
    timeline
}

/// A thread waits, and another ends that.
pub fn woken() -> Timeline {
    let mut timeline = Timeline::of("demo");
    let process = timeline.process(7);
    let [waiter, waker] = [70, 71].map(|tid| timeline.thread(process, tid));
    let [sleeping, woken, wakes] = ["sleeping", "woken", "wakes"].map(|name| timeline.name(name));
    timeline.slices.push(Slice {
        began_ns: 1_000,
        duration_ns: 500,
        arguments: Box::default(),
        thread: waiter,
        name: sleeping,
        category: Category::Wait,
    });
    let flow = timeline.flow();
    for (thread, name, flow) in [
        (waker, wakes, Flow::Begins(flow)),
        (waiter, woken, Flow::Ends(flow)),
    ] {
        timeline.instants.push(Instant {
            at_ns: 1_500,
            arguments: Box::default(),
            thread,
            name,
            category: Category::Wait,
            flow: Some(flow),
        });
    }
    timeline
}

/// Every text of it is this one.
pub fn all_named(text: &str) -> Timeline {
    let mut timeline = Timeline::of(text);
    timeline.facts = vec![Fact {
        key: text.into(),
        value: text.into(),
    }];
    timeline.processes = vec![Process {
        pid: None,
        name: text.into(),
    }];
    let name = timeline.name(text);
    let thread = timeline.thread(0, 9);
    timeline.threads[0].name = text.into();
    let arguments = || -> Box<[Argument]> {
        Box::new([Argument {
            name,
            value: value_of(text, name),
        }])
    };
    timeline.slices.push(Slice {
        began_ns: 1,
        duration_ns: 2,
        arguments: arguments(),
        thread,
        name,
        category: Category::Call,
    });
    timeline.instants.push(Instant {
        at_ns: 2,
        arguments: arguments(),
        thread,
        name,
        category: Category::Hit,
        flow: None,
    });
    timeline.counters.push(Counter {
        process: 0,
        thread: Some(thread),
        name: text.into(),
        unit: String::new(),
        points: vec![Point { at_ns: 1, value: 7.0 }],
    });
    timeline
}

/// Slices and instants of three threads, within so short a time that they meet in every way.
pub fn arbitrary() -> impl Strategy<Value = Timeline> {
    let slice = (0..40_u64, 0..20_u64, 0..3_u32, 0..4_u32);
    let instant = (0..60_u64, 0..3_u32);
    let lists = (
        prop::collection::vec(slice, 0..60),
        prop::collection::vec(instant, 0..20),
    );
    lists.prop_map(|(slices, instants)| {
        let mut timeline = Timeline::default();
        let process = timeline.process(7);
        for tid in 0..3 {
            timeline.thread(process, 70 + tid);
        }
        for name in ["a", "b", "c", "d"] {
            timeline.name(name);
        }
        let slice = |(began_ns, duration_ns, thread, name)| Slice {
            began_ns,
            duration_ns,
            arguments: Box::default(),
            thread,
            name,
            category: Category::Call,
        };
        timeline.slices = slices.into_iter().map(slice).collect();
        let instant = |(at_ns, thread)| Instant {
            at_ns,
            arguments: Box::default(),
            thread,
            name: 0,
            category: Category::Hit,
            flow: None,
        };
        timeline.instants = instants.into_iter().map(instant).collect();
        timeline
    })
}
