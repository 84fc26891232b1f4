//! Writes a million stacks in each format, or of `hlog` a million calls in each of a thousand intervals, and says how long that
//! took and how much memory: `large FORMAT`.

use std::{
    io,
    time::{Duration, Instant},
};

use profiler_export::{
    Count, Frame, Measure, Profile, Stack, Unit, firefox,
    interval_log::{Interval, IntervalLog},
    otlp, perf_script, pprof, speedscope,
};

fn main() {
    let format = std::env::args().nth(1).unwrap_or_default();
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: u32| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        u32::try_from(random % u64::from(below)).unwrap_or_default()
    };
    let frames = (0..5_000).map(|number| Frame {
        name: format!("namespace::module::function_{number}"),
        file: format!("/src/module_{}.rs", number / 50),
        ..Frame::default()
    });
    let measure = |name: &str, unit| Measure {
        name: name.to_owned(),
        unit,
    };
    let profile = Profile {
        measures: vec![measure("samples", Unit::Count), measure("cpu", Unit::Nanoseconds)],
        frames: frames.collect(),
        stacks: (0..1_000_000)
            .map(|_| {
                // Each function calls three others.
                let mut function = 0;
                let called = (0..8 + next(16)).map(|_| {
                    function = (function * 3 + 1 + next(3)) % 5_000;
                    function
                });
                Stack {
                    frames: called.collect(),
                    weights: vec![1, 10_101_010],
                    labels: Vec::new(),
                }
            })
            .collect(),
        ..Profile::default()
    };
    let began = Instant::now();
    let bytes = match format.as_str() {
        "pprof" => pprof::write(&profile).len(),
        "firefox" => firefox::write(&profile).len(),
        "perf-script" => {
            let mut counted = Counted(0);
            perf_script::write(&profile, &mut counted).map_or(0, |()| counted.0)
        }
        "otlp" => otlp::encoded_profiles(&profile).len(),
        "speedscope" => speedscope::write(&profile).len(),
        "hlog" => hlog(&mut next).len(),
        _ => 0,
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or_default();
    println!("{bytes} bytes in {:?}; {peak}", began.elapsed());
}

/// How many bytes were written to it.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A thousand intervals of a second, in each a million calls in up to a thousand buckets.
fn hlog(next: &mut impl FnMut(u32) -> u32) -> Vec<u8> {
    let mut log = IntervalLog::new(Duration::ZERO, (1 << 42) - 1, &[]);
    for second in 0..1_000 {
        let counts: Vec<Count> = (0..1_000)
            .map(|_| Count {
                value_ns: u64::from(next(1 << 30)) >> next(20),
                count: 1_000,
            })
            .collect();
        let interval = Interval {
            tag: "function",
            began: Duration::from_secs(second),
            length: Duration::from_secs(1),
            counts: &counts,
        };
        if let Err(error) = log.add(&interval) {
            println!("{}", error.reason);
        }
    }
    log.into_bytes()
}
