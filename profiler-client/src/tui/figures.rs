//! How long frames and keys take with as much as a service sends, and what waiting costs. They print figures; run them by
//! themselves, optimized: `cargo test --release -p profiler-client --lib tui::figures -- --ignored --nocapture --test-threads=1`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_common::layout;
use profiler_proto::v1;
use ratatui::{Terminal, backend::TestBackend};

use crate::cli::args::By;

use super::{
    data::{Data, Picture},
    lens::{Action, Lens, Move, Pane, Size, Target, update},
    sample,
    view::{
        self,
        theme::{Depth, Theme},
    },
};

const FUNCTIONS: u32 = 50;
const NODES: u32 = 1 << 18;
const THREADS: u32 = 5_000;
/// Nodes that a tenth of a second changes: each of 5,000 threads may have been sampled.
const CHANGED: u32 = 5_000;
const UPDATES: usize = 100;
/// Updates for each picture.
const MADE_EACH: usize = 10;
const SIZE: Size = Size {
    columns: 200,
    rows: 60,
};

/// A message of all nodes: threads, each with a tree of calls below it.
fn flame() -> v1::WatchFlameResponse {
    let mut message = v1::WatchFlameResponse {
        info: Some(v1::StreamInfo {
            scope: "f_*".to_owned(),
            ..v1::StreamInfo::default()
        }),
        snapshot: true,
        by: v1::Grouping::Thread.into(),
        ..v1::WatchFlameResponse::default()
    };
    let frame = |id, function: String, module: &str| v1::Frame {
        id,
        function,
        module: module.to_owned(),
        file: "/src/server.cc".to_owned(),
        line: id,
        ..v1::Frame::default()
    };
    let functions = 4_000;
    let calls = (1..=functions).map(|id| frame(id, format!("server::handler::step_{id}"), "/usr/bin/server"));
    message.frames.extend(calls);
    let threads = (1..=THREADS).map(|id| frame(functions + id, format!("worker-{id} ({id})"), "[thread]"));
    message.frames.extend(threads);
    for id in 1..=NODES {
        let (parent, frame) = if id <= THREADS {
            (0, functions + id)
        } else {
            // A little more than 50 calls below each thread, up to 26 deep.
            let parent = if id <= 2 * THREADS {
                id - THREADS
            } else {
                id - 2 * THREADS + id % 3 * THREADS / 2
            };
            (parent.min(id - 1), 1 + id.wrapping_mul(2_654_435_761) % functions)
        };
        message.nodes.push(v1::FlameNode {
            id,
            parent,
            frame,
            complete: true,
        });
        message.weights.push(weight(id, 1));
    }
    message
}

fn weight(node: u32, round: u64) -> v1::NodeWeight {
    v1::NodeWeight {
        node,
        inside_ns: 10_000_000 * (round + u64::from(node % 7)),
        inside_samples: round + u64::from(node % 7),
        ..v1::NodeWeight::default()
    }
}

/// What a tenth of a second brings.
fn change(round: u64) -> v1::WatchFlameResponse {
    let first = u32::try_from(round).unwrap().wrapping_mul(7_919) % (NODES - CHANGED);
    v1::WatchFlameResponse {
        by: v1::Grouping::Thread.into(),
        weights: (1..=CHANGED).map(|at| weight(first + at, round)).collect(),
        ..v1::WatchFlameResponse::default()
    }
}

fn latency(snapshot: bool) -> v1::WatchLatencyResponse {
    let buckets: Vec<u32> = (0..200).map(|at| if at == 0 { 200 } else { 5 }).collect();
    let counts = || v1::Histogram {
        counts: vec![3; buckets.len()],
        bucket_deltas: buckets.clone(),
    };
    assert!(buckets.iter().sum::<u32>() < u32::try_from(layout::BUCKETS).unwrap());
    let function = |id| v1::FunctionLatency {
        id,
        function: Some(v1::Function {
            name: format!("f_{id}"),
            ..v1::Function::default()
        }),
        since_start_counts: Some(counts()),
        window_counts: Some(counts()),
        ..v1::FunctionLatency::default()
    };
    v1::WatchLatencyResponse {
        info: Some(v1::StreamInfo {
            scope: "f_*".to_owned(),
            ..v1::StreamInfo::default()
        }),
        snapshot,
        functions: (1..=FUNCTIONS).map(function).collect(),
        ..v1::WatchLatencyResponse::default()
    }
}

fn lens(pane: Pane) -> Lens {
    let mut lens = Lens::on(Some(Target::Pid(4211)));
    lens.pane = pane;
    lens.scope = "f_*".to_owned();
    lens.by = By::Thread;
    lens.size = SIZE;
    lens
}

/// How long something took, each time.
struct Times(Vec<Duration>);

impl Times {
    const fn new() -> Self {
        Self(Vec::new())
    }

    fn of<T>(&mut self, what: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = what();
        self.0.push(begin.elapsed());
        result
    }

    fn p99(&mut self) -> Duration {
        self.0.sort();
        self.0[(self.0.len() * 99).div_ceil(100) - 1]
    }

    fn p50(&mut self) -> Duration {
        self.0.sort();
        self.0[self.0.len() / 2]
    }
}

struct Screen {
    terminal: Terminal<TestBackend>,
    lens: Lens,
}

impl Screen {
    fn of(pane: Pane) -> Self {
        Self {
            terminal: Terminal::new(TestBackend::new(SIZE.columns, SIZE.rows)).unwrap(),
            lens: lens(pane),
        }
    }

    /// As the loop does it when it is to draw.
    fn frame(&mut self, data: &Data) {
        update(&mut self.lens, Action::Drawn, data);
        let (lens, theme) = (&self.lens, Theme { depth: Depth::True });
        self.terminal
            .draw(|frame| {
                view::draw(frame.buffer_mut(), lens, data, theme);
            })
            .unwrap();
    }
}

#[test]
#[ignore = "prints figures"]
fn frames_and_keys_with_as_much_as_a_service_sends() {
    let mut data = sample::busy();
    data.flame = Arc::default();
    Arc::make_mut(&mut data.flame).apply(flame()).unwrap();
    data.latency = crate::state::latency::LatencyState::default();
    data.latency.apply(latency(true)).unwrap();
    let mut control = sample::busy();
    for pane in [Pane::Top, Pane::Graph, Pane::Latency, Pane::Threads] {
        let (mut screen, mut idle) = (Screen::of(pane), Screen::of(pane));
        control.settle(&idle.lens);
        let (mut frames, mut keys, mut controls, mut made) =
            (Times::new(), Times::new(), Times::new(), Times::new());
        for round in 0..UPDATES {
            // Another thread makes the picture, while frames and keys go on with the one before.
            if round % MADE_EACH == 0 {
                data.stale = true;
                let making = data.unmade(&screen.lens).unwrap();
                data.stale = false;
                let picture = made.of(|| Picture::of(&data.flame, &making));
                let before = frames.of(|| {
                    let before = data.accept(picture, making);
                    screen.frame(&data);
                    before
                });
                drop(before);
            }
            let message = change(round as u64);
            frames.of(|| {
                Arc::make_mut(&mut data.flame).apply(message).unwrap();
                data.latency.apply(latency(false)).unwrap();
                data.heat.add(&data.latency, Instant::now());
                screen.frame(&data);
            });
            keys.of(|| {
                update(&mut screen.lens, Action::Move(Move::Down), &data);
                screen.frame(&data);
            });
            controls.of(|| idle.frame(&control));
        }
        println!(
            "{}: message to frame p50 {:.2?} p99 {:.2?}, key to frame p50 {:.2?} p99 {:.2?}, idle control p50 {:.2?} p99 {:.2?}; \
             picture made beside p50 {:.2?}",
            pane.name(),
            frames.p50(),
            frames.p99(),
            keys.p50(),
            keys.p99(),
            controls.p50(),
            controls.p99(),
            made.p50(),
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn a_threshold_that_is_dragged_over_a_recorded_minute() {
    let mut data = sample::busy();
    let mut frames = Times::new();
    let mut screen = Screen::of(Pane::Graph);
    screen.lens.by = By::Function;
    // A message of a recording is whole: as many nodes as a minute of a busy server has.
    let message = |round: u64| {
        let mut message = flame();
        message.by = v1::Grouping::Function.into();
        message.nodes.truncate(4_096);
        message.weights = (1..=4_096).map(|node| weight(node, round)).collect();
        message
    };
    for round in 0..UPDATES {
        let message = message(round as u64);
        frames.of(|| {
            data.flame = Arc::default();
            Arc::make_mut(&mut data.flame).apply(message).unwrap();
            data.stale = true;
            data.settle(&screen.lens);
            screen.frame(&data);
        });
    }
    println!(
        "answer to frame p50 {:.2?} p99 {:.2?}",
        frames.p50(),
        frames.p99()
    );
}
