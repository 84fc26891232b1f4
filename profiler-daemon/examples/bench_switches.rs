//! The part of `cargo xtask bench --switches` that looks at the scheduler: as standard input says.
//!
//! | line | does |
//! |---|---|
//! | `empty` | attaches an empty program to each of the tracepoints of a switch and a wake-up |
//! | `watch PID off-cpu` | looks at a process's time off the CPU, as `flame --off-cpu` does |
//! | `watch PID waits` | looks at its time on and off the CPU and whom it waits for, as `flame --waits` does |
//! | `detach` | takes away what is attached; of a process that was looked at: intervals `drawn`, and `lost` |
//! | `programs` | tells of each loaded program, by name, its runs and their time: `{"NAME": {"runs": N, "time_ns": N}}` |
//!
//! Each is answered by a JSON object, what fails by `error`. Needs root, and `kernel.bpf_stats_enabled=1` for the times.

mod empty;

use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, BufRead as _},
};

use aya::programs::loaded_programs;
use profiler_daemon::session::{
    self, Caller, Config, FlamePicture, FlameRequest, FlameTimes, Handle, NewSession, Numbered, Pictures,
    TargetSpec,
};
use profiler_symbolize::Grouping;
use serde_json::{Value, json};

const CALLER: Caller = Caller { uid: 0, gid: 0 };
const REDRAWN_NS: u64 = 100_000_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut bench = Bench {
        handle: session::start(Config::default())?,
        watched: None,
        floor: Vec::new(),
    };
    println!("ready");
    for line in io::stdin().lock().lines().map_while(io::Result::ok) {
        let answer = bench.act(&line).await;
        println!(
            "{}",
            answer.unwrap_or_else(|error| json!({"error": error.to_string()}))
        );
    }
    bench.detach().await?;
    bench.handle.stop().await;
    Ok(())
}

/// What is attached.
struct Bench {
    handle: Handle,
    watched: Option<(String, Pictures<FlamePicture>)>,
    floor: Vec<floor::Program>,
}

impl Bench {
    async fn act(&mut self, line: &str) -> Result<Value> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["empty"] => {
                for name in ["sched_switch", "sched_waking"] {
                    self.floor.push(floor::Program::attach(name)?);
                }
                Ok(json!({"attached": self.floor.len()}))
            }
            ["watch", pid, at @ ("off-cpu" | "waits")] => self.watch(pid.parse()?, at == "waits").await,
            ["detach"] => self.detach().await,
            ["programs"] => programs(),
            _ => Err(format!("unknown command `{line}`").into()),
        }
    }

    async fn watch(&mut self, pid: u32, waits: bool) -> Result<Value> {
        let request = NewSession {
            name: String::new(),
            target: TargetSpec::Pid(pid),
            scope: String::new(),
            // As seldom as can be: this is not about ticks.
            frequency_hz: 1,
            window_ns: 10_000_000_000,
            half_life_ns: 30_000_000_000,
            lease_ns: 900_000_000_000,
            exit_method: None,
            capture: None,
            explain: false,
            allocations: false,
            budget: None,
        };
        let session = self.handle.create(CALLER, request).await?;
        let variant = FlameRequest {
            waits,
            ..FlameRequest::of(
                Grouping::Function,
                Some(if waits {
                    FlameTimes::Both
                } else {
                    FlameTimes::OffCpu
                }),
            )
        };
        let watch = self
            .handle
            .watch_flame(CALLER, session.name.clone(), REDRAWN_NS, variant);
        let mut pictures = watch.await?;
        // With the first picture everything is attached.
        pictures.wait_for(Option::is_some).await?;
        self.watched = Some((session.name, pictures));
        Ok(json!({"watched": pid}))
    }

    async fn detach(&mut self) -> Result<Value> {
        self.floor.clear();
        let Some((session, mut pictures)) = self.watched.take() else {
            return Ok(json!({"detached": true}));
        };
        self.handle.end(CALLER, session).await?;
        let ended = |picture: &Option<Numbered<FlamePicture>>| {
            let picture = picture.as_ref();
            picture.is_some_and(|picture| picture.ended.is_some())
        };
        let last = pictures.wait_for(ended).await?;
        let (drawn, lost) = last.as_ref().map_or((0, 0), |last| {
            (last.picture.summary.samples, last.lost.values().sum::<u64>())
        });
        Ok(json!({"detached": true, "drawn": drawn, "lost": lost}))
    }
}

/// Programs of one name in sum.
fn programs() -> Result<Value> {
    let mut sums: BTreeMap<String, (u64, u128)> = BTreeMap::new();
    for program in loaded_programs() {
        let program = program?;
        let sum = sums
            .entry(program.name_as_str().unwrap_or("?").to_owned())
            .or_default();
        sum.0 += program.run_count();
        sum.1 += program.run_time().as_nanos();
    }
    let rows = sums
        .into_iter()
        .map(|(name, (runs, time_ns))| (name, json!({"runs": runs, "time_ns": time_ns})));
    Ok(Value::Object(rows.collect()))
}

/// The floor: programs at tracepoints, by their BTF, that do nothing.
mod floor {
    use std::os::fd::{AsRawFd as _, OwnedFd};

    use aya_obj::btf::{Btf, BtfKind};

    use super::{Result, empty};

    // The kernel's include/uapi/linux/bpf.h.
    const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
    const PROG_TYPE_TRACING: u32 = 26;
    const TRACE_RAW_TP: u32 = 23;

    /// One, attached until it is dropped.
    pub struct Program {
        _link: OwnedFd,
    }

    impl Program {
        pub fn attach(tracepoint: &str) -> Result<Self> {
            let kernel = Btf::from_sys_fs()?;
            let of = kernel.id_by_type_name_kind(&format!("btf_trace_{tracepoint}"), BtfKind::Typedef)?;
            let program = empty::load(PROG_TYPE_TRACING, TRACE_RAW_TP, of)?;
            let link = empty::bpf(
                RAW_TRACEPOINT_OPEN,
                &Open {
                    program: u32::try_from(program.as_raw_fd())?,
                    ..Open::default()
                },
            )?;
            Ok(Self { _link: link })
        }
    }

    #[repr(C)]
    #[derive(Default)]
    struct Open {
        name: u64,
        program: u32,
        padding: u32,
    }
}
