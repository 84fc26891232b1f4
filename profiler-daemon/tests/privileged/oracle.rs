//! An independent trace beside the engine: bpftrace writes down each entry and return of some functions of a real server under
//! load, and what the engine says of random scopes has to follow from that: which calls there were, how long they took, which
//! calls and samples lie inside of which, when their threads were off the CPU, and which way branches went.
//!
//! The target stands still while a scope is attached and detached, so that both see the same calls. `cargo xtask oracle` asks more
//! scopes than the few that are asked here. Which ones depends on a seed, `PROFILER_ORACLE_SEED`, and on what the server does.

mod asked;
mod branches;
mod judge;
mod jump_events;
mod lines;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    env,
    fmt::Write as _,
    fs,
    ops::RangeInclusive,
    sync::LazyLock,
    time::{Duration, Instant},
};

use profiler_daemon::session::{
    Capture, FlamePicture, FlameTimes, FunctionInfo, LatencyPicture, Library, MoreRecords, NewSession,
    Numbered, Purpose, RecordBatch, SessionError, TargetSpec, TraceBatch, TracedHit, list_functions,
};
use profiler_symbolize::Grouping;
use profiler_testkit::{Random, has_program, skipped};
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};
use serde_json::{Value, json};

use self::{
    asked::Asked,
    branches::Branches,
    judge::{Judge, Verdict},
    jump_events::JumpEvents,
    trace::{Bpftrace, Told, Truth},
};
use super::{
    programs::{Folder, Running, environment, installed, sampled, seed},
    service::{PATIENCE, ROOT, Service, ended, session_of},
};

/// Whether this is `cargo xtask oracle`, which says how many scopes are asked, and not one of many tests.
fn is_run_by_itself() -> bool {
    environment("PROFILER_ORACLE_SCOPES").is_some()
}

/// Scopes of each program, unless `PROFILER_ORACLE_SCOPES` says otherwise.
const SCOPES: usize = 4;
/// Functions that bpftrace watches.
const WATCHED: usize = 6;
/// Functions whose calls it counts first.
const CANDIDATES: usize = 60;
/// Calls a second of functions that it can write down.
const RATE_HZ: RangeInclusive<u64> = 20..=2_000;
/// Answers of the program before anything is asked.
const ANSWERS: u64 = 2;
/// Calls that are awaited of each scope, and pictures beyond which they are not.
const CALLS: u64 = 400;
const PICTURES: u64 = 12;
/// The files of all programs, read once.
static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::new(None));

/// What the engine said of a scope.
struct Seen {
    asked: Asked,
    scope: String,
    /// The target stood still at both, and no call of it was seen before or after.
    begin_ns: u64,
    end_ns: u64,
    latency: Numbered<LatencyPicture>,
    /// Of time on the CPU.
    flame: Numbered<FlamePicture>,
    /// Of time off it.
    off_cpu: Numbered<FlamePicture>,
    records: Vec<RecordBatch>,
    warnings: Vec<String>,
    /// A function's entry is looked at behind its first instruction.
    looks_behind: bool,
}

/// What the engine said of a branch that goes one way in calls of a function.
struct SeenHits {
    scope: String,
    /// The function, and the line.
    outer: usize,
    line: usize,
    taken: bool,
    /// As of [`Seen`].
    begin_ns: u64,
    end_ns: u64,
    hits: Vec<TracedHit>,
    /// Where its jumps are, in their file.
    addresses: BTreeSet<u64>,
    last: TraceBatch,
}

/// All that the engine said of a program.
#[derive(Default)]
struct Said {
    of_calls: Vec<Seen>,
    of_hits: Vec<SeenHits>,
    /// Scopes that it refused, by the reason.
    refused: BTreeMap<String, u64>,
}

impl Said {
    fn scopes(&self) -> usize {
        self.of_calls.len() + self.of_hits.len()
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// A process that stands still; it goes on when dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: u32) -> Self {
        let stopped = Self(Pid::from_raw(pid.cast_signed()).unwrap());
        kill_process(stopped.0, Signal::STOP).unwrap();
        let began = Instant::now();
        let stands = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, state)| state.starts_with('T'))
        };
        while !fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .all(|task| stands(task.unwrap()))
        {
            assert!(began.elapsed() < PATIENCE, "process {pid} does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn look(service: &Service, pid: u32, asked: Asked, scope: String) -> Result<Seen, SessionError> {
    let stopped = Stopped::new(pid);
    let session = service.attach(pid, &scope)?;
    let mut latency = service.watch_latency(&session);
    let [mut flame, mut off_cpu] = [FlameTimes::OnCpu, FlameTimes::OffCpu]
        .map(|times| service.watch_flame_of(&session, Grouping::Function, times));
    let watching = service
        .handle
        .watch_records(ROOT, session.name.clone(), MoreRecords::default());
    let mut batches = service.runtime.block_on(watching)?;
    let begin_ns = now_ns();
    drop(stopped);
    let mut pictures = 0;
    service.until(&mut latency, |picture| {
        pictures += 1;
        let calls: u64 = picture.functions.iter().map(ended).sum();
        calls >= CALLS || pictures >= PICTURES
    });
    let stopped = Stopped::new(pid);
    let end_ns = now_ns();
    service.end(&session);
    let latency = service.until(&mut latency, |picture| picture.ended.is_some());
    let [flame, off_cpu] =
        [&mut flame, &mut off_cpu].map(|flame| service.until(flame, |picture| picture.ended.is_some()));
    let mut records = Vec::new();
    while let Some(batch) = batches.blocking_recv() {
        records.push(batch);
    }
    drop(stopped);
    Ok(Seen {
        asked,
        scope,
        begin_ns,
        end_ns,
        latency,
        flame,
        off_cpu,
        records,
        warnings: session.warnings,
        looks_behind: session.sites.iter().any(|site| site.entry_offset > 0),
    })
}

/// The same of each hit of a branch, while the program gives some answers.
fn look_at_hits(
    service: &Service,
    running: &Running,
    (outer, line, taken): (usize, usize, bool),
    scope: String,
) -> Result<SeenHits, SessionError> {
    let stopped = Stopped::new(running.pid());
    let every_hit = Capture {
        print: Vec::new(),
        hits_per_second: u32::MAX,
        stack: false,
        purpose: Purpose::Shown,
    };
    let request = NewSession {
        capture: Some(every_hit),
        ..session_of(running.pid(), &scope)
    };
    let session = service.create_for(ROOT, request)?;
    let watching = service.handle.watch_trace(ROOT, session.name.clone());
    let mut batches = service.runtime.block_on(watching)?;
    let reader = std::thread::spawn(move || {
        let (mut hits, mut addresses) = (Vec::new(), BTreeSet::new());
        loop {
            let batch = batches.blocking_recv().unwrap();
            hits.extend(batch.hits.iter().cloned());
            addresses.extend(batch.places.iter().map(|place| place.address));
            if batch.ended.is_some() {
                return (hits, addresses, batch);
            }
        }
    });
    let begin_ns = now_ns();
    drop(stopped);
    running.wait(ANSWERS, "while hits are recorded");
    let stopped = Stopped::new(running.pid());
    let end_ns = now_ns();
    service.end(&session);
    let (hits, addresses, last) = reader.join().unwrap();
    drop(stopped);
    Ok(SeenHits {
        scope,
        outer,
        line,
        taken,
        begin_ns,
        end_ns,
        hits,
        addresses,
        last,
    })
}

/// Functions whose name says which they are, and that a return probe does not disturb.
fn candidates(functions: Vec<FunctionInfo>, seen: &[String]) -> Vec<FunctionInfo> {
    let seen: BTreeSet<&str> = seen.iter().map(String::as_str).collect();
    let (mut names, mut symbols) = (HashMap::<_, u32>::new(), HashMap::<_, u32>::new());
    for function in &functions {
        *names.entry(function.name.clone()).or_default() += 1;
        *symbols
            .entry((function.module.clone(), function.linkage_name.clone()))
            .or_default() += 1;
    }
    let is_plain = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut chosen: Vec<_> = functions
        .into_iter()
        .filter(|function| {
            let symbol = (function.module.clone(), function.linkage_name.clone());
            seen.contains(&*function.name)
                && function.address > 0
                && is_plain(&function.linkage_name)
                && !function.module.contains(['+', ':', ' ', '"'])
                && names[&function.name] == 1
                && symbols[&symbol] == 1
                && !function.name.contains("jmp")
                // Of functions that begin with AVX instructions the kernel does some wrongly under a probe.
                && !["avx", "evex"].iter().any(|kind| function.name.contains(kind))
        })
        .collect();
    chosen.sort_by_key(|function| (function.module.clone(), function.address));
    chosen
}

/// Random ones of those that are called as often as bpftrace can write down.
fn watched(running: &Running, mut candidates: Vec<FunctionInfo>, random: &mut Random) -> Vec<FunctionInfo> {
    while candidates.len() > CANDIDATES {
        candidates.swap_remove(random.below(candidates.len()));
    }
    let mut script = String::new();
    for (number, function) in candidates.iter().enumerate() {
        let _ = write!(
            script,
            "uprobe:{}:{} /pid == {}/ {{ @calls[{number}] = count(); }} ",
            function.module,
            function.linkage_name,
            running.pid()
        );
    }
    let counting = Bpftrace::start(running.pid(), &script);
    let began = Instant::now();
    running.wait(ANSWERS, "while calls are counted");
    let told = counting.end();
    let counted_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
    let mut rates: Vec<(usize, u64)> = told
        .others
        .iter()
        .filter_map(|line| {
            let (number, count) = line.strip_prefix("@calls[")?.split_once("]: ")?;
            Some((number.parse().ok()?, count.parse().ok()?))
        })
        .map(|(number, count): (usize, u64)| (number, count * 1_000 / counted_ms))
        .filter(|(_, rate)| RATE_HZ.contains(rate))
        .collect();
    rates.sort_unstable();
    let mut chosen = Vec::new();
    while chosen.len() < WATCHED && !rates.is_empty() {
        let (number, rate_hz) = rates.swap_remove(random.below(rates.len()));
        let function = candidates[number].clone();
        println!("{}: {rate_hz} calls a second", function.name);
        chosen.push(function);
    }
    chosen
}

fn script(pid: u32, watched: &[FunctionInfo]) -> String {
    let switch = "tracepoint:sched:sched_switch";
    // A thread that leaves is in its own program, and one that comes in that of who leaves.
    let mut script = format!(
        "{switch} /pid == {pid}/ {{ @away[tid] = 1; printf(\"left 0 %d %llu 0 0\\n\", tid, nsecs); }} \
         {switch} /@away[args->next_pid]/ {{ delete(@away[args->next_pid]); \
         printf(\"back 0 %d %llu 0 0\\n\", args->next_pid, nsecs); }} "
    );
    for (number, function) in watched.iter().enumerate() {
        for (probe, kind, last) in [
            ("uprobe", "entered", "reg(\"di\")"),
            ("uretprobe", "returned", "retval"),
        ] {
            let place = format!("{}:{}", function.module, function.linkage_name);
            let _ = write!(
                script,
                "{probe}:{place} /pid == {pid}/ {{ printf(\"{kind} {number} %d %llu %llu %llu\\n\", tid, nsecs, reg(\"sp\"), {last}); }} "
            );
        }
    }
    script
}

/// The demo, where it has been built.
fn demo_program() -> Option<Value> {
    let test = env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("demo");
    if !program.exists() {
        skipped("the demo is not built: `cargo build --workspace --bin demo`");
        return None;
    }
    Some(json!({"name": "demo", "run": ["python3", "server.py", "demo", program]}))
}

/// Functions of the demo's own that others do not share a name with, whether they are sampled or not.
fn own_functions(functions: Vec<FunctionInfo>) -> Vec<FunctionInfo> {
    let is_own = |function: &FunctionInfo| {
        function.module.ends_with("/demo")
            && function.name == function.linkage_name
            && function.address > 0
            // What the C compiler adds has no source.
            && function.file.contains("demo/src/")
    };
    functions.into_iter().filter(is_own).collect()
}

/// Asks random scopes of a program.
fn ask(program: &Value, has_branches: bool) {
    let name = program["name"].as_str().unwrap();
    if !has_program("bpftrace") {
        return;
    }
    let mut random = Random::from_seed(seed("PROFILER_ORACLE_SEED"));
    let scopes =
        environment("PROFILER_ORACLE_SCOPES").map_or(SCOPES, |scopes| usize::try_from(scopes).unwrap());
    let folder = Folder::make(&format!("oracle-{name}"), program);
    let service = Service::start();
    let running = Running::start(program, folder.of_run("watched"));
    running.wait(ANSWERS, "before probes");
    let pid = running.pid();
    let functions = list_functions(&LIBRARY, ROOT, &TargetSpec::Pid(pid), "").unwrap();
    let candidates = if has_branches {
        own_functions(functions.functions)
    } else {
        candidates(functions.functions, &sampled(&service, &running))
    };
    let watched = watched(&running, candidates, &mut random);
    if watched.is_empty() {
        return skipped(format!(
            "no function of {name} is called as often as bpftrace can write down"
        ));
    }

    let branches = if has_branches {
        Branches::choose(&running, &watched, &mut random)
    } else {
        Branches::default()
    };
    let jumps = (!branches.lines.is_empty()).then(|| branches.events(&watched));
    let trace = Bpftrace::start(pid, &script(pid, &watched));
    running.wait(ANSWERS, "beside bpftrace");
    let mut said = Said::default();
    let first_turn = random.below(Asked::kinds(&branches));
    for turn in 0..scopes * 2 {
        if said.scopes() == scopes {
            break;
        }
        let mut events = trace.so_far();
        events.extend(jumps.iter().flat_map(JumpEvents::so_far));
        let truth = Truth::of(events);
        let asked = Asked::choose(&mut random, first_turn + turn, (&watched, &branches), &truth);
        let Some(asked) = asked else { continue };
        let scope = asked.scope(&watched, &branches);
        let looked = if let Asked::AtBranch { outer, line, taken } = asked {
            look_at_hits(&service, &running, (outer, line, taken), scope.clone())
                .map(|seen| said.of_hits.push(seen))
        } else {
            look(&service, pid, asked, scope.clone()).map(|seen| said.of_calls.push(seen))
        };
        if let Err(error) = looked {
            println!("{scope}: {error}");
            *said.refused.entry(format!("{:?}", error.reason)).or_default() += 1;
        }
    }
    let mut told = trace.end();
    let (at_jumps, lost) = jumps.map(JumpEvents::end).unwrap_or_default();
    assert_eq!(lost, 0, "the kernel lost events at jumps");
    told.events.extend(at_jumps);
    running.wait(1, "after probes were removed");
    running.finish();
    judge(name, told, &said, &branches);
}

/// Holds what the engine said against what bpftrace has told.
fn judge(name: &str, told: Told, said: &Said, branches: &Branches) {
    let is_whole = !told
        .others
        .iter()
        .chain([&told.errors])
        .any(|line| line.contains("Lost "));
    let truth = Truth::of(told.events);
    let mut sum = Verdict::default();
    let of_calls = said.of_calls.iter().map(|seen| {
        (
            &seen.scope,
            &seen.warnings[..],
            Judge::judge(seen, &truth, branches),
        )
    });
    let of_hits = said
        .of_hits
        .iter()
        .map(|seen| (&seen.scope, &[][..], judge::of_hits(seen, &truth, branches)));
    for (scope, warnings, verdict) in of_calls.chain(of_hits) {
        println!(
            "{}: {} calls, {} hits, {} samples, {} times off the CPU, {} near an edge, {} lost; {:?} {:?}",
            scope,
            verdict.calls,
            verdict.hits,
            verdict.samples,
            verdict.away,
            verdict.near,
            verdict.lost,
            verdict.wrong,
            warnings
        );
        sum.calls += verdict.calls;
        sum.hits += verdict.hits;
        sum.samples += verdict.samples;
        sum.away += verdict.away;
        sum.near += verdict.near;
        sum.lost += verdict.lost;
        let wrong = verdict.wrong.into_iter();
        sum.wrong.extend(wrong.map(|wrong| format!("{scope}: {wrong}")));
    }
    let report = json!({
        "program": name,
        "scopes": said.scopes(),
        "refused": said.refused,
        "calls": sum.calls,
        "hits": sum.hits,
        "samples": sum.samples,
        "away": sum.away,
        "near_an_edge": sum.near,
        "lost": sum.lost,
        "wrong": sum.wrong.len(),
        "trace_is_whole": is_whole,
    });
    // `cargo xtask oracle` makes a table of these.
    println!("oracle: {report}");
    assert!(
        is_whole,
        "bpftrace lost events: {} {:?}",
        told.errors, told.others
    );
    assert!(sum.wrong.is_empty(), "{:#?}", sum.wrong);
}

macro_rules! programs {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            #[ignore = "needs root"]
            fn $name() {
                if let Some(program) = installed(stringify!($name)) {
                    ask(&program, false);
                }
            }
        )+
    };
}

/// It has debug information.
#[test]
#[ignore = "needs root"]
fn demo() {
    if let Some(program) = demo_program() {
        ask(&program, true);
    }
}

programs!(redis, memcached, nginx, postgres, mariadb);
