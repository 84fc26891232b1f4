//! The kernel's own places: system calls as spans, tracepoints as hits, against what the target says it made.

use std::{collections::BTreeMap, fs::File, io::Read as _, os::fd::FromRawFd as _};

use aya_obj::generated::{perf_event_attr, perf_type_id::PERF_TYPE_TRACEPOINT};
use profiler_daemon::{
    kernel::Tracefs,
    session::{Caller, Capture, Losses, NewSession, Purpose, SessionInfo, TargetSpec, TraceBatch, TracedHit},
};
use profiler_plan::values::{Reading, Record};
use tokio::sync::mpsc;

use super::{
    fixture::{Fixture, small_scale, spec},
    service::{ROOT, Service, Side, ended, function, session_of, time_under},
};

/// What the target made, by its own count.
pub type Made = BTreeMap<String, u64>;

pub fn start() -> Fixture {
    Fixture::start("places", &spec("places").args)
}

/// Lets it run to its end.
pub fn finish(target: &mut Fixture) -> Made {
    target.say("go");
    let mut made = None;
    loop {
        let line = target.line();
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
        if let Some(json) = line.strip_prefix("made ") {
            made = Some(serde_json::from_str(json).unwrap());
        }
        if line.starts_with("truth ") {
            break;
        }
    }
    println!("the target: {made:?}");
    made.unwrap()
}

/// A session that records everything.
pub struct Traced {
    pub session: SessionInfo,
    batches: mpsc::Receiver<TraceBatch>,
}

impl Traced {
    pub fn start(service: &Service, target: &Fixture, scope: &str, print: &[&str]) -> Self {
        Self::start_for(service, ROOT, vec![target.pid()], scope, print)
    }

    /// The same of several, for somebody else than root.
    pub fn start_for(service: &Service, owner: Caller, pids: Vec<u32>, scope: &str, print: &[&str]) -> Self {
        let request = NewSession {
            capture: Some(Capture {
                print: print
                    .iter()
                    .map(|text| profiler_scope::expression::parse(text).unwrap())
                    .collect(),
                // None is too many.
                hits_per_second: u32::MAX,
                stack: false,
                purpose: Purpose::Shown,
            }),
            target: TargetSpec::Pids(pids),
            ..session_of(0, scope)
        };
        let session = service.create_for(owner, request).unwrap();
        let watching = service.handle.watch_trace(ROOT, session.name.clone());
        let batches = service.runtime.block_on(watching).unwrap();
        Self { session, batches }
    }

    /// Everything that was recorded; the last batch agrees with it.
    pub fn end(self, service: &Service) -> (Vec<TracedHit>, TraceBatch) {
        self.ask_to_end(service);
        self.ended()
    }

    /// Ends its session, whose last batch is still to come.
    pub fn ask_to_end(&self, service: &Service) {
        service.end(&self.session);
    }

    /// The same where it ends by itself.
    pub fn ended(mut self) -> (Vec<TracedHit>, TraceBatch) {
        let mut hits = Vec::new();
        let last = loop {
            let batch = self.batches.blocking_recv().unwrap();
            hits.extend(batch.hits.iter().cloned());
            if batch.ended.is_some() {
                break batch;
            }
        };
        println!(
            "{}: {} shown of {}, {} rejected, {:?}",
            self.session.scope,
            hits.len(),
            last.reached,
            last.rejected,
            last.lost
        );
        let lost: u64 = last.lost.values().sum();
        assert_eq!(last.reached, hits.len() as u64 + last.rejected + lost);
        (hits, last)
    }
}

pub fn value(hit: &TracedHit, index: usize) -> String {
    match &hit.values[index].reading {
        Reading::Ok(value) => value.to_string(),
        other => panic!("{}: {other:?}", hit.values[index].expression),
    }
}

/// Whether all that passed was seen. Where the kernel can be stopped amid the writing of a map, be it that it is
/// preemptible or that its CPU is an emulated one, it leaves some out on that CPU: `missed` of all processes, as far as it
/// says so.
pub fn saw_all(seen: u64, made: u64, missed: u64) {
    let least = if small_scale() {
        (made / 2).saturating_sub(missed)
    } else {
        made
    };
    assert!(
        (least..=made).contains(&seen),
        "{seen} of {made}, {missed} missed"
    );
}

/// What a view says that the kernel left out at places of its own.
pub fn missed(lost: &Losses) -> u64 {
    lost.get("place_missed").copied().unwrap_or(0)
}

#[test]
#[ignore = "needs root"]
fn system_calls_are_counted_to_the_call() {
    let service = Service::start();
    let mut target = start();
    let scopes = [
        "syscall:lseek",
        "work/syscall:lseek",
        "syscall:lseek[offset == 5]",
        "syscall:lseek[arg1 == 5]",
        "work[> 2ms]/syscall:lseek",
        "work/tracepoint:task:task_rename/syscall:nanosleep",
        "syscall:nanosleep",
        "syscall:nanosleep/syscall:lseek",
    ];
    let sessions = scopes.map(|scope| (scope, service.attach(target.pid(), scope).unwrap()));
    let made = finish(&mut target);
    // What the kernel does not show where a thread is stopped amid a program.
    let mut missed = 0;
    let seen: BTreeMap<&str, u64> = sessions
        .iter()
        .map(|(scope, session)| {
            let picture = service.last_latency(session);
            let name = scope.rsplit_once("syscall:").unwrap().1;
            let name = format!("syscall:{}", name.split('[').next().unwrap());
            let function = function(&picture, &name);
            assert!(function.lost.is_empty(), "{scope}: {:?}", function.lost);
            missed = missed.max(picture.lost.get("syscall_missed").copied().unwrap_or(0));
            (*scope, ended(function))
        })
        .collect();
    println!("{seen:?}, missed {missed}");
    assert!(missed == 0 || small_scale());
    let is_all = |scope: &str, made: u64| {
        let range = made.saturating_sub(missed)..=made;
        assert!(range.contains(&seen[scope]), "{scope}: {} of {made}", seen[scope]);
    };
    is_all("syscall:lseek", made["lseek"]);
    is_all("work/syscall:lseek", made["inside"]);
    is_all("syscall:lseek[offset == 5]", made["five"]);
    is_all("syscall:lseek[arg1 == 5]", made["five"]);
    is_all("syscall:nanosleep", made["nanosleep"]);
    assert_eq!(seen["syscall:nanosleep/syscall:lseek"], 0);
    // No call that sleeps renames its thread.
    assert_eq!(seen["work/tracepoint:task:task_rename/syscall:nanosleep"], 0);
    let slow = seen["work[> 2ms]/syscall:lseek"];
    assert!(
        (made["slow"].saturating_sub(missed)..=made["slow"] + made["unsure"]).contains(&slow),
        "{slow} in slow calls"
    );
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn system_calls_are_traced_with_arguments_duration_and_what_they_return() {
    let service = Service::start();
    let mut target = start();
    let all = Traced::start(&service, &target, "syscall:lseek", &["offset", "arg0", "return"]);
    let failed = Traced::start(&service, &target, "work/syscall:lseek[return < 0]", &["return"]);
    let slept = Traced::start(&service, &target, "syscall:nanosleep[return == 0]", &["return"]);
    let made = finish(&mut target);
    let (hits, last) = all.end(&service);
    // An emulated machine may stop a thread amid a program, and not show what others on its CPU do meanwhile.
    let missed = last.unseen.get("syscall_missed").copied().unwrap_or(0);
    assert!(missed == 0 || small_scale());
    let is_all = |hits: &[TracedHit], made: u64| {
        let range = made.saturating_sub(missed)..=made;
        assert!(range.contains(&(hits.len() as u64)), "{} of {made}", hits.len());
    };
    is_all(&hits, made["lseek"]);
    assert_eq!(last.rejected, 0);
    for hit in &hits {
        let (offset, returned) = (value(hit, 0), value(hit, 2));
        let expected = if offset == "-1" { "-22" } else { offset.as_str() };
        assert_eq!(returned, expected, "at {offset}");
        assert_eq!(value(hit, 1), value(&hits[0], 1));
    }
    let (hits, _) = failed.end(&service);
    is_all(&hits, made["failed"]);
    assert!(hits.iter().all(|hit| value(hit, 0) == "-22"));
    let (hits, _) = slept.end(&service);
    is_all(&hits, made["nanosleep"]);
    let durations: Vec<u64> = hits.iter().map(|hit| hit.duration_ns.unwrap()).collect();
    assert!(durations.iter().all(|ns| *ns >= 5_000_000), "{durations:?}");
    let sum: u64 = durations.iter().sum();
    println!("slept {sum} ns, {} by the target's clock", made["slept_ns"]);
    // Its clock is read before and after.
    assert!(sum <= made["slept_ns"]);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn tracepoints_are_hits_with_fields() {
    let service = Service::start();
    let mut target = start();
    let counted = Traced::start(
        &service,
        &target,
        "tracepoint:raw_syscalls:sys_enter[id == 8]",
        &["id"],
    );
    let entered = Traced::start(
        &service,
        &target,
        "work/tracepoint:syscalls:sys_enter_lseek",
        &["offset"],
    );
    let renamed = Traced::start(
        &service,
        &target,
        "tracepoint:task:task_rename",
        &["newcomm", "pid", "oom_score_adj"],
    );
    let named = Traced::start(
        &service,
        &target,
        "work/tracepoint:task:task_rename[newcomm == \"place-5\"]",
        &["newcomm"],
    );
    let made = finish(&mut target);
    let (hits, last) = counted.end(&service);
    saw_all(hits.len() as u64, made["lseek"], missed(&last.unseen));
    // The others of its system calls were rejected by the kernel.
    assert!(last.rejected >= made["nanosleep"], "{last:?}");
    assert!(
        hits.iter()
            .all(|hit| hit.duration_ns.is_none() && value(hit, 0) == "8")
    );
    let (hits, last) = entered.end(&service);
    saw_all(hits.len() as u64, made["inside"], missed(&last.unseen));
    let failed = hits.iter().filter(|hit| value(hit, 0) == "-1").count();
    saw_all(failed as u64, made["failed"], missed(&last.unseen));
    let (hits, last) = renamed.end(&service);
    saw_all(hits.len() as u64, made["renamed"], missed(&last.unseen));
    for hit in &hits {
        assert!(value(hit, 0).starts_with("\"place-"), "{}", value(hit, 0));
    }
    let (hits, _) = named.end(&service);
    assert!(!hits.is_empty() && hits.iter().all(|hit| value(hit, 0) == "\"place-5\""));
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn time_inside_of_a_system_call_is_drawn() {
    let service = Service::start();
    let mut target = start();
    let session = service.attach(target.pid(), "work/syscall:nanosleep").unwrap();
    let mut pictures = service.watch_flame_of(
        &session,
        profiler_symbolize::Grouping::Function,
        profiler_daemon::session::FlameTimes::Both,
    );
    let made = finish(&mut target);
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let (_, inside) = time_under(&picture, Side::Inside, "work");
    println!("{inside} ns inside, {} slept", made["slept_ns"]);
    assert!(inside <= made["slept_ns"] * 11 / 10, "{inside} ns");
    assert!(inside >= made["nanosleep"] * 4_500_000, "{inside} ns");
    assert_eq!(target.finish().status, Some(0));
}

/// A counter of the kernel's own at a tracepoint, for a process and the threads that it starts.
fn counter(category: &str, name: &str, pid: u32) -> File {
    let format = Tracefs::open().unwrap().format(category, name).unwrap().unwrap();
    // SAFETY: the structure is plain numbers, all of which may be 0.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = PERF_TYPE_TRACEPOINT as u32;
    attributes.size = u32::try_from(size_of::<perf_event_attr>()).unwrap();
    attributes.config = Record::parse(&format).unwrap().id;
    attributes.set_inherit(1);
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: the attributes are initialised, and live over the call.
    let event = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, pid, -1, -1, 0) };
    assert!(event >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just made this descriptor for us.
    unsafe { File::from_raw_fd(i32::try_from(event).unwrap()) }
}

#[test]
#[ignore = "needs root"]
fn other_tools_at_the_same_places_see_what_they_would() {
    let service = Service::start();
    let mut target = start();
    let mut counters = [("syscalls", "sys_enter_lseek"), ("task", "task_rename")]
        .map(|(category, name)| counter(category, name, target.pid()));
    let calls = service.attach(target.pid(), "syscall:lseek").unwrap();
    let renamed = Traced::start(&service, &target, "tracepoint:task:task_rename", &[]);
    let made = finish(&mut target);
    let counted = counters.each_mut().map(|counter| {
        let mut count = [0; 8];
        counter.read_exact(&mut count).unwrap();
        u64::from_ne_bytes(count)
    });
    println!("perf events: {counted:?}");
    // Its own counters have no program that the kernel could leave out, but an emulated machine has its ways.
    saw_all(counted[0], made["lseek"], 0);
    saw_all(counted[1], made["renamed"], 0);
    let picture = service.last_latency(&calls);
    // What the kernel does not show where an emulated machine stops a thread amid a program.
    let unseen = picture.lost.get("syscall_missed").copied().unwrap_or(0);
    assert!(unseen == 0 || small_scale());
    let seen = ended(function(&picture, "syscall:lseek"));
    let range = made["lseek"].saturating_sub(unseen)..=made["lseek"];
    assert!(
        range.contains(&seen),
        "{seen} of {}, {unseen} missed",
        made["lseek"]
    );
    let (hits, last) = renamed.end(&service);
    saw_all(hits.len() as u64, made["renamed"], missed(&last.unseen));
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_scope_is_edited_to_places_of_the_kernel_and_back() {
    let service = Service::start();
    let mut target = start();
    let session = service.attach(target.pid(), "work").unwrap();
    for scope in [
        "work/syscall:lseek",
        "work/syscall:lseek/tracepoint:task:task_rename",
        "work",
        "work/syscall:nanosleep",
    ] {
        let name = session.name.clone();
        let edited = service.handle.set_scope(ROOT, name, scope.to_owned());
        assert_eq!(service.runtime.block_on(edited).unwrap().scope, scope);
    }
    let made = finish(&mut target);
    let picture = service.last_latency(&session);
    assert_eq!(ended(function(&picture, "syscall:nanosleep")), made["nanosleep"]);
    assert_eq!(target.finish().status, Some(0));
}

/// Tracepoints are passed in interrupts, in the middle of programs that are at work on the thread's open spans.
#[test]
#[ignore = "needs root"]
fn what_interrupts_a_program_changes_nothing_of_its_thread() {
    let service = Service::start();
    let spec = spec("calls");
    let mut target = Fixture::start("calls", &spec.args);
    let name = &spec.probe[1];
    let calls = service.attach(target.pid(), name).unwrap();
    let interrupts = [
        "irq_vectors:local_timer_entry",
        "sched:sched_switch",
        "timer:hrtimer_start",
    ]
    .map(|tracepoint| Traced::start(&service, &target, &format!("{name}/tracepoint:{tracepoint}"), &[]));
    let within = service
        .attach(
            target.pid(),
            &format!("{name}/tracepoint:timer:hrtimer_start/{name}"),
        )
        .unwrap();
    let truth = target.run();
    let seen: usize = interrupts
        .into_iter()
        .map(|interrupt| interrupt.end(&service).0.len())
        .sum();
    let picture = service.last_latency(&calls);
    let function = function(&picture, name);
    println!("{seen} interrupts in {} calls", truth[name].calls);
    assert_eq!(ended(function), truth[name].returned);
    assert_eq!(function.open, 0);
    service.end(&within);
    assert_eq!(target.finish().status, Some(0));
}
