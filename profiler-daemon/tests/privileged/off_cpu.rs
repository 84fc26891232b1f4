//! Time off the CPU against the target's own clocks.

use std::collections::BTreeMap;

use profiler_daemon::{
    session::{FlamePicture, FlameTimes, SessionInfo},
    symbolize::Grouping,
};
use serde_json::Value;

use super::{
    fixture::{Fixture, small_scale, spec},
    service::{Service, time_under},
};

/// Where the calls of one function spent their time, by the target's clocks.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "units last")]
struct Kind {
    wall_ns: u64,
    /// On the CPU.
    cpu_ns: u64,
    /// Off the CPU, by clocks that were read inside of the calls; the others were read around them.
    off_ns: u64,
    /// What was asked for of its waits.
    least_ns: u64,
}

impl Kind {
    /// Panics unless it was off the CPU for so long, as far as the clocks tell: on a busy machine it may have to make
    /// way between those in the caller and those inside of the call.
    fn assert_off(&self, name: &str, off_ns: u64, lost: &BTreeMap<&str, u64>) {
        assert_seen(lost);
        let (least_ns, most_ns) = (self.off_ns, self.wall_ns - self.cpu_ns);
        let least_ns = if lost.is_empty() { least_ns } else { least_ns / 2 };
        assert!(
            least_ns - least_ns / 50 <= off_ns && off_ns <= most_ns + most_ns / 50,
            "{name}: off the CPU for {off_ns} ns, by the target's clocks for {least_ns} to {most_ns} ns"
        );
    }
}

/// Panics where something was lost that the kernel had told. Some kernels hide threads of their own, and so who comes after
/// those.
fn assert_seen(lost: &BTreeMap<&str, u64>) {
    assert!(lost.keys().all(|reason| *reason == "off_cpu_unseen"), "{lost:?}");
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
        let (_, frame, _) = picture.nodes[weight.node.0 as usize - 1];
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
fn stacks(picture: &FlamePicture) -> Vec<(String, u64)> {
    let stack = |mut node: u32| {
        let mut functions = Vec::new();
        while let Some((parent, frame, _)) = node.checked_sub(1).map(|at| picture.nodes[at as usize]) {
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
        assert_eq!(picture.picture.summary.incomplete, 0);
        // A call that has returned is open until the kernel has seen so.
        assert!(
            under_ns >= all_ns / 1000 * 999,
            "all of it was in {name}: {:#?}",
            stacks(&picture)
        );
        assert_eq!(time("on the CPU"), 0);
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
            // has left the CPU.
            assert!(
                all_ns + kind.cpu_ns >= kind.least_ns,
                "{name} was asked to wait for longer"
            );
            assert!(time(expected) >= waited_ns / 10 * 9, "{name} was {expected}");
        }
    }
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn waits_for_a_disk_cannot_be_interrupted() {
    let service = Service::start();
    let file = super::fixture::directory().join(format!("disk.{}", std::process::id()));
    let mut args = spec("disk").args;
    args.push(file.to_str().unwrap().to_owned());
    let mut target = Fixture::start("disk", &args);
    let mut views: Vec<_> = ["put", "get", "save"]
        .into_iter()
        .map(|name| {
            let session = service.attach(target.pid(), name).unwrap();
            let pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OffCpu);
            (name, session, pictures)
        })
        .collect();
    target.say("go");
    let way = target.line();
    if way.starts_with("disk none") {
        println!("{}: {way}: nothing is tested", file.display());
        return;
    }
    println!("{}: {way}", file.display());
    let truth = finish(&mut target);
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
    }
    assert_eq!(target.finish().status, Some(0));
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
