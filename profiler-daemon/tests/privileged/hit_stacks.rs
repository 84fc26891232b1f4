//! Stacks at hits and where calls begin, of programs without frame pointers: each against the one way that leads there, with
//! return probes pending on the way.

use std::{collections::HashMap, time::Duration};

use profiler_daemon::session::{
    Capture, ExitMethod, NewSession, Purpose, SessionInfo, TraceBatch, TracedHit,
};
use profiler_symbolize::{Frame, FrameId};
use tokio::sync::mpsc;

use super::{
    fixture::{Fixture, small_scale, spec},
    service::{ROOT, Service, session_of},
    skipped,
    stacks_target::EMULATED,
};

const SOURCE: &str = include_str!("../fixtures/engine/chain.c");

/// Longest wait for a batch.
const PATIENCE: Duration = Duration::from_mins(2);

/// Number of the line with a mark.
fn line(mark: &str) -> u32 {
    let mark = format!("/* line of {mark} */");
    let at = SOURCE.lines().position(|line| line.contains(&mark)).unwrap();
    u32::try_from(at).unwrap() + 1
}

/// A session that takes the stacks of its hits.
struct Traced {
    session: SessionInfo,
    batches: mpsc::Receiver<TraceBatch>,
    frames: HashMap<FrameId, Frame>,
    hits: Vec<TracedHit>,
    last: Option<TraceBatch>,
}

impl Traced {
    fn start(
        service: &Service,
        pid: u32,
        scope: &str,
        hits_per_second: u32,
        method: Option<ExitMethod>,
    ) -> Self {
        let request = NewSession {
            exit_method: method,
            capture: Some(Capture {
                print: Vec::new(),
                hits_per_second,
                stack: true,
                purpose: Purpose::Shown,
            }),
            ..session_of(pid, scope)
        };
        let create = service.handle.create(ROOT, request);
        let session = service.runtime.block_on(create).unwrap();
        let watch = service.handle.watch_trace(ROOT, session.name.clone());
        let batches = service.runtime.block_on(watch).unwrap();
        Self {
            session,
            batches,
            frames: HashMap::new(),
            hits: Vec::new(),
            last: None,
        }
    }

    /// Takes a batch; whether there was one.
    fn take(&mut self, service: &Service) -> bool {
        let next = async { tokio::time::timeout(PATIENCE, self.batches.recv()).await };
        let Some(batch) = service.runtime.block_on(next).expect("no batch came") else {
            return false;
        };
        self.frames.extend(batch.frames.iter().cloned());
        self.hits.extend(batch.hits.iter().cloned());
        self.last = Some(batch);
        true
    }

    fn until(&mut self, service: &Service, hits: usize) {
        while self.hits.len() < hits {
            assert!(self.take(service), "the session ended early");
        }
    }

    /// Ends it; all that was reached is accounted for.
    fn end(&mut self, service: &Service) {
        service.end(&self.session);
        while self.take(service) {}
        let last = self.last.as_ref().unwrap();
        let lost: u64 = last.lost.values().sum();
        println!(
            "{}: {} hits of {}, {} complete, lost {:?}",
            self.session.scope,
            self.hits.len(),
            last.reached,
            self.hits
                .iter()
                .filter(|hit| hit.stack.as_ref().unwrap().complete)
                .count(),
            last.lost
        );
        assert_eq!(last.reached, self.hits.len() as u64 + last.rejected + lost);
    }

    /// A hit's frames, root first.
    fn stack(&self, hit: &TracedHit) -> Vec<&Frame> {
        let stack = hit.stack.as_ref().unwrap();
        stack.frames.iter().map(|id| &self.frames[id]).collect()
    }
}

/// The functions of a fixture's own, without what compilers add to their names.
fn own<'a>(frames: &[&'a Frame], module: &str) -> Vec<&'a str> {
    let own = frames.iter().filter(|frame| frame.module.starts_with(module));
    own.map(|frame| frame.function.split([' ', '.']).next().unwrap())
        .collect()
}

/// Traces a place of `chain` to its end, with return probes pending on these functions.
fn chain(scope: &str, pending: &[&str], method: Option<ExitMethod>) -> Traced {
    let service = Service::start();
    let spec = spec("chain");
    let mut target = Fixture::start("chain", &spec.args);
    let others: Vec<SessionInfo> = pending
        .iter()
        .map(|function| {
            let session = service.attach_by(target.pid(), function, Some(ExitMethod::Return));
            session.unwrap()
        })
        .collect();
    let mut traced = Traced::start(&service, target.pid(), scope, 1_000_000, method);
    let truth = target.run();
    traced.end(&service);
    assert_eq!(traced.hits.len() as u64, truth["reached"].calls);
    for other in others {
        let last = service.last_latency(&other);
        let calls: u64 = last.functions.iter().map(super::service::ended).sum();
        assert_eq!(calls, truth["reached"].calls, "{}", other.scope);
    }
    assert_eq!(target.finish().status, Some(0));
    traced
}

/// Every hit has the way there, function by function and line by line. `innermost` is the line of the last.
fn assert_chain(traced: &Traced, innermost: impl Fn(u32) -> bool) {
    for hit in &traced.hits {
        let frames = traced.stack(hit);
        assert!(hit.stack.as_ref().unwrap().complete, "{frames:?}");
        let inner: Vec<(&str, u32, bool)> = frames
            .iter()
            .filter(|frame| frame.module.starts_with("chain") && &*frame.function != "_start")
            .map(|frame| (&*frame.function, frame.line, frame.inlined))
            .collect();
        let (last, callers) = inner.split_last().unwrap();
        assert_eq!(
            callers,
            [
                ("main", line("main"), false),
                ("outermost", line("outermost"), false),
                ("compare", line("compare"), false),
                ("outer", line("outer"), false),
                ("inlined", line("inlined"), true),
            ]
        );
        assert_eq!((last.0, last.2), ("reached", false));
        assert!(innermost(last.1), "{last:?}");
        // The sort itself, between `outermost` and `compare`.
        let at = |name: &str| frames.iter().position(|frame| &*frame.function == name).unwrap();
        assert!(at("outermost") + 1 < at("compare"), "{frames:?}");
        assert_eq!(&*frames[0].function, "_start");
    }
}

const PENDING: [&[&str]; 3] = [&[], &["outer"], &["outer", "compare", "outermost", "reached"]];

#[test]
#[ignore = "needs root"]
fn a_line_has_the_stack_that_leads_there() {
    let number = line("reached");
    let scope = format!("chain.c:{number}");
    for pending in PENDING {
        let traced = chain(&scope, pending, None);
        assert_chain(&traced, |line| line == number);
    }
}

#[test]
#[ignore = "needs root"]
fn a_call_has_the_stack_where_it_began() {
    let begins = SOURCE
        .lines()
        .position(|line| line.starts_with("PROBED void reached"))
        .unwrap();
    let begins = u32::try_from(begins).unwrap() + 1;
    for method in [None, Some(ExitMethod::Return), Some(ExitMethod::Ret)] {
        let traced = chain("reached", &["outer", "outermost"], method);
        assert!(traced.hits.iter().all(|hit| hit.duration_ns.is_some()));
        assert_chain(&traced, |line| (begins..begins + 3).contains(&line));
    }
}

#[test]
#[ignore = "needs root"]
fn hits_in_calls_of_a_duration_keep_their_stacks() {
    let number = line("reached");
    let traced = chain(
        &format!("outer[> 1ns]/chain.c:{number}"),
        &["compare"],
        Some(ExitMethod::Return),
    );
    assert_chain(&traced, |line| line == number);
}

/// Traces a function of `stacks` that is called in one way only.
fn shape(act: &str, function: &str, chain: &str, complete: bool) {
    let service = Service::start();
    let args = ["4000", act].map(str::to_owned);
    let mut target = Fixture::start("stacks", &args);
    let pending = service
        .attach_by(target.pid(), act, Some(ExitMethod::Return))
        .unwrap();
    let method = Some(ExitMethod::Return);
    let mut traced = Traced::start(&service, target.pid(), function, 1000, method);
    target.say("go");
    let wanted = if small_scale() { 20 } else { 500 };
    traced.until(&service, wanted);
    traced.end(&service);
    service.end(&pending);
    assert_eq!(target.finish().status, Some(0));
    let roots = [&["_start", "main"][..], &["thread_main"]];
    let words: Vec<&str> = chain.split(' ').collect();
    let mut seen = [0; 2];
    for hit in &traced.hits {
        let frames = traced.stack(hit);
        let own = own(&frames, "stacks");
        assert_eq!(hit.stack.as_ref().unwrap().complete, complete, "{own:?}");
        if !complete {
            // Cut off at its outer end.
            assert_eq!(own[own.len() - 1], function);
            assert!(own.iter().rev().skip(1).all(|name| *name == words[0]), "{own:?}");
            continue;
        }
        let root = roots.iter().position(|root| own == [root, &*words].concat());
        seen[root.unwrap_or_else(|| panic!("{own:?} of {function}"))] += 1;
    }
    println!("  by main {}, by the thread {}", seen[0], seen[1]);
}

#[test]
#[ignore = "needs root"]
fn frames_of_every_shape_are_walked() {
    let tower: Vec<String> = (0..30).map(|storey| format!("n{storey:02}")).collect();
    shape(
        "tower",
        "n29",
        &format!("all_acts tower {}", tower.join(" ")),
        true,
    );
    for (act, function, chain) in [
        ("sorting", "compare", "all_acts sorting compare"),
        (
            "in_library",
            "from_library",
            "all_acts in_library library_calls library_inner from_library",
        ),
        ("allocating", "allocated", "all_acts allocating allocated"),
        (
            "aligning",
            "in_realigned",
            "all_acts aligning realigned in_realigned",
        ),
        ("pushing", "many_arguments", "all_acts pushing many_arguments"),
    ] {
        shape(act, function, chain, true);
    }
    let recursion = vec!["sink_to"; 300].join(" ");
    shape(
        "recursing",
        "bottom",
        &format!("all_acts recursing {recursion} bottom"),
        true,
    );
}

#[test]
#[ignore = "needs root"]
fn a_stack_deeper_than_is_kept_says_so() {
    if small_scale() {
        return skipped(EMULATED);
    }
    shape("drowning", "seabed", "drown_to", false);
}

#[test]
#[ignore = "needs root"]
fn hits_are_walked_while_they_are_sampled() {
    let service = Service::start();
    let mut target = Fixture::start("stacks", &["4000", "tower"].map(str::to_owned));
    let all = service.attach_at(target.pid(), "", 999).unwrap();
    let mut pictures = service.watch_flame(&all);
    let mut traced = Traced::start(&service, target.pid(), "n29", 1_000_000, Some(ExitMethod::Return));
    target.say("go");
    let wanted = if small_scale() { 100 } else { 20_000 };
    traced.until(&service, wanted);
    let sampled = service.until(&mut pictures, |picture| picture.picture.summary.samples > 20);
    println!("{} samples meanwhile", sampled.picture.summary.samples);
    traced.end(&service);
    service.end(&all);
    assert_eq!(target.finish().status, Some(0));
    let mut ways: HashMap<Vec<&str>, u64> = HashMap::new();
    let mut incomplete = 0;
    for hit in &traced.hits {
        let frames = traced.stack(hit);
        let way = own(&frames, "stacks");
        if hit.stack.as_ref().unwrap().complete {
            *ways.entry(way).or_default() += 1;
        } else {
            // The tables that it was walked by changed meanwhile: what is certain is left, and said to be no more.
            assert_eq!(way, ["n29"]);
            incomplete += 1;
        }
    }
    println!("{incomplete} of {} incomplete", traced.hits.len());
    assert!(incomplete * 1_000 <= traced.hits.len());
    assert!(
        ways.keys().all(|way| way.ends_with(&["n27", "n28", "n29"])),
        "{ways:?}"
    );
    assert!(ways.len() <= 2, "{ways:?}");
}
