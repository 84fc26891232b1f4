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
    /// What was asked for of its waits.
    least_ns: u64,
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
        println!("{name}: {times:?}, the target: {kind:?}");
        assert!(picture.lost.is_empty(), "{:?}", picture.lost);
        assert_eq!(picture.picture.summary.incomplete, 0);
        assert_eq!(under_ns, all_ns, "all of it was in {name}");
        assert_eq!(time("on the CPU"), 0);
        // The clocks are read outside of the calls.
        let off_ns = kind.wall_ns - kind.cpu_ns;
        assert!(
            all_ns <= off_ns + off_ns / 50,
            "{name}: {all_ns} of {off_ns} ns off the CPU"
        );
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
        // A machine whose CPUs are taken away in between has time that no thread of it has.
        if !small_scale() {
            assert!(
                all_ns >= off_ns - off_ns / 50,
                "{name}: {all_ns} of {off_ns} ns off the CPU"
            );
        }
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
        assert!(picture.lost.is_empty() || small_scale(), "{:?}", picture.lost);
        times.push((by_activity(&picture), picture));
    }
    for ((times, picture), name) in times.iter().zip(["compete", "nap"]) {
        let (all_ns, wall_ns) = (times.values().sum::<u64>(), truth[name].wall_ns);
        assert!(
            small_scale() || all_ns.abs_diff(wall_ns) <= wall_ns / 5,
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
