//! Writes a million calls of eight threads, one in the other and each with an argument, and says how long that took and how
//! much memory, with the calls themselves: `large_events perfetto`, `chrome` or `firefox`.

use std::time::Instant;

use profiler_export::{
    chrome, firefox, perfetto,
    timeline::{Argument, Category, Slice, Timeline, Value, Written},
};

const CALLS: u64 = 1_000_000;

fn main() {
    let format = std::env::args().nth(1).unwrap_or_default();
    let mut timeline = Timeline::of("large");
    let process = timeline.process(4_211);
    let names: Vec<u32> = (0..100)
        .map(|number| timeline.name(&format!("namespace::module::function_{number}")))
        .collect();
    let argument = timeline.name("n");
    let threads: Vec<u32> = (0..8).map(|tid| timeline.thread(process, 4_211 + tid)).collect();
    timeline.slices.reserve_exact(usize::try_from(CALLS).unwrap_or(0));
    for (number, name) in (0..CALLS).zip(names.iter().cycle()) {
        // Ten calls in each other, the innermost first.
        let (group, depth) = (number / 10, number % 10);
        let thread = threads[usize::try_from(group % 8).unwrap_or(0)];
        timeline.slices.push(Slice {
            began_ns: 123_456_789_012_345 + group * 10_007 + (9 - depth) * 100,
            duration_ns: 1_001 + depth * 200,
            arguments: Box::new([Argument {
                name: argument,
                value: Value::Unsigned(number),
            }]),
            thread,
            name: *name,
            category: Category::Call,
        });
    }
    let began = Instant::now();
    let Written { bytes, left_out } = match format.as_str() {
        "perfetto" => perfetto::write(&timeline, usize::MAX),
        "chrome" => chrome::write(&timeline, usize::MAX),
        "firefox" => firefox::events(&timeline, usize::MAX),
        _ => Written {
            bytes: Vec::new(),
            left_out: CALLS,
        },
    };
    let elapsed = began.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or_default();
    println!(
        "{} bytes in {elapsed:?}; {left_out} left out; {peak}",
        bytes.len()
    );
    if let Some(path) = std::env::args().nth(2)
        && let Err(error) = std::fs::write(&path, bytes)
    {
        println!("{path}: {error}");
    }
}
