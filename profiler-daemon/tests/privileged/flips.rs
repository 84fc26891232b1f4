//! A process that becomes programs with more rights, one after another, and itself again in between, while a user looks at it with
//! every view: nothing of those programs is seen, in whatever moment of an exec a probe or a sample comes.

use std::{
    collections::BTreeSet,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use profiler_aggregate::waits;
use profiler_daemon::{
    kernel::{Counter, Event},
    session::{
        Capture, Estimate, Estimated, ExplainPicture, FlamePicture, FlameRequest, FlameTimes, LatencyPicture,
        Looks, MoreRecords, NewSession, Numbered, Pictures, Purpose, RecordBatch, Recorded, SessionError,
        SpansPicture, SyscallsPicture, TimelineBucket, TimelineRequest, TraceBatch, WaitsPicture,
    },
};
use profiler_symbolize::{Frame, FrameId, FrameTable, Grouping};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    admission::{OTHER_CALL, Programs, USER},
    fixture::{Fixture, long_scale, small_scale},
    service::{Ends, PATIENCE, Service, Side, ended, session_of, slowest, time_under},
    skipped,
};

/// Time between pictures.
const INTERVAL_NS: u64 = 100_000_000;

/// The views that show a program that a process becomes for a moment. Of the others there may be too little: in its functions it neither
/// sleeps nor touches new memory, and `explain` and a dry run take longer.
const VIEWS: [&str; 9] = [
    "flame",
    "latency",
    "latency by value",
    "record",
    "record of hits",
    "spans",
    "syscalls",
    "timeline",
    "trace",
];

/// How often something was seen, by the view that showed it.
type Seen = Vec<(&'static str, u64)>;

/// What a user saw of a process, with every view.
#[derive(Debug, Default)]
struct Glance {
    /// Calls of the function that was looked at.
    calls: Seen,
    /// What only the programs do that it becomes: times in their functions, their system calls and waits.
    of_others: Seen,
    /// Frames of theirs in stacks that were shown. The table of all names has more: what a process has mapped is read once it may be
    /// looked at, and it can have become another by then; of that table nobody is told but what is in a stack of theirs.
    named: Seen,
}

impl Glance {
    fn frames<'f>(
        &mut self,
        view: &'static str,
        frames: impl IntoIterator<Item = &'f Frame>,
        images: &[&str],
    ) {
        let named = frames.into_iter().filter(|frame| is_of(frame, images));
        self.named.push((view, named.count() as u64));
    }

    /// The same of stacks, whose frames are in a table.
    fn stacks<'s>(
        &mut self,
        view: &'static str,
        table: &FrameTable,
        stacks: impl IntoIterator<Item = &'s [FrameId]>,
        images: &[&str],
    ) {
        let ids: BTreeSet<FrameId> = stacks.into_iter().flatten().copied().collect();
        let frames = ids.iter().filter_map(|id| table.get(id.0 as usize));
        self.frames(view, frames, images);
    }

    /// Waits at places of theirs.
    fn waits(&mut self, picture: &WaitsPicture, images: &[&str]) {
        let is_theirs = |node: &&waits::Node| match &node.kind {
            waits::Kind::Waited(place, ..) => place.stack.iter().any(|frame| {
                let frame = picture.frames.get(frame.0 as usize);
                frame.is_some_and(|frame| is_of(frame, images))
            }),
            _ => false,
        };
        let theirs = picture.nodes.iter().filter(is_theirs).count();
        self.of_others.push(("waits", theirs as u64));
    }

    /// What a recording has.
    fn records(&mut self, view: &'static str, batches: &[RecordBatch], images: &[&str]) {
        let table = batches.last().map(|batch| batch.frames.clone());
        let table = table.unwrap_or_default();
        let records = batches.iter().flat_map(|batch| batch.records.iter());
        let stacks = records.flat_map(|record| match record {
            Recorded::Sample(sample) => {
                let both = [Grouping::Function, Grouping::Line].map(|by| sample.stacks.of(by));
                both.into_iter().flatten().collect::<Vec<_>>()
            }
            Recorded::Reached(_, look) | Recorded::Call(_, look) => {
                look.stack.iter().map(|stack| &*stack.frames).collect()
            }
            Recorded::Wait(wait) => vec![&*wait.wait.place.stack],
            Recorded::SpanEnd(_) | Recorded::AtEvent(_) => Vec::new(),
        });
        self.stacks(view, &table, stacks, images);
        let turns = batches.iter().flat_map(|batch| &batch.turns);
        let others = turns
            .flat_map(|turn| &turn.calls)
            .filter(|calls| calls.call.number == OTHER_CALL);
        self.of_others
            .push((view, others.map(|calls| calls.counted.calls).sum()));
        let records = batches.iter().flat_map(|batch| batch.records.iter());
        let ended = records.filter(|record| matches!(record, Recorded::SpanEnd(_) | Recorded::Call(..)));
        self.calls.push((view, ended.count() as u64));
        let readings = batches.last().map(|batch| &batch.readings);
        let readings = readings.into_iter().flat_map(|readings| readings.iter());
        let counted = readings
            .map(|reading| reading.open() + reading.ended.iter().map(|(_, count)| count).sum::<u64>());
        self.calls.push((view, counted.sum()));
    }
}

/// Whether a frame is of a program of these names.
fn is_of(frame: &Frame, images: &[&str]) -> bool {
    images.contains(&&*frame.module) || *frame.function == *"became_fn"
}

/// A user's sessions on a process, and all that is watched of them.
struct Looking<'s> {
    service: &'s Service,
    sessions: Vec<String>,
    latency: Pictures<LatencyPicture>,
    spans: Pictures<SpansPicture>,
    timeline: mpsc::Receiver<TimelineBucket>,
    divided: Pictures<LatencyPicture>,
    trace: mpsc::Receiver<TraceBatch>,
    traced: mpsc::Receiver<RecordBatch>,
    explain: Option<Pictures<ExplainPicture>>,
    flame: Pictures<FlamePicture>,
    faults: Pictures<FlamePicture>,
    calls: Pictures<SyscallsPicture>,
    waits: Pictures<WaitsPicture>,
    recorded: mpsc::Receiver<RecordBatch>,
    estimate: Option<JoinHandle<Result<Estimate, SessionError>>>,
}

fn capture(purpose: Purpose, stack: bool) -> Capture {
    Capture {
        print: vec![profiler_scope::expression::parse("$rdi").unwrap()],
        hits_per_second: 1_000_000,
        stack,
        purpose,
    }
}

impl<'s> Looking<'s> {
    /// Begins to look at a process, which waits for a line, and at its calls of a function; with `slow` also by what takes longer to
    /// begin than all else.
    fn at(service: &'s Service, pid: u32, function: &str, slow: bool) -> Self {
        let handle = &service.handle;
        let create = |request: NewSession| {
            let created = service.runtime.block_on(handle.create(USER, request));
            created.unwrap().name
        };
        let of_function = || session_of(pid, function);
        let timed = create(of_function());
        let traced = create(NewSession {
            capture: Some(capture(Purpose::Shown, true)),
            ..of_function()
        });
        let divided = create(NewSession {
            capture: Some(capture(Purpose::Divided, false)),
            ..of_function()
        });
        let explained = slow.then(|| {
            create(NewSession {
                explain: true,
                ..session_of(pid, &format!("{function}[> 1us]"))
            })
        });
        let sampled = create(session_of(pid, ""));
        let faults = Event::parse("page-faults", None, 99).unwrap();
        let flame = FlameRequest {
            waits: true,
            ..FlameRequest::of(Grouping::Function, Some(FlameTimes::Both))
        };
        let of_faults = FlameRequest::of(Grouping::Function, Some(FlameTimes::Event(faults)));
        let counters = TimelineRequest {
            counters: vec![Counter::parse("task-clock").unwrap()],
            step_ns: INTERVAL_NS,
            threads: true,
        };
        let everything = MoreRecords {
            waits: true,
            syscalls: true,
            off_cpu: true,
            events: BTreeSet::from([faults]),
        };
        let looks = Looks {
            sampled_ns: 50_000_000,
            measures: true,
        };
        let (name, on) = (String::clone, &service.runtime);
        let looking = async {
            Ok::<_, SessionError>(Self {
                service,
                latency: handle.watch_latency(USER, name(&timed), INTERVAL_NS).await?,
                spans: handle
                    .watch_spans(USER, name(&timed), INTERVAL_NS, slowest(10))
                    .await?,
                timeline: handle.watch_timeline(USER, name(&timed), counters).await?,
                divided: handle.watch_latency(USER, name(&divided), INTERVAL_NS).await?,
                trace: handle.watch_trace(USER, name(&traced)).await?,
                traced: handle
                    .watch_records(USER, name(&traced), MoreRecords::default())
                    .await?,
                explain: match &explained {
                    Some(explained) => Some(handle.watch_explain(USER, name(explained), INTERVAL_NS).await?),
                    None => None,
                },
                flame: handle
                    .watch_flame(USER, name(&sampled), INTERVAL_NS, flame)
                    .await?,
                faults: handle
                    .watch_flame(USER, name(&sampled), INTERVAL_NS, of_faults)
                    .await?,
                calls: handle
                    .watch_syscalls(USER, name(&sampled), INTERVAL_NS, Grouping::Function)
                    .await?,
                waits: handle.watch_waits(USER, name(&sampled), INTERVAL_NS).await?,
                recorded: handle.watch_records(USER, name(&sampled), everything).await?,
                // What it counts is counted while the process is no longer what it was, or is refused.
                estimate: slow.then(|| {
                    let (handle, new) = (handle.clone(), Estimated::New(Box::new(of_function())));
                    on.spawn(async move { handle.estimate(USER, new, looks).await })
                }),
                sessions: [timed, traced, divided, sampled]
                    .into_iter()
                    .chain(explained)
                    .collect(),
            })
        };
        on.block_on(looking).unwrap()
    }

    /// The last picture of a view, whose session has ended.
    fn last<P: Ends>(&self, mut pictures: Pictures<P>) -> Numbered<P> {
        self.service
            .until(&mut pictures, |picture| picture.ended().is_some())
    }

    /// Ends the sessions; what was seen of the function, and of programs of these names.
    fn end(mut self, images: &[&str]) -> Glance {
        let (handle, on) = (&self.service.handle, &self.service.runtime);
        for name in std::mem::take(&mut self.sessions) {
            // It may be over.
            let _ = on.block_on(handle.end(USER, name));
        }
        let mut seen = Glance::default();
        for (view, pictures) in [
            ("latency", self.latency.clone()),
            ("latency by value", self.divided.clone()),
        ] {
            let functions = &self.last(pictures).functions;
            let calls = functions.iter().map(|function| ended(function) + function.open);
            seen.calls.push((view, calls.sum()));
        }
        let spans = self.last(self.spans.clone());
        seen.calls.push(("spans", spans.calls + spans.spans.len() as u64));
        let stacks = spans.spans.iter().flat_map(|span| {
            let waited = span.longest_wait.iter().map(|wait| &*wait.stack);
            waited.chain([&*span.stack])
        });
        seen.stacks("spans", &spans.frames, stacks, images);
        if let Some(explain) = self.explain.clone() {
            seen.calls.push(("explain", self.last(explain).calls));
        }
        for (view, pictures) in [
            ("flame", self.flame.clone()),
            ("flame of faults", self.faults.clone()),
        ] {
            let picture = self.last(pictures);
            let times = [Side::Inside, Side::Outside].map(|side| time_under(&picture, side, "became_fn").0);
            seen.of_others.push((view, times.iter().sum()));
            let nodes = picture.nodes.iter();
            let frames = nodes.filter_map(|node| picture.frames.get(node.frame.0 as usize));
            seen.frames(view, frames, images);
        }
        let calls = self.last(self.calls.clone());
        let others = calls.calls.iter().filter(|call| call.call.number == OTHER_CALL);
        let others = others.map(|call| call.all.calls + call.open);
        seen.of_others.push(("syscalls", others.sum()));
        let callers = calls.calls.iter().flat_map(|call| &call.callers);
        let stacks = callers.map(|(stack, _)| &**stack);
        seen.stacks("syscalls", &calls.frames, stacks, images);
        seen.waits(&self.last(self.waits.clone()), images);
        while let Some(bucket) = self.timeline.blocking_recv() {
            seen.calls.push(("timeline", bucket.calls.unwrap_or(0)));
        }
        while let Some(batch) = self.trace.blocking_recv() {
            seen.calls
                .push(("trace", batch.reached + batch.hits.len() as u64));
            seen.frames("trace", batch.frames.iter().map(|(_, frame)| frame), images);
        }
        let all = |batches: &mut mpsc::Receiver<RecordBatch>| {
            let mut all = Vec::new();
            while let Some(batch) = batches.blocking_recv() {
                all.push(batch);
            }
            all
        };
        seen.records("record of hits", &all(&mut self.traced), images);
        seen.records("record", &all(&mut self.recorded), images);
        let estimate = self.estimate.map(|estimate| on.block_on(estimate).unwrap());
        // It may have been refused.
        if let Some(Ok(estimate)) = estimate {
            let places = estimate.steps.iter().flat_map(|step| &step.places);
            let hits = places.map(|place| place.hits.unwrap_or(0) + place.samples_inside.unwrap_or(0));
            seen.calls.push(("dry run", hits.sum()));
        }
        seen
    }
}

/// The views that have shown something.
fn showing(seen: &Seen) -> BTreeSet<&'static str> {
    let showing = seen.iter().filter(|(_, number)| *number > 0);
    showing.map(|(view, _)| *view).collect()
}

/// A process that becomes programs, one after another, while it is looked at with every view.
struct Flipping<'a> {
    service: &'a Service,
    programs: &'a Programs,
    /// What it becomes.
    others: &'a [PathBuf],
    /// How often.
    flips: u64,
}

impl Flipping<'_> {
    fn images(&self) -> Vec<&str> {
        let names = self.others.iter().map(|path| path.file_name().unwrap());
        names.map(|name| name.to_str().unwrap()).collect()
    }

    /// Runs it to its end, each time with a look at it that is given to `each`.
    fn run(&self, mut each: impl FnMut(&Glance, bool)) {
        let images = self.images();
        let paths: Vec<&str> = self.others.iter().map(|path| path.to_str().unwrap()).collect();
        let mut command = Command::new(self.programs.own());
        command.args(["flips", &paths.join(":"), &self.flips.to_string()]);
        let mut target = Fixture::start_by(command.uid(USER.uid).gid(USER.gid));
        target.say("go");
        let mut rounds = 0_u64;
        while target.line() == "waiting" {
            // The programs that it becomes call the first of these, the other one the second.
            let is_own = rounds % 3 == 2;
            let function = ["l64a", "a64l"][usize::from(is_own)];
            let looking = Looking::at(self.service, target.pid(), function, rounds % 4 == 2);
            target.say("go");
            std::thread::sleep(Duration::from_millis(rounds * 37 % 150));
            each(&looking.end(&images), is_own);
            rounds += 1;
        }
        assert!(target.output.ends_with("flipped\n"), "{}", target.output);
        println!(
            "{} times another program ({}), attached to {rounds} times",
            self.flips,
            images.join(", ")
        );
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn nothing_is_seen_of_programs_with_more_rights_that_come_and_go() {
    if small_scale() {
        return skipped("an emulated machine takes too long to attach");
    }
    let flips = if long_scale() { 10_016 } else { 256 };
    let programs = Programs::new("flips");
    let mut others = vec![
        programs.copy("setuid", [0, 0], 0o4755),
        programs.copy("setgid", [0, 42], 0o2755),
        programs.copy("unreadable", [0, 0], 0o711),
    ];
    match programs.copy_with_capability() {
        Ok(capable) => others.push(capable),
        Err(error) => println!("no file can have capabilities here: {error}"),
    }
    // Frames are this test's alone. Root looks at another process, so that programs are not loaded over and over.
    let service = Service::own();
    let mut beside = Fixture::start("idle", &[]);
    let kept = service.attach(beside.pid(), "").unwrap();
    let flipping = |others: &[PathBuf], flips: u64, each: &mut dyn FnMut(&Glance, bool)| {
        let flipping = Flipping {
            service: &service,
            programs: &programs,
            others,
            flips,
        };
        flipping.run(each);
    };
    let mut showing_own = BTreeSet::new();
    flipping(&others, flips, &mut |seen, is_own| {
        if is_own {
            showing_own.extend(showing(&seen.calls));
        } else {
            assert_eq!(showing(&seen.calls), BTreeSet::new(), "{seen:?}");
        }
        let of_others = [&seen.of_others, &seen.named].map(showing);
        assert_eq!(of_others, [const { BTreeSet::new() }; 2], "{seen:?}");
    });
    println!("its own calls were shown by: {showing_own:?}");

    // Each view shows a program without more rights, in those same moments: the more often it is looked at, the likelier.
    let plain = [programs.copy("plain", [0, 0], 0o755)];
    let mut showing_plain = BTreeSet::new();
    let mut hidden: Vec<&str> = VIEWS.to_vec();
    let begin = Instant::now();
    // On a busy machine the target is seldom on the CPU while it is looked at.
    while !hidden.is_empty() && begin.elapsed() < 3 * PATIENCE {
        flipping(&plain, 192, &mut |seen, is_own| {
            if !is_own {
                showing_plain.extend(showing(&seen.calls));
            }
            showing_plain.extend(showing(&seen.of_others));
        });
        hidden.retain(|view| !showing_plain.contains(view));
    }
    println!("what it became without more rights was shown by: {showing_plain:?}");
    assert!(hidden.is_empty(), "nothing at all is shown by {hidden:?}");
    service.end(&kept);
    beside.say("go");
    assert_eq!(beside.finish().status, Some(0));
}
