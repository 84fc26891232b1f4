//! What a sample takes in the kernel, by the kernel's own measure: `bench_sample SECONDS PROGRAM [ARGUMENT...]` samples
//! a program that computes until its input ends and prints a line once it is ready, and another program that is idle.
//! Prints a line of JSON.
//!
//! Needs root, and `kernel.bpf_stats_enabled=1`. The sampler runs on every CPU whatever is on it: the runs that were not on
//! the target cost what they all cost while the idle one was looked at.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use profiler_aggregate::calltree::{FrameId, Node, NodeId};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    time::Duration,
};

use profiler_daemon::session::{
    self, Caller, Config, FlamePicture, FlameRequest, FlameTimes, Handle, NewSession, Numbered, Pictures,
    TargetSpec,
};
use profiler_symbolize::Grouping;

const CALLER: Caller = Caller { uid: 0, gid: 0 };
const FREQUENCY_HZ: u32 = 999;

/// What the kernel says of a program.
#[derive(Clone, Copy)]
struct Stats {
    time_ns: u64,
    runs: u64,
}

/// The sampler is the only program of its kind here.
fn sampler_stats() -> Stats {
    let text = fs::read_dir("/proc/self/fdinfo")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .find(|text| text.contains("prog_type:\t7\n"))
        .expect("the sampler is not loaded");
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.expect("the kernel does not measure programs")
            .trim()
            .parse()
            .unwrap()
    };
    Stats {
        time_ns: number("run_time_ns:"),
        runs: number("run_cnt:"),
    }
}

struct Measured {
    time_ns: u64,
    runs: u64,
    samples: u64,
    /// User frames of a sample, on average, those that are inlined into others left aside.
    frames: f64,
}

async fn measure(handle: &Handle, pid: u32, duration: Duration) -> Measured {
    let request = NewSession {
        name: String::new(),
        target: TargetSpec::Pid(pid),
        scope: String::new(),
        frequency_hz: FREQUENCY_HZ,
        window_ns: 10_000_000_000,
        half_life_ns: 30_000_000_000,
        lease_ns: 900_000_000_000,
        exit_method: None,
        capture: None,
        explain: false,
        allocations: false,
        budget: None,
    };
    let session = handle.create(CALLER, request).await.unwrap();
    let variant = FlameRequest::of(Grouping::Function, Some(FlameTimes::OnCpu));
    let watch = handle.watch_flame(CALLER, session.name.clone(), 100_000_000, variant);
    let mut pictures = watch.await.unwrap();
    // The tables are made by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut picture = latest(&mut pictures).await;
    let measured = loop {
        let (stats, attempted) = (sampler_stats(), picture.attempted);
        tokio::time::sleep(duration).await;
        picture = latest(&mut pictures).await;
        let after = sampler_stats();
        let measured = Measured {
            time_ns: after.time_ns.wrapping_sub(stats.time_ns),
            runs: after.runs - stats.runs,
            samples: picture.attempted - attempted,
            frames: frames(&picture),
        };
        // In a virtual machine the kernel's clock can go back during a run, which then took centuries.
        if u128::from(measured.time_ns) < duration.as_nanos() {
            break measured;
        }
    };
    handle.end(CALLER, session.name).await.unwrap();
    measured
}

/// A picture that is made from now on, so that what it counts goes with what the kernel has measured by then.
async fn latest(pictures: &mut Pictures<FlamePicture>) -> Numbered<FlamePicture> {
    pictures.mark_unchanged();
    loop {
        pictures.changed().await.unwrap();
        if let Some(picture) = pictures.borrow_and_update().clone() {
            return picture;
        }
    }
}

fn frames(picture: &FlamePicture) -> f64 {
    let (mut frames, mut samples) = (0, 0);
    for weight in &picture.picture.weights {
        samples += weight.inside_samples;
        let mut node = weight.node.0;
        while let Some(Node {
            parent: NodeId(parent),
            frame: FrameId(frame),
            ..
        }) = node.checked_sub(1).map(|at| picture.nodes[at as usize])
        {
            let frame = &picture.frames[frame as usize];
            frames += weight.inside_samples * u64::from(!frame.kernel && !frame.inlined);
            node = parent;
        }
    }
    frames as f64 / samples as f64
}

fn start(program: &str, arguments: &[String]) -> Child {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut String::new())
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "go").unwrap();
    child
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, program, arguments @ ..] = arguments.as_slice() else {
        eprintln!("usage: bench_sample SECONDS PROGRAM [ARGUMENT...]");
        std::process::exit(2);
    };
    let duration = Duration::from_secs(seconds.parse().unwrap());
    let mut target = start(program, arguments);
    let mut idle = Command::new("sleep").arg("infinity").spawn().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (empty, full) = runtime.block_on(async {
        let handle = session::start(Config::default()).unwrap();
        let empty = measure(&handle, idle.id(), duration).await;
        let full = measure(&handle, target.id(), duration).await;
        handle.stop().await;
        (empty, full)
    });
    for child in [&mut target, &mut idle] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let empty_ns = empty.time_ns as f64 / empty.runs as f64;
    let others_ns = full.runs.saturating_sub(full.samples) as f64 * empty_ns;
    println!(
        "{}",
        serde_json::json!({
            "samples": full.samples,
            "frames": full.frames,
            "sample_ns": (full.time_ns as f64 - others_ns) / full.samples as f64,
            "empty_ns": empty_ns,
        })
    );
}
