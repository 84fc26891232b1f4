//! An independent trace beside the engine: bpftrace writes down each entry and return of some functions of a real server under
//! load, and what the engine says of random scopes has to follow from that: which calls there were, how long they took, which
//! calls and samples lie inside of which.
//!
//! The target stands still while a scope is attached and detached, so that both see the same calls. `cargo xtask oracle` asks more
//! scopes than the few that are asked here. Which ones depends on a seed, `PROFILER_ORACLE_SEED`, and on what the server does.

mod asked;
mod judge;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    fs,
    ops::RangeInclusive,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use profiler_daemon::session::{
    FlamePicture, FlameTimes, FunctionInfo, LatencyPicture, Library, MoreRecords, RecordBatch, SessionError,
    TargetSpec, list_functions,
};
use profiler_symbolize::Grouping;
use profiler_testkit::{Random, has_program, skipped};
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};
use serde_json::json;

use self::{
    asked::Asked,
    judge::{Judge, Verdict},
    trace::{Bpftrace, Truth},
};
use super::{
    programs::{Folder, Running, environment, installed, sampled, seed},
    service::{PATIENCE, ROOT, Service, ended},
};

/// Scopes of each program, unless `PROFILER_ORACLE_SCOPES` says otherwise.
const SCOPES: u64 = 4;
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
    latency: Arc<LatencyPicture>,
    flame: Arc<FlamePicture>,
    records: Vec<RecordBatch>,
    warnings: Vec<String>,
    /// A function's entry is looked at behind its first instruction.
    looks_behind: bool,
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
    let mut flame = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OnCpu);
    let watching = service
        .handle
        .watch_records(ROOT, session.name.clone(), MoreRecords::default());
    let mut batches = service.runtime.block_on(watching)?;
    let begin_ns = now_ns();
    drop(stopped);
    service.until(&mut latency, |picture| {
        let calls: u64 = picture.functions.iter().map(ended).sum();
        calls >= CALLS || picture.seq >= PICTURES
    });
    let stopped = Stopped::new(pid);
    let end_ns = now_ns();
    service.end(&session);
    let latency = service.until(&mut latency, |picture| picture.ended.is_some());
    let flame = service.until(&mut flame, |picture| picture.ended.is_some());
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
        records,
        warnings: session.warnings,
        looks_behind: session.sites.iter().any(|site| site.entry_offset > 0),
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
    let mut script = String::new();
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

/// Asks random scopes of a program.
fn ask(name: &str) {
    let Some(program) = installed(name) else { return };
    if !has_program("bpftrace") {
        return;
    }
    let mut random = Random::from_seed(seed("PROFILER_ORACLE_SEED"));
    let scopes = environment("PROFILER_ORACLE_SCOPES").unwrap_or(SCOPES);
    let folder = Folder::make(&format!("oracle-{name}"), &program);
    let service = Service::start();
    let running = Running::start(&program, folder.of_run("watched"));
    running.wait(ANSWERS, "before probes");
    let pid = running.pid();
    let functions = list_functions(&LIBRARY, ROOT, &TargetSpec::Pid(pid), "").unwrap();
    let candidates = candidates(functions.functions, &sampled(&service, &running));
    let watched = watched(&running, candidates, &mut random);
    if watched.is_empty() {
        return skipped(format!(
            "no function of {name} is called as often as bpftrace can write down"
        ));
    }

    let trace = Bpftrace::start(pid, &script(pid, &watched));
    running.wait(ANSWERS, "beside bpftrace");
    let (mut all, mut refused) = (Vec::new(), BTreeMap::<String, u64>::new());
    let first_turn = random.below(6) as u64;
    for turn in 0..scopes * 2 {
        if all.len() as u64 == scopes {
            break;
        }
        let truth = Truth::of(trace.so_far());
        let asked = Asked::choose(&mut random, first_turn + turn, &watched, &truth);
        let Some(asked) = asked else { continue };
        let scope = asked.scope(&watched);
        match look(&service, pid, asked, scope.clone()) {
            Ok(seen) => all.push(seen),
            Err(error) => {
                println!("{scope}: {error}");
                *refused.entry(format!("{:?}", error.reason)).or_default() += 1;
            }
        }
    }
    let told = trace.end();
    let is_whole = !told
        .others
        .iter()
        .chain([&told.errors])
        .any(|line| line.contains("Lost "));
    running.wait(1, "after probes were removed");
    running.finish();
    let truth = Truth::of(told.events);
    let mut sum = Verdict::default();
    for seen in &all {
        let verdict = Judge::judge(seen, &truth);
        println!(
            "{}: {} calls, {} samples, {} near an edge, {} lost; {:?} {:?}",
            seen.scope,
            verdict.calls,
            verdict.samples,
            verdict.near,
            verdict.lost,
            verdict.wrong,
            seen.warnings
        );
        sum.calls += verdict.calls;
        sum.samples += verdict.samples;
        sum.near += verdict.near;
        sum.lost += verdict.lost;
        let wrong = verdict.wrong.into_iter();
        sum.wrong
            .extend(wrong.map(|wrong| format!("{}: {wrong}", seen.scope)));
    }
    let report = json!({
        "program": name,
        "scopes": all.len(),
        "refused": refused,
        "calls": sum.calls,
        "samples": sum.samples,
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
                ask(stringify!($name));
            }
        )+
    };
}

programs!(redis, memcached, nginx, postgres, mariadb);
