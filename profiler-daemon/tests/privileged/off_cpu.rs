//! Time off the CPU against the target's own clocks.

use profiler_aggregate::calltree::{FrameId, Node, NodeId};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use profiler_aggregate::waits::{self, Waiting};
use profiler_common::{record::SpanEnd, thread::OffCpu};
use profiler_daemon::{
    kernel::Activity,
    session::{ExitMethod, FlamePicture, FlameTimes, MoreRecords, NewSession, Recorded, SessionInfo},
};
use profiler_symbolize::Grouping;
use serde_json::Value;

use super::{
    bpf,
    disk::{Disk, NO_DIRECT_IO},
    fixture::{Fixture, small_scale, spec},
    service::{ROOT, Service, session_of, time_under},
    skipped,
};

/// Where the calls of one function spent their time, by the target's clocks.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "units last")]
struct Kind {
    wall_ns: u64,
    /// On the CPU.
    cpu_ns: u64,
    /// On the CPU and off it, by clocks that were read inside of the calls; the others were read around them.
    on_ns: u64,
    off_ns: u64,
    /// What was asked for of its waits.
    least_ns: u64,
}

impl Kind {
    /// Panics unless it was off the CPU for so long, as far as the clocks tell: on a busy machine it may have to make
    /// way between those in the caller and those inside of the call. The clocks of an emulated machine tell no more than
    /// about how long: its CPUs stand still amid a call and amid the taking of a stack, which is none of the time off it.
    fn assert_off(&self, name: &str, off_ns: u64, lost: &BTreeMap<&str, u64>) {
        assert_seen(lost);
        let (least_ns, most_ns) = (self.off_ns, self.wall_ns - self.cpu_ns);
        let least_ns = if lost.is_empty() { least_ns } else { least_ns / 2 };
        let tolerance = if small_scale() { 2 } else { 50 };
        assert!(
            least_ns - least_ns / tolerance <= off_ns && off_ns <= most_ns + most_ns / tolerance,
            "{name}: off the CPU for {off_ns} ns, by the target's clocks for {least_ns} to {most_ns} ns"
        );
    }
}

/// Panics where something was lost that the kernel had told. Some kernels hide threads of their own, and so who comes after
/// those.
pub fn assert_seen(lost: &BTreeMap<&str, u64>) {
    let is_hidden = |reason: &&str| match *reason {
        "off_cpu_unseen" => true,
        // Taking stacks has a share of each thread's time; an emulated machine is slow at it.
        "off_cpu_stack_skipped" => small_scale(),
        _ => false,
    };
    assert!(lost.keys().all(is_hidden), "{lost:?}");
}

/// Whether stacks were not taken because an emulated machine is slow at it: says so, where something is not known for that reason.
fn are_stacks_skipped(lost: &BTreeMap<&str, u64>) -> bool {
    let skipped_stacks = lost.get("off_cpu_stack_skipped").copied().unwrap_or(0);
    let is_so = small_scale() && skipped_stacks > 0;
    if is_so {
        skipped(format!(
            "{skipped_stacks} stacks would have taken more of an emulated CPU than they may"
        ));
    }
    is_so
}

/// Lets it run to its end; what it says of its functions.
fn finish(target: &mut Fixture) -> BTreeMap<String, Kind> {
    let mut kinds = BTreeMap::new();
    loop {
        let line = target.line();
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
        if line.starts_with("truth ") {
            return kinds;
        }
        if let Some((name, json)) = line.split_once(' ')
            && let Ok(said) = serde_json::from_str::<Value>(json)
        {
            let number = |name: &str| said[name].as_u64().unwrap();
            let kind = Kind {
                wall_ns: number("wall_ns"),
                cpu_ns: number("cpu_ns"),
                on_ns: number("on_ns"),
                off_ns: number("off_ns"),
                least_ns: number("least_ns"),
            };
            kinds.insert(name.to_owned(), kind);
        }
    }
}

/// Time by what the thread did: the innermost frames.
fn by_activity(picture: &FlamePicture) -> BTreeMap<String, u64> {
    let mut times = BTreeMap::new();
    for weight in &picture.picture.weights {
        let frame = picture.nodes[weight.node.0 as usize - 1].frame.0;
        let frame = &picture.frames[frame as usize];
        let activity = if *frame.module == *"[off-cpu]" {
            frame.function.to_string()
        } else {
            "on the CPU".to_owned()
        };
        *times.entry(activity).or_default() += weight.inside_ns;
    }
    times
}

/// The stacks that are drawn, root first.
pub fn stacks(picture: &FlamePicture) -> Vec<(String, u64)> {
    let stack = |mut node: u32| {
        let mut functions = Vec::new();
        while let Some(Node {
            parent: NodeId(parent),
            frame: FrameId(frame),
            ..
        }) = node.checked_sub(1).map(|at| picture.nodes[at as usize])
        {
            functions.push(&*picture.frames[frame as usize].function);
            node = parent;
        }
        functions.reverse();
        functions.join(";")
    };
    let weights = picture.picture.weights.iter();
    weights
        .map(|weight| (stack(weight.node.0), weight.inside_ns))
        .collect()
}

#[test]
#[ignore = "needs root"]
fn ends_of_other_sessions_take_no_time_off_the_cpu() {
    if small_scale() {
        return skipped(
            "an emulated machine has no time left beside sessions that begin and end all the time",
        );
    }
    let service = Service::start();
    let other = Fixture::start("idle", &[]);
    let mut target = Fixture::start("offcpu", &spec("offcpu").args);
    let session = service.attach(target.pid(), "nap").unwrap();
    let mut pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OffCpu);
    let has_finished = AtomicBool::new(false);
    let truth = std::thread::scope(|threads| {
        let ended = threads.spawn(|| {
            let mut ended = 0;
            while !has_finished.load(Ordering::Relaxed) {
                let session = service.attach(other.pid(), "").unwrap();
                let pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OffCpu);
                service.end(&session);
                drop(pictures);
                ended += 1;
            }
            ended
        });
        target.say("go");
        let truth = finish(&mut target);
        has_finished.store(true, Ordering::Relaxed);
        let ended = ended.join().unwrap();
        println!("{ended} others ended");
        assert!(ended > 2);
        truth
    });
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let (_, all_ns) = time_under(&picture, super::service::Side::Inside, "nap");
    println!(
        "nap: {all_ns} ns, the target: {:?}; {:?}",
        truth["nap"], picture.lost
    );
    truth["nap"].assert_off("nap", all_ns, &picture.lost);
    assert_eq!(other.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn waits_have_their_kind_and_length() {
    let service = Service::start();
    let mut target = Fixture::start("offcpu", &spec("offcpu").args);
    let kinds = ["nap", "hear", "lock", "birth", "compete"];
    let mut views: Vec<_> = kinds
        .into_iter()
        .map(|name| {
            let session = service.attach(target.pid(), name).unwrap();
            let pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OffCpu);
            (name, session, pictures)
        })
        .collect();
    target.say("go");
    let truth = finish(&mut target);
    for (name, session, pictures) in &mut views {
        service.end(session);
        let picture = service.until(pictures, |picture| picture.ended.is_some());
        let (times, kind) = (by_activity(&picture), truth[*name]);
        let (under_ns, all_ns) = time_under(&picture, super::service::Side::Inside, name);
        let time = |activity: &str| times.get(activity).copied().unwrap_or(0);
        println!(
            "{name}: {times:?}, the target: {kind:?}; {:?}",
            picture.picture.summary
        );
        assert_eq!(picture.picture.summary.incomplete, 0, "{:#?}", stacks(&picture));
        // A call that has returned is open until the kernel has seen so; meanwhile it may have to make way, now and then.
        assert!(
            under_ns >= all_ns / 100 * 97,
            "all of it was in {name}: {:#?}",
            stacks(&picture)
        );
        assert_eq!(time("on the CPU"), 0);
        let has_kernel = |stack: &str| stack.contains(";do_syscall_64;");
        let waits = |stack: &str| {
            ["[sleeping]", "[uninterruptible]"]
                .iter()
                .any(|word| stack.ends_with(word))
        };
        let cut: Vec<_> = stacks(&picture)
            .into_iter()
            .filter(|(stack, _)| waits(stack) && !has_kernel(stack))
            .collect();
        assert!(cut.is_empty(), "they wait in the kernel: {cut:#?}");
        kind.assert_off(name, all_ns, &picture.lost);
        let waited_ns = all_ns - time("[runnable]");
        let expected = match *name {
            "birth" => "[uninterruptible]",
            "compete" => "[runnable]",
            _ => "[sleeping]",
        };
        if expected == "[runnable]" {
            assert!(waited_ns <= all_ns / 10, "{waited_ns} of {all_ns} ns waited");
            assert!(all_ns >= kind.cpu_ns / 4, "half of the CPU was the other's");
        } else {
            // One that is preempted just before it waits is runnable meanwhile, and a timer runs from before the thread
            // has left the CPU; long before that where the CPU stands still, as an emulated one does. A wait whose end
            // the kernel hid is missing as a whole, and counted.
            let is_whole = picture.lost.is_empty() && !small_scale();
            assert!(
                !is_whole || all_ns + kind.cpu_ns >= kind.least_ns,
                "{name} was asked to wait for longer"
            );
            // A child that has let its parent go still has to end, and an emulated machine takes its time for that.
            let tenths = if small_scale() { 8 } else { 9 };
            assert!(time(expected) >= waited_ns / 10 * tenths, "{name} was {expected}");
        }
    }
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn waits_for_a_disk_cannot_be_interrupted() {
    let service = Service::start();
    let mut disk = Disk::start("disk");
    let mut views: Vec<_> = ["put", "get", "save"]
        .into_iter()
        .map(|name| {
            let session = service.attach(disk.fixture.pid(), name).unwrap();
            let pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OffCpu);
            (name, session, pictures)
        })
        .collect();
    let way = disk.go();
    if way.starts_with("disk none") {
        return skipped(NO_DIRECT_IO);
    }
    let truth = finish(&mut disk.fixture);
    for (name, session, pictures) in &mut views {
        service.end(session);
        let picture = service.until(pictures, |picture| picture.ended.is_some());
        let (times, kind) = (by_activity(&picture), truth[*name]);
        println!(
            "{name}: {times:?}, the target: {kind:?}; {:?}",
            picture.picture.summary
        );
        let all_ns: u64 = times.values().sum();
        kind.assert_off(name, all_ns, &picture.lost);
        let time = |activity: &str| times.get(activity).copied().unwrap_or(0);
        let waited_ns = all_ns - time("[runnable]");
        // What is read may be in a cache of the machine's host, and there before the thread would wait.
        assert!(
            time("[uninterruptible]") >= waited_ns / 10 * 9,
            "{name} waited otherwise: {:#?}",
            stacks(&picture)
        );
        assert!(waited_ns > 0 || way == "disk cached", "{name} never waited");
        // What waits for input and output says so. A journal is waited for otherwise.
        let says = |(stack, _): &(String, u64)| stack.contains("io_schedule");
        assert!(
            waited_ns == 0 || *name == "save" || stacks(&picture).iter().any(says),
            "{name}: {:#?}",
            stacks(&picture)
        );
    }
    assert_eq!(disk.fixture.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn both_times_add_up_to_the_durations() {
    let service = Service::start();
    let mut target = Fixture::start("offcpu", &spec("offcpu").args);
    let view = |scope: &str, times: FlameTimes| {
        let session: SessionInfo = service.attach_at(target.pid(), scope, 1999).unwrap();
        let pictures = service.watch_flame_of(&session, Grouping::Function, times);
        (session, pictures)
    };
    let mut views = [
        view("compete", FlameTimes::Both),
        view("nap", FlameTimes::Both),
        view("compete", FlameTimes::OnCpu),
        view("nap[> 1s]", FlameTimes::OffCpu),
    ];
    target.say("go");
    let truth = finish(&mut target);
    let mut times = Vec::new();
    for (session, pictures) in &mut views {
        service.end(session);
        let picture = service.until(pictures, |picture| picture.ended.is_some());
        println!("{}: {:?}", picture.scope, by_activity(&picture));
        // A slow machine may not keep up, and says so.
        if !small_scale() {
            assert_seen(&picture.lost);
        }
        times.push((by_activity(&picture), picture));
    }
    for ((times, picture), name) in times.iter().zip(["compete", "nap"]) {
        let (all_ns, wall_ns) = (times.values().sum::<u64>(), truth[name].wall_ns);
        assert!(
            small_scale() || !picture.lost.is_empty() || all_ns.abs_diff(wall_ns) <= wall_ns / 5,
            "{all_ns} of {wall_ns} ns in {name}"
        );
        if picture.lost.is_empty() {
            assert_eq!(picture.picture.summary.open, 0, "all calls have ended");
        }
    }
    assert!(
        times[2].0.keys().all(|activity| activity == "on the CPU"),
        "{:?}",
        times[2].0
    );
    let (naps, _) = &times[3];
    assert!(
        naps.values().all(|time_ns| *time_ns == 0),
        "no nap is that long: {naps:?}"
    );
    assert_eq!(target.finish().status, Some(0));
}

/// Where the kernel does not tell that a thread is back, as it comes after one that the kernel hides.
#[test]
#[ignore = "needs root"]
fn a_wait_whose_end_is_not_told_is_in_no_call() {
    let service = Service::start();
    let mut target = Fixture::start("naps", &spec("naps").args);
    let session = service.attach(target.pid(), "nap[> 1s]").unwrap();
    let mut pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OffCpu);
    target.say("go");
    finish(&mut target);
    service.end(&session);
    let long = service.until(&mut pictures, |picture| picture.ended.is_some());
    println!("{:?}, {:?}", long.picture.summary, long.lost);
    assert_seen(&long.lost);
    assert_eq!(by_activity(&long).values().sum::<u64>(), 0, "no nap is that long");
    assert_eq!(long.picture.summary.open, 0, "all calls have ended");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn slow_calls_say_what_they_did_and_where_they_waited() {
    let service = Service::start();
    let mut target = Fixture::start("offcpu", &spec("offcpu").args);
    let places = [
        ("nap", Activity::Sleeping, "nanosleep"),
        ("lock", Activity::Sleeping, "lock"),
        ("birth", Activity::Uninterruptible, "vfork"),
        ("compete", Activity::Runnable, "compete"),
    ];
    let mut views: Vec<_> = places
        .into_iter()
        .map(|place| {
            let session = service.attach(target.pid(), place.0).unwrap();
            let pictures = service.watch_spans(&session, 20);
            (place, session, pictures)
        })
        .collect();
    target.say("go");
    finish(&mut target);
    for ((name, activity, within), session, pictures) in &mut views {
        service.end(session);
        let picture = service.until(pictures, |picture| picture.ended.is_some());
        assert_eq!(picture.spans.len(), 20, "{name}: {:?}", picture.lost);
        let untold = picture.lost.get("off_cpu_unseen").copied().unwrap_or(0);
        let mut as_expected = 0;
        for span in &picture.spans {
            let times = span.times.expect("it was watched from the start");
            let all_ns = times.iter().sum::<u64>();
            assert!(all_ns == span.duration_ns, "{name}: {span:?}");
            let Some(wait) = &span.longest_wait else { continue };
            assert!(wait.time_ns <= times[wait.activity.number()], "{name}: {span:?}");
            // What taking its stack takes is not in its duration: on an emulated machine more than all the rest.
            assert!(
                wait.offset_ns <= span.duration_ns || small_scale(),
                "{name}: {span:?}"
            );
            let functions: Vec<&str> = wait
                .stack
                .iter()
                .map(|frame| &*picture.frames[frame.0 as usize].function)
                .collect();
            let is_there =
                functions.contains(name) && functions.iter().any(|function| function.contains(*within));
            as_expected += u64::from(wait.activity == *activity && is_there);
        }
        println!("{name}: {:?}, {:?}", picture.spans[0], picture.lost);
        // Where the machine is busy, some wait for a CPU for longer than for anything else.
        assert!(
            as_expected + untold >= if small_scale() { 1 } else { 10 },
            "{name}: {as_expected} of 20 waited as asked"
        );
    }
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn many_calls_add_up_to_the_targets_clocks() {
    const HZ: u32 = 997;
    let service = Service::start();
    let mut args = spec("many_waits").args;
    if let Ok(calls) = std::env::var("PROFILER_CALLS") {
        args = vec![calls];
    }
    let mut target = Fixture::start("many_waits", &args);
    let session = service.attach_at(target.pid(), "step", HZ).unwrap();
    let mut pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::Both);
    let mut spans = service.watch_spans(&session, 100);
    let mut latency = service.watch_latency(&session);
    target.say("go");
    let kind = finish(&mut target)["step"];
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let spans = service.until(&mut spans, |picture| picture.ended.is_some());
    let latency = service.until(&mut latency, |picture| picture.ended.is_some());
    let summary = &super::service::function(&latency, "step").summaries.since_start;
    let in_calls_ns = summary.count * summary.times.unwrap().mean_ns;
    let mut times = by_activity(&picture);
    let sampled_ns = times.remove("on the CPU").unwrap_or(0);
    let off_ns: u64 = times.values().sum();
    println!(
        "{} calls of {in_calls_ns} ns in all: off the CPU {times:?}, sampled on it {sampled_ns} ns; the target: {kind:?}; lost {:?}",
        summary.count, picture.lost
    );
    if !small_scale() {
        assert_seen(&picture.lost);
        kind.assert_off("step", off_ns, &picture.lost);
    }
    let on_ns = in_calls_ns - off_ns as f64;
    let cpu_ns = kind.on_ns as f64;
    // What was lost is not off the CPU, and a slow machine takes part of the durations for its own.
    if picture.lost.is_empty() && !small_scale() {
        // What a hit takes before the clock is read at the entry and after it at the return is the target's alone.
        let hits_ns = 10_000.0 * summary.count;
        assert!(
            (on_ns - cpu_ns).abs() <= cpu_ns / 50.0 + hits_ns,
            "{on_ns} of {cpu_ns} ns on the CPU"
        );
        // Each tick is of one call or of none: as many as are expected, give or take five deviations.
        let period_ns = 1e9 / f64::from(HZ);
        let error_ns = 5.0 * (cpu_ns * period_ns).sqrt();
        assert!(
            (sampled_ns as f64 - cpu_ns).abs() <= cpu_ns / 50.0 + error_ns,
            "{sampled_ns} of {cpu_ns} ns were sampled"
        );
    }
    assert!(!spans.spans.is_empty());
    for span in &spans.spans {
        let times = span.times.expect("it was watched from the start");
        assert_eq!(times.iter().sum::<u64>(), span.duration_ns, "{span:?}");
    }
    assert_eq!(target.finish().status, Some(0));
}

/// What was told of one call.
#[derive(Default)]
struct Told {
    off_ns: u64,
    samples: u64,
    duration_ns: Option<u64>,
}

/// Asserts that no call took less than it was off the CPU, of calls that do little but wait, while the sampler interrupts as
/// often as it can; and that of all calls all was told, unless that was lost.
fn take_no_less_than_they_wait((name, args): (&str, &[String]), functions: &[&str], ends: ExitMethod) {
    const HZ: u32 = 9_973;
    let service = Service::start();
    let mut target = Fixture::start(name, args);
    let mut views = Vec::new();
    for function in functions {
        let request = NewSession {
            frequency_hz: HZ,
            exit_method: Some(ends),
            ..session_of(target.pid(), &format!("{function}[>= 1ns]"))
        };
        let session = service.create_for(ROOT, request).unwrap();
        let flames = service.watch_flame_of(&session, Grouping::Function, FlameTimes::Both);
        let spans = service.watch_spans(&session, 100);
        let watching = service
            .handle
            .watch_records(ROOT, session.name.clone(), MoreRecords::default());
        let mut batches = service.runtime.block_on(watching).unwrap();
        let reader = std::thread::spawn(move || {
            let (mut calls, mut dropped) = (BTreeMap::<(u32, u64), Told>::new(), 0);
            while let Some(batch) = batches.blocking_recv() {
                dropped = batch.dropped;
                for record in batch.records.iter() {
                    match record {
                        Recorded::Sample(sample) => {
                            for span in &sample.spans {
                                let told = calls.entry((sample.tid, span.sequence)).or_default();
                                if sample.activity == Activity::OnCpu {
                                    told.samples += 1;
                                } else {
                                    told.off_ns += sample.weight_ns;
                                }
                            }
                        }
                        Recorded::SpanEnd(end) if end.flags & SpanEnd::ABANDONED == 0 => {
                            let told = calls.entry((end.tid, end.sequence)).or_default();
                            told.duration_ns = Some(end.end_ns - end.start_ns);
                        }
                        _ => {}
                    }
                }
            }
            (calls, dropped)
        });
        views.push((*function, session, flames, spans, reader));
    }
    target.run();
    let mut all_sampled = 0;
    for (function, session, mut flames, mut spans, reader) in views {
        service.end(&session);
        let flame = service.until(&mut flames, |picture| picture.ended.is_some());
        let picture = service.until(&mut spans, |picture| picture.ended.is_some());
        let (calls, dropped) = reader.join().unwrap();
        let ended = calls.values().filter_map(|told| Some((told, told.duration_ns?)));
        let ended: Vec<(&Told, u64)> = ended.collect();
        let waited = ended.iter().filter(|(told, _)| told.off_ns > 0).count();
        let sampled = ended.iter().filter(|(told, _)| told.samples > 0).count();
        println!(
            "{name} {function} by {ends:?}: {} calls ended, {waited} waited, {sampled} were sampled; lost {:?} {:?} {dropped}",
            ended.len(),
            flame.lost,
            picture.lost
        );
        let shorter: Vec<String> = ended
            .iter()
            .filter(|(told, duration_ns)| told.off_ns > *duration_ns)
            .map(|(told, duration_ns)| {
                let Told { off_ns, samples, .. } = told;
                format!("{off_ns} ns off the CPU of {duration_ns} ns, {samples} samples")
            })
            .collect();
        assert!(
            shorter.is_empty(),
            "{} of {} calls of {function}: {shorter:#?}",
            shorter.len(),
            ended.len()
        );
        assert!(waited > 0, "{function}");
        all_sampled += sampled;
        assert_eq!(
            picture.lost.get("waits_over_duration"),
            None,
            "{:?}",
            picture.lost
        );
        for span in &picture.spans {
            let times = span.times.expect("it was watched from the start");
            assert_eq!(times.iter().sum::<u64>(), span.duration_ns, "{span:?}");
        }
    }
    // Those of one function are so short that no sample may hit any.
    assert!(small_scale() || all_sampled > 0);
    assert_eq!(target.finish().status, Some(0));
}

/// A recording begins beside a view that has other names made, and the session ends before the ring buffer is looked at again.
#[test]
#[ignore = "needs root"]
fn a_recording_of_a_moment_has_the_names_of_its_samples() {
    const ROUNDS: usize = 5;
    /// Far more than the rounds take.
    const CALLS: &str = "1000000";
    if small_scale() {
        return skipped("an emulated machine has no time left beside a thread that sleeps so often");
    }
    let service = Service::start();
    let mut target = Fixture::start("naps", &[CALLS.to_owned()]);
    target.say("go");
    let everything = MoreRecords {
        off_cpu: true,
        ..MoreRecords::default()
    };
    for round in 0..ROUNDS {
        let mut samples = 0;
        let session = service.attach(target.pid(), "").unwrap();
        let mut flames = service.watch_flame_of(&session, Grouping::Module, FlameTimes::Both);
        service.until(&mut flames, |picture| picture.attempted > 0);
        let name = session.name.clone();
        let recording = service.handle.watch_records(ROOT, name, everything.clone());
        let mut batches = service.runtime.block_on(recording).unwrap();
        target.until_it_has_slept(10);
        service.end(&session);
        while let Some(batch) = batches.blocking_recv() {
            for record in batch.records.iter() {
                let Recorded::Sample(sample) = record else {
                    continue;
                };
                samples += 1;
                for grouping in [Grouping::Function, Grouping::Line] {
                    let stack = sample.stacks.of(grouping).unwrap_or_default();
                    assert!(!stack.is_empty(), "{grouping:?} of {sample:?}");
                }
                assert!(sample.task.is_some(), "{sample:?}");
            }
        }
        println!("{samples} samples in recording {round}");
        assert!(samples >= 5, "{samples} samples in recording {round}");
    }
}

#[test]
#[ignore = "needs root"]
fn calls_that_only_sleep_take_no_less_than_they_slept() {
    let calls = std::env::var("PROFILER_CALLS").unwrap_or_else(|_| {
        let calls = if small_scale() { 500 } else { 20_000 };
        calls.to_string()
    });
    for ends in [ExitMethod::Return, ExitMethod::Ret] {
        take_no_less_than_they_wait(("naps", std::slice::from_ref(&calls)), &["nap"], ends);
    }
}

#[test]
#[ignore = "needs root"]
fn calls_that_wait_for_others_take_no_less_than_they_waited() {
    let args = spec("chain_of_waits").args;
    for ends in [ExitMethod::Return, ExitMethod::Ret] {
        take_no_less_than_they_wait(("chain_of_waits", &args), &["ask", "fetch", "enter"], ends);
    }
}

#[test]
#[ignore = "needs root"]
fn an_interval_whose_end_is_hidden_is_counted_and_not_drawn() {
    const HIDDEN: u64 = 20;
    let service = Service::start();
    let mut target = Fixture::start("many_waits", &["10000".to_owned()]);
    let session = service.attach(target.pid(), "").unwrap();
    let began = Instant::now();
    let mut pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OffCpu);
    target.say("go");
    // Whatever is off the CPU from now on is known.
    service.until(&mut pictures, |picture| picture.attempted > 0);
    // As if the kernel had not told that the thread is back, which has been away since the machine was started. While it is
    // on the CPU nothing is known of it, so that this succeeds, and its next departure finds it.
    let thread = target.pid();
    let hidden = OffCpu {
        start_ns: 1,
        woken_ns: 0,
        stack: 0,
        waker_stack: 0,
        tgid: thread,
        spans: 0,
        state: 1,
        waker_tid: 0,
        waker_tgid: 0,
        taking_ns: 0,
        asks_waker: 0,
        awaits_kernel: 0,
        lock: 0,
        still_ns: 0,
        departures: 0,
        system_call: 0,
        zero: 0,
        admitted_at: 0,
    };
    let maps = bpf::hash_maps(size_of::<u32>(), size_of::<OffCpu>());
    // Of other sessions' programs at most one insertion succeeds.
    let mut inserted = vec![0; maps.len()];
    let has_finished = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            finish(&mut target);
            has_finished.store(true, Ordering::Relaxed);
        });
        while !has_finished.load(Ordering::Relaxed) && inserted.iter().all(|count| *count < HIDDEN) {
            for (map, count) in maps.iter().zip(&mut inserted) {
                *count += u64::from(map.insert_new(&thread, &hidden));
            }
        }
    });
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    println!("{inserted:?}: {:?} of {}", picture.lost, picture.attempted);
    let unseen = picture.lost.get("off_cpu_unseen").copied().unwrap_or(0);
    // The last one may be of no departure.
    let hidden = inserted.into_iter().max().unwrap_or(0);
    assert!(unseen + 1 >= hidden, "{unseen} of {hidden}");
    assert!(unseen > 0 || small_scale());
    assert!(picture.attempted >= unseen);
    let drawn_ns: u64 = by_activity(&picture).into_values().sum();
    assert!(u128::from(drawn_ns) <= began.elapsed().as_nanos(), "{drawn_ns}");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_thread_that_makes_way_where_a_function_begins_is_in_that() {
    let service = Service::start();
    let mut target = Fixture::start("padded", &spec("padded").args);
    let session = service.attach(target.pid(), "").unwrap();
    let mut pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OffCpu);
    target.run();
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    assert_eq!(target.finish().status, Some(0));
    let stacks = stacks(&picture);
    let made_way =
        |(stack, _): &&(String, u64)| stack.ends_with(";[runnable]") && stack.contains(";asm_sysvec_");
    let within = |(stack, _): &&(String, u64)| stack.contains(";work;padded;asm_sysvec_");
    assert!(stacks.iter().any(|stack| within(&stack)), "{stacks:#?}");
    let beside: Vec<_> = stacks
        .iter()
        .filter(|stack| made_way(stack) && !within(stack))
        .collect();
    let unknown =
        |frame: &&profiler_symbolize::Frame| &*frame.module == "padded" && frame.unresolved.is_some();
    assert_eq!(picture.frames.iter().find(unknown), None, "{beside:#?}");
    let weights = picture.picture.weights.iter();
    let drawn = weights.map(|weight| picture.nodes[weight.node.0 as usize - 1].complete);
    let incomplete: Vec<_> = stacks
        .iter()
        .zip(drawn)
        .filter(|(_, is_complete)| !is_complete)
        .map(|(stack, _)| stack)
        .collect();
    assert!(!incomplete.iter().any(within), "{incomplete:#?}");
}

/// What a thread that waits is in, as the kernel tells anybody, root first.
fn kernel_functions(tid: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{tid}/stack")).unwrap();
    let innermost_first = text.lines().map(|line| {
        let (_, place) = line.split_once("] ").unwrap();
        place.split('+').next().unwrap()
    });
    let functions: Vec<&str> = innermost_first.collect();
    assert!(functions.len() > 2, "{text}");
    functions.into_iter().rev().collect::<Vec<_>>().join(";")
}

#[test]
#[ignore = "needs root"]
fn a_wait_that_goes_on_is_drawn_at_the_end() {
    let service = Service::start();
    let mut target = Fixture::start("offcpu", &["3".into()]);
    let [drawn, waited] = [(), ()].map(|()| service.attach(target.pid(), "").unwrap());
    let mut pictures = service.watch_flame_of(&drawn, Grouping::Function, FlameTimes::OffCpu);
    let mut waits = service.watch_waits(&waited);
    target.say("go");
    finish(&mut target);
    // It has said its last, and waits for input now.
    let idle = Instant::now();
    while idle.elapsed() < Duration::from_millis(300) {
        let seen = service.until(&mut pictures, |_| true);
        assert!(seen.ended.is_none());
    }
    let least_ns = u64::try_from(idle.elapsed().as_nanos()).unwrap() / 2;
    let in_kernel = kernel_functions(target.pid());
    service.end(&drawn);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let stacks = stacks(&picture);
    for thread in ["read_line", "speaker", "holder"] {
        let going_on = |(stack, ns): &(String, u64)| {
            stack.contains(thread) && stack.ends_with("[sleeping];[goes on]") && *ns >= least_ns
        };
        if !stacks.iter().any(going_on) && are_stacks_skipped(&picture.lost) {
            continue;
        }
        assert!(
            stacks.iter().any(going_on),
            "{thread}: {stacks:#?} {:?}",
            picture.lost
        );
    }
    let waits_there =
        |(stack, _): &(String, u64)| stack.ends_with(&format!("{in_kernel};[sleeping];[goes on]"));
    assert!(
        stacks.iter().any(waits_there) || are_stacks_skipped(&picture.lost),
        "{in_kernel}: {stacks:#?} {:?}",
        picture.lost
    );
    // The other session was not told, and is not ended by that.
    service.end(&waited);
    let picture = service.until(&mut waits, |picture| picture.ended.is_some());
    assert!(picture.total.waited_ns > 0);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_wait_that_goes_on_is_in_the_tree_at_the_end() {
    let service = Service::start();
    let mut target = Fixture::start("offcpu", &["3".into()]);
    let session = service.attach(target.pid(), "").unwrap();
    let mut pictures = service.watch_waits(&session);
    target.say("go");
    finish(&mut target);
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let mut going_on: Vec<&str> = Vec::new();
    for node in picture
        .nodes
        .iter()
        .filter(|node| matches!(node.kind, waits::Kind::GoesOn(_)))
    {
        let waits::Kind::Waited(place, waiting, _) = &picture.nodes[node.parent.unwrap()].kind else {
            panic!("nothing but a wait goes on")
        };
        assert_eq!(*waiting, Waiting::Sleeping);
        let stack = place.stack.iter();
        going_on.extend(stack.map(|frame| &*picture.frames[frame.0 as usize].function));
    }
    assert_eq!(target.finish().status, Some(0));
    for thread in ["speaker", "holder"] {
        if !going_on.contains(&thread) && are_stacks_skipped(&picture.lost) {
            continue;
        }
        assert!(
            going_on.contains(&thread),
            "{thread}: {going_on:?} {:?}",
            picture.lost
        );
    }
}
